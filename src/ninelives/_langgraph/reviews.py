"""What the reviews in a graph (LangChain's `HumanInTheLoopMiddleware`) are told to ask about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ninelives._langgraph.private import RunnableCallable
from ninelives._langgraph.subgraphs import AnyGraph, all_graphs


def reviewed_tools(graph: AnyGraph) -> list[tuple[str, Sequence[Any]]]:
    """By tool name the kinds of decisions that a review takes, for each review of the graph and of those inside it."""
    found = []
    for one in all_graphs(graph).values():
        for review in _reviews(one):
            found += [(name, how.get("allowed_decisions") or ()) for name, how in review.items()]
    return found


def _reviews(graph: AnyGraph) -> Iterator[Mapping[str, Mapping[str, Any]]]:
    """Known by what they have, since LangChain need not be installed. The hooks of a middleware are nodes."""
    for node in graph.nodes.values():
        if isinstance(node.bound, RunnableCallable):
            owner = getattr(node.bound.func or node.bound.afunc, "__self__", None)
            told = getattr(owner, "interrupt_on", None)
            if isinstance(told, Mapping) and all(isinstance(how, Mapping) for how in told.values()):
                yield told
