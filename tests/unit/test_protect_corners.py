"""Corners where something would be lost, done twice or taken for something else without a word."""

from __future__ import annotations

import os
import stat
import threading
import warnings
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.channels import UntrackedValue
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from agents import SAFE_S, Home, Log, asks, chain, config, fan, keeper_of, step
from clocks import HandClock
from ninelives import (
    ConfigError,
    Done,
    EffectOutcomeUnknownError,
    GraphChangedError,
    IdempotencyMismatchError,
    InvalidDecisionError,
    LeaseLostError,
    MissingThreadError,
    NineLivesError,
    NoCheckpointFoundError,
    NotDone,
    StoreUnavailableError,
    UnfinishedRunError,
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
    """The question was asked in a node of a subgraph that is gone now: the answer is refused, and asked for still."""

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
    assert home.decisions() == []
    assert home.protect(outer_of("review")).invoke(Command(resume="yes"), thread="t") == asks("yes")


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


# -- gates: breakpoints are for people ---------------------------------------------------------------------------


def _killed_at_the_end(home: Home) -> Any:
    """The store fails where the run's end would be recorded: as if the process had died between gate and record."""

    def fault(act: str, statement: str, where: str) -> None:
        if act == "finish_run":
            raise StoreUnavailableError("gone")

    home.store.fault = fault


@pytest.mark.parametrize("side", ["interrupt_before", "interrupt_after"])
@pytest.mark.parametrize("how", ["compiled", "call"])
def test_a_kill_opens_no_gate(home: Home, side: str, how: str) -> None:
    """Cut off in front of a breakpoint, the same request stops there again; only a person's None goes past it."""
    gate: dict[str, Any] = {side: ["b"] if side == "interrupt_before" else ["a"]}
    compiled, call = (gate, {}) if how == "compiled" else ({}, gate)
    agent = home.protect(chain(step("a", home.outside), step("b", home.outside), **compiled), settings=_fast_heart())
    _killed_at_the_end(home)
    with pytest.raises(StoreUnavailableError):
        agent.invoke(asks("in"), thread="t", idempotency_key="k", **call)
    home.store.fault = None

    again = agent.invoke(asks("in"), thread="t", idempotency_key="k", wait_s=SAFE_S, **call)
    once_more = agent.invoke(asks("in"), thread="t", idempotency_key="k", **call)

    assert again == once_more == asks("in", "a")
    assert home.outside.seen == ["a"]
    assert home.statuses() == ["interrupted"]
    assert agent.continue_run("t") == asks("in", "a", "b")
    assert home.statuses() == ["done"]


def test_a_gate_inside_a_subgraph_is_a_gate(home: Home) -> None:
    """The run is paused, not done; new input does not drop it without a question; None goes past it."""
    graph: Any = StateGraph(Log)
    graph.add_node("sub", chain(step("a"), step("b"), interrupt_before=["b"]))
    graph.add_edge(START, "sub")
    agent = home.protect(graph.compile())
    agent.invoke(asks(), thread="t")

    assert home.statuses() == ["interrupted"]
    for choice in ("ask", "continue"):
        with pytest.raises(UnfinishedRunError):
            agent.invoke(asks("more"), thread="t", on_unfinished=choice)
    assert agent.continue_run("t") == asks("a", "b")


def test_a_kill_opens_no_gate_inside_a_subgraph(home: Home) -> None:
    """As for the graph itself."""
    graph: Any = StateGraph(Log)
    graph.add_node("sub", chain(step("a", home.outside), step("b", home.outside), interrupt_before=["b"]))
    graph.add_edge(START, "sub")
    agent = home.protect(graph.compile(), settings=_fast_heart())
    _killed_at_the_end(home)
    with pytest.raises(StoreUnavailableError):
        agent.invoke(asks(), thread="t", idempotency_key="k")
    home.store.fault = None

    agent.invoke(asks(), thread="t", idempotency_key="k", wait_s=SAFE_S)

    assert home.outside.seen == ["a"]
    assert agent.continue_run("t") == asks("a", "b")


def test_a_recorded_sibling_opens_no_gate_inside_a_subgraph(home: Home) -> None:
    """A task beside the gated subgraph has a recorded result: the gate within is shut all the same."""
    graph: Any = StateGraph(Log)
    graph.add_node("sub", chain(step("a", home.outside), step("b", home.outside), interrupt_before=["b"]))
    graph.add_node("x", step("x", home.outside))
    graph.add_edge(START, "sub").add_edge(START, "x")
    agent = home.protect(graph.compile(), settings=_fast_heart())
    _killed_at_the_end(home)
    with pytest.raises(StoreUnavailableError):
        agent.invoke(asks(), thread="t", idempotency_key="k")
    home.store.fault = None

    agent.invoke(asks(), thread="t", idempotency_key="k", wait_s=SAFE_S)

    assert sorted(home.outside.seen) == ["a", "x"]
    assert sorted(agent.continue_run("t")["log"]) == ["a", "b", "x"]
    assert sorted(home.outside.seen) == ["a", "b", "x"]


# -- acts side by side --------------------------------------------------------------------------------------------


def test_acts_side_by_side_in_one_tool_are_told_apart(home: Home) -> None:
    """The order in which a tool's calls come differs from attempt to attempt; each still happens once."""
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.graph import MessagesState
    from langgraph.prebuilt import ToolNode

    broken = [True]

    @effect
    def send(to: str) -> str:
        home.outside.happens(to)
        if broken and home.outside.times("ann") == 1 and len(home.outside.seen) == 2:
            raise KeyboardInterrupt
        return to

    @tool
    def letters() -> str:
        """Send two letters, in whatever order."""
        order = ["ann", "bob"] if broken else ["bob", "ann"]
        return " ".join(send(to) for to in order)

    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([letters]))
    graph.add_edge(START, "tools")
    agent = home.protect(graph.compile())
    call = AIMessage("", tool_calls=[{"name": "letters", "args": {}, "id": "c1"}])
    with pytest.raises(KeyboardInterrupt):
        agent.invoke({"messages": [call]}, thread="t")
    broken.clear()
    [_, cut_off] = home.effects()
    home.store.perform(home.store.list_workers())

    with pytest.raises(EffectOutcomeUnknownError, match="send"):
        agent.continue_run("t", wait_s=SAFE_S)

    assert home.outside.seen == ["ann", "bob"]
    assert cut_off.state is not EffectState.DONE


def test_a_result_in_hand_outlives_a_store_out_of_breath(home: Home) -> None:
    """The disk is full for a moment just as the result is recorded: it is tried again, and nothing becomes unknown."""
    failures = iter([True, True])

    def fault(act: str, statement: str, where: str) -> None:
        if act == "finish_effect" and where == "before" and next(failures, False):
            raise StoreUnavailableError("full")

    @effect
    def pay() -> str:
        home.outside.happens("paid")
        return "paid"

    home.store.fault = fault
    agent = home.protect(chain(_named("n", pay)))

    assert agent.invoke(asks(), thread="t") == asks("paid")
    assert home.outside.seen == ["paid"]


# -- edits, clocks, and what is not kept ----------------------------------------------------------------------------


def test_a_half_done_step_is_not_edited(home: Home) -> None:
    """One of two parallel tasks is recorded: an edit would make it run again, so it waits until the step is done."""
    broken = [True]

    def fails() -> None:
        if broken:
            raise RuntimeError("once")

    agent = home.protect(fan(step("x", home.outside), step("y", home.outside, fails)))
    with pytest.raises(RuntimeError):
        agent.invoke(asks(), thread="t")

    with pytest.raises(UnfinishedRunError, match="half done"):
        agent.update_state(config(), asks("edit"))

    broken.clear()
    agent.continue_run("t")
    agent.update_state(config(), asks("edit"), as_node="x")
    assert sorted(agent.get_state(config()).values["log"]) == ["edit", "x", "y"]
    assert home.outside.times("x") == 1


def test_a_machine_that_slept_registers_anew(tmp_path: Path, clock: HandClock) -> None:
    """The store's clock has gone on while ours stood still: calls go on under a new worker, without an error."""
    home = Home(tmp_path, clock=clock)
    agent = home.protect(chain(step("a"), step("b", home.outside, lambda: clock.advance(60)), step("c")))
    other = home.protect(chain(step("a")), "other")

    assert agent.invoke(asks(), thread="t") == asks("a", "b", "c")
    clock.advance(60)
    assert other.invoke(asks(), thread="t2") == asks("a")
    clock.advance(60)
    other.update_state(config("t2"), asks("x"))

    assert home.outside.seen == ["b"]
    home.close()


def test_whoever_gives_up_for_good_lets_go(tmp_path: Path, clock: HandClock) -> None:
    """A process that keeps losing its lease is told so, and the thread is free for the next call."""
    home = Home(tmp_path, clock=clock)
    slow = [True]

    def sleeps() -> None:
        if slow:
            clock.advance(60)

    agent = home.protect(chain(*(step(name, None, sleeps) for name in "abcdefgh")))
    with pytest.raises(LeaseLostError):
        agent.invoke(asks(), thread="t")
    slow.clear()

    assert agent.continue_run("t") == asks(*"abcdefgh")
    home.close()


def test_what_langgraph_never_stores_is_named(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """An UntrackedValue is gone after a kill; that is said when the graph is protected."""

    class Notes(Log):
        scratch: Annotated[str, UntrackedValue]

    home.protect(chain(step("a"), schema=Notes))

    assert "['scratch'] is not kept" in caplog.text
