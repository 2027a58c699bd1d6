"""
A look at every node, tool and model call of a run, also inside subagents, through LangChain's callbacks.

Callbacks see inner runnables too: a node's sequence, its function, its router. A run counts as the node itself when
its parent belongs to another task; so each attempt of a task is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.errors import GraphBubbleUp

from ninelives._langgraph.private import NS_END

RECORDED = "ninelives_recorded"
"""Marks what a model said before, and is only said again."""


class StopDriving(GraphBubbleUp):
    """
    Stops a run at the next edge: not retried, not handed to error handlers, not stored as an error.

    Attributes:
        error: what the caller of the run is to be told.
    """

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


@dataclass(frozen=True)
class _Run:
    parent: UUID | None
    ns: str | None
    node: str | None = None  # set on the outermost run of a task
    tool: str | None = None
    tool_call_id: str | None = None


def _ignore(*_: Any) -> None: ...


class Watch(BaseCallbackHandler):
    """
    Calls back before and after each node and tool, and after each model call. What a `before_` raises aborts the call.

    The callables run in the thread of the call (the event loop for async ones), so they must not block; a stop is
    raised as `StopDriving`. Not seen: the pseudo node `__start__`, and plain nodes without any writer.

    Args:
        before_node: (node name, checkpoint namespace ending in the task id, task id).
        after_node: (node name, namespace, task id, error or None).
        before_tool: (tool name, tool call id or None, arguments by name, or the text given).
        after_tool: (tool name, error or None).
        after_model: (input tokens, output tokens, model); zeros when the provider tells none, "" for no name.
    """

    raise_error = True
    run_inline = True

    def __init__(
        self,
        *,
        before_node: Callable[[str, str, str], None] = _ignore,
        after_node: Callable[[str, str, str, BaseException | None], None] = _ignore,
        before_tool: Callable[[str, str | None, Any], None] = _ignore,
        after_tool: Callable[[str, BaseException | None], None] = _ignore,
        after_model: Callable[[int, int, str], None] = _ignore,
    ) -> None:
        self._before_node, self._after_node = before_node, after_node
        self._before_tool, self._after_tool = before_tool, after_tool
        self._after_model = after_model
        self._runs: dict[UUID, _Run] = {}  # only those that have not ended

    def tool_call_of(self, run_id: UUID, ns: str) -> str | None:
        """The id of the tool call that encloses a run within the task of `ns`; None when the task called no tool."""
        run = self._runs.get(run_id)
        while run is not None and run.ns == ns:
            if run.tool is not None:
                return run.tool_call_id
            run = self._runs.get(run.parent) if run.parent else None
        return None

    # -- LangChain's side --------------------------------------------------------------------------------------

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        ns, node = _place(metadata)
        if ns is None or node is None or self._ns_of(parent_run_id) == ns:
            self._runs[run_id] = _Run(parent_run_id, ns)
            return
        self._before_node(node, ns, _task_id(ns))
        self._runs[run_id] = _Run(parent_run_id, ns, node=node)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, error)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        name = str((serialized or {}).get("name") or kwargs.get("name") or "")
        call_id = kwargs.get("tool_call_id")
        self._before_tool(name, call_id, inputs if inputs is not None else input_str)
        self._runs[run_id] = _Run(parent_run_id, _place(metadata)[0], tool=name, tool_call_id=call_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, error)

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        if any((one.generation_info or {}).get(RECORDED) for batch in response.generations for one in batch):
            return  # it was paid for before
        self._after_model(*_usage(response), _model(response))

    # -- helpers -----------------------------------------------------------------------------------------------

    def _ns_of(self, run_id: UUID | None) -> str | None:
        run = self._runs.get(run_id) if run_id else None
        return run.ns if run else None

    def _end(self, run_id: UUID, error: BaseException | None) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        if run.tool is not None:
            self._after_tool(run.tool, error)
        elif run.node is not None and run.ns is not None:
            self._after_node(run.node, run.ns, _task_id(run.ns), error)


def _place(metadata: Mapping[str, Any] | None) -> tuple[str | None, str | None]:
    found = metadata or {}
    return found.get("langgraph_checkpoint_ns"), found.get("langgraph_node")


def _task_id(ns: str) -> str:
    return ns.rpartition(NS_END)[2]


def _model(response: LLMResult) -> str:
    """As the provider names it in its answer."""
    said = [(response.llm_output or {}).get("model_name")]
    for batch in response.generations:
        for generation in batch:
            if isinstance(generation, ChatGeneration):
                metadata = generation.message.response_metadata
                said += [metadata.get("model_name"), metadata.get("model")]
    return next((name for name in said if isinstance(name, str) and name), "")


def _usage(response: LLMResult) -> tuple[int, int]:
    messages = [one.message for batch in response.generations for one in batch if isinstance(one, ChatGeneration)]
    told = [one.usage_metadata for one in messages if isinstance(one, AIMessage) and one.usage_metadata]
    return sum(usage["input_tokens"] for usage in told), sum(usage["output_tokens"] for usage in told)
