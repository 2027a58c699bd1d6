"""One process of a case, from the opening of the store to the answer."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ninelives.chaos.faults import Faults, Plan
from ninelives.chaos.history import HISTORY, OUTSIDE, Recorder
from ninelives.chaos.processes import fork
from ninelives.chaos.subjects import THREAD, Letter, Request, Session, Subject, UnknownOutcome
from ninelives.chaos.workload import Outside, Workload, World, normalised

LOG, MODULES = "log.txt", "modules.txt"


@dataclass(frozen=True, slots=True)
class Manners:
    """
    How a process behaves that is not the only one.

    Attributes:
        request: what it asks for.
        wait_s: how long it waits for the thread to come free.
        settles: where an outcome is unknown it looks outside, says what is true and asks again; else it ends there.
        threads: on each of these in turn it makes its request, all through one store.
        answers: it answers what the graph asks; else others do, and it ends with the question.
        letters: it makes no request, but hands in these answers.
        elsewhere: that process has no graph, so it only records them.
    """

    request: Request = "same"
    wait_s: float = 0.0
    settles: bool = True
    threads: tuple[str, ...] = (THREAD,)
    answers: bool = True
    letters: tuple[Letter, ...] = ()
    elsewhere: bool = False


ALONE = Manners()


@dataclass(frozen=True, slots=True)
class Trial:
    """A workload under a subject, and a folder for its cases."""

    workload: Workload
    subject: Subject
    folder: Path

    def life(self, case: Path, number: int, plan: Plan | None = None, manners: Manners = ALONE) -> int:
        """Start the `number`-th process of a case; gives its pid."""
        return fork(lambda: self.live(case, number, plan, manners), _made(case) / LOG)

    def live(self, case: Path, number: int, plan: Plan | None = None, manners: Manners = ALONE) -> None:
        """
        All that a process of a case does. What it finds and leaves in the store is looked at outside the faults.

        Each thread has a history and an outside world of its own; the plan is for the first.

        Raises: what the request raised; it is in the history too.
        """
        thread, *others = manners.threads
        world = self._world(case, thread, number, plan)
        workload = self.workload if manners.answers else self.workload.unanswered()
        with self.subject.open(case, workload, world) as session:
            _live_on(session if thread == THREAD else session.on(thread, world), world, manners)
            for thread in others:
                world = self._world(case, thread, number)
                _live_on(session.on(thread, world), world, manners)

    def _world(self, case: Path, thread: str, number: int, plan: Plan | None = None) -> World:
        folder = _made(told_in(case, thread))
        return self.subject.world_of(
            Faults(Recorder(folder / HISTORY, number), plan), Outside(folder / OUTSIDE, number)
        )


def told_in(case: Path, thread: str) -> Path:
    """Where the history of a thread is kept; the store itself is in the case's own folder."""
    return case if thread == THREAD else case / f"thread-{thread}"


def warm_up(trial: Trial) -> None:
    """Import here what a process imports on its way, so that no later child has to: that is half of a child's life."""
    case = trial.folder / "warm-up"
    pid = fork(lambda: _tell_modules(trial, case), _made(case) / LOG)
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"the workload does not run even undisturbed:\n{(case / LOG).read_text()[-4000:]}")
    for name in (case / MODULES).read_text().split():
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _live_on(session: Session, world: World, manners: Manners) -> None:
    """One thread's share in a process's life."""
    if world.faults.recorder.life > 1:
        world.faults.look("found", session.recorded)
    try:
        _answer(session, world, manners)
    finally:
        world.faults.look("left", session.recorded)


def _answer(session: Session, world: World, manners: Manners) -> None:
    recorder = world.faults.recorder
    try:
        output = _ask(session, world, manners)
    except Exception as error:
        recorder.write("raised", error=type(error).__name__, text=str(error)[:2000])
        raise
    if manners.elsewhere and manners.letters:
        return
    recorder.write("outcome", output=normalised(output), values=normalised(session.values()))


def _ask(session: Session, world: World, manners: Manners) -> Any:
    request: Callable[[], Any] = partial(session.ask, manners.request, wait_s=manners.wait_s)
    asking = partial(session.deliver, manners.letters, elsewhere=manners.elsewhere) if manners.letters else request
    while True:
        try:
            return asking()
        except UnknownOutcome as unknown:
            world.faults.recorder.write("unknown", name=unknown.name, key=unknown.key)
            if not manners.settles:
                raise
            _settle(session, world, unknown.key)
            asking = request


def _settle(session: Session, world: World, key: str) -> None:
    """Say what is true: whether the act arrived outside, and with which result."""
    arrival = next((arrival for arrival in world.outside.arrivals() if arrival.key == key), None)
    session.settle(key, happened=arrival is not None, result=arrival.result if arrival else None)
    world.faults.recorder.write("settled", key=key, happened=arrival is not None)


def _tell_modules(trial: Trial, case: Path) -> None:
    known = {*sys.modules}
    trial.live(case, 1)
    (case / MODULES).write_text("\n".join(sys.modules.keys() - known))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
