"""
Tool calls that never got their result: a run was killed, cancelled or abandoned between the model and its tools.

A model refuses a history in which a call has no tool message, and so would a thread for ever. When a new input comes
behind such a history, the missing messages are written first, by the task that takes the input in: with what the call
really gave, where that is recorded. What a finished call has written beside its message (a file, a note) is written
with it, or the message would not be true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.channels import BinaryOperatorAggregate, LastValue
from langgraph.channels.delta import DeltaChannel
from langgraph.constants import START
from langgraph.types import Command, PregelExecutableTask

from ninelives._langgraph.messages import takes_messages
from ninelives._langgraph.preflight import finished_tasks
from ninelives._langgraph.private import CONF, CONFIG_KEY_SEND, NULL_TASK_ID
from ninelives._langgraph.subgraphs import AnyGraph

Write = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class Opening:
    """The calls of a channel's last message of a model that have no tool message, and may get them at its end."""

    channel: str
    message_id: str | None
    calls: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Closing:
    """A tool message for each call of an opening, in order; and what the finished ones have written beside theirs."""

    opening: Opening
    results: tuple[ToolMessage, ...]
    beside: tuple[Write, ...] = ()


# -- what is open --------------------------------------------------------------------------------------------------


def open_calls(graph: AnyGraph, values: Any) -> list[Opening]:
    """
    Args:
        values: of the channels, as a `StateSnapshot` has them.
    """
    found = []
    for channel in graph.channels:
        messages = values.get(channel) if isinstance(values, Mapping) else None
        if isinstance(messages, list) and takes_messages(graph.channels[channel]):
            opening = _opening(channel, messages)
            if opening is not None:
                found.append(opening)
    return found


def _opening(channel: str, messages: Sequence[Any]) -> Opening | None:
    answered: list[str] = []
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.append(message.tool_call_id)
        elif isinstance(message, AIMessage):
            calls = tuple(call for call in message.tool_calls if not _taken(answered, call["id"]))
            return Opening(channel, message.id, calls) if calls else None
        elif isinstance(message, BaseMessage):
            break  # somebody has spoken since: what comes at the end would not follow its call
    return None


def _taken(ids: list[str], wanted: str | None) -> bool:
    if wanted in ids:
        ids.remove(wanted)
        return True
    return False


# -- what closes it ------------------------------------------------------------------------------------------------


def finished_work(
    channel: str, pending_writes: Iterable[tuple[str, str, Any]], outputs: Iterable[Any]
) -> list[list[Write]]:
    """
    What finished work has written, and was never applied: of each tool call that is recorded, of each task.

    Args:
        channel: where plain outputs of tool calls go.
        pending_writes: (task id, channel, value) at the head.
        outputs: of single tool calls, as they were recorded.
    """
    pending = list(pending_writes)
    done, by_task = finished_tasks(pending) - {NULL_TASK_ID}, dict[str, list[Write]]()
    for task_id, name, value in pending:
        if task_id in done:
            by_task.setdefault(task_id, []).append((name, value))
    return [*([*_writes_of(channel, output)] for output in outputs), *by_task.values()]


def _writes_of(channel: str, output: Any) -> Iterator[Write]:
    """As a tool node makes them of what a call gave."""
    if isinstance(output, list | tuple):
        for each in output:
            yield from _writes_of(channel, each)
    elif isinstance(output, Command):
        yield from () if output.graph else output._update_as_tuples()
    else:
        yield channel, output


def closing(
    run_id: str,
    opening: Opening,
    work: Iterable[Sequence[Write]],
    known: Callable[[Mapping[str, Any]], tuple[str, Any]],
) -> Closing:
    """
    Args:
        run_id: makes the ids of the messages that are made here: the same ones, however often the run is begun.
        work: see `finished_work`.
        known: the text and status for a call of which no message is recorded.
    """
    missing = [call["id"] for call in opening.calls]
    found: dict[str, list[ToolMessage]] = {}
    beside: list[Write] = []
    for writes in work:
        said = [message for name, value in writes if name == opening.channel for message in _messages(value)]
        results = [m for m in said if isinstance(m, ToolMessage) and _taken(missing, m.tool_call_id)]
        if results:
            for message in results:
                found.setdefault(message.tool_call_id, []).append(message)
            others = [message for message in said if message not in results]
            beside += [(opening.channel, others)] if others else []
            beside += [write for write in writes if write[0] != opening.channel]

    def result(place: int, call: Mapping[str, Any]) -> ToolMessage:
        made = str(uuid5(NAMESPACE_OID, f"{run_id}/{place}/{call['id']}"))
        if recorded := found.get(call["id"]):
            message = recorded.pop(0)
            return message if message.id else message.model_copy(update={"id": made})
        text, status = known(call)
        return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status=status, id=made)

    return Closing(opening, tuple(result(*one) for one in enumerate(opening.calls)), tuple(beside))


def _messages(value: Any) -> list[BaseMessage]:
    values = value if isinstance(value, list | tuple) else (value,)
    return [each for each in values if isinstance(each, BaseMessage)]


# -- writing it ----------------------------------------------------------------------------------------------------


def close_first(
    tasks: Iterable[PregelExecutableTask], channels: Mapping[str, Any], closings: Sequence[Closing]
) -> bool:
    """
    Have the task that takes a graph's input in write these before it. False if there is none among the tasks.

    To be called before what it sends is stamped with ids (see `messages`).
    """
    for task in tasks:
        if task.name == START:
            conf = task.config[CONF]
            conf[CONFIG_KEY_SEND] = _ClosesFirst(conf[CONFIG_KEY_SEND], channels, closings)
            return True
    return False


class _ClosesFirst:
    """Where the writes of an input go to."""

    def __init__(
        self, send: Callable[[Sequence[Write]], None], channels: Mapping[str, Any], closings: Sequence[Closing]
    ) -> None:
        self._send, self._channels, self._closings = send, channels, closings

    def __call__(self, writes: Sequence[Write]) -> None:
        closings, self._closings = self._closings, ()
        first = [write for each in closings for write in self._first(each, writes)]
        self._send([*first, *writes])

    def _first(self, closing: Closing, writes: Sequence[Write]) -> Iterator[Write]:
        """Nothing that the input says itself: a message made anew, the results of calls, a value that is set."""
        opening = closing.opening
        said = [message for name, value in writes if name == opening.channel for message in _messages(value)]
        if opening.message_id and any(message.id == opening.message_id for message in said):
            return
        own = [message.tool_call_id for message in said if isinstance(message, ToolMessage)]
        results = [result for result in closing.results if not _taken(own, result.tool_call_id)]
        if results:
            yield opening.channel, results
        given = {name for name, _ in writes}
        last = {name: place for place, (name, _) in enumerate(closing.beside)}
        for place, (name, value) in enumerate(closing.beside):
            channel = self._channels.get(name)
            set_once = isinstance(channel, LastValue) and name not in given and last[name] == place
            if set_once or isinstance(channel, BinaryOperatorAggregate | DeltaChannel):
                yield name, value
