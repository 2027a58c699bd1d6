"""Corners where something would be lost, done twice or taken for something else without a word."""

from __future__ import annotations

import os
import stat
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from agents import SAFE_S, Home, Log, asks, chain, config, keeper_of, step
from clocks import HandClock
from ninelives import (
    ConfigError,
    Done,
    GraphChangedError,
    IdempotencyMismatchError,
    InvalidDecisionError,
    MissingThreadError,
    NineLivesError,
    NoCheckpointFoundError,
    NotDone,
    StoreUnavailableError,
    effect,
    open_store,
    protect,
    settle_effect,
)
from ninelives.config import Settings
from ninelives.model import ONE_USER, EffectState, RunStatus
from ninelives.stores.sqlite import SqliteStore


def asking(state: Log) -> Any:
    return {"log": [interrupt("go?")]}


def test_an_act_in_flight_outlives_its_lease(tmp_path: Path, clock: HandClock) -> None:
    """A process that lost its lease in the middle of an act may still be at it, whatever it registers as since."""
    home = Home(tmp_path, clock=clock)
    inside, go = threading.Event(), threading.Event()

    @effect(probe=lambda: NotDone())
    def pay() -> str:
        inside.set()
        assert go.wait(SAFE_S)
        home.outside.happens("paid")
        return "paid"

    agent = home.protect(chain(_named("n", pay)))
    call = threading.Thread(target=lambda: _quietly(lambda: agent.invoke(asks(), thread="t")))
    call.start()
    assert inside.wait(SAFE_S)
    clock.advance(7)
    keeper_of(agent)._trusted_until = 0.0
    keeper_of(agent).worker()
    home.neighbour().takes(home.runs()[0])

    [act] = home.effects()
    with pytest.raises(InvalidDecisionError, match="may still be at it"):
        settle_effect(home.store, act.key, NotDone(), by="ann", why="looked")

    go.set()
    call.join(SAFE_S)
    assert home.outside.seen == ["paid"]
    home.close()


def test_the_same_request_again_is_its_chain_of_runs(home: Home) -> None:
    """Asked, answered, failed: the request sent once more continues that work; it is not also done a second time."""
    broken = [True]

    def after() -> None:
        if broken:
            broken.clear()
            raise RuntimeError("once")

    agent = home.protect(chain(asking, step("b", home.outside, after)))
    agent.invoke(asks("in"), thread="t")
    with pytest.raises(RuntimeError):
        agent.invoke(Command(resume="yes"), thread="t")

    result = agent.invoke(asks("in"), thread="t", on_unfinished="continue")

    assert result == asks("in", "yes", "b")


def test_another_graph_can_neither_look_nor_abandon(home: Home) -> None:
    """A thread's unfinished work is its own graph's to see and to close; an unknown thread is an error."""
    mine = home.protect(chain(asking), "mine")
    other = home.protect(chain(step("x")), "other")
    mine.invoke(asks(), thread="t")

    for call in (other.unfinished, other.abandon, other.start_over):
        with pytest.raises(GraphChangedError, match="belongs to graph 'mine'"):
            call("t")
        with pytest.raises(NoCheckpointFoundError, match="'tt' is not known"):
            call("tt")
    assert mine.unfinished("t") is not None


def test_an_output_that_was_pruned_is_missed_aloud(home: Home) -> None:
    """A key gives back what its run left; if that is gone, an empty state would be a lie."""
    agent = home.protect(chain(step("a")))
    agent.invoke(asks("one"), thread="t", idempotency_key="k")
    agent.invoke(asks("two"), thread="t")
    agent.checkpointer.prune(["t"])

    with pytest.raises(NoCheckpointFoundError, match=r"has no checkpoint .* \(any more\)"):
        agent.invoke(asks("one"), thread="t", idempotency_key="k")


def test_deleting_old_runs_leaves_where_a_start_over_begins(home: Home) -> None:
    """The checkpoint that an unfinished run began at is kept; starting over never begins from nothing instead."""
    agent = home.protect(chain(step("a"), asking))
    graph = home.protect(chain(step("a")), "agent")
    graph.invoke(asks("old"), thread="t")
    first = home.runs()[0]
    agent.invoke(asks("new"), thread="t")

    agent.checkpointer.delete_for_runs([first.run_id])
    agent.start_over("t")

    assert agent.get_state(config()).values == asks("old", "a", "new", "a")


def test_an_answer_sent_twice_under_its_key_is_one_answer(home: Home) -> None:
    """The reply was lost and the client sends it again: it gets what the first one came to."""
    agent = home.protect(chain(asking))
    agent.invoke(asks("in"), thread="t")
    answer: Command[Any] = Command(resume="yes")

    first = agent.invoke(answer, thread="t", idempotency_key="a1")
    second = agent.invoke(answer, thread="t", idempotency_key="a1")
    with pytest.raises(IdempotencyMismatchError):
        agent.invoke(Command(resume="no"), thread="t", idempotency_key="a1")

    assert first == second == asks("in", "yes")
    assert len(home.runs()) == 2


def test_who_answers_is_recorded(home: Home) -> None:
    """With the decision, before anything acts on it."""
    agent = home.protect(chain(asking))
    agent.invoke(asks(), thread="t")

    agent.invoke(Command(resume="yes"), thread="t", actor="ann")

    assert [decision.actor for decision in home.decisions()] == ["ann"]


def test_nothing_is_edited_where_nothing_is_kept(home: Home) -> None:
    """`ephemeral=True` leaves no trace, by an edit neither."""
    agent = home.protect(chain(step("a")), ephemeral=True)

    with pytest.raises(MissingThreadError, match="no state that could be edited"):
        agent.update_state(config(), asks("x"))

    assert home.store.perform(home.store.list_threads(ONE_USER)) == []


def test_an_open_store_in_memory_is_one_in_memory() -> None:
    """Handed over open, it is warned of, and refused in production, as by its URL."""
    store = open_store("memory://")

    with pytest.warns(UserWarning, match="for trying out"):
        protect(chain(step("a")), store, settings=Settings())
    other = open_store("memory://")
    with pytest.raises(ConfigError, match="production"):
        protect(chain(step("a")), other, settings=Settings(production=True))
    store.close()
    other.close()


def test_a_run_whose_end_could_not_be_recorded_is_let_go_of(home: Home) -> None:
    """A full disk at the very end: the thread is not held for as long as the process lives."""
    agent = home.protect(chain(step("a")), settings=_fast_heart())
    released = threading.Event()

    def full(act: str, statement: str, where: str) -> None:
        if act == "finish_run":
            raise StoreUnavailableError("the disk is full")

    def healthy(act: str, statement: str, where: str) -> None:
        if (act, statement, where) == ("finish_run", "commit", "after"):
            released.set()

    home.store.fault = full
    with pytest.raises(StoreUnavailableError, match="disk is full"):
        agent.invoke(asks("in"), thread="t")
    home.store.fault = healthy

    assert released.wait(SAFE_S)
    assert agent.continue_run("t") == asks("in", "a")
    assert home.statuses() == ["done"]


def test_a_link_to_a_database_is_that_database(tmp_path: Path) -> None:
    """Who comes by a link finds the same locks: a live worker does not look dead."""
    store = SqliteStore(tmp_path / "real.db")
    (tmp_path / "link.db").symlink_to("real.db")
    store.hold_worker_lock("w1")
    store.perform(store.register_worker("w1", host="here", pid=1, ttl_s=60))
    by_link = SqliteStore(tmp_path / "link.db")

    by_link.bury_the_dead()

    assert [worker.worker_id for worker in by_link.perform(by_link.list_workers())] == ["w1"]
    assert by_link.url == store.url
    by_link.close()
    store.close()


def test_a_cleared_lock_folder_makes_nobody_dead(tmp_path: Path) -> None:
    """Somebody tidied up: then only the lease tells, and a run is not stolen from a living process."""
    store = SqliteStore(tmp_path / "s.db", clock=lambda: now[0])
    now = [0.0]
    store.hold_worker_lock("w1")
    store.perform(store.register_worker("w1", host="here", pid=1, ttl_s=6))
    for file in (tmp_path / "s.db-ninelives").iterdir():
        file.unlink()

    store.bury_the_dead()
    alive = len(store.perform(store.list_workers()))
    now[0] = 7.0
    store.bury_the_dead()

    assert (alive, len(store.perform(store.list_workers()))) == (1, 0)
    store.close()


def test_conversations_are_their_owners(tmp_path: Path) -> None:
    """The database and its companions are readable by the user that runs, and by nobody else."""
    store = SqliteStore(tmp_path / "s.db")
    store.perform(store.note_graph("fp", "g", {}))

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}

    assert modes == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600, "s.db-ninelives": 0o700}
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_somebody_else_is_named(tmp_path: Path) -> None:
    """No bare PermissionError, but which file, and what to do."""
    tmp_path.chmod(0o500)

    with pytest.raises(StoreUnavailableError, match=r"cannot be made or opened \(Permission denied\)"):
        SqliteStore(tmp_path / "s.db")


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    """As above, for whoever may write anywhere."""
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreUnavailableError, match="cannot be made or opened"):
        SqliteStore(tmp_path / "file" / "s.db")


def test_business_keys_never_look_alike(home: Home) -> None:
    """Name and key are told apart whatever signs they hold, and a key must say something."""
    done: list[str] = []

    def act(name: str, key: Any) -> Any:
        def perform() -> str:
            done.append(name)
            return name

        return effect(key=lambda: key, name=name)(perform)

    one, other, empty = act("a:b", "c"), act("a", "b:c"), act("a", None)
    agent = home.protect(chain(_named("n", lambda: one() + other())))
    blank = home.protect(chain(_named("m", lambda: empty())), "blank")

    assert agent.invoke(asks(), thread="t") == asks("a:ba")
    with pytest.raises(NineLivesError, match="must be a text that names the act"):
        blank.invoke(asks(), thread="t2")
    assert done == ["a:b", "a"]


def test_what_was_spent_is_recorded_with_what_it_bought(home: Home) -> None:
    """A model call whose task is recorded is counted, though the process dies before the step's checkpoint."""
    from langchain_core.language_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage

    said = AIMessage("hi", response_metadata={"model_name": "m1"})
    said.usage_metadata = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    model = FakeMessagesListChatModel(responses=[said])
    agent = home.protect(chain(_named("n", lambda: str(model.invoke("x").text))))

    def broken(act: str, statement: str, where: str) -> None:
        # The third checkpoint is the one after the model's task.
        if act == "put_checkpoint" and home.store.fault is broken and home.outside.times("checkpoint") == 2:
            raise StoreUnavailableError("gone")
        if (act, statement, where) == ("put_checkpoint", "commit", "after"):
            home.outside.happens("checkpoint")

    home.store.fault = broken
    with pytest.raises(StoreUnavailableError):
        agent.invoke(asks(), thread="t")
    home.store.fault = None

    usage = home.store.perform(home.store.chain_usage(ONE_USER, home.runs()[0].chain))
    assert (usage.model_calls, usage.tokens_in, usage.tokens_out) == (1, 7, 3)
    assert usage.by_model == {"m1": (1, 7, 3)}


def test_a_warning_that_is_an_error_holds_nothing(home: Home) -> None:
    """Under `-W error` the call fails, and the thread is free."""
    agent = home.protect(chain(step("a")))
    agent._ninelives.regulars._made = 10**6

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="none was used a second time"):
            agent.invoke(asks("in"), thread="t")

    assert agent.continue_run("t") == asks("in", "a")


def test_an_act_known_not_to_have_happened_stays_so(home: Home) -> None:
    """Erasing a thread makes nothing unknown that was known."""
    fails = [True]

    @effect(key=lambda: "o1", not_done_on=(ValueError,))
    def pay() -> str:
        if fails:
            raise ValueError("declined")
        return "paid"

    agent = home.protect(chain(_named("n", pay)))
    with pytest.raises(ValueError, match="declined"):
        agent.invoke(asks(), thread="t")
    agent.abandon("t")
    agent.checkpointer.delete_thread("t")
    fails.clear()

    assert agent.invoke(asks(), thread="t2") == asks("paid")
    assert [act.state for act in home.effects("t2")] == [EffectState.DONE]


def test_a_probe_is_asked_after_the_process_is_gone(home: Home) -> None:
    """The other side of an act in flight: once nobody can be at it any more, the probe settles it."""
    answers = [Done("paid before")]
    broken = [True]

    @effect(probe=lambda: answers[0])
    def pay() -> str:
        if broken:
            broken.clear()
            raise ConnectionResetError("cut")
        return "paid again"

    agent = home.protect(chain(_named("n", pay)))
    with pytest.raises(ConnectionResetError):
        agent.invoke(asks(), thread="t")

    assert agent.continue_run("t") == asks("paid before")
    assert home.runs()[0].status is RunStatus.DONE


def _named(name: str, work: Any) -> Any:
    """A node of this name that logs what `work` gives."""

    def node(state: Log) -> Any:
        return {"log": [work()]}

    node.__name__ = name
    return node


def _fast_heart() -> Settings:
    return Settings.load(env={"NINELIVES_LEASE_HEARTBEAT_S": "0.05", "NINELIVES_LEASE_TTL_S": "6"})


def _quietly(call: Any) -> None:
    try:
        call()
    except NineLivesError:
        return


def test_a_renamed_node_inside_a_subgraph_is_noticed(home: Home) -> None:
    """The question was asked in a node of a subgraph that is gone now: the answer is not eaten, the run is refused."""

    def outer_of(name: str) -> Any:
        inner = chain(_renamed(asking, name))
        graph: Any = StateGraph(Log)
        graph.add_node("sub", inner)
        graph.add_edge(START, "sub")
        return graph.compile()

    home.protect(outer_of("review")).invoke(asks(), thread="t")
    changed = home.protect(outer_of("review_v2"))

    with pytest.raises(GraphChangedError, match="in sub: node 'review' is pending but gone"):
        changed.invoke(Command(resume="yes"), thread="t")
    assert home.protect(outer_of("review")).continue_run("t") == asks("yes")


def test_subgraphs_that_keep_nothing_are_named(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """Where a kill inside begins anew, that is said when the graph is protected."""
    graph: Any = StateGraph(Log)
    graph.add_node("sub", chain(step("a"), checkpointer=False))
    graph.add_edge(START, "sub")

    home.protect(graph.compile())

    assert "cut off inside ['sub'], it begins there anew" in caplog.text


def _renamed(node: Any, name: str) -> Any:
    def renamed(state: Log) -> Any:
        return node(state)

    renamed.__name__ = name
    return renamed
