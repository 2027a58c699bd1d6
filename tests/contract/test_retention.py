"""Forgetting without breaking what can still go on."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from random import Random
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from contract.desk import TTL_S, Desk
from ninelives.errors import ThreadBusyError
from ninelives.model import ONE_USER, PrunePlan, RunStatus
from ninelives.saver import Saver


def prune(desk: Desk, thread_id: str = "t") -> int:
    return desk.do(desk.store.prune_thread(ONE_USER, thread_id))


def size(desk: Desk, thread_id: str = "t") -> int:
    (found,) = [t for t in desk.do(desk.store.list_threads(ONE_USER)) if t.thread_id == thread_id]
    return found.bytes


def chain(desk: Desk, n: int, *, delta: bool, stored_at: int | None = None, lease: Any = None) -> None:
    """Checkpoints c0 … c(n-1); with `delta`, a channel "log" that is only in the writes, but for one snapshot."""
    for i in range(n):
        values = {"n": f"value {i}"} | ({"log": ["stored", i]} if i == stored_at else {})
        since = {"log": (i, i)} if delta and i != stored_at else {}
        metadata = {"counters_since_delta_snapshot": since} if since else {}
        versions = ["log"] if delta and i else []
        desk.put(lease, f"c{i}", f"c{i - 1}" if i else None, values=values, versions=versions, metadata=metadata)
        desk.write(lease, f"c{i}", f"k{i}", ("log", i))


# -- prune --------------------------------------------------------------------------------------------------------


def test_the_newest_of_every_namespace_stays(desk: Desk) -> None:
    """With its writes; all older ones go, and their writes with them."""
    chain(desk, 4, delta=False)
    desk.put(None, "s1", ns="sub:1")
    desk.put(None, "s2", "s1", ns="sub:1")

    assert prune(desk) == 4

    assert desk.checkpoints() == ["c3"]
    assert desk.checkpoints(ns="sub:1") == ["s2"]
    assert desk.get("c3").writes == [("k3", "log", 3)]
    desk.put(None, "c0", "c3")
    assert desk.get("c0").writes == [], "the writes of a forgotten checkpoint do not come back"


def test_pruning_twice_is_pruning_once(desk: Desk) -> None:
    """The second time nothing goes and nothing is told."""
    chain(desk, 3, delta=False)
    prune(desk)
    before = desk.trace()

    assert prune(desk) == 0
    assert prune(desk, "nowhere") == 0

    assert desk.trace() == before


def test_the_newest_by_the_stores_order_stays(desk: Desk) -> None:
    """Not the one whose id sorts last."""
    desk.put(None, "c9")
    desk.put(None, "c1", "c9")

    prune(desk)

    assert desk.checkpoints() == ["c1"]


def test_content_that_nothing_refers_to_goes(desk: Desk) -> None:
    """What the kept checkpoint and its writes are made of stays, shared or not."""
    x, y, z = (Random(seed).randbytes(1000) for seed in "xyz")  # nothing that could be compressed
    desk.put(None, "c1", values={"n": [x, y]})
    desk.put(None, "c2", "c1", values={"n": [y]})
    desk.write(None, "c2", "k", ("n", z))
    before = size(desk)

    prune(desk)

    assert before - 1500 < size(desk) < before - 1000
    head = desk.get("c2")
    assert head.checkpoint["channel_values"] == {"n": [y]}
    assert head.writes == [("k", "n", z)]


def test_what_a_delta_channel_replays_stays(desk: Desk) -> None:
    """Back to the snapshot and no further; the rebuilt value is the same before and after."""
    chain(desk, 8, delta=True, stored_at=3)
    before = desk.history("c7", "log")

    assert prune(desk) == 3

    assert desk.checkpoints() == ["c7", "c6", "c5", "c4", "c3"]
    assert desk.history("c7", "log") == before == ([3, 4, 5, 6], [["stored", 3]])


def test_without_a_snapshot_the_whole_chain_stays(desk: Desk) -> None:
    """A value that exists only in its writes needs all of them."""
    chain(desk, 5, delta=True)
    before = desk.history("c4", "log")

    assert prune(desk) == 0

    assert desk.history("c4", "log") == before


def test_a_delta_channel_that_was_never_written_keeps_nothing(desk: Desk) -> None:
    """LangGraph counts supersteps for it all the same; it has no version, so there is nothing to rebuild."""
    for i in range(3):
        metadata = {"counters_since_delta_snapshot": {"log": (0, i + 1)}}
        desk.put(None, f"c{i}", f"c{i - 1}" if i else None, metadata=metadata)

    assert prune(desk) == 2


@pytest.mark.parametrize("status", [RunStatus.INTERRUPTED, RunStatus.FAILED, RunStatus.QUEUED])
def test_where_a_start_over_would_begin_stays(desk: Desk, status: RunStatus) -> None:
    """The head when the unfinished chain of runs began, with what it replays; once that run is closed, it may go."""
    worker = desk.worker()
    first = desk.start(worker)
    chain(desk, 4, delta=True, stored_at=1, lease=first)
    desk.finish(first)
    second = desk.start(worker, "r2")
    for n in (4, 5):
        desk.put(second, f"c{n}", f"c{n - 1}", values={"log": ["whole"]})
    desk.finish(second, status)
    base = desk.history("c3", "log")

    assert prune(desk) == 2

    assert desk.checkpoints() == ["c5", "c3", "c2", "c1"]
    assert desk.history("c3", "log") == base
    desk.do(desk.store.close_run(ONE_USER, "r2", RunStatus.ABANDONED, by="ann"))
    prune(desk)
    assert desk.checkpoints() == ["c5"]


def test_a_pruned_thread_goes_on_and_branches(desk: Desk) -> None:
    """The kept head can be extended once, a kept ancestor only by a branch."""
    chain(desk, 4, delta=True, stored_at=1)

    prune(desk)

    desk.put(None, "c4", "c3")
    desk.put(None, "f1", "c2", source="fork")
    desk.put(None, "f2", "f1")
    assert desk.checkpoints() == ["f2", "f1", "c4", "c3", "c2", "c1"]


def test_a_thread_under_way_is_not_pruned(desk: Desk) -> None:
    """Its next checkpoint may need any of them."""
    lease = desk.start(desk.worker())
    chain(desk, 3, delta=False, lease=lease)
    with pytest.raises(ThreadBusyError):
        prune(desk)
    assert len(desk.checkpoints()) == 3

    desk.clock.advance(TTL_S)
    assert prune(desk) == 2


# -- a plan ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [False, True])
def test_a_plan_says_what_will_go_and_changes_nothing(desk: Desk, delta: bool) -> None:
    """As many checkpoints as then go, about as many bytes; the store is as it was."""
    for n in range(40):
        text = " ".join(Random(n).choices(["what", "is", "there", "to", "be", "said", "of", "it"], k=200))
        values: dict[str, Any] = {"n": [Random(n).randbytes(500), text]}
        counters = {"counters_since_delta_snapshot": {"log": (n, n)}} if delta and n != 20 else {}
        values |= {"log": ["stored"]} if delta and n == 20 else {}
        desk.put(None, f"c{n}", f"c{n - 1}" if n else None, values=values, metadata=counters, versions=["log"])
        desk.write(None, f"c{n}", "k", ("n", Random(-n).randbytes(500)))
    before, full = desk.trace(), size(desk)

    plan = desk.do(desk.store.plan_pruning(ONE_USER, "t"))

    assert desk.trace() == before
    assert (plan.checkpoints, plan.kept) == ((20, 20) if delta else (39, 1))
    assert prune(desk) == plan.checkpoints
    assert full - size(desk) == pytest.approx(plan.bytes, rel=0.15)
    assert desk.do(desk.store.plan_pruning(ONE_USER, "t")) == PrunePlan(0, plan.kept, 0)


def test_a_plan_waits_for_nobody(desk: Desk) -> None:
    """It tells of a thread under way, too, as if that ended now; one that is unknown has nothing to lose."""
    lease = desk.start(desk.worker())
    chain(desk, 3, delta=False, lease=lease)

    assert desk.do(desk.store.plan_pruning(ONE_USER, "t")).checkpoints == 2
    assert desk.do(desk.store.plan_pruning(ONE_USER, "nowhere")) == PrunePlan()


# -- by runs --------------------------------------------------------------------------------------------------------


def delete_for(desk: Desk, *run_ids: str) -> int:
    return desk.do(desk.store.delete_for_runs(ONE_USER, run_ids))


def two_runs(desk: Desk, *, delta: bool) -> None:
    """Run r1 made c0 … c2, run r2 c3 … c4, which replays from c1 with `delta`."""
    worker = desk.worker()
    first = desk.start(worker)
    chain(desk, 3, delta=delta, stored_at=1 if delta else None, lease=first)
    desk.finish(first)
    second = desk.start(worker, "r2")
    for n in (3, 4):
        metadata = {"counters_since_delta_snapshot": {"log": (n, n)}} if delta else {}
        desk.put(second, f"c{n}", f"c{n - 1}", metadata=metadata, versions=["log"] if delta else [])
    desk.finish(second)


def test_a_runs_checkpoints_go(desk: Desk) -> None:
    """Its own and their writes; others' stay, and the thread can go on from them."""
    two_runs(desk, delta=False)

    assert delete_for(desk, "r2") == 2

    assert desk.checkpoints() == ["c2", "c1", "c0"]
    desk.put(None, "d3", "c2")
    assert desk.checkpoints() == ["d3", "c2", "c1", "c0"]


def test_what_a_live_chain_replays_stays_though_its_run_goes(desk: Desk) -> None:
    """Only what no remaining checkpoint is rebuilt from is forgotten."""
    two_runs(desk, delta=True)
    before = desk.history("c4", "log")

    assert delete_for(desk, "r1") == 1

    assert desk.checkpoints() == ["c4", "c3", "c2", "c1"]
    assert desk.history("c4", "log") == before


def test_runs_of_a_saver_used_alone_go_by_their_metadata(desk: Desk) -> None:
    """There the run is whatever the caller's metadata says; on all threads of the owner."""
    for name in ("a", "b"):
        desk.put(None, "c1", thread_id=name, metadata={"run_id": "x"})
        desk.put(None, "c2", "c1", thread_id=name, metadata={"run_id": "y"})

    assert delete_for(desk, "x", "unknown") == 2

    assert desk.checkpoints("a") == desk.checkpoints("b") == ["c2"]


def test_a_run_under_way_is_not_deleted(desk: Desk) -> None:
    """Nor are any of the others that were named with it: all or nothing."""
    worker = desk.worker()
    desk.put(None, "c1", thread_id="a", metadata={"run_id": "x"})
    desk.put(desk.start(worker), "c1")

    with pytest.raises(ThreadBusyError):
        delete_for(desk, "x", "r1")

    assert desk.checkpoints("a") == desk.checkpoints() == ["c1"]


# -- a real graph ---------------------------------------------------------------------------------------------------


def append(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *(word for write in writes for word in write)]


class State(TypedDict):
    log: Annotated[list[str], DeltaChannel(append, snapshot_frequency=4)]
    long: Annotated[list[str], DeltaChannel(append, snapshot_frequency=1000)]
    n: Annotated[int, operator.add]


def talker() -> Any:
    def say(state: State) -> dict[str, Any]:
        return {"log": [f"say {state['n']}"], "long": ["long"], "n": 1}

    def ask(state: State) -> dict[str, Any]:
        return {"log": [interrupt(f"go on after {len(state['log'])}?")]}

    graph = StateGraph(State)
    graph.add_node("say", say)
    graph.add_node("ask", ask)
    graph.add_edge(START, "say")
    graph.add_conditional_edges("say", lambda s: "ask" if s["n"] % 3 == 0 else "say")
    graph.add_edge("ask", END)
    return graph


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_delta_graph_is_the_same_before_and_after(desk: Desk, turns: int) -> None:
    """State, question and the way on: an interrupted thread that was pruned answers and ends like one that was not."""
    graph = talker().compile(checkpointer=Saver(desk.store))
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    for _ in range(turns):
        graph.invoke({"log": ["hi"], "long": ["hi"], "n": 0}, config)
        graph.invoke(Command(resume="yes"), config)
        graph.update_state(config, {"n": 0, "log": ["edited"]})
    graph.invoke({"log": ["last"], "n": 0}, config)
    desk.do(desk.store.copy_thread(ONE_USER, "t", "unpruned"))
    before = graph.get_state(config)

    prune(desk)

    after = graph.get_state(config)
    assert after.values == before.values
    assert (after.next, after.interrupts, after.config) == (before.next, before.interrupts, before.config)
    assert len(after.values["long"]) > turns
    answered = graph.invoke(Command(resume="go"), config)
    assert answered == graph.invoke(Command(resume="go"), {"configurable": {"thread_id": "unpruned"}})
    assert graph.invoke({"log": ["more"], "n": 0}, config)["log"][: len(answered["log"])] == answered["log"]
