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
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, hook_config
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from agents import SAFE_S, Home, Log, asks, chain, keeper_of
from models import Replies, call, results, well_formed
from ninelives import InvalidDecisionError, LeaseLostError, approve, edit, effect, reject, respond
from ninelives.config import EffectRule, EffectsSettings, Settings
from ninelives.model import ONE_USER


def bare(home: Home, tools: Sequence[Any], calls: Sequence[dict[str, Any]], **options: Any) -> Any:
    """An agent whose model makes these calls at once, and whose tool node gets them all in one task."""

    def model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("", id="ai", tool_calls=[*calls])]}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("tools", ToolNode([*tools]))
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    return home.protect(graph.compile(), **options)


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
    tasks = {question.task_id for question in home.questions()}
    agent.invoke(Command(resume={ids["delete a?"]: 1}), thread="t")
    kept = home.store.perform(home.store.list_calls(ONE_USER, "t", tasks))
    agent.decide("t", 2)

    assert [output.content for output in kept.values()] == ["a: 1"]
    assert home.store.perform(home.store.list_calls(ONE_USER, "t")) == {}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_graphs_in_calls_are_told_apart(home: Home, kind: str) -> None:
    """Three calls run a graph each: one is done, two ask. Answered one by one, each goes on in its own state."""
    ran: list[str] = []

    def quiet(state: Log) -> Any:
        ran.append("quiet")
        return {"log": ["quiet"]}

    def asking(word: str) -> Any:
        def before(state: Log) -> Any:
            ran.append(word)
            return {"log": [word]}

        def ask(state: Log) -> Any:
            return {"log": [str(interrupt(f"{word}?"))]}

        return chain(before, ask)

    graphs = {"q": chain(quiet), "x": asking("x"), "y": asking("y")}

    def use(which: str) -> str:
        return str(graphs[which].invoke(asks())["log"])

    async def ause(which: str) -> str:
        return str((await graphs[which].ainvoke(asks()))["log"])

    body: Any = {"func": use} if kind == "sync" else {"coroutine": ause}
    made = StructuredTool.from_function(**body, name="use", description="Use.")
    agent = bare(home, [made], [call("use", which, which=which) for which in "qxy"])
    ids = asked(agent.invoke({"messages": []}, thread="t"))

    left = asked(agent.invoke(Command(resume={ids["y?"]: "Y"}), thread="t"))
    out = agent.invoke(Command(resume={ids["x?"]: "X"}), thread="t")

    assert left == {"x?": ids["x?"]}
    assert results(out) == {"q": "['quiet']", "x": "['x', 'X']", "y": "['y', 'Y']"}
    assert sorted(ran) == ["quiet", "x", "y"]


def test_a_tool_node_inside_a_tool_asks_likewise(home: Home) -> None:
    """An agent called by a tool has a bare tool node of its own, beside another call that asks."""

    def inner_model(state: MessagesState) -> Any:
        return {"messages": [AIMessage("", id="in", tool_calls=[call("delete", name, name=name) for name in "ab"])]}

    inner = StateGraph(MessagesState).add_node("model", inner_model).add_node("tools", ToolNode([delete]))
    inner.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    helper = inner.compile()

    def delegate(what: str) -> str:
        said = helper.invoke({"messages": []})["messages"][1:]
        return ", ".join(str(message.content) for message in said)

    made = StructuredTool.from_function(delegate, name="delegate", description="Have it done.")
    agent = bare(home, [made, delete], [call("delegate", "1", what="x"), call("delete", "2", name="c")])

    ids = asked(agent.invoke({"messages": []}, thread="t"))
    assert {*ids} == {"delete a?", "delete b?", "delete c?"}
    agent.invoke(Command(resume={ids["delete b?"]: "B", ids["delete c?"]: "C"}), thread="t")
    out = agent.decide("t", "A")

    assert results(out) == {"1": "a: A, b: B", "2": "c: C"}


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_stream_shows_each_question(home: Home, asynchronous: bool) -> None:
    """Also what is streamed has both, under the ids that are answered; a plain answer is enough for the last one."""
    kind = adelete if asynchronous else delete
    agent = bare(home, [kind], [call(kind.name, name, name=name) for name in "ab"])

    async def streamed() -> list[Any]:
        return [part async for part in agent.astream({"messages": []}, thread="t")]

    parts = asyncio.run(streamed()) if asynchronous else list(agent.stream({"messages": []}, thread="t"))
    ids = {one.value: one.id for part in parts for one in part.get("__interrupt__", ())}
    agent.invoke(Command(resume={ids["delete a?"]: "A"}), thread="t")
    out = agent.invoke(Command(resume="B"), thread="t")

    assert {*ids.values()} == {question.interrupt_id for question in home.questions(pending_only=False)}
    assert results(out) == {"a": "a: A", "b": "b: B"}


def test_a_plain_answer_to_several_questions_is_refused(home: Home) -> None:
    """Nobody knows which of them it is for; nothing is changed."""
    agent = bare(home, [delete], [call("delete", name, name=name) for name in "ab"])
    agent.invoke({"messages": []}, thread="t")

    with pytest.raises(InvalidDecisionError, match="several questions are pending"):
        agent.invoke(Command(resume="yes"), thread="t")

    assert len(home.questions()) == 2
    assert home.statuses() == ["interrupted"]


def test_equal_calls_are_two_acts(home: Home) -> None:
    """One of two calls with the same id and arguments has ended: the other one's act is still to be done."""
    paid: list[str] = []

    @effect
    def charge(order: str) -> str:
        paid.append(order)
        return f"charge {len(paid)}"

    def pay(order: str) -> str:
        done = charge(order)
        if len(paid) == 2 and not failed:
            failed.append(order)
            raise RuntimeError("behind the act")
        return done

    failed: list[str] = []
    made = StructuredTool.from_function(pay, name="pay", description="Pay.")
    agent = bare(home, [made], [call("pay", "same", order="o"), call("pay", "same", order="o")])
    with pytest.raises(RuntimeError):
        agent.invoke({"messages": []}, thread="t")

    out = agent.continue_run("t")

    assert paid == ["o", "o"]
    assert sorted(m.content for m in out["messages"] if isinstance(m, ToolMessage)) == ["charge 1", "charge 2"]


async def test_async_calls_are_all_waited_for(home: Home) -> None:
    """One asks at once: the slow one beside it goes to its end, and is not run again."""
    ran: list[str] = []
    go = asyncio.Event()

    async def slow(what: str) -> str:
        ran.append(what)
        await asyncio.wait_for(go.wait(), SAFE_S)
        return what

    async def ask(what: str) -> str:
        go.set()
        return str(interrupt(what))

    tools = [StructuredTool.from_function(coroutine=f, name=f.__name__, description="x") for f in (slow, ask)]
    agent = bare(home, tools, [call("ask", "1", what="well?"), call("slow", "2", what="slow")])
    await agent.ainvoke({"messages": []}, thread="t")
    go.clear()

    out = await agent.adecide("t", "yes")

    assert results(out) == {"1": "yes", "2": "slow"}
    assert ran == ["slow"]


def test_outputs_of_every_kind_are_given_back(home: Home) -> None:
    """Errors that the tool node has made messages of, updates of the state, several messages at once."""

    class State(MessagesState):
        note: str

    ran: list[str] = []

    def fails(what: str) -> str:
        ran.append("fails")
        raise ValueError(what)

    def note(what: str) -> Any:
        ran.append("note")
        return Command(update={"note": what, "messages": [ToolMessage("noted", tool_call_id="2")]})

    def several(what: str) -> Any:
        ran.append("several")
        return [ToolMessage("more", tool_call_id="3"), Command(update={"messages": [HumanMessage(what, id="h")]})]

    def model(state: State) -> Any:
        kinds = enumerate(("fails", "note", "several", "delete"), 1)
        made = [call(name, str(n), what="x") for n, name in kinds if name != "delete"]
        return {"messages": [AIMessage("", id="ai", tool_calls=[*made, call("delete", "4", name="a")])]}

    tools = [StructuredTool.from_function(f, description="x") for f in (fails, note, several)]
    graph = StateGraph(State).add_node("model", model)
    graph.add_node("tools", ToolNode([*tools, delete], handle_tool_errors=True))
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    agent = home.protect(graph.compile())
    agent.invoke({"messages": []}, thread="t")

    out = agent.decide("t", "yes")

    assert sorted(ran) == ["fails", "note", "several"]
    assert out["note"] == "x"
    assert results(out).keys() == {"1", "2", "3", "4"}
    assert [m.status for m in out["messages"] if isinstance(m, ToolMessage) and m.tool_call_id == "1"] == ["error"]
    assert [m.content for m in out["messages"] if isinstance(m, HumanMessage)] == ["x"]


def test_what_cannot_be_recorded_by_itself_still_counts(home: Home) -> None:
    """An output that could not be loaded again is part of its step all the same; it is only made again."""

    class Odd:
        pass

    ran: list[str] = []

    def odd(what: str) -> Any:
        ran.append(what)
        return ToolMessage("odd", tool_call_id="1", additional_kwargs={"odd": Odd()} if len(ran) == 1 else {})

    made = StructuredTool.from_function(odd, description="Odd.")
    agent = bare(home, [made, delete], [call("odd", "1", what="x"), call("delete", "2", name="a")])
    agent.invoke({"messages": []}, thread="t")

    assert results(agent.decide("t", "yes")) == {"1": "odd", "2": "a: yes"}
    assert ran == ["x", "x"]


def test_a_lost_lease_stops_the_run_where_a_call_is_recorded(home: Home) -> None:
    """Somebody else has the run by now: nothing is recorded, and what the node does about errors does not help."""
    taken = threading.Event()

    def slow(what: str) -> str:
        if what == "a":
            home.store.perform(home.store.bury_worker(keeper_of(agent).worker().worker_id))
            home.neighbour().takes(home.runs()[0])
            taken.set()
        assert taken.wait(SAFE_S)
        return what

    made = StructuredTool.from_function(slow, description="Slow.")
    agent = bare(home, [made], [call("slow", n, what=n) for n in "ab"])

    with pytest.raises(LeaseLostError):
        agent.invoke({"messages": []}, thread="t")

    assert home.store.perform(home.store.list_calls(ONE_USER, "t")) == {}


def test_the_graph_of_the_user_is_not_changed(home: Home) -> None:
    """Its tool node and its tools are what they were."""
    node, calls = ToolNode([delete]), [call("delete", name, name=name) for name in "ab"]
    graph = StateGraph(MessagesState).add_node("model", lambda state: {"messages": [AIMessage("", tool_calls=calls)]})
    graph.add_node("tools", node).add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    before, attributes = {**vars(node)}, {**vars(delete)}

    home.protect(graph.compile()).invoke({"messages": []}, thread="t")

    assert vars(node) == before
    assert vars(delete) == attributes


@pytest.mark.parametrize("wrapped", ["behind a function", "with a config"])
def test_a_tool_node_may_be_part_of_a_node(home: Home, wrapped: str) -> None:
    """Behind another step, or bound to a config: its calls ask each for themselves."""
    node: Any = ToolNode([delete])
    bound = RunnableLambda(lambda state: state) | node if "function" in wrapped else node.with_config(tags=["x"])

    def model(state: MessagesState) -> Any:
        return {"messages": [AIMessage("", id="ai", tool_calls=[call("delete", name, name=name) for name in "ab"])]}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("tools", bound)
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    agent = home.protect(graph.compile())
    ids = asked(agent.invoke({"messages": []}, thread="t"))

    out = agent.invoke(Command(resume={ids["delete b?"]: "B", ids["delete a?"]: "A"}), thread="t")

    assert results(out) == {"a": "a: A", "b": "b: B"}


def test_a_call_of_its_own_task_is_not_recorded_twice(home: Home) -> None:
    """LangChain's agents give each call a task: its record is LangGraph's."""
    script = [AIMessage("", tool_calls=[call("delete", name, name=name) for name in "ab"]), AIMessage("done")]
    agent = home.protect(create_agent(Replies(replies=script), [delete]))
    ids = asked(agent.invoke({"messages": [HumanMessage("go")]}, thread="t"))
    tasks = {question.task_id for question in home.questions()}

    agent.invoke(Command(resume={ids["delete a?"]: 1}), thread="t")

    assert len(tasks) == 2
    assert home.store.perform(home.store.list_calls(ONE_USER, "t")) == {}


async def test_a_subagents_sync_tools_run_in_threads_of_the_run(home: Home) -> None:
    """So that the run is not let go of while one of them is alive, also on a loop of the caller's."""
    names: list[str] = []

    def look(what: str) -> str:
        names.append(threading.current_thread().name)
        return what

    script = [AIMessage("", tool_calls=[call("look", "1", what="x")]), AIMessage("ok")]
    inner = create_agent(Replies(replies=script), [StructuredTool.from_function(look, description="Look.")])

    async def helper(task: str) -> str:
        """Have it done."""
        out = await inner.ainvoke({"messages": [HumanMessage(task)]})
        return str(out["messages"][-1].content)

    agent = bare(home, [StructuredTool.from_function(coroutine=helper)], [call("helper", "h", task="look")])

    await agent.ainvoke({"messages": []}, thread="t")

    assert [name.startswith("ninelives") for name in names] == [True]


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


class Jumps(AgentMiddleware[Any, Any, Any]):
    """Sends the last message to the tools, whatever was decided about it."""

    @hook_config(can_jump_to=["tools"])
    def after_model(self, state: Any, runtime: Any) -> Any:
        last = next(m for m in reversed(state["messages"]) if isinstance(m, AIMessage))
        return {"jump_to": "tools"} if last.tool_calls else None


def test_a_middleware_that_jumps_to_the_tools_does_not_run_a_rejected_call(home: Home) -> None:
    """The executor refuses it, and the model keeps the one message that it got about the call."""
    removed: list[str] = []
    script = [AIMessage("", tool_calls=[call("delete_file", "1", path="a")]), AIMessage("done")]
    review = HumanInTheLoopMiddleware(interrupt_on={"delete_file": True})
    model = Replies(replies=script)
    agent = home.protect(create_agent(model, [remover(removed)], middleware=[Jumps(), review]))
    agent.invoke({"messages": [HumanMessage("clean up")]}, thread="t")

    out = agent.decide("t", reject("keep it"))

    assert removed == []
    assert "keep it" in results(out)["1"]
    assert well_formed(model.shown[-1])


def test_a_decision_holds_for_its_own_message_only(home: Home) -> None:
    """A model that gives its calls the same ids again: what was rejected once says nothing about the next message."""
    removed: list[str] = []

    def look(path: str) -> str:
        """Look."""
        return f"looked at {path}"

    script = [AIMessage("", tool_calls=[call("delete_file", "1", path="a")])]
    script += [AIMessage("", tool_calls=[call("look", "1", path="a")]), AIMessage("done")]
    agent = gated(home, script, [remover(removed), StructuredTool.from_function(look)])
    agent.invoke({"messages": [HumanMessage("clean up")]}, thread="t")

    out = agent.decide("t", reject("keep it"))

    assert removed == []
    assert results(out)["1"] == "looked at a"


def reviewed_by_hand(home: Home, tools: ToolNode) -> Any:
    """A graph whose gate is a node of its own, and whose tool node knows nothing of what is decided there."""

    def model(state: MessagesState) -> Any:
        return {"messages": [AIMessage("", id="ai", tool_calls=[call("delete_file", "1", path="a")])]}

    def gate(state: MessagesState) -> Any:
        request = {"name": "delete_file", "args": {"path": "a"}, "description": ""}
        allowed = {"action_name": "delete_file", "allowed_decisions": ["approve", "edit", "reject"]}
        interrupt({"action_requests": [request], "review_configs": [allowed]})
        return {}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("gate", gate).add_node("tools", tools)
    graph.add_edge(START, "model").add_edge("model", "gate").add_edge("gate", "tools").add_edge("tools", END)
    return home.protect(graph.compile())


def test_a_call_that_was_edited_does_not_run_as_it_was(home: Home) -> None:
    """A graph that forgets the edit: nothing runs that nobody approved."""
    removed: list[str] = []
    agent = reviewed_by_hand(home, ToolNode([remover(removed)]))
    agent.invoke({"messages": []}, thread="t")

    out = agent.decide("t", edit({"path": "b"}))

    assert removed == []
    assert "not the one that was approved" in results(out)["1"]


@pytest.mark.parametrize(("wrapper", "ran"), [("adds", ["a for ann"]), ("changes", [])])
def test_a_wrapper_may_add_to_an_approved_call_but_not_change_it(home: Home, wrapper: str, ran: list[str]) -> None:
    """What people were shown must be what the tool gets, right before it runs."""
    removed: list[str] = []

    def delete_file(path: str, user: str = "") -> str:
        removed.append(f"{path} for {user}")
        return "deleted"

    def wrap(request: Any, execute: Any) -> Any:
        more = {"user": "ann"} if wrapper == "adds" else {"path": "everything"}
        return execute(request.override(tool_call={**request.tool_call, "args": {**request.tool_call["args"], **more}}))

    made = StructuredTool.from_function(delete_file, description="Delete.")
    agent = reviewed_by_hand(home, ToolNode([made], wrap_tool_call=wrap))
    agent.invoke({"messages": []}, thread="t")

    out = agent.decide("t", approve())

    assert removed == ran
    assert ("not the one that was approved" in results(out)["1"]) == (wrapper == "changes")


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


@pytest.mark.parametrize("where", ["the graph's own tool node", "a subagent's"])
def test_a_sync_tool_that_the_settings_declare_is_not_cut_off(home: Home, where: str) -> None:
    """Nobody can cut off a thread: its time limit is its own word, and its result counts though it came later."""

    def slow(order: str) -> str:
        """Be slow."""
        threading.Event().wait(0.1)
        return f"charged {order}"

    made = StructuredTool.from_function(slow)
    settings = Settings(effects=EffectsSettings(tools={"slow": EffectRule(timeout_s=0.01)}))
    script = [AIMessage("", tool_calls=[call("slow", "1", order="o")]), AIMessage("ok")]
    inner = create_agent(Replies(replies=script), [made])

    async def helper(task: str) -> str:
        """Have it done."""
        return str((await inner.ainvoke({"messages": [HumanMessage(task)]}))["messages"][-1].content)

    if where == "a subagent's":
        delegates = StructuredTool.from_function(coroutine=helper)
        agent = bare(home, [delegates], [call("helper", "h", task="x")], settings=settings)
    else:
        agent = bare(home, [made], [call("slow", "1", order="o")], settings=settings)

    agent.invoke({"messages": []}, thread="t")

    assert [(act.state, act.result) for act in home.effects()] == [("done", "charged o")]
