"""
One run in this terminal: driven to its end, its question, or the end of the step after Ctrl-C.

The first SIGINT or SIGTERM asks the graph to stop after its step; the second stops at once, and what is in flight then
may run again; the third does not even wait for that.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Interrupt

from ninelives.cli import render
from ninelives.cli.exits import Exit, StoppedAtOnce
from ninelives.cli.progress import Progress
from ninelives.model import Started

CODES = {signal.SIGINT: Exit.INTERRUPTED, signal.SIGTERM: Exit.TERMINATED}


@dataclass(slots=True)
class Outcome:
    """
    What came of a call.

    Attributes:
        values: the graph's output, None if it gave none.
        questions: what it waits with.
        ran: whether a run was admitted; if not, nothing had to run.
        stopped: the code to end with, if a signal stopped it at a step boundary.
    """

    values: Any = None
    questions: list[Interrupt] = field(default_factory=list)
    ran: bool = False
    stopped: Exit | None = None


async def drive(
    agent: Any, given: Any, progress: Progress, begins: Callable[[Started], None], **options: Any
) -> Outcome:
    """
    Call a protected graph and tell what happens.

    Args:
        given: its input; None: go on.
        begins: told of each run that is admitted, before its first step.
        options: of `astream`, such as `thread`.

    Raises:
        StoppedAtOnce: by a second signal.
        Exception: as `astream`.
    """
    outcome, control = Outcome(), RunControl()
    config = {**options.pop("config", {}), "callbacks": [progress]}

    def admitted(started: Started) -> None:
        outcome.ran = True
        outcome.questions.clear()
        begins(started)

    with _signals(control) as stop:
        try:
            chunks = agent.astream(
                given,
                config,
                stream_mode=["updates", "values"],
                control=control,
                on_start=admitted,
                **options,
            )
            async for chunk in chunks:
                _take(chunk, outcome)
        except GraphDrained:
            outcome.stopped = stop.code
        except asyncio.CancelledError:
            if stop.code is None:
                raise
            raise StoppedAtOnce(stop.code) from None
    return outcome


def _take(chunk: tuple[str, Any], outcome: Outcome) -> None:
    mode, told = chunk
    if mode == "values":
        values = dict(told) if isinstance(told, dict) else told
        asked = values.pop("__interrupt__", ()) if isinstance(values, dict) else ()
        outcome.values = values
        _asked(outcome, asked)
    else:
        _asked(outcome, told.get("__interrupt__", ()) if isinstance(told, dict) else ())


def _asked(outcome: Outcome, asked: Any) -> None:
    known = {question.id for question in outcome.questions}
    outcome.questions += [question for question in asked if question.id not in known]


class _Stop:
    """What signals have asked for so far."""

    def __init__(self, control: RunControl, task: asyncio.Task[Any]) -> None:
        self._control, self._task = control, task
        self._times = 0
        self.code: Exit | None = None

    def __call__(self, signum: signal.Signals) -> None:
        self._times += 1
        self.code = self.code or CODES[signum]
        if self._times == 1:
            render.say("draining: stops after this step; press again to stop now")
            self._control.request_drain(signum.name)
        elif self._times == 2:
            render.say("stopping now: what is in flight may run again")
            self._task.cancel()
        else:
            os._exit(self.code)


@contextmanager
def _signals(control: RunControl) -> Iterator[_Stop]:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    stop = _Stop(control, task)
    for signum in CODES:
        loop.add_signal_handler(signum, stop, signum)
    try:
        yield stop
    finally:
        for signum in CODES:
            loop.remove_signal_handler(signum)
