"""
Every point of a workload, killed once; and pairs of kills.

A case is one folder: a store, an outside world, a history, and as many processes as it takes. The first is killed at
its point, the next is started with the same request, as a user's program would be, and the history is judged.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ninelives.chaos import checkers
from ninelives.chaos.checkers import Checker, Counts, count
from ninelives.chaos.faults import HEARTBEAT, Faults, Plan
from ninelives.chaos.history import HISTORY, OUTSIDE, History, Recorder, read_history
from ninelives.chaos.processes import Case, fork, killed, run_all
from ninelives.chaos.subjects import Session, Subject, UnknownOutcome
from ninelives.chaos.workload import Outside, Workload, World, normalised

LOG, MODULES = "log.txt", "modules.txt"


@dataclass(frozen=True, slots=True)
class Trial:
    """A workload under a subject, and a folder for its cases."""

    workload: Workload
    subject: Subject
    folder: Path

    def life(self, case: Path, number: int, plan: Plan | None = None) -> int:
        """Start the `number`-th process of a case; gives its pid."""
        return fork(lambda: self.live(case, number, plan), _made(case) / LOG)

    def live(self, case: Path, number: int, plan: Plan | None = None) -> None:
        """All that a process of a case does."""
        recorder = Recorder(case / HISTORY, number)
        faults, outside = Faults(recorder, plan), Outside(case / OUTSIDE, number)
        world = self.subject.world_of(faults, outside)
        with self.subject.open(case, self.workload, world) as session:
            if number > 1:
                _look(session, faults, "found")
            _ask_until_answered(session, recorder, world)
            _look(session, faults, "left")


def _look(session: Session, faults: Faults, kind: str) -> None:
    with faults.quiet():
        faults.recorder.write(kind, **session.recorded())


def _ask_until_answered(session: Session, recorder: Recorder, world: World) -> None:
    """Make the request; where it stops because an outcome is unknown, look outside, say what is true, ask again."""
    try:
        output = _answered(session, recorder, world)
    except Exception as error:
        recorder.write("raised", error=type(error).__name__, text=str(error)[:2000])
        raise
    recorder.write("outcome", output=normalised(output), values=normalised(session.values()))


def _answered(session: Session, recorder: Recorder, world: World) -> Any:
    while True:
        try:
            return session.ask()
        except UnknownOutcome as unknown:
            recorder.write("unknown", name=unknown.name, key=unknown.key)
            arrival = next((a for a in world.outside.arrivals() if a.key == unknown.key), None)
            session.settle(unknown.key, happened=arrival is not None, result=arrival.result if arrival else None)
            recorder.write("settled", key=unknown.key, happened=arrival is not None)


def warm_up(trial: Trial) -> None:
    """Import here what a process imports on its way, so that no later child has to: that is half of a child's life."""
    case = trial.folder / "warm-up"
    pid = fork(lambda: _tell_modules(trial, case), _made(case) / LOG)
    os.waitpid(pid, 0)
    for name in (case / MODULES).read_text().split():
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _tell_modules(trial: Trial, case: Path) -> None:
    known = {*sys.modules}
    trial.live(case, 1)
    (case / MODULES).write_text("\n".join(sys.modules.keys() - known))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# -- the points ---------------------------------------------------------------------------------------------------


def points_of(history: History, *, life: int = 1) -> list[str]:
    """Ids of the points that a process went through, in order, the heartbeats left out."""
    told = [str(event["point"]) for event in history.of("point", "enter", "exit", life=life)]
    return [point for point in told if not point.startswith(f"{HEARTBEAT}#")]


def chosen(points: Sequence[str], share: float, rng: random.Random) -> list[str]:
    """
    The points to try: those of every unit, the first and last of every act, and a share of the others.

    The first of an act is before its first statement, the last is after its commit (of one that reads: after its last
    statement).
    """
    calls: dict[str, list[str]] = {}
    for point in points:
        calls.setdefault(point.rpartition("#")[0] + point.rpartition("#")[2].partition(".")[0], []).append(point)
    ends = {end for call in calls.values() for end in (call[0], call[-1])}
    return [point for point in points if point in ends or rng.random() < share]


# -- cases ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Attributes:
        points: where its processes were stopped, in order.
        missed: one of them did not come there; nothing is judged then.
        breaches: `checker: sentence`, none when all is well.
    """

    points: tuple[str, ...]
    missed: bool
    breaches: tuple[str, ...]
    counts: Counts
    folder: Path


def reference_case(trial: Trial, name: str) -> Case[History]:
    """The same request when nobody is killed."""
    case = trial.folder / name
    yield {trial.life(case, 1)}
    return read_history(case)


def killed_once(trial: Trial, case: Path, reference: History, point: str) -> Case[Verdict]:
    _, status = yield {trial.life(case, 1, Plan(point))}
    if killed(status):
        yield {trial.life(case, 2)}
    return judged(case, reference, (point,), missed=not killed(status))


def killed_twice(trial: Trial, case: Path, reference: History, point: str, place: float) -> Case[Verdict]:
    """The process that goes on is killed too, at `place` (from 0 to 1) among the points that it would go through."""
    _, status = yield {trial.life(case, 1, Plan(point))}
    if not killed(status):
        return judged(case, reference, (point,), missed=True)
    rehearsal = case.with_name(f"{case.name}-rehearsal")
    shutil.copytree(case, rehearsal)
    yield {trial.life(rehearsal, 2)}
    points = points_of(read_history(rehearsal), life=2)
    shutil.rmtree(rehearsal)
    second = points[int(place * len(points))]
    return (yield from killed_again(trial, case, reference, (point, second)))


def killed_again(trial: Trial, case: Path, reference: History, points: tuple[str, ...]) -> Case[Verdict]:
    """The first process of this case is dead; the others die in turn, and one more goes on to the end."""
    for life, point in enumerate(points[1:], start=2):
        _, status = yield {trial.life(case, life, Plan(point))}
        if not killed(status):
            return judged(case, reference, points, missed=True)
    yield {trial.life(case, len(points) + 1)}
    return judged(case, reference, points)


def judged(
    case: Path,
    reference: History,
    points: tuple[str, ...],
    *,
    missed: bool = False,
    by: Sequence[Checker] = checkers.KILLED,
) -> Verdict:
    """The verdict over a case; its folder stays where something is wrong."""
    history = read_history(case)
    breaches = tuple(f"{check.__name__}: {breach}" for check in by for breach in check(history, reference))
    if not breaches or missed:
        shutil.rmtree(case)
    return Verdict(points, missed, () if missed else breaches, Counts() if missed else count(history, reference), case)


# -- many cases -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """
    Attributes:
        known: number of points of the workload.
        unstable: points that only one of two un-killed runs went through.
        verdicts: one per case that was tried.
    """

    workload: str
    subject: str
    seed: int
    known: int
    unstable: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def missed(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.missed]

    @property
    def failed(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.breaches]

    @property
    def counts(self) -> Counts:
        return sum((verdict.counts for verdict in self.verdicts), Counts())


@dataclass(frozen=True, slots=True)
class Search:
    """
    Which cases are tried.

    Attributes:
        share: of the points within an act, how many are tried; the ends of each act and all units always are.
        pairs: tried instead of single kills, that many.
    """

    share: float = 1.0
    pairs: int = 0
    seed: int = 1
    jobs: int = 2


def explore(trial: Trial, search: Search) -> Report:
    """Run the workload twice undisturbed, then once per case with its fault; judge each."""
    began = time.monotonic()
    warm_up(trial)
    first, second = run_all((reference_case(trial, name) for name in ("un-killed-1", "un-killed-2")), search.jobs)
    points = points_of(first)
    verdicts = [*run_all(_cases(trial, search, first, points), search.jobs)]
    return Report(
        workload=trial.workload.name,
        subject=trial.subject.name,
        seed=search.seed,
        known=len(points),
        unstable=tuple(sorted({*points} ^ {*points_of(second)})),
        verdicts=tuple(verdicts),
        seconds=time.monotonic() - began,
    )


def _cases(trial: Trial, search: Search, reference: History, points: Sequence[str]) -> Iterator[Case[Verdict]]:
    rng = random.Random(search.seed)
    if search.pairs:
        for number in range(search.pairs):
            yield killed_twice(trial, trial.folder / f"pair-{number}", reference, rng.choice(points), rng.random())
    else:
        for number, point in enumerate(chosen(points, search.share, rng)):
            yield killed_once(trial, trial.folder / f"kill-{number}", reference, point)
