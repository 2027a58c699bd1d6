"""
Forked children, two at a time.

The parent has imported all that a child needs and holds nothing that a child must not share: no store, no thread, no
event loop. So a child costs milliseconds instead of the seconds that importing the stack takes, and begins as a fresh
process would.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
from asyncio import AbstractEventLoop
from collections.abc import Callable, Generator, Iterable, Iterator, Set
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from ninelives.store import Store

T = TypeVar("T")

Case: TypeAlias = Generator[Set[int], tuple[int, int], T]
"""Yields the processes it waits for; is sent the pid and wait status of the first that ended or stopped."""

LIFE_S = 60.0
"""A child that lives longer hangs: it tells where, and ends."""


def must_be_bare() -> None:
    """
    Make sure that this process may fork.

    Raises:
        RuntimeError: it holds a store, a thread or an event loop.
    """
    held = [type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, Store | AbstractEventLoop)]
    threads = _threads()
    if held or threads > 1:
        raise RuntimeError(f"the process that forks must hold nothing; it has {threads} threads and {held}")


def fork(body: Callable[[], None], log: Path) -> int:
    """Run `body` in a child that then ends, with 0 if it returned and 1 if it raised; what it prints goes to `log`."""
    if _threads() > 1:
        raise RuntimeError("the process that forks has started a thread")
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _redirect(log)
        faulthandler.dump_traceback_later(LIFE_S, exit=True)
        body()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def run_all(cases: Iterable[Case[T]], jobs: int) -> Iterator[T]:
    """Run cases, `jobs` at a time, and give their results as they come; all processes of a case have ended then."""
    lanes = _Lanes[T]()
    try:
        for case in cases:
            lanes.advance(case, None)
            while len(lanes.waiting) >= jobs:
                lanes.wait()
            yield from lanes.results()
        while lanes.waiting:
            lanes.wait()
            yield from lanes.results()
    finally:
        lanes.abandon()


class _Lanes(Generic[T]):
    """The cases that are being run, each with the processes that it waits for."""

    def __init__(self) -> None:
        self.waiting: dict[Case[T], Set[int]] = {}
        self._early: dict[int, int] = {}  # told before anybody asked
        self._results: list[T] = []

    def advance(self, case: Case[T], answer: tuple[int, int] | None) -> None:
        try:
            pids = case.send(answer)  # type: ignore[arg-type]  # None is how a generator is started
            while known := self._early.keys() & pids:
                pids = case.send((pid := known.pop(), self._early.pop(pid)))
        except StopIteration as end:
            self._results.append(end.value)
        else:
            self.waiting[case] = pids

    def wait(self) -> None:
        pid, status = os.waitpid(-1, os.WUNTRACED)
        case = next((case for case, pids in self.waiting.items() if pid in pids), None)
        if case is None:
            self._early[pid] = status
        else:
            del self.waiting[case]
            self.advance(case, (pid, status))

    def results(self) -> Iterator[T]:
        while self._results:
            yield self._results.pop(0)

    def abandon(self) -> None:
        """Something went wrong here: leave no child behind."""
        for pid in {pid for pids in self.waiting.values() for pid in pids}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def killed(status: int) -> bool:
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _threads() -> int:
    """Of the whole process where the system tells (also those that Python did not start), else Python's own."""
    with suppress(FileNotFoundError):
        return len(os.listdir("/proc/self/task"))
    return threading.active_count()


def _redirect(log: Path) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sys.stdout.flush()
    for standard in (1, 2):
        os.dup2(fd, standard)
