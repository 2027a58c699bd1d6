"""What LangGraph would pass over in silence when a thread goes on with another graph than the one that made it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from langgraph.types import Interrupt, Send

from ninelives._langgraph.private import TASKS, read_task_statuses
from ninelives._langgraph.subgraphs import AnyGraph

_BRANCH = "branch:to:"
_JOIN = "join:"


def pending_interrupts(pending_writes: Iterable[tuple[str, str, Any]]) -> list[Interrupt]:
    """The questions that wait for an answer, oldest writes first, each id once."""
    statuses = read_task_statuses(pending_writes).values()
    found = {one.id: one for status in statuses for one in status.pending_interrupts}
    return list(found.values())


def finished_tasks(pending_writes: Iterable[tuple[str, str, Any]]) -> set[str]:
    """The ids of the tasks whose result is recorded."""
    return {task_id for task_id, status in read_task_statuses(pending_writes).items() if status.finished}


def nodes_due(checkpoint: Mapping[str, Any]) -> list[str]:
    """
    Names of the nodes that come next at a stored head, by the head alone; of several, some may be done already.

    A graph whose nodes wait for other channels than its edges is not seen through: an empty list says nothing.
    """
    values = checkpoint.get("channel_values", {})
    due = [channel.removeprefix(_BRANCH) for channel in values if channel.startswith(_BRANCH)]
    return due + [packet.node for packet in values.get(TASKS) or () if isinstance(packet, Send)]


def missing_parts(
    graph: AnyGraph, checkpoint: Mapping[str, Any], pending_writes: Iterable[tuple[str, str, Any]]
) -> list[str]:
    """
    What a stored head needs and `graph` lacks: nodes that are due, and state that would be dropped.

    Args:
        graph: the graph of the checkpoint's namespace.
        checkpoint: as the saver gives it; values decoded.
        pending_writes: (task id, channel, value).

    Returns:
        Sentences such as "node 'review' is pending but gone", each once, in order of discovery; empty if all is there.
    """
    writes = list(pending_writes)
    values = checkpoint.get("channel_values", {})
    told = [
        *_gone_branches(graph, [*values, *(channel for _, channel, _ in writes)]),
        *_gone_joins(graph, values),
        *_gone_sends(graph, [*(values.get(TASKS) or ()), *(value for _, name, value in writes if name == TASKS)]),
        *_gone_state(graph, values, checkpoint.get("channel_versions", {}), [channel for _, channel, _ in writes]),
    ]
    return list(dict.fromkeys(told))


def _gone_branches(graph: AnyGraph, channels: Iterable[str]) -> Iterator[str]:
    for channel in channels:
        node = channel.removeprefix(_BRANCH)
        if channel.startswith(_BRANCH) and node not in graph.nodes:
            yield f"node {node!r} is pending but gone"


def _gone_joins(graph: AnyGraph, values: Mapping[str, Any]) -> Iterator[str]:
    """A join that some of its nodes have reached; one that nobody has is stored empty and may go."""
    for channel, value in values.items():
        if not channel.startswith(_JOIN) or channel in graph.channels or not _has_arrivals(value):
            continue
        _, starts, node = channel.split(":", 2)
        if node not in graph.nodes:
            yield f"node {node!r} is waited for but gone"
        else:
            yield f"the join of {', '.join(map(repr, starts.split('+')))} before node {node!r} is pending but gone"


def _has_arrivals(value: Any) -> bool:
    """The stored form is the set of arrivals; for a deferred node, a pair of it and a flag."""
    return bool(value[0] if isinstance(value, tuple | list) and value else value)


def _gone_sends(graph: AnyGraph, packets: Sequence[Any]) -> Iterator[str]:
    for packet in packets:
        if isinstance(packet, Send) and packet.node not in graph.nodes:
            yield f"a Send to node {packet.node!r} is pending but the node is gone"


def _gone_state(
    graph: AnyGraph, values: Mapping[str, Any], versions: Mapping[str, Any], written: Iterable[str]
) -> Iterator[str]:
    # A DeltaChannel has no stored value between snapshots: only its version tells that it holds something.
    for channel in (*values, *versions, *written):
        if channel not in graph.channels and not channel.startswith((_BRANCH, _JOIN, "__")):
            yield f"state key {channel!r} is stored but gone"
