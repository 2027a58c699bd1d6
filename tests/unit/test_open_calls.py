"""
No tool call is left without its tool message, whatever became of the run that was to carry it out.

A model refuses a history in which a call has no result. Where a new input comes behind one, its results are made: what
a call really gave, where that is recorded, and else what is known of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Overwrite, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from agents import Home, home_in
from clocks import HandClock
from models import Replies, call, results, well_formed
from ninelives import SuspendTimeoutError, UnfinishedRunError, effect
from ninelives.config import QuestionsSettings, Settings


def work(what: str) -> str:
    """Work."""
    if what == "bad":
        raise RuntimeError("bad")
    return f"did {what}"


WORK = StructuredTool.from_function(work)
GOOD, BAD = call("work", "1", what="good"), call("work", "2", what="bad")
NEW: Any = {"messages": [HumanMessage("never mind")]}


def deep(model: Any, tools: Sequence[Any], **more: Any) -> Any:
    from deepagents import create_deep_agent

    return create_deep_agent(model=model, tools=[*tools], **more)


def stopped(home: Home, calls: Sequence[Any], tools: Sequence[Any] = (WORK,), make: Any = create_agent) -> Any:
    """An agent on whose thread "t" a tool has failed, so that its call has no result; and its model."""
    model = Replies(replies=[AIMessage("", tool_calls=[*calls]), AIMessage("well"), AIMessage("well")])
    agent = home.protect(make(model, [*tools]))
    with pytest.raises(RuntimeError):
        agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    return agent, model


def bare(home: Home, tools: Sequence[Any], calls: Sequence[Any]) -> tuple[Any, Replies]:
    """An agent whose tool node gets all calls of a message in one task."""
    model = Replies(replies=[AIMessage("", tool_calls=[*calls]), AIMessage("well")])

    def ask(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    def after(state: MessagesState) -> Any:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    graph = StateGraph(MessagesState).add_node("ask", ask).add_node("tools", ToolNode([*tools]))
    graph.add_edge(START, "ask").add_conditional_edges("ask", after, ["tools", END]).add_edge("tools", "ask")
    return home.protect(graph.compile()), model


# -- what the model is shown ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [create_agent, deep], ids=["langchain", "deepagents"])
def test_a_new_input_finds_no_call_without_its_result(home: Home, make: Any) -> None:
    """One call had ended, one had not: the model is shown the one's real result, and that the other did not end."""
    agent, model = stopped(home, [GOOD, BAD], make=make)

    out = agent.invoke(NEW, thread="t", on_unfinished="abandon")

    assert well_formed(model.shown[-1])
    assert results(out)["1"] == "did good"
    assert "not carried out" in results(out)["2"]
    assert out["messages"][-1].content == "well"


def test_a_finished_call_keeps_its_result_in_a_bare_tool_node(home: Home) -> None:
    """Its task had not ended: what is recorded of the single call counts."""
    agent, model = bare(home, [WORK], [GOOD, BAD])
    with pytest.raises(RuntimeError):
        agent.invoke({"messages": [HumanMessage("go")]}, thread="t")

    out = agent.invoke(NEW, thread="t", on_unfinished="abandon")

    assert well_formed(model.shown[-1])
    assert results(out)["1"] == "did good"
    assert "not carried out" in results(out)["2"]


@pytest.mark.parametrize("kind", ["one task each", "one task"])
def test_what_a_finished_call_has_written_is_not_lost(home: Home, kind: str) -> None:
    """A file that a tool says it has written is there; a plain state key, too."""

    class State(MessagesState):
        note: str

    def note(text: str) -> Any:
        """Note."""
        told = ToolMessage("noted", tool_call_id="1")
        return Command(update={"note": text, "messages": [told, HumanMessage("by the way")]})

    tools, calls = [WORK, StructuredTool.from_function(note)], [call("note", "1", text="x"), BAD]
    if kind == "one task each":
        writing = [call("write_file", "1", file_path="/a.txt", content="hi"), BAD]
        agent, model = stopped(home, writing, make=deep)
    else:
        model = Replies(replies=[AIMessage("", tool_calls=calls), AIMessage("well")])

        def ask(state: State) -> Any:
            return {"messages": [model.invoke(state["messages"])]}

        graph = StateGraph(State).add_node("ask", ask).add_node("tools", ToolNode(tools))
        graph.add_edge(START, "ask").add_edge("ask", "tools")
        agent = home.protect(graph.compile())
        with pytest.raises(RuntimeError):
            agent.invoke({"messages": [HumanMessage("go")]}, thread="t")

    model.replies[:] = [AIMessage("well")]
    out = agent.invoke(NEW, thread="t", on_unfinished="abandon")

    assert well_formed(model.shown[-1])
    if kind == "one task each":
        assert out["files"]["/a.txt"]["content"] == "hi"
        assert "/a.txt" in results(out)["1"]
    else:
        assert out["note"] == "x"
        assert [m.content for m in out["messages"] if isinstance(m, HumanMessage)] == ["go", "by the way", "never mind"]


def test_an_act_that_may_have_happened_is_not_called_undone(home: Home) -> None:
    """The model is told that nobody knows."""

    def charge(order: str) -> str:
        """Charge."""
        raise RuntimeError("the line is dead")

    made = effect(StructuredTool.from_function(charge))
    agent, model = stopped(home, [call("charge", "1", order="o")], [made])

    out = agent.invoke(NEW, thread="t", on_unfinished="abandon")

    assert well_formed(model.shown[-1])
    assert "not known" in results(out)["1"]


def test_what_is_recorded_of_an_act_is_told(home: Home) -> None:
    """The tool failed behind it: the model learns what was done, and that the call did not end."""

    @effect
    def wire(cents: int) -> str:
        return f"wired {cents}"

    def pay(cents: int) -> str:
        """Pay."""
        raise RuntimeError(wire(cents))

    agent, model = stopped(home, [call("pay", "1", cents=5)], [StructuredTool.from_function(pay)])

    out = agent.invoke(NEW, thread="t", on_unfinished="abandon")

    assert well_formed(model.shown[-1])
    assert "wire: wired 5" in results(out)["1"]
    assert "not come to its end" in results(out)["1"]


def test_another_turn_with_the_same_ids_is_not_mixed_up(home: Home) -> None:
    """What call "1" has done in an earlier turn says nothing about call "1" of this one."""
    made = effect(WORK, not_done_on=[RuntimeError])
    turns = [call("work", "1", what="good"), call("work", "1", what="bad")]
    first, second = (AIMessage("", tool_calls=[turn]) for turn in turns)
    model = Replies(replies=[first, AIMessage("ok"), second, AIMessage("well")])

    def broken(what: str) -> str:
        """Work."""
        if what == "bad":
            raise RuntimeError("before the act")
        return str(made.invoke({"what": what}))

    agent = home.protect(create_agent(model, [StructuredTool.from_function(broken, name="work")]))
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    with pytest.raises(RuntimeError):
        agent.invoke({"messages": [HumanMessage("again")]}, thread="t")

    out = agent.invoke(NEW, thread="t", on_unfinished="abandon")

    told = [m.content for m in out["messages"] if isinstance(m, ToolMessage)]
    assert told[0] == "did good"
    assert "not carried out" in told[1]


# -- how it came about ------------------------------------------------------------------------------------------------


def test_a_start_over_begins_well_formed(home: Home) -> None:
    """The turn before was abandoned and has left open calls; the next one, started over, still closes them."""

    def flaky(what: str) -> str:
        """Work."""
        tried.append(what)
        if len(tried) < 3:
            raise RuntimeError("bad")
        return f"did {what}"

    tried: list[str] = []
    agent, model = stopped(home, [call("flaky", "1", what="x")], [StructuredTool.from_function(flaky)])
    model.replies.insert(1, AIMessage("", tool_calls=[call("flaky", "2", what="x")]))
    with pytest.raises(RuntimeError):
        agent.invoke({"messages": [HumanMessage("again")]}, thread="t", on_unfinished="abandon")

    out = agent.start_over("t")

    assert well_formed(model.shown[-1])
    assert [m.content for m in out["messages"] if isinstance(m, HumanMessage)] == ["go", "again"]


def test_several_turns_that_fail_in_a_row(home: Home) -> None:
    """Each leaves an open call, and each is closed once; a finished one of the first turn is still told rightly."""
    model = Replies(replies=[AIMessage("", tool_calls=[GOOD, BAD])] + [AIMessage("", tool_calls=[BAD])] * 2)
    model.replies.append(AIMessage("well"))
    agent = home.protect(create_agent(model, [WORK]))
    for word in ("go", "again", "and again"):
        with pytest.raises(RuntimeError):
            agent.invoke({"messages": [HumanMessage(word)]}, thread="t", on_unfinished="abandon")

    out = agent.invoke(NEW, thread="t", on_unfinished="abandon")

    assert well_formed(out["messages"])
    assert results(out)["1"] == "did good"
    assert len([m for m in out["messages"] if isinstance(m, ToolMessage)]) == 4


def asking(home: Home, **options: Any) -> tuple[Any, Replies]:
    """An agent that waits for leave to make its one call."""
    model = Replies(replies=[AIMessage("", tool_calls=[call("work", "1", what="x")]), AIMessage("well")])
    review = HumanInTheLoopMiddleware(interrupt_on={"work": True})
    agent = home.protect(create_agent(model, [WORK], middleware=[review]), **options)
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    return agent, model


def test_a_question_that_is_dropped_leaves_no_call_open(home: Home) -> None:
    """Plain input on a thread that waits is refused; with the choice to abandon it, the gated call is closed."""
    agent, model = asking(home)
    with pytest.raises(UnfinishedRunError):
        agent.invoke({"messages": [HumanMessage("hello?")]}, thread="t")

    out = agent.invoke(NEW, thread="t", on_unfinished="abandon")

    assert well_formed(model.shown[-1])
    assert "not carried out" in results(out)["1"]


def test_an_abandoned_run_leaves_no_call_open(home: Home) -> None:
    """Abandoned beforehand, by hand: the next input needs no choice, and closes the call."""
    agent, model = asking(home)
    agent.abandon("t")

    agent.invoke(NEW, thread="t")

    assert well_formed(model.shown[-1])


def test_a_question_that_is_replaced_leaves_no_call_open(home: Home) -> None:
    """`on_waiting="replace"`: the question is closed as superseded, and so is the call that it was about."""
    agent, model = asking(home)

    agent.invoke(NEW, thread="t", on_waiting="replace")

    assert well_formed(model.shown[-1])


def test_a_question_that_nobody_answered_leaves_no_call_open(tmp_path: Any, clock: HandClock) -> None:
    """Its run has expired with it; whoever says something new finds a whole history."""
    settings = Settings(questions=QuestionsSettings(deadline_s=60.0, at_deadline="fail"))
    with home_in(tmp_path, clock=clock) as home:
        agent, model = asking(home, settings=settings)
        clock.advance(3600)
        with pytest.raises(SuspendTimeoutError):
            agent.continue_run("t")

        agent.invoke(NEW, thread="t", on_unfinished="abandon")

        assert well_formed(model.shown[-1])


def test_a_turn_that_ended_is_left_as_it_is(home: Home) -> None:
    """A graph may end with a call that somebody else carries out; what comes behind it is their affair."""

    def model(state: MessagesState) -> Any:
        return {"messages": [AIMessage("", tool_calls=[GOOD])]}

    graph = StateGraph(MessagesState).add_node("model", model).add_edge(START, "model").add_edge("model", END)
    agent = home.protect(graph.compile())
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")

    out = agent.invoke({"messages": [ToolMessage("by hand", tool_call_id="1")]}, thread="t")

    assert [type(m).__name__ for m in out["messages"]] == ["HumanMessage", "AIMessage", "ToolMessage", "AIMessage"]


# -- what the input may be ---------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[], Any]] = {
    "a message": lambda: {"messages": HumanMessage("new")},
    "messages": lambda: {"messages": [HumanMessage("new")]},
    "a text": lambda: {"messages": "new"},
    "a pair": lambda: {"messages": [("user", "new")]},
    "a dict": lambda: {"messages": [{"role": "user", "content": "new"}]},
    "no messages": lambda: {"messages": []},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", [create_agent, deep], ids=["langchain", "deepagents"])
def test_the_input_may_have_any_form(home: Home, make: Any, form: str) -> None:
    """Whatever can be made messages, or none at all."""
    agent, _ = stopped(home, [GOOD, BAD], make=make)

    out = agent.invoke(FORMS[form](), thread="t", on_unfinished="abandon")

    assert well_formed(out["messages"])
    assert results(out)["1"] == "did good"
    said = [m.content for m in out["messages"] if isinstance(m, HumanMessage)]
    assert said == (["go"] if form == "no messages" else ["go", "new"])


def custom(home: Home, schema: type[Any], input_schema: type[Any] | None, failing: list[bool]) -> Any:
    """A graph of another state, whose one node makes an open call, and fails behind it once."""

    def ask(state: Any) -> Any:
        return {"messages": [AIMessage("", id=None, tool_calls=[call("work", f"{len(failing)}", what="x")])]}

    def tools(state: Any) -> Any:
        if failing.pop():
            raise RuntimeError("bad")
        messages = state["messages"] if isinstance(state, dict) else state.messages
        return {"messages": [ToolMessage("did", tool_call_id=messages[-1].tool_calls[0]["id"])]}

    graph = StateGraph(schema, input_schema=input_schema).add_node("ask", ask).add_node("tools", tools)
    graph.add_edge(START, "ask").add_edge("ask", "tools").add_edge("tools", END)
    return home.protect(graph.compile())


def merged(old: list[Any], new: Any) -> Any:
    """A reducer that only calls LangGraph's."""
    return add_messages(old or [], new)


class Own(TypedDict):
    messages: Annotated[list[Any], merged]


class Model(BaseModel):
    messages: Annotated[list[Any], add_messages] = []


class Asked(TypedDict):
    question: str


class Full(TypedDict):
    question: str
    messages: Annotated[list[Any], add_messages]


@pytest.mark.parametrize("kind", ["an object", "a schema without messages", "a custom reducer"])
def test_the_input_may_have_no_place_for_messages(home: Home, kind: str) -> None:
    """An object instead of a dict; a schema of inputs that has no messages: the history is whole all the same."""
    new: Any
    if kind == "an object":
        agent, new = custom(home, Model, None, [False, True]), Model(messages=[HumanMessage("new")])
    elif kind == "a schema without messages":
        agent, new = custom(home, Full, Asked, [False, True]), {"question": "new"}
    else:
        agent, new = custom(home, Own, None, [False, True]), {"messages": [HumanMessage("new")]}
    with pytest.raises(RuntimeError):
        agent.invoke(new, thread="t")

    out = agent.invoke(new, thread="t", on_unfinished="abandon")

    assert well_formed(out["messages"])
    assert [m.type for m in out["messages"]].count("tool") == 2


def test_results_that_the_input_brings_are_the_ones(home: Home) -> None:
    """Who carried the call out by hand says what it gave; the other one is closed as usual."""
    agent, model = stopped(home, [BAD, call("work", "3", what="bad")])

    out = agent.invoke(
        {"messages": [ToolMessage("by hand", tool_call_id="2"), HumanMessage("new")]},
        thread="t",
        on_unfinished="abandon",
    )

    assert well_formed(model.shown[-1])
    assert results(out)["2"] == "by hand"
    assert "not carried out" in results(out)["3"]


@pytest.mark.parametrize("how", ["anew", "removed", "all removed", "overwritten"])
def test_an_input_may_take_the_call_back(home: Home, how: str) -> None:
    """The message is made anew or removed, or the whole history is: then there is nothing to close."""
    agent, model = stopped(home, [BAD])
    said = agent.get_state({"configurable": {"thread_id": "t"}}).values["messages"][-1]
    new: dict[str, Any] = {
        "anew": [AIMessage("never mind", id=said.id), HumanMessage("new")],
        "removed": [RemoveMessage(said.id), HumanMessage("new")],
        "all removed": [RemoveMessage(REMOVE_ALL_MESSAGES), HumanMessage("new")],
        "overwritten": Overwrite([HumanMessage("new")]),
    }

    model.replies[:] = [AIMessage("well")]

    agent.invoke({"messages": new[how]}, thread="t", on_unfinished="abandon")

    assert well_formed(model.shown[-1])
    assert not any(isinstance(m, ToolMessage) for m in model.shown[-1])


def test_a_command_goes_on_and_closes_nothing(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """It resumes the step that failed: the calls get their results from the tools."""

    def flaky(what: str) -> str:
        """Work."""
        tried.append(what)
        if len(tried) == 1:
            raise RuntimeError("bad")
        return f"did {what}"

    tried: list[str] = []
    agent, _ = stopped(home, [call("flaky", "1", what="x")], [StructuredTool.from_function(flaky)])

    with caplog.at_level(logging.WARNING):
        out = agent.invoke(Command(update={"messages": []}), thread="t", on_unfinished="continue")

    assert results(out) == {"1": "did x"}
    assert "tool call" not in caplog.text


def test_a_state_of_ones_own_is_kept(home: Home) -> None:
    """What the input itself sets is what is set, whatever a finished call had wanted to set before."""

    class State(AgentState[Any]):
        note: str

    def note(text: str) -> Any:
        """Note."""
        return Command(update={"note": text, "messages": [ToolMessage("noted", tool_call_id="1")]})

    agent, _ = stopped(
        home,
        [call("note", "1", text="old"), BAD],
        [WORK, StructuredTool.from_function(note)],
        lambda model, tools: create_agent(model, tools, state_schema=State),
    )

    out = agent.invoke({**NEW, "note": "new"}, thread="t", on_unfinished="abandon")

    assert out["note"] == "new"
    assert results(out)["1"] == "noted"


def test_a_thread_that_asks_in_its_first_node_is_closed_without_calls(home: Home) -> None:
    """Nothing is added where no call is open."""

    def n(state: MessagesState) -> Any:
        return {"messages": [AIMessage(str(interrupt("well?")))]}

    graph = StateGraph(MessagesState).add_node("n", n).add_edge(START, "n").compile()
    agent = home.protect(graph)
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")

    agent.invoke(NEW, thread="t", on_unfinished="abandon")
    out = agent.decide("t", "yes")

    assert [m.content for m in out["messages"]] == ["go", "never mind", "yes"]
