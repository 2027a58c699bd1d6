"""A checker that cannot object is worth nothing: each is shown a history that it must object to."""

from __future__ import annotations

from typing import Any

import pytest

from ninelives.chaos import checkers
from ninelives.chaos.checkers import Checker, Counts, count
from ninelives.chaos.history import Event, History

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]

Told = tuple[int, str, dict[str, Any]]


def history(*told: Told) -> History:
    return History([Event(life, kind, at, facts) for at, (life, kind, facts) in enumerate(told)])


def enter(life: int, unit: str, step: str, **facts: Any) -> Told:
    return life, "enter", {"unit": unit, "step": step, "task": f"task of {unit}", **facts}


def leave(life: int, unit: str, step: str, **facts: Any) -> Told:
    return life, "exit", {"unit": unit, "step": step, "task": f"task of {unit}", **facts}


def found(life: int, *tasks: str, kind: str = "found", **facts: Any) -> Told:
    seen = {"tasks": [f"task of {unit}" for unit in tasks], "effects": {}, "checkpoints": [], "rows": {}}
    return life, kind, {**seen, **facts}


def arrived(life: int, act: str, key: str | None = "k", *, declared: bool = True, call: str | None = None) -> Told:
    return life, "arrived", {"act": act, "key": key, "declared": declared, "call": call}


def outcome(life: int, values: Any = "end") -> Told:
    return life, "outcome", {"values": values, "output": values}


def answering(life: int, value: Any, question: str = "q") -> Told:
    return life, "answering", {"question": question, "value": value}


def asked(life: int, *calls: str) -> Told:
    return life, "asked", {"question": "q", "shown": "sure?", "calls": list(calls)}


def decided(*types: str) -> list[Any]:
    return [["q", {"decisions": [{"type": each} for each in types]}]]


def refused(life: int, first: Any = ("ann", 1.0), error: str = "InvalidDecisionError") -> Told:
    return life, "refused", {"question": "q", "error": error, "text": "no", "first": first}


def told(life: int, value: Any) -> Told:
    return life, "told", {"question": "sure?", "value": value}


def passed(life: int, *, of: str) -> Told:
    """A check of the lease, made for a task or a tool call."""
    return life, "point", {"point": "holds#1.holds.after", "of": of}


ACCEPTED: Told = (1, "point", {"point": "answer#1.commit.after"})
STOPPED: list[Told] = [(1, "stopped", {"point": "p"}), found(2), (1, "continued", {"point": "p"})]
UNDISTURBED = history(
    *(enter(1, "a", "01"), answering(1, "yes"), ACCEPTED, leave(1, "a", "01"), arrived(1, "pay"), outcome(1)),
    found(1, kind="left", decisions=[["q", "yes"]]),
)

BAD: list[tuple[Checker, History]] = [
    (checkers.same_end, history(outcome(1, "another end"))),
    (checkers.same_end, history(outcome(1), found(2))),
    (checkers.same_end, history((1, "raised", {"error": "KeyError", "text": "'x'"}))),
    (checkers.recorded_once, history(enter(1, "a", "01"), found(2, "a"), enter(2, "a", "01"))),
    (
        checkers.recorded_once,
        history(enter(1, "act:pay", "01", key="k"), found(2, effects={"k": "done"}), enter(3, "act:pay", "01")),
    ),
    (
        checkers.recorded_once,
        history(
            enter(1, "tool:a", "01", call="c"), found(2, calls=[["task of tool:a", "c"]]), enter(2, "tool:a", "01")
        ),
    ),
    (
        checkers.never_back,
        history(enter(1, "a", "01"), leave(1, "a", "01"), enter(1, "b", "02"), found(2), enter(2, "a", "01")),
    ),
    (
        checkers.only_in_flight,
        history(enter(1, "a", "01"), leave(1, "a", "01"), enter(1, "b", "02"), found(2, "a"), enter(2, "a", "01")),
    ),
    (checkers.acts_once, history(arrived(1, "pay"), arrived(2, "pay", "another key"))),
    (checkers.acts_once, history(outcome(1))),
    (checkers.keys_once, history(arrived(1, "pay"), arrived(2, "pay again"))),
    (
        checkers.unknown_when_cut_off,
        history(found(2, effects={"k": "done"}), (2, "unknown", {"name": "pay", "key": "k"})),
    ),
    (checkers.unknown_when_cut_off, history(found(2), (2, "unknown", {"name": "pay", "key": "k"}))),
    (
        checkers.no_fork,
        history(found(1, kind="left", checkpoints=[["", "c3", "c1"], ["", "c2", "c1"], ["", "c1", None]])),
    ),
    (
        checkers.no_trace,
        history(found(2, kind="left", rows={"event": 1}), *STOPPED[2:], found(3, rows={"event": 2})),
    ),
    (checkers.no_trace, history(*STOPPED)),
    (checkers.refused_late, history(*STOPPED, enter(1, "a", "01"))),
    (checkers.refused_late, history(passed(1, of="task of a"), enter(1, "a", "01"), *STOPPED, enter(1, "a", "01"))),
    (
        checkers.refused_late,
        history(*[passed(1, of="task of a")] * 2, enter(1, "a", "01"), *STOPPED, enter(1, "a", "01")),
    ),
    (checkers.refused_late, history(passed(1, of="task of a"), *STOPPED, enter(1, "b", "02"))),
    (checkers.refused_late, history(*STOPPED, passed(1, of="task of a"), enter(1, "a", "01"))),
    (
        checkers.refused_late,
        history(passed(1, of="task of tool:x"), passed(1, of="c1"), *STOPPED, enter(1, "tool:x", "01", call="c2")),
    ),
    (checkers.late_act_unknown, history(*STOPPED[::2], arrived(1, "pay"))),
    (checkers.answers_once, history(told(1, "yes"), told(2, "no"))),
    (checkers.answers_once, history(found(2, decisions=[["q", "yes"]]), found(3, decisions=[["q", "no"]]))),
    (checkers.answers_once, history(found(2, decisions=[["q", "yes"]]), found(3))),
    (checkers.answers_kept, history(answering(1, "yes"), ACCEPTED, found(2))),
    (
        checkers.answers_kept,
        history(answering(1, "yes"), ACCEPTED, found(2, decisions=[["q", "yes"]]), answering(2, "yes")),
    ),
    (checkers.approved_first, history(answering(1, "yes"), arrived(1, "pay"), ACCEPTED)),
    (
        checkers.approved_first,
        history(asked(1, "c"), answering(1, "yes", "of another"), ACCEPTED, arrived(1, "pay", call="c")),
    ),
    (checkers.as_decided, history(asked(1, "c", "m"), arrived(1, "pay", call="c"), found(1, kind="left"))),
    (
        checkers.as_decided,
        history(
            asked(1, "c", "m"),
            arrived(2, "pay", call="m"),
            found(2, kind="left", decisions=decided("approve", "reject")),
        ),
    ),
    (
        checkers.as_decided,
        history(
            asked(1, "c"),
            enter(2, "act:pay", "01", key="k", call="c"),
            arrived(2, "pay"),
            found(2, kind="left", decisions=decided("respond")),
        ),
    ),
    (checkers.comes_to_an_end, history(outcome(1), found(1, kind="left"), found(2, kind="left"))),
    (checkers.comes_to_an_end, history(asked(1), outcome(1), found(1, kind="left"))),
    (checkers.never_twice, history(arrived(1, "pay"), arrived(2, "pay", "another key"))),
    (
        checkers.one_decided,
        history(answering(2, "yes"), answering(3, "no"), found(3, kind="left", decisions=[["q", "no"]])),
    ),
    (
        checkers.one_decided,
        history(answering(2, "yes"), refused(2), answering(3, "no"), found(3, kind="left", decisions=[["q", "yes"]])),
    ),
    (
        checkers.one_decided,
        history(
            answering(2, "yes"), refused(2, None), answering(3, "no"), found(3, kind="left", decisions=[["q", "no"]])
        ),
    ),
    (checkers.one_ran, history(enter(1, "a", "01"), enter(2, "a", "01"))),
    (checkers.one_ran, history(enter(1, "a", "01"), (2, "raised", {"error": "KeyError", "text": "'x'"}))),
]


CHECKERS = [*checkers.KILLED, *checkers.STOPPED, *checkers.BESIDE, *checkers.CLICKED]


@pytest.mark.parametrize(("check", "bad"), BAD, ids=[check.__name__ for check, _ in BAD])
def test_a_bad_history_is_objected_to(check: Checker, bad: History) -> None:
    """Each checker sees what it is there for."""
    assert check(bad, UNDISTURBED)


@pytest.mark.parametrize("check", CHECKERS, ids=lambda c: c.__name__)
def test_a_good_history_is_not_objected_to(check: Checker) -> None:
    """The undisturbed run itself breaks no promise."""
    assert check(UNDISTURBED, UNDISTURBED) == []


def test_every_checker_is_shown_a_bad_history() -> None:
    """None is left out above."""
    assert {check for check, _ in BAD} == {*CHECKERS}


def test_a_unit_in_flight_may_run_again() -> None:
    """What had returned and was not recorded runs again, is counted, and breaks no promise."""
    first = (enter(1, "a", "01"), leave(1, "a", "01"))
    agreed = (answering(2, "yes"), (2, *ACCEPTED[1:]))
    lost = history(*first, found(2), enter(2, "a", "01"), *agreed, arrived(2, "pay"), outcome(2))

    assert [breach for check in checkers.KILLED for breach in check(lost, UNDISTURBED)] == []
    assert count(lost, UNDISTURBED) == Counts(returned_again=1, in_flight=1, ran_again=1)


def test_a_call_past_its_check_may_go_out_late() -> None:
    """The check came before the stop, the call after it: that one is allowed."""
    late = history(passed(1, of="c1"), *STOPPED, enter(1, "tool:x", "01", call="c1"))

    assert checkers.refused_late(late, UNDISTURBED) == []
    assert count(late, UNDISTURBED).late_tools == 1


def test_an_answer_that_was_not_committed_is_given_again() -> None:
    """The second process answers in its own words, and those are the ones that count."""
    again = history(
        answering(1, "yes, says 1"),
        found(2),
        answering(2, "yes, says 2"),
        told(2, "yes, says 2"),
        found(2, kind="left", decisions=[["q", "yes, says 2"]]),
    )

    assert checkers.answers_once(again, UNDISTURBED) == checkers.answers_kept(again, UNDISTURBED) == []
    assert count(again, UNDISTURBED).answers_again == 1


@pytest.mark.parametrize(
    ("step", "other", "before"),
    [("01", "02", True), ("02", "01", False), ("02", "10", True), ("02.01", "02", False), ("02.01", "02.03", True)],
)
def test_steps_are_ordered_and_nested(step: str, other: str, before: bool) -> None:
    """A step inside another comes neither before nor after it."""
    assert checkers.earlier(step, other) is before
