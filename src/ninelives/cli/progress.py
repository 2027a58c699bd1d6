"""
What happens in a run, as it happens: steps and tool calls that begin or end, subagents inside the steps that call them.

Told by LangChain's callbacks, not by LangGraph's `tasks` stream: that one also announces the steps of a superstep whose
result is recorded and which therefore do not run again, and it tells of nested graphs later than they act. Who shows it
is a `Teller`: `Lines` here, the live view in `live`.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from ninelives import _langgraph
from ninelives.cli import render
from ninelives.cli.recorded import Recorded
from ninelives.model import Started, Usage

_SLIPPED_IN = frozenset({"runtime", "state", "store", "config"})

Ending = Literal["done", "failed", "asks", "stopped"]


@dataclass(frozen=True, slots=True)
class Doing:
    """
    A step's task or a tool call that has begun.

    Attributes:
        under: what it is part of, if that is told too.
        number: of its step, in its graph.
        depth: how many graphs lie around it; of a tool call, what it is to be indented by.
        shown: False for a step that is one tool call: it is told as that call alone.
        args: of a tool call, in words.
        call_id: as the model named it.
        at: monotonic seconds.
    """

    id: UUID
    under: UUID | None
    kind: Literal["step", "tool"]
    name: str
    ns: str
    number: int = 0
    depth: int = 0
    shown: bool = True
    args: str = ""
    call_id: str | None = None
    at: float = 0.0


class Teller(ABC):
    """Shows a person what happens. Called from whatever thread, one call at a time; it must not wait for anything."""

    @abstractmethod
    def admitted(self, started: Started, recorded: Recorded | None) -> None:
        """A run is about to begin, or to go on with what is recorded."""

    @abstractmethod
    def begins(self, doing: Doing) -> None: ...

    @abstractmethod
    def ends(self, doing: Doing, how: Ending, said: str) -> None:
        """`said`: in short what a tool answered, or what went wrong."""

    @abstractmethod
    def model_answered(self, under: UUID | None, usage: Usage) -> None:
        """One model call has ended in the step or tool call `under`."""

    @abstractmethod
    def close(self) -> None:
        """Nothing more happens; the terminal is to be left as it was found."""


class Lines(Teller):
    """A line for each thing that begins or ends."""

    def admitted(self, started: Started, recorded: Recorded | None) -> None:
        render.say(heading(started))
        if recorded is not None:
            render.say(f"recorded before, not run again: {recorded}")

    def begins(self, doing: Doing) -> None:
        if doing.shown:
            _line(doing, f"{f'({doing.args})' if doing.kind == 'tool' else ''} ...")

    def ends(self, doing: Doing, how: Ending, said: str) -> None:
        if doing.shown:
            took = time.monotonic() - doing.at
            said = f"{': ' if how == 'failed' else ' -> '}{said}" if said else ""
            _line(doing, f": {how}{f' in {took:.1f} s' if took >= 0.05 else ''}{said}")

    def model_answered(self, under: UUID | None, usage: Usage) -> None: ...

    def close(self) -> None: ...


def heading(started: Started) -> str:
    return f"thread {started.thread_id}{' (new)' if started.created else ''}, run {started.run_id}"


def _line(doing: Doing, text: str) -> None:
    render.say(f"{'  ' * doing.depth}{'tool ' if doing.kind == 'tool' else ''}{doing.name}{text}")


@dataclass(frozen=True, slots=True)
class _Running:
    """A runnable that has not ended: one that is told, or (`doing` is None) one inside it, known by its place alone."""

    ns: str
    told: UUID | None
    doing: Doing | None = None


class Progress(BaseCallbackHandler):
    """
    Args:
        as_json: data on stdout beside the talk: one JSON object a line.
    """

    run_inline = True

    def __init__(self, teller: Teller, *, as_json: bool = False) -> None:
        self._teller, self._as_json = teller, as_json
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
            under = outer.told if outer is not None else None
            if not ns or not node or (outer is not None and outer.ns == ns):
                self._running[run_id] = _Running(ns or "", under)
                return
            step = Doing(
                id=run_id,
                under=under,
                kind="step",
                name=str(node),
                ns=ns,
                number=int(place.get("langgraph_step") or 0),
                depth=_depth(ns),
                shown=not (_langgraph.SENT in place.get("langgraph_triggers", ()) and _is_tool_call(inputs)),
                at=time.monotonic(),
            )
            self._begin(step)

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
        ns = str((metadata or {}).get("langgraph_checkpoint_ns") or "")
        args = _own(inputs if inputs is not None else input_str)
        with self._mutex:
            outer = self._running.get(parent_run_id) if parent_run_id else None
            tool = Doing(
                id=run_id,
                under=outer.told if outer is not None else None,
                kind="tool",
                name=str((serialized or {}).get("name") or kwargs.get("name") or "tool"),
                ns=ns,
                depth=_depth(ns) + self._shows_step(ns),
                args=render.arguments(args),
                call_id=kwargs.get("tool_call_id"),
                at=time.monotonic(),
            )
            self._begin(tool, args=args, call=tool.call_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        said = getattr(output, "content", output)
        self._end(run_id, "done", render.short(said) if isinstance(said, str) else "")

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        self._end(run_id, *_failed(error))

    # -- models ----------------------------------------------------------------------------------------------------

    def on_chat_model_start(self, serialized: dict[str, Any], messages: Any, **kwargs: Any) -> None:
        """Not told. Without this, LangChain would write all messages into one text for `on_llm_start`."""

    def on_llm_end(self, response: LLMResult, *, parent_run_id: UUID | None = None, **kwargs: Any) -> None:
        with self._mutex:
            outer = self._running.get(parent_run_id) if parent_run_id else None
            under = outer.told if outer is not None else None

            def tell(tokens_in: int, tokens_out: int, model: str) -> None:
                by_model = {model: (1, tokens_in, tokens_out)} if model else {}
                usage = Usage(model_calls=1, tokens_in=tokens_in, tokens_out=tokens_out, by_model=by_model)
                self._teller.model_answered(under, usage)

            # Counted as the run's own row counts it.
            _langgraph.Watch(after_model=tell).on_llm_end(response)

    # -- telling ---------------------------------------------------------------------------------------------------

    def _begin(self, doing: Doing, **facts: Any) -> None:
        self._running[doing.id] = _Running(doing.ns, doing.id, doing)
        self._data(doing, "started", **facts)
        self._teller.begins(doing)

    def _end(self, run_id: UUID, how: Ending, said: str = "") -> None:
        with self._mutex:
            ended = self._running.pop(run_id, None)
            if ended is not None and ended.doing is not None:
                self._data(ended.doing, how)
                self._teller.ends(ended.doing, how, said)

    def _data(self, what: Doing, state: str, **facts: Any) -> None:
        if self._as_json:
            place = {"task": what.ns.rpartition(":")[2], "ns": what.ns, "at": render.moment(time.time())}
            render.put_json({"kind": what.kind, "state": state, "name": what.name, **place, **facts})

    def _shows_step(self, ns: str) -> bool:
        """Whether the step around a tool call has a line of its own, which the call belongs under."""
        doings = (one.doing for one in self._running.values())
        return any(doing is not None and doing.kind == "step" and doing.ns == ns and doing.shown for doing in doings)


def _failed(error: BaseException) -> tuple[Ending, str]:
    if isinstance(error, GraphInterrupt):
        return "asks", ""
    if isinstance(error, GraphBubbleUp | CancelledError):
        return "stopped", ""
    return "failed", render.short(repr(error), render.LINE_CHARS_MAX)


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
