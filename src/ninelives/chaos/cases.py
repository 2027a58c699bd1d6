"""
Cases: a store, an outside world, a history, and the processes that come and go.

Each is a generator that starts processes and waits for them, so that several can be under way in a process that has no
thread; it ends with its verdict.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ninelives.chaos import checkers
from ninelives.chaos.checkers import Checker, Counts, count
from ninelives.chaos.faults import HEARTBEAT, How, Plan
from ninelives.chaos.history import History, read_history
from ninelives.chaos.processes import Case, killed
from ninelives.chaos.subjects import THREAD
from ninelives.chaos.trial import ALONE, Manners, Trial, told_in

TAKEOVER = Manners(wait_s=30.0, settles=False)
OWN = "own"
"""The second process's own thread, where the two do not ask for the same."""

SECOND_TRY = "list_workers#2.list_workers.before"
"""Where a process that waits for a thread begins to ask again: it has been refused once."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    Attributes:
        points: where its processes were killed or stopped, in order.
        missed: one of them did not come there; nothing is judged then.
        breaches: `checker: sentence`, none when all is well.
        folder: of the case; it stays where something is wrong.
    """

    points: tuple[str, ...]
    missed: bool
    breaches: tuple[str, ...]
    counts: Counts
    folder: Path


def points_of(history: History, *, life: int = 1) -> list[str]:
    """Ids of the points that a process went through, in order, the heartbeats left out."""
    return [point for point in all_points_of(history, life=life) if not is_heartbeat(point)]


def all_points_of(history: History, *, life: int = 1) -> list[str]:
    return [str(event["point"]) for event in history.of("point", "enter", "exit", life=life)]


def is_heartbeat(point: str) -> bool:
    return point.startswith(f"{HEARTBEAT}#")


# -- kinds of cases -------------------------------------------------------------------------------------------------


def undisturbed(trial: Trial, name: str) -> Case[History]:
    """The request when nobody is killed: what all others are compared with."""
    case = trial.folder / name
    yield {trial.life(case, 1)}
    return read_history(case)


def in_turn(trial: Trial, name: str, manners: Manners) -> Case[History]:
    """The request, another process's after it, and the first again: what two processes at once are compared with."""
    case = trial.folder / name
    for life, how in enumerate((ALONE, manners, ALONE), start=1):
        yield {trial.life(case, life, manners=how)}
    return read_history(case)


def killed_at(trial: Trial, case: Path, reference: History, points: tuple[str, ...]) -> Case[Verdict]:
    """Each process is killed at its point, in turn; one more goes on to the end."""
    return (yield from _killed_from(1, trial, case, reference, points))


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
    return (yield from _killed_from(2, trial, case, reference, (point, points[int(place * len(points))])))


def stopped_at(trial: Trial, case: Path, reference: History, point: str) -> Case[Verdict]:
    """
    The process stands still at its point until its lease has run out and a second one has taken over and ended; then
    it goes on. A third looks at what is left, and says what is true where an outcome was unknown.

    One that stands still inside a write transaction is ended by the second.
    """
    first = yield from standing(trial, case, 1, point, ALONE)
    if first is None:
        return judged(case, reference, (point,), missed=True)
    yield {trial.life(case, 2, manners=TAKEOVER)}
    yield from woken(first)
    yield {trial.life(case, 3)}
    return judged(case, reference, (point,), by=checkers.STOPPED)


def beside(trial: Trial, case: Path, reference: History, point: str, manners: Manners) -> Case[Verdict]:
    """
    While the first process stands still at its point, its lease far from its end, a second one asks.

    One that waits is stopped itself once it has been refused, until the first has ended. Where another thread of the
    first stood still within a write transaction, it is ended by the second: such a case says nothing of two live ones.
    """
    first = yield from standing(trial, case, 1, point, ALONE)
    if first is None:
        return judged(case, reference, (point,), missed=True)
    plan = Plan(SECOND_TRY, How.STOP) if manners.wait_s else None
    second = trial.life(case, 2, plan, manners)
    _, status = yield {second}
    (ended,) = yield from woken(first)
    if os.WIFSTOPPED(status):
        yield from woken(second)
    yield {trial.life(case, 3)}
    return judged(case, reference, (point,), missed=killed(ended), by=checkers.BESIDE)


def survived(trial: Trial, case: Path, reference: History, point: str, other: str) -> Case[Verdict]:
    """
    Two processes live, each on a thread of its own in one store; the first is killed at its point.

    The second is in the middle of its own run then. It ends that, and takes over what the first has left.
    """
    second = yield from standing(trial, case, 2, other, Manners(threads=(OWN, THREAD)))
    if second is None:
        return judged(case, reference, (point, other), missed=True)
    _, ended = yield {trial.life(case, 1, Plan(point))}
    (gone,) = yield from woken(second)
    return _of_both(case, reference, (point, other), killed(ended) and not killed(gone), checkers.KILLED)


def abreast(trial: Trial, case: Path, reference: History, point: str, other: str) -> Case[Verdict]:
    """Two processes live, each on a thread of its own in one store, each in the middle of the other's run."""
    second = yield from standing(trial, case, 2, other, Manners(threads=(OWN,)))
    if second is None:
        return judged(case, reference, (point, other), missed=True)
    first = yield from standing(trial, case, 1, point, ALONE)
    ended = yield from woken(*([second] if first is None else [first, second]))
    return _of_both(case, reference, (point, other), first is not None and not any(map(killed, ended)), checkers.BESIDE)


def raced(trial: Trial, case: Path, reference: History, manners: Manners) -> Case[Verdict]:
    """Two processes make the same request at the same time, and nobody stops them."""
    running = {trial.life(case, 1, manners=manners), trial.life(case, 2, manners=manners)}
    while running:
        ended, _ = yield running
        running = running - {ended}
    yield {trial.life(case, 3)}
    return judged(case, reference, (), by=checkers.BESIDE)


def standing(trial: Trial, case: Path, life: int, point: str, manners: Manners) -> Case[int | None]:
    """A process that stands still at its point; None if it ended without having come there."""
    pid = trial.life(case, life, Plan(point, How.STOP), manners)
    _, status = yield {pid}
    return pid if os.WIFSTOPPED(status) else None


def woken(*pids: int) -> Case[list[int]]:
    """Let processes go on that stand still; gives their wait statuses once they have ended."""
    running, ended = {*pids}, []
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    while running:
        pid, status = yield running
        running = running - {pid}
        ended.append(status)
    return ended


def _of_both(case: Path, reference: History, points: tuple[str, ...], came: bool, by: Sequence[Checker]) -> Verdict:
    """The verdict over the two threads of a case; the second process's own is as if it had been alone."""
    own = judged(told_in(case, OWN), reference, points, missed=not came, by=checkers.BESIDE)
    return judged(case, reference, points, missed=not came, by=by, more=own.breaches)


def _killed_from(first: int, trial: Trial, case: Path, reference: History, points: tuple[str, ...]) -> Case[Verdict]:
    for life, point in enumerate(points[first - 1 :], start=first):
        _, status = yield {trial.life(case, life, Plan(point))}
        if not killed(status):
            return judged(case, reference, points, missed=True)
    yield {trial.life(case, len(points) + 1)}
    return judged(case, reference, points)


# -- the verdict ------------------------------------------------------------------------------------------------------


def judged(
    case: Path,
    reference: History,
    points: tuple[str, ...],
    *,
    missed: bool = False,
    by: Sequence[Checker] = checkers.KILLED,
    more: tuple[str, ...] = (),
) -> Verdict:
    """The verdict over a case, all of whose processes have ended; `more` breaches were found elsewhere."""
    history = read_history(case)
    found = () if missed else tuple(f"{check.__name__}: {why}" for check in by for why in check(history, reference))
    breaches = (*found, *more)
    if not breaches:
        shutil.rmtree(case)
    return Verdict(points, missed, breaches, Counts() if missed else count(history, reference), case)
