"""
Tool calls that never got their result: a run was killed, cancelled or abandoned between the model and its tools.

A model refuses a history in which a call has no tool message, and so would a thread for ever. Before a new input goes
behind such a history, the missing messages are made: with what the call really gave, where that is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Command

from ninelives._langgraph.messages import takes_messages
from ninelives._langgraph.private import get_overwrite
from ninelives._langgraph.subgraphs import AnyGraph

Write = tuple[str, str, Any]


@dataclass(frozen=True, slots=True)
class Opening:
    """The calls of a channel's last message of a model that have no tool message, and may get them at its end."""

    channel: str
    calls: tuple[Mapping[str, Any], ...]


def open_calls(graph: AnyGraph, values: Any) -> list[Opening]:
    """
    Args:
        values: of the channels, as a `StateSnapshot` has them.
    """
    found = []
    for channel in graph.channels:
        messages = values.get(channel) if isinstance(values, Mapping) else None
        if isinstance(messages, list) and takes_messages(graph.channels[channel]):
            calls = _without_result(messages)
            if calls:
                found.append(Opening(channel, calls))
    return found


def _without_result(messages: Sequence[Any]) -> tuple[Mapping[str, Any], ...]:
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return tuple(call for call in message.tool_calls if call["id"] not in answered)
        elif isinstance(message, BaseMessage):
            break  # somebody has spoken since: what comes at the end would not follow its call
    return ()


def recorded_results(writes: Iterable[Write], outputs: Iterable[Any]) -> dict[str, ToolMessage]:
    """
    Tool messages that are recorded and were never applied, by tool call id.

    Args:
        writes: (task id, channel, value) at the head.
        outputs: of single tool calls, as they were recorded.
    """
    found: dict[str, ToolMessage] = {}
    waiting: list[Any] = [*outputs, *(value for _, _, value in writes)]
    for value in waiting:
        if isinstance(value, ToolMessage):
            found.setdefault(value.tool_call_id, value)
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, Command):
            waiting += [part for _, part in value._update_as_tuples()]
        elif isinstance(value, Mapping):
            waiting += value.values()
    return found


def told(run_id: str, call: Mapping[str, Any], text: str, status: Any) -> ToolMessage:
    """A tool message that was made for a call: the same one, however often its run is begun."""
    made = str(uuid5(NAMESPACE_OID, f"{run_id}/{call['id']}"))
    return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status=status, id=made)


def with_messages_first(input: Any, channel: str, messages: Sequence[ToolMessage]) -> Any:
    """
    The input, with these messages before its own. None: there is no place for them in it.
    """
    if not isinstance(input, dict):
        return None
    given = input.get(channel)
    if get_overwrite(given)[0]:
        return None
    own = [] if given is None else given if isinstance(given, list) else [given]
    return {**input, channel: [*messages, *own]}
