"""Who may go on: a process that is known to be alive, and nobody else."""

from __future__ import annotations

import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import interrupt

from agents import SAFE_S, Home, Log, Outside, asks, chain, config, fan, home_in, keeper_of, loses_its_lease, step
from clocks import HandClock
from lives import live
from ninelives import (
    ConfigError,
    LeaseLostError,
    MissingThreadError,
    StoreUnavailableError,
    ThreadBusyError,
    WorkerLostError,
    protect,
)
from ninelives.config import LeaseSettings, Settings
from ninelives.lease import Keeper
from ninelives.model import ONE_USER, RunStatus

QUICK = Settings(lease=LeaseSettings(ttl_s=0.6, heartbeat_s=0.05))


# -- the keeper ------------------------------------------------------------------------------------------------


def test_one_worker_per_store_and_process(home: Home) -> None:
    """Two protected graphs share one worker; it is registered when first needed, and leaves when closed."""
    one, two = home.protect(chain(step("a")), name="one"), home.protect(chain(step("b")), name="two")
    assert home.store.perform(home.store.list_workers()) == []

    for agent in (one, two, one):
        agent.invoke(asks(), thread=agent.__dict__["_ninelives"].plan.name)

    (worker,) = home.store.perform(home.store.list_workers())
    assert (worker.worker_id, worker.pid) == (keeper_of(one).worker().worker_id, os.getpid())
    keeper_of(one).close()
    assert home.store.perform(home.store.list_workers()) == []


def test_the_heartbeat_keeps_the_lease(home: Home) -> None:
    """A worker whose process lives is renewed by a thread of its own, far beyond its first lease."""
    keeper = Keeper(home.store, ttl_s=0.6, heartbeat_s=0.05)
    worker = keeper.worker()
    renewals = threading.Semaphore(0)

    def count(*point: str) -> None:
        if point == ("renew_worker", "commit", "after"):
            renewals.release()

    home.store.fault = count
    for _ in range(15):
        assert renewals.acquire(timeout=SAFE_S)

    assert keeper.trusts(worker.worker_id)
    assert keeper.worker() == worker
    keeper.close()


def test_a_worker_whose_lease_ended_is_not_revived(home: Home) -> None:
    """Once given up it registers anew under another id; the old one stays dead, and is not trusted."""
    keeper = Keeper(home.store)
    first = keeper.worker()
    home.store.perform(home.store.bury_worker(first.worker_id))
    assert not keeper._renew(first)

    second = keeper.worker()

    assert second.worker_id != first.worker_id
    assert not keeper.trusts(first.worker_id)
    assert keeper.trusts(second.worker_id)
    with pytest.raises(WorkerLostError, match="Stop its runs and register anew"):
        home.store.perform(home.store.renew_worker(first, ttl_s=6))
    keeper.close()


def test_trust_ends_before_the_lease_does(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trusted from when the renewal was asked for, less a margin: a slow answer cannot stretch it."""
    now = [1000.0]
    monkeypatch.setattr("ninelives.lease.time.monotonic", lambda: now[0])
    keeper = Keeper(home.store, ttl_s=10, heartbeat_s=1000)
    worker = keeper.worker()

    def slow(act: str, statement: str, where: str) -> None:
        if (act, statement, where) == ("renew_worker", "commit", "after"):
            now[0] += 5

    now[0] += 1
    home.store.fault = slow
    assert keeper._renew(worker)
    home.store.fault = None

    assert now[0] == 1006
    for now[0], trusted in ((1009.9, True), (1010.1, False)):
        assert keeper.trusts(worker.worker_id) is trusted
    keeper.close()


def test_a_keeper_that_is_forgotten_stops_beating(home: Home) -> None:
    """The heartbeat holds no keeper alive."""
    import gc
    import weakref

    keeper: Keeper | None = Keeper(home.store, ttl_s=0.6, heartbeat_s=0.02)
    assert keeper is not None
    keeper.worker()
    gone = weakref.ref(keeper)
    keeper = None
    for _ in range(100):
        gc.collect()
        if gone() is None:
            break
        threading.Event().wait(0.02)

    assert gone() is None


# -- losing it -------------------------------------------------------------------------------------------------


def test_who_lost_its_lease_starts_no_further_node(home: Home) -> None:
    """Taken by another process in the middle of a node: the next node is refused, and the caller is told."""
    first = [True]
    other = home.neighbour()

    def lose() -> None:
        if first:
            first.clear()
            loses_its_lease(home, agent)
            other.takes(home.runs()[0])

    agent = home.protect(chain(step("a", home.outside, lose), step("b", home.outside)))

    with pytest.raises(LeaseLostError, match=r"run '.*' has moved past epoch \d+; nothing was written"):
        agent.invoke(asks("in"), thread="t")

    assert home.outside.seen == ["a"]
    other.leaves()
    assert agent.continue_run("t") == asks("in", "a", "b")
    assert home.outside.seen == ["a", "a", "b"]
    assert home.statuses() == ["done"]


def test_a_process_that_was_away_goes_on_by_itself_if_nobody_took_over(home: Home) -> None:
    """A laptop was closed for a night: its call goes on under a new claim, from the last recorded step."""
    first = [True]

    def lose() -> None:
        if first:
            first.clear()
            loses_its_lease(home, agent)

    agent = home.protect(chain(step("a", home.outside), step("b", home.outside, lose), step("c", home.outside)))

    assert agent.invoke(asks("in"), thread="t") == asks("in", "a", "b", "c")

    assert home.outside.seen == ["a", "b", "c"]
    assert [run.attempt for run in home.runs()] == [2]


def test_who_keeps_losing_its_lease_is_told(home: Home) -> None:
    """A process too slow to keep a lease does not try for ever."""

    def lose() -> None:
        loses_its_lease(home, agent)

    agent = home.protect(chain(*(step(name, home.outside, lose) for name in "abcdefgh")))

    with pytest.raises(LeaseLostError):
        agent.invoke(asks("in"), thread="t")

    assert home.outside.seen == ["a", "b", "c", "d"]


def test_a_late_writer_leaves_no_trace(home: Home) -> None:
    """
    Taken over while it was away, a worker's results, checkpoints and ending are refused: the state is its successor's.
    """
    inside, go = threading.Event(), threading.Event()

    def away() -> None:
        if home.outside.once("away"):
            inside.set()
            assert go.wait(SAFE_S)

    def word(state: Log) -> Any:
        stale = home.outside.once("first")
        away()
        return {"log": ["stale" if stale else "fresh"]}

    agent = home.protect(chain(word, step("b", home.outside)))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(agent.invoke, asks("in"), thread="t")
        assert inside.wait(SAFE_S)
        loses_its_lease(home, agent)
        out = agent.continue_run("t")
        before = [*agent.get_state_history(config())]
        go.set()

        with pytest.raises(LeaseLostError):
            late.result(SAFE_S)

    assert out == asks("in", "fresh", "b")
    assert [*agent.get_state_history(config())] == before
    assert home.statuses() == ["done"]
    assert home.outside.times("b") == 1


def test_the_stores_clock_decides_when(tmp_path: Path) -> None:
    """By the store's own clock: within the lease the thread is busy, after it anybody may continue it."""
    clock = HandClock()
    inside, go = threading.Event(), threading.Event()

    with home_in(tmp_path, clock=clock) as home:

        def away() -> None:
            if home.outside.once("away"):
                inside.set()
                assert go.wait(SAFE_S)

        agent = home.protect(chain(step("a", home.outside, away), step("b", home.outside)))
        other = Keeper(home.store)
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(agent.invoke, asks("in"), thread="t")
            assert inside.wait(SAFE_S)
            run = home.runs()[0]
            with pytest.raises(ThreadBusyError):
                home.store.perform(home.store.take_over(ONE_USER, run.run_id, other.worker()))
            clock.advance(7)
            taken = home.store.perform(home.store.take_over(ONE_USER, run.run_id, Keeper(home.store).worker()))
            go.set()

            with pytest.raises(LeaseLostError):
                late.result(SAFE_S)

        assert taken.run.attempt == 2
        assert home.outside.seen == ["away", "a"] or home.outside.seen == ["a", "away"]
        assert home.runs()[0].status is RunStatus.RUNNING


def test_inside_a_subgraph_and_before_a_tool_it_is_asked_too(home: Home) -> None:
    """A nested node and a tool call are checked like any node; nobody's `except Exception` turns it into a result."""
    from langchain_core.tools import tool

    @tool
    def work() -> str:
        """Work."""
        home.outside.happens("work")
        return "worked"

    def lose(state: Log) -> Any:
        if home.outside.once("lost"):
            loses_its_lease(home, agent)
        return {"log": ["lost"]}

    def inner_b(state: Log) -> Any:
        home.outside.happens("inner b")
        return {"log": [work.invoke({})]}

    inner = chain(lose, inner_b)

    def outer(state: Log) -> Any:
        return {"log": inner.invoke(asks())["log"]}

    agent = home.protect(chain(outer))

    assert agent.invoke(asks(), thread="t") == asks("lost", "worked")

    assert home.outside.seen == ["lost", "inner b", "work"]
    assert [run.attempt for run in home.runs()] == [2]


def test_parallel_tasks_of_a_lost_run_all_stop(home: Home) -> None:
    """Several nodes in flight when the lease ends: each may end, none is recorded, no next one begins."""
    together = threading.Barrier(3, timeout=SAFE_S)
    first = [True]

    def meet() -> None:
        if together.wait() == 0 and first:
            first.clear()
            loses_its_lease(home, agent)

    agent = home.protect(fan(*(step(word, None, meet) for word in "xyz")))
    try:
        agent.invoke(asks(), thread="t")
    except LeaseLostError:
        agent.continue_run("t")

    assert sorted(agent.get_state(config()).values["log"]) == ["x", "y", "z"]


# -- forks, memory, nothing at all -----------------------------------------------------------------------------


def life_that_forks(folder: str) -> str:
    """A process that forks after it opened its store: what the child is told."""
    with home_in(folder) as home:
        agent = home.protect(chain(step("a", home.outside)))
        agent.invoke(asks(), thread="t")
        out = Outside(folder, "child.txt")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if not pid:
            try:
                agent.invoke(asks(), thread="u")
            except BaseException as error:
                out.happens(f"{type(error).__name__}: {error}")
            os._exit(0)
        os.waitpid(pid, 0)
        assert agent.invoke(asks(), thread="v") == asks("a")
        return out.seen[0]


def test_a_forked_child_is_told_to_open_its_own(tmp_path: Path) -> None:
    """The child of a fork gets a clear error and writes nothing; the parent goes on."""
    told = live(life_that_forks, tmp_path)

    assert told.startswith(f"{StoreUnavailableError.__name__}: ")
    assert "fork" in told
    assert "nothing was written" in told
    assert Outside(tmp_path).seen == ["a", "a"]


def life_that_forks_first(folder: str) -> Any:
    """A server that forks its workers and lets each protect its graph by the same URL."""
    with home_in(folder):
        pass
    pids = []
    for number in range(2):
        pid = os.fork()
        if not pid:
            agent: Any = protect(chain(step("a")), f"sqlite:///{folder}/agents.db", name="agent", settings=Settings())
            out = agent.invoke(asks(), thread=f"t{number}")
            Outside(folder).happens(str(out["log"]))
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return Outside(folder).seen


def test_children_that_open_their_own_work(tmp_path: Path) -> None:
    """Protecting after the fork is fine."""
    assert live(life_that_forks_first, tmp_path) == ["['a']"] * 2


def test_memory_warns_once_and_works() -> None:
    """`memory://` is for trying out: it says so, and keeps threads as long as the process lives."""
    with pytest.warns(UserWarning, match="all threads are gone when this process ends"):
        agent: Any = protect(chain(step("a")), "memory://", name="in memory", settings=Settings())

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.invoke(asks("in"), thread="t")
        assert agent.invoke(asks("more"), thread="t") == asks("in", "a", "more", "a")
    keeper_of(agent).close()
    keeper_of(agent).store.close()


def test_memory_is_refused_in_production() -> None:
    """With `production` on, a store that keeps nothing is an error."""
    with pytest.raises(ConfigError, match="memory:// keeps nothing and production is on"):
        protect(chain(step("a")), "memory://", settings=Settings(production=True))


def test_ephemeral_runs_without_saving(home: Home) -> None:
    """`ephemeral=True`: no thread is needed, nothing is stored, and every call is a fresh start."""
    agent = home.protect(chain(step("a")), ephemeral=True)

    assert agent.invoke(asks("in")) == agent.invoke(asks("in"), thread="t") == asks("in", "a")
    assert [*agent.stream(asks("in"), stream_mode="updates")] == [{"a": {"log": ["a"]}}]
    assert home.runs() == []
    assert home.store.perform(home.store.list_threads(ONE_USER)) == []


@pytest.mark.parametrize("how", ["invoke", "stream"])
def test_a_question_that_nobody_could_answer_is_refused(home: Home, how: str) -> None:
    """Without saving, `interrupt` could never be resumed: refused when it is asked."""

    def ask(state: Log) -> Any:
        return {"log": [interrupt("sure?")]}

    agent = home.protect(chain(step("a"), ask), ephemeral=True)

    with pytest.raises(MissingThreadError, match="asks a question, but with ephemeral=True nothing is kept"):
        agent.invoke(asks("in")) if how == "invoke" else [*agent.stream(asks("in"))]


def test_a_call_that_waited_for_its_thread_is_asked_again(home: Home) -> None:
    """Many calls are asked for at once and wait for few threads: those that come after a takeover do not begin."""
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    other = home.neighbour()

    @tool
    def work(n: int) -> str:
        """Work."""
        home.outside.happens(f"work {n}")
        if home.outside.once("taken"):
            loses_its_lease(home, agent)
            other.takes(home.runs()[0])
        return "worked"

    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([work]))
    graph.add_edge(START, "tools")
    one_thread = Settings.load(env={"NINELIVES_RUN_SYNC_THREADS": "1"})
    agent = home.protect(graph.compile(), settings=one_thread)
    calls = [{"name": "work", "args": {"n": n}, "id": f"c{n}"} for n in range(20)]

    with pytest.raises(LeaseLostError):
        agent.invoke({"messages": [AIMessage("", tool_calls=calls)]}, thread="t")

    assert [what for what in home.outside.seen if what != "taken"] == ["work 0"]
    other.leaves()
