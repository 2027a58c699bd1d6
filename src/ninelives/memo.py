"""
Model calls that are paid for once.

A node that calls a model, and is killed behind it, calls it again when it runs again. With `[effects] model =
"recorded"` what the model said is recorded at once, and said again. LangChain asks a cache before it asks a model; ours
stands in front of the one that there was, and speaks only inside a run whose settings say so.

Calls are told apart by their task, what was asked, and how many equal ones came before: asking twice on purpose is
asking twice.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from langchain_core.caches import BaseCache
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk

from ninelives import _langgraph
from ninelives.effects import Journal, current_journal
from ninelives.errors import LeaseLostError, StoreUnavailableError, UnknownTypeError
from ninelives.store import Act

log = logging.getLogger(__name__)

STORED = (Generation, GenerationChunk, ChatGeneration, ChatGenerationChunk)
"""Classes that a recorded answer is made of, beside messages."""

Answer = Sequence[Generation]
Place = tuple[Any, ...]
"""Of equal calls: their task, the tool call that they are made in, a digest of what is asked."""


class RecordedCalls(BaseCache):
    """
    Args:
        behind: the cache that was there; asked where nothing is recorded.
    """

    def __init__(self, behind: BaseCache | None) -> None:
        self._behind = behind
        self._missed: WeakKeyDictionary[Journal, dict[Place, deque[str]]] = WeakKeyDictionary()
        self._mutex = Lock()

    def lookup(self, prompt: str, llm_string: str) -> Answer | None:
        if (place := _place(prompt, llm_string)) is not None:
            book, key = place[0], _key(*place)
            found = book.store.perform(book.store.find_call(book.lease, key))
            if found is not None:
                return _said_again(found)
            self._miss(*place, key)
        return self._behind.lookup(prompt, llm_string) if self._behind else None

    async def alookup(self, prompt: str, llm_string: str) -> Answer | None:
        if (place := _place(prompt, llm_string)) is not None:
            book, key = place[0], _key(*place)
            found = await book.store.aperform(book.store.find_call(book.lease, key))
            if found is not None:
                return _said_again(found)
            self._miss(*place, key)
        return await self._behind.alookup(prompt, llm_string) if self._behind else None

    def update(self, prompt: str, llm_string: str, return_val: Answer) -> None:
        if (missed := self._take_missed(prompt, llm_string)) is not None:
            with _recording(missed[0]):
                missed[0].store.perform(_keeping(*missed, return_val))
        if self._behind:
            self._behind.update(prompt, llm_string, return_val)

    async def aupdate(self, prompt: str, llm_string: str, return_val: Answer) -> None:
        if (missed := self._take_missed(prompt, llm_string)) is not None:
            with _recording(missed[0]):
                await missed[0].store.aperform(_keeping(*missed, return_val))
        if self._behind:
            await self._behind.aupdate(prompt, llm_string, return_val)

    def clear(self, **kwargs: Any) -> None:
        if self._behind:
            self._behind.clear(**kwargs)

    def _miss(self, book: Journal, place: Place, key: str) -> None:
        """The model is asked now: what it says belongs to this key."""
        with self._mutex:
            self._missed.setdefault(book, defaultdict(deque))[place].append(key)

    def _take_missed(self, prompt: str, llm_string: str) -> tuple[Journal, str] | None:
        if (asked := _place(prompt, llm_string)) is None:
            return None
        book, place = asked
        with self._mutex:
            waiting = self._missed.get(book, {}).get(place)
            return (book, waiting.popleft()) if waiting else None


def _place(prompt: str, llm_string: str) -> tuple[Journal, Place] | None:
    """The run that asks, and where; None outside a run, or where it is not wanted."""
    book, task = current_journal(), _langgraph.current_task()
    if book is None or task is None or not book.records_models:
        return None
    digest = hashlib.blake2b(f"{prompt}\0{llm_string}".encode(), digest_size=16).hexdigest()
    return book, (task.stored_task_id, task.path, task.call_key, "model", digest)


def _key(book: Journal, place: Place) -> str:
    """Of the next one of these equal calls."""
    task_id, *equals = place
    ordinal = book.ordinal(task_id, tuple(equals))
    return f"model/{hashlib.blake2b(repr((place, ordinal)).encode(), digest_size=16).hexdigest()}"


def _keeping(book: Journal, key: str, said: Answer) -> Act[None]:
    return book.store.keep_call(book.lease, key, "model", [*said])


@contextmanager
def _recording(book: Journal) -> Iterator[None]:
    """What a model said is in hand, whether it can be recorded or not."""
    try:
        yield
    except (UnknownTypeError, StoreUnavailableError) as error:
        log.warning("what a model said cannot be recorded, and is paid for again after a kill: %s", error)
    except LeaseLostError as lost:
        raise book.stop(lost) from lost


_mutex = Lock()


def record_models() -> None:
    """Stand in front of the process's cache of model calls; once is enough."""
    with _mutex:
        if not isinstance(get_llm_cache(), RecordedCalls):
            set_llm_cache(RecordedCalls(get_llm_cache()))


def _said_again(found: Answer) -> list[Generation]:
    return [
        said.model_copy(update={"generation_info": {**(said.generation_info or {}), _langgraph.RECORDED: True}})
        for said in found
    ]
