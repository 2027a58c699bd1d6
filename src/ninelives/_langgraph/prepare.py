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
from inspect import signature
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl

from ninelives._langgraph.control import LoopControl
from ninelives._langgraph.deltas import Frequency, with_frequency
from ninelives._langgraph.executor import RunExecutor
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

_FREQUENCY = "_ninelives_frequency"


def prepared(graph: G, executor: Executor | None = None, *, frequency: Frequency | None = None) -> G:
    """
    A copy of `graph` that is fit to be driven under durability="sync", its messages having ids before they are stored.

    Subgraphs compiled with `checkpointer=False` work in it at any depth, also when a node function or a tool calls
    them. With `executor`, node functions without an async twin run there, in this graph and in subgraphs that are
    nodes themselves, and so do the sync tools of their tool nodes; contextvars are kept. Async nodes and
    `RunnableLambda`s stay as they are, and so does what a node or tool calls by itself (of a subagent, the sync tools
    are moved when they are called: see `toolnodes`).

    With `frequency`, the DeltaChannels of this graph and of every graph inside it are stored whole so often, whatever
    they say themselves.
    """
    clone = copy.copy(graph)
    clone.__class__ = _driven(type(graph))
    if executor is not None:
        clone.nodes = {name: _on_executor(node, executor, frequency) for name, node in graph.nodes.items()}
    if frequency is not None:
        # For edits of the state, which no control sees; and read by the control of this graph's runs.
        clone.channels = with_frequency(graph.channels, frequency)
        clone.__dict__[_FREQUENCY] = frequency
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
    return control if isinstance(control, LoopControl) else LoopControl(control, graph.__dict__.get(_FREQUENCY))


def _on_executor(node: PregelNode, executor: Executor, frequency: Frequency | None) -> PregelNode:
    bound = node.bound
    if isinstance(bound, Pregel):
        inner = prepared(bound, executor, frequency=frequency)
        return node.copy(
            {"bound": inner, "subgraphs": [inner if graph is bound else graph for graph in node.subgraphs]}
        )
    if isinstance(bound, ToolNode):
        return node.copy({"bound": _tools_on_executor(bound, executor)})
    if not isinstance(bound, RunnableCallable) or not _is_sync(bound):
        return node
    moved = copy.copy(bound)
    moved.afunc = _in_executor(executor, bound.func)  # type: ignore[arg-type]
    return node.copy({"bound": moved})


def _tools_on_executor(node: ToolNode, executor: Executor) -> ToolNode:
    clone = copy.copy(node)
    # What runs it are methods bound to the original; on the copy they must look into the copy.
    clone.func, clone.afunc = clone._func, clone._afunc
    clone._tools_by_name = {name: tool_on_executor(tool, executor) for name, tool in node.tools_by_name.items()}
    return clone


_PLAIN = "_ninelives_plain"


def plain_tool(tool: BaseTool) -> BaseTool:
    """The tool as it was before `tool_on_executor`."""
    plain: BaseTool = vars(tool).get(_PLAIN, tool)
    return plain


def tool_on_executor(tool: BaseTool, executor: Executor) -> BaseTool:
    """A copy whose sync body runs on `executor` when the tool is called from async code; an async one stays."""
    moved = _moved_tool(tool, executor)
    if moved is not tool:
        object.__setattr__(moved, _PLAIN, tool)  # past pydantic, which knows no such field
    return moved


def _moved_tool(tool: BaseTool, executor: Executor) -> BaseTool:
    if isinstance(tool, StructuredTool | Tool):
        if tool.coroutine is not None or tool.func is None:
            return tool
        return tool.model_copy(update={"coroutine": _in_executor(executor, tool.func)})
    if type(tool)._arun is not BaseTool._arun:
        return tool
    moved = _in_executor(executor, tool._run)

    async def arun(*args: Any, run_manager: Any = None, **kwargs: Any) -> Any:
        if run_manager is not None and "run_manager" in signature(tool._run).parameters:
            kwargs["run_manager"] = run_manager.get_sync()
        return await moved(*args, **kwargs)

    clone = tool.model_copy()
    object.__setattr__(clone, "_arun", arun)
    return clone


def _is_sync(bound: RunnableCallable) -> bool:
    return (
        bound is not DEFAULT_BOUND and bound.func is not None and (not bound.afunc or is_executor_backed(bound.afunc))
    )


def _in_executor(executor: Executor, func: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(func)
    async def run(*args: Any, **kwargs: Any) -> Any:
        call = partial(copy_context().run, _body(executor, func), *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(executor, call)

    return run


def _body(executor: Executor, func: Callable[..., Any]) -> Callable[..., Any]:
    """Asked first whether it may still begin. A future cannot carry StopIteration: it would stay pending for ever."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if isinstance(executor, RunExecutor):
            executor.check()
        try:
            return func(*args, **kwargs)
        except StopIteration as error:
            raise RuntimeError("the node raised StopIteration") from error

    return call
