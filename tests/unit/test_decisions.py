"""
Decisions: checked before they are recorded, made anywhere, used once, and taken back where they did not do.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from agents import Home, Log, asks, chain, config
from models import Replies
from ninelives import InvalidDecisionError, approve, ask, edit, interrupts, reject, respond
from ninelives.model import ONE_USER, InterruptState, RunStatus


def question(text: str, **options: Any) -> Any:
    def n(state: Log) -> Any:
        return {"log": [f"{text} {ask(text, **options)}"]}

    n.__name__ = text if text.isalpha() else "n"
    return n


def waiting(home: Home, *nodes: Any, **options: Any) -> tuple[Any, str]:
    """An agent that waits on thread "t", and the id of what it asks."""
    agent = home.protect(chain(*(nodes or (question("go?"),))), **options)
    (asked,) = agent.invoke(asks(), thread="t")["__interrupt__"]
    return agent, asked.id


# -- free questions ------------------------------------------------------------------------------------------------

YES_OR_NO = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def test_a_free_question_takes_any_value(home: Home) -> None:
    """As it is, or as a response; but no leave for a tool call, which nobody asked for."""
    agent, asked = waiting(home, question("a"), question("b"))
    with pytest.raises(InvalidDecisionError, match="says nothing to a question that asks for no tool call"):
        agent.decide("t", approve())

    agent.decide("t", respond("one"), interrupt_id=asked)
    out = agent.decide("t", {"two": 2})

    assert out["log"] == ["a one", "b {'two': 2}"]


@pytest.mark.parametrize("how", ["decide", "command"])
def test_an_answer_must_have_the_form_that_was_asked_for(home: Home, how: str) -> None:
    """Checked by the question's JSON schema before it is recorded, whichever way it comes."""
    agent, _ = waiting(home, question("go?", schema=YES_OR_NO))

    def answer(value: Any) -> Any:
        return agent.decide("t", value) if how == "decide" else agent.invoke(Command(resume=value), thread="t")

    with pytest.raises(InvalidDecisionError, match="'ok' is a required property"):
        answer({"yes": True})
    with pytest.raises(InvalidDecisionError, match=r"\['ok'\]: 'yes' is not of type 'boolean'"):
        answer({"ok": "yes"})

    assert home.decisions() == []
    assert answer({"ok": True})["log"] == ["go? {'ok': True}"]


class Answer(BaseModel):
    ok: bool


def test_a_class_of_the_graphs_is_a_schema_too(home: Home) -> None:
    """LangGraph's own `response_schema`: a bad answer never reaches the node, so it cannot fail on it."""

    def n(state: Log) -> Any:
        return {"log": [str(interrupt("go?", response_schema=Answer).ok)]}

    agent, _ = waiting(home, n)

    with pytest.raises(InvalidDecisionError, match="'ok' is a required property"):
        agent.decide("t", {})

    assert home.statuses() == ["interrupted"]
    assert agent.decide("t", {"ok": False})["log"] == ["False"]


def test_none_is_an_answer_when_it_names_its_question(home: Home) -> None:
    """Without a name it is more likely a mistake."""
    agent, asked = waiting(home)
    with pytest.raises(InvalidDecisionError, match="name the question"):
        agent.decide("t", None)

    assert agent.decide("t", None, interrupt_id=asked)["log"] == ["go? None"]


# -- once, and by whom ---------------------------------------------------------------------------------------------


def test_the_second_is_told_who_was_first(home: Home) -> None:
    """A redelivered answer, or another one: who decided and when, and nothing runs."""
    agent, asked = waiting(home, question("a"), question("b"))
    agent.decide("t", "yes", interrupt_id=asked, actor="ann", note="it is cheap")

    for late in ("yes", "no"):
        with pytest.raises(InvalidDecisionError, match="was answered by ann") as refused:
            agent.decide("t", late, interrupt_id=asked, actor="bob")
        assert refused.value.first is not None
        assert refused.value.first[0] == "ann"

    (decision,) = home.decisions()
    assert (decision.value, decision.actor, decision.note) == ("yes", "ann", "it is cheap")
    assert [q.payload for q in home.questions()] == ["b"]


def test_approve_and_reject_at_once(home: Home) -> None:
    """Eight decisions from eight threads: one wins, seven are told so, the act happens as the winner says."""
    removed: list[str] = []

    def delete_file(path: str) -> str:
        """Delete a file."""
        removed.append(path)
        return "deleted"

    agent = reviewed(home, StructuredTool.from_function(delete_file))
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    (asked,) = home.questions()
    barrier, told = threading.Barrier(8), []

    def decide(number: int) -> None:
        barrier.wait()
        try:
            choice = approve() if number % 2 else reject()
            agent.decide("t", choice, interrupt_id=asked.interrupt_id, actor=f"p{number}", wait_s=20)
        except InvalidDecisionError as refused:
            told.append(refused.first)

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (decision,) = home.decisions()
    assert len(told) == 7
    assert {first[0] for first in told if first} == {decision.actor}
    assert len(removed) == int(decision.actor[1:]) % 2


def reviewed(home: Home, tool: Any, **options: Any) -> Any:
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    call = {"name": tool.name, "args": {"path": "a"}, "id": "1", "type": "tool_call"}
    review = HumanInTheLoopMiddleware(interrupt_on={tool.name: True})
    replies = [AIMessage("", tool_calls=[call]), AIMessage("done")]
    return home.protect(create_agent(Replies(replies=replies), [tool], middleware=[review]), **options)


def test_a_decision_is_about_what_was_shown(home: Home) -> None:
    """Made with another question before one's eyes, it is refused."""
    agent, _ = waiting(home)
    (asked,) = home.questions()
    with pytest.raises(InvalidDecisionError, match="asks something else now"):
        agent.decide("t", "yes", shown="00" * 16)

    agent.decide("t", "yes", shown=asked.digest)

    assert home.decisions()[0].digest == asked.digest


def test_equal_questions_have_equal_digests(home: Home) -> None:
    """What is shown is what counts, not when or where it was asked."""
    agent, _ = waiting(home)
    agent.invoke(asks(), thread="u")

    digests = {q.digest for thread in "tu" for q in home.questions(thread)}

    assert len(digests) == 1


# -- from elsewhere -------------------------------------------------------------------------------------------------


def test_any_process_can_decide_without_the_graph(home: Home) -> None:
    """The decision is recorded, the continuing run is queued, and whoever has the graph goes on with it."""
    agent, asked = waiting(home)

    run = interrupts.decide(home.store, "t", asked, "yes", actor="ann", channel="inbox", note="fine")

    assert (run.status, run.continues) == (RunStatus.QUEUED, home.runs()[0].run_id)
    assert home.decisions()[0].channel == "inbox"
    out = agent.continue_run("t")
    assert out["log"] == ["go? yes"]
    assert home.statuses() == ["interrupted", "done"]


def test_what_is_decided_elsewhere_is_checked_too(home: Home) -> None:
    """The arguments of an edit by the schema of the tool, as the graph's description has it."""

    def delete_file(path: str) -> str:
        """Delete a file."""
        return f"deleted {path}"

    agent = reviewed(home, StructuredTool.from_function(delete_file))
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    (asked,) = home.questions()
    for wrong in (edit({"pat": "b"}), edit({"path": 1}), "yes", {"2": approve()}):
        with pytest.raises(InvalidDecisionError):
            interrupts.decide(home.store, "t", asked.interrupt_id, wrong, actor="ann")

    interrupts.decide(home.store, "t", asked.interrupt_id, {"1": edit({"path": "b"})}, actor="ann")

    assert "deleted b" in str(agent.continue_run("t")["messages"])


@pytest.mark.parametrize("wrong", ["0" * 32, "nothing"])
def test_a_decision_about_nothing_is_refused_elsewhere_too(home: Home, wrong: str) -> None:
    """With what is pending."""
    _, asked = waiting(home)

    with pytest.raises(InvalidDecisionError, match="not known here") as refused:
        interrupts.decide(home.store, "t", wrong, "yes", actor="ann")

    assert refused.value.pending == (asked,)


def test_a_waiting_process_goes_on_with_what_is_decided_elsewhere(home: Home) -> None:
    """It waits for the answer, claims the run, and gives its output."""
    agent, asked = waiting(home)
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(agent.wait_for_answers("t", timeout_s=20)))
    waiter.start()

    interrupts.decide(home.store, "t", asked, "yes", actor="ann")
    waiter.join()

    assert found[0]["log"] == ["go? yes"]


def test_waiting_has_an_end(home: Home) -> None:
    """And nothing is lost by it."""
    agent, _ = waiting(home)

    with pytest.raises(TimeoutError, match="still waits"):
        agent.wait_for_answers("t", timeout_s=0.01)

    assert agent.decide("t", "yes")["log"] == ["go? yes"]


def test_some_answers_from_elsewhere_are_used(home: Home) -> None:
    """Two of three were answered: going on uses both, and asks the third."""

    def first(state: Log) -> Any:
        return {}

    graph = StateGraph(Log).add_node("first", first).add_edge(START, "first")
    for name in "abc":
        graph.add_node(name, question(name)).add_edge("first", name).add_edge(name, END)
    agent = home.protect(graph.compile())
    ids = {q.value: q.id for q in agent.invoke(asks(), thread="t")["__interrupt__"]}
    interrupts.decide(home.store, "t", ids["a"], 1, actor="ann")
    interrupts.decide(home.store, "t", ids["c"], 3, actor="bob")

    out = agent.continue_run("t")

    assert [q.id for q in out["__interrupt__"]] == [ids["b"]]
    assert sorted(agent.decide("t", 2)["log"]) == ["a 1", "b 2", "c 3"]


# -- taken back -----------------------------------------------------------------------------------------------------


def picky(state: Log) -> Any:
    return {"log": [str(int(interrupt("how many?")))]}


def test_a_failed_answer_is_asked_for_again(home: Home) -> None:
    """The node fails on it for good: the question is asked anew, under the next number; both answers stay readable."""
    agent, asked = waiting(home, picky)
    with pytest.raises(ValueError, match="many"):
        agent.decide("t", "many", actor="ann")
    with pytest.raises(ValueError, match="many"):
        agent.continue_run("t")

    assert agent.ask_again("t", by="bob") == [asked]

    (again,) = home.questions()
    assert (again.interrupt_id, again.ask_no, again.payload) == (asked, 2, "how many?")
    assert agent.decide("t", "3", actor="ann")["log"] == ["3"]
    told = home.store.perform(home.store.list_decisions(ONE_USER, "t", withdrawn=True))
    assert [(one.value, one.ask_no, one.status) for one in told] == [("many", 1, "withdrawn"), ("3", 2, "accepted")]


def test_what_has_not_failed_is_not_asked_again(home: Home) -> None:
    """A thread that waits, or is done, or failed without an answer, has nothing to take back."""
    agent, _ = waiting(home)
    with pytest.raises(InvalidDecisionError, match="nothing to ask again"):
        agent.ask_again("t")
    agent.decide("t", "yes")
    with pytest.raises(InvalidDecisionError, match="nothing to ask again"):
        agent.ask_again("t")

    assert home.statuses() == ["interrupted", "done"]


def test_a_first_answer_is_not_given_to_the_next_question(home: Home) -> None:
    """A node that asks twice, driven again without an answer, asks its second question again."""

    def n(state: Log) -> Any:
        return {"log": [interrupt("one?"), interrupt("two?")]}

    agent, _ = waiting(home, n)
    agent.decide("t", "A")

    out = agent.continue_run("t")

    assert [q.value for q in out["__interrupt__"]] == ["two?"]
    assert agent.decide("t", "B")["log"] == ["A", "B"]


# -- at any depth ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", ["approve", "edit", "reject", "respond"])
def test_decisions_hold_in_subagents_that_ask_at_once(home: Home, decision: str) -> None:
    """Two subagents of a deep agent ask in parallel; each decision reaches its own call, by id, of every type."""
    from deepagents import create_deep_agent

    removed: list[str] = []

    def delete_file(path: str) -> str:
        """Delete a file."""
        removed.append(path)
        return f"deleted {path}"

    tool = StructuredTool.from_function(delete_file)

    def helper(name: str) -> dict[str, Any]:
        call = {"name": "delete_file", "args": {"path": name}, "id": f"d-{name}", "type": "tool_call"}
        model = Replies(replies=[AIMessage("", tool_calls=[call]), AIMessage(f"{name} done")])
        return {"name": name, "description": name, "system_prompt": "", "tools": [tool], "model": model}

    calls = [
        {"name": "task", "args": {"description": "go", "subagent_type": name}, "id": f"t-{name}", "type": "tool_call"}
        for name in ("one", "two")
    ]
    main = Replies(replies=[AIMessage("", tool_calls=calls), AIMessage("all done")])
    graph: Any = create_deep_agent(
        model=main,
        subagents=[helper("one"), helper("two")],  # type: ignore[list-item]
        interrupt_on={"delete_file": True},
    )
    agent = home.protect(graph)
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    asked = {q.actions[0].args["path"]: q for q in home.questions()}
    assert {q.actions[0].tool_call_id for q in asked.values()} == {"d-one", "d-two"}

    choice = {
        "approve": approve(),
        "edit": edit({"path": "other"}),
        "reject": reject("no"),
        "respond": respond("gone"),
    }[decision]
    agent.decide("t", {"d-one": choice}, interrupt_id=asked["one"].interrupt_id)
    out = agent.decide("t", {"d-two": approve()}, interrupt_id=asked["two"].interrupt_id)

    assert out["messages"][-1].content == "all done"
    expected = {"approve": ["one", "two"], "edit": ["other", "two"], "reject": ["two"], "respond": ["two"]}
    assert sorted(removed) == expected[decision]


def test_an_answered_question_says_so(home: Home) -> None:
    """Its row stays, with its state."""
    agent, _ = waiting(home)
    agent.decide("t", "yes")

    assert [q.state for q in home.questions(pending_only=False)] == [InterruptState.ANSWERED]


def test_an_edited_state_takes_no_late_answer(home: Home) -> None:
    """An edit has moved on from the question: deciding it would do nothing, so it is refused, here and elsewhere."""
    agent, asked = waiting(home)
    agent.update_state(config("t"), {"log": ["by hand"]}, as_node="n")

    with pytest.raises(InvalidDecisionError, match="is not pending"):
        agent.decide("t", "yes", interrupt_id=asked)
