"""
Runs whose questions others answer: each process ends with what the graph asks, and another one hands the answer in.

An answer is a letter. Whoever is handed one and dies before it has done with it is followed by a process that is handed
the same letter again, as by any queue that delivers at least once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ninelives.chaos import checkers
from ninelives.chaos.cases import Verdict, judged, points_of, standing, woken
from ninelives.chaos.faults import Plan
from ninelives.chaos.history import History, read_history
from ninelives.chaos.processes import Case, killed
from ninelives.chaos.subjects import Letter
from ninelives.chaos.trial import Manners, Trial

ASKS = Manners(answers=False)
LIVES_MAX = 24
"""A talk that takes more processes than that does not come to an end."""


def talk(trial: Trial, name: str, *, elsewhere: bool) -> Case[History]:
    """The request and the answers to all that it asks, when nobody is killed."""
    case = trial.folder / name
    yield from _talked(trial, case, elsewhere, {})
    return read_history(case)


def talk_points(history: History) -> list[str]:
    """`life/point` of all points that the processes of a talk went through, in order."""
    return [f"{life}/{point}" for life in history.lives for point in points_of(history, life=life)]


def killed_in_talk(
    trial: Trial, case: Path, reference: History, points: Sequence[str], *, elsewhere: bool
) -> Case[Verdict]:
    """Some of the processes are killed, each at its point; others follow until it ends."""
    planned = {int(life): at for life, _, at in (point.partition("/") for point in points)}
    met = yield from _talked(trial, case, elsewhere, planned)
    return judged(case, reference, tuple(points), missed=not met)


def _talked(trial: Trial, case: Path, elsewhere: bool, planned: Mapping[int, str]) -> Case[bool]:
    """Gives whether all that were to be killed came to their points."""
    letters: tuple[Letter, ...] = ()
    died = set()
    for life in range(1, LIVES_MAX + 1):
        plan = Plan(planned[life]) if life in planned else None
        manners = replace(ASKS, letters=letters, elsewhere=elsewhere)
        _, status = yield {trial.life(case, life, plan, manners)}
        if killed(status):
            died.add(life)
            letters = tuple(replace(letter, again=True) for letter in letters)
        elif letters and elsewhere:
            letters = ()
        else:
            letters = _decided(trial, read_history(case), life)
            if not letters:
                break
    return died == {*planned}


def _decided(trial: Trial, history: History, life: int) -> tuple[Letter, ...]:
    """What a person decides who is shown what this process has ended with."""
    open_now: dict[str, Any] = {}
    for event in history.of("asked", "answering", life=life):
        if event.kind == "asked":
            open_now[event["question"]] = event["shown"]
        else:
            open_now.pop(event["question"], None)
    return tuple(Letter(question, trial.workload.answer_to(shown, life)) for question, shown in open_now.items())


# -- two answer at once -----------------------------------------------------------------------------------------------


def clicked(
    trial: Trial, case: Path, reference: History, at: str | None, *, elsewhere: bool, rivals: bool
) -> Case[Verdict]:
    """
    Two processes hand in an answer to each question.

    Args:
        at: the first stands still there, while the second hands its own in; else both go at once.
        rivals: the second refuses what the first approves.
    """
    letters: tuple[Letter, ...] = ()
    life = 1
    while life <= LIVES_MAX:
        if not letters:
            yield {trial.life(case, life, manners=ASKS)}
            letters = _decided(trial, read_history(case), life)
            life += 1
            if not letters:
                break
            continue
        both = [replace(ASKS, letters=each, elsewhere=elsewhere) for each in (letters, _others(letters, rivals))]
        yield from _at_once(trial, case, life, both, at)
        letters, life = (), life + 2
    return judged(case, reference, (at,) if at else (), by=checkers.CLICKED)


def _at_once(trial: Trial, case: Path, life: int, both: Sequence[Manners], at: str | None) -> Case[None]:
    first = None
    if at is not None:
        first = yield from standing(trial, case, life, at, both[0])
        yield {trial.life(case, life + 1, manners=both[1])}
        yield from woken(*([] if first is None else [first]))
        return
    running = {trial.life(case, life + n, manners=manners) for n, manners in enumerate(both)}
    while running:
        ended, _ = yield running
        running = running - {ended}


def _others(letters: tuple[Letter, ...], rivals: bool) -> tuple[Letter, ...]:
    return tuple(Letter(letter.question, _refusal(letter.value)) for letter in letters) if rivals else letters


def _refusal(value: Any) -> Any:
    """The same answer, but that everything in it is rejected."""
    if isinstance(value, Mapping) and "decisions" in value:
        return {"decisions": [_refusal(each) for each in value["decisions"]]}
    if isinstance(value, Mapping) and "type" in value:
        return {"type": "reject", "message": "no"}
    return f"no, instead of {value}"
