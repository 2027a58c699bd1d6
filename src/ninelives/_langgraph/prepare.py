"""
The copy of a user's graph that we drive.

It shares everything with the original but its dict of nodes and its class; the original is never touched. Taken with
`copy.copy`, not with the graph's own `copy`, which loses the mappers that turn output into the schema's classes.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from functools import cache, partial, wraps
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl

from ninelives._langgraph.control import LoopControl
from ninelives._langgraph.private import (
    CONF,
    CONFIG_KEY_RUNTIME,
    DEFAULT_BOUND,
    PregelNode,
    RunnableCallable,
    ensure_config,
    is_executor_backed,
)

G = TypeVar("G", bound=Pregel[Any, Any, Any, Any])


def prepared(graph: G, executor: Executor | None = None) -> G:
    """
    A copy of `graph` that is fit to be driven under durability="sync".

    Subgraphs compiled with `checkpointer=False` work in it at any depth, also when a node function or a tool calls
    them. With `executor`, node functions without an async twin run there, in this graph and in subgraphs that are
    nodes themselves; contextvars are kept. Async nodes, tool nodes and `RunnableLambda`s stay as they are (the latter
    two use the loop's default executor).
    """
    clone = copy.copy(graph)
    clone.__class__ = _driven(type(graph))
    if executor is not None:
        clone.nodes = {name: _on_executor(node, executor) for name, node in graph.nodes.items()}
    return clone


def with_saver(graph: G, saver: Any) -> G:
    """A copy that saves with `saver` (None: not at all)."""
    clone = copy.copy(graph)
    clone.checkpointer = saver
    return clone


@cache
def _driven(base: type[Any]) -> type[Any]:
    """A subclass whose runs always have a `LoopControl`."""
    if getattr(base, "_ninelives_driven", False):
        return base

    def stream(self: Any, input: Any, config: Any = None, *, control: Any = None, **kwargs: Any) -> Any:
        mine = _control(self, config, control)
        return base.stream(self, input, config, control=mine, **kwargs)

    def astream(self: Any, input: Any, config: Any = None, *, control: Any = None, **kwargs: Any) -> Any:
        mine = _control(self, config, control)
        return base.astream(self, input, config, control=mine, **kwargs)

    body = {"stream": stream, "astream": astream, "_ninelives_driven": True, "__module__": base.__module__}
    return type(base.__name__, (base,), body)


def _control(graph: Any, config: RunnableConfig | None, control: RunControl | None) -> LoopControl:
    if control is None:  # as a nested graph would take its parent's
        runtime = ensure_config(graph.config, config)[CONF].get(CONFIG_KEY_RUNTIME)
        control = getattr(runtime, "control", None)
    return control if isinstance(control, LoopControl) else LoopControl(control)


def _on_executor(node: PregelNode, executor: Executor) -> PregelNode:
    bound = node.bound
    if isinstance(bound, Pregel):
        inner = prepared(bound, executor)
        return node.copy(
            {"bound": inner, "subgraphs": [inner if graph is bound else graph for graph in node.subgraphs]}
        )
    if not isinstance(bound, RunnableCallable) or not _is_sync(bound):
        return node
    moved = copy.copy(bound)
    moved.afunc = _in_executor(executor, bound.func)  # type: ignore[arg-type]
    return node.copy({"bound": moved})


def _is_sync(bound: RunnableCallable) -> bool:
    return (
        bound is not DEFAULT_BOUND and bound.func is not None and (not bound.afunc or is_executor_backed(bound.afunc))
    )


def _in_executor(executor: Executor, func: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(func)
    async def run(*args: Any, **kwargs: Any) -> Any:
        call = partial(copy_context().run, _stop_iteration_raised(func), *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(executor, call)

    return run


def _stop_iteration_raised(func: Callable[..., Any]) -> Callable[..., Any]:
    """A future cannot carry StopIteration: it would stay pending for ever."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except StopIteration as error:
            raise RuntimeError("the node raised StopIteration") from error

    return call
