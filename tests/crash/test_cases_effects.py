"""Outside acts when the process dies in the middle: replayed, settled, or openly unknown; never done twice by us."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from agents import Home, Log, Outside, asks, chain, home_in
from clocks import HandClock
from lives import Gate, begin, die, die_at, live, live_and_die
from ninelives import EffectOutcomeUnknownError, InvalidDecisionError, effect, idempotency_key
from ninelives.effects import DEADLINE_MARGIN_S, Done, NotDone
from ninelives.model import ONE_USER, EffectState

pytestmark = pytest.mark.crash

PLACES = ["node", "tool", "bare tool node", "subgraph", "task", "subagent"]


def acting(home: Home, place: str, pay: Any) -> tuple[Any, Any]:
    """A graph that pays once at this place, and its input."""

    def n(state: Log) -> Any:
        return {"log": [pay("o1")]}

    if place == "node":
        return chain(n), asks()
    if place == "subgraph":
        inner = chain(n)

        def call(state: Log) -> Any:
            return inner.invoke(asks())

        return chain(call), asks()
    if place == "task":

        @task
        def work(order: str) -> Any:
            return pay(order)

        @entrypoint()
        def flow(order: str) -> Any:
            return {"log": [work(order).result()]}

        return flow, "o1"
    named = effect_tool(pay)
    if place == "subagent":

        @tool
        def delegate(what: str) -> str:
            """Hand the work to an agent of its own."""
            said = calling(named, "o1").invoke({"messages": []})
            return str(said["messages"][-1].content)

        return calling(delegate, "pay it", argument="what"), {"messages": []}
    if place == "tool":

        def by_hand(state: Log) -> Any:
            return {"log": [named.invoke({"order": "o1"})]}

        return chain(by_hand), asks()

    return calling(named, "o1", "o2"), {"messages": []}


def calling(named: Any, *values: str, argument: str = "order") -> Any:
    """A model that calls this tool with each of the values at once, and a bare tool node."""

    def model(state: Any) -> Any:
        calls = [{"name": named.name, "args": {argument: v}, "id": v, "type": "tool_call"} for v in values]
        return {"messages": [AIMessage("", tool_calls=calls)]}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("tools", ToolNode([named]))
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    return graph.compile()


def effect_tool(pay: Any) -> Any:
    @tool("act")
    def act(order: str) -> str:
        """Act."""
        return str(pay(order))

    return act


def life_that_pays(folder: str, place: str, probed: str = "", point: Any = None) -> Any:
    """Dies at the point, or (`point` "inside") right after the act arrived outside."""
    with home_in(folder) as home:

        def look(order: str) -> Any:
            home.outside.happens(f"asked {order}")
            return Done(f"paid {order}") if f"paid {order} {idempotency_key()}" in home.outside.seen else NotDone()

        @effect(probe=look if probed == "probed" else None)
        def pay(order: str) -> str:
            if point == "before":
                die()
            home.outside.happens(f"paid {order} {idempotency_key()}")
            if point == "inside":
                die()
            return f"paid {order}"

        graph, given = acting(home, place, pay)
        agent = home.protect(graph)
        if isinstance(point, list):
            die_at(home.store, *point)
        out = agent.invoke(given, thread="t", idempotency_key="k")
        return str(out)


def arrivals(folder: Path) -> list[str]:
    return [line for line in Outside(folder).seen if line.startswith("paid o1")]


@pytest.mark.parametrize("place", PLACES)
def test_a_recorded_act_is_replayed(tmp_path: Path, place: str) -> None:
    """Killed after the result was recorded and before the task's writes were: the act is not done again."""
    probed = "probed" if place == "bare tool node" else ""  # the other call of its task may have been cut off
    live_and_die(life_that_pays, tmp_path, place, probed, ["finish_effect", "commit", "after", 1])

    live(life_that_pays, tmp_path, place, probed)

    assert len(arrivals(tmp_path)) == 1


@pytest.mark.parametrize("inside", ["inside", "before"])
@pytest.mark.parametrize("place", PLACES)
def test_a_probe_settles_an_act_that_was_cut_off(tmp_path: Path, place: str, inside: str) -> None:
    """Killed between intent and result: the probe tells, and the act has happened once in the end."""
    live_and_die(life_that_pays, tmp_path, place, "probed", inside)

    live(life_that_pays, tmp_path, place, "probed")

    assert len(arrivals(tmp_path)) == 1
    assert "asked o1" in Outside(tmp_path).seen


@pytest.mark.parametrize("point", ["inside", "before", "intent", "result"])
@pytest.mark.parametrize("place", ["node", "subgraph"])
def test_without_a_probe_a_person_is_asked(tmp_path: Path, place: str, point: str) -> None:
    """Killed between intent and result: stopped as unknown, not repeated; settled by a person, it ends right."""
    at: Any = {"intent": ["open_effect", "commit", "after", 1], "result": ["finish_effect", "commit", "before", 1]}
    live_and_die(life_that_pays, tmp_path, place, "", at.get(point, point))
    happened = bool(arrivals(tmp_path))

    with home_in(tmp_path) as home:

        @effect
        def pay(order: str) -> str:
            home.outside.happens(f"paid {order} {idempotency_key()}")
            return f"paid {order}"

        agent = home.protect(acting(home, place, pay)[0])
        for _ in range(2):
            with pytest.raises(EffectOutcomeUnknownError, match="It was not repeated"):
                agent.continue_run("t")
        (act,) = home.effects()
        assert (act.state, home.statuses(), home.runs()[0].cause) == ("unknown", ["interrupted"], "effect_unknown")
        state = EffectState.DONE if happened else EffectState.NOT_DONE
        home.store.perform(home.store.settle_effect(ONE_USER, act.key, state, "paid o1", by="ada", why="looked"))

        assert agent.continue_run("t") == asks("paid o1")
        assert [line.split()[-1] for line in arrivals(tmp_path)] == [act.key]


@pytest.mark.parametrize("inside", ["inside", "before"])
@pytest.mark.parametrize("place", ["node", "tool", "subagent"])
@pytest.mark.parametrize(("policy", "more"), [("repeat", 1), ("skip", 0)])
def test_a_policy_decides_about_an_act_that_was_cut_off(
    tmp_path: Path, place: str, inside: str, policy: str, more: int
) -> None:
    """Killed between intent and result: repeated under the same key, or left out and listed as unknown."""
    live_and_die(life_with_a_policy, tmp_path, place, policy, inside)
    before = len(arrivals(tmp_path))

    said = live(life_with_a_policy, tmp_path, place, policy)

    keys = {line.split()[-1] for line in arrivals(tmp_path)}
    assert (len(arrivals(tmp_path)), len(keys)) == (before + more, 1 if before + more else 0)
    assert ("It is not known whether this was done" in said) == (policy == "skip")
    with home_in(tmp_path) as home:
        assert [str(act.state) for act in home.effects()] == ["done" if policy == "repeat" else "unknown"]
        assert home.statuses() == ["done"]


def life_with_a_policy(folder: str, place: str, policy: Any, point: str = "", start_over: bool = False) -> str:
    """Dies `before` the act or right after it (`inside`), if it is told to."""
    with home_in(folder) as home:

        @effect(unknown=policy)
        def pay(order: str) -> str:
            if point == "before":
                die()
            home.outside.happens(f"paid {order} {idempotency_key()}")
            if point == "inside":
                die()
            return f"paid {order}"

        graph, given = acting(home, place, pay)
        agent = home.protect(graph)
        if start_over:
            return str(agent.start_over("t"))
        return str(agent.invoke(given, thread="t", idempotency_key="k"))


@pytest.mark.parametrize("point", ["inside", "recorded"])
@pytest.mark.parametrize("place", PLACES)
def test_a_start_over_after_a_kill_pays_once(tmp_path: Path, place: str, point: str) -> None:
    """Killed with the act recorded, or in the middle of it: who starts over is not charged again unasked."""
    at = ["finish_effect", "commit", "after", 1] if point == "recorded" else point
    live_and_die(life_that_pays, tmp_path, place, "probed", at)

    live(life_that_starts_over, tmp_path, place)

    assert len(arrivals(tmp_path)) == 1


def life_that_starts_over(folder: str, place: str) -> str:
    with home_in(folder) as home:

        def look(order: str) -> Any:
            return Done(f"paid {order}") if f"paid {order} {idempotency_key()}" in home.outside.seen else NotDone()

        @effect(probe=look)
        def pay(order: str) -> str:
            home.outside.happens(f"paid {order} {idempotency_key()}")
            return f"paid {order}"

        graph, _ = acting(home, place, pay)
        return str(home.protect(graph).start_over("t"))


def test_a_tool_that_timed_out_is_unknown_and_no_guess(tmp_path: Path) -> None:
    """It charged and then hung (C33): unknown for this tool call; the next process asks, and it was charged once."""
    told = live(life_whose_tool_hangs, tmp_path, "hangs")
    assert told["error"] == "the call did not end within 0.05 s"
    assert told["act"] == {"call_id": "o1", "state": "unknown", "why": told["error"], "by": None}

    out = live(life_whose_tool_hangs, tmp_path, "asks")

    assert out["content"] == "paid o1"
    assert len(arrivals(tmp_path)) == 1
    assert out["act"] == {"call_id": "o1", "state": "done", "why": "the probe found it done", "by": "probe"}


def life_whose_tool_hangs(folder: str, what: str) -> Any:
    with home_in(folder) as home:

        def look(order: str) -> Any:
            return Done(f"paid {order}") if f"paid {order} {idempotency_key()}" in home.outside.seen else NotDone()

        @tool("act")
        async def act(order: str) -> str:
            """Act."""
            home.outside.happens(f"paid {order} {idempotency_key()}")
            await asyncio.Event().wait()
            return "never"

        graph = calling(effect(act, probe=look, timeout_s=0.05), "o1")
        agent = home.protect(graph)
        told = {}
        if what == "hangs":
            with pytest.raises(TimeoutError) as stopped:
                agent.invoke({"messages": []}, thread="t")
            told["error"] = str(stopped.value)
        else:
            told["content"] = agent.continue_run("t")["messages"][-1].content
        (found,) = home.effects()
        known = {"call_id": found.call_id, "state": str(found.state), "why": found.why, "by": found.by}
        return {**told, "act": known}


def test_killed_before_the_intent_nothing_is_known(tmp_path: Path) -> None:
    """The intent was not recorded, so the act had not begun: it is simply done."""
    live_and_die(life_that_pays, tmp_path, "node", "", ["open_effect", "commit", "before", 1])

    live(life_that_pays, tmp_path, "node")

    assert len(arrivals(tmp_path)) == 1


def test_the_key_is_the_same_for_all_attempts(tmp_path: Path) -> None:
    """Killed again and again before it arrives, each attempt hands the receiver one and the same key."""
    for _ in range(3):
        live_and_die(life_that_shows_its_key, tmp_path, True)
    live(life_that_shows_its_key, tmp_path, False)

    seen = Outside(tmp_path).seen
    assert len(seen) == 4
    assert len(set(seen)) == 1


def life_that_shows_its_key(folder: str, mortal: bool) -> Any:
    with home_in(folder) as home:

        @effect(probe=lambda: NotDone())
        def pay() -> str:
            home.outside.happens(idempotency_key())
            if mortal:
                die()
            return "paid"

        def n(state: Log) -> Any:
            return {"log": [pay()]}

        return home.protect(chain(n)).invoke(asks(), thread="t", idempotency_key="k")


def test_an_act_before_a_question_happens_once(tmp_path: Path) -> None:
    """An act in front of an `interrupt` in the same node, a kill, and the answer by another process: once."""
    live_and_die(life_that_acts_and_asks, tmp_path, "die behind the act")
    live(life_that_acts_and_asks, tmp_path, "")
    out = live(life_that_acts_and_asks, tmp_path, "answer")

    assert out == asks("paid", "yes")
    assert Outside(tmp_path).seen == ["paid"]


def life_that_acts_and_asks(folder: str, what: str) -> Any:
    from langgraph.types import Command

    with home_in(folder) as home:

        @effect
        def pay() -> str:
            home.outside.happens("paid")
            return "paid"

        def n(state: Log) -> Any:
            paid = pay()
            if what.startswith("die"):
                die()
            return {"log": [paid, interrupt("and now?")]}

        agent = home.protect(chain(n))
        if what == "answer":
            return agent.invoke(Command(resume="yes"), thread="t")
        agent.invoke(asks(), thread="t", idempotency_key="k")
        return None


def test_another_process_does_not_repeat_an_act_that_is_going_on(tmp_path: Path) -> None:
    """A business key in use by a living process: another one neither acts, asks its probe, nor settles it not done."""
    here, go = Gate(tmp_path, "here"), Gate(tmp_path, "go")
    first = begin(life_that_pays_slowly, tmp_path)
    here.wait()

    with home_in(tmp_path) as home:

        @effect(key=lambda: "order-1", name="pay", probe=lambda: NotDone())
        def pay() -> str:
            home.outside.happens("paid again")
            return "again"

        def n(state: Log) -> Any:
            return {"log": [pay()]}

        agent = home.protect(chain(n))
        with pytest.raises(EffectOutcomeUnknownError, match="another run is performing it now"):
            agent.invoke(asks(), thread="mine")
        key = home.effects("t")[0].key
        with pytest.raises(InvalidDecisionError, match="may still be at it"):
            home.store.perform(
                home.store.settle_effect(ONE_USER, key, EffectState.NOT_DONE, None, by="ada", why="guessed")
            )
        go.open()
        assert first.end().value == asks("paid")

        assert agent.continue_run("mine") == asks("paid")
        assert home.outside.seen == ["paid"]


def life_that_pays_slowly(folder: str) -> Any:
    with home_in(folder) as home:

        @effect(key=lambda: "order-1", name="pay")
        def pay() -> str:
            home.outside.happens("paid")
            Gate(folder, "here").open()
            Gate(folder, "go").wait()
            return "paid"

        def n(state: Log) -> Any:
            return {"log": [pay()]}

        return home.protect(chain(n)).invoke(asks(), thread="t")


def test_a_call_that_outlives_its_limit_is_repeated_and_comes_too_late(tmp_path: Path) -> None:
    """It promised to end within a second, and did not. After the margin another acts; its late word is not taken."""
    here, go = Gate(tmp_path, "here"), Gate(tmp_path, "go")
    first = begin(life_that_breaks_its_promise, tmp_path)
    here.wait()
    clock = HandClock(time.time())

    with home_in(tmp_path, clock=clock) as home:

        @effect(key=lambda: "order-1", name="pay", unknown="repeat", timeout_s=1.0)
        def pay() -> str:
            home.outside.happens(f"again {idempotency_key()}")
            return "again"

        def n(state: Log) -> Any:
            return {"log": [pay()]}

        agent = home.protect(chain(n))
        with pytest.raises(EffectOutcomeUnknownError, match="another run is performing it now"):
            agent.invoke(asks(), thread="mine")

        clock.advance(1 + DEADLINE_MARGIN_S + 1)
        assert agent.continue_run("mine") == asks("again")
        go.open()
        ended = first.end()

        (act,) = home.effects("mine")
        assert (act.result, act.attempt) == ("again", 2)
    assert ended.value == asks("again"), ended.error
    assert len({line.split()[-1] for line in Outside(tmp_path).seen}) == 1


def life_that_breaks_its_promise(folder: str) -> Any:
    with home_in(folder) as home:

        @effect(key=lambda: "order-1", name="pay", timeout_s=1.0)
        def pay() -> str:
            home.outside.happens(f"paid {idempotency_key()}")
            Gate(folder, "here").open()
            Gate(folder, "go").wait()
            return "paid"

        def n(state: Log) -> Any:
            return {"log": [pay()]}

        return home.protect(chain(n)).invoke(asks(), thread="t")
