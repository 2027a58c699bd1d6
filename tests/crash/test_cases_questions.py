"""Questions and answers when the process dies: asked once, answered once, and an accepted answer is never lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.types import Command, interrupt

from agents import SAFE_S, Home, Log, Outside, asks, chain, fan, home_in, step
from lives import Gate, begin, die, die_at, live, live_and_die
from models import Replies
from ninelives import InvalidDecisionError, ThreadBusyError, approve, interrupts, open_store, reject
from ninelives.model import ONE_USER

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


# -- decided from another terminal -------------------------------------------------------------------------------


def gated(home: Home, dying: bool = False) -> Any:
    """An agent that asks before it wipes a file; each wipe is told outside. Killed in the middle of it, if it is to."""

    def wipe(path: str) -> str:
        """Wipe a file."""
        home.outside.happens(f"wiped {path}")
        if dying:
            die()
        return "wiped"

    wanted = {"name": "wipe", "args": {"path": "a"}, "id": "call-1", "type": "tool_call"}
    model = Replies(replies=[AIMessage("", tool_calls=[wanted]), AIMessage("done")])
    gate = HumanInTheLoopMiddleware(interrupt_on={"wipe": True})
    tools = [StructuredTool.from_function(wipe)]
    return home.protect(create_agent(model, tools, middleware=[gate]))


def life_that_wants_to_wipe(folder: str) -> str:
    with home_in(folder) as home:
        gated(home).invoke({"messages": [HumanMessage("go")]}, thread="t")
        return home.questions()[0].interrupt_id


def life_that_decides(
    folder: str, decision: str, actor: str, point: list[Any] | None = None, gates: list[str] | None = None
) -> Any:
    """In a process that has no graph; gives the run that goes on, or who was first."""
    store = open_store(f"sqlite:///{folder}/agents.db")
    (question,) = store.perform(store.list_interrupts(ONE_USER, "t", pending_only=False))
    if point:
        die_at(store, *point)
    if gates:
        Gate(folder, gates[0]).open()
        Gate(folder, gates[1]).wait()
    choice = {"call-1": {"approve": approve(), "reject": reject("no")}[decision]}
    try:
        made = interrupts.decide(store, "t", question.interrupt_id, choice, actor=actor, channel="terminal", key=actor)
        return made.run_id
    except InvalidDecisionError as refused:
        return refused.first and refused.first[0]
    finally:
        store.close()


def life_that_waits_for_the_answer(folder: str, gate: str) -> Any:
    with home_in(folder) as home:
        agent = gated(home)
        Gate(folder, gate).open()
        return agent.wait_for_answers("t", timeout_s=SAFE_S)["messages"][-1].content


def test_a_process_that_waits_goes_on_with_what_another_decides(tmp_path: Path) -> None:
    """One process has the graph and waits, another has a decision and no graph: the act happens once, in the first."""
    live(life_that_wants_to_wipe, tmp_path)
    gate = Gate(tmp_path, "waits")
    waiting = begin(life_that_waits_for_the_answer, tmp_path, "waits")
    gate.wait()

    live(life_that_decides, tmp_path, "approve", "ann")

    assert waiting.end().value == "done"
    with home_in(tmp_path) as home:
        assert home.outside.seen == ["wiped a"]
        assert home.statuses() == ["interrupted", "done"]
        assert [(one.actor, one.channel) for one in home.decisions()] == [("ann", "terminal")]


DECIDE_POINTS = [
    *[(statement, where) for statement in ("add_run", "add_decision", "commit") for where in ("before", "after")]
]


@pytest.mark.parametrize("point", DECIDE_POINTS, ids=lambda p: f"{p[1]} {p[0]}")
def test_a_decision_is_accepted_whole_or_not_at_all(tmp_path: Path, point: Any) -> None:
    """
    Killed anywhere while it is recorded, then delivered once more: it counts once, the act happens once, and the other
    decision, which comes late, is told who was first.
    """
    live(life_that_wants_to_wipe, tmp_path)
    live_and_die(life_that_decides, tmp_path, "approve", "ann", ["answer", *point])

    with home_in(tmp_path) as home:
        accepted = len(home.decisions())
        assert accepted == len(home.runs()) - 1 == (point == ("commit", "after"))
        if not accepted:
            assert [q.state for q in home.questions()] == ["pending"]
    again = live(life_that_decides, tmp_path, "approve", "ann")
    late = live(life_that_decides, tmp_path, "reject", "bob")

    with home_in(tmp_path) as home:
        assert late == "ann"
        assert home.runs()[-1].run_id == again
        gated(home).continue_run("t")
        assert home.outside.seen == ["wiped a"]
        assert [one.actor for one in home.decisions()] == ["ann"]


def test_approve_and_reject_from_two_terminals_at_once(tmp_path: Path) -> None:
    """One wins, the other is told who; what is done is what the winner said."""
    live(life_that_wants_to_wipe, tmp_path)
    here = [Gate(tmp_path, f"here {actor}") for actor in ("ann", "bob")]
    gates = [Gate(tmp_path, f"go {actor}") for actor in ("ann", "bob")]
    lives = [
        begin(life_that_decides, tmp_path, decision, actor, None, [f"here {actor}", f"go {actor}"])
        for decision, actor in (("approve", "ann"), ("reject", "bob"))
    ]
    for gate in here:
        gate.wait()
    for gate in gates:
        gate.open()

    told = [life.end().value for life in lives]

    with home_in(tmp_path) as home:
        (decision,) = home.decisions()
        out = gated(home).continue_run("t")
        assert sorted(told) == sorted([home.runs()[1].run_id, decision.actor])
        assert home.outside.seen == (["wiped a"] if decision.actor == "ann" else [])
        assert out["messages"][-1].content == "done"


def life_that_goes_on(folder: str) -> Any:
    with home_in(folder) as home:
        return gated(home, dying=True).continue_run("t")


def test_what_was_approved_is_what_is_done_after_a_kill(tmp_path: Path) -> None:
    """Killed in the approved act, and the decision delivered again, by hand and by machine: nothing beyond is done."""
    asked = live(life_that_wants_to_wipe, tmp_path)
    live(life_that_decides, tmp_path, "approve", "ann")
    live_and_die(life_that_goes_on, tmp_path)

    assert live(life_that_decides, tmp_path, "approve", "bob") == "ann"
    with home_in(tmp_path) as home:
        agent = gated(home)
        with pytest.raises(InvalidDecisionError, match=r"answered by ann \(terminal\)"):
            agent.decide("t", {"call-1": approve()}, interrupt_id=asked)
        agent.continue_run("t")
        assert home.outside.seen == ["wiped a", "wiped a"]  # the tool is no effect: it is repeated, as was approved
        assert len(home.questions(pending_only=False)) == len(home.decisions()) == 1


# -- asked again ---------------------------------------------------------------------------------------------------


def picky(state: Log) -> Any:
    return {"log": [str(int(interrupt("how many?")))]}


def life_that_fails_on_its_answer(folder: str) -> str:
    with home_in(folder) as home:
        agent = home.protect(chain(picky))
        (asked,) = agent.invoke(asks(), thread="t")["__interrupt__"]
        with pytest.raises(ValueError, match="'many'"):
            agent.decide("t", "many", actor="ann")
        return str(asked.id)


def life_that_asks_again(folder: str, point: list[Any]) -> Any:
    with home_in(folder) as home:
        die_at(home.store, *point)
        return home.protect(chain(picky)).ask_again("t", by="bob")


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("statement", ["withdraw_decision", "ask_anew", "end_run", "commit"])
def test_an_answer_is_taken_back_whole_or_not_at_all(tmp_path: Path, statement: str, where: str) -> None:
    """Killed anywhere in it: the run has failed on its answer, or waits for another; never something between."""
    live(life_that_fails_on_its_answer, tmp_path)
    live_and_die(life_that_asks_again, tmp_path, ["ask_again", statement, where])

    with home_in(tmp_path) as home:
        agent = home.protect(chain(picky))
        if (statement, where) == ("commit", "after"):
            assert home.statuses() == ["interrupted", "interrupted"]
        else:
            assert home.statuses() == ["interrupted", "failed"]
            agent.ask_again("t", by="bob")
        assert [q.ask_no for q in home.questions()] == [2]
        assert agent.decide("t", "3")["log"] == ["3"]
