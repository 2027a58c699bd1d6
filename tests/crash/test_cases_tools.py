"""Tool calls when the process dies: finished ones stay so, each asks for itself, none is left without a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from agents import Home, Outside, config, home_in
from lives import die, die_at, live, live_and_die
from models import Replies, call, results, well_formed
from ninelives import reject

pytestmark = pytest.mark.crash


def working(home: Home, dying: str = "") -> Any:
    """A tool without any declaration, whose calls are made one after the other; it dies in the one it is told to."""

    def work(what: str) -> str:
        home.outside.happens(f"work {what}")
        if what == dying:
            die()
        return f"did {what}"

    return StructuredTool.from_function(work, description="Work.")


def bare(home: Home, tools: list[Any], calls: list[Any]) -> Any:
    """A model that makes these calls at once, and a tool node that gets them in one task, one after the other."""

    def model(state: MessagesState) -> Any:
        return {"messages": [AIMessage("", id="ai", tool_calls=calls)]}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    return home.protect(graph.compile())


# -- finished calls --------------------------------------------------------------------------------------------------


def life_of_three_calls(folder: str, dying: str = "", point: list[Any] | None = None) -> Any:
    with home_in(folder) as home:
        calls = [call("work", what, what=what) for what in "abc"]
        agent = bare(home, [working(home, dying)], calls)
        if point:
            die_at(home.store, *point)
        return results(agent.invoke({"messages": []}, thread="t", idempotency_key="k"))


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("where", ["before", "after"])
def test_finished_calls_of_one_task_are_not_run_again(tmp_path: Path, where: str, nth: int) -> None:
    """Killed at the record of the first, second or third of three undeclared calls: what is recorded runs no more."""
    live_and_die(life_of_three_calls, tmp_path, "", ["keep_call", "commit", where, nth])

    assert live(life_of_three_calls, tmp_path) == {what: f"did {what}" for what in "abc"}

    times = sorted(Outside(tmp_path).times(f"work {what}") for what in "abc")
    recorded = nth if where == "after" else nth - 1
    assert times.count(1) >= recorded
    assert sum(times) <= 6 - recorded


def test_a_pausing_call_does_not_repeat_its_neighbours(tmp_path: Path) -> None:
    """A mail beside a question, both in one task; the answer comes from another process: one mail."""
    live(life_of_a_mail_and_a_question, tmp_path, None)

    assert live(life_of_a_mail_and_a_question, tmp_path, "yes") == {"1": "mailed ann", "2": "yes"}
    assert Outside(tmp_path).seen == ["mail ann"]


def life_of_a_mail_and_a_question(folder: str, answer: str | None) -> Any:
    with home_in(folder) as home:

        def mail(to: str) -> str:
            home.outside.happens(f"mail {to}")
            return f"mailed {to}"

        def ask(what: str) -> str:
            return str(interrupt(what))

        tools = [StructuredTool.from_function(each, description="x") for each in (mail, ask)]
        agent = bare(home, tools, [call("mail", "1", to="ann"), call("ask", "2", what="well?")])
        if answer is None:
            return str(agent.invoke({"messages": []}, thread="t"))
        return results(agent.invoke(Command(resume=answer), thread="t"))


# -- each asks for itself --------------------------------------------------------------------------------------------


def life_of_two_questions(folder: str, answers: dict[str, str], dying: str = "", point: Any = None) -> Any:
    with home_in(folder) as home:

        def delete(name: str) -> str:
            answer = interrupt(name)
            home.outside.happens(f"{name} {answer}")
            if name == dying:
                die()
            return f"{name}: {answer}"

        made = StructuredTool.from_function(delete, description="Delete.")
        agent = bare(home, [made], [call("delete", name, name=name) for name in "ab"])
        if point:
            die_at(home.store, *point)
        if not answers:
            out = agent.invoke({"messages": []}, thread="t", idempotency_key="k")
        else:
            ids = {question.payload: question.interrupt_id for question in home.questions()}
            out = agent.invoke(Command(resume={ids[name]: answers[name] for name in answers}), thread="t")
        return {one.value: one.id for one in out.get("__interrupt__", ())} or results(out)


POINTS: list[Any] = [
    ["answer", "commit", "after", 1],
    ["keep_call", "commit", "before", 1],
    ["keep_call", "commit", "after", 1],
    ["keep_call", "commit", "after", 2],
    ["put_writes", "commit", "after", 1],
]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point[0]} {point[2]} {point[3]}")
def test_answers_to_calls_of_one_task_survive_a_kill(tmp_path: Path, point: Any) -> None:
    """Both answered, killed anywhere behind the commit: each call gets its own answer, and none is asked for again."""
    live(life_of_two_questions, tmp_path, {})
    live_and_die(life_of_two_questions, tmp_path, {"b": "B", "a": "A"}, "", point)

    with home_in(tmp_path) as home:
        made = StructuredTool.from_function(lambda name: f"{name}: {interrupt(name)}", name="delete", description="x")
        agent = bare(home, [made], [call("delete", name, name=name) for name in "ab"])
        out = agent.continue_run("t")

        assert results(out) == {"a": "a: A", "b": "b: B"}
        assert len(home.questions(pending_only=False)) == 2
        assert {*home.outside.seen} <= {"a A", "b B"}


@pytest.mark.parametrize("dying", ["a", "b"])
def test_an_answered_call_that_is_killed_gets_its_answer_again(tmp_path: Path, dying: str) -> None:
    """Killed in the call with one of two answered: it goes on with that, and the other still asks, under its id."""
    asked = live(life_of_two_questions, tmp_path, {})
    live_and_die(life_of_two_questions, tmp_path, {dying: "yes"}, dying)

    other = "b" if dying == "a" else "a"
    with home_in(tmp_path) as home:
        made = StructuredTool.from_function(lambda name: f"{name}: {interrupt(name)}", name="delete", description="x")
        agent = bare(home, [made], [call("delete", name, name=name) for name in "ab"])
        left = agent.continue_run("t")["__interrupt__"]

        assert [(one.value, one.id) for one in left] == [(other, asked[other])]
        assert results(agent.decide("t", "no")) == {dying: f"{dying}: yes", other: f"{other}: no"}


# -- none is left without its result ---------------------------------------------------------------------------------


def agent_of(home: Home, make: str, dying: str = "") -> tuple[Any, Replies]:
    """An agent that makes two calls in its first turn."""
    calls = [call("work", "1", what="a"), call("work", "2", what="b")]
    model = Replies(replies=[AIMessage("", tool_calls=calls), AIMessage("well"), AIMessage("well")])
    tools = [working(home, dying)]
    if make == "deepagents":
        from deepagents import create_deep_agent

        return home.protect(create_deep_agent(model=model, tools=tools)), model
    review: list[Any] = [HumanInTheLoopMiddleware(interrupt_on={"work": True})] if make == "reviewed" else []
    return home.protect(create_agent(model, tools, middleware=review)), model


def life_of_an_agent(folder: str, make: str, dying: str = "", point: Any = None, word: str = "go", **how: Any) -> Any:
    with home_in(folder) as home:
        agent, model = agent_of(home, make, dying)
        if point:
            die_at(home.store, *point)
        agent.invoke({"messages": [HumanMessage(word, id=word)]}, thread="t", **how)
        return [well_formed(shown) for shown in model.shown]


def life_of_another_word(folder: str, make: str, choice: str, point: Any = None) -> Any:
    return life_of_an_agent(folder, make, "", point, "new", on_unfinished=choice)


KILLED: list[Any] = [
    ["put_checkpoint", "commit", "after", 2],  # the model has spoken, no tool has begun
    ["put_writes", "commit", "after", 2],
    ["put_writes", "commit", "after", 3],
]


@pytest.mark.parametrize("choice", ["abandon", "start_over"])
@pytest.mark.parametrize("dying", ["a", "b", *KILLED], ids=str)
@pytest.mark.parametrize("make", ["langchain", "deepagents"])
def test_after_a_kill_a_new_input_finds_a_whole_history(tmp_path: Path, make: str, dying: Any, choice: str) -> None:
    """Killed between a model's calls and their results, at any place: whatever the choice, the model takes it."""
    inside = isinstance(dying, str)
    live_and_die(life_of_an_agent, tmp_path, make, dying if inside else "", None if inside else dying)

    assert all(live(life_of_another_word, tmp_path, make, choice))

    with home_in(tmp_path) as home:
        messages = agent_of(home, make)[0].get_state(config()).values["messages"]
        assert well_formed(messages)
        told = [str(m.content) for m in messages if isinstance(m, ToolMessage)]
        for what in "ab":
            # What was cut off may have happened; what is said to be done has.
            assert told.count(f"did {what}") <= home.outside.times(f"work {what}")
        if inside and choice == "abandon":
            assert "not carried out" in " ".join(told)


CLOSING: list[Any] = [
    ["start_run", "commit", "after", 1],
    ["put_checkpoint", "commit", "before", 1],
    ["put_checkpoint", "commit", "after", 1],
    ["put_writes", "commit", "before", 1],
    ["put_writes", "commit", "after", 1],
    ["put_checkpoint", "commit", "after", 2],
]


@pytest.mark.parametrize("point", CLOSING, ids=lambda point: f"{point[0]} {point[2]} {point[3]}")
@pytest.mark.parametrize("make", ["langchain", "deepagents", "reviewed"])
def test_the_closing_itself_may_be_killed(tmp_path: Path, make: str, point: Any) -> None:
    """Killed while the new input and the missing results are written: each of them is there once in the end."""
    if make == "reviewed":
        live(life_of_an_agent, tmp_path, make)  # it waits for leave
    else:
        live_and_die(life_of_an_agent, tmp_path, make, "a")
    live_and_die(life_of_another_word, tmp_path, make, "abandon", point)

    with home_in(tmp_path) as home:
        agent, model = agent_of(home, make)
        out = agent.continue_run("t")

        assert well_formed(out["messages"])
        assert all(well_formed(shown) for shown in model.shown)
        assert [m.id for m in out["messages"] if isinstance(m, HumanMessage)] == ["go", "new"]
        assert [m.tool_call_id for m in out["messages"] if isinstance(m, ToolMessage)] == ["1", "2"]
        assert len({m.id for m in out["messages"]}) == len(out["messages"])


def test_a_rejected_call_is_not_executed_after_a_kill(tmp_path: Path) -> None:
    """Killed right behind the commit of a rejection: whoever goes on executes nothing."""
    live(life_of_an_agent, tmp_path, "reviewed")
    live_and_die(life_that_rejects, tmp_path)

    with home_in(tmp_path) as home:
        agent, model = agent_of(home, "reviewed")
        out = agent.continue_run("t")

        assert home.outside.seen == []
        assert well_formed(model.shown[-1])
        assert all("not that" in text for text in results(out).values())


def life_that_rejects(folder: str) -> Any:
    with home_in(folder) as home:
        agent, _ = agent_of(home, "reviewed")
        die_at(home.store, "answer", "commit", "after")
        return str(agent.decide("t", {"1": reject("not that"), "2": reject("not that")}))
