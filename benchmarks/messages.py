"""
The chat that is measured, turn by turn: a question, a tool call, what the tool returned, an answer.

A turn's messages depend on the seed and the turn's number alone, so a process that begins at turn 200 says what one
that has been there all along would say. No passage is said twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from benchmarks.corpus import Corpus
from benchmarks.spec import Text

MODEL = "big-model-4-5-20260101"
BIG_EVERY = 40
"""Each so many'th tool call reads a big file; spread evenly, so that no stretch of the chat is heavier by chance."""


@dataclass(frozen=True)
class Turn:
    question: BaseMessage
    call: BaseMessage
    result: BaseMessage
    answer: BaseMessage

    @property
    def messages(self) -> list[BaseMessage]:
        return [self.question, self.call, self.result, self.answer]


class Teller:
    """Says things out of a corpus, each passage once, with the ids and counts that models and tools give."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        self.random = Random(seed)
        self._prose, self._code = _Tape(corpus.prose, self.random), _Tape(corpus.code, self.random)

    def prose(self, low: int, high: int) -> str:
        return self._prose.next(self.random.randint(low, high))

    def code(self, low: int, high: int) -> str:
        return self._code.next(self.random.randint(low, high))

    def hex(self, digits: int = 24) -> str:
        return f"{self.random.getrandbits(4 * digits):0{digits}x}"

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def from_model(self) -> dict[str, Any]:
        """What comes with a model's message beside its text."""
        came, went = self.random.randint(500, 90_000), self.random.randint(20, 900)
        usage = {
            "input_tokens": came,
            "output_tokens": went,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": came // 2,
            "service_tier": "standard",
        }
        return {
            "id": f"lc_run--{self.uuid()}-0",
            "response_metadata": {
                "id": f"msg_{self.hex()}",
                "model": MODEL,
                "model_name": MODEL,
                "model_provider": "vendor",
                "stop_reason": "tool_use",
                "stop_sequence": None,
                "usage": usage,
            },
            "usage_metadata": {
                "input_tokens": came,
                "output_tokens": went,
                "total_tokens": came + went,
                "input_token_details": {"cache_read": came // 2, "cache_creation": 0},
            },
        }


class CorpusTooShortError(Exception):
    """The chat is longer than the text that it is made of."""


class _Tape:
    """A text that is read on and on, from some place near its beginning."""

    def __init__(self, text: str, random: Random) -> None:
        self._text, self._at, self._left = text, random.randrange(len(text) // 8), len(text)

    def next(self, chars: int) -> str:
        self._left -= chars
        if self._left < 0:
            raise CorpusTooShortError(f"{len(self._text):,} characters are used up; install more, or ask for less")
        if self._at + chars > len(self._text):
            self._at = 0
        self._at += chars
        return self._text[self._at - chars : self._at]


def turns(corpus: Corpus, seed: int, text: Text = "corpus") -> Iterator[Turn]:
    """The chat, without end."""
    teller, number = Teller(corpus, seed), 0
    while True:
        number += 1
        turn = _turn(teller, big=number % BIG_EVERY == BIG_EVERY // 2)
        yield turn if text == "corpus" else _of_noise(turn, teller.random)


def turn_number(corpus: Corpus, seed: int, number: int, text: Text = "corpus") -> Turn:
    """The turn with this number; the first is 1."""
    return next(islice(turns(corpus, seed, text), number - 1, None))


def new_bytes(turn: Turn) -> bytes:
    """One copy of all that a turn says, as LangGraph's own serialiser writes it."""
    serializer = JsonPlusSerializer()
    return b"".join(serializer.dumps_typed(message)[1] for message in turn.messages)


def _turn(teller: Teller, *, big: bool) -> Turn:
    call_id = f"toolu_{teller.hex()}"
    question = HumanMessage(teller.prose(400, 1500), id=teller.uuid())
    arguments = {
        "path": f"/srv/app/{teller.hex(6)}/module_{teller.random.randint(0, 999)}.py",
        "offset": teller.random.randint(0, 4000),
        "reason": teller.prose(40, 160),
    }
    call = AIMessage(
        teller.prose(100, 400),
        tool_calls=[{"name": "read_file", "args": arguments, "id": call_id, "type": "tool_call"}],
        **teller.from_model(),
    )
    read = teller.code(50_000, 50_000) if big else teller.code(2000, 7500)
    result = ToolMessage(read, tool_call_id=call_id, name="read_file", id=teller.uuid())
    return Turn(question, call, result, AIMessage(teller.prose(400, 1500), **teller.from_model()))


def _of_noise(turn: Turn, random: Random) -> Turn:
    """The same turn, but instead of each text as many random bytes, as of an image that somebody sent."""
    noisy = [
        message.model_copy(update={"content": "", "additional_kwargs": {"raw": random.randbytes(len(message.text))}})
        for message in turn.messages
    ]
    return Turn(*noisy)
