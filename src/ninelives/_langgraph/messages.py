"""Message ids given before an input is stored, so that it is the same input however often it is driven."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.types import Command, Overwrite

from ninelives._langgraph.private import ensure_message_ids, get_overwrite
from ninelives._langgraph.subgraphs import AnyGraph, all_graphs


def with_message_ids(graph: AnyGraph, input: Any) -> Any:
    """
    The same input, its messages coerced and given ids where LangGraph itself will do so: in DeltaChannels.

    What was passed is not changed; only what gets an id is copied. Plain `add_messages` channels give ids when they
    are applied, so nothing is done for them. Inputs that are neither a dict nor a `Command` come back as they are.
    """
    if isinstance(input, Command):
        return _command_with_ids(graph, input)
    if isinstance(input, dict):
        return dict(_with_ids(graph, input.items()))
    return input


def has_delta_channels(graph: AnyGraph) -> bool:
    """Of its own, or of a graph inside it."""
    graphs = [graph, *all_graphs(graph).values()]
    return any(isinstance(channel, DeltaChannel) for each in graphs for channel in each.channels.values())


def _command_with_ids(graph: AnyGraph, command: Command[Any]) -> Command[Any]:
    if not command.update:
        return command
    pairs = _with_ids(graph, command._update_as_tuples())
    return replace(command, update=dict(pairs) if isinstance(command.update, dict) else pairs)


def _with_ids(graph: AnyGraph, pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    delta = {name for name, channel in graph.channels.items() if isinstance(channel, DeltaChannel)}
    writes = [(name, _own(value) if name in delta else value) for name, value in pairs]
    ensure_message_ids(graph.channels, writes)
    return writes


def _own(value: Any) -> Any:
    """`value` with copies of the messages in it that LangGraph would stamp in place."""
    if isinstance(value, BaseMessage):
        return value if value.id else value.model_copy()
    if isinstance(value, list | tuple):
        return type(value)(map(_own, value)) if type(value) in (list, tuple) else value
    overwrites, inner = get_overwrite(value)
    return Overwrite(_own(inner)) if overwrites else value
