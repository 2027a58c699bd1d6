"""Questions and answers when the process dies: asked once, answered once, and an accepted answer is never lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from agents import Home, Log, Outside, asks, chain, fan, home_in, step
from lives import Gate, begin, die, die_at, live, live_and_die
from ninelives import InvalidDecisionError, ThreadBusyError

pytestmark = pytest.mark.crash

DONE = asks("in", "a", "b: yes", "c")


def build(home: Home, dying: str | None = None) -> Any:
    """Asks in its second node; dies before asking, after it was answered, or in the node behind."""

    def b(state: Log) -> Any:
        home.outside.happens("b")
        if dying == "before asking":
            die()
        answer = interrupt("sure?")
        home.outside.happens(f"answered {answer}")
        if dying == "answered":
            die()
        return {"log": [f"b: {answer}"]}

    return home.protect(chain(step("a", home.outside), b, step("c", home.outside, die if dying == "c" else None)))


def life_that_asks(folder: str, dying: str | None = None, point: list[Any] | None = None) -> Any:
    with home_in(folder) as home:
        agent = build(home, dying)
        if point:
            die_at(home.store, *point)
        return str(agent.invoke(asks("in"), thread="t", idempotency_key="k"))


def life_that_answers(folder: str, dying: str | None = None, point: list[Any] | None = None) -> Any:
    with home_in(folder) as home:
        agent = build(home, dying)
        if point:
            die_at(home.store, *point)
        return agent.invoke(Command(resume={home.questions()[0].interrupt_id: "yes"}), thread="t")


ASKED_POINTS = [
    ("put_writes", "commit", "before", 3),
    ("put_writes", "commit", "after", 3),
    ("finish_run", "commit", "before", 1),
    ("finish_run", "commit", "after", 1),
]


@pytest.mark.parametrize("point", ASKED_POINTS, ids=lambda p: f"{p[0]} {p[2]}")
def test_a_question_is_asked_once_and_never_lost(tmp_path: Path, point: Any) -> None:
    """Killed around the recording of a question: afterwards it is pending, once, and can be answered."""
    live_and_die(life_that_asks, tmp_path, None, point)

    with home_in(tmp_path) as home:
        agent = build(home)
        asked = agent.continue_run("t")
        (question,) = home.questions()
        assert [one.id for one in asked["__interrupt__"]] == [question.interrupt_id]
        assert agent.invoke(Command(resume="yes"), thread="t") == DONE
        assert home.outside.times("a") == 1
        assert len(home.questions(pending_only=False)) == 1


def test_days_later_another_process_answers(tmp_path: Path) -> None:
    """The process that asked is gone; any other one with the graph takes the answer."""
    live(life_that_asks, tmp_path)

    assert live(life_that_answers, tmp_path) == DONE
    assert Outside(tmp_path).times("a") == 1


ANSWER_POINTS = [
    ("answer", "commit", "after", 1),
    ("has_begun", "has_begun", "after", 1),
    ("put_writes", "commit", "before", 1),
    ("put_writes", "commit", "after", 1),
    ("put_checkpoint", "commit", "after", 1),
]


@pytest.mark.parametrize("point", ANSWER_POINTS, ids=lambda p: f"{p[0]} {p[2]}")
@pytest.mark.parametrize("again", ["continue", "start again"])
def test_an_accepted_answer_is_never_lost(tmp_path: Path, point: Any, again: str) -> None:
    """Killed right after the answer was accepted, or anywhere behind: continuing uses it and asks nothing."""
    live(life_that_asks, tmp_path)
    live_and_die(life_that_answers, tmp_path, None, point)

    with home_in(tmp_path) as home:
        agent = build(home)
        with pytest.raises(InvalidDecisionError):
            agent.invoke(Command(resume="no"), thread="t")
        out = (
            agent.continue_run("t")
            if again == "continue"
            else agent.invoke(asks("in"), thread="t", idempotency_key="k")
        )

        assert out == DONE
        assert [decision.value for decision in home.decisions()] == ["yes"]
        assert len(home.questions(pending_only=False)) == 1


def test_an_answer_that_was_not_accepted_may_be_given_again(tmp_path: Path) -> None:
    """Killed before the answer was in the store: the question waits as before."""
    live(life_that_asks, tmp_path)
    live_and_die(life_that_answers, tmp_path, None, ["answer", "commit", "before"])

    assert live(life_that_answers, tmp_path) == DONE


@pytest.mark.parametrize(("dying", "entered"), [("answered", 3), ("c", 2)])
def test_the_approved_node_gets_its_answer_again(tmp_path: Path, dying: str, entered: int) -> None:
    """Killed in the approved node, its next attempt is handed the same answer; killed behind it, it is not entered."""
    live(life_that_asks, tmp_path)
    live_and_die(life_that_answers, tmp_path, dying)

    with home_in(tmp_path) as home:
        assert build(home).continue_run("t") == DONE
        assert home.outside.times("b") == entered
        assert len(home.questions(pending_only=False)) == 1


def life_with_parallel_questions(folder: str, answer: bool, mortal: bool) -> Any:
    with home_in(folder) as home:

        def asking(word: str) -> Any:
            def node(state: Log) -> Any:
                answer = interrupt(word)
                home.outside.happens(f"{word} {answer}")
                if mortal and word == "y":
                    die()
                return {"log": [f"{word}: {answer}"]}

            node.__name__ = word
            return node

        agent = home.protect(fan(*(asking(word) for word in "xyz")))
        if not answer:
            return str(agent.invoke(asks(), thread="t"))
        asked = {question.payload: question.interrupt_id for question in home.questions()}
        return agent.invoke(Command(resume={asked["x"]: "X", asked["y"]: "Y"}), thread="t")


def test_some_of_several_answers_then_a_kill(tmp_path: Path) -> None:
    """Two of three questions answered, killed in one of them: both answers are used, the third is still asked."""
    live(life_with_parallel_questions, tmp_path, False, False)
    live_and_die(life_with_parallel_questions, tmp_path, True, True)

    with home_in(tmp_path) as home:

        def asking(word: str) -> Any:
            def node(state: Log) -> Any:
                return {"log": [f"{word}: {interrupt(word)}"]}

            node.__name__ = word
            return node

        agent = home.protect(fan(*(asking(word) for word in "xyz")))
        asked = agent.continue_run("t")
        assert [one.value for one in asked["__interrupt__"]] == ["z"]
        assert sorted(agent.invoke(Command(resume="Z"), thread="t")["log"]) == ["x: X", "y: Y", "z: Z"]


def test_two_processes_answer_at_once(tmp_path: Path) -> None:
    """Two processes answer one question at the same moment: one decision, one continuing run, one act."""
    live(life_that_asks, tmp_path)
    gates = [Gate(tmp_path, f"gate {i}") for i in range(2)]
    here = [Gate(tmp_path, f"here {i}") for i in range(2)]
    lives = [begin(life_of_one_answer, tmp_path, i) for i in range(2)]
    for gate in here:  # both have read the question
        gate.wait()
    for gate in gates:
        gate.open()

    told = [life.end().value for life in lives]

    with home_in(tmp_path) as home:
        (decision,) = home.decisions()
        assert sorted(told) == sorted([f"won {decision.value}", "refused"])
        assert home.outside.times("c") == 1
        assert home.statuses() == ["interrupted", "done"]


def life_of_one_answer(folder: str, number: int) -> str:
    with home_in(folder) as home:
        agent, asked = build(home), home.questions()[0].interrupt_id
        Gate(folder, f"here {number}").open()
        Gate(folder, f"gate {number}").wait()
        try:
            agent.invoke(Command(resume={asked: number}), thread="t")
        except (InvalidDecisionError, ThreadBusyError):
            return "refused"
        return f"won {number}"


def test_an_update_that_comes_with_an_answer_is_applied_once(tmp_path: Path) -> None:
    """`Command(resume=..., update=...)`, killed at each point behind its acceptance: the update is there once."""
    for number, point in enumerate([*ANSWER_POINTS, ("put_checkpoint", "commit", "before", 1)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        live(life_that_asks, folder)
        live_and_die(life_that_answers_and_updates, folder, point)

        with home_in(folder) as home:
            assert build(home).continue_run("t")["log"] == ["in", "a", "u", "b: yes", "c"], point


def life_that_answers_and_updates(folder: str, point: list[Any]) -> Any:
    with home_in(folder) as home:
        agent = build(home)
        die_at(home.store, *point)
        return agent.invoke(Command(resume="yes", update=asks("u")), thread="t")
