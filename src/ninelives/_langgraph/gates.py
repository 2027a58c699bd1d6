"""
Breakpoints (`interrupt_before`, `interrupt_after`): where a graph stops for a person without asking anything.

LangGraph takes any resume as the person's leave to go on. A process that was killed in front of a gate has nobody's
leave: whether the stored head stands at one is worked out here, as LangGraph does it while it runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from ninelives._langgraph.private import INTERRUPT
from ninelives._langgraph.subgraphs import AnyGraph, all_graphs

Gates: TypeAlias = Collection[str] | Literal["*"]


def has_gates(graph: AnyGraph) -> bool:
    """Whether the graph, or one inside it, was compiled with breakpoints."""
    return any(one.interrupt_before_nodes or one.interrupt_after_nodes for one in all_graphs(graph).values())


def at_gate(
    checkpoint: Mapping[str, Any],
    parent: Mapping[str, Any] | None,
    due: Iterable[str],
    *,
    before: Gates,
    after: Gates,
) -> bool:
    """
    Whether a graph that is at this checkpoint has stopped, or was about to stop, at a breakpoint.

    Args:
        checkpoint, parent: as stored; `parent` is the one before it in its namespace.
        due: names of the tasks that are to run next, none of which has a recorded result.
        before, after: names of nodes, or "*" for all.
    """
    if not _moved_since_leave(checkpoint):
        return False
    ran = _changed(checkpoint, parent)
    return any(_gated(name, before) for name in due) or any(_gated(name, after) for name in ran)


def _gated(name: str, gates: Gates) -> bool:
    return not name.startswith("__") if gates == "*" else name in gates


def _moved_since_leave(checkpoint: Mapping[str, Any]) -> bool:
    seen = checkpoint["versions_seen"].get(INTERRUPT, {})
    return any(
        version > seen.get(channel, type(version)()) for channel, version in checkpoint["channel_versions"].items()
    )


def _changed(checkpoint: Mapping[str, Any], parent: Mapping[str, Any] | None) -> list[str]:
    """The nodes that ran in the superstep that made the checkpoint."""
    before = parent["versions_seen"] if parent else {}
    now = checkpoint["versions_seen"]
    return [name for name, seen in now.items() if name != INTERRUPT and seen != before.get(name)]
