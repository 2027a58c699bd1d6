"""
Train a zstd dictionary from this repository's own text, and from values of LangChain and LangGraph made of that text.

    python scripts/train_dictionary.py --check         what the newest dictionary gains on text it has not seen
    python scripts/train_dictionary.py --number 2      train and write a new one; those that are there never change

The same sources give the same bytes. One file in five is held out of training, by the digest of its name, and
`--check` measures on those alone. Nobody else's text is in it: providers' field names are, their sentences are not.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import random
import re
import string
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import zstandard
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.types import Command, Interrupt, Send

from ninelives.stores.codec import DEFAULT_TYPES, encode
from ninelives.stores.codec.frames import Frames, dictionary_path

ROOT = Path(__file__).resolve().parents[1]
SIZE_BYTES = 32 * 1024
SEED = 9
TIMES = 4
"""So many values of each kind are made of each paragraph."""


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, help="number of the dictionary to make")
    parser.add_argument("--check", action="store_true", help="print what the newest dictionary gains")
    options = parser.parse_args()
    if options.number:
        _write(options.number)
    if options.check or not options.number:
        _check()


def _write(number: int) -> None:
    path = dictionary_path(number)
    if path.exists():
        raise SystemExit(f"{path} is there already, and stores may have been written with it. Take the next number.")
    path.write_bytes(trained(number))
    print(f"{path}: {path.stat().st_size} bytes, sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}")


def trained(number: int) -> bytes:
    """The dictionary that today's sources give."""
    samples: list[Any] = [sample for _, sample in _samples(held_out=False)]
    return zstandard.train_dictionary(SIZE_BYTES, samples, k=500, d=8, level=3, dict_id=number).as_bytes()


def _check() -> None:
    print(f"{'held out':12} {'values':>6} {'plain':>9} {'zstd':>9} {'ours':>9} {'dense':>9}  bytes; ours of zstd")
    frames, plain = Frames(), zstandard.ZstdCompressor(level=3, write_content_size=True)
    groups: dict[str, list[bytes]] = {}
    for kind, sample in _samples(held_out=True):
        groups.setdefault(kind, []).append(sample)
    for kind, samples in groups.items():
        sizes = (
            sum(map(len, samples)),
            sum(min(len(plain.compress(sample)) - 4, len(sample) + 1) for sample in samples),
            sum(len(frames.seal(sample)) for sample in samples),
            sum(len(frames.seal(sample, dense=True)) for sample in samples),
        )
        print(f"{kind:12} {len(samples):6} {''.join(f'{size:10}' for size in sizes)}  {sizes[2] / sizes[1]:.0%}")


# -- text -----------------------------------------------------------------------------------------------------------


def _paragraphs(held_out: bool) -> list[str]:
    """The paragraphs of the files that are held out, or of the others, in an order that is always the same."""
    paths = [path for path in _sources() if _is_held_out(path) == held_out]
    return list(dict.fromkeys(text for path in paths for text in _texts_of(path) if len(text) >= 40))


def _is_held_out(path: Path) -> bool:
    return hashlib.blake2b(path.relative_to(ROOT).as_posix().encode()).digest()[0] % 5 == 0


def _sources() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]
    for folder, pattern in (("docs", "*.md"), ("src", "*.py"), ("src", "*.sql"), ("examples", "*.py")):
        found += sorted((ROOT / folder).rglob(pattern))
    return [path for path in found if path.is_file()]


def _texts_of(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return text.split("\n\n")
    docstrings = [inspect.cleandoc(found) for found in re.findall(r'"""(.+?)"""', text, re.DOTALL)]
    return [*text.split("\n\n\n"), *docstrings, *re.findall(r"# (.+)", text)]


# -- values made of it ----------------------------------------------------------------------------------------------


def _samples(*, held_out: bool) -> Iterator[tuple[str, bytes]]:
    """Kind and frame of each value."""
    makers: dict[str, Callable[[_Chance], Any]] = {
        "human": _human,
        "system": lambda chance: SystemMessage(chance.text(), id=chance.uuid()),
        "openai": _openai,
        "responses": _responses,
        "anthropic": _anthropic,
        "google": _google,
        "ollama": _ollama,
        "bedrock": _bedrock,
        "chunk": lambda chance: AIMessageChunk(content=chance.text()[:60], id=f"lc_run--{chance.uuid()}"),
        "tool": _tool,
        "write": _write_of_node,
        "metadata": _metadata,
        "versions": _versions,
        "question": _question,
        "files": _files,
        "spec": _spec,
    }
    paragraphs = _paragraphs(held_out)
    for kind, make in makers.items():
        chance = _Chance(paragraphs, f"{SEED} {kind} {held_out}")
        for _ in range(len(paragraphs) * TIMES // len(makers) + 1):
            yield kind, encode(make(chance), DEFAULT_TYPES)


class _Chance:
    """Everything that is drawn."""

    def __init__(self, paragraphs: list[str], seed: str) -> None:
        self.paragraphs, self.random = paragraphs, random.Random(seed)

    def text(self) -> str:
        return self.random.choice(self.paragraphs)

    def word(self) -> str:
        return self.random.choice(self.text().split())

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def name(self, prefix: str, length: int = 24) -> str:
        return prefix + "".join(self.random.choices(string.ascii_letters + string.digits, k=length))

    def number(self, top: int = 4000) -> int:
        return self.random.randrange(1, top)

    def one_of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def moment(self) -> str:
        return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.random.random() * 3e7)).isoformat()


def _human(chance: _Chance) -> HumanMessage:
    content: Any = chance.one_of(chance.text(), chance.text()[:80], [{"type": "text", "text": chance.text()}])
    return HumanMessage(content, id=chance.uuid())


def _call(chance: _Chance, prefix: str) -> dict[str, Any]:
    folder, file = chance.one_of("workspace", "src", "docs", "memories"), chance.one_of("notes", "report", "plan")
    path = f"/{folder}/{file}.{chance.one_of('md', 'py', 'txt', 'json')}"
    name, args = chance.one_of(
        ("read_file", {"file_path": path, "offset": 0, "limit": 100}),
        ("write_file", {"file_path": path, "content": chance.text()}),
        ("edit_file", {"file_path": path, "old_string": chance.text()[:120], "new_string": chance.text()[:120]}),
        ("ls", {"path": "/"}),
        ("glob", {"pattern": "**/*.py", "path": "/"}),
        ("grep", {"pattern": chance.word(), "path": "/", "output_mode": "files_with_matches"}),
        ("execute", {"command": f"python -m pytest {path}"}),
        ("task", {"description": chance.text(), "subagent_type": "general-purpose"}),
        ("write_todos", {"todos": _todos(chance)}),
        ("search", {"query": chance.text()[:60], "max_results": 5}),
        ("web_search", {"query": chance.text()[:60], "topic": "general", "include_raw_content": False}),
        ("fetch_url", {"url": f"https://www.example.com/{chance.word()}/index.html"}),
        ("send_email", {"to": "someone@example.com", "subject": chance.text()[:40], "body": chance.text()}),
    )
    return {"name": name, "args": args, "id": chance.name(prefix), "type": "tool_call"}


def _todos(chance: _Chance) -> list[dict[str, str]]:
    states = ("completed", "in_progress", "pending", "pending")
    return [{"content": chance.text()[:60], "status": state} for state in states]


def _usage(chance: _Chance, **details: Any) -> Any:
    read, written = chance.number(30_000), chance.number()
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written, **details}


def _answer(chance: _Chance, prefix: str, said: Any, **more: Any) -> AIMessage:
    calls = [_call(chance, prefix) for _ in range(chance.one_of(0, 0, 1, 1, 2))]
    return AIMessage(said, id=f"lc_run--{chance.uuid()}-0", tool_calls=calls, **more)


def _openai(chance: _Chance) -> AIMessage:
    tokens = {
        "completion_tokens": chance.number(),
        "prompt_tokens": chance.number(30_000),
        "total_tokens": chance.number(30_000),
        "completion_tokens_details": {
            "accepted_prediction_tokens": 0,
            "audio_tokens": 0,
            "reasoning_tokens": chance.one_of(0, chance.number()),
            "rejected_prediction_tokens": 0,
        },
        "prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": chance.one_of(0, 1024, 2048)},
    }
    metadata = {
        "token_usage": tokens,
        "model_provider": "openai",
        "model_name": chance.one_of("gpt-4o-2024-08-06", "gpt-4.1-mini-2025-04-14", "gpt-5-2025-08-07", "gpt-5-mini"),
        "system_fingerprint": chance.one_of(None, chance.name("fp_", 10).lower()),
        "id": chance.name("chatcmpl-", 29),
        "service_tier": "default",
        "finish_reason": chance.one_of("stop", "tool_calls", "length"),
        "logprobs": None,
    }
    usage = _usage(
        chance,
        input_token_details={"audio": 0, "cache_read": chance.one_of(0, 1024)},
        output_token_details={"audio": 0, "reasoning": 0},
    )
    said = chance.one_of("", chance.text())
    return _answer(
        chance, "call_", said, additional_kwargs={"refusal": None}, response_metadata=metadata, usage_metadata=usage
    )


def _responses(chance: _Chance) -> AIMessage:
    call = _call(chance, "call_")
    blocks: list[Any] = [
        {"id": chance.name("rs_", 48).lower(), "summary": [], "type": "reasoning"},
        {
            "type": "text",
            "text": chance.text(),
            "annotations": [],
            "id": chance.name("msg_", 48).lower(),
            "phase": "final_answer",
        },
        {
            "arguments": str(call["args"]).replace("'", '"'),
            "call_id": call["id"],
            "name": call["name"],
            "type": "function_call",
            "id": chance.name("fc_", 48).lower(),
            "status": "completed",
        },
    ]
    metadata = {
        "id": chance.name("resp_", 48).lower(),
        "created_at": 1_760_000_000.0 + chance.number(10**7),
        "metadata": {},
        "model": "gpt-5-2025-08-07",
        "object": "response",
        "service_tier": "default",
        "status": "completed",
        "model_provider": "openai",
        "model_name": "gpt-5-2025-08-07",
    }
    usage = _usage(chance, input_token_details={"cache_read": 0}, output_token_details={"reasoning": chance.number()})
    return AIMessage(
        blocks[: chance.one_of(2, 3)],
        id=chance.name("resp_", 48).lower(),
        tool_calls=[call],
        response_metadata=metadata,
        usage_metadata=usage,
    )


def _anthropic(chance: _Chance) -> AIMessage:
    counts = {
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": chance.one_of(0, 1024)},
        "cache_creation_input_tokens": chance.one_of(0, chance.number()),
        "cache_read_input_tokens": chance.one_of(0, chance.number()),
        "inference_geo": "not_available",
        "input_tokens": chance.number(),
        "output_tokens": chance.number(),
        "server_tool_use": None,
        "service_tier": "standard",
    }
    model = chance.one_of("claude-sonnet-4-5-20250929", "claude-opus-4-1-20250805", "claude-haiku-4-5-20251001")
    metadata = {
        "id": chance.name("msg_01", 22),
        "model": model,
        "stop_reason": chance.one_of("end_turn", "tool_use", "max_tokens"),
        "stop_sequence": None,
        "usage": counts,
        "model_name": model,
        "model_provider": "anthropic",
    }
    details = {
        "cache_read": 0,
        "cache_creation": 0,
        "ephemeral_5m_input_tokens": 0,
        "ephemeral_1h_input_tokens": 0,
    }
    call = _call(chance, "toolu_01")
    blocks: list[Any] = [
        {"signature": chance.name("", 200), "thinking": chance.text(), "type": "thinking"},
        {"text": chance.text(), "type": "text"},
        {"id": call["id"], "input": call["args"], "name": call["name"], "type": "tool_use"},
    ]
    return AIMessage(
        chance.one_of(chance.text(), blocks[1:], blocks),
        id=f"lc_run--{chance.uuid()}-0",
        tool_calls=[call],
        response_metadata=metadata,
        usage_metadata=_usage(chance, input_token_details=details),
    )


def _google(chance: _Chance) -> AIMessage:
    metadata = {
        "prompt_feedback": {"block_reason": 0, "safety_ratings": []},
        "finish_reason": chance.one_of("STOP", "MAX_TOKENS"),
        "model_name": chance.one_of("gemini-2.5-flash", "gemini-2.5-pro"),
        "safety_ratings": [],
        "grounding_metadata": {},
        "model_provider": "google_genai",
    }
    usage = _usage(chance, input_token_details={"cache_read": 0}, output_token_details={"reasoning": chance.number()})
    return _answer(chance, "", chance.text(), response_metadata=metadata, usage_metadata=usage)


def _ollama(chance: _Chance) -> AIMessage:
    metadata = {
        "model": (model := chance.one_of("llama3.1:8b", "qwen3:8b", "mistral")),
        "created_at": chance.moment().replace("+00:00", "Z"),
        "done": True,
        "done_reason": "stop",
        "total_duration": chance.number(10**10),
        "load_duration": chance.number(10**9),
        "prompt_eval_count": chance.number(),
        "prompt_eval_duration": chance.number(10**9),
        "eval_count": chance.number(),
        "eval_duration": chance.number(10**10),
        "logprobs": None,
        "model_name": model,
        "model_provider": "ollama",
    }
    return _answer(chance, "", chance.text(), response_metadata=metadata, usage_metadata=_usage(chance))


def _bedrock(chance: _Chance) -> AIMessage:
    request = chance.uuid()
    headers = {
        "date": "Mon, 05 Jan 2026 10:00:00 GMT",
        "content-type": "application/json",
        "content-length": str(chance.number()),
        "connection": "keep-alive",
        "x-amzn-requestid": request,
    }
    metadata = {
        "ResponseMetadata": {
            "RequestId": request,
            "HTTPStatusCode": 200,
            "HTTPHeaders": headers,
            "RetryAttempts": 0,
        },
        "stopReason": chance.one_of("end_turn", "tool_use"),
        "metrics": {"latencyMs": [chance.number()]},
        "model_provider": "bedrock_converse",
        "model_name": "anthropic.claude-sonnet-4-5-20250929-v1:0",
    }
    usage = _usage(chance, input_token_details={"cache_creation": 0, "cache_read": 0})
    return _answer(chance, "tooluse_", chance.text(), response_metadata=metadata, usage_metadata=usage)


def _tool(chance: _Chance) -> ToolMessage:
    said = chance.one_of(
        chance.text(),
        str(_todos(chance)),
        f"'/{chance.word()}.md' is not there.",
        "\n".join(f"{line:6}\t{chance.text().splitlines()[0]}" for line in range(1, 8)),
        json.dumps(
            [{"title": chance.word(), "url": "https://www.example.com/", "content": chance.text(), "score": 0.9}]
        ),
    )
    name = chance.one_of(
        "read_file", "write_file", "edit_file", "ls", "grep", "task", "search", "write_todos", "execute"
    )
    return ToolMessage(
        said,
        name=name,
        tool_call_id=chance.name(chance.one_of("call_", "toolu_01")),
        id=chance.uuid(),
        status=chance.one_of("success", "success", "success", "error"),
    )


def _write_of_node(chance: _Chance) -> object:
    message: BaseMessage = chance.one_of(_human, _tool, _openai)(chance)
    return chance.one_of(
        Command(update={"messages": [message]}),
        Command(goto="model", update={"messages": [message], "todos": _todos(chance)}),
        Command(resume={chance.name("", 32).lower(): {"decisions": [{"type": "approve"}]}}),
        Send("tools", {"__type": "tool_call_with_context", "tool_call": _call(chance, "call_"), "state": {}}),
        [RemoveMessage(id="__remove_all__"), message],
        {"messages": [message], "remaining_steps": 24, "structured_response": None, "jump_to": None},
        _todos(chance),
        Document(chance.text(), metadata={"source": "docs/index.md", "title": chance.word()}, id=chance.uuid()),
    )


def _metadata(chance: _Chance) -> dict[str, Any]:
    return {
        "source": chance.one_of("loop", "loop", "input", "update", "fork"),
        "step": chance.number(40) - 2,
        "parents": chance.one_of({}, {"": chance.uuid()}),
        "run_id": chance.uuid(),
        "thread_id": f"user_{chance.number(100)}",
        "lc_agent_name": "researcher",
        "ls_integration": "langgraph",
        "counters_since_delta_snapshot": {"messages": [chance.number(9), 1]},
    }


def _versions(chance: _Chance) -> dict[str, Any]:
    def version() -> str:
        return f"{chance.number(40):032}.{chance.random.random()}"

    nodes = ("model", "tools", "agent", "TodoListMiddleware.after_model", "SummarizationMiddleware.before_model")
    names = ["__start__", "messages", "todos", "files", "__pregel_tasks", *(f"branch:to:{node}" for node in nodes)]
    seen = {"__input__": {}, "__start__": {"__start__": version()}, "model": {"branch:to:model": version()}}
    return {
        "v": 4,
        "ts": chance.moment(),
        "id": chance.uuid(),
        "channel_versions": {name: version() for name in names},
        "versions_seen": {**seen, "__interrupt__": {name: version() for name in names}},
        "updated_channels": ["branch:to:model", "messages"],
    }


def _question(chance: _Chance) -> list[Interrupt]:
    call = _call(chance, "call_")
    asked = {
        "action_requests": [{"name": call["name"], "args": call["args"], "description": chance.text()}],
        "review_configs": [
            {"action_name": call["name"], "allowed_decisions": ["approve", "edit", "reject", "respond"]}
        ],
    }
    return [Interrupt(chance.one_of(asked, chance.text()), id=chance.name("", 32).lower())]


def _files(chance: _Chance) -> dict[str, Any]:
    return {
        f"/{chance.one_of('notes', 'report', 'plan')}.md": {
            "content": chance.one_of(chance.text(), chance.text().splitlines()),
            "encoding": "utf-8",
            "created_at": chance.moment(),
            "modified_at": chance.moment(),
        }
    }


def _spec(chance: _Chance) -> dict[str, Any]:
    return {
        "input": {"messages": chance.one_of([_human(chance)], [{"role": "user", "content": chance.text()}])},
        "config": {
            "configurable": {"thread_id": f"user_{chance.number(100)}", "user_id": chance.word()},
            "tags": [],
            "recursion_limit": 10_000,
        },
        "context": {"user_id": chance.word(), "language": "en"},
        "interrupt_before": [],
        "interrupt_after": [],
    }


if __name__ == "__main__":
    main()
