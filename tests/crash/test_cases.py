"""
What goes wrong for people when their agent's process dies, each as a test of the whole kind.

Every life is a process of its own, ended by `kill -9` at the place in question; then the program is started again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.channels.delta import DeltaChannel
from langgraph.errors import NodeError
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command, Send

from agents import SAFE_S, Home, Log, Outside, asks, chain, config, home_in, step
from lives import Gate, begin, die, die_at, live, live_and_die
from ninelives import NoCheckpointFoundError, ThreadBusyError
from ninelives.config import LeaseSettings, Settings

pytestmark = pytest.mark.crash

DONE = asks("in", "a", "b", "c")
WORDS = "abc"


def dies_once(home: Home, what: str = "death") -> Any:
    """Ends the process the first time; later lives pass."""

    def pass_or_die() -> None:
        if home.outside.once(what):
            die()

    return pass_or_die


def abc(home: Home, dying: str | None = None, **compiled: Any) -> Any:
    """Three nodes in a row, of which one kills its first process."""
    return home.protect(
        chain(*(step(w, home.outside, dies_once(home) if w == dying else None) for w in WORDS), **compiled)
    )


# -- accepted work ---------------------------------------------------------------------------------------------


def life_of_abc(folder: str, dying: str | None = None, point: list[Any] | None = None, **call: Any) -> Any:
    with home_in(folder) as home:
        agent = abc(home, dying)
        if point:
            die_at(home.store, *point)
        return agent.invoke(asks("in"), thread="t", idempotency_key="k", **call)


ACCEPTED = [
    ("start_run", "commit", "after", 1),
    ("put_checkpoint", "commit", "before", 1),
    ("put_checkpoint", "commit", "after", 1),
    ("put_checkpoint", "commit", "after", 2),
]


@pytest.mark.parametrize("again", ["continue_run", "none", "same key", "same input"])
@pytest.mark.parametrize("point", ACCEPTED, ids=lambda p: f"{p[0]} {p[3]} {p[2]}")
def test_accepted_work_is_never_lost(tmp_path: Path, point: Any, again: str) -> None:
    """A process that dies before its first checkpoint, or right after it, leaves a request that is carried out."""
    live_and_die(life_of_abc, tmp_path, None, point)

    with home_in(tmp_path) as home:
        agent = abc(home)
        out = {
            "continue_run": lambda: agent.continue_run("t"),
            "none": lambda: agent.invoke(None, thread="t"),
            "same key": lambda: agent.invoke(asks("in"), thread="t", idempotency_key="k"),
            "same input": lambda: agent.invoke(asks("in"), thread="t", on_unfinished="continue"),
        }[again]()

        assert out == DONE
        assert home.outside.seen == [*WORDS]
        assert home.statuses() == ["done"]


def test_work_that_was_not_accepted_leaves_nothing(tmp_path: Path) -> None:
    """Killed before the request was in the store there is no thread; the same call begins it."""
    live_and_die(life_of_abc, tmp_path, None, ["start_run", "commit", "before"])

    with home_in(tmp_path) as home:
        agent = abc(home)
        with pytest.raises(NoCheckpointFoundError):
            agent.continue_run("t")
        assert agent.invoke(asks("in"), thread="t", idempotency_key="k") == DONE
        assert home.outside.seen == [*WORDS]


def test_a_lost_response_for_a_new_thread_is_found_by_its_key(tmp_path: Path) -> None:
    """`thread="new"` with a key, killed, and sent again: the same thread, not a second one."""
    live_and_die(life_of_new, tmp_path, "b")

    assert live(life_of_new, tmp_path, None) == DONE
    assert Outside(tmp_path).seen == ["a", "b", "death", "b", "c"]


def life_of_new(folder: str, dying: str | None) -> Any:
    with home_in(folder) as home:
        agent = home.protect(chain(*(step(w, home.outside, dies_once(home) if w == dying else None) for w in WORDS)))
        return agent.invoke(asks("in"), thread="new", idempotency_key="k")


# -- recorded steps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dying", [*WORDS])
@pytest.mark.parametrize("way", ["process", "same process"])
def test_a_recorded_step_never_runs_again(tmp_path: Path, dying: str, way: str) -> None:
    """Killed in any node, only that node runs again; by a new process, or by one that was there all along."""
    live_and_die(life_of_abc, tmp_path, dying)

    out = live(life_of_abc, tmp_path) if way == "process" else in_process(tmp_path)

    assert out == DONE
    seen = Outside(tmp_path).seen
    assert [seen.count(word) for word in WORDS] == [2 if word == dying else 1 for word in WORDS]


def in_process(folder: Path) -> Any:
    with home_in(folder) as home:
        return abc(home).continue_run("t")


def test_killed_again_and_again_it_ends_right(tmp_path: Path) -> None:
    """Nine deaths, one at each node and after it, and the end state is that of a run without any."""
    deaths = ["a", "b", "c"]
    for word in deaths:
        live_and_die(life_of_deaths, tmp_path, word)

    assert live(life_of_deaths, tmp_path, "") == DONE


def life_of_deaths(folder: str, dying: str) -> Any:
    with home_in(folder) as home:
        agent = home.protect(chain(*(step(w, home.outside, die if w == dying else None) for w in WORDS)))
        return agent.invoke(asks("in"), thread="t", idempotency_key="k")


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_results_and_checkpoint_do_not_part(tmp_path: Path, nth: int, where: str) -> None:
    """
    Killed around the commit of a task's result or of a checkpoint: whatever was recorded at the death is never run
    again, and no result is applied twice.
    """
    live_and_die(life_of_fan, tmp_path, ["put_writes", "commit", where, nth])
    with home_in(tmp_path) as home:
        recorded = recorded_words(home)

    out = live(life_of_fan, tmp_path, None)

    assert sorted(out["log"]) == ["in", "w0", "w1", "w2", "z"]
    seen = Outside(tmp_path).seen
    assert {word: seen.count(word) for word in recorded} == dict.fromkeys(recorded, 1)


def life_of_fan(folder: str, point: list[Any] | None) -> Any:
    with home_in(folder) as home:
        graph = StateGraph(Log)
        for i in range(3):
            graph.add_node(f"w{i}", step(f"w{i}", home.outside))
            graph.add_edge(START, f"w{i}")
        graph.add_node("z", step("z", home.outside))
        graph.add_edge(["w0", "w1", "w2"], "z")
        graph.add_edge("z", END)
        agent = home.protect(graph.compile())
        if point:
            die_at(home.store, *point)
        return agent.invoke(asks("in"), thread="t", idempotency_key="k")


class Signal:
    """Waits until so many tasks' results are in the store."""

    def __init__(self, home: Home, results: int) -> None:
        self._left, self._come = results, threading.Event()
        home.store.fault = self._told

    def _told(self, act: str, statement: str, where: str) -> None:
        self._left -= (act, statement, where) == ("put_writes", "commit", "after")
        if self._left == 0:
            self._come.set()

    def wait(self) -> None:
        assert self._come.wait(SAFE_S)


def recorded_words(home: Home) -> set[str]:
    """What tasks have put into the log, as the store has it."""
    from ninelives.saver import Saver

    tuples = [*Saver(home.store).list(config())]
    logged = [value for one in tuples for _, channel, value in one.pending_writes or [] if channel == "log"]
    return {word for value in logged for word in value} - {"in"}


def test_a_limit_on_concurrency_loses_no_result(tmp_path: Path) -> None:
    """Forty tasks, four at a time, killed in the last: every finished one is recorded and does not run again."""
    live_and_die(life_of_many, tmp_path, True)

    out = live(life_of_many, tmp_path, False)

    seen = Outside(tmp_path).seen
    assert sorted(out["log"]) == sorted(f"w{i}" for i in range(40))
    again = [word for word in set(seen) if seen.count(word) > 1]
    assert len(again) <= 4, again


def life_of_many(folder: str, mortal: bool) -> Any:
    with home_in(folder) as home:
        recorded = Signal(home, 37)  # the first is of the pseudo node that sends

        def work(order: Any) -> Any:
            home.outside.happens(f"w{order['i']}")
            if order["i"] == 39 and mortal:
                recorded.wait()
                die()
            return {"log": [f"w{order['i']}"]}

        graph = StateGraph(Log)
        graph.add_node("work", work)  # type: ignore[arg-type]
        graph.add_conditional_edges(START, lambda _: [Send("work", {"i": i}) for i in range(40)], ["work"])
        return home.protect(graph.compile()).invoke(asks(), {"max_concurrency": 4}, thread="t", idempotency_key="k")


def test_an_error_handler_that_has_finished_does_not_run_again(tmp_path: Path) -> None:
    """A node failed, its handler dealt with it and was recorded, then a sibling took the process down."""
    live_and_die(life_of_handler, tmp_path, True)

    out = live(life_of_handler, tmp_path, False)

    assert sorted(out["log"]) == ["b", "handled a", "in"]
    seen = Outside(tmp_path).seen
    assert (seen.count("a"), seen.count("handler"), seen.count("b")) == (1, 1, 2)


def life_of_handler(folder: str, mortal: bool) -> Any:
    with home_in(folder) as home:
        handled = Signal(home, 3)  # the input, the failure, and what its handler made of it

        def a(state: Log) -> Any:
            home.outside.happens("a")
            raise ValueError("a")

        def handler(state: Log, error: NodeError) -> Any:
            home.outside.happens("handler")
            return {"log": [f"handled {error.node}"]}

        def b(state: Log) -> Any:
            home.outside.happens("b")
            if mortal:
                handled.wait()
                die()
            return {"log": ["b"]}

        graph = StateGraph(Log)
        graph.add_node("a", a, error_handler=handler)
        graph.add_node("b", b)
        for name in "ab":
            graph.add_edge(START, name)
            graph.add_edge(name, END)
        agent = home.protect(graph.compile())
        return agent.invoke(asks("in"), thread="t", idempotency_key="k")


def test_a_subgraph_goes_on_inside(tmp_path: Path) -> None:
    """Killed in the second node of a subgraph in a subgraph, its first node does not run again."""
    live_and_die(life_of_nested, tmp_path)

    assert live(life_of_nested, tmp_path) == asks("in", "x", "a", "b", "c")
    assert Outside(tmp_path).seen == ["x", "a", "b", "death", "b", "c"]


class Sub(TypedDict):
    log: Annotated[list[str], lambda a, b: b if len(b) > len(a) else a + b]


def life_of_nested(folder: str) -> Any:
    with home_in(folder) as home:
        inner = StateGraph(Log)
        for word, then in (("a", None), ("b", dies_once(home)), ("c", None)):
            inner.add_node(word, step(word, home.outside, then))
        inner.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c").add_edge("c", END)
        compiled = inner.compile()

        def middle(state: Log) -> Any:
            return {"log": compiled.invoke(asks())["log"]}

        return home.protect(chain(step("x", home.outside), middle)).invoke(asks("in"), thread="t", idempotency_key="k")


# -- one thread, several processes -----------------------------------------------------------------------------


def life_of_one_who_holds(folder: str) -> Any:
    with home_in(folder) as home:
        here, go = Gate(folder, "here"), Gate(folder, "go")

        def hold() -> None:
            here.open()
            go.wait()

        return home.protect(chain(step("a", home.outside, hold), step("b"), step("c"))).invoke(asks("in"), thread="t")


def test_another_process_does_not_write_beside_a_live_run(tmp_path: Path) -> None:
    """A run, an edit and a deletion by a second process are refused while the first one's run is alive."""
    here, go = Gate(tmp_path, "here"), Gate(tmp_path, "go")
    first = begin(life_of_one_who_holds, tmp_path)
    here.wait()

    with home_in(tmp_path) as home:
        agent = home.protect(chain(*map(step, WORDS)))
        calls: list[Callable[[], Any]] = [
            lambda: agent.invoke(asks("x"), thread="t"),
            lambda: agent.continue_run("t"),
            lambda: agent.update_state(config(), asks("edited")),
            lambda: agent.checkpointer.delete_thread("t"),
        ]
        for call in calls:
            with pytest.raises(ThreadBusyError):
                call()
    go.open()

    assert first.end().value == DONE


def test_several_processes_lose_no_input(tmp_path: Path) -> None:
    """Four processes send one input each to one thread and wait their turn: all four are in the end state."""
    lives = [begin(life_of_one_input, tmp_path, f"in {i}") for i in range(4)]

    assert [life.end().error for life in lives] == [""] * 4

    with home_in(tmp_path) as home:
        log = home.protect(chain(step("n"))).get_state(config()).values["log"]
    assert sorted(log[::2]) == [f"in {i}" for i in range(4)]
    assert log[1::2] == ["n"] * 4


def life_of_one_input(folder: str, word: str) -> Any:
    with home_in(folder) as home:
        return home.protect(chain(step("n"))).invoke(asks(word), thread="t", wait_s=30)


def test_several_processes_with_one_key_run_it_once(tmp_path: Path) -> None:
    """The same request from three processes at once is one run; all three get its output."""
    lives = [begin(life_of_abc_waiting, tmp_path) for _ in range(3)]

    assert [life.end().value for life in lives] == [DONE] * 3
    assert Outside(tmp_path).seen == [*WORDS]


def life_of_abc_waiting(folder: str) -> Any:
    return life_of_abc(folder, wait_s=30)


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_long_call_keeps_its_run(tmp_path: Path, kind: str) -> None:
    """
    A node that blocks the event loop, or a thread, for longer than the lease is one logical act: the heartbeat has a
    thread of its own, and nobody else starts the run meanwhile.
    """
    here = Gate(tmp_path, "here")
    first = begin(life_of_a_long_call, tmp_path, kind)
    here.wait()

    with home_in(tmp_path) as home:
        agent = home.protect(chain(step("a")), settings=SHORT)
        for _ in range(3):
            threading.Event().wait(SHORT.lease.ttl_s / 2)
            with pytest.raises(ThreadBusyError):
                agent.continue_run("t")

    assert first.end().value == asks("in", "a")
    assert Outside(tmp_path).seen == ["a"]


SHORT = Settings(lease=LeaseSettings(ttl_s=0.9, heartbeat_s=0.1))


def life_of_a_long_call(folder: str, kind: str) -> Any:
    with home_in(folder, lease_ttl_s=SHORT.lease.ttl_s) as home:

        def block() -> None:
            home.outside.happens("a")
            Gate(folder, "here").open()
            threading.Event().wait(SHORT.lease.ttl_s * 2)

        async def a(state: Log) -> Any:
            block()
            return {"log": ["a"]}

        graph = chain(a) if kind == "async" else chain(step("a", None, block))
        return home.protect(graph, settings=SHORT).invoke(asks("in"), thread="t")


# -- what was asked, and how -----------------------------------------------------------------------------------


def test_breakpoints_hold_across_a_kill(tmp_path: Path) -> None:
    """Breakpoints named by the first call hold for whoever continues it, and None goes on after them."""
    live_and_die(life_with_breakpoint, tmp_path)

    with home_in(tmp_path) as home:
        agent = abc(home)
        stopped = agent.continue_run("t")
        waiting = home.statuses()
        out = agent.continue_run("t")

        assert stopped == asks("in", "a", "b")
        assert waiting == ["interrupted"]
        assert out == DONE
        assert home.outside.seen == ["a", "death", "a", "b", "c"]


def life_with_breakpoint(folder: str) -> Any:
    with home_in(folder) as home:
        return abc(home, "a").invoke(asks("in"), thread="t", interrupt_after=["b"])


def test_going_on_from_a_breakpoint_and_being_killed(tmp_path: Path) -> None:
    """Killed in the node behind a breakpoint: None goes on there, and does not stop before it a second time."""
    live_and_die(life_behind_breakpoint, tmp_path)

    with home_in(tmp_path) as home:
        assert abc(home, interrupt_before=["b"]).continue_run("t") == DONE
        assert home.outside.seen == ["a", "b", "death", "b", "c"]


def life_behind_breakpoint(folder: str) -> Any:
    with home_in(folder) as home:
        agent = abc(home, "b", interrupt_before=["b"])
        agent.invoke(asks("in"), thread="t")
        return agent.continue_run("t")


COMMANDS: dict[str, Callable[[], Command[Any]]] = {
    "update": lambda: Command(update=asks("u")),
    "goto": lambda: Command(goto="b"),
    "both": lambda: Command(update=asks("u"), goto="b"),
}


AFTER_WRITE, BEFORE_CHECKPOINT = ("put_writes", "commit", "after", 1), ("put_checkpoint", "commit", "before", 1)


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("update", AFTER_WRITE),
        ("goto", AFTER_WRITE),
        ("goto", BEFORE_CHECKPOINT),
        ("both", AFTER_WRITE),
        ("both", BEFORE_CHECKPOINT),
    ],
)
def test_a_command_is_applied_once(tmp_path: Path, name: str, point: Any) -> None:
    """Killed between the write of a `Command`'s input and the next checkpoint: it is applied, and applied once."""
    live_and_die(life_with_command, tmp_path, name, point)

    with home_in(tmp_path) as home:
        out = abc(home).continue_run("t")
        undisturbed = abc(home, None)
        undisturbed.invoke(asks("in"), thread="calm")
        assert out == undisturbed.invoke(COMMANDS[name](), thread="calm")
        assert home.statuses() == home.statuses("calm")


def life_with_command(folder: str, name: str, point: list[Any]) -> Any:
    with home_in(folder) as home:
        agent = abc(home)
        agent.invoke(asks("in"), thread="t")
        die_at(home.store, *point)
        return agent.invoke(COMMANDS[name](), thread="t")


def test_an_agent_called_by_a_tool_is_not_started_twice(tmp_path: Path) -> None:
    """A tool calls another agent on a thread of its own; killed inside, that run is continued, not begun again."""
    for dying in ("inner b", "after inner"):
        live_and_die(life_of_a_caller, tmp_path, dying)

    out = live(life_of_a_caller, tmp_path, "")

    assert out == asks("in", "['x', 'a', 'b', 'c']")
    seen = Outside(tmp_path).seen
    assert [seen.count(word) for word in WORDS] == [1, 2, 1]


@pytest.mark.parametrize("dying", ["inner b", "after inner"])
def test_an_agent_called_on_a_new_thread_is_not_started_twice(tmp_path: Path, dying: str) -> None:
    """Likewise where the tool asks for `thread="new"`: the thread is found again by the call's place."""
    live_and_die(life_of_a_caller, tmp_path, dying, "new")

    assert live(life_of_a_caller, tmp_path, "", "new") == asks("in", "['x', 'a', 'b', 'c']")
    seen = Outside(tmp_path).seen
    assert [seen.count(word) for word in WORDS] == [1, 2 if dying == "inner b" else 1, 1]


def life_of_a_caller(folder: str, dying: str, thread: str = "other") -> Any:
    with home_in(folder) as home:
        inner = home.protect(
            chain(*(step(w, home.outside, die if dying == f"inner {w}" else None) for w in WORDS)), name="inner"
        )

        @tool
        def ask_other(what: str) -> str:
            """Ask."""
            answer = inner.invoke(asks(what), thread=thread)
            if dying == "after inner":
                die()
            return str(answer["log"])

        def call(state: Log) -> Any:
            return {"log": [ask_other.invoke({"what": "x"})]}

        return home.protect(chain(call), name="outer").invoke(asks("in"), thread="t", idempotency_key="k")


# -- DeltaChannel ----------------------------------------------------------------------------------------------


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


def chat(home: Home, dying: bool = False) -> Any:
    def answer(state: Chat) -> Any:
        home.outside.happens("answer")
        if dying:
            dies_once(home)()
        return {"messages": [("ai", f"to {state['messages'][-1].content}")]}

    return home.protect(chain(answer, schema=Chat))


def spoken(out: Any) -> list[Any]:
    return [message.content for message in out["messages"]]


DELTA_POINTS = [
    ("start_run", "commit", "after", 1),
    ("put_writes", "commit", "before", 1),
    ("put_writes", "commit", "after", 1),
    ("put_checkpoint", "commit", "before", 1),
    ("put_checkpoint", "commit", "after", 1),
    ("put_checkpoint", "commit", "after", 2),
]


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("point", DELTA_POINTS, ids=lambda p: f"{p[0]} {p[3]} {p[2]}")
def test_an_input_is_the_same_message_however_often_it_is_driven(tmp_path: Path, point: Any, turn: int) -> None:
    """Killed right at the input of a DeltaChannel graph, on a new thread or a later turn: nothing is doubled."""
    live_and_die(life_of_chat, tmp_path, turn, point)

    with home_in(tmp_path) as home:
        agent = chat(home)
        given = home.runs()[-1].spec.input["messages"][0]
        out = agent.continue_run("t")

        assert spoken(out) == ["hi 1", "to hi 1", "hi 2", "to hi 2"][: 2 * turn]
        assert out["messages"][-2].id == given.id
        assert agent.get_state(config()).values == out


def life_of_chat(folder: str, turn: int, point: list[Any]) -> Any:
    with home_in(folder) as home:
        agent = chat(home)
        for number in range(1, turn + 1):
            if number == turn:
                die_at(home.store, *point)
            agent.invoke({"messages": [HumanMessage(f"hi {number}")]}, thread="t")


@pytest.mark.parametrize("choice", ["start_over", "abandon"])
@pytest.mark.parametrize("point", DELTA_POINTS, ids=lambda p: f"{p[0]} {p[3]} {p[2]}")
def test_a_delta_thread_can_be_started_over_and_abandoned(tmp_path: Path, point: Any, choice: Any) -> None:
    """
    What a killed turn had taken into a DeltaChannel is kept by `abandon` and taken back by `start_over`; an input that
    was only noted is in the history, not in the new turn.
    """
    live_and_die(life_of_chat, tmp_path, 2, point)

    with home_in(tmp_path) as home:
        agent = chat(home)
        out = agent.invoke({"messages": [HumanMessage("new")]}, thread="t", on_unfinished=choice)

        first, new = ["hi 1", "to hi 1"], ["new", "to new"]
        noted, taken_in = [*first, *new], [*first, "hi 2", *new]
        # What is on its way when the input is committed may be part of the same commit.
        committed = choice == "abandon" and point[0] != "start_run" and point[2] == "after"
        expected = (
            [taken_in] if committed and point == DELTA_POINTS[-1] else [noted, taken_in] if committed else [noted]
        )
        assert spoken(out) in expected
        assert spoken(agent.get_state(config()).values) == spoken(out)
        assert spoken(agent.invoke({"messages": [HumanMessage("on")]}, thread="t")) == [*spoken(out), "on", "to on"]


# -- values ----------------------------------------------------------------------------------------------------


def test_values_come_back_as_they_were_in_another_process(tmp_path: Path) -> None:
    """Collections of every kind keep their type and their behaviour across a kill, through a whole run."""
    live_and_die(life_of_values, tmp_path, True)

    assert live(life_of_values, tmp_path, False) == []


class Values(TypedDict, total=False):
    things: dict[str, Any]
    wrong: list[str]


def all_things() -> dict[str, Any]:
    from collections import Counter, defaultdict, deque
    from datetime import UTC, datetime, timedelta
    from decimal import Decimal
    from fractions import Fraction
    from uuid import UUID

    return {
        "tuple": (1, ("a", [2])),
        "set": {1, 2},
        "frozenset": frozenset("ab"),
        "counter": Counter("aab"),
        "ordered": OrderedDict([("z", 1), ("a", 2)]),
        "defaultdict": defaultdict(list, {"x": [1]}),
        "deque": deque([1, 2, 3], maxlen=3),
        "fraction": Fraction(1, 3),
        "complex": 1 + 2j,
        "decimal": Decimal("1.10"),
        "bytes": b"\0\xff",
        "big": 2**100,
        "int keys": {1: "a", (2, 3): "b", None: "c"},
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "length": timedelta(days=1, microseconds=3),
        "uuid": UUID(int=7),
        "inf": float("inf"),
        "text": "snow \u2603 \U0001f408",
    }


def life_of_values(folder: str, mortal: bool) -> Any:
    def make(state: Values) -> Any:
        return {"things": all_things()}

    def look(state: Values) -> Any:
        if mortal:
            die()
        things, wrong = state["things"], []
        for name, was in all_things().items():
            now = things[name]
            if type(now) is not type(was) or now != was:
                wrong.append(f"{name}: {now!r} is not {was!r}")
        things["defaultdict"]["new"].append(1)
        things["deque"].append(4)
        if things["defaultdict"]["new"] != [1] or list(things["deque"]) != [2, 3, 4]:
            wrong.append("they do not behave")
        return {"wrong": wrong}

    with home_in(folder) as home:
        out = home.protect(chain(make, look, schema=Values)).invoke({}, thread="t", idempotency_key="k")
        return out["wrong"]
