"""Which thread, which run: nothing begins anew, and nothing unfinished is dropped, unless the caller says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from agents import SAFE_S, Home, Log, Outside, asks, chain, config, step
from ninelives import (
    GraphChangedError,
    IdempotencyMismatchError,
    MissingThreadError,
    NineLivesError,
    NoCheckpointFoundError,
    ThreadBusyError,
    UnfinishedRunError,
)
from ninelives.model import Started

DONE = asks("in", "a", "b")


def ask(state: Log) -> Any:
    return {"log": [interrupt("sure?")]}


@pytest.fixture
def agent(home: Home) -> Any:
    return home.protect(chain(step("a", home.outside), step("b", home.outside)))


class Failing:
    """A node that raises until told not to."""

    def __init__(self, word: str = "b") -> None:
        self.broken, self.__name__ = True, word

    def __call__(self, state: Log) -> Any:
        if self.broken:
            raise ConnectionRefusedError("no")
        return {"log": [self.__name__]}


class Cut:
    """An agent on whose thread "t" a run failed after its first node."""

    def __init__(self, home: Home, **options: Any) -> None:
        self.home, self.b = home, Failing()
        self.agent = home.protect(chain(step("a", home.outside), self.b), **options)
        with pytest.raises(ConnectionRefusedError):
            self.agent.invoke(asks("in"), thread="t", idempotency_key="k1")
        self.b.broken = False


@pytest.fixture
def cut(home: Home) -> Cut:
    return Cut(home)


class Waiting:
    """An agent whose thread "t" waits for an answer."""

    def __init__(self, home: Home) -> None:
        self.agent = home.protect(chain(step("a", home.outside), ask, step("b", home.outside)))
        self.agent.invoke(asks("in"), thread="t")


@pytest.fixture
def waiting(home: Home) -> Waiting:
    return Waiting(home)


# -- naming a thread -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [{}, {"config": config("")}, {"config": {"configurable": {"thread_id": None}}}])
def test_a_call_without_a_thread_is_refused(agent: Any, home: Home, named: Any) -> None:
    """Nobody shares a thread by having named none: refused before any node, saying what to pass."""
    with pytest.raises(MissingThreadError, match=r'nothing ran.*thread="new".*ephemeral=True'):
        agent.invoke(asks("in"), **named)

    assert home.outside.seen == []


def test_a_new_thread_is_made_on_request(agent: Any) -> None:
    """`thread="new"` makes a fresh thread each time; `on_start` tells its id."""
    told: list[Started] = []

    for _ in range(2):
        assert agent.invoke(asks("in"), thread="new", on_start=told.append) == DONE

    assert told[0].thread_id != told[1].thread_id
    assert all(one.created for one in told)
    assert agent.get_state(config(told[0].thread_id)).values == DONE


@pytest.mark.parametrize(
    "unknown",
    [
        None,
        Command(resume="yes"),
        Command(resume={"0" * 32: "yes"}),
        Command(update=asks("x"), goto="b"),
        Command(goto="b"),
    ],
    ids=["nothing", "an answer", "an answer by id", "an update", "a jump"],
)
def test_what_goes_on_never_begins_anew(agent: Any, home: Home, unknown: Any) -> None:
    """Continuing, answering or jumping on an unknown thread is an error that names near ids; nothing is made."""
    agent.invoke(asks("in"), thread="user-42")

    with pytest.raises(NoCheckpointFoundError, match=r"'user-24' is not known; nothing ran\. Did you mean 'user-42'\?"):
        agent.invoke(unknown, thread="user-24")

    assert home.statuses("user-24") == []
    assert agent.get_state(config("user-24")).values == {}


def test_continue_run_on_an_unknown_thread_is_refused(agent: Any) -> None:
    """`continue_run` likewise."""
    with pytest.raises(NoCheckpointFoundError, match="nothing ran"):
        agent.continue_run("nowhere")


@pytest.mark.parametrize("where", ["the call", "protect"])
def test_if_missing_error_makes_no_thread(home: Home, where: str) -> None:
    """`if_missing="error"` refuses plain input on an unknown thread, and takes it on a known one."""
    graph = chain(step("a", home.outside))
    home.protect(graph).invoke(asks("in"), thread="known")
    strict = home.protect(graph, if_missing="error" if where == "protect" else "create")
    said = {} if where == "protect" else {"if_missing": "error"}

    with pytest.raises(NoCheckpointFoundError, match="Did you mean 'known'"):
        strict.invoke(asks("in"), thread="knwon", **said)

    strict.invoke(asks("in"), thread="known", **said)
    assert home.outside.times("a") == 2


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("given", [asks("in"), None, Command(resume=1)])
def test_an_erased_thread_is_not_made_anew(agent: Any, home: Home, given: Any, key: str | None) -> None:
    """A deleted thread is remembered as erased: the same id is never begun again in silence."""
    agent.invoke(asks("in"), thread="t", idempotency_key=key)
    agent.checkpointer.delete_thread("t")

    with pytest.raises(NoCheckpointFoundError, match="was erased and is not made anew"):
        agent.invoke(given, thread="t")

    assert home.outside.seen == ["a", "b"]


def test_another_graphs_thread_is_refused(home: Home, agent: Any) -> None:
    """A thread belongs to the graph that made it: input, answers and editing by another name both graphs."""
    other = home.protect(chain(step("a", home.outside)), name="other")
    agent.invoke(asks("in"), thread="t")

    calls: list[Any] = [asks("in"), None, Command(resume=1)]
    for given in calls:
        with pytest.raises(GraphChangedError, match=r"belongs to graph 'agent', not 'other'; nothing ran"):
            other.invoke(given, thread="t")
    with pytest.raises(GraphChangedError):
        other.update_state(config(), asks("x"))

    assert agent.get_state(config()).values == DONE


def test_another_graph_does_not_take_the_answer(home: Home, waiting: Waiting) -> None:
    """Two graphs with a node of the same name on one thread: neither can consume the other's answer."""
    other = home.protect(chain(step("a"), ask), name="other")

    with pytest.raises(GraphChangedError):
        other.invoke(Command(resume="yes"), thread="t")

    assert waiting.agent.invoke(Command(resume="yes"), thread="t") == asks("in", "a", "yes", "b")


def test_owners_do_not_share_threads(home: Home) -> None:
    """The same id under two owners is two threads, and each sees only its own near ids."""
    graph = chain(step("a"))
    ada, bob = home.protect(graph, owner="ada"), home.protect(graph, owner="bob")

    ada.invoke(asks("from ada"), thread="shared")
    bob.invoke(asks("from bob"), thread="shared")

    assert ada.get_state(config("shared")).values == asks("from ada", "a")
    assert bob.get_state(config("shared")).values == asks("from bob", "a")
    ada.invoke(asks("x"), thread="adas-own")
    with pytest.raises(NoCheckpointFoundError) as refused:
        bob.continue_run("adas-one")
    assert refused.value.near == ()


# -- a finished thread -----------------------------------------------------------------------------------------


def test_new_input_goes_on_from_the_head(agent: Any) -> None:
    """On a finished thread plain input is the next turn of the same conversation."""
    agent.invoke(asks("in"), thread="t")

    assert agent.invoke(asks("more"), thread="t") == asks("in", "a", "b", "more", "a", "b")


def test_continuing_a_finished_thread_runs_nothing(agent: Any, home: Home) -> None:
    """It gives the state."""
    agent.invoke(asks("in"), thread="t")

    assert agent.continue_run("t") == DONE
    assert agent.invoke(None, thread="t") == DONE
    assert home.outside.seen == ["a", "b"]
    assert home.statuses() == ["done"]


# -- an unfinished thread --------------------------------------------------------------------------------------


def test_new_input_on_an_unfinished_thread_is_a_question(cut: Cut) -> None:
    """By default plain input raises, saying what is unfinished, why, what would run again, and the choices."""
    with pytest.raises(UnfinishedRunError) as refused:
        cut.agent.invoke(asks("more"), thread="t")

    text = str(refused.value)
    assert "failed (ConnectionRefusedError('no'))" in text
    assert "b would run again" in text
    assert "Nothing ran. Choose on_unfinished='continue', 'start_over' or 'abandon'." in text
    assert refused.value.unfinished.run.run_id == cut.home.runs()[0].run_id
    assert cut.home.outside.seen == ["a"]


def test_continue_finishes_and_then_runs_the_new_input(cut: Cut) -> None:
    """`continue` with a new input: the unfinished run is finished, then this one runs."""
    out = cut.agent.invoke(asks("more"), thread="t", on_unfinished="continue")

    assert out == asks("in", "a", "b", "more", "a", "b")
    assert cut.home.statuses() == ["done", "done"]
    assert cut.home.outside.seen == ["a", "a"]


def test_continue_with_the_same_request_is_that_run(cut: Cut) -> None:
    """The same input again, under `continue`, is not a second turn."""
    assert cut.agent.invoke(asks("in"), thread="t", on_unfinished="continue") == DONE
    assert cut.home.statuses() == ["done"]
    assert cut.home.outside.seen == ["a"]


def test_start_over_begins_at_the_old_head_and_keeps_history(cut: Cut) -> None:
    """`start_over`: this input from where the unfinished chain began; what was done stays readable."""
    out = cut.agent.invoke(asks("again"), thread="t", on_unfinished="start_over")

    assert out == asks("again", "a", "b")
    assert cut.home.statuses() == ["abandoned", "done"]
    assert cut.agent.get_state(config()).values == out
    assert asks("in", "a") in [state.values for state in cut.agent.get_state_history(config())]


def test_start_over_in_a_later_turn_keeps_the_turns_before(home: Home) -> None:
    """Only the unfinished turn is taken back."""
    b = Failing()
    b.broken = False
    agent = home.protect(chain(step("a"), b))
    agent.invoke(asks("one"), thread="t")
    b.broken = True
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks("two"), thread="t")
    b.broken = False

    out = agent.invoke(asks("three"), thread="t", on_unfinished="start_over")

    assert out == asks("one", "a", "b", "three", "a", "b")


def test_a_start_over_that_fails_can_be_started_over(home: Home, cut: Cut) -> None:
    """Twice started over, it still begins at the first head; and a failed start-over can be continued."""
    cut.b.broken = True
    with pytest.raises(ConnectionRefusedError):
        cut.agent.invoke(asks("again"), thread="t", on_unfinished="start_over")
    with pytest.raises(ConnectionRefusedError):
        cut.agent.invoke(asks("third"), thread="t", on_unfinished="start_over")
    cut.b.broken = False

    assert cut.agent.continue_run("t") == asks("third", "a", "b")
    assert home.statuses() == ["abandoned", "abandoned", "done"]


def test_abandon_runs_the_new_input_from_the_newest_head(cut: Cut) -> None:
    """`abandon`: what was done stays in the state, what was not is dropped, and this input runs."""
    out = cut.agent.invoke(asks("more"), thread="t", on_unfinished="abandon")

    assert out == asks("in", "a", "more", "a", "b")
    assert cut.home.statuses() == ["abandoned", "done"]


def test_the_choice_may_be_made_once_for_all(home: Home) -> None:
    """`protect(on_unfinished=...)` is the default of its calls; a call's own choice wins."""
    cut = Cut(home, on_unfinished="abandon")

    with pytest.raises(UnfinishedRunError):
        cut.agent.invoke(asks("more"), thread="t", on_unfinished="ask")

    assert cut.agent.invoke(asks("more"), thread="t") == asks("in", "a", "more", "a", "b")


def test_none_continues(cut: Cut) -> None:
    """`invoke(None)` goes on where the run stopped, as LangGraph means it: finished nodes do not run again."""
    assert cut.agent.invoke(None, thread="t") == DONE
    assert cut.home.outside.seen == ["a"]


def test_streams_make_the_same_choices(cut: Cut) -> None:
    """`stream` under `continue` streams the unfinished run's rest, then the new run."""
    chunks = [*cut.agent.stream(asks("more"), thread="t", on_unfinished="continue", stream_mode="updates")]

    assert [next(iter(chunk)) for chunk in chunks] == ["b", "a", "b"]


# -- a waiting thread ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["ask", "continue"])
def test_plain_input_never_drops_a_question(waiting: Waiting, home: Home, choice: Any) -> None:
    """On a waiting thread plain input is refused with the question; the question stays."""
    with pytest.raises(UnfinishedRunError, match=r"waits for an answer.*'sure\?'.*Command\(resume=") as refused:
        waiting.agent.invoke(asks("my answer"), thread="t", on_unfinished=choice)

    assert [question.payload for question in refused.value.unfinished.questions] == ["sure?"]
    assert len(home.questions()) == 1
    assert waiting.agent.invoke(Command(resume="yes"), thread="t") == asks("in", "a", "yes", "b")


@pytest.mark.parametrize("go_on", ["continue_run", "none"])
def test_continuing_a_waiting_thread_gives_its_questions(waiting: Waiting, home: Home, go_on: str) -> None:
    """Without an answer there is nothing to do: the questions come back, and no node runs."""
    out = waiting.agent.continue_run("t") if go_on == "continue_run" else waiting.agent.invoke(None, thread="t")

    (question,) = home.questions()
    assert [(one.id, one.value) for one in out["__interrupt__"]] == [(question.interrupt_id, "sure?")]
    assert out["log"] == ["in", "a"]
    assert home.outside.seen == ["a"]
    assert home.statuses() == ["interrupted"]


@pytest.mark.parametrize(
    ("choice", "end"), [("start_over", asks("new", "a")), ("abandon", asks("in", "a", "new", "a"))]
)
def test_a_waiting_run_may_be_closed(waiting: Waiting, home: Home, choice: Any, end: Any) -> None:
    """`start_over` and `abandon` withdraw the old question; the new run asks its own."""
    out = waiting.agent.invoke(asks("new"), thread="t", on_unfinished=choice)

    assert out["log"] == end["log"]
    assert [str(question.state) for question in home.questions(pending_only=False)] == ["withdrawn", "pending"]
    assert waiting.agent.invoke(Command(resume="yes"), thread="t")["log"] == [*end["log"], "yes", "b"]


# -- idempotency keys ------------------------------------------------------------------------------------------


def test_a_finished_request_is_not_run_again(agent: Any, home: Home) -> None:
    """The same key and request gives the recorded output, also after the thread has gone on."""
    first = agent.invoke(asks("in"), thread="t", idempotency_key="k")
    agent.invoke(asks("more"), thread="t")
    home.outside.happens("--")

    assert agent.invoke(asks("in"), thread="t", idempotency_key="k") == first
    assert home.outside.seen[-1] == "--"
    assert len(home.runs()) == 2


def test_a_finished_request_is_not_streamed_again(agent: Any, home: Home) -> None:
    """`stream` gives the recorded state as its last value, in the asked shape."""
    agent.invoke(asks("in"), thread="t", idempotency_key="k")

    assert [*agent.stream(asks("in"), thread="t", idempotency_key="k")] == [DONE]
    assert [*agent.stream(asks("in"), thread="t", idempotency_key="k", stream_mode=["values"])] == [("values", DONE)]
    assert len(home.outside.seen) == 2


def test_a_key_finds_its_run_whatever_thread_is_named(agent: Any, home: Home) -> None:
    """`thread="new"` with a key, sent twice, makes one thread: the lost response is found again."""
    told: list[Started] = []
    for _ in range(2):
        assert agent.invoke(asks("in"), thread="new", idempotency_key="k", on_start=told.append) == DONE

    assert home.outside.seen == ["a", "b"]


def test_a_key_for_another_request_is_refused(agent: Any, home: Home) -> None:
    """The text names the key and its run."""
    agent.invoke(asks("in"), thread="t", idempotency_key="k")

    with pytest.raises(
        IdempotencyMismatchError, match=r"'k' belongs to run .* another request; nothing ran"
    ) as refused:
        agent.invoke(asks("other"), thread="t", idempotency_key="k")

    assert refused.value.run_id == home.runs()[0].run_id
    assert len(home.runs()) == 1


def test_a_cut_off_request_is_continued_by_its_key(cut: Cut) -> None:
    """The same key and request again goes on with the run, whatever `on_unfinished` says."""
    assert cut.agent.invoke(asks("in"), thread="t", idempotency_key="k1") == DONE
    assert cut.home.statuses() == ["done"]
    assert cut.home.outside.seen == ["a"]


def test_a_waiting_request_gives_its_questions_by_its_key(waiting: Waiting, home: Home) -> None:
    """A request that asked is neither run again nor refused."""
    agent = waiting.agent
    first = agent.invoke(asks("in"), thread="u", idempotency_key="k")
    again = agent.invoke(asks("in"), thread="u", idempotency_key="k")
    agent.invoke(Command(resume="yes"), thread="u")
    done = agent.invoke(asks("in"), thread="u", idempotency_key="k")

    assert again == first
    assert done == asks("in", "a", "yes", "b")
    assert len(home.runs("u")) == 2


def test_an_abandoned_request_needs_a_new_key(cut: Cut) -> None:
    """Its key says that it was closed; it is not run by accident."""
    cut.agent.invoke(asks("more"), thread="t", on_unfinished="abandon")

    with pytest.raises(NineLivesError, match=r"closed as abandoned; a new request needs a new key"):
        cut.agent.invoke(asks("in"), thread="t", idempotency_key="k1")


class Slow:
    """An agent with a run on thread "t" that goes on in another thread until released."""

    def __init__(self, home: Home, pool: ThreadPoolExecutor) -> None:
        self.started, self.go = threading.Event(), threading.Event()
        self.agent = home.protect(chain(step("a", home.outside, self._wait), step("b", home.outside)))
        self.result = pool.submit(self.agent.invoke, asks("in"), thread="t", idempotency_key="k")
        assert self.started.wait(SAFE_S)

    def _wait(self) -> None:
        self.started.set()
        assert self.go.wait(SAFE_S)


@pytest.fixture
def slow(home: Home) -> Any:
    with ThreadPoolExecutor(4) as pool:
        slow = Slow(home, pool)
        yield slow
        slow.go.set()


def test_a_busy_thread_is_refused(slow: Slow, home: Home) -> None:
    """While a run is alive every other way to drive or edit the thread is refused, with the run that holds it."""
    held = home.runs()[0].run_id
    calls: list[Callable[[], Any]] = [
        lambda: slow.agent.invoke(asks("other"), thread="t"),
        lambda: slow.agent.invoke(asks("in"), thread="t", idempotency_key="k"),
        lambda: slow.agent.invoke(None, thread="t"),
        lambda: slow.agent.continue_run("t"),
        lambda: slow.agent.invoke(asks("x"), thread="t", on_unfinished="abandon"),
        lambda: slow.agent.invoke(asks("x"), thread="t", on_unfinished="start_over"),
        lambda: slow.agent.update_state(config(), asks("edited")),
        lambda: slow.agent.bulk_update_state(config(), [[]]),
        lambda: slow.agent.checkpointer.delete_thread("t"),
    ]

    for call in calls:
        with pytest.raises(ThreadBusyError, match=r"nothing was changed.*wait_s=") as refused:
            call()
        assert refused.value.run_id == held

    slow.go.set()
    assert slow.result.result(SAFE_S) == DONE


def test_wait_s_waits_for_the_same_request(slow: Slow, home: Home) -> None:
    """The same key with `wait_s=` gets the result of the run that was alive; nothing runs twice."""
    with ThreadPoolExecutor(1) as pool:
        again = pool.submit(slow.agent.invoke, asks("in"), thread="t", idempotency_key="k", wait_s=SAFE_S)
        slow.go.set()

        assert again.result(SAFE_S) == slow.result.result(SAFE_S) == DONE
    assert home.outside.seen == ["a", "b"]


def test_wait_s_waits_for_its_turn(slow: Slow) -> None:
    """Another request with `wait_s=` runs after the one that was alive, from its end state."""
    with ThreadPoolExecutor(1) as pool:
        more = pool.submit(slow.agent.invoke, asks("more"), thread="t", wait_s=SAFE_S)
        slow.go.set()

        assert more.result(SAFE_S) == asks("in", "a", "b", "more", "a", "b")


def test_many_callers_of_one_request_run_it_once(agent: Any, home: Home) -> None:
    """Eight callers with one key at once: one runs, all get its output."""
    with ThreadPoolExecutor(8) as pool:
        outs = [*pool.map(lambda _: agent.invoke(asks("in"), thread="t", idempotency_key="k", wait_s=SAFE_S), range(8))]

    assert outs == [DONE] * 8
    assert home.outside.seen == ["a", "b"]


@pytest.mark.parametrize("call", ["key", "continue"])
def test_many_callers_continue_a_run_once(cut: Cut, call: str) -> None:
    """Eight callers at once go on with one failed run: one does, all get its end, nobody hears of a lost lease."""

    def go_on(_: int) -> Any:
        if call == "key":
            return cut.agent.invoke(asks("in"), thread="t", idempotency_key="k1", wait_s=SAFE_S)
        return cut.agent.continue_run("t", wait_s=SAFE_S)

    with ThreadPoolExecutor(8) as pool:
        outs = [*pool.map(go_on, range(8))]

    assert outs == [DONE] * 8
    assert cut.home.outside.seen == ["a"]
    assert cut.home.statuses() == ["done"]


@pytest.mark.parametrize("call", ["key", "continue"])
def test_who_is_overtaken_in_continuing_gets_the_result(cut: Cut, call: str) -> None:
    """Between looking at an unfinished run and taking it, somebody else has finished it: its end is the answer."""
    first = [True]

    def overtake(*point: str) -> None:
        """On a loop of its own: this thread may be the one of the loop that would serve it else."""
        if point == ("find_newest_run", "find_newest_run", "after") and first:
            first.clear()
            with ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, cut.agent.acontinue_run("t")).result(SAFE_S)

    cut.home.store.fault = overtake

    if call == "key":
        out = cut.agent.invoke(asks("in"), thread="t", idempotency_key="k1")
    else:
        out = cut.agent.continue_run("t")

    assert out == DONE
    assert cut.home.outside.seen == ["a"]


def test_many_callers_on_one_thread_lose_nothing(home: Home) -> None:
    """Four inputs at once on one thread, each waiting its turn: all four are in the end state, one after the other."""
    agent = home.protect(chain(step("n")))

    with ThreadPoolExecutor(4) as pool:
        [*pool.map(lambda i: agent.invoke(asks(f"in {i}"), thread="t", wait_s=SAFE_S), range(4))]

    log = agent.get_state(config()).values["log"]
    assert sorted(log[::2]) == [f"in {i}" for i in range(4)]
    assert log[1::2] == ["n"] * 4
    assert all(state.parent_config or state.metadata["step"] == -1 for state in agent.get_state_history(config()))


def test_many_callers_without_waiting_are_told(home: Home) -> None:
    """Without `wait_s` whoever comes second hears `ThreadBusyError`; what was accepted is in the end state."""
    agent = home.protect(chain(step("n")))

    def call(i: int) -> str | None:
        try:
            agent.invoke(asks(f"in {i}"), thread="t")
        except ThreadBusyError:
            return None
        return f"in {i}"

    with ThreadPoolExecutor(4) as pool:
        accepted = [word for word in pool.map(call, range(12)) if word]

    assert sorted(agent.get_state(config()).values["log"][::2]) == sorted(accepted)


# -- time travel -----------------------------------------------------------------------------------------------


def test_time_travel_forks_and_keeps_history(agent: Any, home: Home) -> None:
    """`checkpoint_id` with None runs again from there, on a branch of its own; the old branch stays."""
    agent.invoke(asks("in"), thread="t")
    before_b = next(state for state in agent.get_state_history(config()) if state.next == ("b",))

    out = agent.invoke(None, before_b.config)

    assert out == DONE
    assert home.outside.seen == ["a", "b", "b"]
    assert [state.next for state in agent.get_state_history(config())].count(()) == 2
    assert home.statuses() == ["done", "done"]


def test_time_travel_with_input_is_a_branch(agent: Any) -> None:
    """An input at an older checkpoint is the next turn from there, and the new branch is the head."""
    agent.invoke(asks("one"), thread="t")
    first_end = agent.get_state(config()).config
    agent.invoke(asks("two"), thread="t")

    out = agent.invoke(asks("other"), first_end)

    assert out == asks("one", "a", "b", "other", "a", "b")
    assert agent.get_state(config()).values == out
    assert asks("one", "a", "b", "two", "a", "b") in [s.values for s in agent.get_state_history(config())]


def test_time_travel_into_a_subgraph(home: Home) -> None:
    """The config of a checkpoint inside a subgraph leads to what it leads to in LangGraph."""

    def build(outside: Outside | None, **compiled: Any) -> Any:
        inner = chain(*(step(word, outside) for word in "xyz"), interrupt_before=["z"])
        graph = StateGraph(Log).add_node("inner", inner).add_edge(START, "inner").add_edge("inner", END)
        return graph.compile(**compiled)

    def travel(agent: Any, **choice: Any) -> list[Any]:
        agent.invoke(asks("in"), config())
        inside = agent.get_state(config(), subgraphs=True).tasks[0].state.config
        return [agent.invoke(None, inside, **choice), agent.invoke(None, config())]

    theirs = Outside(home.folder, "theirs.txt")

    outs = travel(home.protect(build(home.outside)), on_unfinished="abandon")

    assert outs == travel(build(theirs, checkpointer=InMemorySaver()))
    assert home.outside.seen == theirs.seen


def test_time_travel_after_an_edit(agent: Any) -> None:
    """`update_state` at an older checkpoint forks there; None runs on from the fork."""
    agent.invoke(asks("in"), thread="t")
    before_b = next(state for state in agent.get_state_history(config()) if state.next == ("b",))

    forked = agent.update_state(before_b.config, asks("edited"))

    assert agent.invoke(None, forked) == asks("in", "a", "edited", "b")


def test_an_unknown_checkpoint_is_no_fresh_start(agent: Any, home: Home) -> None:
    """A checkpoint id that the thread does not have is an error, with input too; nothing runs or becomes the head."""
    agent.invoke(asks("in"), thread="t")
    nowhere = config(checkpoint_id="1f000000-0000-6000-8000-000000000000")

    for given in (None, asks("x")):
        with pytest.raises(NoCheckpointFoundError, match="nothing ran"):
            agent.invoke(given, nowhere)

    assert agent.get_state(config()).values == DONE
    assert home.outside.seen == ["a", "b"]
    assert agent.invoke(asks("x"), thread="t") == asks("in", "a", "b", "x", "a", "b")


def test_time_travel_on_an_unfinished_thread_asks(cut: Cut) -> None:
    """Going elsewhere on an unfinished thread drops work, so it is a choice too."""
    first = [*cut.agent.get_state_history(config())][-1].config

    with pytest.raises(UnfinishedRunError):
        cut.agent.invoke(None, first)

    assert cut.agent.invoke(None, first, on_unfinished="abandon")["log"][-1] == "b"


# -- breakpoints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["compiled", "called"])
@pytest.mark.parametrize("side", ["interrupt_before", "interrupt_after"])
def test_breakpoints_stop_and_none_goes_on(home: Home, where: str, side: str) -> None:
    """`interrupt_before` and `interrupt_after` stop at their node; None goes on; nothing runs twice."""
    points: dict[str, Any] = {side: ["b"]}
    nodes = [step(word, home.outside) for word in "abc"]
    agent = home.protect(chain(*nodes, **(points if where == "compiled" else {})))

    stopped = agent.invoke(asks("in"), thread="t", **(points if where == "called" else {}))
    status = home.statuses()
    out = agent.invoke(None, thread="t")

    assert stopped["log"] == (["in", "a"] if side == "interrupt_before" else ["in", "a", "b"])
    assert status == ["interrupted"]
    assert out == asks("in", "a", "b", "c")
    assert home.outside.seen == ["a", "b", "c"]
    assert home.statuses() == ["done"]


def test_every_node_may_be_a_breakpoint(home: Home) -> None:
    """`interrupt_before="*"`: one node for each None."""
    agent = home.protect(chain(step("a"), step("b"), interrupt_before="*"))

    logs = [agent.invoke(asks("in"), thread="t")["log"], *(agent.continue_run("t")["log"] for _ in range(2))]

    assert logs == [["in"], ["in", "a"], ["in", "a", "b"]]
    assert home.statuses() == ["done"]


def test_editing_the_state_at_a_breakpoint(home: Home) -> None:
    """`update_state` at a breakpoint, then None: the nodes see the edited state."""
    agent = home.protect(chain(step("a"), step("b"), interrupt_before=["b"]))
    agent.invoke(asks("in"), thread="t")

    agent.update_state(config(), asks("edited"))

    assert agent.invoke(None, thread="t") == asks("in", "a", "edited", "b")


def test_editing_makes_a_thread_only_where_allowed(home: Home) -> None:
    """`update_state` on an unknown thread makes it under `if_missing="create"`, and is refused under "error"."""
    graph = chain(step("a"), step("b"))
    home.protect(graph).update_state(config("seeded"), asks("seed"), as_node="a")

    with pytest.raises(NoCheckpointFoundError):
        home.protect(graph, if_missing="error").update_state(config("seedde"), asks("x"))
    with pytest.raises(MissingThreadError):
        home.protect(graph).update_state({}, asks("x"))

    assert home.protect(graph).invoke(None, thread="seeded") == asks("seed", "b")
