"""Every point of a workload, one after the other, with its fault there; and a report of what became of it all."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from ninelives.chaos.cases import (
    Verdict,
    abreast,
    all_points_of,
    beside,
    in_turn,
    is_heartbeat,
    killed_at,
    killed_twice,
    points_of,
    raced,
    stopped_at,
    survived,
    undisturbed,
)
from ninelives.chaos.checkers import Counts
from ninelives.chaos.history import History
from ninelives.chaos.processes import Case, run_all
from ninelives.chaos.talks import clicked, killed_in_talk, talk, talk_points
from ninelives.chaos.trial import ALONE, Manners, Trial, warm_up

Mode: TypeAlias = Literal[
    "kills", "pairs", "heartbeats", "stops", "beside", "races", "survived", "abreast", "talks", "clicks", "rivals"
]
TALKS = ("talks", "clicks", "rivals")
"""Modes in which what the graph asks is answered by other processes."""


@dataclass(frozen=True, slots=True)
class Search:
    """
    Which cases are tried.

    Attributes:
        mode: what is done at a point. `kills`: the process dies. `pairs`: the one that goes on dies too. `heartbeats`:
            it dies at a point that comes by the clock. `stops`: it stands still and is superseded. `beside`: it stands
            still and another asks. `races`: two make the same request at once, nobody is stopped. `survived`: it dies
            while another lives, which is in the middle of a run on a thread of its own and then takes over. `abreast`:
            two live and run, each on a thread of its own. `talks`: other processes answer what it asks, and any of all
            these dies. `clicks`: two answer each question, at once or while one of them stands still; `rivals`: one of
            the two rejects what the other approves.
        at: these points only, for `kills` in turn, one process at each.
        share: of the points within an act, how many are tried; the ends of each act and all units always are.
        every: acts of which all points are tried.
        sample: of those, so many at most, for `kills` and `stops`; of the latter half lie between a check and its call.
        cases: how many pairs, heartbeats, points to stop beside, races, or twos; how often `at` is tried.
        manners: of the second process, where there are two.
        elsewhere: who answers has no graph.
        jobs: cases at a time.
    """

    mode: Mode = "kills"
    at: tuple[str, ...] = ()
    share: float = 1.0
    every: tuple[str, ...] = ()
    sample: int | None = None
    cases: int = 1
    manners: Manners = ALONE
    elsewhere: bool = False
    seed: int = 1
    jobs: int = 2


@dataclass(frozen=True, slots=True)
class Report:
    """
    Attributes:
        known: number of points of the workload.
        unstable: points that only one of two undisturbed runs went through.
        verdicts: one per case that was tried.
        control: what became of another subject at the same points.
    """

    workload: str
    subject: str
    search: Search
    known: int
    unstable: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    seconds: float
    control: Report | None = None

    @property
    def failed(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.breaches]

    @property
    def counts(self) -> Counts:
        return sum((verdict.counts for verdict in self.verdicts), Counts())


def explore(trial: Trial, search: Search) -> Report:
    """Run the workload twice undisturbed, then once per case with its fault; judge each."""
    began = time.monotonic()
    first, second = _undisturbed(trial, search)
    verdicts = run_all(_cases(trial, search, first), search.jobs)
    known = talk_points if search.mode in TALKS else points_of
    unstable = {*known(first)} ^ {*known(second)}
    return _report(trial, search, first, verdicts, began, tuple(sorted(unstable)))


def compare(trial: Trial, control: Trial, search: Search) -> Report:
    """Kill both at the same points: those that both go through when nobody is killed."""
    began = time.monotonic()
    (mine, _), (theirs, _) = _undisturbed(trial, search), _undisturbed(control, search)
    others = {*points_of(theirs)}
    points = _drawn([point for point in points_of(mine) if point in others], search)
    ours = run_all(_killed(trial, mine, points), search.jobs)
    report = _report(trial, search, mine, ours, began)
    began = time.monotonic()
    beside = _report(control, search, theirs, run_all(_killed(control, theirs, points), search.jobs), began)
    return replace(report, control=beside)


def _undisturbed(trial: Trial, search: Search) -> tuple[History, History]:
    warm_up(trial)
    names = ("undisturbed-1", "undisturbed-2")
    if search.mode in TALKS:
        first, second = run_all((talk(trial, name, elsewhere=search.elsewhere) for name in names), search.jobs)
    else:
        first, second = run_all((undisturbed(trial, name) for name in names), search.jobs)
    return first, second


def _report(
    trial: Trial,
    search: Search,
    reference: History,
    verdicts: Iterable[Verdict],
    began: float,
    unstable: tuple[str, ...] = (),
) -> Report:
    return Report(
        workload=trial.workload.name,
        subject=trial.subject.name,
        search=search,
        known=len(talk_points(reference) if search.mode in TALKS else points_of(reference)),
        unstable=unstable,
        verdicts=tuple(verdicts),
        seconds=time.monotonic() - began,
    )


def chosen(points: Sequence[str], share: float, rng: random.Random, every: Sequence[str] = ()) -> list[str]:
    """
    The points to try: those of every unit, the first and last of every act, a share of the others; of some acts all.

    The first of an act is before its first statement, the last is after its commit (of one that reads: after its last
    statement).
    """
    ends = {end for call in _calls(points) for end in (call[0], call[-1])}
    return [point for point in points if point in ends or rng.random() < share or _act_of(point) in every]


def _act_of(point: str) -> str:
    """The act or unit of a point; before it may stand which process of a talk goes through it."""
    return point.partition("#")[0].rpartition("/")[2]


def _drawn(points: Sequence[str], search: Search, *, windows: bool = False) -> list[str]:
    """A seeded choice, in the order of the points; with `windows`, half of it lies between a check and its call."""
    rng = random.Random(search.seed)
    kept = chosen(points, search.share, rng, search.every)
    if search.sample is None or search.sample >= len(kept):
        return kept
    within = [point for point in kept if _past_a_check(point)] if windows else []
    drawn = _some(within, search.sample // 2, rng)
    drawn += _some([point for point in kept if point not in drawn], search.sample - len(drawn), rng)
    return sorted(drawn, key=points.index)


def unwritten(points: Sequence[str]) -> list[str]:
    """The points outside write transactions: whoever stands still within one keeps all others from writing."""
    return [point for call in _calls(points) if not any(".commit." in each for each in call) for point in call]


def _calls(points: Sequence[str]) -> list[list[str]]:
    """The points of each call of an act and of each unit."""
    calls: dict[str, list[str]] = {}
    for point in points:
        what, _, rest = point.rpartition("#")
        calls.setdefault(f"{what}#{rest.partition('.')[0]}", []).append(point)
    return [*calls.values()]


# -- the cases of each mode -------------------------------------------------------------------------------------------


def _cases(trial: Trial, search: Search, reference: History) -> Iterator[Case[Verdict]]:
    rng, points = random.Random(search.seed), points_of(reference)
    match search.mode:
        case "kills" if search.at:
            yield from (killed_at(trial, _folder(trial, n), reference, search.at) for n in range(search.cases))
        case "kills":
            yield from _killed(trial, reference, _drawn(points, search))
        case "pairs":
            for n in range(search.cases):
                yield killed_twice(trial, _folder(trial, n), reference, rng.choice(points), rng.random())
        case "heartbeats":
            beats = [point for point in all_points_of(reference) if is_heartbeat(point)]
            for n, point in enumerate(search.at or _some(beats, search.cases, rng)):
                yield killed_at(trial, _folder(trial, n), reference, (point,))
        case "stops":
            for n, point in enumerate(search.at or _drawn(points, search, windows=True)):
                yield stopped_at(trial, _folder(trial, n), reference, point)
        case "survived" | "abreast":
            yield from _on_two_threads(trial, search, reference, rng)
        case "beside" | "races":
            yield from _of_two(trial, search, points, rng)
        case "talks":
            places = [(at,) for at in _drawn(talk_points(reference), search)]
            for n, at in enumerate([search.at] if search.at else places):
                yield killed_in_talk(trial, _folder(trial, n), reference, at, elsewhere=search.elsewhere)
        case "clicks" | "rivals":
            yield from _clicked(trial, search, reference, rng)


def _clicked(trial: Trial, search: Search, reference: History, rng: random.Random) -> Iterator[Case[Verdict]]:
    """Half of them at once; in the other half one has seen the question, and the other answers meanwhile."""
    ahead, rivals = before_the_answer(reference), search.mode == "rivals"
    for n in range(search.cases):
        at = search.at[0] if search.at else rng.choice(ahead) if n % 2 else None
        yield clicked(trial, _folder(trial, n), reference, at, elsewhere=search.elsewhere, rivals=rivals)


def before_the_answer(reference: History) -> list[str]:
    """Where somebody who hands in an answer has not yet done so, outside write transactions."""
    life = reference.of("answering")[0].life
    points = points_of(reference, life=life)
    ahead = points[: next((n for n, point in enumerate(points) if point.startswith("answer#")), len(points))]
    return [point for point in unwritten(points) if point in ahead]


def _killed(trial: Trial, reference: History, points: Sequence[str]) -> Iterator[Case[Verdict]]:
    for n, point in enumerate(points):
        yield killed_at(trial, _folder(trial, n), reference, (point,))


def _on_two_threads(trial: Trial, search: Search, reference: History, rng: random.Random) -> Iterator[Case[Verdict]]:
    """The second stands still outside write transactions and within its run, so as to hinder nobody."""
    points = points_of(reference)
    quiet = _held(unwritten(points), points)
    kind, first = (survived, points) if search.mode == "survived" else (abreast, quiet)
    if search.at:
        yield kind(trial, _folder(trial, 0), reference, *search.at)
        return
    for n in range(search.cases):
        folder, drawn = _folder(trial, n), [(rng.choice(first), rng.choice(quiet)) for _ in range(DRAWS_MAX)]
        yield _first_met([kind(trial, folder, reference, point, other) for point, other in drawn])


def _first_met(cases: Iterable[Case[Verdict]]) -> Case[Verdict]:
    """The first of them that says something; else the last."""
    for case in cases:
        verdict = yield from case
        if not verdict.missed:
            break
    return verdict


def _of_two(trial: Trial, search: Search, points: Sequence[str], rng: random.Random) -> Iterator[Case[Verdict]]:
    """Where a second process waits, its request is carried out after the first's; else there is only the first's."""
    waits = search.manners.wait_s > 0
    (reference,) = run_all([in_turn(trial, "in-turn", search.manners if waits else ALONE)], 1)
    if search.mode == "races":
        same = replace(search.manners, request="same")
        yield from (raced(trial, _folder(trial, n), reference, same) for n in range(search.cases))
    else:
        for n, point in enumerate(search.at or _some(_held(unwritten(points), points), search.cases, rng)):
            yield beside(trial, _folder(trial, n), reference, point, replace(search.manners, settles=False))


def _held(some: Sequence[str], points: Sequence[str]) -> list[str]:
    """Of some points, those between the claim of the run and its end."""
    begun = points.index(next(point for point in points if point.endswith(CLAIMED)))
    ended = points.index(next(point for point in points if point.startswith(ENDS)))
    return [point for point in some if begun < points.index(point) < ended]


def _past_a_check(point: str) -> bool:
    """The lease was looked at, or an intent recorded: whatever comes next may go out late."""
    return point.startswith(("holds#", "open_effect#")) and point.endswith((".holds.after", ".commit.after"))


DRAWS_MAX = 6
"""
How many points are drawn for two live processes until they meet at one.

A process of several threads may stand still while another of its threads is within a write transaction: whoever waits
for that ends it, and the case says nothing.
"""
CLAIMED, ENDS = "start_run#1.commit.after", "finish_run#1."


def _some(points: Sequence[str], number: int, rng: random.Random) -> list[str]:
    return rng.sample(points, min(number, len(points)))


def _folder(trial: Trial, number: int) -> Path:
    return trial.folder / f"case-{number}"
