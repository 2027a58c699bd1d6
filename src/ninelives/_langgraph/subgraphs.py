"""
The graphs inside a graph, also those that LangGraph itself does not list: compiled with `checkpointer=False`, or kept
in a list or dict by a tool (as the subagents of deepagents are).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.tools import BaseTool
from langgraph.channels import UntrackedValue
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from ninelives._langgraph.private import NS_SEP, RunnableCallable, RunnableSeq, get_function_nonlocals

AnyGraph: TypeAlias = Pregel[Any, Any, Any, Any]


_inside: weakref.WeakKeyDictionary[AnyGraph, dict[str, AnyGraph]] = weakref.WeakKeyDictionary()


def direct_subgraphs(graph: AnyGraph) -> dict[str, AnyGraph]:
    """
    The graphs that nodes of `graph` hold, one level deep, by node name; `name/0`, `name/1` if a node has several.

    Looked for once per graph: LangGraph sees what a function closes over by taking its bytecode apart.
    """
    if graph not in _inside:
        _inside[graph] = _look_inside(graph)
    return _inside[graph]


def _look_inside(graph: AnyGraph) -> dict[str, AnyGraph]:
    found: dict[str, AnyGraph] = {}
    for name, node in graph.nodes.items():
        inside = _distinct(_graphs_in(node.bound))
        many = len(inside) > 1
        found.update({f"{name}/{i}" if many else name: inner for i, inner in enumerate(inside)})
    return found


def all_graphs(graph: AnyGraph) -> dict[str, AnyGraph]:
    """`graph` under "" and every graph below it, by its path of node names (`outer|inner`); each graph once."""
    found: dict[str, AnyGraph] = {"": graph}
    queue = [("", graph)]
    for prefix, parent in queue:
        for name, inner in direct_subgraphs(parent).items():
            if not any(inner is known for known in found.values()):
                path = f"{prefix}{NS_SEP}{name}" if prefix else name
                found[path] = inner
                queue.append((path, inner))
    return found


def subgraphs_without_saver(graph: AnyGraph) -> list[str]:
    """Paths of the subgraphs that keep nothing (`checkpointer=False`): cut off, they start from their beginning."""
    return sorted(path for path, inner in all_graphs(graph).items() if path and inner.checkpointer is False)


def untracked_channels(graph: AnyGraph) -> list[str]:
    """State keys that LangGraph never stores."""
    found = {
        name for one in all_graphs(graph).values() for name, c in one.channels.items() if isinstance(c, UntrackedValue)
    }
    return sorted(found)


def tools_of(bound: Any) -> dict[str, BaseTool]:
    """The tools of a `ToolNode`, by name; none for anything else."""
    return dict(bound.tools_by_name) if isinstance(bound, ToolNode) else {}


def _graphs_in(thing: Any) -> Iterator[AnyGraph]:
    if isinstance(thing, Pregel):
        yield thing
    elif isinstance(thing, ToolNode):
        for tool in thing.tools_by_name.values():
            yield from _graphs_in_tool(tool)
    elif isinstance(thing, RunnableCallable):
        for function in (thing.func, thing.afunc):
            yield from _graphs_near(function)
    else:
        for part in _parts(thing):
            yield from _graphs_in(part)


def _parts(thing: Any) -> Iterable[Any]:
    if isinstance(thing, RunnableBindingBase):
        return [thing.bound]
    if isinstance(thing, RunnableSeq | RunnableSequence):
        return thing.steps
    if isinstance(thing, RunnableParallel):
        return thing.steps__.values()
    if isinstance(thing, RunnableLambda):
        return thing.deps
    return ()


def _graphs_in_tool(tool: BaseTool) -> Iterator[AnyGraph]:
    for value in list(vars(tool).values()):
        yield from _graphs_near(value) if callable(value) else _held(value)


def _graphs_near(function: Any) -> Iterator[AnyGraph]:
    """Graphs that a function names or closes over, itself or in a list or dict."""
    if isinstance(function, Pregel):
        yield function
        return
    plain: Callable[..., Any] | None = function
    if isinstance(function, partial):
        plain = next((arg for arg in (*function.args, function.func) if callable(arg)), None)
    if plain is None:
        return
    for value in get_function_nonlocals(plain):
        yield from _held(getattr(value, "__self__", value))


def _held(value: Any) -> Iterator[AnyGraph]:
    if isinstance(value, Mapping):
        value = tuple(value.values())
    for item in value if type(value) in (list, tuple, set, frozenset) else (value,):
        while isinstance(item, RunnableBindingBase):
            item = item.bound
        if isinstance(item, Pregel):
            yield item


def _distinct(graphs: Iterable[AnyGraph]) -> list[AnyGraph]:
    found: list[AnyGraph] = []
    for graph in graphs:
        if not any(graph is known for known in found):
            found.append(graph)
    return found
