"""
A drain control that is also our hand on the loop of every graph of a run.

The run's control is the one object that reaches the loop of every nested graph, also of one that a node function or a
tool calls, and the loop asks it for drains in every tick: after its tasks are made, before they run. At that moment

- tool calls that an earlier run has left without a result get theirs, before the input (see `openings`);
- the tasks' messages are to get their ids when they are written (see `messages`);
- the tool nodes among them go by the run's hooks (see `toolnodes`);
- the DeltaChannels get the frequency of snapshots that was set for the graph (see `deltas`);
- the tasks of a loop without saver get names by which an answer finds them again (see `unsaved`);
- a loop without saver gets a save that is already done: under durability="sync" LangGraph 1.2.24 awaits one after
  every superstep, which a subgraph compiled with `checkpointer=False` never started (AttributeError
  `_put_checkpoint_fut`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from typing import Any

from langgraph.runtime import RunControl

from ninelives._langgraph.deltas import Frequency, set_frequency
from ninelives._langgraph.messages import stamp_writes
from ninelives._langgraph.openings import close_first
from ninelives._langgraph.private import CONF, CONFIG_KEY_CHECKPOINT_NS, PregelLoop
from ninelives._langgraph.toolnodes import HOOKS_KEY, ToolHooks, hook_tools
from ninelives._langgraph.unsaved import name_by_place

log = logging.getLogger(__name__)


class LoopControl(RunControl):
    """
    A `RunControl` in front of another: what is asked of one is asked of both.

    Args:
        frequency: of the snapshots of every DeltaChannel in the run; None: what the channels say.

    Attributes:
        unsaved: namespaces of the nested graphs that ran without a saver in this run.
    """

    def __init__(self, inner: RunControl | None = None, frequency: Frequency | None = None) -> None:
        super().__init__()
        self._frequency = frequency
        self._inner = inner or RunControl()
        self.unsaved: set[str] = set()

    def request_drain(self, reason: str = "shutdown") -> None:
        self._inner.request_drain(reason)

    @property
    def drain_requested(self) -> bool:
        # The loop does not pass itself, so its frame is looked at: tick() reads this property on every superstep.
        asker = sys._getframe(1).f_locals.get("self")
        if isinstance(asker, PregelLoop):
            self._before_superstep(asker)
        return self._inner.drain_requested

    @property
    def drain_reason(self) -> str | None:
        return self._inner.drain_reason

    def _before_superstep(self, loop: PregelLoop) -> None:
        hooks: ToolHooks | None = loop.config[CONF].get(HOOKS_KEY)
        if hooks is not None and hooks.closings and not loop.is_nested:
            closings, hooks.closings = hooks.closings, ()
            if not close_first(loop.tasks.values(), loop.specs, closings):
                log.warning("the graph takes no messages with its input: open tool calls stay without their results")
        for task in loop.tasks.values():
            stamp_writes(task, loop.specs)
        if hooks is not None:
            hooks.began(loop.tasks)
            hook_tools(loop.tasks, hooks)
        if self._frequency is not None:
            set_frequency(loop.channels.values(), self._frequency)  # the run's own copies of the graph's
        if loop.checkpointer is None:
            self._mend(loop)
            if hooks is not None and loop.is_nested:
                name_by_place(loop, hooks.answers)

    def _mend(self, loop: PregelLoop) -> None:
        if not hasattr(loop, "_put_checkpoint_fut"):
            loop._put_checkpoint_fut = _NothingToSave()  # type: ignore[assignment]
        self.unsaved.add(loop.config[CONF].get(CONFIG_KEY_CHECKPOINT_NS) or "")


class _NothingToSave:
    """A finished future for both colours: the sync API asks for `result()`, the async one awaits."""

    def result(self) -> None:
        return None

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()
