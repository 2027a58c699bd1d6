"""
Every hook into LangGraph, over real graphs: each test fails when a release moves what it stands on.
"""

from __future__ import annotations

import asyncio
import enum
import operator
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained, NodeError
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer
from langgraph.prebuilt import ToolNode
from langgraph.pregel import NodeBuilder, Pregel
from langgraph.runtime import RunControl
from langgraph.types import Command, Overwrite, RetryPolicy, Send, interrupt
from pydantic import BaseModel

from ninelives import _langgraph as lg
from ninelives._langgraph import private
from ninelives.errors import LeaseLostError, UnsupportedVersionError

SAFE_S = 20.0  # nothing waits this long unless it hangs


class Log(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def thread(name: str = "t", **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": name, **more}}


def driven(steps: lg.Supersteps, name: str = "t", **more: Any) -> RunnableConfig:
    return thread(name, **steps.configurable(), **more)


def says(word: str) -> Any:
    def node(state: Log) -> Log:
        return {"log": [word]}

    return node


def fan(nodes: dict[str, Any], *, saver: Any = None, **compile_args: Any) -> Any:
    """START to every node at once."""
    builder = StateGraph(Log)
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(START, name)
    return builder.compile(checkpointer=saver, **compile_args)


async def within(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, SAFE_S)


async def invoked(graph: Any, config: Any, *, sync: bool) -> Any:
    if sync:
        return await within(asyncio.to_thread(graph.invoke, {}, config, durability="sync"))
    return await within(graph.ainvoke({}, config, durability="sync"))


class Script(BaseChatModel):
    """Answers with the next scripted message, whoever asks."""

    answers: list[AIMessage]
    turn: list[int]

    @property
    def _llm_type(self) -> str:
        return "script"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.turn.append(1)
        return ChatResult(generations=[ChatGeneration(message=self.answers[len(self.turn) - 1].model_copy())])

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self


def calls(name: str, call_id: str, **args: Any) -> AIMessage:
    usage: Any = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": call_id}], usage_metadata=usage)


def agent_with_subagent(tools: list[Any], saver: Any) -> Any:
    """A deep agent whose subagent calls the first tool once."""
    from deepagents import create_deep_agent

    first = tools[0].name
    main = Script(
        answers=[calls("task", "m1", description="do it", subagent_type="helper"), AIMessage("all done")], turn=[]
    )
    helper = Script(answers=[calls(first, "h1", city="Oslo"), AIMessage("helped")], turn=[])
    sub: Any = {"name": "helper", "description": "helps", "system_prompt": "help", "model": helper, "tools": tools}
    return create_deep_agent(model=main, tools=[], subagents=[sub], checkpointer=saver)


# -- names -----------------------------------------------------------------------------------------------------


def test_the_installed_version_is_known() -> None:
    """The version that the tests run on is a tested one and has every name we use."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lg.check_version()


def test_an_untested_version_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that was never tested brings one warning, not one per run."""
    monkeypatch.setattr(private, "_warned", False)

    with pytest.warns(UserWarning, match=r"1\.2\.99"):
        lg.check_version(installed=lambda _: "1.2.99")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lg.check_version(installed=lambda _: "1.2.99")


def test_a_missing_name_is_named() -> None:
    """A private name that is gone stops us before anything runs, and the error says which."""
    with pytest.raises(UnsupportedVersionError, match=r"PregelLoop\.no_such_thing"):
        lg.check_version(used=((private.PregelLoop, ("tick", "no_such_thing")),))


async def test_delta_input_is_stored_under_the_input_task() -> None:
    """A second input to a plain delta channel is stored under the task id that `is_input_task` knows."""
    saver = InMemorySaver()

    graph: Any = Pregel(
        nodes={"n": NodeBuilder().subscribe_to("xs").do(lambda _: None)},
        channels={"xs": DeltaChannel(lambda old, new: [*old, *new], list)},
        input_channels=["xs"],
        output_channels=["xs"],
        checkpointer=saver,
    )
    await graph.ainvoke({"xs": 1}, thread(), durability="sync")
    head = (await saver.aget_tuple(thread())).checkpoint["id"]  # type: ignore[union-attr]

    await graph.ainvoke({"xs": 2}, thread(), durability="sync")

    ids = {write[0] for key, rows in saver.writes.items() if key[2] == head for write in rows.values()}
    assert any(lg.is_input_task(head, task_id) for task_id in ids)
    assert not lg.is_input_task(head, lg.NULL_TASK_ID)


# -- nesting ---------------------------------------------------------------------------------------------------


async def test_inside_is_what_langgraph_takes_for_nested() -> None:
    """A call as node, or in a node with the ambient config, is inside; one with a thread of its own is not."""
    seen: dict[str, bool] = {}

    async def node(state: Log, config: RunnableConfig) -> Log:
        seen["bare"] = lg.inside_langgraph(None)
        seen["tags only"] = lg.inside_langgraph({"tags": ["x"]})
        seen["handed on"] = lg.inside_langgraph(config)
        seen["own thread"] = lg.inside_langgraph(thread("mine"))
        other = {**config, "configurable": {**config["configurable"], "thread_id": "mine"}}
        seen["handed on, own thread"] = lg.inside_langgraph(other)  # type: ignore[arg-type]
        stripped = lg.outside_config(other)["configurable"]  # type: ignore[arg-type]
        seen["stripped"] = set(stripped) == {"thread_id"}
        return {}

    await fan({"n": node}, saver=InMemorySaver()).ainvoke({}, thread(), durability="sync")

    assert not lg.inside_langgraph(None)
    assert not lg.inside_langgraph(thread("mine"))
    assert seen == {
        "bare": True,
        "tags only": True,
        "handed on": True,
        "own thread": False,
        "handed on, own thread": False,
        "stripped": True,
    }


async def test_inside_a_subgraph_node() -> None:
    """A graph that is a node of another is told so by the config it is called with."""
    seen: list[bool] = []

    class Told(type(fan({"x": says("x")}))):  # type: ignore[misc]
        def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
            seen.append(lg.inside_langgraph(config))
            return super().astream(input, config, **kwargs)  # type: ignore[no-any-return]

    sub = fan({"x": says("x")})
    sub.__class__ = Told

    await fan({"sub": sub}, saver=InMemorySaver()).ainvoke({}, thread(), durability="sync")
    await sub.ainvoke({})

    assert seen == [True, False]


async def test_current_task_in_a_subagents_tool() -> None:
    """Inside a tool of a subagent the task is known with its whole chain, its checkpoint and its tool call."""
    seen: list[lg.TaskInfo | None] = []

    @tool
    def weather(city: str) -> str:
        """Weather."""
        seen.append(lg.current_task())
        return "sun"

    saver = InMemorySaver()
    graph = lg.prepared(agent_with_subagent([weather], saver))
    config: RunnableConfig = {**thread(), "callbacks": [lg.Watch()]}
    await graph.ainvoke({"messages": [HumanMessage("go")]}, config, durability="sync")

    [info] = seen
    assert lg.current_task() is None
    assert info is not None
    assert info.path == ("tools", "tools")
    assert info.thread_id == "t"
    assert info.tool_call_id == "h1"
    assert info.task_ids[-1] == info.task_id == info.stored_task_id
    assert info.checkpoint_ns.endswith(info.task_id)
    inner_ns = info.checkpoint_ns.rpartition("|")[0]
    assert info.checkpoint_id in saver.storage["t"][inner_ns]


async def test_current_task_outside_of_a_tool_has_no_tool_call() -> None:
    """A subagent's own nodes are not taken for the tool call of the outer task that runs the subagent."""
    seen: list[lg.TaskInfo | None] = []

    async def note(state: Log) -> Log:
        seen.append(lg.current_task())
        return {}

    sub = fan({"note": note})

    @tool
    async def delegate() -> str:
        """Delegate."""
        seen.append(lg.current_task())
        await sub.ainvoke({})
        return "done"

    graph = with_tool_node([delegate])
    await graph.ainvoke({"messages": [calls("delegate", "c1")]}, {**thread(), "callbacks": [lg.Watch()]})

    assert [(info.path, info.tool_call_id) for info in seen if info] == [
        (("tools",), "c1"),
        (("tools", "note"), None),
    ]


async def test_the_nearest_stored_task_skips_a_graph_that_keeps_nothing() -> None:
    """Inside a `checkpointer=False` subgraph, the task whose checkpoint is stored is the one that called it."""
    seen: list[lg.TaskInfo | None] = []

    async def note(state: Log) -> Log:
        seen.append(lg.current_task())
        return {}

    graph = lg.prepared(fan({"sub": fan({"note": note, "other": note}, saver=False)}, saver=InMemorySaver()))
    await graph.ainvoke({}, thread(), durability="sync")

    for info in seen:
        assert info is not None
        assert info.path[0] == "sub"
        assert info.stored_task_id == info.task_ids[0] != info.task_id


async def test_a_second_call_of_a_subgraph_in_one_task_is_not_a_level_of_its_own() -> None:
    """The number that LangGraph puts into the namespace of a second call is no node, and its checkpoint is found."""
    seen: list[lg.TaskInfo | None] = []
    saver = InMemorySaver()

    async def note(state: Log) -> Log:
        seen.append(lg.current_task())
        return {}

    sub = fan({"note": note})

    async def twice(state: Log) -> Log:
        await sub.ainvoke({})
        await sub.ainvoke({})
        return {}

    await fan({"twice": twice}, saver=saver).ainvoke({}, thread(), durability="sync")

    assert len({info.task_id for info in seen if info}) == 2
    for info in seen:
        assert info is not None
        assert info.path == ("twice", "note")
        assert info.checkpoint_id in saver.storage["t"][info.checkpoint_ns.rpartition("|")[0]]


class Messages(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]


def with_tool_node(tools: list[Any], saver: Any = None, **kwargs: Any) -> Any:
    builder = StateGraph(Messages)
    builder.add_node("tools", ToolNode(tools, **kwargs))
    builder.add_edge(START, "tools")
    return builder.compile(checkpointer=saver or InMemorySaver())


# -- watch -----------------------------------------------------------------------------------------------------


async def test_watch_tells_each_task_tool_and_model_call_once() -> None:
    """Nodes, tools and model calls are told once each, in a subagent too, and usage is told."""
    told: list[tuple[Any, ...]] = []

    @tool
    def weather(city: str) -> str:
        """Weather."""
        return "sun"

    watch = lg.Watch(
        before_node=lambda name, ns, task_id: told.append(("node", name, task_id, ns)),
        after_node=lambda name, ns, task_id, error: told.append(("left", name, task_id, error)),
        before_tool=lambda name, call_id, args: told.append(("tool", name, call_id, args)),
        after_tool=lambda name, error: told.append(("tool left", name, error)),
        after_model=lambda tokens_in, tokens_out, _: told.append(("model", (tokens_in, tokens_out))),
    )
    graph = agent_with_subagent([weather], InMemorySaver())
    await graph.ainvoke({"messages": [HumanMessage("go")]}, {**thread(), "callbacks": [watch]}, durability="sync")

    nodes = [one for one in told if one[0] == "node"]
    assert [one[1] for one in nodes if one[1] in ("model", "tools")].count("model") == 4
    assert [one[1] for one in nodes].count("tools") == 2
    assert len({one[2] for one in nodes}) == len(nodes)
    assert all(one[3].endswith(one[2]) for one in nodes)
    assert sorted(one[2] for one in told if one[0] == "left") == sorted(one[2] for one in nodes)
    assert [one for one in told if one[0] == "tool"] == [
        ("tool", "task", "m1", {"description": "do it", "subagent_type": "helper"}),
        ("tool", "weather", "h1", {"city": "Oslo"}),
    ]
    assert [one[1:] for one in told if one[0] == "tool left"] == [("weather", None), ("task", None)]
    assert [one[1] for one in told if one[0] == "model"] == [(3, 2), (3, 2), (0, 0), (0, 0)]
    assert watch._runs == {}


@pytest.mark.parametrize("sync", [False, True])
async def test_stop_driving_stops_before_the_code(sync: bool) -> None:
    """A stop raised by a check keeps the node's code from running; it is neither retried, handled nor stored."""
    ran: list[str] = []
    checks: list[str] = []

    def check(name: str, ns: str, task_id: str) -> None:
        checks.append(name)
        if name == "b":
            raise lg.StopDriving(LeaseLostError("r-1", 4))

    def handler(state: Log, error: NodeError) -> Log:
        ran.append("handler")
        return {}

    def b(state: Log) -> Log:
        ran.append("b")
        return {}

    builder = StateGraph(Log)
    builder.add_node("a", says("a"))
    builder.add_node("b", b, error_handler=handler, retry_policy=RetryPolicy(max_attempts=3, retry_on=Exception))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    saver = InMemorySaver()
    graph: Any = builder.compile(checkpointer=saver)
    config: RunnableConfig = {**thread(), "callbacks": [lg.Watch(before_node=check)]}

    with pytest.raises(lg.StopDriving) as stopped:
        await invoked(graph, config, sync=sync)

    assert isinstance(stopped.value.error, LeaseLostError)
    assert (ran, checks) == ([], ["a", "b"])
    assert (await graph.aget_state(thread())).next == ("b",)
    assert not (await saver.aget_tuple(thread())).pending_writes  # type: ignore[union-attr]


async def test_stop_driving_passes_a_tool_node_that_handles_errors() -> None:
    """A stop before a tool is not made into a tool message."""

    @tool
    def pay() -> str:
        """Pay."""
        raise AssertionError("ran")

    def check(name: str, call_id: str | None, args: Any) -> None:
        raise lg.StopDriving(ValueError("stop"))

    graph = with_tool_node([pay], handle_tool_errors=True)
    with pytest.raises(lg.StopDriving):
        await graph.ainvoke(
            {"messages": [calls("pay", "c1")]}, {**thread(), "callbacks": [lg.Watch(before_tool=check)]}
        )


async def test_every_attempt_of_a_task_is_watched() -> None:
    """A retry within the process is checked again before it runs."""
    told: list[str] = []
    attempts: list[int] = []

    async def flaky(state: Log) -> Log:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("once")
        return {}

    builder = StateGraph(Log)
    policy = RetryPolicy(initial_interval=0.001, jitter=False)
    builder.add_node("flaky", flaky, retry_policy=policy)
    builder.add_edge(START, "flaky")
    watch = lg.Watch(before_node=lambda name, ns, task_id: told.append(task_id))
    await builder.compile().ainvoke({}, {"callbacks": [watch]})

    assert len(told) == 2
    assert len(set(told)) == 1


# -- supersteps ------------------------------------------------------------------------------------------------


async def test_siblings_of_a_failing_node_finish_and_are_kept() -> None:
    """A failing node waits for its siblings: none is cancelled, and a resume runs only what failed."""
    failed = asyncio.Event()
    runs: list[str] = []

    async def bad(state: Log) -> Log:
        runs.append("bad")
        if runs.count("bad") == 1:
            failed.set()
            raise ValueError("once")
        return {"log": ["bad"]}

    async def slow(state: Log) -> Log:
        runs.append("slow")
        await failed.wait()
        for _ in range(20):  # a failure that is not kept would cancel us here
            await asyncio.sleep(0)
        return {"log": ["slow"]}

    graph = fan({"bad": bad, "slow": slow}, saver=InMemorySaver())
    steps = lg.Supersteps(max_concurrency=None)
    with pytest.raises(ValueError, match="once"):
        await within(graph.ainvoke({}, driven(steps), durability="sync"))
    result = await within(graph.ainvoke(None, driven(steps), durability="sync"))
    await steps.aclose()

    assert sorted(runs) == ["bad", "bad", "slow"]
    assert sorted(result["log"]) == ["bad", "slow"]


async def test_without_our_submit_the_sibling_is_cancelled() -> None:
    """The plain async API cancels a failing node's siblings: the reason for `Supersteps`."""
    failed, cancelled = asyncio.Event(), asyncio.Event()

    async def bad(state: Log) -> Log:
        failed.set()
        raise ValueError("once")

    async def slow(state: Log) -> Log:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return {}

    with pytest.raises(ValueError, match="once"):
        await within(fan({"bad": bad, "slow": slow}, saver=InMemorySaver()).ainvoke({}, thread(), durability="sync"))

    assert failed.is_set()
    assert cancelled.is_set()


async def test_several_failures_are_all_stored() -> None:
    """When several siblings fail, the run ends with one of the failures and every one of them is stored."""
    first_failed = asyncio.Event()

    async def first(state: Log) -> Log:
        first_failed.set()
        raise ValueError("first")

    async def second(state: Log) -> Log:
        await first_failed.wait()
        raise KeyError("second")

    saver = InMemorySaver()
    steps = lg.Supersteps(max_concurrency=None)
    with pytest.raises((ValueError, KeyError)):
        await within(fan({"first": first, "second": second}, saver=saver).ainvoke({}, driven(steps), durability="sync"))

    writes = (await saver.aget_tuple(thread())).pending_writes or []  # type: ignore[union-attr]
    assert len([channel for _, channel, _ in writes if channel == lg.ERROR]) == 2


async def test_an_interrupt_beside_a_failure() -> None:
    """A sibling that asks a question is not cancelled by a failure, and its question is stored."""
    asked = asyncio.Event()

    async def bad(state: Log) -> Log:
        raise ValueError("bad")

    async def asks(state: Log) -> Log:
        for _ in range(10):
            await asyncio.sleep(0)
        asked.set()
        return {"log": [interrupt("ok?")]}

    saver = InMemorySaver()
    steps = lg.Supersteps(max_concurrency=None)
    with pytest.raises(ValueError, match="bad"):
        await within(fan({"bad": bad, "asks": asks}, saver=saver).ainvoke({}, driven(steps), durability="sync"))

    writes = (await saver.aget_tuple(thread())).pending_writes or []  # type: ignore[union-attr]
    assert [question.value for question in lg.pending_interrupts(writes)] == ["ok?"]


async def test_a_stop_does_not_cut_off_siblings() -> None:
    """A `StopDriving` in one node lets the others finish and be kept, and is what the run ends with."""
    stopped = asyncio.Event()

    async def stop(state: Log) -> Log:
        stopped.set()
        raise lg.StopDriving(ValueError("lease"))

    async def slow(state: Log) -> Log:
        await stopped.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        return {"log": ["slow"]}

    saver = InMemorySaver()
    steps = lg.Supersteps(max_concurrency=None)
    with pytest.raises(lg.StopDriving):
        await within(fan({"stop": stop, "slow": slow}, saver=saver).ainvoke({}, driven(steps), durability="sync"))

    writes = (await saver.aget_tuple(thread())).pending_writes or []  # type: ignore[union-attr]
    assert ("log", ["slow"]) in [(channel, value) for _, channel, value in writes]


@pytest.mark.parametrize("api", ["async", "sync"])
@pytest.mark.parametrize("limit", [1, 3])
async def test_max_concurrency_limits_nodes_but_not_writes(api: str, limit: int) -> None:
    """At most that many tasks run at once, and each finished one is stored before the next of its slot starts."""
    lock = threading.Lock()
    running, most, stored, unstored = [0], [0], [0], [0]

    class Counting(InMemorySaver):
        def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            stored[0] += 1
            super().put_writes(config, writes, task_id, task_path)

        async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            self.put_writes(config, writes, task_id, task_path)

    finished = [0]

    def enter() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])

    def leave() -> None:
        with lock:
            running[0] -= 1
            finished[0] += 1
            unstored[0] = max(unstored[0], finished[0] - stored[0])

    async def work(state: Any) -> Log:
        enter()
        for _ in range(5):
            await asyncio.sleep(0)
        leave()
        return {"log": ["x"]}

    def sync_work(state: Any) -> Log:
        enter()
        leave()
        return {"log": ["x"]}

    builder = StateGraph(Log)
    builder.add_node("work", work if api == "async" else sync_work)
    builder.add_conditional_edges(START, lambda _: [Send("work", {}) for _ in range(12)], ["work"])
    graph = builder.compile(checkpointer=Counting())
    rest, taken = lg.take_max_concurrency({**thread(), "max_concurrency": limit})
    steps = lg.Supersteps(max_concurrency=taken)
    config = {**rest, "configurable": {**rest["configurable"], **steps.configurable()}}
    result = await invoked(graph, config, sync=api == "sync")
    await steps.aclose()

    assert "max_concurrency" not in rest
    assert len(result["log"]) == 12
    assert 1 <= most[0] <= limit
    if api == "async":
        assert unstored[0] <= 2 * limit + 1


async def test_cancelling_the_run_cancels_the_siblings_and_waits_for_them() -> None:
    """When the task that drives is cancelled, every node is cancelled and has ended when the run has, nested too."""
    running = [asyncio.Event(), asyncio.Event(), asyncio.Event()]
    ended: list[int] = []

    def waits(number: int) -> Any:
        async def node(state: Log) -> Log:
            running[number].set()
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(5):
                    await asyncio.sleep(0)
                ended.append(number)
            return {}

        return node

    graph = fan({"a": waits(0), "sub": fan({"b": waits(1), "c": waits(2)})}, saver=InMemorySaver())
    steps = lg.Supersteps(max_concurrency=None)
    run = asyncio.ensure_future(graph.ainvoke({}, driven(steps), durability="sync"))
    for event in running:
        await within(event.wait())

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(run)

    assert sorted(ended) == [0, 1, 2]
    await steps.aclose()


async def test_cancelling_while_a_failure_is_kept() -> None:
    """A run that is cancelled while a failure waits for a sibling ends, and the failure stays the task's error."""
    failed = asyncio.Event()

    async def bad(state: Log) -> Log:
        failed.set()
        raise ValueError("bad")

    async def forever(state: Log) -> Log:
        await asyncio.Event().wait()
        return {}

    steps = lg.Supersteps(max_concurrency=None)
    graph = fan({"bad": bad, "forever": forever}, saver=InMemorySaver())
    run = asyncio.ensure_future(graph.ainvoke({}, driven(steps), durability="sync"))
    await within(failed.wait())
    for _ in range(5):
        await asyncio.sleep(0)

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(run)
    await within(steps.aclose())


async def test_aclose_ends_what_an_unclosed_stream_left() -> None:
    """Tasks of a stream that was dropped without being closed are cancelled and awaited by `aclose`."""
    running, ended = asyncio.Event(), asyncio.Event()

    async def forever(state: Log) -> Log:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    steps = lg.Supersteps(max_concurrency=None)
    stream = fan({"a": forever, "b": says("b")}, saver=InMemorySaver()).astream(
        {}, driven(steps), stream_mode=["tasks"], durability="sync"
    )
    async for _ in stream:
        if running.is_set():
            break
    await within(running.wait())

    await within(steps.aclose())

    assert ended.is_set()
    await stream.aclose()


@pytest.mark.parametrize("limit", [None, 1])
async def test_a_nested_graph_through_the_sync_api(limit: int | None) -> None:
    """A sync node that invokes graphs in graphs does not deadlock, and there too siblings of a failure are kept."""
    failed = threading.Event()
    runs: list[str] = []

    def bad(state: Log) -> Log:
        runs.append("bad")
        failed.set()
        raise ValueError("inner")

    def slow(state: Log) -> Log:
        assert limit == 1 or failed.wait(SAFE_S)
        runs.append("slow")
        return {"log": ["slow"]}

    inner = fan({"bad": bad, "slow": slow, "slower": slow})
    middle = fan({"one": lambda s: inner.invoke(s), "two": says("two")})

    def outer(state: Log) -> Any:
        return middle.invoke(state)

    saver = InMemorySaver()
    graph = fan({"outer": outer, "beside": says("beside")}, saver=saver)
    steps = lg.Supersteps(max_concurrency=limit)
    with pytest.raises(ValueError, match="inner"):
        await within(graph.ainvoke({}, driven(steps), durability="sync"))
    await steps.aclose()

    assert sorted(runs) == ["bad", "slow", "slow"]
    stored = [write for key, rows in saver.writes.items() if key[1].count("|") == 1 for write in rows.values()]
    assert sorted(write[3] for write in stored if write[1] == "log" and "slow" in write[3]) == [
        "~__pregel_pull, slow",
        "~__pregel_pull, slower",
    ]


@pytest.mark.parametrize("limit", [None, 1])
def test_the_sync_api_commits_a_failure_last(limit: int | None) -> None:
    """Through the sync API too a failure comes out after its siblings, also of those that wait for the only thread."""

    def bad(state: Log) -> Log:
        raise ValueError("bad")

    committed: list[str] = []
    steps = lg.Supersteps(max_concurrency=limit)
    graph = fan({"bad": bad, "other": says("o"), "third": says("t")}, saver=InMemorySaver())
    stream = graph.stream({}, driven(steps), stream_mode="tasks", durability="sync")

    def watch() -> None:
        for part in stream:
            if "error" in part:
                committed.append(part["name"])

    with pytest.raises(ValueError, match="bad"):
        watch()

    assert sorted(committed[:-1]) == ["other", "third"]
    assert committed[-1] == "bad"


async def test_an_error_handler_runs_at_once_and_its_sibling_failure_waits_for_it() -> None:
    """A handler scheduled mid-step runs while a sibling still works, and a kept failure waits for the handler too."""
    handled, gate = asyncio.Event(), asyncio.Event()

    async def bad(state: Log) -> Log:
        raise ValueError("handled")

    async def handler(state: Log, error: NodeError) -> Log:
        gate.set()
        for _ in range(10):
            await asyncio.sleep(0)
        handled.set()
        return {"log": [f"handled {error.node}"]}

    async def slow(state: Log) -> Log:
        await gate.wait()  # set by the handler: it must not be held until we return
        return {"log": ["slow"]}

    async def also_bad(state: Log) -> Log:
        raise KeyError("not handled")

    builder = StateGraph(Log)
    builder.add_node("bad", bad, error_handler=handler)
    builder.add_node("slow", slow)
    builder.add_node("also_bad", also_bad)
    for name in ("bad", "slow", "also_bad"):
        builder.add_edge(START, name)
    saver = InMemorySaver()
    steps = lg.Supersteps(max_concurrency=None)

    with pytest.raises(KeyError, match="not handled"):
        await within(builder.compile(checkpointer=saver).ainvoke({}, driven(steps), durability="sync"))

    writes = (await saver.aget_tuple(thread())).pending_writes or []  # type: ignore[union-attr]
    assert handled.is_set()
    assert ("log", ["handled bad"]) in [(channel, value) for _, channel, value in writes]
    assert ("log", ["slow"]) in [(channel, value) for _, channel, value in writes]


async def test_a_kept_failure_waits_for_a_handler_that_is_still_to_start() -> None:
    """A failure is kept also between the end of a failed node and the start of its handler, which finishes."""
    kept = asyncio.Event()
    ran: list[str] = []

    async def also_bad(state: Log) -> Log:
        kept.set()
        raise KeyError("not handled")

    async def bad(state: Log) -> Log:
        await kept.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        raise ValueError("handled")

    async def handler(state: Log, error: NodeError) -> Log:
        for _ in range(100):
            await asyncio.sleep(0)
        ran.append("handler")
        return {}

    builder = StateGraph(Log)
    builder.add_node("bad", bad, error_handler=handler)
    builder.add_node("also_bad", also_bad)
    builder.add_edge(START, "bad")
    builder.add_edge(START, "also_bad")
    steps = lg.Supersteps(max_concurrency=None)

    # Without a saver the handler starts at once, so a failure that came out now would cut it off.
    with pytest.raises(KeyError, match="not handled"):
        await within(builder.compile().ainvoke({}, driven(steps)))

    assert ran == ["handler"]


class Refusing(InMemorySaver):
    """Cannot store that a task has failed."""

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if any(channel == lg.ERROR_SOURCE_NODE for channel, _ in writes):
            raise OSError("store is gone")
        super().put_writes(config, writes, task_id, task_path)


@pytest.mark.parametrize("sync", [False, True])
async def test_a_handler_that_cannot_be_started_holds_nobody_up(sync: bool) -> None:
    """When the store fails before a handler starts, the run ends although another failure waits for the handler."""

    def bad(state: Log) -> Log:
        raise ValueError("handled")

    def handler(state: Log, error: NodeError) -> Log:
        return {}

    def also_bad(state: Log) -> Log:
        raise KeyError("not handled")

    builder = StateGraph(Log)
    builder.add_node("bad", bad, error_handler=handler)
    builder.add_node("also_bad", also_bad)
    builder.add_edge(START, "bad")
    builder.add_edge(START, "also_bad")
    steps = lg.Supersteps(max_concurrency=None)

    with pytest.raises((OSError, KeyError)):
        await invoked(builder.compile(checkpointer=Refusing()), driven(steps), sync=sync)

    await within(steps.aclose())


async def test_aclose_waits_for_the_last_writes_of_a_cancelled_run() -> None:
    """When `aclose` has returned, a cancelled run writes nothing more."""
    running, gate = asyncio.Event(), asyncio.Event()
    begun: list[str] = []
    ended: list[str] = []

    class Slow(InMemorySaver):
        async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
            begun.append(task_path)
            if running.is_set():
                await gate.wait()
            await super().aput_writes(config, writes, task_id, task_path)
            ended.append(task_path)

    async def forever(state: Log) -> Log:
        running.set()
        await asyncio.Event().wait()
        return {}

    steps = lg.Supersteps(max_concurrency=None)
    graph = fan({"a": forever, "b": forever}, saver=Slow())
    run = asyncio.ensure_future(graph.ainvoke({}, driven(steps), durability="sync"))
    await within(running.wait())
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(run)

    closing = asyncio.ensure_future(steps.aclose())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await within(closing)

    assert len(begun) == 3  # the input's and one for each cancelled node
    assert sorted(ended) == sorted(begun)


@pytest.mark.parametrize("limit", [None, 1])
async def test_called_tasks_hand_their_errors_to_the_caller(limit: int | None) -> None:
    """In the functional API a task's failure reaches its caller at once, also with one task at a time."""

    @task
    async def fails(x: int) -> int:
        raise ValueError(f"task {x}")

    @task
    async def doubles(x: int) -> int:
        return 2 * x

    @entrypoint(checkpointer=InMemorySaver())
    async def flow(x: int) -> list[int]:
        found = []
        for number, called in ((1, fails(1)), (2, doubles(2)), (3, doubles(3))):
            try:
                found.append(await called)
            except ValueError:
                found.append(-number)
        return found

    steps = lg.Supersteps(max_concurrency=limit)

    # stream_mode "custom" takes the slow path, where the entrypoint itself is submitted
    async def run() -> list[Any]:
        return [part async for part in flow.astream(0, driven(steps), stream_mode=["custom", "values"])]

    assert (await within(run()))[-1] == ("values", [-1, 4, 6])


# -- the driven copy -------------------------------------------------------------------------------------------


async def nested_without_saver(kind: str) -> Any:
    """A graph that runs a two-step `checkpointer=False` subgraph as a node, or in a node or tool."""
    builder = StateGraph(Log)
    builder.add_node("x", says("x"))
    builder.add_node("y", says("y"))
    builder.add_edge(START, "x")
    builder.add_edge("x", "y")
    sub = builder.compile(checkpointer=False)
    if kind == "node":
        return fan({"sub": sub}, saver=InMemorySaver())
    if kind == "deep":
        return fan({"outer": fan({"sub": sub})}, saver=InMemorySaver())
    if kind == "function":

        async def calls_it(state: Log) -> Any:
            return await sub.ainvoke({})

        return fan({"calls": calls_it}, saver=InMemorySaver())

    @tool
    async def delegate() -> str:
        """Delegate."""
        return str((await sub.ainvoke({}))["log"])

    return with_tool_node([delegate])


@pytest.mark.parametrize("kind", ["node", "deep", "function", "tool"])
async def test_subgraphs_without_saver_work_under_sync(kind: str) -> None:
    """A subgraph compiled with checkpointer=False works under durability="sync", wherever it is called."""
    graph = await nested_without_saver(kind)
    given: Any = {"messages": [calls("delegate", "c1")]} if kind == "tool" else {}
    with pytest.raises(AttributeError, match="_put_checkpoint_fut"):  # when this no longer raises, drop the shim
        await graph.ainvoke(given, thread("plain"), durability="sync")

    result = await lg.prepared(graph).ainvoke(given, thread(), durability="sync")

    told = result["messages"][-1].content if kind == "tool" else str(result["log"])
    assert told == "['x', 'y']"
    if kind != "tool":
        sync_result = await asyncio.to_thread(
            lambda: lg.prepared(fan({"sub": fan({"x": says("x")}, saver=False)}, saver=InMemorySaver())).invoke(
                {}, thread(), durability="sync"
            )
        )
        assert sync_result["log"] == ["x"]


async def test_prepared_leaves_the_original_alone_and_keeps_its_type() -> None:
    """The copy is of the graph's own class and gives typed output; the original's nodes and class are unchanged."""

    class Model(BaseModel):
        n: int = 0

    builder = StateGraph(Model)
    builder.add_node("a", lambda state: {"n": 1})
    builder.add_edge(START, "a")
    graph = builder.compile(checkpointer=InMemorySaver())
    nodes, kind = dict(graph.nodes), type(graph)

    with ThreadPoolExecutor(1) as pool:
        clone = lg.prepared(lg.prepared(graph), pool)
        stream = clone.astream(Model(), thread(), stream_mode="values", durability="sync", version="v2")
        parts = [part async for part in stream]

    assert isinstance(clone, kind)
    assert parts[-1]["data"] == Model(n=1)
    assert type(graph) is kind
    assert graph.nodes == nodes
    assert lg.fingerprint(clone) == lg.fingerprint(graph)


async def test_a_drain_asked_for_reaches_a_prepared_graph() -> None:
    """The caller's own control still drains, also when the graph is itself nested under a drained control."""
    control = RunControl()

    async def a(state: Log) -> Log:
        control.request_drain("deploy")
        return {"log": ["a"]}

    builder = StateGraph(Log)
    builder.add_node("a", a)
    builder.add_node("b", says("b"))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    sub = lg.prepared(builder.compile())

    async def calls_it(state: Log) -> Any:
        return await sub.ainvoke({})

    graph = lg.prepared(fan({"calls": calls_it}, saver=InMemorySaver()))
    with pytest.raises(GraphDrained, match="deploy"):
        await graph.ainvoke({}, thread(), durability="sync", control=control)


async def test_sync_nodes_run_on_our_executor() -> None:
    """Sync node functions run on the given executor with their contextvars, async ones on the loop."""
    mark: ContextVar[str] = ContextVar("mark", default="unset")
    seen: dict[str, tuple[str, str]] = {}
    released, entered = threading.Event(), threading.Event()

    def note(name: str) -> None:
        seen[name] = (threading.current_thread().name.split("_")[0], mark.get())

    def plain(state: Log, config: RunnableConfig) -> Log:
        note("plain")
        info = lg.current_task()
        assert info is not None
        assert info.path == ("plain",)
        entered.set()
        assert released.wait(SAFE_S)
        return {}

    async def on_loop(state: Log) -> Log:
        note("loop")
        return {}

    def below(state: Log) -> Log:
        note("below")
        return {}

    executor = lg.RunExecutor(4, thread_name_prefix="ours")
    graph = lg.prepared(fan({"plain": plain, "loop": on_loop, "sub": fan({"below": below})}), executor)
    mark.set("set")
    lg.current_work.set("run-1")
    run = asyncio.ensure_future(graph.ainvoke({}))
    await within(asyncio.to_thread(entered.wait, SAFE_S))

    assert executor.alive("run-1") >= 1
    assert not executor.wait_idle("run-1", 0.0)
    released.set()
    await within(run)

    assert executor.wait_idle("run-1", SAFE_S)
    assert executor.alive("run-1") == executor.alive("other") == 0
    assert seen == {"plain": ("ours", "set"), "loop": ("MainThread", "set"), "below": ("ours", "set")}
    executor.shutdown()


async def test_a_cancelled_call_is_alive_until_its_thread_returns() -> None:
    """Cancelling a run does not make its sync call idle; only the thread's return does."""
    released, entered = threading.Event(), threading.Event()

    def stuck(state: Log) -> Log:
        entered.set()
        assert released.wait(SAFE_S)
        return {}

    executor = lg.RunExecutor(1)
    lg.current_work.set(("run", 1))
    run = asyncio.ensure_future(lg.prepared(fan({"stuck": stuck}), executor).ainvoke({}))
    await within(asyncio.to_thread(entered.wait, SAFE_S))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(run)

    assert executor.alive(("run", 1)) == 1
    released.set()
    assert executor.wait_idle(("run", 1), SAFE_S)
    executor.shutdown()


async def test_middleware_without_an_async_twin_runs_on_our_executor() -> None:
    """A node with only a sync body would block the event loop; prepared, it does not."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import before_model

    seen: list[str] = []

    @before_model
    def note(state: Any, runtime: Any) -> None:
        seen.append(threading.current_thread().name.split("_")[0])

    executor = lg.RunExecutor(1, thread_name_prefix="ours")
    agent = create_agent(Script(answers=[AIMessage("hi")], turn=[]), middleware=[note])
    await lg.prepared(agent, executor).ainvoke({"messages": [HumanMessage("x")]})

    assert seen == ["ours"]
    executor.shutdown()


# -- messages --------------------------------------------------------------------------------------------------


class Chat(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
    plain: Annotated[list[AnyMessage], add_messages]


def chat(saver: Any = None) -> Any:
    builder = StateGraph(Chat)
    builder.add_node("n", lambda state: {})
    builder.add_edge(START, "n")
    return builder.compile(checkpointer=saver or InMemorySaver())


async def test_ids_given_before_are_the_ids_that_are_stored() -> None:
    """The ids that are given are those in the state after the run, and the caller's input is unchanged."""
    graph = chat()
    mine = HumanMessage("a")
    given: Any = {"messages": [mine, ("user", "b"), {"role": "user", "content": "c"}], "plain": [HumanMessage("d")]}

    stamped = lg.with_message_ids(graph, given)
    result = await graph.ainvoke(stamped, thread(), durability="sync")

    ids = [message.id for message in stamped["messages"]]
    assert all(ids)
    assert [message.id for message in result["messages"]] == ids
    assert (mine.id, given["messages"][1]) == (None, ("user", "b"))
    assert [message.id for message in result["plain"]] == [message.id for message in stamped["plain"]]
    assert given["plain"][0].id is None
    assert lg.with_message_ids(graph, stamped) == stamped


def test_ids_in_commands_and_overwrites() -> None:
    """A Command's update is stamped too, in its own form, and so is an Overwrite; anything else comes back as it is."""
    graph = chat()
    mine = HumanMessage("a")

    as_dict = lg.with_message_ids(graph, Command(update={"messages": [mine]}, goto="n"))
    as_pairs = lg.with_message_ids(graph, Command(update=[("messages", mine)]))
    over = lg.with_message_ids(graph, {"messages": Overwrite([mine])})

    assert as_dict.update["messages"][0].id
    assert as_dict.goto == "n"
    assert as_pairs.update[0][1].id
    assert over["messages"].value[0].id
    assert mine.id is None
    assert lg.with_message_ids(graph, None) is None
    resume: Command[Any] = Command(resume="x")
    assert lg.with_message_ids(graph, resume) is resume


# -- preflight -------------------------------------------------------------------------------------------------


async def head(saver: InMemorySaver) -> CheckpointTuple:
    found = await saver.aget_tuple(thread())
    assert found is not None
    return found


def line(nodes: dict[str, Any], schema: Any = Log, saver: Any = None, **kwargs: Any) -> Any:
    builder = StateGraph(schema)
    before = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    return builder.compile(checkpointer=saver, **kwargs)


async def test_a_renamed_node_is_missed() -> None:
    """A thread that waits in a node which the graph no longer has is found out, not ended in silence (C54)."""
    saver = InMemorySaver()
    asks = {"review": lambda state: {"log": [interrupt("ok?")]}}
    graph = line(asks, saver=saver)
    await graph.ainvoke({}, thread(), durability="sync")
    found = await head(saver)

    told = lg.missing_parts(line({"review_v2": asks["review"]}), found.checkpoint, found.pending_writes or [])

    assert told == ["node 'review' is pending but gone"]
    assert lg.missing_parts(graph, found.checkpoint, found.pending_writes or []) == []
    assert [one.value for one in lg.pending_interrupts(found.pending_writes or [])] == ["ok?"]


async def test_a_removed_state_key_is_missed() -> None:
    """A stored channel that is gone is named, one with a value and a delta channel without (C53)."""

    class Old(Log, total=False):
        note: str
        files: Annotated[list[str], DeltaChannel(lambda old, new: [*old, *(x for xs in new for x in xs)])]

    saver = InMemorySaver()
    nodes = {"a": says("a"), "b": says("b")}
    await line(nodes, Old, saver, interrupt_before=["b"]).ainvoke(
        {"note": "n", "files": ["f"]}, thread(), durability="sync"
    )
    found = await head(saver)

    told = lg.missing_parts(line(nodes), found.checkpoint, found.pending_writes or [])

    assert sorted(told) == ["state key 'files' is stored but gone", "state key 'note' is stored but gone"]


async def test_sends_and_joins_to_gone_nodes_are_missed() -> None:
    """Sends that are due or written, and a join that was half reached, are named when their node is gone."""

    def graph(target: str, saver: Any = None) -> Any:
        builder = StateGraph(Log)
        for name in ("a", "b"):
            builder.add_node(name, says(name))
            builder.add_edge(START, name)
        builder.add_node("late", says("late"))
        builder.add_edge("b", "late")
        builder.add_node(target, says(target))
        builder.add_node("join" + target, says("j"))
        builder.add_edge(["a", "late"], "join" + target)
        builder.add_conditional_edges("b", lambda _: [Send(target, {})], [target])
        return builder.compile(checkpointer=saver, interrupt_before=["late"])

    saver = InMemorySaver()
    await graph("old", saver).ainvoke({}, thread(), durability="sync")
    found = await head(saver)

    told = lg.missing_parts(graph("new"), found.checkpoint, [("t", lg.TASKS, Send("older", {}))])

    assert told == [
        "node 'joinold' is waited for but gone",
        "a Send to node 'old' is pending but the node is gone",
        "a Send to node 'older' is pending but the node is gone",
    ]


async def test_a_finished_thread_misses_nothing() -> None:
    """A head with nothing due is fine for a graph with other nodes."""
    saver = InMemorySaver()
    await line({"a": says("a"), "b": says("b")}, saver=saver).ainvoke({}, thread(), durability="sync")
    found = await head(saver)

    assert lg.missing_parts(line({"c": says("c")}), found.checkpoint, found.pending_writes or []) == []


async def test_subgraphs_without_saver_are_named() -> None:
    """`checkpointer=False` subgraphs are found as nodes, in node functions and below other subgraphs."""
    for kind, path in (("node", "sub"), ("deep", "outer|sub"), ("function", "calls"), ("tool", "tools")):
        assert lg.subgraphs_without_saver(await nested_without_saver(kind)) == [path]
    assert lg.subgraphs_without_saver(fan({"sub": fan({"x": says("x")})})) == []


# -- description -----------------------------------------------------------------------------------------------


def described() -> Any:
    """A graph with a bit of everything; built anew in another process by the test below."""

    @tool
    def look(city: str, days: int = 3) -> str:
        """Look."""
        return ""

    class Inner(TypedDict, total=False):
        log: Annotated[list[str], lambda old, new: old + new]
        seen: set[str] | None

    inner = line({"x": lambda s: s, "y": lambda s: s}, Inner)
    builder = StateGraph(Messages, context_schema=Inner)
    builder.add_node("tools", ToolNode([look]))
    builder.add_node("sub", inner)
    builder.add_node("end", lambda s: {})
    builder.add_edge(START, "tools")
    builder.add_edge(["tools", "sub"], "end")
    builder.add_conditional_edges("tools", lambda s: "sub", {"b": "sub", "a": END})
    return builder.compile(checkpointer=InMemorySaver(), interrupt_before=["sub"])


def test_a_description_holds_what_a_graph_is_made_of() -> None:
    """Nodes, edges, channels, interrupts, schemas, tools and subgraphs are told, without addresses."""
    told = lg.describe_graph(described())

    assert set(told["nodes"]) == {"__start__", "tools", "sub", "end"}
    assert told["nodes"]["tools"]["tools"]["look"]["properties"]["days"] == {"default": 3, "type": "integer"}
    assert told["edges"]["joins"] == [["sub", "tools", "end"]]
    assert list(told["edges"]["branches"]["tools"].values()) == [["__end__", "sub"]]
    assert told["channels"]["messages"]["reducer"] == "_add_messages"
    assert told["interrupt_before"] == ["sub"]
    assert told["schemas"]["context"]["seen"] == "set[str] | None"
    assert told["subgraphs"]["sub"]["channels"]["log"]["reducer"] == "<lambda>"
    assert " at 0x" not in str(told)


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    """The same graphs built by another process, with other hash seeds, have the same fingerprints."""
    code = (
        "import test_langgraph_hooks as t; from ninelives import _langgraph as lg;"
        "print(lg.fingerprint(t.described()), lg.fingerprint(t.agent_with_subagent([t.weather_tool()], None)))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *filter(None, sys.path)])}
    mine = f"{lg.fingerprint(described())} {lg.fingerprint(agent_with_subagent([weather_tool()], None))}"

    theirs = [
        subprocess.check_output([sys.executable, "-c", code], env={**env, "PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    ]

    assert [one.strip() for one in theirs] == [mine, mine]


def weather_tool() -> Any:
    @tool
    def weather(city: str) -> str:
        """Weather."""
        return "sun"

    return weather


def test_a_fingerprint_sees_structure_and_not_prose() -> None:
    """A renamed node, another key, a tool's new argument change it; a prompt or a function's body does not."""

    def of(node: str = "a", schema: Any = Log, reply: str = "x", **kwargs: Any) -> str:
        return lg.fingerprint(line({node: says(reply)}, schema, **kwargs))

    @tool
    def weather(city: str, when: str) -> str:
        """Weather."""
        return ""

    class More(Log, total=False):
        note: str

    assert of() == of(reply="y")
    others = [of("b"), of(schema=More), of(interrupt_after=["a"])]
    assert len({of(), *others}) == 4
    one, two = (lg.fingerprint(agent_with_subagent([t], None)) for t in (weather_tool(), weather))
    assert one != two


# -- types -----------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    colour: Colour


@dataclass
class Leaf:
    point: Point
    parent: Tree | None = None


class Tree(BaseModel):
    leaves: dict[str, list[Leaf]] = {}


@dataclass
class Unresolvable:
    gone: NoSuchName  # type: ignore[name-defined]  # noqa: F821
    colour: Colour


class Deep(BaseModel):
    pass


class OnlyNode(TypedDict):
    deep: Deep


class Planted(TypedDict, total=False):
    tree: Annotated[list[Tree] | None, lambda old, new: new]
    odd: Any


class SubState(TypedDict, total=False):
    odd: Unresolvable


@dataclass
class Setting:
    name: str


def test_schema_types_reach_everything_declared() -> None:
    """Classes are found through generics, unions, fields, node inputs, context, subgraphs; odd hints are no error."""

    def node(state: OnlyNode) -> Any:
        return {}

    builder = StateGraph(Planted, context_schema=Setting)
    builder.add_node("n", node, input_schema=OnlyNode)
    builder.add_node("sub", line({"x": lambda s: s}, SubState))
    builder.add_edge(START, "n")

    found = lg.schema_types(builder.compile())

    assert {Tree, Leaf, Point, Colour, Deep, Unresolvable, Setting} <= found


def test_schema_types_of_a_deep_agent_include_its_messages() -> None:
    """A real agent's types are found without error."""
    assert {HumanMessage, AIMessage, ToolMessage} <= lg.schema_types(agent_with_subagent([weather_tool()], None))


# -- handled errors --------------------------------------------------------------------------------------------


class Settling(InMemorySaver):
    """Gives recorded handler results to the tasks that failed, as our saver does at load."""

    graph: Any = None

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await super().aget_tuple(config)
        if found is None or self.graph is None:
            return found
        ns = config["configurable"].get("checkpoint_ns", "")
        writes: Any = found.pending_writes or []
        return found._replace(
            pending_writes=lg.settle_handled_errors(self.graph, found.checkpoint, found.metadata, ns, writes)
        )


class Ordered(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    delta: Annotated[list[str], DeltaChannel(lambda old, new: [*old, *(x for xs in new for x in xs)])]


def handled_graph(saver: Any, ran: list[str], *, fails: int, nested: bool, sends: bool = False) -> Any:
    """bad (handled) beside sibling, which fails that many times; then done."""

    async def bad(state: Any) -> Ordered:
        ran.append("bad")
        raise ValueError("bad")

    async def handler(state: Any, error: NodeError) -> Any:
        ran.append("handler")
        return Command(update={"log": ["handled"], "delta": ["handled"]}, goto="extra")

    async def sibling(state: Any) -> Ordered:
        ran.append("sibling")
        if ran.count("sibling") <= fails:
            raise KeyError("sibling")
        return {"log": ["sibling"], "delta": ["sibling"]}

    builder = StateGraph(Ordered)
    builder.add_node("bad", bad, error_handler=handler)
    builder.add_node("sibling", sibling)
    builder.add_node("extra", lambda state: {"log": ["extra"], "delta": ["extra"]})
    builder.add_node("done", lambda state: {"log": ["done"], "delta": ["done"]})
    if sends:
        builder.add_conditional_edges(START, lambda _: [Send("bad", {}), Send("sibling", {})], ["bad", "sibling"])
    else:
        builder.add_edge(START, "bad")
        builder.add_edge(START, "sibling")
    builder.add_edge("sibling", "done")
    graph: Any = builder.compile(checkpointer=None if nested else saver)
    return line({"sub": graph}, Ordered, saver) if nested else graph


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize("nested", [False, True])
async def test_a_handler_that_finished_does_not_run_again(nested: bool, sends: bool) -> None:
    """After a sibling's failure a resume applies the handler's recorded result, as in an undisturbed run (C12)."""
    ran: list[str] = []
    saver = Settling()
    saver.graph = graph = handled_graph(saver, ran, fails=1, nested=nested, sends=sends)
    steps = lg.Supersteps(max_concurrency=None)
    with pytest.raises(KeyError):
        await within(graph.ainvoke({}, driven(steps), durability="sync"))

    resumed = await within(graph.ainvoke(None, driven(steps), durability="sync"))

    undisturbed = await handled_graph(InMemorySaver(), [], fails=0, nested=nested, sends=sends).ainvoke(
        {}, thread(), durability="sync"
    )
    assert sorted(ran) == ["bad", "handler", "sibling", "sibling"]
    assert resumed == undisturbed
    reread = (await graph.aget_state(thread())).values
    assert reread == undisturbed


async def test_without_settling_the_handler_runs_twice() -> None:
    """Plain LangGraph runs the handler again on a resume: the reason for `settle_handled_errors`."""
    ran: list[str] = []
    graph = handled_graph(InMemorySaver(), ran, fails=1, nested=False)
    steps = lg.Supersteps(max_concurrency=None)
    with pytest.raises(KeyError):
        await within(graph.ainvoke({}, driven(steps), durability="sync"))

    await within(graph.ainvoke(None, driven(steps), durability="sync"))

    assert ran.count("handler") == 2


def test_an_unfinished_handler_is_left_to_run_again() -> None:
    """Writes without a finished handler come back as they were."""
    graph = handled_graph(InMemorySaver(), [], fails=0, nested=False)
    writes = [("t1", lg.ERROR, "bad"), ("t1", lg.ERROR_SOURCE_NODE, "bad"), ("t2", lg.ERROR, "handler too")]
    checkpoint = {"id": "1f0aa0f0-0000-6000-8000-000000000000", "v": 4}

    assert lg.settle_handled_errors(graph, checkpoint, {"step": 0}, "", writes) == writes


# -- tools of a tool node ----------------------------------------------------------------------------------------


class BodyInAMethod(BaseTool):
    """A tool whose body is a method, not a function that it holds."""

    name: str = "method"
    description: str = "tells its thread"

    def _run(self, **kwargs: Any) -> str:
        return threading.current_thread().name


@pytest.mark.parametrize("kind", ["function", "method"])
async def test_sync_tools_run_on_our_executor(kind: str) -> None:
    """A tool node calls the tools that it holds by name; its sync ones take our threads, whatever the loop's are."""

    @tool
    def function() -> str:
        """Tell its thread."""
        return threading.current_thread().name

    node = ToolNode([function, BodyInAMethod()])
    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", node)
    graph.add_edge(START, "tools")
    call = AIMessage("", tool_calls=[{"name": kind, "args": {}, "id": "c1"}])
    with lg.RunExecutor(2, thread_name_prefix="ours") as executor:
        state = await lg.prepared(graph.compile(), executor).ainvoke({"messages": [call]})

    assert state["messages"][-1].content.startswith("ours")
    assert node.tools_by_name["function"] is function, "the user's own tool node is as it was"
