"""INPUT and answers, as they are typed: JSON, a file, or words."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from langgraph.pregel import Pregel
from langgraph.types import Command

from ninelives.cli.exits import UsageError
from ninelives.errors import InvalidDecisionError
from ninelives.model import Interrupt

_NAMED_ANSWER = re.compile(r"([0-9a-f]{8,64})=(.*)", re.DOTALL)
"""What looks like an id is taken for one, so that a mistyped id is refused and never becomes the answer."""


def input_of(text: str, graph: Pregel[Any, Any, Any, Any]) -> dict[str, Any]:
    """
    INPUT as the graph takes it: JSON if it starts with `{`, the content of a file after `@`, else one user message.

    Raises:
        UsageError: it is no JSON, there is no such file, or the graph takes no messages.
    """
    if text.startswith("@"):
        text = _content(text[1:])
    if text.lstrip().startswith("{"):
        try:
            given: dict[str, Any] = json.loads(text)
        except ValueError as wrong:
            raise UsageError(f"INPUT starts with {{ but is not JSON: {wrong}.") from wrong
        return given
    fields = [name for name in _fields(graph) if not name.startswith("__")]
    if "messages" not in fields:
        shown = json.dumps(dict.fromkeys(fields, "..."))
        raise UsageError(f"the graph takes no messages, so INPUT must be JSON: {shown}")
    return {"messages": [{"role": "user", "content": text}]}


def answers_of(texts: Sequence[str], pending: Sequence[Interrupt]) -> Command[Any]:
    """
    `[ID=]VALUE` of each `--answer` as what resumes the graph; VALUE is JSON if it can be read as such, else words.

    Raises:
        UsageError: an answer is empty, names no question where several are given, or there are two to one question.
        InvalidDecisionError: an answer names a question that is not pending.
    """
    given = [_answer(text) for text in texts]
    named = [interrupt_id for interrupt_id, _ in given if interrupt_id is not None]
    if twice := sorted({interrupt_id for interrupt_id in named if named.count(interrupt_id) > 1}):
        raise UsageError(f"two answers to {twice[0]}; nothing was answered.")
    asked = [question.interrupt_id for question in pending]
    if unknown := [interrupt_id for interrupt_id in named if interrupt_id not in asked]:
        raise InvalidDecisionError(f"interrupt {unknown[0]!r} is not pending", asked)
    if len(given) > 1 and any(interrupt_id is None for interrupt_id, _ in given):
        raise UsageError("several answers: each must name its question, --answer ID=VALUE.")
    if given[0][0] is None and len(pending) != 1:
        # None or several are pending: which, `protect` says; the value must only not look like a map of ids.
        return Command(resume=given[0][1] if given[0][1] is not None else "")
    return Command(resume={interrupt_id or pending[0].interrupt_id: value for interrupt_id, value in given})


def _answer(text: str) -> tuple[str | None, Any]:
    if not text:
        raise UsageError(
            "an empty --answer; nothing was answered. If the answer is an empty text, say --answer '\"\"'."
        )
    named = _NAMED_ANSWER.fullmatch(text)
    interrupt_id, text = (named[1], named[2]) if named else (None, text)
    return interrupt_id, value_of(text)


def value_of(text: str) -> Any:
    """JSON if it can be read as such, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def one_beginning(known: Collection[str], begin: str) -> list[str]:
    """
    Which id is meant by one, or by its beginning.

    Returns:
        A list of it alone; empty: there is none. Several begin so: all of these. Nothing begins with nothing.
    """
    if begin in known:
        return [begin]
    return [each for each in known if begin and each.startswith(begin)]


def _content(name: str) -> str:
    try:
        return Path(name).read_text("utf-8")
    except (OSError, ValueError) as wrong:
        raise UsageError(f"INPUT names the file {name!r}, which cannot be read: {wrong}.") from wrong


def _fields(graph: Pregel[Any, Any, Any, Any]) -> list[str]:
    """The names of the state that an input may set."""
    builder: Any = getattr(graph, "builder", None)
    schemas = getattr(builder, "schemas", {}).get(getattr(builder, "input_schema", None))
    if schemas is not None:
        return list(schemas)
    channels = graph.input_channels
    return [channels] if isinstance(channels, str) else list(channels)
