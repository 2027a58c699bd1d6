"""
Where and how the world stops.

A *point* is a place in a run that has a name of its own, the same in every run of one workload: before and after each
statement of an act of the store and its commit, and around each unit of work. Whoever runs the workload goes through
its points; at the planned one the process is killed or stopped, by itself and at once, while no other thread of it can
add a word to the history.

Where acts of parallel tasks race, the n-th among equals is a different task's in each run; the *set* of points stays.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from typing import Any, Literal

from ninelives.chaos.history import Recorder
from ninelives.store import Act, Store

Where = Literal["before", "after", "enter", "exit"]

COMMIT = "commit"
CHECK = "holds"
"""The act by which a process asks whether its run is still its own: before every node and tool call."""
HEARTBEAT = "renew_worker"
"""Its acts come by the clock, not by the workload: how many there are differs from run to run."""


@dataclass(frozen=True, slots=True)
class Point:
    """
    Attributes:
        what: an act of the store, or `kind:name` of a unit.
        n: its n-th call in this process, from 1.
        part: the statement (`name~2` when it comes a second time in this call), or `commit`; empty for a unit.
    """

    what: str
    n: int
    part: str
    where: Where

    def __str__(self) -> str:
        return f"{self.what}#{self.n}{'.' if self.part else ''}{self.part}.{self.where}"


class How(StrEnum):
    KILL = "kill"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Plan:
    """One fault: at the point with this id, if the process gets there."""

    at: str
    how: How = How.KILL


class _About(threading.local):
    what: str | None = None


class Faults:
    """
    Goes through the points of one process; the one of the plan is where it ends or stands still.

    The recorder's events and the fault are one: nothing is recorded between the fatal event and the death.
    """

    def __init__(self, recorder: Recorder, plan: Plan | None = None) -> None:
        self.recorder, self._plan, self._quiet = recorder, plan, False
        self._mutex = threading.Lock()
        self._numbers: Counter[str] = Counter()
        self._about = _About()

    def number(self, what: str) -> int:
        """The number of the next call of `what`, from 1."""
        with self._mutex:
            self._numbers[what] += not self._quiet
            return self._numbers[what]

    def about(self, what: str | None) -> None:
        """The next check of the lease in this thread is for this call."""
        self._about.what = what

    def look(self, kind: str, read: Callable[[], Mapping[str, Any]]) -> None:
        """Record what `read` finds in the store; it is no part of the run, and goes through no points."""
        began_ns = time.monotonic_ns()
        self._quiet = True
        try:
            seen = read()
        finally:
            self._quiet = False
        self.recorder.write_of(began_ns, kind, seen)

    def hit(self, point: Point, kind: str = "point", **facts: Any) -> None:
        """The process is at this point: record it, and end here if so planned."""
        if self._quiet:
            return
        with self._mutex:
            fatal = self._plan is not None and str(point) == self._plan.at
            about = {"of": self._about.what} if point.what == CHECK else {}
            self.recorder.write(kind, point=str(point), **({"fatal": True} if fatal else {}), **about, **facts)
            if fatal:
                self._stop(point)

    def _stop(self, point: Point) -> None:
        assert self._plan is not None
        if self._plan.how is How.KILL:
            _signal_here(signal.SIGKILL)
        self.recorder.write("stopped", point=str(point))
        self._plan = None
        _signal_here(signal.SIGSTOP)
        self.recorder.write("continued", point=str(point))


def _signal_here(which: signal.Signals) -> None:
    """To this very thread: another one would have to be scheduled first, while this one and its neighbours run on."""
    signal.pthread_kill(threading.get_ident(), which)


# -- the points of a store --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Call:
    """One act as it is being carried out."""

    name: str
    n: int
    seen: Counter[str] = field(default_factory=Counter)

    def part(self, statement: str, where: str) -> str:
        if where == "before":
            self.seen[statement] += 1
        times = self.seen[statement]
        return f"{statement}~{times}" if times > 1 else statement


class _Calls(threading.local):
    """What the current thread is doing: the act whose statements it runs, and those that wait for their commit."""

    def __init__(self) -> None:
        self.now: _Call | None = None
        self.ended: dict[str, deque[_Call]] = defaultdict(deque)
        self.committing: dict[str, deque[_Call]] = defaultdict(deque)


def watch_store(store: Store, faults: Faults) -> None:
    """
    Make every statement and commit of `store` a point.

    The store's hook tells names only. Which call of an act a statement belongs to is seen from inside the act, whose
    generator runs in the very thread that the hook is called in.
    """
    calls = _Calls()

    def fault(act: str, statement: str, where: str) -> None:
        call = _committed(calls, act, where) if statement == COMMIT else calls.now
        if call is not None:
            part = call.part(statement, where)
            faults.hit(Point(act, call.n, part, "before" if where == "before" else "after"))

    for name in ("perform", "submit", "aperform"):
        setattr(store, name, _tracked(getattr(store, name), calls, faults))
    store.fault = fault


def _tracked(run: Callable[[Act[Any]], Any], calls: _Calls, faults: Faults) -> Callable[[Act[Any]], Any]:
    @wraps(run)
    def tracked(act: Act[Any]) -> Future[Any] | Awaitable[Any] | Any:
        if getattr(act.steps, "gi_code", None) is not _counted.__code__:  # `perform` may call `submit`
            act.steps = _counted(act.name, act.steps, calls, faults)
        return run(act)

    return tracked


def _counted(name: str, steps: Generator[Any, Any, Any], calls: _Calls, faults: Faults) -> Generator[Any, Any, Any]:
    """The act's own steps, with `calls.now` saying whose they are."""
    calls.now = call = _Call(name, faults.number(name))
    try:
        result = yield from steps
        calls.ended[name].append(call)
        return result
    finally:
        calls.now = None


def _committed(calls: _Calls, act: str, where: str) -> _Call | None:
    """Acts of one name are committed in the order in which they ended; a refused one did not end."""
    source = calls.ended if where == "before" else calls.committing
    if not source[act]:
        return None
    call = source[act].popleft()
    if where == "before":
        calls.committing[act].append(call)
    return call


# -- the points of a unit ---------------------------------------------------------------------------------------


@contextmanager
def around(faults: Faults, what: str, **facts: Any) -> Iterator[None]:
    """A unit of work, with a point where it begins and one where it has done all it does. A failing one has no exit."""
    n = faults.number(what)
    faults.hit(Point(what, n, "", "enter"), "enter", unit=what, **facts)
    yield
    faults.hit(Point(what, n, "", "exit"), "exit", unit=what, **facts)
