"""
What people and scripts see: data on stdout, talk on stderr, plain lines.

Moments become ISO dates here and nowhere below. A reader that went away (`| head`) never stops a run. What a model or
a tool has said never steers a terminal.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TextIO

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

VALUE_CHARS_MAX = 48
LINE_CHARS_MAX = 110

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but newline and tab, those that turn the direction of writing, halves of characters."""


def say(text: str = "") -> None:
    """A line of talk."""
    _write(sys.stderr, printable(text))


def put(text: str) -> None:
    """A line of data: to a file or a pipe as it is."""
    _write(sys.stdout, printable(text) if sys.stdout.isatty() else text)


def put_json(value: Any, *, indent: int | None = None) -> None:
    put(json.dumps(plain(value), ensure_ascii=False, indent=indent))


def put_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Rows under their names, each column as wide as it needs to be."""
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        put("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def put_facts(facts: Mapping[str, str]) -> None:
    """Names and values, one a line; those without a value are left out."""
    width = max(map(len, facts))
    for name, value in facts.items():
        if value:
            put(f"{name.ljust(width)}  {value}")


def _write(to: TextIO, text: str) -> None:
    try:
        to.write(text + "\n")
        to.flush()
    except BrokenPipeError:
        # Python would complain about the lost end of the stream once more when it ends.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), to.fileno())


# -- values in words -------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """The text with what would steer a terminal written out: `\\x1b[2J` instead of an empty screen."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def moment(at: float) -> str:
    """UTC seconds as an ISO date."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def size(count: int) -> str:
    """Bytes in words: `28.5 kB`."""
    amount, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.0f} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def count(number: int, thing: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def counted(names: Iterable[str]) -> str:
    """Names in the order they came in, repeated ones once: `model, tools x3`."""
    times: dict[str, int] = {}
    for name in names:
        times[name] = times.get(name, 0) + 1
    return ", ".join(name if n == 1 else f"{name} x{n}" for name, n in times.items())


def short(value: Any, chars_max: int = VALUE_CHARS_MAX) -> str:
    """A value on one line, cut where it is long."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def arguments(args: Any) -> str:
    """The arguments of a call as one would write them, short."""
    if not isinstance(args, Mapping):
        return short(repr(args))
    return short(", ".join(f"{name}={short(repr(value))}" for name, value in args.items()), LINE_CHARS_MAX)


def plain(value: Any) -> Any:
    """The value as JSON knows it; what JSON has no word for becomes text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, BaseMessage | BaseModel):
        return plain(value.model_dump())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    return repr(value)


def answer_of(values: Any) -> str:
    """What a graph has to say at its end: the text of its last message, else its state as JSON."""
    messages = values.get("messages") if isinstance(values, Mapping) else None
    last = messages[-1] if isinstance(messages, list) and messages else None
    if isinstance(last, BaseMessage) and last.type == "ai" and str(last.text):
        return str(last.text)
    return json.dumps(plain(values), ensure_ascii=False, indent=2)
