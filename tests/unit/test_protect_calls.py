"""A protected graph is called as the graph it was, by every way that LangGraph offers."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from agents import SAFE_S, Home, Log, asks, chain, config, fan, step
from ninelives import ConfigError
from ninelives.model import Started

DONE = asks("in", "a", "b")


@pytest.fixture
def agent(home: Home) -> Any:
    return home.protect(chain(step("a"), step("b")))


# -- one call after the other ----------------------------------------------------------------------------------


def test_invoke_returns_what_the_plain_graph_returns(agent: Any) -> None:
    """`invoke` with `thread=` gives the graph's own output."""
    assert agent.invoke(asks("in"), thread="t") == DONE


def test_thread_may_be_named_as_langgraph_does(agent: Any, home: Home) -> None:
    """`config["configurable"]["thread_id"]` names the thread as well as `thread=` does, and numbers are text."""
    agent.invoke(asks("in"), config("t"))
    agent.invoke(asks("in"), {"configurable": {"thread_id": 7}})

    assert home.statuses("t") == home.statuses("7") == ["done"]


async def test_ainvoke_runs_on_the_callers_loop(home: Home) -> None:
    """`ainvoke` drives async nodes on the loop that it is awaited on."""
    loops = []

    async def a(state: Log) -> Any:
        loops.append(asyncio.get_running_loop())
        return {"log": ["a"]}

    out = await home.protect(chain(a)).ainvoke(asks("in"), thread="t")

    assert out == asks("in", "a")
    assert loops == [asyncio.get_running_loop()]


@pytest.mark.parametrize("mode", ["values", "updates", ["values", "updates"], "tasks", "debug", "checkpoints"])
def test_stream_gives_what_the_plain_graph_streams(agent: Any, mode: Any) -> None:
    """Every stream mode yields as many chunks, of the same kinds, as the graph without us."""
    from langgraph.checkpoint.memory import InMemorySaver

    plain = chain(step("a"), step("b"), checkpointer=InMemorySaver())

    ours = [*agent.stream(asks("in"), thread="t", stream_mode=mode)]

    theirs = [*plain.stream(asks("in"), config("t"), stream_mode=mode)]
    assert len(ours) == len(theirs)
    assert ours == theirs or mode in ("tasks", "debug", "checkpoints")


async def test_astream_yields_each_update(agent: Any) -> None:
    """`astream` yields updates one by one."""
    chunks = [chunk async for chunk in agent.astream(asks("in"), thread="t", stream_mode="updates")]

    assert chunks == [{"a": {"log": ["a"]}}, {"b": {"log": ["b"]}}]


def test_a_stream_that_is_closed_early_leaves_a_run_to_continue(home: Home) -> None:
    """Whoever stops reading a stream lets go of the run; continued, it runs what is left and nothing twice."""
    agent = home.protect(chain(step("a", home.outside), step("b", home.outside)))
    chunks = agent.stream(asks("in"), thread="t", stream_mode="updates")
    next(chunks)

    chunks.close()

    assert home.statuses() == ["queued"]
    assert agent.continue_run("t") == DONE
    assert home.outside.seen == ["a", "b"]


def test_a_stream_that_is_dropped_in_a_program_that_ends_is_let_go_of(home: Home, caplog: Any) -> None:
    """`break` out of `async for`, and the loop is shut down right away: the run is let go of, without a complaint."""

    async def b(state: Log) -> Any:
        return {"log": ["b"]}

    agent = home.protect(chain(step("a", home.outside), b))

    async def main() -> None:
        async for _ in agent.astream(asks("in"), thread="t", stream_mode="updates"):
            break

    asyncio.run(main())

    assert home.statuses() == ["queued"]
    assert [record for record in caplog.records if record.name == "asyncio"] == []
    assert agent.continue_run("t") == DONE
    assert home.outside.seen == ["a"]


async def test_closing_a_stream_lets_go_of_the_run_before_it_returns(home: Home) -> None:
    """After `aclose()` nothing of the run is at work, and it can be continued at once."""
    ended = []

    async def b(state: Log) -> Any:
        if home.outside.once("closed"):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("b")
        return {"log": ["b"]}

    agent = home.protect(chain(step("a"), b))
    chunks = agent.astream(asks("in"), thread="t", stream_mode="updates")
    await anext(chunks)

    await chunks.aclose()

    assert home.statuses() == ["queued"]
    assert ended == (["b"] if "closed" in home.outside.seen else [])
    home.outside.once("closed")
    assert await agent.ainvoke(None, thread="t") == DONE


@pytest.mark.parametrize("typo", ["idempotencykey", "on_unfinishd", "threads"])
def test_a_mistyped_argument_is_refused(agent: Any, home: Home, typo: str) -> None:
    """LangGraph passes over what it does not know; here a typo would be a lost promise, so nothing runs."""
    with pytest.raises(TypeError, match=f"'{typo}' is not an argument of this call; nothing ran. Did you mean"):
        agent.invoke(asks("in"), thread="t", **{typo: "x"})

    assert home.runs() == []


def test_an_unknown_choice_is_refused(home: Home, agent: Any) -> None:
    """A choice that nobody knows is not taken for another one."""
    for wrong in ({"on_unfinished": "resume"}, {"if_missing": "no"}):
        with pytest.raises(ConfigError, match="is not a choice; allowed: '"):
            agent.invoke(asks("in"), thread="t", **wrong)
        with pytest.raises(ConfigError, match="is not a choice; allowed: '"):
            home.protect(chain(step("a")), **wrong)


def test_on_start_that_raises_lets_go_of_the_run(agent: Any, home: Home) -> None:
    """The request is in the store, nothing has run, and it can be continued."""

    def refuse(started: Started) -> None:
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        agent.invoke(asks("in"), thread="t", on_start=refuse)

    assert home.statuses() == ["queued"]
    assert agent.continue_run("t") == DONE


async def test_a_call_cancelled_while_it_is_admitted_holds_nothing(agent: Any, home: Home) -> None:
    """Cancelled while the store is at its request: whatever was claimed meanwhile is let go of."""
    at_it, go = threading.Event(), threading.Event()

    def slow(*point: str) -> None:
        if point == ("start_run", "commit", "before"):
            at_it.set()
            assert go.wait(SAFE_S)

    home.store.fault = slow
    call = asyncio.ensure_future(agent.ainvoke(asks("in"), thread="t"))
    assert await asyncio.to_thread(at_it.wait, SAFE_S)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go.set()
    await home.store.aperform(home.store.bury_worker("nobody"))  # acts are performed in order: the request is through

    assert await agent.ainvoke(None, thread="t", wait_s=SAFE_S) == DONE


def test_batch_runs_each_input_on_its_own_thread(agent: Any, home: Home) -> None:
    """`batch` is many calls at once, one per config."""
    out = agent.batch([asks("x"), asks("y")], [config("tx"), config("ty")])

    assert out == [asks("x", "a", "b"), asks("y", "a", "b")]
    assert home.statuses("tx") == home.statuses("ty") == ["done"]


async def test_abatch_runs_each_input_on_its_own_thread(agent: Any, home: Home) -> None:
    """`abatch` is `batch` on the caller's loop."""
    out = await agent.abatch([asks("x"), asks("y")], [config("tx"), config("ty")])

    assert out == [asks("x", "a", "b"), asks("y", "a", "b")]
    assert home.statuses("tx") == home.statuses("ty") == ["done"]


async def test_astream_events_are_of_a_kept_run(agent: Any, home: Home) -> None:
    """`astream_events` tells of every node, and the run is kept like any other."""
    events = [event async for event in agent.astream_events(asks("in"), config("t"), version="v2")]

    assert {"a", "b"} <= {event["name"] for event in events if event["event"] == "on_chain_end"}
    assert home.statuses() == ["done"]


def test_stream_events_v3_are_of_a_kept_run(agent: Any, home: Home) -> None:
    """`stream_events(version="v3")` gives LangGraph's run stream, and the run is kept."""
    with agent.stream_events(asks("in"), config("t"), version="v3") as stream:
        for _ in stream:
            pass

    assert home.statuses() == ["done"]


async def test_astream_events_v3_are_of_a_kept_run(agent: Any, home: Home) -> None:
    """`astream_events(version="v3")` likewise."""
    async with await agent.astream_events(asks("in"), config("t"), version="v3") as stream:
        async for _ in stream:
            pass

    assert home.statuses() == ["done"]


# -- what it is ------------------------------------------------------------------------------------------------


def test_it_is_an_instance_of_the_graphs_own_class(agent: Any) -> None:
    """Code that asks `isinstance(x, CompiledStateGraph)` goes on working, and the original is not changed."""
    plain = chain(step("a"))
    before = type(plain), dict(plain.__dict__)

    assert isinstance(agent, CompiledStateGraph)
    assert (type(plain), dict(plain.__dict__)) == before


def test_reading_is_langgraphs_own(agent: Any) -> None:
    """`get_state`, `get_state_history` and `get_graph` work as on any graph with a checkpointer."""
    agent.invoke(asks("in"), thread="t")

    assert agent.get_state(config()).values == DONE
    assert [state.values.get("log", []) for state in agent.get_state_history(config())][:2] == [
        ["in", "a", "b"],
        ["in", "a"],
    ]
    assert {"a", "b"} <= set(agent.get_graph().nodes)


async def test_reading_works_on_a_loop_too(agent: Any) -> None:
    """`aget_state` and `aget_state_history` likewise."""
    await agent.ainvoke(asks("in"), thread="t")

    assert (await agent.aget_state(config())).values == DONE
    assert len([state async for state in agent.aget_state_history(config())]) == 4


def test_with_config_keeps_the_protection(home: Home, agent: Any) -> None:
    """A copy made by `with_config` is protected, is of the same class, and its bound thread is used."""
    bound = agent.with_config(config("bound"))

    assert type(bound) is type(agent)
    assert bound.invoke(asks("in")) == DONE
    assert home.statuses("bound") == ["done"]


def test_with_config_reaches_the_nodes(home: Home) -> None:
    """Tags, metadata and entries bound by `with_config` are seen by nodes, and a call's own entries win."""
    seen: list[Any] = []

    def a(state: Log, config: RunnableConfig) -> Any:
        seen.append((config["metadata"].get("m"), "x" in config["tags"], config["configurable"].get("e")))
        return {"log": ["a"]}

    bound = home.protect(chain(a), keep=["e"]).with_config(
        {"metadata": {"m": 1}, "tags": ["x"], "configurable": {"e": "bound"}}
    )

    bound.invoke(asks("in"), thread="t1")
    bound.invoke(asks("in"), {"configurable": {"e": "own"}}, thread="t2")

    assert seen == [(1, True, "bound"), (1, True, "own")]


class Who(TypedDict):
    name: str


@dataclass
class WhoToo:
    name: str


@pytest.mark.parametrize(
    ("schema", "context"), [(Who, {"name": "ada"}), (WhoToo, WhoToo("ada")), (WhoToo, {"name": "ada"})]
)
def test_context_reaches_the_nodes(home: Home, schema: Any, context: Any) -> None:
    """`context=` is given to nodes, in the form that the schema wants."""

    def a(state: Log, runtime: Runtime[Any]) -> Any:
        return {"log": [runtime.context["name"] if schema is Who else runtime.context.name]}

    graph = StateGraph(Log, context_schema=schema).add_node("a", a).add_edge(START, "a").add_edge("a", END)

    assert home.protect(graph.compile()).invoke(asks(), thread="t", context=context) == asks("ada")


def test_a_factory_may_be_given(home: Home) -> None:
    """`protect` takes a function that makes the graph."""
    assert home.protect(lambda: chain(step("a"), step("b"))).invoke(asks("in"), thread="t") == DONE


def test_output_keys_and_interrupt_points_are_honoured(agent: Any) -> None:
    """LangGraph's own call options go through."""
    assert agent.invoke(asks("in"), thread="t", output_keys="log") == ["in", "a", "b"]
    assert agent.invoke(asks("in"), thread="u", interrupt_after=["a"]) == asks("in", "a")


def test_on_start_is_told_before_the_first_node(home: Home) -> None:
    """`on_start` gets thread, run and `created`, once the run is in the store and before any node of it."""
    told: list[Started] = []
    agent = home.protect(chain(step("a", then=lambda: told.append(None))))  # type: ignore[arg-type]

    agent.invoke(asks("in"), thread="t", on_start=told.append)
    agent.invoke(asks("in"), thread="t", on_start=told.append)

    first, second = home.runs()
    assert told == [Started("t", first.run_id, True), None, Started("t", second.run_id, False), None]


def test_the_recursion_limit_of_the_call_holds(agent: Any) -> None:
    """A caller's `recursion_limit` is LangGraph's."""
    from langgraph.errors import GraphRecursionError

    with pytest.raises(GraphRecursionError):
        agent.invoke(asks("in"), {"recursion_limit": 1}, thread="t")


# -- refusing what would not be what it seems ------------------------------------------------------------------


def test_a_saver_that_would_be_ignored_is_refused(home: Home) -> None:
    """A checkpointer compiled into the graph is never left aside in silence: refused, or `replace_saver=True`."""
    from langgraph.checkpoint.memory import InMemorySaver

    saver = InMemorySaver()
    graph = chain(step("a"), checkpointer=saver)

    with pytest.raises(ConfigError, match=r"InMemorySaver compiled in.*replace_saver=True"):
        home.protect(graph)

    home.protect(graph, replace_saver=True).invoke(asks("in"), thread="t")
    assert home.statuses() == ["done"]
    assert saver.get_tuple(config()) is None


@pytest.mark.parametrize("thing", [StateGraph(Log), 7, "agent"])
def test_what_is_no_compiled_graph_is_refused(home: Home, thing: Any) -> None:
    """The text says what to pass instead."""
    with pytest.raises(ConfigError, match=r"compiled graph.*\.compile\(\)"):
        home.protect(thing)


def test_a_protected_graph_is_not_protected_again(home: Home, agent: Any) -> None:
    """Two layers would each keep the run."""
    with pytest.raises(ConfigError, match="protected already"):
        home.protect(agent)


def test_two_unnamed_graphs_are_told_apart(home: Home) -> None:
    """Two different graphs under LangGraph's default name would take each other's threads: refused by name."""
    home.protect(chain(step("a")), name=None)
    home.protect(chain(step("a")), name=None)

    with pytest.raises(ConfigError, match=r"'LangGraph'.*name="):
        home.protect(chain(step("z")), name=None)


# -- inside and beside other graphs ----------------------------------------------------------------------------


def test_as_a_node_it_is_the_plain_subgraph(home: Home) -> None:
    """As a node of another protected graph it is no run of its own, and its question is the outer thread's."""

    def b(state: Log) -> Any:
        return {"log": [interrupt("sure?")]}

    inner = home.protect(chain(step("a", home.outside), b), name="inner")
    outer = home.protect(
        StateGraph(Log).add_node("inner", inner).add_edge(START, "inner").add_edge("inner", END).compile(), name="outer"
    )

    asked = outer.invoke(asks("in"), thread="t")
    out = outer.invoke(Command(resume="yes"), thread="t")

    assert [question.value for question in asked["__interrupt__"]] == ["sure?"]
    assert out["log"][-2:] == ["a", "yes"]
    assert {run.graph for run in home.runs()} == {"outer"}
    assert home.outside.seen == ["a"]
    assert len(home.questions(pending_only=False)) == 1


def test_called_in_a_node_with_the_nodes_config_it_is_the_plain_subgraph(home: Home) -> None:
    """`inner.invoke(state, config)` in a node is LangGraph's subgraph call: part of the outer run."""
    inner = home.protect(chain(step("a")), name="inner")

    def call(state: Log, config: RunnableConfig) -> Any:
        return inner.invoke(asks(), config)

    outer = home.protect(chain(call), name="outer")

    assert outer.invoke(asks("in"), thread="t") == asks("in", "a")
    assert [run.graph for run in home.runs()] == ["outer"]


def test_called_in_a_tool_with_a_thread_of_its_own_it_is_a_run(home: Home) -> None:
    """A tool that calls an agent on another thread starts a run there, under a key that its place gives."""
    inner = home.protect(chain(step("a")), name="inner")

    @tool
    def ask_other(what: str) -> str:
        """Ask."""
        return str(inner.invoke(asks(what), thread="other")["log"])

    def call(state: Log) -> Any:
        return {"log": [ask_other.invoke({"what": "x"})]}

    outer = home.protect(chain(call), name="outer")

    assert outer.invoke(asks("in"), thread="t") == asks("in", "['x', 'a']")
    (run,) = home.runs("other")
    assert run.graph == "inner"
    assert run.key


@pytest.mark.parametrize("inner_is_async", [True, False])
def test_a_sync_call_inside_an_async_node_does_not_deadlock(home: Home, inner_is_async: bool) -> None:
    """A node on our loop that calls another agent synchronously blocks that loop, and still gets its answer."""

    async def slow(state: Log) -> Any:
        return {"log": ["slow"]}

    inner = home.protect(chain(slow if inner_is_async else step("slow")), name="inner")
    middle = home.protect(chain(_calling("middle", lambda: inner.invoke(asks("y"), thread="inner"))), name="middle")
    outer = home.protect(chain(_calling("outer", lambda: middle.invoke(asks("x"), thread="middle"))), name="outer")

    out = _within(SAFE_S, lambda: outer.invoke(asks("in"), thread="t"))

    assert out["log"] == ["in", "outer got ['x', \"middle got ['y', 'slow']\"]"]


async def test_invoke_works_where_a_loop_is_running(agent: Any) -> None:
    """In a notebook the caller's thread has a loop that runs; `invoke` and `stream` work there all the same."""
    assert agent.invoke(asks("in"), thread="t") == DONE
    assert len([*agent.stream(asks("in"), thread="u", stream_mode="updates")]) == 2


def test_many_threads_at_once(home: Home) -> None:
    """Forty calls from ten threads, each on a thread of its own: every one ends right."""
    agent = home.protect(chain(step("a"), step("b")))

    with ThreadPoolExecutor(10) as pool:
        outs = [*pool.map(lambda i: agent.invoke(asks(str(i)), thread=f"t{i}"), range(40))]

    assert outs == [asks(str(i), "a", "b") for i in range(40)]


async def test_many_tasks_at_once(home: Home) -> None:
    """Forty calls on one loop likewise."""
    agent = home.protect(chain(step("a"), step("b")))

    outs = await asyncio.gather(*(agent.ainvoke(asks(str(i)), thread=f"t{i}") for i in range(40)))

    assert outs == [asks(str(i), "a", "b") for i in range(40)]


def test_the_callers_context_variables_reach_the_nodes(home: Home) -> None:
    """A node sees the context variables of whoever called `invoke`."""
    from contextvars import ContextVar

    who: ContextVar[str] = ContextVar("who", default="nobody")
    agent = home.protect(chain(_reading(who)))

    who.set("ada")

    assert agent.invoke(asks(), thread="t") == asks("ada")


def test_max_concurrency_is_honoured(home: Home) -> None:
    """Never more tasks at once than the caller's `max_concurrency`; without it, all of them."""
    running, most, mutex = 0, 0, threading.Lock()
    together = threading.Barrier(2, timeout=SAFE_S)

    def node(state: Log) -> Any:
        nonlocal running, most
        with mutex:
            running += 1
            most = max(most, running)
        together.wait()
        with mutex:
            running -= 1
        return {"log": ["x"]}

    nodes = [_named(node, f"n{i}") for i in range(6)]

    home.protect(fan(*nodes)).invoke(asks(), {"max_concurrency": 2}, thread="t")

    assert most == 2


def test_ctrl_c_lets_go_of_the_run(home: Home) -> None:
    """Interrupted from the keyboard, the run is let go of and can be continued at once."""
    import signal

    async def b(state: Log) -> Any:
        if home.outside.once("interrupted"):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.Event().wait()
        return {"log": ["b"]}

    agent = home.protect(chain(step("a", home.outside), b))

    with pytest.raises(KeyboardInterrupt):
        agent.invoke(asks("in"), thread="t")

    assert home.statuses() == ["queued"]
    assert agent.continue_run("t") == DONE
    assert home.outside.times("a") == 1


# -- helpers ---------------------------------------------------------------------------------------------------


def _calling(word: str, call: Any) -> Any:
    async def node(state: Log) -> Any:
        return {"log": [f"{word} got {call()['log']}"]}

    return _named(node, word)


def _reading(variable: Any) -> Any:
    def node(state: Log) -> Any:
        return {"log": [variable.get()]}

    return node


def _named(node: Any, name: str) -> Any:
    if asyncio.iscoroutinefunction(node):

        async def anamed(state: Log) -> Any:
            return await node(state)

        anamed.__name__ = name
        return anamed

    def named(state: Log) -> Any:
        return node(state)

    named.__name__ = name
    return named


def _within(seconds: float, work: Any) -> Any:
    """What `work` returns, in a thread that may be given up on."""
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found.result(seconds)
