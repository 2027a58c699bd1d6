"""
Several tool calls in one task: each asks for itself, each is recorded for itself, and none goes by what people decided.

A bare `ToolNode` gets all calls of a message at once; LangGraph gives them one counter of questions between them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from agents import SAFE_S, Home
from models import Replies
from ninelives import InvalidDecisionError, UnfinishedRunError, approve, edit, effect, reject, respond
from ninelives.config import EffectRule, EffectsSettings, Settings
from ninelives.model import ONE_USER


def call(name: str, call_id: str, /, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def bare(home: Home, tools: Sequence[Any], calls: Sequence[dict[str, Any]], **options: Any) -> Any:
    """An agent whose model makes these calls at once, and whose tool node gets them all in one task."""

    def model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("", id="ai", tool_calls=[*calls])]}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("tools", ToolNode([*tools]))
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    return home.protect(graph.compile(), **options)


def results(out: Any) -> dict[str, Any]:
    return {m.tool_call_id: m.content for m in out["messages"] if isinstance(m, ToolMessage)}


def asked(out: Any) -> dict[Any, str]:
    return {question.value: question.id for question in out.get("__interrupt__", ())}


@tool
def delete(name: str) -> str:
    """Delete."""
    return f"{name}: {interrupt(f'delete {name}?')}"


@tool
async def adelete(name: str) -> str:
    """Delete."""
    await asyncio.sleep(0)
    return f"{name}: {interrupt(f'delete {name}?')}"


@pytest.mark.parametrize("kind", [delete, adelete], ids=["sync", "async"])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_each_call_gets_its_own_answer(home: Home, kind: Any, order: str) -> None:
    """All questions are shown at once, each with an id of its own; answers go by id, in whatever order."""
    agent = bare(home, [kind], [call(kind.name, name, name=name) for name in "ab"])

    ids = asked(agent.invoke({"messages": []}, thread="t"))
    assert {*ids} == {"delete a?", "delete b?"}
    out = agent.invoke(Command(resume={ids[f"delete {name}?"]: f"yes {name}" for name in order}), thread="t")

    assert results(out) == {"a": "a: yes a", "b": "b: yes b"}


def test_calls_may_be_answered_one_after_the_other(home: Home) -> None:
    """The one that was answered is not run again; the other still asks, under the same id."""
    ran: list[str] = []

    def remove(name: str) -> str:
        answer = interrupt(f"delete {name}?")
        ran.append(name)
        return f"{name}: {answer}"

    made = StructuredTool.from_function(remove, name="remove", description="Remove.")
    agent = bare(home, [made], [call("remove", name, name=name) for name in "abc"])
    ids = asked(agent.invoke({"messages": []}, thread="t"))

    left = asked(agent.invoke(Command(resume={ids["delete b?"]: "yes"}), thread="t"))
    assert left == {text: ids[text] for text in ("delete a?", "delete c?")}
    assert ran == ["b"]
    left = asked(agent.invoke(Command(resume={ids["delete a?"]: "no"}), thread="t"))
    out = agent.decide("t", "well")

    assert left == {"delete c?": ids["delete c?"]}
    assert results(out) == {"a": "a: no", "b": "b: yes", "c": "c: well"}
    assert ran == ["b", "a", "c"]


def test_a_call_may_ask_twice(home: Home) -> None:
    """Its second question has another id, and its first answer is not asked for again."""

    def two(name: str) -> str:
        return f"{interrupt(f'{name} once?')} {interrupt(f'{name} twice?')}"

    made = StructuredTool.from_function(two, name="two", description="Two.")
    agent = bare(home, [made], [call("two", name, name=name) for name in "ab"])
    ids = asked(agent.invoke({"messages": []}, thread="t"))

    more = asked(agent.invoke(Command(resume={ids["a once?"]: 1, ids["b once?"]: 2}), thread="t"))
    out = agent.invoke(Command(resume={more["b twice?"]: 4, more["a twice?"]: 3}), thread="t")

    assert {*ids.values()}.isdisjoint(more.values())
    assert results(out) == {"a": "1 3", "b": "2 4"}


def test_equal_calls_ask_each_for_themselves(home: Home) -> None:
    """Even under one tool call id, which providers do give out twice."""
    agent = bare(home, [delete], [call("delete", "same", name="x"), call("delete", "same", name="x")])

    questions = agent.invoke({"messages": []}, thread="t")["__interrupt__"]
    assert len({question.id for question in questions}) == 2
    out = agent.invoke(Command(resume={q.id: n for n, q in enumerate(questions)}), thread="t")

    contents = [m.content for m in out["messages"] if isinstance(m, ToolMessage)]
    assert contents == ["x: 0", "x: 1"]


def test_a_finished_call_is_not_run_again(home: Home) -> None:
    """One of three asks: with its answer only that one runs again. Nothing was declared."""
    ran: list[str] = []

    def mail(to: str) -> str:
        ran.append(to)
        return f"mailed {to}"

    made = StructuredTool.from_function(mail, name="mail", description="Mail.")
    calls = [call("mail", "1", to="ann"), call("delete", "2", name="x"), call("mail", "3", to="bob")]
    agent = bare(home, [made, delete], calls)
    agent.invoke({"messages": []}, thread="t")

    out = agent.decide("t", "yes")

    assert sorted(ran) == ["ann", "bob"]
    assert results(out) == {"1": "mailed ann", "2": "x: yes", "3": "mailed bob"}


def test_a_failing_call_leaves_no_other_behind(home: Home) -> None:
    """All calls are waited for; the finished ones are recorded, and only the failed one runs again."""
    ran: list[str] = []
    slow, go = threading.Event(), threading.Event()

    def work(what: str) -> str:
        ran.append(what)
        if what == "slow":
            slow.set()
            assert go.wait(SAFE_S)
        if what == "bad" and ran.count("bad") == 1:
            assert slow.wait(SAFE_S)
            go.set()
            raise RuntimeError("bad")
        return what

    made = StructuredTool.from_function(work, name="work", description="Work.")
    agent = bare(home, [made], [call("work", what, what=what) for what in ("slow", "bad", "fast")])
    with pytest.raises(RuntimeError, match="bad"):
        agent.invoke({"messages": []}, thread="t")

    out = agent.continue_run("t")

    assert results(out) == {"slow": "slow", "bad": "bad", "fast": "fast"}
    assert sorted(ran) == ["bad", "bad", "fast", "slow"]


def test_a_done_thread_keeps_no_copies(home: Home) -> None:
    """What was recorded of single calls goes when the run is done."""
    agent = bare(home, [delete], [call("delete", name, name=name) for name in "ab"])
    ids = asked(agent.invoke({"messages": []}, thread="t"))
    agent.invoke(Command(resume={ids["delete a?"]: 1}), thread="t")
    kept = home.store.perform(home.store.list_calls(ONE_USER, "t"))
    agent.decide("t", 2)

    assert len(kept) == 1
    assert home.store.perform(home.store.list_calls(ONE_USER, "t")) == {}


# -- what people have decided holds at the tools -------------------------------------------------------------------


def gated(home: Home, script: list[AIMessage], tools: Sequence[Any], **options: Any) -> Any:
    """An agent of LangChain's that asks before each call of `delete_file`."""
    review = HumanInTheLoopMiddleware(interrupt_on={"delete_file": True}, **options)
    return home.protect(create_agent(Replies(replies=script), [*tools], middleware=[review]))


def remover(removed: list[str]) -> Any:
    def delete_file(path: str) -> str:
        """Delete a file."""
        removed.append(path)
        return f"deleted {path}"

    return StructuredTool.from_function(delete_file)


def two_calls() -> list[AIMessage]:
    calls = [call("delete_file", "1", path="a"), call("delete_file", "2", path="b")]
    return [AIMessage("", tool_calls=calls), AIMessage("done")]


def test_decisions_go_by_tool_call_id(home: Home) -> None:
    """Whatever order a page shows the calls in: the one that was rejected does not run."""
    removed: list[str] = []
    agent = gated(home, two_calls(), [remover(removed)])
    agent.invoke({"messages": [HumanMessage("clean up")]}, thread="t")
    (question,) = home.questions()
    assert [(a.tool_call_id, a.name, a.args) for a in question.actions] == [
        ("1", "delete_file", {"path": "a"}),
        ("2", "delete_file", {"path": "b"}),
    ]

    out = agent.decide("t", {"2": approve(), "1": reject("keep it")}, actor="ann")

    assert removed == ["b"]
    assert results(out)["2"] == "deleted b"
    assert "keep it" in results(out)["1"]


def test_an_edit_runs_what_was_edited(home: Home) -> None:
    """With the arguments of the edit, once; a response stands for the result of another call."""
    removed: list[str] = []
    agent = gated(home, two_calls(), [remover(removed)])
    agent.invoke({"messages": [HumanMessage("clean up")]}, thread="t")

    out = agent.decide("t", {"1": edit({"path": "c"}), "2": respond("it is gone already")})

    assert removed == ["c"]
    assert results(out)["2"] == "it is gone already"


WRONG: dict[str, Any] = {
    "no decision for a call": ({"1": approve()}, "'2'.* is not decided"),
    "a call that is not asked about": ({"1": approve(), "3": approve()}, "'3' is none of its tool calls"),
    "one decision for two calls": (approve(), "decide each"),
    "LangChain's own, one too few": ({"decisions": [{"type": "approve"}]}, "1 decision.* for 2 tool call"),
    "LangChain's own, no such type": ({"decisions": [{"type": "aprove"}] * 2}, "no decision about"),
    "a word": ("yes", "decides nothing"),
    "an argument that the tool does not have": ({"1": edit({"pth": "c"}), "2": approve()}, "did you mean 'path'"),
    "an argument of another type": ({"1": edit({"path": 3}), "2": approve()}, "is not of type 'string'"),
    "an argument too few": ({"1": edit({}), "2": approve()}, "'path' is a required property"),
    "an edit into another tool": ({"1": edit({"path": "c"}, name="mail"), "2": approve()}, "cannot make 'mail'"),
    "a message that is none": ({"1": reject({"no": 1}), "2": approve()}, "must be a text"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_decision_that_does_not_fit_changes_nothing(home: Home, wrong: str) -> None:
    """It is refused with the reason and what is pending; the question waits, and the right decision is taken then."""
    removed: list[str] = []
    agent = gated(home, two_calls(), [remover(removed)])
    agent.invoke({"messages": [HumanMessage("clean up")]}, thread="t")
    (question,) = home.questions()
    before = home.statuses()
    decision, why = WRONG[wrong]

    with pytest.raises(InvalidDecisionError, match=why) as refused:
        agent.decide("t", decision)

    assert refused.value.pending == (question.interrupt_id,)
    assert (home.statuses(), home.decisions(), removed) == (before, [], [])
    agent.decide("t", {"1": approve(), "2": approve()})
    assert sorted(removed) == ["a", "b"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_a_decision_type_that_is_not_allowed_is_refused(home: Home, mode: Any) -> None:
    """By the middleware's own list, before anything is recorded."""
    removed: list[str] = []
    review = HumanInTheLoopMiddleware(
        interrupt_on={"delete_file": {"allowed_decisions": ["approve", "reject"]}}, interrupt_mode=mode
    )
    script = [AIMessage("", tool_calls=[call("delete_file", "1", path="a")]), AIMessage("done")]
    agent = home.protect(create_agent(Replies(replies=script), [remover(removed)], middleware=[review]))
    agent.invoke({"messages": [HumanMessage("clean up")]}, thread="t")

    with pytest.raises(InvalidDecisionError, match="'edit' is not allowed for 'delete_file', only approve, reject"):
        agent.decide("t", edit({"path": "b"}))

    agent.decide("t", approve())
    assert removed == ["a"]


@pytest.mark.parametrize("decision", ["approve", "edit", "reject"])
def test_a_review_of_each_call_takes_decisions_too(home: Home, decision: str) -> None:
    """`interrupt_mode="per_call"`: a question per call, known by its tool call id, its edit checked by the tool."""
    removed: list[str] = []
    agent = gated(home, two_calls(), [remover(removed)], interrupt_mode="per_call")
    agent.invoke({"messages": [HumanMessage("clean up")]}, thread="t")
    by_call = {q.actions[0].tool_call_id: q.interrupt_id for q in home.questions()}
    assert [q.kind for q in home.questions()] == ["call", "call"]

    with pytest.raises(InvalidDecisionError, match="did you mean 'path'"):
        agent.decide("t", edit({"pat": "c"}), interrupt_id=by_call["1"])
    choice = {"approve": approve(), "edit": edit({"path": "c"}), "reject": reject("no")}[decision]
    agent.decide("t", choice, interrupt_id=by_call["1"])
    agent.decide("t", approve())

    assert sorted(removed) == {"approve": ["a", "b"], "edit": ["b", "c"], "reject": ["b"]}[decision]


def test_a_rejected_call_does_not_run_by_another_way(home: Home) -> None:
    """A node that sends the last message to the tools again, past the gate: the call stays denied."""
    removed: list[str] = []
    made = remover(removed)

    def model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("", id="ai", tool_calls=[call("delete_file", "1", path="a")])]}

    def gate(state: MessagesState) -> dict[str, Any]:
        request = {"name": "delete_file", "args": {"path": "a"}, "description": ""}
        config = {"action_name": "delete_file", "allowed_decisions": ["approve", "reject"]}
        interrupt({"action_requests": [request], "review_configs": [config]})
        return {}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("gate", gate)
    graph.add_node("tools", ToolNode([made])).add_edge(START, "model").add_edge("model", "gate")
    graph.add_edge("gate", "tools").add_edge("tools", END)
    agent = home.protect(graph.compile())
    agent.invoke({"messages": []}, thread="t")

    out = agent.decide("t", reject(), actor="ann")

    assert removed == []
    assert "decided against by ann" in results(out)["1"]


def test_a_call_that_was_changed_after_its_approval_does_not_run(home: Home) -> None:
    """What a person approved is a name and arguments, not an id."""
    removed: list[str] = []

    def model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("", id="ai", tool_calls=[call("delete_file", "1", path="a")])]}

    def gate(state: MessagesState) -> dict[str, Any]:
        request = {"name": "delete_file", "args": {"path": "a"}, "description": ""}
        config = {"action_name": "delete_file", "allowed_decisions": ["approve", "reject"]}
        interrupt({"action_requests": [request], "review_configs": [config]})
        return {"messages": [AIMessage("", id="ai", tool_calls=[call("delete_file", "1", path="everything")])]}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("gate", gate)
    graph.add_node("tools", ToolNode([remover(removed)])).add_edge(START, "model").add_edge("model", "gate")
    graph.add_edge("gate", "tools").add_edge("tools", END)
    changed = home.protect(graph.compile(), name="changed")
    changed.invoke({"messages": []}, thread="u")

    out = changed.decide("u", approve())

    assert removed == []
    assert "not the one that was approved" in results(out)["1"]


# -- declared by the settings ----------------------------------------------------------------------------------------


def test_a_tool_is_an_act_by_its_name_in_the_settings(home: Home) -> None:
    """The graph is not edited: the tool's acts are recorded, and not repeated; also in an agent within a tool."""
    paid: list[str] = []

    def charge(order: str) -> str:
        """Charge."""
        paid.append(order)
        return f"charged {order}"

    def fail_once(what: str) -> str:
        """Fail."""
        if len(paid) == 1 and what not in failed:
            failed.append(what)
            raise RuntimeError("after the act")
        return what

    failed: list[str] = []
    tools = [StructuredTool.from_function(charge), StructuredTool.from_function(fail_once)]
    script = [AIMessage("", tool_calls=[call("charge", "1", order="o1")]), AIMessage("ok")]
    inner = create_agent(Replies(replies=script), [tools[0]])

    def helper(task: str) -> str:
        """Have it done, and then fail."""
        out = inner.invoke({"messages": [HumanMessage(task)]})
        fail_once(task)
        return str(out["messages"][-1].content)

    settings = Settings(effects=EffectsSettings(tools={"charge": EffectRule()}))
    agent = bare(home, [StructuredTool.from_function(helper)], [call("helper", "h", task="pay")], settings=settings)
    with pytest.raises(RuntimeError):
        agent.invoke({"messages": []}, thread="t")

    agent.continue_run("t")

    assert paid == ["o1"]
    assert [(one.name, one.call_id) for one in home.effects()] == [("charge", "1")]


def test_what_the_code_marks_stays_as_it_is(home: Home) -> None:
    """A tool that is an act already is not made one twice."""
    paid: list[str] = []

    def charge(order: str) -> str:
        """Charge."""
        paid.append(order)
        return f"charged {order}"

    marked = effect(StructuredTool.from_function(charge))
    settings = Settings(effects=EffectsSettings(tools={"charge": EffectRule()}))
    agent = bare(home, [marked], [call("charge", "1", order="o1")], settings=settings)

    agent.invoke({"messages": []}, thread="t")

    assert paid == ["o1"]
    assert len(home.effects()) == 1


# -- histories stay well formed --------------------------------------------------------------------------------------


def well_formed(messages: Sequence[BaseMessage]) -> bool:
    """Each call of a model is followed by its tool message, exactly one, before anybody else speaks."""
    due: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in due:
                return False
            due.remove(message.tool_call_id)
        elif due:
            return False
        elif isinstance(message, AIMessage):
            due = [one["id"] or "" for one in message.tool_calls]
    return not due


def stopped(home: Home, tools: Sequence[Any], calls: list[dict[str, Any]], make: Any) -> tuple[Any, Replies]:
    """An agent on whose thread "t" a tool failed, so that its call has no result."""
    model = Replies(replies=[AIMessage("", tool_calls=calls), AIMessage("well"), AIMessage("well")])
    agent = home.protect(make(model, [*tools]))
    with pytest.raises(RuntimeError):
        agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    return agent, model


def deep(model: Any, tools: list[Any]) -> Any:
    from deepagents import create_deep_agent

    return create_deep_agent(model=model, tools=tools)


@pytest.mark.parametrize("make", [create_agent, deep], ids=["langchain", "deepagents"])
def test_a_new_input_finds_no_call_without_its_result(home: Home, make: Any) -> None:
    """One call had ended, one had not: the model is shown the one's real result, and that the other did not end."""

    def work(what: str) -> str:
        """Work."""
        if what == "bad":
            raise RuntimeError("bad")
        return f"did {what}"

    calls = [call("work", "1", what="good"), call("work", "2", what="bad")]
    agent, model = stopped(home, [StructuredTool.from_function(work)], calls, make)

    out = agent.invoke({"messages": [HumanMessage("never mind")]}, thread="t", on_unfinished="abandon")

    assert well_formed(model.shown[-1])
    assert results(out)["1"] == "did good"
    assert "not carried out" in results(out)["2"]
    assert out["messages"][-1].content == "well"


def test_an_act_that_may_have_happened_is_not_called_undone(home: Home) -> None:
    """The model is told that nobody knows; what is recorded as done is told with its result."""

    def charge(order: str) -> str:
        """Charge."""
        if order == "bad":
            raise RuntimeError("the line is dead")
        return f"charged {order}"

    made = effect(StructuredTool.from_function(charge))
    agent, model = stopped(home, [made], [call("charge", "1", order="bad")], create_agent)

    out = agent.invoke({"messages": [HumanMessage("never mind")]}, thread="t", on_unfinished="abandon")

    assert well_formed(model.shown[-1])
    assert "not known" in results(out)["1"]


def test_a_start_over_begins_well_formed(home: Home) -> None:
    """The turn before was abandoned and has left open calls; the next one, started over, still closes them."""

    def work(what: str) -> str:
        """Work."""
        tried.append(what)
        if len(tried) < 3:
            raise RuntimeError("bad")
        return f"did {what}"

    tried: list[str] = []
    agent, model = stopped(home, [StructuredTool.from_function(work)], [call("work", "1", what="bad")], create_agent)
    model.replies.insert(1, AIMessage("", tool_calls=[call("work", "2", what="bad")]))
    with pytest.raises(RuntimeError):
        agent.invoke({"messages": [HumanMessage("again")]}, thread="t", on_unfinished="abandon")

    out = agent.start_over("t")

    assert well_formed(model.shown[-1])
    assert [m.content for m in out["messages"] if isinstance(m, HumanMessage)] == ["go", "again"]


def test_a_question_that_is_dropped_leaves_no_call_open(home: Home) -> None:
    """Plain input on a thread that waits is refused; with the choice to abandon it, the gated call is closed."""
    removed: list[str] = []
    model = Replies(
        replies=[AIMessage("", tool_calls=[call("delete_file", "1", path="a")]), AIMessage("well"), AIMessage("well")]
    )
    review = HumanInTheLoopMiddleware(interrupt_on={"delete_file": True})
    agent = home.protect(create_agent(model, [remover(removed)], middleware=[review]))
    agent.invoke({"messages": [HumanMessage("go")]}, thread="t")
    with pytest.raises(UnfinishedRunError):
        agent.invoke({"messages": [HumanMessage("hello?")]}, thread="t")

    agent.invoke({"messages": [HumanMessage("never mind")]}, thread="t", on_unfinished="abandon")

    assert well_formed(model.shown[-1])
    assert removed == []
