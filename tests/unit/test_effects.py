"""An outside act happens once per key: recorded, replayed, or openly unknown."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, interrupt

from agents import SAFE_S, Home, Log, asks, chain, config, fan, home_in, loses_its_lease
from clocks import HandClock
from ninelives import (
    ConfigError,
    EffectOutcomeUnknownError,
    GraphChangedError,
    InvalidDecisionError,
    LeaseLostError,
    NineLivesError,
    NoCheckpointFoundError,
    UnknownTypeError,
    effect,
    idempotency_key,
)
from ninelives.config import EffectRule, EffectsSettings, Settings
from ninelives.effects import DEADLINE_MARGIN_S, SKIPPED, Done, NotDone
from ninelives.model import ONE_USER, EffectState


class Till:
    """Takes money, and remembers each payment with the key that came with it."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, str]] = []
        self.broken: Exception | None = None

    def take(self, order: str) -> str:
        self.paid.append((order, idempotency_key()))
        if self.broken:
            raise self.broken
        return f"paid {order}"


@pytest.fixture
def till() -> Till:
    return Till()


class Stumbling:
    """A node that calls, and then fails until told not to: its call runs again with it."""

    def __init__(self, call: Any) -> None:
        self.call, self.broken, self.__name__ = call, True, "n"

    def __call__(self, state: Log) -> Any:
        answer = self.call()
        if self.broken:
            raise ConnectionRefusedError("after the act")
        return {"log": [str(answer)]}


def stumbled(home: Home, call: Any) -> tuple[Any, Stumbling]:
    """An agent on whose thread "t" a node acted and then failed."""
    node = Stumbling(call)
    agent = home.protect(chain(node))
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t")
    node.broken = False
    return agent, node


def step_that(call: Any) -> Any:
    """A node that calls, and tells what came of it."""

    def n(state: Log) -> Any:
        return {"log": [str(call())]}

    return n


def settle(home: Home, state: EffectState, result: Any = None) -> None:
    act = home.effects()[-1]
    home.store.perform(home.store.settle_effect(ONE_USER, act.key, state, result, by="ada", why="looked"))


# -- whatever is marked ----------------------------------------------------------------------------------------


class PayTool(BaseTool):
    name: str = "pay"
    description: str = "Pay."
    till: Any = None

    def _run(self, order: str) -> str:
        return str(self.till.take(order))


class PayToolToo(PayTool):
    async def _arun(self, order: str) -> str:
        return str(self.till.take(order))


def sync_function(till: Till) -> Any:
    def pay(order: str) -> str:
        return till.take(order)

    return pay


def async_function(till: Till) -> Any:
    async def pay(order: str) -> str:
        await asyncio.sleep(0)
        return till.take(order)

    return pay


def made(kind: str, till: Till) -> Any:
    """A tool of this kind that pays."""
    sync, asynchronous = sync_function(till), async_function(till)
    sync.__doc__ = asynchronous.__doc__ = "Pay."
    makers: dict[str, Callable[[], Any]] = {
        "@tool": lambda: tool(sync),
        "@tool async": lambda: tool(asynchronous),
        "StructuredTool": lambda: StructuredTool.from_function(sync),
        "StructuredTool both": lambda: StructuredTool.from_function(sync, asynchronous),
        "BaseTool": lambda: PayTool(till=till),
        "BaseTool async": lambda: PayToolToo(till=till),
    }
    return makers[kind]()


TOOLS = ["@tool", "@tool async", "StructuredTool", "StructuredTool both", "BaseTool", "BaseTool async"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_function_in_a_node_is_replayed(home: Home, till: Till, kind: str) -> None:
    """A node that runs again gets the recorded result of its act, sync or async."""
    act = effect((sync_function if kind == "sync" else async_function)(till))
    broken = [True]

    async def n(state: Log) -> Any:
        answer = act("o1")
        answer = await answer if kind == "async" else answer
        if broken:
            raise ConnectionRefusedError("after the act")
        return {"log": [answer]}

    agent = home.protect(chain(n))
    with pytest.raises(ConnectionRefusedError):
        await agent.ainvoke(asks(), thread="t")
    broken.clear()

    assert await agent.ainvoke(None, thread="t") == asks("paid o1")
    assert len(till.paid) == 1


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
@pytest.mark.parametrize("kind", TOOLS)
async def test_a_tool_of_any_kind_is_replayed(home: Home, till: Till, kind: str, how: str) -> None:
    """Every kind of tool object can be marked, in a bare tool node, and keeps its name and schema."""
    plain = made(kind, till)
    pay = effect(plain)
    agent, broken = in_tool_node(home, [pay], ["o1"])
    with pytest.raises(ConnectionRefusedError):
        await agent.ainvoke({"messages": []}, thread="t")
    broken.clear()

    out = await agent.ainvoke(None, thread="t") if how == "ainvoke" else agent.invoke(None, thread="t")

    assert [message.content for message in out["messages"] if isinstance(message, ToolMessage)] == ["paid o1", "ok"]
    assert len(till.paid) == 1
    assert (pay.name, pay.args) == (plain.name, plain.args)
    assert type(pay) is type(plain)


def in_tool_node(home: Home, tools: list[Any], orders: list[str], **options: Any) -> tuple[Any, list[bool]]:
    """A model that calls `pay` for each order at once, a tool node, and a last tool of its call that fails."""
    broken = [True]

    @tool
    def fail() -> str:
        """Fail."""
        if broken:
            raise ConnectionRefusedError("beside the act")
        return "ok"

    def model(state: Any) -> Any:
        calls = [
            {"name": "pay", "args": {"order": o}, "id": f"c{i}", "type": "tool_call"} for i, o in enumerate(orders)
        ]
        calls.append({"name": "fail", "args": {}, "id": "cf", "type": "tool_call"})
        return {"messages": [AIMessage("", tool_calls=calls)]}

    graph = StateGraph(MessagesState).add_node("model", model)
    graph.add_node("tools", ToolNode([*tools, fail], handle_tool_errors=False))
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    return home.protect(graph.compile(), **options), broken


def test_equal_tool_calls_are_acts_of_their_own(home: Home, till: Till) -> None:
    """Two tool calls with equal arguments in one task are two acts, each replayed to its own call."""
    agent, broken = in_tool_node(home, [effect(made("@tool", till))], ["o1", "o1"])
    with pytest.raises(ConnectionRefusedError):
        agent.invoke({"messages": []}, thread="t")
    assert len(till.paid) == 2
    broken.clear()

    agent.invoke(None, thread="t")

    assert len({key for _, key in till.paid}) == len(till.paid) == 2


def test_a_tool_called_in_a_node_is_replayed(home: Home, till: Till) -> None:
    """A node that calls a marked tool by hand, with `invoke`."""
    pay = effect(made("@tool", till))
    agent, _ = stumbled(home, lambda: pay.invoke({"order": "o1"}))

    assert agent.continue_run("t") == asks("paid o1")
    assert len(till.paid) == 1


def test_an_act_in_a_subgraph_is_replayed(home: Home, till: Till) -> None:
    """An act two graphs deep, in a subgraph that a node function calls."""
    pay = effect(sync_function(till))
    node = Stumbling(lambda: pay("o1"))
    inner = chain(node)

    def middle(state: Log) -> Any:
        return inner.invoke(asks())

    agent = home.protect(chain(middle))
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t")
    node.broken = False

    assert agent.continue_run("t") == asks("paid o1")
    assert len(till.paid) == 1


@pytest.mark.parametrize("saver", [None, False, True])
def test_an_act_is_replayed_however_its_subgraph_is_saved(home: Home, till: Till, saver: Any) -> None:
    """Also in a subgraph that keeps nothing: its tasks get new ids, the act keeps its key."""
    pay = effect(sync_function(till))
    node = Stumbling(lambda: pay("o1"))
    inner = chain(node, checkpointer=saver)
    graph = StateGraph(Log).add_node("inner", inner).add_edge(START, "inner").add_edge("inner", END)
    agent = home.protect(graph.compile())
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t")
    node.broken = False

    assert agent.continue_run("t")["log"][-1] == "paid o1"
    assert len(till.paid) == 1


def test_an_act_in_a_task_of_the_functional_api_is_replayed(home: Home, till: Till) -> None:
    """`@entrypoint` and `@task`: an act in the task and one beside it."""
    pay = effect(sync_function(till))
    broken = [True]

    @task
    def work(order: str) -> str:
        answer = pay(order)
        if broken:
            raise ConnectionRefusedError("after the act")
        return str(answer)

    @entrypoint()
    def flow(order: str) -> str:
        return f"{pay(order)}, {work(order).result()}"

    agent = home.protect(flow)
    with pytest.raises(ConnectionRefusedError):
        agent.invoke("o1", thread="t")
    broken.clear()

    assert agent.invoke(None, thread="t") == "paid o1, paid o1"
    assert len(till.paid) == 2


def test_the_order_of_different_acts_does_not_matter(home: Home, till: Till) -> None:
    """Acts are known by name and arguments, not by their place in a list: a node may make them in another order."""
    pay = effect(sync_function(till))
    orders = ["o1", "o2", "o3"]
    agent, _ = stumbled(home, lambda: sorted(pay(order) for order in orders))
    orders.reverse()

    assert agent.continue_run("t") == asks("['paid o1', 'paid o2', 'paid o3']")
    assert len(till.paid) == 3


async def test_the_order_in_which_gathered_acts_end_does_not_matter(home: Home) -> None:
    """Acts under `asyncio.gather` begin and end in another order each time; each gets its own result back."""
    acted: list[str] = []
    broken = [True]
    o2_is_done = asyncio.Event()

    @effect
    async def pay(order: str) -> str:
        if order == "o1":
            await o2_is_done.wait()
        acted.append(order)
        o2_is_done.set()
        return f"{order} was number {len(acted)}"

    async def n(state: Log) -> Any:
        orders = ["o1", "o2", "o1"] if broken else ["o1", "o1", "o2"]
        answers = await asyncio.gather(*map(pay, orders))
        if broken:
            raise ConnectionRefusedError("after the acts")
        return {"log": sorted(answers)}

    agent = home.protect(chain(n))
    with pytest.raises(ConnectionRefusedError):
        await agent.ainvoke(asks(), thread="t")
    broken.clear()
    out = await agent.ainvoke(None, thread="t")

    assert out == asks("o1 was number 2", "o1 was number 3", "o2 was number 1")
    assert acted == ["o2", "o1", "o1"]


def test_acts_in_threads_of_one_node_are_replayed(home: Home, till: Till) -> None:
    """A node that acts from a pool of its own (with the context copied) has each act replayed."""
    from contextvars import copy_context

    pay = effect(sync_function(till))

    def many() -> list[Any]:
        with ThreadPoolExecutor(4) as pool:
            return sorted(job.result() for job in [pool.submit(copy_context().run, pay, f"o{i}") for i in range(4)])

    agent, _ = stumbled(home, many)
    agent.continue_run("t")

    assert len(till.paid) == 4


# -- which act it is -------------------------------------------------------------------------------------------


def test_two_intended_equal_calls_are_two_acts(home: Home, till: Till) -> None:
    """A node that pays the same twice on purpose pays twice; run again, both are replayed."""
    pay = effect(sync_function(till))
    agent, _ = stumbled(home, lambda: [pay("o1"), pay("o1")])

    assert agent.continue_run("t") == asks("['paid o1', 'paid o1']")
    assert len({key for _, key in till.paid}) == len(till.paid) == 2


def test_a_loop_acts_each_time(home: Home, till: Till) -> None:
    """The same call in a later step, a later turn or another thread is an act of its own."""
    pay = effect(sync_function(till))

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    graph = StateGraph(Log).add_node("n", n).add_edge(START, "n")
    graph.add_conditional_edges("n", lambda s: END if len(s["log"]) % 2 == 0 else "n", ["n", END])
    agent = home.protect(graph.compile())

    for thread in ("t", "t", "u"):
        agent.invoke(asks(), thread=thread)

    assert len({key for _, key in till.paid}) == 6


def test_a_start_over_takes_over_what_was_done(home: Home, till: Till) -> None:
    """Nobody is charged twice because somebody pressed start over: the recorded result counts on the new branch."""
    pay = effect(sync_function(till))
    agent, _ = stumbled(home, lambda: pay("o1"))

    out = agent.invoke(asks(), thread="t", on_unfinished="start_over")

    assert len(till.paid) == 1
    first, second = home.effects()
    assert (second.state, second.inherits, second.result) == (EffectState.DONE, first.key, first.result)
    assert out["log"] == [str(first.result)]


def test_a_start_over_may_act_anew(home: Home, till: Till) -> None:
    """`on_fork="live"`: what starts over is another attempt by choice, and its acts are its own."""
    pay = effect(on_fork="live")(sync_function(till))
    agent, _ = stumbled(home, lambda: pay("o1"))

    agent.invoke(asks(), thread="t", on_unfinished="start_over")

    assert len(till.paid) == 2


def test_a_start_over_may_ask(home: Home, till: Till) -> None:
    """`on_fork="ask"`: a person says whether what was done counts; said to be not done, it is done once more."""
    pay = effect(on_fork="ask")(sync_function(till))
    agent, _ = stumbled(home, lambda: pay("o1"))
    with pytest.raises(EffectOutcomeUnknownError, match="another branch"):
        agent.invoke(asks(), thread="t", on_unfinished="start_over")

    settle(home, EffectState.NOT_DONE)
    agent.continue_run("t")

    assert len(till.paid) == 2


def test_what_is_unknown_stays_so_on_another_branch(home: Home, till: Till) -> None:
    """A start-over does not repeat an act of which nobody knows whether it happened."""
    calls: list[int] = []

    def pay(order: str) -> str:
        calls.append(1)
        raise ConnectionError("the line is dead")

    marked = effect(pay)
    agent = home.protect(chain(step_that(lambda: marked("o1"))))
    with pytest.raises(ConnectionError):
        agent.invoke(asks(), thread="t")

    with pytest.raises(EffectOutcomeUnknownError):
        agent.invoke(asks(), thread="t", on_unfinished="start_over")

    assert len(calls) == 1


def test_a_fork_takes_over_what_came_after_it(home: Home, till: Till) -> None:
    """Turns after a checkpoint paid; a fork from there is given the first of it, and the next turn acts for itself."""
    pay = effect(sync_function(till))
    agent = home.protect(chain(step_that(lambda: pay("o1"))))
    agent.invoke(asks("begin"), thread="t")
    begun = agent.get_state(config("t")).config
    for _ in range(2):
        agent.invoke(asks("on"), thread="t")
    assert len(till.paid) == 3

    fork = {"configurable": {"thread_id": "t", "checkpoint_id": begun["configurable"]["checkpoint_id"]}}
    agent.invoke(asks("again"), fork)

    assert len(till.paid) == 3
    agent.invoke(asks("on"), thread="t")
    assert len(till.paid) == 4


def test_a_fork_by_a_state_edit_takes_over_too(home: Home, till: Till) -> None:
    """LangGraph's own way to fork: the state of an older checkpoint is edited, and the thread goes on from there."""
    pay = effect(sync_function(till))

    def before(state: Log) -> Any:
        return {"log": ["before"]}

    def pays(state: Log) -> Any:
        return {"log": [pay("o1")]}

    agent = home.protect(chain(before, pays))
    agent.invoke(asks(), thread="t")
    at_pays = next(found for found in agent.get_state_history(config()) if found.next == ("pays",))

    edited = agent.update_state(at_pays.config, asks("edited"))
    out = agent.invoke(None, edited)

    assert out == asks("before", "edited", "paid o1")
    assert len(till.paid) == 1


def test_another_branch_asks_and_repeats_under_the_first_key(home: Home, till: Till) -> None:
    """The receiver knows an unknown act by the key that it was sent with; a probe and a repeat elsewhere use it."""
    asked: list[str] = []

    def look(order: str) -> Any:
        asked.append(idempotency_key())
        return NotDone()

    pay = effect(probe=look)(sync_function(till))
    till.broken = TimeoutError("no answer")
    agent = home.protect(chain(step_that(lambda: pay("o1"))))
    with pytest.raises(TimeoutError):
        agent.invoke(asks(), thread="t")
    till.broken = None

    agent.invoke(asks(), thread="t", on_unfinished="start_over")

    assert len(till.paid) == 2
    assert {*asked, *(key for _, key in till.paid)} == {till.paid[0][1]}


@pytest.mark.parametrize("policy", ["repeat", "skip", "probe"])
def test_to_be_asked_on_a_fork_no_policy_is_enough(home: Home, till: Till, policy: Any) -> None:
    """`on_fork="ask"` is about a person: whatever is said of unknown outcomes, the run stops."""
    options = {"probe": lambda order: NotDone()} if policy == "probe" else {"unknown": policy}
    pay = effect(on_fork="ask", **options)(sync_function(till))
    agent, _ = stumbled(home, lambda: pay("o1"))

    with pytest.raises(EffectOutcomeUnknownError, match="on another branch it is done"):
        agent.invoke(asks(), thread="t", on_unfinished="start_over")

    assert len(till.paid) == 1


def test_calls_that_a_model_makes_anew_are_acts_of_their_own(home: Home, till: Till) -> None:
    """A model that is asked again after a start-over gives its calls new ids: what it wants then, it gets."""
    pay = effect(made("@tool", till))
    asked = []

    def model(state: Any) -> Any:
        asked.append(1)
        call = {"name": "pay", "args": {"order": "o1"}, "id": f"call {len(asked)}", "type": "tool_call"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def after(state: Any) -> Any:
        if len(asked) == 1:
            raise ConnectionRefusedError("later")
        return {}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("tools", ToolNode([pay]))
    graph.add_node("after", after).add_edge(START, "model").add_edge("model", "tools")
    agent = home.protect(graph.add_edge("tools", "after").add_edge("after", END).compile())
    with pytest.raises(ConnectionRefusedError):
        agent.invoke({"messages": []}, thread="t")

    agent.invoke({"messages": []}, thread="t", on_unfinished="start_over")

    assert len({key for _, key in till.paid}) == 2


def test_a_renamed_node_is_another_graph(home: Home, till: Till) -> None:
    """The place is in the key: a thread that is cut off in a node which is gone is refused, so nothing acts there."""
    pay = effect(sync_function(till))
    stumbled(home, lambda: pay("o1"))

    def renamed(state: Log) -> Any:
        return {"log": [pay("o1")]}

    with pytest.raises(GraphChangedError, match="n"):
        home.protect(chain(renamed)).continue_run("t")
    assert len(till.paid) == 1


def test_a_new_turn_after_an_abandoned_one_acts(home: Home, till: Till) -> None:
    """Another request is another act, though the one before had done the same and was given up."""
    pay = effect(sync_function(till))
    agent, stumbling = stumbled(home, lambda: pay("o1"))
    del stumbling

    agent.invoke(asks(), thread="t", on_unfinished="abandon")

    assert len(till.paid) == 2


@pytest.mark.parametrize(("policy", "paid"), [("repeat", 2), ("skip", 1)])
def test_a_policy_says_what_becomes_of_an_unknown_act(home: Home, policy: Any, paid: int) -> None:
    """Done again under the same key, or not done again and said to be unknown; nobody is asked."""
    keys: list[str] = []

    def pay(order: str) -> str:
        keys.append(idempotency_key())
        if len(keys) == 1:
            raise ConnectionError("the line is dead")
        return "paid"

    marked = effect(unknown=policy)(pay)
    agent = home.protect(chain(step_that(lambda: marked("o1"))))
    with pytest.raises(ConnectionError):
        agent.invoke(asks(), thread="t")

    out = agent.continue_run("t")

    assert len(keys) == paid
    assert len({*keys}) == 1
    told = {"repeat": "paid", "skip": "It is not known whether this was done. It was not done again."}[policy]
    assert out["log"] == [told]
    state = {"repeat": EffectState.DONE, "skip": EffectState.UNKNOWN}[policy]
    assert [one.state for one in home.effects()] == [state]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"unknown": "probe"}, "do not fit together"),
        ({"unknown": "ask", "probe": lambda order: NotDone()}, "do not fit together"),
        ({"unknown": "retry"}, "'retry' is not a choice"),
        ({"on_fork": "again"}, "'again' is not a choice"),
        ({"timeout_s": 0}, "must be more than 0"),
    ],
)
def test_a_marking_that_makes_no_sense_is_refused(wrong: dict[str, Any], said: str) -> None:
    """When the function is marked, long before it is called."""
    with pytest.raises(ConfigError, match=said):
        effect(**wrong)(lambda order: order)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(time.time())


@pytest.fixture
def timed(tmp_path: Path, clock: HandClock) -> Any:
    """A home whose store goes by a clock that the test moves."""
    with home_in(tmp_path, clock=clock) as home:
        yield home


def hangs(begun: list[str], turns: int = 1) -> Any:
    """An act that does not come back, so often."""

    async def pay(order: str) -> str:
        """Pay."""
        begun.append(idempotency_key())
        if len(begun) <= turns:
            await asyncio.Event().wait()
        return f"paid {order}"

    return pay


def awaiting(call: Any) -> Any:
    async def n(state: Log) -> Any:
        return {"log": [str(await call())]}

    return n


async def test_an_async_act_is_cut_off_and_unknown(home: Home) -> None:
    """After its `timeout_s` nobody knows; it is not done again, and a person settles it."""
    begun: list[str] = []
    marked = effect(timeout_s=0.01)(hangs(begun))
    agent = home.protect(chain(awaiting(lambda: marked("o1"))))
    with pytest.raises(TimeoutError, match=r"did not end within 0\.01 s"):
        await agent.ainvoke(asks(), thread="t")

    with pytest.raises(EffectOutcomeUnknownError, match=r"did not end within 0\.01 s; it may still be at it until"):
        await agent.acontinue_run("t")
    settle(home, EffectState.DONE, "paid after all")
    out = await agent.acontinue_run("t")

    assert len(begun) == 1
    assert out["log"] == ["paid after all"]


@pytest.mark.parametrize("what", ["tool", "function"])
@pytest.mark.parametrize("policy", ["repeat", "probe", "not done"])
async def test_what_was_cut_off_is_begun_again_when_its_time_is_over(
    timed: Home, clock: HandClock, policy: str, what: str
) -> None:
    """Its process lives: before the deadline and the margin nobody repeats it, asks for it or calls it not done."""
    begun: list[str] = []
    policies: dict[str, dict[str, Any]] = {"repeat": {"unknown": "repeat"}, "probe": {"probe": lambda order: NotDone()}}
    pay = hangs(begun)
    marked = effect(timeout_s=0.01, **policies.get(policy, {}))(tool(pay) if what == "tool" else pay)
    call = (lambda: marked.ainvoke({"order": "o1"})) if what == "tool" else (lambda: marked("o1"))
    agent = timed.protect(chain(awaiting(call)))
    with pytest.raises(TimeoutError):
        await agent.ainvoke(asks(), thread="t")
    (act,) = timed.effects()
    assert act.state is EffectState.UNKNOWN
    assert act.deadline_at == pytest.approx(act.created_at + 0.01)
    with pytest.raises(EffectOutcomeUnknownError, match="may still be at it"):
        await agent.acontinue_run("t")
    with pytest.raises(InvalidDecisionError, match="may still be at it"):
        settle(timed, EffectState.NOT_DONE)

    clock.advance(DEADLINE_MARGIN_S + 0.1)
    if policy == "not done":
        settle(timed, EffectState.NOT_DONE)

    assert await agent.acontinue_run("t") == asks("paid o1")
    assert len(begun) == 2
    assert len({*begun}) == 1


async def test_a_limit_of_the_caller_leaves_it_unknown(home: Home) -> None:
    """`asyncio.wait_for` around the call: what was set going may still happen, so this process does not repeat it."""
    begun: list[str] = []
    marked = effect(unknown="repeat")(hangs(begun))
    agent = home.protect(chain(awaiting(lambda: asyncio.wait_for(marked("o1"), 0.05))))
    with pytest.raises(TimeoutError):
        await agent.ainvoke(asks(), thread="t")
    (act,) = home.effects()
    assert (act.state, act.why) == (EffectState.UNKNOWN, "the call was cut off")

    with pytest.raises(EffectOutcomeUnknownError, match="the call was cut off; it may still be at it"):
        await agent.acontinue_run("t")
    assert len(begun) == 1


async def test_a_timeout_is_unknown_whatever_exceptions_say(home: Home) -> None:
    """`not_done_on=(TimeoutError,)` speaks of the call's own errors, not of our cutting it off."""
    marked = effect(timeout_s=0.01, not_done_on=[TimeoutError])(hangs([]))
    with pytest.raises(TimeoutError):
        await home.protect(chain(awaiting(lambda: marked("o1")))).ainvoke(asks(), thread="t")

    assert home.effects()[0].state is EffectState.UNKNOWN


@pytest.mark.parametrize("kind", ["@tool", "StructuredTool", "BaseTool"])
async def test_a_sync_act_is_not_cut_off(home: Home, kind: str) -> None:
    """A thread cannot be stopped, so its call is waited for, also where a tool is awaited: the limit is a promise."""
    go = threading.Event()

    class Slow(Till):
        def take(self, order: str) -> str:
            assert go.wait(SAFE_S)
            return super().take(order)

    pay = effect(timeout_s=0.01)(made(kind, Slow()))

    async def n(state: Log) -> Any:
        asyncio.get_running_loop().call_later(0.1, go.set)
        return {"log": [await pay.ainvoke({"order": "o1"})]}

    assert await home.protect(chain(n)).ainvoke(asks(), thread="t") == asks("paid o1")
    assert home.effects()[0].state is EffectState.DONE


def test_a_tool_that_was_skipped_tells_the_model(home: Home, till: Till) -> None:
    """The model reads that the outcome is unknown, as the result of its call; a person still finds it listed."""
    pay = effect(made("@tool", till), unknown="skip")
    agent, broken = in_tool_node(home, [pay], ["o1"])
    till.broken = TimeoutError("no answer")
    with pytest.raises(TimeoutError):
        agent.invoke({"messages": []}, thread="t")
    broken.clear()

    out = agent.continue_run("t")

    assert [m.content for m in out["messages"] if isinstance(m, ToolMessage)] == [SKIPPED, "ok"]
    assert (len(till.paid), home.effects()[0].state) == (1, EffectState.UNKNOWN)


def test_a_skipped_tool_with_an_artifact_tells_the_model_too(home: Home, till: Till) -> None:
    """Its result has two parts: the sentence, and no artifact."""

    @tool(response_format="content_and_artifact")
    def pay(order: str) -> tuple[str, int]:
        """Pay."""
        return till.take(order), 7

    till.broken = TimeoutError("no answer")
    agent, broken = in_tool_node(home, [effect(pay, unknown="skip")], ["o1"])
    with pytest.raises(TimeoutError):
        agent.invoke({"messages": []}, thread="t")
    broken.clear()

    said = [m for m in agent.continue_run("t")["messages"] if isinstance(m, ToolMessage)]

    assert (said[0].content, said[0].artifact) == (SKIPPED, None)


def test_what_skip_gives_can_be_said(home: Home, till: Till) -> None:
    """A function whose callers want something else than a sentence says what."""
    pay = effect(unknown="skip", skipped=None)(sync_function(till))
    till.broken = TimeoutError("no answer")
    agent = home.protect(chain(step_that(lambda: pay("o1"))))
    with pytest.raises(TimeoutError):
        agent.invoke(asks(), thread="t")

    assert agent.continue_run("t") == asks("None")


def test_arguments_that_do_not_fit_are_no_act(home: Home, till: Till) -> None:
    """The tool refuses them before its body: nothing was begun, and nothing is unknown."""
    made = effect(StructuredTool.from_function(sync_function(till), name="pay", description="Pay."))

    def node(state: Log) -> dict[str, Any]:
        try:
            made.invoke({"ordr": "o1"})
        except ValueError as error:
            return {"log": [type(error).__name__]}
        return {}

    agent = home.protect(StateGraph(Log).add_node("n", node).add_edge(START, "n").compile())

    out = agent.invoke(asks(), thread="t")

    assert out["log"] == ["ValidationError"]
    assert home.effects() == []


def test_nodes_retry_replays(home: Home, till: Till) -> None:
    """LangGraph's own `RetryPolicy` runs the node again, not the act; within one run."""
    pay = effect(sync_function(till))
    attempts = []

    def n(state: Log) -> Any:
        answers = [pay("o1"), pay("o1")]
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionError("after the act")
        return {"log": answers}

    graph = StateGraph(Log)
    graph.add_node("n", n, retry_policy=RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False))
    graph.add_edge(START, "n").add_edge("n", END)

    assert home.protect(graph.compile()).invoke(asks(), thread="t") == asks("paid o1", "paid o1")
    assert (len(attempts), len(till.paid)) == (3, 2)


def test_a_business_key_counts_across_threads(home: Home, till: Till) -> None:
    """`key=`: the act happens once per key, whatever thread, turn or node asks; others get its result."""
    pay = effect(key=lambda order: order)(sync_function(till))

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    def m(state: Log) -> Any:
        return {"log": [pay(order="o1")]}

    agent = home.protect(chain(n, m))
    outs = [agent.invoke(asks(), thread=thread) for thread in ("t", "u")]

    assert outs == [asks("paid o1", "paid o1")] * 2
    assert len(till.paid) == 1


def test_a_business_key_belongs_to_its_owner(home: Home, till: Till) -> None:
    """Another owner's equal key is another act."""
    pay = effect(key=lambda order: order)(sync_function(till))

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    for owner in ("ada", "bob"):
        home.protect(chain(n), owner=owner).invoke(asks(), thread="t")

    assert len(till.paid) == 2


def test_a_business_key_is_of_one_act(home: Home, till: Till) -> None:
    """Two acts of different names with equal keys are two acts."""
    pay = effect(key=lambda order: order, name="pay")(sync_function(till))
    refund = effect(key=lambda order: order, name="refund")(sync_function(till))

    def n(state: Log) -> Any:
        return {"log": [pay("o1"), refund("o1")]}

    home.protect(chain(n)).invoke(asks(), thread="t")

    assert len(till.paid) == 2


def test_a_business_key_used_with_other_arguments_counts(home: Home, till: Till, caplog: Any) -> None:
    """The record stands, and the difference is told in the log."""
    pay = effect(key=lambda order: "the one")(sync_function(till))

    def n(state: Log) -> Any:
        return {"log": [pay("o1"), pay("o2")]}

    assert home.protect(chain(n)).invoke(asks(), thread="t") == asks("paid o1", "paid o1")
    assert "recorded with other arguments" in caplog.text


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_concurrent_calls_with_one_business_key_act_once(home: Home, kind: str) -> None:
    """Four tasks at once with one key: one acts, the others wait and get its result."""
    acted = []
    inside, go = threading.Event(), threading.Event()

    def body() -> str:
        acted.append(1)
        inside.set()
        assert go.wait(SAFE_S)
        return "paid"

    if kind == "sync":

        @effect(key=lambda: "k")
        def pay() -> str:
            return body()

        def n(state: Log) -> Any:
            return {"log": [pay()]}
    else:

        @effect(key=lambda: "k")
        async def apay() -> str:
            return await asyncio.to_thread(body)

        async def n(state: Log) -> Any:  # type: ignore[misc]
            return {"log": [await apay()]}

    agent = home.protect(fan(*(_copy(n, f"n{i}") for i in range(4))))
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(agent.invoke, asks(), thread="t")
        assert inside.wait(SAFE_S)
        go.set()

        assert result.result(SAFE_S) == asks(*["paid"] * 4)
    assert acted == [1]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_two_runs_with_one_business_key_act_once(home: Home, kind: str) -> None:
    """Two runs of one process on two threads with one key: the second waits for the first's act and gets its result."""
    acted = []
    inside, go = threading.Event(), threading.Event()

    def body() -> str:
        acted.append(1)
        inside.set()
        assert go.wait(SAFE_S)
        return "paid"

    @effect(key=lambda: "k", name="pay")
    def pay() -> str:
        return body()

    @effect(key=lambda: "k", name="pay")
    async def apay() -> str:
        return await asyncio.to_thread(body)

    async def n(state: Log) -> Any:
        home.outside.happens("n")
        if home.outside.times("n") == 2:
            asyncio.get_running_loop().call_later(0.2, go.set)  # the second one is at the act by then
        return {"log": [await (apay() if kind == "async" else asyncio.to_thread(pay))]}

    agent = home.protect(chain(n))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(agent.invoke, asks(), thread="t")
        assert inside.wait(SAFE_S)
        second = pool.submit(agent.invoke, asks(), thread="u")

        assert second.result(SAFE_S) == first.result(SAFE_S) == asks("paid")
    assert acted == [1]


def _copy(node: Any, name: str) -> Any:
    if asyncio.iscoroutinefunction(node):

        async def anamed(state: Log) -> Any:
            return await node(state)

        anamed.__name__ = name
        return anamed

    def named(state: Log) -> Any:
        return node(state)

    named.__name__ = name
    return named


def test_an_act_does_not_wait_for_itself(home: Home) -> None:
    """An act that calls itself under its own business key is an error, not a standstill."""

    @effect(key=lambda depth: "k")
    def pay(depth: int) -> str:
        return str(pay(depth + 1))

    def n(state: Log) -> Any:
        return {"log": [pay(0)]}

    with pytest.raises(NineLivesError, match="calls itself under its own key"):
        home.protect(chain(n)).invoke(asks(), thread="t")


def test_arguments_that_cannot_be_stored_count_by_their_type(home: Home, till: Till) -> None:
    """A client object among the arguments is no hindrance."""

    @effect
    def pay(client: Any, order: str) -> str:
        return str(client.take(order))

    agent, _ = stumbled(home, lambda: pay(till, "o1"))

    assert agent.continue_run("t") == asks("paid o1")
    assert len(till.paid) == 1


# -- by name in the settings -------------------------------------------------------------------------------------


def ruled(**rules: EffectRule) -> Settings:
    return Settings(effects=EffectsSettings(tools=rules))


def was_paid(order: str) -> Any:
    """The probe that a settings file names."""
    return Done(f"found {order} under {idempotency_key()}")


def test_a_tool_in_the_settings_has_all_that_a_marked_one_has(home: Home, till: Till) -> None:
    """Its limit, its probe by reference, its name: the graph's code says nothing of it."""
    rule = EffectRule(probe=f"{__name__}:was_paid", timeout_s=30)
    agent, broken = in_tool_node(home, [made("@tool", till)], ["o1"], settings=ruled(pay=rule))
    till.broken = TimeoutError("no answer")
    with pytest.raises(TimeoutError):
        agent.invoke({"messages": []}, thread="t")
    broken.clear()

    out = agent.continue_run("t")

    (act,) = home.effects()
    assert act.deadline_at == pytest.approx(act.created_at + 30)
    assert [m.content for m in out["messages"] if isinstance(m, ToolMessage)] == [f"found o1 under {act.key}", "ok"]
    assert len(till.paid) == 1


def test_an_argument_in_the_settings_is_a_business_key(home: Home, till: Till) -> None:
    """The same order in another call, run and thread is the same act."""
    agent, broken = in_tool_node(home, [made("@tool", till)], ["o1", "o1"], settings=ruled(pay=EffectRule(key="order")))
    broken.clear()
    for thread in ("t", "u"):
        agent.invoke({"messages": []}, thread=thread)

    assert len(till.paid) == 1
    assert [act.key for act in home.effects()] == ["own:pay:o1"]


def test_a_tool_in_the_settings_is_one_in_a_subagent(home: Home, till: Till) -> None:
    """Its tool node is in a graph that a tool calls; the rule holds there too."""
    inner = StateGraph(MessagesState).add_node("tools", ToolNode([made("@tool", till)])).add_edge(START, "tools")
    agent_of_its_own = inner.add_edge("tools", END).compile()
    call = AIMessage("", tool_calls=[{"name": "pay", "args": {"order": "o1"}, "id": "c1", "type": "tool_call"}])
    broken = [True]

    def n(state: Log) -> Any:
        said = agent_of_its_own.invoke({"messages": [call]})
        if broken:
            raise ConnectionRefusedError("after the act")
        return {"log": [said["messages"][-1].content]}

    agent = home.protect(chain(n), settings=ruled(pay=EffectRule()))
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t")
    broken.clear()

    assert agent.continue_run("t") == asks("paid o1")
    assert len(till.paid) == 1


def test_a_mistyped_tool_is_named_with_the_one_that_was_meant(home: Home, till: Till, caplog: Any) -> None:
    """A rule that guards nothing must not look as if it did."""
    in_tool_node(home, [made("@tool", till)], ["o1"], settings=ruled(pai=EffectRule(), other=EffectRule()))

    assert "names 'pai', which is no tool of graph 'LangGraph'; did you mean 'pay'?" in caplog.text
    assert "names 'other', which is no tool of graph 'LangGraph'\n" in caplog.text


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"probe": "nowhere.at:all"}, "cannot be imported"),
        ({"key": "oder"}, "tool 'pay' has no such argument; it has order"),
        ({"probe": "a:b", "unknown": "repeat"}, "has no say"),
    ],
)
def test_a_rule_that_cannot_hold_is_refused(home: Home, till: Till, rule: dict[str, Any], said: str) -> None:
    """When the graph is protected, long before the tool is called."""
    with pytest.raises(ConfigError, match=said):
        in_tool_node(home, [made("@tool", till)], ["o1"], settings=ruled(pay=EffectRule(**rule)))


# -- when it fails ---------------------------------------------------------------------------------------------


def test_an_act_that_raises_is_unknown(home: Home, till: Till) -> None:
    """The exception comes out; nobody knows whether it happened, so it is not done again but asked about."""
    pay = effect(sync_function(till))
    till.broken = TimeoutError("no answer")

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    agent = home.protect(chain(n))
    with pytest.raises(TimeoutError, match="no answer"):
        agent.invoke(asks(), thread="t")
    (act,) = home.effects()
    assert (act.state, act.why) == (EffectState.UNKNOWN, "the call raised TimeoutError('no answer')")

    with pytest.raises(EffectOutcomeUnknownError) as stopped:
        agent.continue_run("t")

    text = str(stopped.value)
    assert f"the outcome of effect 'pay' (key '{act.key}') is unknown: the call raised TimeoutError" in text
    assert "It was not repeated. Find out whether it happened, record that" in text
    assert len(till.paid) == 1
    assert (home.statuses(), home.runs()[0].cause) == (["interrupted"], "effect_unknown")


@pytest.mark.parametrize(("state", "arrivals"), [(EffectState.DONE, 1), (EffectState.NOT_DONE, 2)])
def test_a_person_settles_what_is_unknown(home: Home, till: Till, state: EffectState, arrivals: int) -> None:
    """Settled as done, its result is replayed; as not done, it is done again under the same key. Then all goes on."""
    pay = effect(sync_function(till))
    till.broken = TimeoutError("no answer")

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    agent = home.protect(chain(n))
    with pytest.raises(TimeoutError):
        agent.invoke(asks(), thread="t")
    till.broken = None
    settle(home, state, "by hand")

    out = agent.continue_run("t")

    assert out == asks("by hand" if state is EffectState.DONE else "paid o1")
    assert len(till.paid) == arrivals
    assert len({key for _, key in till.paid}) == 1
    assert home.statuses() == ["done"]
    assert str(home.effects()[0].state) == "done"


@pytest.mark.parametrize("happened", [True, False])
def test_a_probe_settles_what_is_unknown(home: Home, till: Till, happened: bool) -> None:
    """With a probe nobody need be asked: it is told the arguments and the key, and its answer counts."""
    asked: list[tuple[str, str]] = []

    def look(order: str) -> Any:
        asked.append((order, idempotency_key()))
        return Done("it was paid") if happened else NotDone()

    pay = effect(probe=look)(sync_function(till))
    till.broken = TimeoutError("no answer")

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    agent = home.protect(chain(n))
    with pytest.raises(TimeoutError):
        agent.invoke(asks(), thread="t")
    till.broken = None

    out = agent.continue_run("t")

    assert out == asks("it was paid" if happened else "paid o1")
    assert len(till.paid) == (1 if happened else 2)
    assert {*asked, *till.paid} == {("o1", till.paid[0][1])}
    assert home.effects()[0].by == ("probe" if happened else home.runs()[0].worker_id)


async def test_an_async_probe_settles_too(home: Home, till: Till) -> None:
    """The probe of an async act may be async."""

    async def look(order: str) -> Any:
        await asyncio.sleep(0)
        return Done("it was paid")

    pay = effect(probe=look)(async_function(till))
    till.broken = TimeoutError("no answer")

    async def n(state: Log) -> Any:
        return {"log": [await pay("o1")]}

    agent = home.protect(chain(n))
    with pytest.raises(TimeoutError):
        await agent.ainvoke(asks(), thread="t")

    assert await agent.ainvoke(None, thread="t") == asks("it was paid")


@pytest.mark.parametrize("wrong", [None, True, "done"])
def test_a_probe_must_answer_plainly(home: Home, till: Till, wrong: Any) -> None:
    """Anything but `Done` or `NotDone` is an error of the probe, and settles nothing."""
    pay = effect(probe=lambda order: wrong)(sync_function(till))
    till.broken = TimeoutError("no answer")

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    agent = home.protect(chain(n))
    with pytest.raises(TimeoutError):
        agent.invoke(asks(), thread="t")
    till.broken = None

    with pytest.raises(NineLivesError, match=r"probe of effect 'pay' returned .*; it must be Done\(…\) or NotDone\(\)"):
        agent.continue_run("t")

    assert len(till.paid) == 1
    assert home.effects()[0].state is EffectState.UNKNOWN


def test_a_probe_that_fails_settles_nothing(home: Home, till: Till) -> None:
    """The world cannot be asked now: the run fails with that, and may be continued later."""
    down = [True]

    def look(order: str) -> Any:
        if down:
            raise ConnectionRefusedError("the world is away")
        return NotDone()

    pay = effect(probe=look)(sync_function(till))
    till.broken = TimeoutError("no answer")

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    agent = home.protect(chain(n))
    with pytest.raises(TimeoutError):
        agent.invoke(asks(), thread="t")
    till.broken = None
    with pytest.raises(ConnectionRefusedError, match="the world is away"):
        agent.continue_run("t")
    down.clear()

    assert agent.continue_run("t") == asks("paid o1")
    assert len(till.paid) == 2


def test_not_done_on_makes_it_repeatable(home: Home, till: Till) -> None:
    """Exceptions that say that it did not happen let the next attempt act, under the same key."""
    pay = effect(not_done_on=[ConnectionRefusedError])(sync_function(till))
    till.broken = ConnectionRefusedError("nobody there")

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    agent = home.protect(chain(n))
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t")
    assert home.effects()[0].state is EffectState.NOT_DONE
    till.broken = None

    assert agent.continue_run("t") == asks("paid o1")
    assert len({key for _, key in till.paid}) == 1
    assert home.effects()[0].attempt == 2


def test_retry_does_not_repeat_an_unknown_act(home: Home, till: Till) -> None:
    """Within one run, too: a node's `RetryPolicy` gets no second payment out of an act that raised."""
    pay = effect(sync_function(till))
    till.broken = ConnectionError("no answer")

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    graph = StateGraph(Log)
    graph.add_node("n", n, retry_policy=RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False))
    graph.add_edge(START, "n").add_edge("n", END)

    with pytest.raises(EffectOutcomeUnknownError):
        home.protect(graph.compile()).invoke(asks(), thread="t")
    assert len(till.paid) == 1


def test_an_error_handler_is_not_for_unknown_acts(home: Home, till: Till) -> None:
    """A tool node that turns errors into messages does not turn "unknown" into one: the run stops for a person."""
    pay = effect(made("@tool", till))

    def model(state: Any) -> Any:
        call = {"name": "pay", "args": {"order": "o1"}, "id": "c1", "type": "tool_call"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    broken = [True]

    def after(state: Any) -> Any:
        if broken:
            raise ConnectionRefusedError("later")
        return {}

    graph = StateGraph(MessagesState).add_node("model", model)
    graph.add_node("tools", ToolNode([pay], handle_tool_errors=True)).add_node("after", after)
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", "after").add_edge("after", END)
    agent = home.protect(graph.compile())
    till.broken = TimeoutError("no answer")

    with pytest.raises(ConnectionRefusedError):
        agent.invoke({"messages": []}, thread="t")
    broken.clear()
    out = agent.continue_run("t")

    assert len(till.paid) == 1
    assert "no answer" in out["messages"][-1].content


def test_what_is_known_cannot_be_settled_again(home: Home, till: Till) -> None:
    """Settling a known outcome, an unknown key, or as something else, is refused and changes nothing."""
    pay = effect(sync_function(till))

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    home.protect(chain(n)).invoke(asks(), thread="t")

    with pytest.raises(InvalidDecisionError, match="is known: done"):
        settle(home, EffectState.NOT_DONE)
    with pytest.raises(InvalidDecisionError, match="settled as done or not done"):
        settle(home, EffectState.UNKNOWN)
    with pytest.raises(NoCheckpointFoundError):
        home.store.perform(home.store.settle_effect(ONE_USER, "nl-x", EffectState.DONE, 1, by="ada", why=""))
    assert home.effects()[0].result == "paid o1"


def test_a_result_that_cannot_be_stored_is_unknown(home: Home) -> None:
    """It was done, but its result could not be kept: told with the type, and not done again."""
    acted = []

    class Receipt:
        pass

    @effect
    def pay() -> Any:
        acted.append(1)
        return Receipt()

    def n(state: Log) -> Any:
        return {"log": [str(pay())]}

    agent = home.protect(chain(n))
    with pytest.raises(UnknownTypeError, match="Receipt"):
        agent.invoke(asks(), thread="t")
    with pytest.raises(EffectOutcomeUnknownError, match="it was done, but its result cannot be stored"):
        agent.continue_run("t")
    settle(home, EffectState.DONE, "the receipt")

    assert agent.continue_run("t") == asks("the receipt")
    assert acted == [1]


def test_an_act_may_ask_first(home: Home) -> None:
    """An act that calls `interrupt` before it acts is not done until answered, and then done once."""
    acted = []

    @effect
    def pay(order: str) -> str:
        answer = interrupt(f"pay {order}?")
        acted.append(order)
        return f"paid {order}: {answer}"

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    agent = home.protect(chain(n))
    agent.invoke(asks(), thread="t")
    assert home.effects()[0].state is EffectState.NOT_DONE

    assert agent.invoke(Command(resume="yes"), thread="t") == asks("paid o1: yes")
    assert acted == ["o1"]


def test_an_act_before_a_question_is_not_repeated(home: Home, till: Till) -> None:
    """Code before `interrupt()` runs again with the answer; a declared act in it does not."""
    pay = effect(sync_function(till))

    def n(state: Log) -> Any:
        return {"log": [pay("o1"), interrupt("and now?")]}

    agent = home.protect(chain(n))
    agent.invoke(asks(), thread="t")

    assert agent.invoke(Command(resume="go"), thread="t") == asks("paid o1", "go")
    assert len(till.paid) == 1


# -- without a run ---------------------------------------------------------------------------------------------


def test_outside_a_run_it_is_the_plain_function(till: Till) -> None:
    """A marked function called by itself acts each time, with a key of its own."""
    pay = effect(sync_function(till))

    assert [pay("o1"), pay("o1")] == ["paid o1"] * 2
    assert len({key for _, key in till.paid}) == 2
    assert pay.__name__ == "pay"


async def test_outside_a_run_an_async_one_too(till: Till) -> None:
    """Likewise awaited."""
    assert await effect(async_function(till))("o1") == "paid o1"


def test_in_a_plain_graph_it_is_the_plain_function(till: Till) -> None:
    """In a graph that is not protected nothing is recorded."""
    pay = effect(sync_function(till))

    assert chain(Stumbling(lambda: pay("o1"))).get_graph()
    node = Stumbling(lambda: pay("o1"))
    node.broken = False
    assert chain(node).invoke(asks()) == asks("paid o1")


def test_ephemeral_records_nothing(home: Home, till: Till) -> None:
    """`ephemeral=True` keeps no run, so an act is a plain call."""
    pay = effect(sync_function(till))
    node = Stumbling(lambda: pay("o1"))
    node.broken = False

    assert home.protect(chain(node), ephemeral=True).invoke(asks()) == asks("paid o1")
    assert home.effects() == []


def test_the_key_is_asked_for_inside_an_act_only(home: Home) -> None:
    """`idempotency_key()` elsewhere, in a node too, is an error."""
    with pytest.raises(NineLivesError, match="outside a call of an @effect function"):
        idempotency_key()

    def n(state: Log) -> Any:
        idempotency_key()
        return {}

    with pytest.raises(NineLivesError, match="outside a call of an @effect function"):
        home.protect(chain(n)).invoke(asks(), thread="t")


def test_the_key_does_not_leak_out_of_the_act(home: Home, till: Till) -> None:
    """After an act the node has no key; an act within an act has its own, and the outer one's comes back."""
    keys = []

    @effect
    def inner() -> str:
        return idempotency_key()

    @effect
    def outer() -> str:
        keys.extend([idempotency_key(), inner(), idempotency_key()])
        return "ok"

    def n(state: Log) -> Any:
        return {"log": [outer()]}

    home.protect(chain(n)).invoke(asks(), thread="t")

    assert keys[0] == keys[2] != keys[1]
    with pytest.raises(NineLivesError):
        idempotency_key()


# -- without the right to it -----------------------------------------------------------------------------------


def test_who_lost_the_run_does_not_act(home: Home, till: Till) -> None:
    """The run was taken from this process between the node's start and its act: the act is not performed."""
    pay = effect(sync_function(till))

    def n(state: Log) -> Any:
        loses_its_lease(home, agent)
        return {"log": [pay("o1")]}

    agent = home.protect(chain(n))
    with pytest.raises(LeaseLostError, match="nothing was written"):
        agent.invoke(asks(), thread="t")

    assert till.paid == []
    assert home.effects() == []


def test_who_loses_the_run_while_acting_leaves_it_unknown(home: Home, till: Till) -> None:
    """The run was taken away during the act: its result is not recorded, and its successor finds it unknown."""
    inside, go = threading.Event(), threading.Event()

    @effect
    def pay() -> str:
        till.paid.append(("o1", idempotency_key()))
        inside.set()
        assert go.wait(SAFE_S)
        return "paid"

    def n(state: Log) -> Any:
        return {"log": [pay()]}

    agent = home.protect(chain(n))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(agent.invoke, asks(), thread="t")
        assert inside.wait(SAFE_S)
        loses_its_lease(home, agent)
        home.store.fault = lambda *point: go.set() if point == ("take_over", "commit", "after") else None
        second = pool.submit(agent.continue_run, "t")

        with pytest.raises(LeaseLostError, match="nothing was written"):
            first.result(SAFE_S)
        with pytest.raises(EffectOutcomeUnknownError):
            second.result(SAFE_S)

    (act,) = home.effects()
    assert act.state is EffectState.UNKNOWN
    assert len(till.paid) == 1
    assert agent.get_state(config()).next == ("n",)
