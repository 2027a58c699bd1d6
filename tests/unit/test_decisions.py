"""
Decisions: checked before they are recorded, made anywhere, used once, and taken back where they did not do.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, StateUpdate, interrupt
from pydantic import BaseModel, create_model

from agents import SAFE_S, Home, Log, asks, chain, config, fan, step
from models import Replies
from ninelives import (
    ConfigError,
    GraphChangedError,
    IdempotencyMismatchError,
    InvalidDecisionError,
    UnfinishedRunError,
    approve,
    ask,
    edit,
    interrupts,
    open_store,
    reject,
    respond,
)
from ninelives.model import ONE_USER, InterruptState, RunStatus, Unreadable


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
    with pytest.raises(InvalidDecisionError, match="the state has moved on"):
        interrupts.decide(home.store, "t", asked, "yes", actor="ann")

    assert home.statuses() == ["interrupted", "done"]


# -- told apart ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["yes", "0" * 32, ""])
def test_a_question_is_named_by_its_id_alone(home: Home, wrong: str) -> None:
    """A name that is none is refused, however it looks: it is not taken for a part of the answer."""
    agent, asked = waiting(home)

    with pytest.raises(InvalidDecisionError, match="not known here") as refused:
        agent.decide("t", "yes", interrupt_id=wrong)

    assert refused.value.pending == (asked,)
    assert home.decisions() == []


def test_tool_call_ids_may_look_like_interrupt_ids(home: Home) -> None:
    """Some providers make them of 32 hexadecimal digits."""
    ids = ["0123456789abcdef" * 2, "fedcba9876543210" * 2]
    removed: list[str] = []
    agent = remover(home, removed, [call(ids[0], "a"), call(ids[1], "b")])
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")

    agent.decide("t", {ids[1]: approve(), ids[0]: reject()})

    assert removed == ["b"]


def call(call_id: str, path: str) -> Any:
    return {"name": "delete_file", "args": {"path": path}, "id": call_id, "type": "tool_call"}


def remover(home: Home, removed: list[str], calls: list[Any], **review: Any) -> Any:
    """An agent that makes these calls at once, each of which is reviewed."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    def delete_file(path: str) -> str:
        """Delete a file."""
        removed.append(path)
        return f"deleted {path}"

    gate = HumanInTheLoopMiddleware(interrupt_on={"delete_file": True}, **review)
    replies = [AIMessage("", tool_calls=calls), AIMessage("done")]
    tools = [StructuredTool.from_function(delete_file)]
    return home.protect(create_agent(Replies(replies=replies), tools, middleware=[gate]))


def test_an_edit_must_fit_the_tool_of_its_own_agent(home: Home) -> None:
    """Where a subagent has a tool of the same name with other arguments, each is checked by its own."""
    from deepagents import create_deep_agent

    def wipe(**args: Any) -> str:
        return str(args)

    def tool(**fields: Any) -> Any:
        made = create_model("Args", path=(str, ...), **fields)
        return StructuredTool.from_function(wipe, name="wipe", description="Wipe.", args_schema=made)

    def asks_for(**args: Any) -> AIMessage:
        return AIMessage("", tool_calls=[{"name": "wipe", "args": args, "id": f"c{len(args)}", "type": "tool_call"}])

    delegation = {"description": "go", "subagent_type": "sub"}
    task = AIMessage("", tool_calls=[{"name": "task", "args": delegation, "id": "t", "type": "tool_call"}])
    sub = Replies(replies=[asks_for(path="b", force=False), AIMessage("sub done")])
    graph: Any = create_deep_agent(
        model=Replies(replies=[asks_for(path="a"), task, AIMessage("all done")]),
        tools=[tool()],
        subagents=[
            {"name": "sub", "description": "-", "system_prompt": "", "tools": [tool(force=(bool, ...))], "model": sub}
        ],
        interrupt_on={"wipe": True},
    )
    agent = home.protect(graph)
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    with pytest.raises(InvalidDecisionError, match="has no argument 'force'"):
        agent.decide("t", edit({"path": "x", "force": True}))
    agent.decide("t", edit({"path": "x"}))
    (asked,) = home.questions()
    for decide in (
        lambda choice: agent.decide("t", choice),
        lambda choice: interrupts.decide(home.store, "t", asked.interrupt_id, choice, actor="ann"),
    ):
        with pytest.raises(InvalidDecisionError, match="'force' is a required property"):
            decide(edit({"path": "y"}))

    out = agent.decide("t", edit({"path": "y", "force": True}))

    assert out["messages"][-1].content == "all done"


# -- told what became of it ------------------------------------------------------------------------------------------


def test_a_second_click_is_told_so_at_once(home: Home) -> None:
    """While the first answer is being gone on with: by id or without, here or elsewhere, who was first; no waiting."""
    here, on = threading.Event(), threading.Event()

    def slow(state: Log) -> Any:
        answer = interrupt("go?")
        here.set()
        assert on.wait(SAFE_S)
        return {"log": [answer]}

    agent, asked = waiting(home, slow)
    first = threading.Thread(target=lambda: agent.decide("t", "yes", interrupt_id=asked, actor="ann"))
    first.start()
    assert here.wait(SAFE_S)
    refused = []
    for decide in (
        lambda: agent.decide("t", "yes", interrupt_id=asked, actor="bob"),
        lambda: agent.decide("t", "no", actor="bob"),
        lambda: agent.invoke(Command(resume={asked: "no"}), thread="t"),
        lambda: interrupts.decide(home.store, "t", asked, "no", actor="bob"),
    ):
        with pytest.raises(InvalidDecisionError, match=r"answered by ann \(call\)") as told:
            decide()
        refused.append(told.value.first)
    on.set()
    first.join()

    (decision,) = home.decisions()
    assert refused == [("ann", decision.decided_at)] * 4
    assert home.statuses() == ["interrupted", "done"]


def test_an_answer_under_its_key_is_the_same_run(home: Home) -> None:
    """A redelivered decision with its key gives what the first one gave; another decision under it is refused."""
    agent, asked = waiting(home)

    outs = [agent.decide("t", respond("yes"), interrupt_id=asked, idempotency_key="k") for _ in range(3)]
    with pytest.raises(IdempotencyMismatchError):
        agent.decide("t", respond("no"), interrupt_id=asked, idempotency_key="k")

    assert [out["log"] for out in outs] == [["go? yes"]] * 3
    assert len(home.decisions()) == 1


@pytest.mark.parametrize("choice", [approve(), {"1": approve()}, {"decisions": [{"type": "approve"}]}])
def test_a_decision_elsewhere_under_its_key_is_the_same_run(home: Home, choice: Any) -> None:
    """Before and after it was gone on with; another one under the key is refused."""
    removed: list[str] = []
    agent = remover(home, removed, [call("1", "a")])
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    (asked,) = home.questions()

    def decide(decision: Any) -> str:
        return interrupts.decide(home.store, "t", asked.interrupt_id, decision, actor="ann", key="k").run_id

    first, again = decide(choice), decide(choice)
    agent.continue_run("t")
    later = decide(choice)
    with pytest.raises(IdempotencyMismatchError):
        decide(reject())

    assert first == again == later
    assert removed == ["a"]


def test_input_on_a_thread_that_was_answered_is_told_so(home: Home) -> None:
    """The decision is not dropped by somebody who has not seen it."""
    agent, asked = waiting(home)
    interrupts.decide(home.store, "t", asked, "yes", actor="ann")

    with pytest.raises(UnfinishedRunError, match="answered, but not continued yet"):
        agent.invoke(asks("more"), thread="t")

    assert agent.continue_run("t")["log"] == ["go? yes"]


# -- asked again -----------------------------------------------------------------------------------------------------


def picky_twice(state: Log) -> Any:
    return {"log": [f"{interrupt('who?')} {int(interrupt('how many?'))}"]}


def test_only_the_answer_that_failed_is_asked_for_again(home: Home) -> None:
    """A node that asks twice and fails on its second answer: continuing uses both, asking again keeps the first."""
    agent, _ = waiting(home, picky_twice)
    agent.decide("t", "ann")
    with pytest.raises(ValueError, match="'many'"):
        agent.decide("t", "many")
    with pytest.raises(ValueError, match="'many'"):
        agent.continue_run("t")

    agent.ask_again("t")

    assert [(q.payload, q.ask_no) for q in home.questions()] == [("how many?", 2)]
    assert [q.value for q in agent.continue_run("t")["__interrupt__"]] == ["how many?"]
    assert agent.decide("t", "3")["log"] == ["ann 3"]


def test_a_sibling_that_ended_well_is_not_asked_again(home: Home) -> None:
    """Two nodes were answered together and one failed: the other's answer was used, and stays."""

    def fine(state: Log) -> Any:
        return {"log": [interrupt("x")]}

    graph = fan(fine, picky)
    agent = home.protect(graph)
    ids = {q.value: q.id for q in agent.invoke(asks(), thread="t")["__interrupt__"]}
    with pytest.raises(ValueError, match="'many'"):
        agent.invoke(Command(resume={ids["x"]: "X", ids["how many?"]: "many"}), thread="t")

    assert agent.ask_again("t") == [ids["how many?"]]

    assert sorted(agent.decide("t", "3")["log"]) == ["3", "X"]
    assert {decision.value for decision in home.decisions()} == {"X", "3"}


def test_an_answer_that_was_used_up_is_not_taken_back(home: Home) -> None:
    """The step behind the review fails, for a reason of its own: what was approved stays so, and is gone on with."""
    broken, removed = [True], []

    def delete_file(path: str) -> str:
        """Delete a file."""
        if broken:
            raise ConnectionRefusedError(broken.pop())
        removed.append(path)
        return "deleted"

    agent = reviewed(home, StructuredTool.from_function(delete_file))
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    with pytest.raises(ConnectionRefusedError):
        agent.decide("t", approve(), actor="ann")

    with pytest.raises(InvalidDecisionError, match="nothing to ask again"):
        agent.ask_again("t")

    assert len(home.decisions()) == 1
    agent.continue_run("t")
    assert removed == ["a"]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_question_inside_is_asked_again(home: Home, depth: int) -> None:
    """In a subgraph as at the root; what was done before it in there is not done again."""
    graph = chain(step("a", home.outside), picky)
    for level in range(depth):
        graph = StateGraph(Log).add_node(f"n{level}", graph).add_edge(START, f"n{level}").add_edge(f"n{level}", END)
        graph = graph.compile()
    agent = home.protect(graph)
    agent.invoke(asks(), thread="t")
    with pytest.raises(ValueError, match="'many'"):
        agent.decide("t", "many")

    agent.ask_again("t")

    assert agent.decide("t", "3")["log"] == ["a", "3"]
    assert home.outside.seen == ["a"]


async def test_the_async_way_is_the_same(home: Home) -> None:
    """`adecide`, `aask_again` and `await_answers` do what their twins do."""
    agent = home.protect(chain(picky))
    (asked,) = (await agent.ainvoke(asks(), thread="t"))["__interrupt__"]
    with pytest.raises(ValueError, match="'many'"):
        await agent.adecide("t", "many", interrupt_id=asked.id, actor="ann")
    assert await agent.aask_again("t", by="bob") == [asked.id]
    with pytest.raises(TimeoutError):
        await agent.await_answers("t", timeout_s=0.01)
    interrupts.decide(home.store, "t", asked.id, "3", actor="ann")

    assert (await agent.await_answers("t", timeout_s=SAFE_S))["log"] == ["3"]


# -- when the graph has changed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 1])
def test_no_answer_is_accepted_that_the_graph_cannot_go_on_with(home: Home, depth: int) -> None:
    """The node that asks was renamed: that is told before anything is recorded, and the old graph takes the answer."""

    def build(name: str) -> Any:
        def n(state: Log) -> Any:
            return {"log": [interrupt("go?")]}

        n.__name__ = name
        inner = chain(n)
        return StateGraph(Log).add_node("sub", inner).add_edge(START, "sub").compile() if depth else inner

    old, new = home.protect(build("review")), home.protect(build("review_v2"))
    (asked,) = old.invoke(asks(), thread="t")["__interrupt__"]

    with pytest.raises(GraphChangedError, match="'review' is pending but gone"):
        new.decide("t", "yes", interrupt_id=asked.id)

    assert (home.decisions(), home.statuses()) == ([], ["interrupted"])
    assert old.decide("t", "yes")["log"] == ["yes"]


@pytest.mark.parametrize("kinds", [["aprove"], ["approve", "Reject"]])
def test_a_mistyped_kind_of_decision_is_told_at_once(home: Home, kinds: list[Any]) -> None:
    """No decision of that name can ever be made: the graph is refused when it is protected, with what is allowed."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    gate = HumanInTheLoopMiddleware(interrupt_on={"delete_file": {"allowed_decisions": kinds}})
    graph = create_agent(Replies(replies=[AIMessage("done")]), [], middleware=[gate])

    with pytest.raises(ConfigError, match=f"'{kinds[-1]}', which is no decision; allowed: approve, edit, reject"):
        home.protect(graph)


def test_a_review_of_a_tool_that_is_not_there_is_told(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """A mistyped tool would never be asked about; a tool may also be made on the way, so it is a warning."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    def delete_file(path: str) -> str:
        """Delete a file."""
        return path

    tools = [StructuredTool.from_function(delete_file)]
    gate = HumanInTheLoopMiddleware(interrupt_on={"delete_fle": True})
    home.protect(create_agent(Replies(replies=[AIMessage("done")]), tools, middleware=[gate]))

    assert "'delete_fle', which is no tool of graph 'LangGraph'; did you mean 'delete_file'?" in caplog.text


# -- what only looks like a review -----------------------------------------------------------------------------------

LOOKS: dict[str, Any] = {
    "no name": {"action_requests": [{"args": {}}], "review_configs": []},
    "nothing allowed": {"action_requests": [{"name": "x", "args": {}}], "review_configs": []},
    "a config that is none": {"action_requests": [{"name": "x", "args": {}}], "review_configs": ["x"]},
    "no arguments": {"action_requests": [{"name": "x", "args": None}], "review_configs": []},
    "no list": {"action_requests": {"name": "x"}, "review_configs": {}},
    "an approval without its call": {"type": "tool_approval", "args": {}, "name": "x"},
    "an approval of nothing": {"type": "tool_approval", "tool_call_id": "1"},
}


@pytest.mark.parametrize("how", LOOKS)
def test_what_only_looks_like_a_review_is_a_free_question(home: Home, how: str) -> None:
    """A graph may ask whatever it likes: it is asked, and takes any answer."""

    def n(state: Log) -> Any:
        return {"log": [interrupt(LOOKS[how])]}

    agent, _ = waiting(home, n)

    assert [q.kind for q in home.questions()] == ["free"]
    assert agent.decide("t", "yes")["log"] == ["yes"]


@dataclass
class Order:
    cents: int


def test_what_cannot_be_shown_can_be_decided(home: Home) -> None:
    """A question with a class that the deciding process does not know: listed, and decided by its id."""

    def n(state: Log) -> Any:
        return {"log": [interrupt(Order(5))]}

    agent, asked = waiting(home, n, allow=[Order])
    store = open_store(home.store.url)
    try:
        (listed,) = store.perform(store.list_questions(ONE_USER))
        interrupts.decide(store, "t", asked, "yes", actor="ann")
    finally:
        store.close()

    assert isinstance(listed.payload, Unreadable)
    assert agent.continue_run("t")["log"] == ["yes"]


def nested(home: Home) -> Any:
    """A graph whose second node is a graph that has done a step and then asks."""
    inner = chain(step("a", home.outside), question("go?"))
    graph = StateGraph(Log).add_node("first", step("first")).add_node("inner", inner).add_node("last", step("last"))
    graph.add_edge(START, "first").add_edge("first", "inner").add_edge("inner", "last")
    return home.protect(graph.compile())


@pytest.mark.parametrize("how", [{}, {"as_node": "first"}])
def test_an_edit_around_a_graph_that_waits_inside_is_refused(home: Home, how: Any) -> None:
    """It would begin anew, and do again what it has done: that is told, nothing changes, and the answer is taken."""
    agent = nested(home)
    agent.invoke(asks("in"), thread="t")

    with pytest.raises(UnfinishedRunError, match="graph 'inner' inside it has begun"):
        agent.update_state(config("t"), asks("edit"), **how)
    with pytest.raises(UnfinishedRunError, match="graph 'inner' inside it has begun"):
        agent.bulk_update_state(config("t"), [[StateUpdate(asks("edit"), how.get("as_node"))]])

    agent.decide("t", "yes")
    assert home.outside.seen == ["a"]


def test_an_edit_inside_or_instead_of_a_graph_that_waits_is_made(home: Home) -> None:
    """Its own state can be changed, and its result be put in its place; nothing runs again for it."""
    agent = nested(home)
    agent.invoke(asks(), thread="t")
    ns = agent.get_state(config("t"), subgraphs=True).tasks[0].state.config["configurable"]["checkpoint_ns"]

    agent.update_state(config("t", checkpoint_ns=ns), asks("edit"), as_node="a")
    agent.invoke(asks(), thread="u")
    agent.update_state(config("u"), asks("instead"), as_node="inner")

    assert agent.continue_run("u")["log"] == ["first", "instead", "last"]
    (asked,) = agent.continue_run("t")["__interrupt__"]
    assert "edit" in agent.decide("t", "yes", interrupt_id=asked.id)["log"]
    assert home.outside.seen == ["a", "a"]
