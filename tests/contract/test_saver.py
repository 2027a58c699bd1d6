"""What our checkpointer does beyond LangGraph's: failures that do not wedge, secrets that do not stay, claims."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Interrupt, interrupt

from contract.desk import TTL_S, Desk
from ninelives.errors import DivergentStateError, LeaseLostError, ThreadBusyError
from ninelives.model import ONE_USER, RunStatus, Scope, Usage
from ninelives.saver import Saver
from ninelives.store import Store

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
C1 = "1f0c0000-0000-6000-8000-000000000001"
AT: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": C1}}


class State(TypedDict, total=False):
    n: int
    answer: str


def graph_of(saver: Saver, **nodes: Callable[[State], Any]) -> Any:
    """The nodes one after the other."""
    graph: Any = StateGraph(State)
    previous = START
    for name, node in nodes.items():
        graph.add_node(name, node)
        graph.add_edge(previous, name)
        previous = name
    graph.add_edge(previous, END)
    return graph.compile(checkpointer=saver)


# -- failures -------------------------------------------------------------------------------------------------------


def test_a_failed_task_keeps_its_error_only(desk: Desk) -> None:
    """
    What it had written before it failed is dropped, and the answer that it had failed on; those that had brought it to
    its next question stay.
    """
    saver = Saver(desk.store)
    saver.put_writes(AT, [("__resume__", ["good"])], "k")
    desk.put(None, C1)

    saver.put_writes(
        AT,
        [("n", 1), ("__resume__", ["good", "bad"]), ("__error__", "no"), ("__error_source_node__", "node")],
        "k",
        "~path",
    )

    writes = {channel: value for _, channel, value in desk.get(C1).writes}
    assert writes == {"__error_source_node__": "node", "__error__": "no", "__resume__": ["good"]}


def test_a_wrong_answer_does_not_wedge_the_thread(store: Store) -> None:
    """The node refuses what it was told; the question is asked again, and the right answer counts."""

    def ask(state: State) -> State:
        answer = interrupt("yes or no?")
        if answer not in ("yes", "no"):
            raise ValueError(answer)
        return {"answer": answer}

    graph = graph_of(Saver(store), ask=ask)
    graph.invoke({"n": 1}, CONFIG)
    with pytest.raises(ValueError, match="maybe"):
        graph.invoke(Command(resume="maybe"), CONFIG)

    assert graph.invoke(Command(resume="yes"), CONFIG) == {"n": 1, "answer": "yes"}


def test_a_wrong_second_answer_keeps_the_first(store: Store) -> None:
    """The node refuses its second answer: the next one is not taken for the first."""

    def ask(state: State) -> State:
        first, second = interrupt("first?"), interrupt("yes or no?")
        if second not in ("yes", "no"):
            raise ValueError(second)
        return {"answer": f"{first} {second}"}

    graph = graph_of(Saver(store), ask=ask)
    graph.invoke({"n": 1}, CONFIG)
    graph.invoke(Command(resume="well"), CONFIG)
    with pytest.raises(ValueError, match="maybe"):
        graph.invoke(Command(resume="maybe"), CONFIG)

    assert graph.invoke(Command(resume="yes"), CONFIG) == {"n": 1, "answer": "well yes"}


def test_a_failing_router_does_not_end_the_run(store: Store) -> None:
    """The node ran, its router raised: the task runs again on the next call, and the rest of the graph with it."""
    broken = [True]

    def route(state: State) -> str:
        if broken:
            raise RuntimeError(broken.pop())
        return "last"

    graph = StateGraph(State)
    graph.add_node("first", lambda state: {"n": 2})
    graph.add_node("last", lambda state: {"answer": "reached"})
    graph.add_edge(START, "first")
    graph.add_conditional_edges("first", route, ["last"])
    compiled = graph.compile(checkpointer=Saver(store))
    with pytest.raises(RuntimeError):
        compiled.invoke({"n": 1}, CONFIG)

    assert compiled.get_state(CONFIG).next == ("first",)
    assert compiled.invoke(None, CONFIG) == {"n": 2, "answer": "reached"}


def test_a_stale_process_is_stopped_when_it_tries_to_extend(store: Store) -> None:
    """Two invocations of one thread without a lease: the one that comes second loses, with an error, not in silence."""
    saver = Saver(store)
    other = graph_of(saver, work=lambda state: {"answer": "other"})

    def work(state: State) -> State:
        other.invoke({"n": 2}, CONFIG)
        return {"answer": "mine"}

    with pytest.raises(DivergentStateError):
        graph_of(saver, work=work).invoke({"n": 1}, CONFIG, durability="sync")

    assert other.get_state(CONFIG).values == {"n": 2, "answer": "other"}


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_no_configurable_entry_is_kept_unless_it_was_allowed(store: Store) -> None:
    """LangGraph's savers keep all plain entries; ours keeps the named ones and the caller's own metadata only."""
    graph = graph_of(Saver(store, keep=["model"]), work=lambda state: {"n": 2})
    config: RunnableConfig = {
        "configurable": {"thread_id": "t", "api_key": "sk-123", "model": "big"},
        "metadata": {"ticket": 7, "run_id": "r"},
    }

    graph.invoke({"n": 1}, config)

    for found in Saver(store).list(CONFIG):
        kept = {key: found.metadata.get(key) for key in ("model", "ticket", "run_id", "api_key")}
        assert kept == {"model": "big", "ticket": 7, "run_id": "r", "api_key": None}
        assert "sk-123" not in repr(found)


def test_history_is_filtered_by_metadata(store: Store) -> None:
    """Over several pages, with a limit, and of all threads when none is named."""
    saver = Saver(store)
    parent: str | None = None
    for n in range(250):
        checkpoint = {**empty_checkpoint(), "id": f"c{n:03}"}
        at: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": parent}}
        saver.put(at, checkpoint, {"source": "loop", "step": n % 2, "parents": {}}, {})  # type: ignore[arg-type]
        parent = f"c{n:03}"

    odd = [t.checkpoint["id"] for t in saver.list(CONFIG, filter={"step": 1})]
    async_odd = asyncio.run(listed(saver, CONFIG, filter={"step": 1}))
    some = [t.checkpoint["id"] for t in saver.list(None, filter={"step": 0}, limit=3)]

    assert odd == async_odd == [f"c{n:03}" for n in range(249, 0, -2)]
    assert some == ["c248", "c246", "c244"]


async def listed(saver: Saver, config: RunnableConfig | None, **filters: Any) -> list[str]:
    return [t.checkpoint["id"] async for t in saver.alist(config, **filters)]


def test_owners_do_not_meet(store: Store) -> None:
    """Two savers of two owners on one store, one thread id."""
    ann = graph_of(Saver(store, owner="ann"), work=lambda state: {"answer": "ann"})
    bob = graph_of(Saver(store, owner="bob"), work=lambda state: {"answer": "bob"})
    ann.invoke({"n": 1}, CONFIG)
    assert bob.get_state(CONFIG).values == {}

    bob.invoke({"n": 2}, CONFIG)

    assert ann.get_state(CONFIG).values == {"n": 1, "answer": "ann"}
    assert [t.owner for t in store.perform(store.list_threads(Scope("ann")))] == ["ann"]


# -- handing over -----------------------------------------------------------------------------------------------------


async def test_writes_are_on_their_way_before_anybody_waits(store: Store) -> None:
    """LangGraph awaits them behind tasks that have not begun; a kill in between must not lose them."""
    saver = Saver(store)
    started = [saver.aput_writes(AT, [("n", n)], f"k{n}") for n in range(3)]

    await store.aperform(store.note_graph("behind", "g", {}))  # acts are done in order

    saver.put({"configurable": {"thread_id": "t"}}, {**empty_checkpoint(), "id": C1}, {}, {})
    found = await saver.aget_tuple(AT)
    assert found is not None
    assert found.pending_writes == [("k0", "n", 0), ("k1", "n", 1), ("k2", "n", 2)]
    for one in started:
        await one


async def test_a_refusal_is_heard_when_awaited(store: Store) -> None:
    """Started early, but whoever awaits hears what went wrong: while storing, and while encoding."""
    saver = Saver(store)
    await saver.aput_writes(AT, [("n", 1)], "k")

    with pytest.raises(DivergentStateError):
        await saver.aput_writes(AT, [("n", 2)], "k")
    with pytest.raises(Exception, match="function"):
        await saver.aput_writes(AT, [("n", lambda: None)], "k2")


# -- under a claim ----------------------------------------------------------------------------------------------------


def test_a_claimed_saver_records_questions_and_cost(desk: Desk) -> None:
    """Interrupts become questions, and each checkpoint takes along what was spent since the last."""
    lease = desk.start(desk.worker())
    costs = [Usage(steps=1, tokens_in=5), Usage(steps=1), Usage()]
    saver = Saver(desk.store, lease=lease, graph_fp="fp9", spent=lambda: costs.pop(0))
    root: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    saver.put(root, {**empty_checkpoint(), "id": C1}, {"source": "input", "step": -1, "parents": {}}, {})
    saver.put(AT, {**empty_checkpoint(), "id": "c2"}, {"source": "loop", "step": 0, "parents": {}}, {})

    two = (Interrupt(value="a?", id="q1"), Interrupt(value="b?", id="q2"))
    saver.put_writes(AT, [("__interrupt__", two)], "k")

    questions = desk.do(desk.store.list_interrupts(ONE_USER, "t"))
    assert [(q.interrupt_id, q.payload) for q in questions] == [("q1", "a?"), ("q2", "b?")]
    assert desk.do(desk.store.get_run(ONE_USER, "r1")).usage == Usage(steps=2, tokens_in=5)
    assert desk.get(C1).graph_fp == "fp9"


def test_a_saver_used_alone_records_no_questions(desk: Desk) -> None:
    """There is no run that could be continued with an answer."""
    Saver(desk.store).put_writes(AT, [("__interrupt__", (Interrupt(value="a?", id="q1"),))], "k")

    assert desk.do(desk.store.list_interrupts(ONE_USER, "t")) == []


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_superseded_graph_stops_and_leaves_its_successors_state(desk: Desk, durability: Any) -> None:
    """A worker that lost its run in the middle of a node hears of it; what the new owner made stays."""
    lease = desk.start(desk.worker("w1"))
    reached = []

    def lose(state: State) -> State:
        desk.clock.advance(TTL_S)
        new = desk.take_over(desk.worker("w2"))
        graph_of(Saver(desk.store, lease=new), lose=lambda s: {"n": 2}, then=lambda s: {"answer": "new"}).invoke(
            None, CONFIG, durability="sync"
        )
        return {"n": 9}

    def then(state: State) -> State:
        reached.append(state)
        return {"answer": "old"}

    with pytest.raises(LeaseLostError):
        graph_of(Saver(desk.store, lease=lease), lose=lose, then=then).invoke({"n": 1}, CONFIG, durability=durability)

    final = graph_of(Saver(desk.store), lose=lose, then=then).get_state(CONFIG)
    assert final.values == {"n": 2, "answer": "new"}
    assert durability == "async" or not reached


def test_without_a_claim_a_held_thread_is_not_touched(desk: Desk) -> None:
    """A checkpointer used alone is refused on a thread that a live run holds."""
    desk.start(desk.worker())

    with pytest.raises(ThreadBusyError):
        graph_of(Saver(desk.store), work=lambda state: {}).invoke({"n": 1}, CONFIG, durability="sync")

    assert desk.checkpoints() == []


def test_from_nothing_the_thread_reads_empty_until_the_run_has_its_own(desk: Desk) -> None:
    """A start over from an empty thread: history is kept, but the run begins as if there were none."""
    worker = desk.worker()
    first = desk.start(worker)
    graph_of(Saver(desk.store, lease=first), work=lambda state: {"answer": "old"}).invoke({"n": 1}, CONFIG)
    desk.finish(first, RunStatus.FAILED)
    second = desk.start(worker, "r2", closes="r1")
    saver = Saver(desk.store, lease=second, from_nothing=True)
    assert saver.get_tuple(CONFIG) is None

    out = graph_of(saver, work=lambda state: {"n": state["n"] + 1}).invoke({"n": 5}, CONFIG, durability="sync")

    assert out == {"n": 6}
    assert len(desk.checkpoints()) == 6


def test_strict_loading_changes_nothing(store: Store) -> None:
    """Our types are an allow-list of their own; the saver that LangGraph derives is the same saver."""
    saver = Saver(store)

    assert saver.with_allowlist([("os", "system")]) is saver
