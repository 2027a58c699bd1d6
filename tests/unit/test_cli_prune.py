"""`ninelives prune`: threads are smaller, and the same to whoever goes on with them."""

from __future__ import annotations

import operator
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from cli import EMPTY, Desk, Ended
from contract.test_saver_graphs import CHAT, SESSION, append, deep_agent, plain, told, workshop
from ninelives import protect, shutdown
from ninelives.cli import main
from ninelives.lease import Keeper
from ninelives.model import ONE_USER, NewRun, RunSpec
from ninelives.saver import Saver
from ninelives.stores import open_store

Type = Callable[..., Ended]
URL, TWIN = "sqlite:///agents.db", "sqlite:///twin.db"
LONG: Any = {"recursion_limit": 100}
TEXT = "There is a lot to be said about this, and step {} says it with numbers such as {} and {}."


@pytest.fixture
def type_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Type]:
    """Types commands in a folder of its own, at its store; what was opened there is closed."""

    def carry_out(*words: str) -> Ended:
        shutdown()
        capsys.readouterr()
        code = main([*words, "--store", URL])
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    monkeypatch.chdir(tmp_path)
    yield carry_out
    shutdown()


class State(MessagesState):
    n: Annotated[int, operator.add]


class DeltaState(State):
    log: Annotated[list[str], DeltaChannel(append, snapshot_frequency=7)]


def talker(steps: int, *, asks: bool, schema: Any = State) -> Any:
    """So many messages, one a step; then, if it asks, a question."""

    def say(state: Any) -> dict[str, Any]:
        n = state["n"]
        log = {"log": [f"said {n}"]} if schema is DeltaState else {}
        return {"messages": [AIMessage(TEXT.format(n, n * n, 7919 * n % 1000))], "n": 1, **log}

    def ask(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage(f"asked, and heard {interrupt({'said': state['n']})}")]}

    builder = StateGraph(schema)
    builder.add_node(say)
    builder.add_node(ask)
    builder.add_edge(START, "say")
    builder.add_conditional_edges("say", lambda state: "say" if state["n"] < steps else "ask" if asks else END)
    return builder.compile()


@dataclass(frozen=True)
class Play:
    """
    A graph, what a thread of it has been through, and how it goes on.

    `shrinks`: not where a DeltaChannel has no snapshot yet, from which it could be rebuilt without its whole past.
    """

    graph: Callable[[], Any]
    past: list[Any]
    future: list[Any]
    shrinks: bool = True


GO, MORE = {"messages": [("user", "go")], "n": 0}, {"messages": [("user", "and?")], "n": -3}
YES: Any = Command(resume="yes")
PLAYS = {
    "sixty steps": Play(lambda: talker(60, asks=False), [GO], [MORE]),
    "asks": Play(lambda: talker(20, asks=True), [GO], [YES, MORE, YES]),
    "delta": Play(lambda: talker(20, asks=True, schema=DeltaState), [GO], [YES, MORE, YES]),
    "nested": Play(lambda: workshop(None), SESSION[:3], SESSION[3:]),  # type: ignore[arg-type]
    "deep agent": Play(lambda: deep_agent(None), CHAT[:3], CHAT[3:], shrinks=False),  # type: ignore[arg-type]
}


class Actor:
    """A process that has just begun, with a thread of a play."""

    def __init__(self, play: Play, url: str = URL) -> None:
        shutdown()
        self.agent: Any = protect(play.graph(), url, name="agent")

    def plays(self, steps: list[Any]) -> list[Any]:
        return [plain(self.agent.invoke(step, LONG, thread="t")) for step in steps]

    @property
    def state(self) -> Any:
        state = self.agent.get_state({"configurable": {"thread_id": "t"}})
        tasks = [(task.name, task.path, plain([i.value for i in task.interrupts])) for task in state.tasks]
        return told(state), tasks, state.config

    @property
    def questions(self) -> list[tuple[str, Any]]:
        store = open_store(URL)
        found = store.perform(store.list_interrupts(ONE_USER, "t"))
        store.close()
        return [(each.interrupt_id, each.payload) for each in found]

    @property
    def history(self) -> list[Any]:
        return [told(state) for state in self.agent.get_state_history({"configurable": {"thread_id": "t"}})]


def on_disk(name: str = "agents.db") -> int:
    return Path(name).stat().st_size


# -- the same thread ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAYS)
def test_a_pruned_thread_is_the_same_to_whoever_goes_on(type_: Type, name: str) -> None:
    """State, next tasks, questions and every later answer are those of a twin that was not pruned."""
    play = PLAYS[name]
    actor = Actor(play)
    actor.plays(play.past)
    state, questions, history = actor.state, actor.questions, actor.history
    shutdown()
    shutil.copy("agents.db", "twin.db")

    (pruned,) = type_("prune", "t", "--json").json["threads"]

    actor = Actor(play)
    assert (actor.state, actor.questions) == (state, questions)
    assert (pruned["checkpoints"] > 0) is (pruned["bytes_after"] < pruned["bytes_before"]) is play.shrinks
    kept = actor.history
    assert kept == [state for state in history if state in kept]
    assert 0 < len(kept) <= len(history) - play.shrinks
    assert len(type_("threads", "history", "t", "--json").json) == len(kept)
    assert Actor(play).plays(play.future) == Actor(play, TWIN).plays(play.future)


def test_a_long_thread_shrinks_and_so_does_the_file(type_: Type) -> None:
    """Of sixty steps one checkpoint stays; what is told of bytes is so, and the list says the same."""
    Actor(PLAYS["sixty steps"]).plays(PLAYS["sixty steps"].past)
    shutdown()
    before = on_disk()

    ended = type_("prune", "t", "--json")

    (pruned,) = ended.json["threads"]
    (listed,) = type_("threads", "list", "--json").json
    assert (pruned["checkpoints"], pruned["kept"], pruned["left"]) == (61, 1, None)
    assert pruned["bytes_after"] < 0.5 * pruned["bytes_before"]
    assert listed["bytes"] == pruned["bytes_after"]
    assert ended.json["store"] == {"bytes_before": before, "bytes_after": on_disk()}
    assert on_disk() < 0.9 * before
    assert type_("prune", "t", "--json").json["threads"][0]["checkpoints"] == 0


def test_a_dry_run_says_the_same_and_changes_nothing(type_: Type) -> None:
    """Not a byte of the file; then as much goes as it said."""
    for name in ("sixty steps", "asks"):
        shutdown()
        agent: Any = protect(PLAYS[name].graph(), URL, name="agent")
        agent.invoke(GO, LONG, thread=name)
    shutdown()
    before = Path("agents.db").read_bytes()

    dry = type_("prune", "--all", "--dry-run", "--json").json
    shown = type_("prune", "--all", "--dry-run")

    assert Path("agents.db").read_bytes() == before
    assert "about" in shown.out
    wet = type_("prune", "--all", "--json").json
    assert (dry["dry_run"], wet["dry_run"]) == (True, False)
    for said, done in zip(dry["threads"], wet["threads"], strict=True):
        about = said.pop("bytes_after")
        assert about == pytest.approx(done.pop("bytes_after"), rel=0.2)
        assert said == done


def test_a_table_says_it_in_words(type_: Type) -> None:
    """One line for each thread, its sizes as people read them, and then the store's."""
    Actor(PLAYS["sixty steps"]).plays(PLAYS["sixty steps"].past)

    ended = type_("prune", "--all")

    head, line, _, store = ended.out.splitlines()
    assert head.split() == ["THREAD", "GONE", "KEPT", "SIZE", "THEN"]
    assert line.split()[:3] == ["t", "61", "1"]
    assert "kB" in line
    assert store.startswith("the store took ")
    assert ended.code == 0


# -- which threads --------------------------------------------------------------------------------------------------


def three_threads(owner: str = "") -> None:
    """Threads a, b, c with three checkpoints each."""
    store = open_store(URL)
    builder = StateGraph(MessagesState).add_node("say", lambda state: {"messages": [("ai", "hello")]})
    graph: Any = builder.add_edge(START, "say").compile(checkpointer=Saver(store, owner=owner))
    for name in "abc":
        graph.invoke({"messages": [("user", "hello")]}, {"configurable": {"thread_id": name}})
    store.close()


def test_a_thread_that_a_live_process_has_is_left_and_named(type_: Type) -> None:
    """The others are pruned, and the exit code says that something is to be done later; a dry run says so, too."""
    three_threads()
    store = open_store(URL)
    keeper = Keeper(store)
    new = NewRun("r1", "b", graph="g", spec=RunSpec(), may_create=False)
    store.perform(store.start_run(ONE_USER, new, keeper.worker()))

    dry, wet = type_("prune", "--all", "--dry-run", "--json"), type_("prune", "--all", "--json")

    for ended in (dry, wet):
        told_of = {each["thread_id"]: each for each in ended.json["threads"]}
        assert ended.code == 6
        assert "left as it is: thread 'b' is being advanced by run 'r1'" in ended.talk
        assert told_of["b"]["left"].startswith("ThreadBusyError")
        assert [told_of[name]["checkpoints"] for name in "abc"] == [2, 0, 2]
    keeper.close()
    store.close()
    assert type_("prune", "b").code == 0


@pytest.mark.crash
def test_a_thread_of_a_killed_process_is_pruned_at_once(tmp_path: Path) -> None:
    """Nobody waits for its lease, and what is unfinished can be gone on with as before."""
    desk = Desk(tmp_path)
    desk.shut_gate()
    with desk.begin("run", "agent.py:agent", EMPTY, "--thread", "t", "--plain") as run, desk.meet_at_gate():
        run.signal(signal.SIGKILL)
        run.ends()
    desk.take_gate_away()

    dry, wet = desk.type("prune", "t", "--dry-run", "--json"), desk.type("prune", "t", "--json")

    assert (dry.code, wet.code) == (0, 0)
    assert dry.json["threads"][0]["checkpoints"] == wet.json["threads"][0]["checkpoints"] > 0
    assert desk.type("run", "agent.py:agent", "--thread", "t", "--continue").json["log"] == ["first", "second", "third"]
    assert desk.trace == ["first", "second", "second", "third"]


def test_all_are_known_before_any_is_changed(type_: Type) -> None:
    """One mistyped name, and nothing has happened; the one that was meant is named."""
    three_threads()
    before = type_("threads", "list", "--json").json

    ended = type_("prune", "a", "bb")

    assert ended.code == 7
    assert "thread 'bb' is not known" in ended.talk
    assert type_("threads", "list", "--json").json == before


def test_one_that_cannot_be_read_does_not_keep_the_others(type_: Type) -> None:
    """It is named with what is wrong, which decides the exit code."""
    three_threads()
    with sqlite3.connect("agents.db") as conn:
        conn.execute("update checkpoint set body = x'00' where thread_no = 2")
    conn.close()

    ended = type_("prune", "--all", "--json")

    left = {each["thread_id"]: each["left"] for each in ended.json["threads"]}
    assert ended.code == 10
    assert left["b"].startswith("StoreCorruptError")
    assert (left["a"], left["c"]) == (None, None)


def test_threads_of_another_owner_are_pruned_by_name(type_: Type) -> None:
    """Without a name they are neither seen nor touched."""
    three_threads("ann")

    nobodys, anns = type_("prune", "--all"), type_("prune", "--all", "--owner", "ann", "--json")

    assert nobodys.code == 0
    assert "no threads" in nobodys.talk
    assert [(each["owner"], each["checkpoints"]) for each in anns.json["threads"]] == [("ann", 2)] * 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say --all"),
        (("t", "--all"), "say --all"),
        (("t", "--dry-run", "--compact"), "choose one"),
    ],
)
def test_what_cannot_be_meant_is_refused(type_: Type, words: tuple[str, ...], said: str) -> None:
    """Nothing is pruned because a name was forgotten, and no store is made."""
    ended = type_("prune", *words)

    assert ended.code == 2
    assert said in ended.talk
    assert not Path("agents.db").exists()


def test_without_a_store_there_is_nothing_to_prune(type_: Type) -> None:
    """And none is made."""
    assert (type_("prune", "--all").code, type_("prune", "t").code) == (0, 7)
    assert not Path("agents.db").exists()


# -- room -----------------------------------------------------------------------------------------------------------


def test_a_file_that_does_not_get_smaller_is_told_of(type_: Type) -> None:
    """Made by a program that does not let it; what to type is said, and does it."""
    with sqlite3.connect("agents.db") as made:
        made.execute("create table stranger (a)")
    made.close()
    Actor(PLAYS["sixty steps"]).plays(PLAYS["sixty steps"].past)

    first = type_("prune", "--all")
    size = on_disk()
    second = type_("prune", "--all", "--compact")

    assert "ninelives prune --all --compact" in first.talk
    assert "ninelives prune --all --compact" not in second.talk
    assert on_disk() < size


def test_nothing_is_compacted_beside_a_live_process(type_: Type) -> None:
    """It is said, threads are pruned all the same, and the exit code asks for another time."""
    three_threads()
    store = open_store(URL)
    keeper = Keeper(store)
    keeper.worker()

    ended = type_("prune", "--all", "--compact", "--json")

    assert ended.code == 6
    assert "1 process(es) work in the store" in ended.talk
    assert [each["checkpoints"] for each in ended.json["threads"]] == [2, 2, 2]
    keeper.close()
    store.close()
    assert type_("prune", "--all", "--compact").code == 0
