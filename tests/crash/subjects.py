"""Ninelives under other settings than its own, with another clock, or broken on purpose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ninelives.chaos.faults import Faults
from ninelives.chaos.subjects import THREAD, Ninelives, ProtectedSession, Request
from ninelives.chaos.workload import Outside, Workload, World
from ninelives.config import LeaseSettings, Settings
from ninelives.lease import Keeper
from ninelives.stores.sqlite.statements import STATEMENTS


def leases(ttl_s: float, heartbeat_s: float) -> Settings:
    return Settings(lease=LeaseSettings(ttl_s=ttl_s, heartbeat_s=heartbeat_s))


STEADY = Ninelives("leases of a second", settings=leases(1.0, 0.2), busy_timeout_s=0.2)
QUICK = Ninelives("leases of half a second", settings=leases(0.5, 0.1), busy_timeout_s=0.2)
BEATING = Ninelives("a heartbeat every 10 ms", settings=leases(2.0, 0.01))
SHORT = Ninelives("short patience with a writer that hangs", settings=leases(3.0, 1.0), busy_timeout_s=0.1)


# -- another clock ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetBack(Ninelives):
    """
    One of two has a clock that is behind: the store's, and the one that LangGraph makes its ids from.

    Attributes:
        first: it is the first process; else whoever comes after it.
    """

    seconds: float = 60.0
    first: bool = False

    @contextmanager
    def open(self, folder: Path, workload: Workload, world: World) -> Iterator[ProtectedSession]:
        if (world.faults.recorder.life == 1) is self.first:
            set_clock_back(self.seconds)
        with Ninelives.open(replace(self, clock=time.time), folder, workload, world) as session:
            yield session


def set_clock_back(seconds: float) -> None:
    """For this process, which is a child and soon over."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() - seconds
    time.time_ns = lambda: now_ns() - int(seconds * 1e9)


SET_BACK = SetBack("a clock set back by 60 s", settings=leases(3.0, 1.0), busy_timeout_s=0.1)
SET_AHEAD = replace(SET_BACK, name="a clock set ahead by 60 s", first=True)
"""Whoever comes after the first process is behind, or ahead of it; little patience with a writer that hangs."""


@dataclass(frozen=True, slots=True)
class DaysLater(Ninelives):
    """Each process begins two days after the one before: people take their time."""

    @contextmanager
    def open(self, folder: Path, workload: Workload, world: World) -> Iterator[ProtectedSession]:
        set_clock_back(-2 * DAY_S * (world.faults.recorder.life - 1))
        with Ninelives.open(replace(self, clock=time.time), folder, workload, world) as session:
            yield session


DAY_S = 86_400.0
DAYS_LATER = DaysLater("two days between the processes")


# -- broken on purpose: what must be found ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unfenced(Ninelives):
    """Nobody is ever refused for being late: neither the store nor the process's own clock objects."""

    @contextmanager
    def open(self, folder: Path, workload: Workload, world: World) -> Iterator[ProtectedSession]:
        STATEMENTS.update(dict.fromkeys(("fence", "holds"), "select 1 as ok"))
        setattr(Keeper, Keeper.trusts.__name__, lambda keeper, worker_id: True)
        with Ninelives.open(self, folder, workload, world) as session:
            yield session


class Forgetful(ProtectedSession):
    """Starts from scratch each time: a user's program that knows no better."""

    def ask(self, request: Request = "same", *, wait_s: float = 0.0) -> Any:
        return self.agent.invoke(self.workload.input, thread=THREAD, on_unfinished="start_over")


@dataclass(frozen=True, slots=True)
class StartsOver(Ninelives):
    session: type[ProtectedSession] = Forgetful


UNFENCED = Unfenced("without a fence", settings=leases(0.5, 0.1), busy_timeout_s=0.2)
STARTS_OVER = StartsOver("from scratch each time")


class Unasked(World):
    """Where a process has died before, nobody is asked any more."""

    def ask(self, question: str) -> Any:
        return super().ask(question) if self.faults.recorder.life == 1 else f"yes to {question}"


@dataclass(frozen=True, slots=True)
class Eager(Ninelives):
    """Acts without leave after a kill."""

    def world_of(self, faults: Faults, outside: Outside) -> World:
        world = Ninelives.world_of(self, faults, outside)
        return Unasked(world.faults, world.outside, world.declare, world.key)


EAGER = Eager("nobody is asked after a kill")
