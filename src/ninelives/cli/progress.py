"""
What happens in a run, as it happens: a line for each step and tool call that begins or ends, subagents indented.

Told by LangChain's callbacks, not by LangGraph's `tasks` stream: that one also announces the steps of a superstep whose
result is recorded and which therefore do not run again, and it tells of nested graphs later than they act.
"""

from __future__ import annotations

import threading
import time
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from ninelives import _langgraph
from ninelives.cli import render

_SLIPPED_IN = frozenset({"runtime", "state", "store", "config"})


@dataclass(frozen=True, slots=True)
class _Running:
    """
    Something that has begun and not ended. An inner runnable of a step is known only by its namespace.

    `shown`: a step that is one tool call is told as that call alone.
    """

    ns: str
    kind: str = ""
    name: str = ""
    depth: int = 0
    at: float = 0.0
    shown: bool = True


class Progress(BaseCallbackHandler):
    """
    Args:
        as_json: data on stdout beside the talk: one JSON object a line.
    """

    run_inline = True

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._mutex = threading.Lock()
        self._running: dict[UUID, _Running] = {}

    # -- steps -----------------------------------------------------------------------------------------------------

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
        place = metadata or {}
        ns, node = place.get("langgraph_checkpoint_ns"), place.get("langgraph_node")
        with self._mutex:
            outer = self._running.get(parent_run_id) if parent_run_id else None
            if not ns or not node or (outer is not None and outer.ns == ns):
                self._running[run_id] = _Running(ns or "")
                return
            shown = not (_langgraph.SENT in place.get("langgraph_triggers", ()) and _is_tool_call(inputs))
            self._begin(run_id, _Running(ns, "step", str(node), _depth(ns), time.monotonic(), shown), "")

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, "done")

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, *_failed(error))

    # -- tools -----------------------------------------------------------------------------------------------------

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
        name = str((serialized or {}).get("name") or kwargs.get("name") or "tool")
        ns = str((metadata or {}).get("langgraph_checkpoint_ns") or "")
        args = _own(inputs if inputs is not None else input_str)
        with self._mutex:
            depth = _depth(ns) + self._shows_step(ns)
            tool = _Running(ns, "tool", name, depth, time.monotonic())
            self._begin(run_id, tool, f"({render.arguments(args)})", args=args, call=kwargs.get("tool_call_id"))

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        said = getattr(output, "content", output)
        self._end(run_id, "done", f" -> {render.short(said)}" if isinstance(said, str) and said else "")

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, *_failed(error))

    # -- telling ---------------------------------------------------------------------------------------------------

    def _begin(self, run_id: UUID, begins: _Running, how: str, **facts: Any) -> None:
        self._running[run_id] = begins
        self._data(begins, "started", **facts)
        if begins.shown:
            _line(begins, f"{how} ...")

    def _end(self, run_id: UUID, state: str, how: str = "") -> None:
        with self._mutex:
            ended = self._running.pop(run_id, None)
            if ended is None or not ended.kind:
                return
            self._data(ended, state)
            if ended.shown:
                took = time.monotonic() - ended.at
                _line(ended, f": {state}{f' in {took:.1f} s' if took >= 0.05 else ''}{how}")

    def _data(self, what: _Running, state: str, **facts: Any) -> None:
        if self._as_json:
            place = {"task": what.ns.rpartition(":")[2], "ns": what.ns, "at": render.moment(time.time())}
            render.put_json({"kind": what.kind, "state": state, "name": what.name, **place, **facts})

    def _shows_step(self, ns: str) -> bool:
        """Whether the step around a tool call has a line of its own, which the call belongs under."""
        return any(one.kind == "step" and one.ns == ns and one.shown for one in self._running.values())


def _line(what: _Running, text: str) -> None:
    render.say(f"{'  ' * what.depth}{'tool ' if what.kind == 'tool' else ''}{what.name}{text}")


def _failed(error: BaseException) -> tuple[str, str]:
    if isinstance(error, GraphInterrupt):
        return "asks", ""
    if isinstance(error, GraphBubbleUp | CancelledError):
        return "stopped", ""
    return "failed", f": {render.short(repr(error), render.LINE_CHARS_MAX)}"


def _depth(ns: str) -> int:
    """How many graphs lie around a step; a bare number in a namespace only counts calls."""
    return sum(1 for part in ns.split("|") if not part.isdigit()) - 1


def _is_tool_call(given: Any) -> bool:
    """Whether a step was sent one tool call, as agents send theirs."""
    first = given[0] if isinstance(given, Sequence) and given else given
    if isinstance(first, Mapping) and "tool_call" in first:
        first = first["tool_call"]
    return isinstance(first, Mapping) and first.get("type") == "tool_call"


def _own(args: Any) -> Any:
    """Arguments without what LangGraph slips in beside the caller's."""
    if not isinstance(args, Mapping):
        return args
    return {name: value for name, value in args.items() if name not in _SLIPPED_IN}
