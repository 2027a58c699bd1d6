"""What fails is told, kept, and goes on from where it failed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.errors import GraphRecursionError, NodeError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

from agents import SAFE_S, Home, Log, asks, chain, config, fan, step
from ninelives import GraphChangedError, UnknownTypeError
from ninelives.model import RunStatus


class Broken:
    """A node that raises until mended."""

    def __init__(self, home: Home, word: str, error: BaseException | None = None) -> None:
        self._outside, self.__name__ = home.outside, word
        self.error: BaseException | None = error or ConnectionRefusedError("no")

    def __call__(self, state: Log) -> Any:
        self._outside.happens(self.__name__)
        if self.error:
            raise self.error
        return {"log": [self.__name__]}


# -- a node raises ---------------------------------------------------------------------------------------------


def test_a_failed_run_keeps_its_cause_and_goes_on(home: Home) -> None:
    """The node's own exception comes out; the run is `failed` with its cause; continue runs only what is left."""
    b = Broken(home, "b", ValueError("seven is no colour"))
    agent = home.protect(chain(step("a", home.outside), b, step("c", home.outside)))

    with pytest.raises(ValueError, match="seven is no colour") as raised:
        agent.invoke(asks("in"), thread="t")
    assert raised.value is b.error
    (run,) = home.runs()
    assert (run.status, run.cause) == (RunStatus.FAILED, "ValueError('seven is no colour')")

    b.error = None
    assert agent.continue_run("t") == asks("in", "a", "b", "c")
    assert home.outside.seen == ["a", "b", "b", "c"]
    (run,) = home.runs()
    assert (run.status, run.cause, run.attempt) == (RunStatus.DONE, None, 2)


def test_a_very_long_cause_is_cut(home: Home) -> None:
    """A cause is for reading: it has a limit."""
    agent = home.protect(chain(Broken(home, "b", ValueError("x" * 10_000))))

    with pytest.raises(ValueError, match="xxx"):
        agent.invoke(asks(), thread="t")

    assert len(home.runs()[0].cause or "") == 500


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_siblings_of_a_failing_task_finish_and_are_kept(home: Home, kind: str) -> None:
    """A failing task does not take down those beside it: they end, are recorded, and do not run again."""
    failed = threading.Event()
    broken = [True]

    def bad(state: Log) -> Any:
        if broken:
            failed.set()
            raise ConnectionRefusedError("no")
        return {"log": ["bad"]}

    def good(state: Log) -> Any:
        assert failed.wait(SAFE_S)
        home.outside.happens("good")
        return {"log": ["good"]}

    async def agood(state: Log) -> Any:
        await asyncio.to_thread(failed.wait, SAFE_S)
        await asyncio.sleep(0)
        home.outside.happens("good")
        return {"log": ["good"]}

    agood.__name__ = "good"
    agent = home.protect(fan(bad, good if kind == "sync" else agood))
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t")
    broken.clear()

    assert sorted(agent.continue_run("t")["log"]) == ["bad", "good"]
    assert home.outside.seen == ["good"]


def test_one_of_several_failures_is_told(home: Home) -> None:
    """Two tasks fail at once: one of the exceptions comes out, both run again."""
    nodes = [Broken(home, word) for word in "xy"]
    agent = home.protect(fan(*nodes))
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t")
    for node in nodes:
        node.error = None

    assert sorted(agent.continue_run("t")["log"]) == ["x", "y"]


def test_a_failing_send_alone_runs_again(home: Home) -> None:
    """Of many `Send` tasks only the one that failed runs again, with its own argument."""
    broken = [True]

    def work(order: Any) -> Any:
        home.outside.happens(str(order["i"]))
        if order["i"] == 2 and broken:
            raise ConnectionRefusedError("no")
        return {"log": [str(order["i"])]}

    graph: Any = StateGraph(Log)
    graph.add_node("work", work)
    graph.add_conditional_edges(START, lambda _: [Send("work", {"i": i}) for i in range(5)], ["work"])
    agent = home.protect(graph.compile())
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t")
    broken.clear()

    assert agent.continue_run("t") == asks(*"01234")
    assert sorted(home.outside.seen) == ["0", "1", "2", "2", "3", "4"]


def test_an_error_handler_ends_the_matter(home: Home) -> None:
    """A node's own error handler is LangGraph's, and the run is done."""

    def handler(state: Log, error: NodeError) -> Any:
        return Command(update={"log": [f"handled {error.node}"]}, goto="c")

    graph: Any = StateGraph(Log)
    graph.add_node("b", Broken(home, "b"), error_handler=handler)
    graph.add_node("c", step("c"))
    graph.add_edge(START, "b").add_edge("c", END)

    assert home.protect(graph.compile()).invoke(asks("in"), thread="t") == asks("in", "handled b", "c")
    assert home.statuses() == ["done"]


def test_a_finished_handler_does_not_run_again_when_a_sibling_fails(home: Home) -> None:
    """Its completion is a task's result like any other."""

    def handler(state: Log, error: NodeError) -> Any:
        home.outside.happens("handler")
        return {"log": ["handled"]}

    other = Broken(home, "other")
    graph: Any = StateGraph(Log)
    graph.add_node("b", Broken(home, "b"), error_handler=handler)
    graph.add_node("other", other)
    for name in ("b", "other"):
        graph.add_edge(START, name).add_edge(name, END)
    agent = home.protect(graph.compile())
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t")
    other.error = None

    assert sorted(agent.continue_run("t")["log"]) == ["handled", "other"]
    assert home.outside.times("handler") == 1
    assert home.outside.times("b") == 1


def test_a_retry_policy_is_langgraphs(home: Home) -> None:
    """Retries inside a node are its own matter: the run is done, and nothing is told."""
    attempts = []

    def n(state: Log) -> Any:
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionError("try again")
        return {"log": ["n"]}

    graph = StateGraph(Log)
    graph.add_node("n", n, retry_policy=RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False))
    graph.add_edge(START, "n")

    assert home.protect(graph.compile()).invoke(asks(), thread="t") == asks("n")
    assert len(attempts) == 3


@pytest.mark.parametrize("place", ["root", "subgraph"])
def test_a_router_that_raised_routes_again(home: Home, place: str) -> None:
    """An error in a conditional edge is no silent end: continued, the node runs again and is routed."""
    broken = [True]

    def route(state: Log) -> str:
        if broken:
            raise ConnectionRefusedError("the router")
        return "sink"

    graph = StateGraph(Log).add_node("n", step("n")).add_node("sink", step("sink", home.outside)).add_edge(START, "n")
    graph.add_conditional_edges("n", route, ["sink"])
    compiled = graph.compile()
    if place == "subgraph":
        outer = StateGraph(Log).add_node("inner", compiled).add_edge(START, "inner").add_edge("inner", END)
        compiled = outer.compile()
    agent = home.protect(compiled)
    with pytest.raises(ConnectionRefusedError, match="the router"):
        agent.invoke(asks(), thread="t")
    assert agent.get_state(config()).next
    assert home.statuses() == ["failed"]
    broken.clear()

    assert agent.continue_run("t") == asks("n", "sink")
    assert home.outside.seen == ["sink"]


def test_a_recursion_limit_is_a_failure_that_can_be_continued(home: Home) -> None:
    """Out of steps: the run failed with LangGraph's error; continued with more, it goes on where it was."""
    agent = home.protect(chain(*(step(word, home.outside) for word in "abcd")))
    with pytest.raises(GraphRecursionError):
        agent.invoke(asks("in"), {"recursion_limit": 2}, thread="t")
    assert home.statuses() == ["failed"]

    out = agent.continue_run("t", {"recursion_limit": 10})

    assert out == asks("in", *"abcd")
    assert home.outside.seen == [*"abcd"]


def test_a_stop_iteration_does_not_hang(home: Home) -> None:
    """A future cannot carry `StopIteration`; the run fails and says so."""
    agent = home.protect(chain(Broken(home, "b", StopIteration("gone"))))

    with pytest.raises(RuntimeError, match="StopIteration"):
        agent.invoke(asks(), thread="t")

    assert home.statuses() == ["failed"]


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError("by the node")])
async def test_a_node_that_ends_everything_lets_go(home: Home, error: BaseException) -> None:
    """`SystemExit` or a cancellation from inside: the run is not `done`, and can be continued."""
    b = Broken(home, "b", error)
    agent = home.protect(chain(step("a", home.outside), b))
    with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever LangGraph makes of it
        agent.invoke(asks("in"), thread="t")
    assert home.statuses()[0] in ("queued", "failed")
    b.error = None

    assert agent.continue_run("t") == asks("in", "a", "b")
    assert home.outside.times("a") == 1


async def test_a_cancelled_call_lets_go_when_its_threads_have_ended(home: Home) -> None:
    """
    `ainvoke` cancelled while a sync node is at work in a thread: the run stays claimed until that call has ended, and
    only then may anybody begin it again.
    """
    inside, go = threading.Event(), threading.Event()

    def wait() -> None:
        if home.outside.once("cancelled"):
            inside.set()
            assert go.wait(SAFE_S)

    agent = home.protect(chain(step("a", None, wait)))
    call = asyncio.ensure_future(agent.ainvoke(asks("in"), thread="t"))
    assert await asyncio.to_thread(inside.wait, SAFE_S)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    held = home.statuses()
    go.set()
    out = await agent.ainvoke(None, thread="t", wait_s=SAFE_S)

    assert held == ["running"]
    assert out == asks("in", "a")


async def test_a_call_that_timed_out_can_be_continued(home: Home) -> None:
    """`asyncio.timeout` around `ainvoke` lets go of an async run at once."""

    async def b(state: Log) -> Any:
        if home.outside.once("timed out"):
            await asyncio.Event().wait()
        return {"log": ["b"]}

    agent = home.protect(chain(step("a", home.outside), b))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await agent.ainvoke(asks("in"), thread="t")

    assert home.statuses() == ["queued"]
    assert await agent.ainvoke(None, thread="t") == asks("in", "a", "b")
    assert home.outside.times("a") == 1


def test_calls_that_a_failing_tool_node_leaves_behind_are_waited_for(home: Home) -> None:
    """A tool node that fails does not wait for its other calls; the run is not let go of before they have ended."""
    failed = threading.Event()

    @tool
    def slow() -> str:
        """Work."""
        assert failed.wait(SAFE_S)
        threading.Event().wait(0.2)
        home.outside.happens("slow has ended")
        return "slow"

    @tool
    def bad() -> str:
        """Fail."""
        failed.set()
        raise ConnectionRefusedError("no")

    def model(state: Any) -> Any:
        calls: list[Any] = [{"name": name, "args": {}, "id": name, "type": "tool_call"} for name in ("slow", "bad")]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    graph = StateGraph(MessagesState).add_node("model", model)
    graph.add_node("tools", ToolNode([slow, bad], handle_tool_errors=False))
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    agent = home.protect(graph.compile())

    with pytest.raises(ConnectionRefusedError):
        agent.invoke({"messages": []}, thread="t")

    assert home.outside.seen == ["slow has ended"]


# -- values ----------------------------------------------------------------------------------------------------


class Anything(TypedDict, total=False):
    thing: Any
    log: Annotated[list[str], lambda a, b: a + b]


class Homemade:
    pass


@pytest.mark.parametrize(("where", "path"), [("node", "channel_values"), ("input", "input")])
def test_a_value_that_could_not_come_back_is_refused_when_written(home: Home, where: str, path: str) -> None:
    """An unknown type is refused with its path and name, before it is lost; the thread is usable afterwards."""
    thing: list[Any] = [{"deep": [Homemade()]}]

    def n(state: Anything) -> Any:
        return {"thing": thing[0], "log": ["n"]}

    agent = home.protect(chain(n, schema=Anything))
    given = {"log": ["in"], **({"thing": thing[0]} if where == "input" else {})}

    with pytest.raises(UnknownTypeError, match=r"Homemade is not a type that may be stored.*allow") as refused:
        agent.invoke(given, thread="t")

    assert refused.value.path.endswith(f"{path}.thing.deep[0]")
    thing[0] = "a word"
    out = agent.continue_run("t") if where == "node" else agent.invoke({"log": ["in"]}, thread="t")
    assert out == {"log": ["in", "n"], "thing": "a word"}


@dataclass
class Order:
    number: int


class Shop(TypedDict, total=False):
    order: Order
    orders: list[Order]


def test_types_of_the_schema_and_those_allowed_are_stored(home: Home) -> None:
    """What the schema names may be stored, and what `allow=` names; both come back as they were."""

    @dataclass
    class Extra:
        word: str

    def n(state: Any) -> Any:
        return {"thing": Extra("x")}

    def ask(state: Any) -> Any:
        interrupt("?")
        return {"log": [type(state["thing"]).__name__]}

    agent = home.protect(chain(n, ask, schema=Anything), allow=[Extra])
    agent.invoke({}, thread="t")
    out = agent.invoke(Command(resume=1), thread="t")
    assert (out["thing"], out["log"]) == (Extra("x"), ["Extra"])

    def sell(state: Shop) -> Any:
        return {}

    shop = home.protect(chain(sell, schema=Shop), name="shop")
    assert shop.invoke({"order": Order(1), "orders": [Order(2)]}, thread="s")["order"] == Order(1)
    assert shop.get_state(config("s")).values == {"order": Order(1), "orders": [Order(2)]}


def test_collections_keep_their_kind_across_a_pause(home: Home) -> None:
    """After a pause a node gets tuple, set, Counter, defaultdict, deque as such, not as list and dict."""
    from collections import Counter, defaultdict

    things = {
        "tuple": (1, 2),
        "set": {1},
        "counter": Counter("aa"),
        "ordered": OrderedDict(z=1, a=2),
        "default": defaultdict(list, x=[1]),
        "deque": deque([1, 2], maxlen=2),
    }
    seen: dict[str, Any] = {}

    def n(state: Anything) -> Any:
        return {"thing": things}

    def ask(state: Anything) -> Any:
        seen.update(state["thing"])
        interrupt("?")
        return {}

    agent = home.protect(chain(n, ask, schema=Anything))
    agent.invoke({}, thread="t")
    agent.invoke(Command(resume=1), thread="t")

    assert seen == things
    assert {name: type(value) for name, value in seen.items()} == {name: type(value) for name, value in things.items()}
    assert seen["deque"].maxlen == 2
    assert seen["default"]["new"] == []


# -- another graph than before ---------------------------------------------------------------------------------


def paused(home: Home, *words: str) -> None:
    """A thread "t" that waits before its last node."""
    agent = home.protect(chain(*map(step, words), interrupt_before=[words[-1]]))
    agent.invoke(asks("in"), thread="t")


def test_a_pending_node_that_is_gone_is_told(home: Home) -> None:
    """Renamed where a thread waits: continue, and input are refused with the node's name; rolled back it goes on."""
    paused(home, "a", "review")
    renamed = home.protect(chain(step("a"), step("review_v2")))

    calls: list[Callable[[], Any]] = [
        lambda: renamed.continue_run("t"),
        lambda: renamed.invoke(None, thread="t"),
        lambda: renamed.invoke(asks("x"), thread="t", on_unfinished="continue"),
    ]
    for call in calls:
        with pytest.raises(GraphChangedError, match=r"thread 't': node 'review' is pending but gone; nothing ran"):
            call()

    assert home.protect(chain(step("a"), step("review"))).continue_run("t") == asks("in", "a", "review")


def test_a_question_whose_node_is_gone_is_told(home: Home) -> None:
    """An answer is not swallowed by a graph that has no place for it, and can be given to the right one."""

    def ask(state: Log) -> Any:
        return {"log": [interrupt("?")]}

    home.protect(chain(step("a"), ask)).invoke(asks("in"), thread="t")
    renamed = home.protect(chain(step("a"), step("other")))

    with pytest.raises(GraphChangedError, match="node 'ask' is pending but gone"):
        renamed.invoke(Command(resume="yes"), thread="t")

    right = home.protect(chain(step("a"), ask))
    out = right.continue_run("t")
    out = right.invoke(Command(resume="yes"), thread="t") if "__interrupt__" in out else out
    assert out == asks("in", "a", "yes")


@pytest.mark.parametrize("choice", ["start_over", "abandon"])
def test_a_thread_that_lost_its_node_can_be_given_up(home: Home, choice: Any) -> None:
    """What the refusal advises works: started over or abandoned, the new graph runs."""
    paused(home, "a", "review")
    renamed = home.protect(chain(step("a"), step("review_v2")))

    out = renamed.invoke(asks("new"), thread="t", on_unfinished=choice)

    assert out["log"][-3:] == ["new", "a", "review_v2"]


def test_a_pending_send_to_a_node_that_is_gone_is_told(home: Home) -> None:
    """Likewise for a `Send`."""

    def graph(target: str, broken: bool) -> Any:
        def work(order: Any) -> Any:
            if broken:
                raise ConnectionRefusedError("no")
            return {"log": ["work"]}

        built = StateGraph(Log).add_node("plan", step("plan"))
        built.add_node(target, work).add_edge(START, "plan")  # type: ignore[arg-type]
        built.add_conditional_edges("plan", lambda _: [Send(target, {"i": 1})], [target])
        return built.compile()

    with pytest.raises(ConnectionRefusedError):
        home.protect(graph("work", True)).invoke(asks(), thread="t")

    with pytest.raises(GraphChangedError, match="a Send to node 'work' is pending but the node is gone"):
        home.protect(graph("labour", False)).continue_run("t")


def test_state_that_would_be_dropped_is_told(home: Home) -> None:
    """A state key that the new graph lacks is named."""

    class Noted(Log):
        note: str

    def a(state: Noted) -> Any:
        return {"log": ["a"], "note": "kept"}

    home.protect(chain(a, step("b"), schema=Noted, interrupt_before=["b"])).invoke(asks("in"), thread="t")

    with pytest.raises(GraphChangedError, match="state key 'note' is stored but gone"):
        home.protect(chain(step("a"), step("b"))).continue_run("t")


def test_other_changes_are_noted_and_go_on(home: Home, caplog: Any) -> None:
    """A new node behind, a new state key, a changed edge: logged, and the thread goes on."""
    paused(home, "a", "b")

    class More(Log):
        note: str

    with caplog.at_level(logging.INFO, logger="ninelives"):
        out = home.protect(chain(step("a"), step("b"), step("c"), schema=More)).continue_run("t")

    assert out["log"] == ["in", "a", "b", "c"]
    assert "goes on with a changed graph" in caplog.text


def test_changed_code_is_no_changed_graph(home: Home, caplog: Any) -> None:
    """A fixed bug or prompt keeps the fingerprint: nothing is told."""
    paused(home, "a", "b")

    def b(state: Log) -> Any:
        return {"log": ["b, mended"]}

    with caplog.at_level(logging.INFO, logger="ninelives"):
        out = home.protect(chain(step("a"), b, interrupt_before=["b"])).continue_run("t")

    assert out == asks("in", "a", "b, mended")
    assert "changed graph" not in caplog.text


def test_a_finished_thread_takes_any_graph_that_keeps_its_state(home: Home) -> None:
    """Nothing is pending: new input on a graph with other nodes is fine."""
    home.protect(chain(step("a"), step("b"))).invoke(asks("in"), thread="t")

    assert home.protect(chain(step("x"))).invoke(asks("more"), thread="t") == asks("in", "a", "b", "more", "x")


# -- messages that stay well formed ----------------------------------------------------------------------------


def test_a_failed_tool_call_is_finished_before_the_next_turn(home: Home) -> None:
    """`continue` with new input finishes the cut-off tool first: no AI message is left without its tool result."""
    broken = [True]

    @tool
    def work() -> str:
        """Work."""
        if broken:
            raise ConnectionRefusedError("no")
        return "worked"

    def model(state: Any) -> Any:
        if state["messages"][-1].type == "human":
            return {
                "messages": [
                    AIMessage("", tool_calls=[{"name": "work", "args": {}, "id": f"c{len(state['messages'])}"}])
                ]
            }
        return {"messages": [AIMessage("done")]}

    graph = StateGraph(MessagesState).add_node("model", model)
    graph.add_node("tools", ToolNode([work], handle_tool_errors=False)).add_edge(START, "model")
    graph.add_conditional_edges("model", lambda s: "tools" if s["messages"][-1].tool_calls else END, ["tools", END])
    graph.add_edge("tools", "model")
    agent = home.protect(graph.compile())
    with pytest.raises(ConnectionRefusedError):
        agent.invoke({"messages": [("user", "one")]}, thread="t")
    broken.clear()

    out = agent.invoke({"messages": [("user", "two")]}, thread="t", on_unfinished="continue")

    kinds = [message.type for message in out["messages"]]
    assert kinds == ["human", "ai", "tool", "ai"] * 2
    assert [m.content for m in out["messages"] if isinstance(m, ToolMessage)] == ["worked"] * 2
