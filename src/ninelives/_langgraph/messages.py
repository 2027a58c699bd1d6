"""
Messages get their ids before they are stored, so that they are the same messages however often they are loaded.

LangGraph gives a message without an id a random one where it is applied: in `add_messages`, at every load anew until
the next checkpoint. For DeltaChannels it does so once, before storing, but only for message objects, unless the reducer
is its own (deepagents has another). So each write to a channel of messages is made of messages with ids here, at the
moment a node writes it, or before an input is stored; what is stored, applied, streamed and read by the task's own
routers is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

from langchain_core.messages import BaseMessage, convert_to_messages
from langgraph.channels import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.types import Command, Overwrite, PregelExecutableTask, Send

from ninelives._langgraph.private import CONF, CONFIG_KEY_SEND, TASKS, ensure_message_ids, get_overwrite
from ninelives._langgraph.subgraphs import AnyGraph

Writes = Iterable[tuple[str, Any]]


def with_message_ids(graph: AnyGraph, input: Any) -> Any:
    """
    The same input, what it writes to channels of messages coerced to messages with ids.

    What was passed is not changed; only what gets an id is copied. Inputs that are neither a dict nor a `Command` come
    back as they are.
    """
    if isinstance(input, Command):
        return _command_with_ids(graph, input)
    if isinstance(input, dict):
        return dict(_copies_with_ids(graph, input.items()))
    return input


def stamp_writes(task: PregelExecutableTask, channels: Mapping[str, Any]) -> None:
    """
    Have the messages that a task is going to write get their ids at that moment.

    Message objects are stamped in place, as LangGraph does: a node may write one object to several places.
    """
    conf = task.config[CONF]
    if not isinstance(conf[CONFIG_KEY_SEND], _Send):
        conf[CONFIG_KEY_SEND] = _Send(channels, conf[CONFIG_KEY_SEND])


class _Send:
    """Where a task's writes go to; LangGraph's own behind it."""

    __slots__ = ("_channels", "_send")

    def __init__(self, channels: Mapping[str, Any], send: Callable[[Writes], None]) -> None:
        self._channels, self._send = channels, send

    def __call__(self, writes: Writes) -> None:
        stamped = []
        for name, value in writes:
            if name == TASKS and isinstance(value, Send):
                _stamp_all(value.arg)
            stamped.append((name, _with_ids(self._channels.get(name), value)))
        self._send(stamped)


# -- which channels ----------------------------------------------------------------------------------------------

_OF_MESSAGES = frozenset({"add_messages", "_add_messages", "_messages_delta_reducer"})
_MAKERS = _OF_MESSAGES | {"convert_to_messages"}


def takes_messages(channel: Any) -> bool:
    """Whether what is written to a channel are messages."""
    return _takes(channel) != "other"


def _with_ids(channel: Any, value: Any) -> Any:
    """What is written to a channel, with each message-like that it takes as a message that has an id."""
    takes = _takes(channel)
    return value if takes == "other" or (takes == "no words" and isinstance(value, str)) else _stamped(value)


def _takes(channel: Any) -> str:
    if isinstance(channel, BinaryOperatorAggregate):
        return _reducer_takes(channel.operator)
    return _reducer_takes(channel.reducer) if isinstance(channel, DeltaChannel) else "other"


@lru_cache(1024)
def _reducer_takes(reducer: Any) -> str:
    """
    "messages": any message-like, as `add_messages` does. "no words": a reducer that only calls such a one may have a
    meaning of its own for a lone string ("clear"), but all else that can be made a message is one. Else "other".
    """
    while isinstance(reducer, partial):
        reducer = reducer.func
    if getattr(reducer, "__name__", "") in _OF_MESSAGES:
        return "messages"
    code, known = getattr(reducer, "__code__", None), getattr(reducer, "__globals__", {})
    names = (*code.co_names, *code.co_freevars) if code else ()
    called = {getattr(known.get(name), "__name__", name) for name in names}
    return "other" if _MAKERS.isdisjoint(called) else "no words"


# -- one write ---------------------------------------------------------------------------------------------------


def _stamped(value: Any) -> Any:
    overwrites, inner = get_overwrite(value)
    if overwrites:
        made = _each(inner) if isinstance(inner, list | tuple) else _stamp(inner)
        return value if made is inner else Overwrite(made)
    return _each(value) if isinstance(value, list) else _message(value)


def _each(items: Any) -> Any:
    made = [_message(item) for item in items]
    if all(new is old for new, old in zip(made, items, strict=True)):
        return items
    return made if isinstance(items, list) else tuple(made)


def _message(item: Any) -> Any:
    """What cannot be made a message stays as it is, and fails where it always has: in the reducer."""
    if isinstance(item, BaseMessage):
        return _stamp(item)
    try:
        (message,) = convert_to_messages([item])
    except Exception:
        return item
    message.id = message.id or str(uuid4())
    return message


def _stamp(item: Any) -> Any:
    if isinstance(item, BaseMessage) and item.id is None:
        item.id = str(uuid4())
    return item


def _stamp_all(arg: Any) -> None:
    """The message objects in what a Send hands over; the node that gets it may write them on."""
    values = arg.values() if isinstance(arg, dict) else (arg,)
    for value in values:
        for item in value if isinstance(value, list | tuple) else (value,):
            _stamp(item)


# -- an input ----------------------------------------------------------------------------------------------------


def _command_with_ids(graph: AnyGraph, command: Command[Any]) -> Command[Any]:
    if not command.update:
        return command
    pairs = _copies_with_ids(graph, command._update_as_tuples())
    return replace(command, update=dict(pairs) if isinstance(command.update, dict) else pairs)


def _copies_with_ids(graph: AnyGraph, pairs: Writes) -> list[tuple[str, Any]]:
    writes = []
    for name, value in pairs:
        channel = graph.channels.get(name)
        may_stamp = isinstance(channel, DeltaChannel) or _takes(channel) != "other"
        writes.append((name, _with_ids(channel, _own(value)) if may_stamp else value))
    ensure_message_ids(graph.channels, writes)  # other DeltaChannels, as LangGraph will do when it stores their writes
    return writes


def _own(value: Any) -> Any:
    """`value` with copies of the messages in it that would be stamped in place."""
    if isinstance(value, BaseMessage):
        return value if value.id else value.model_copy()
    if isinstance(value, list | tuple):
        return type(value)(map(_own, value)) if type(value) in (list, tuple) else value
    overwrites, inner = get_overwrite(value)
    return Overwrite(_own(inner)) if overwrites else value
