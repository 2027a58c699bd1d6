"""A question that nobody answers in time ends as was said, in whatever process is alive, or in the next that starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from agents import SAFE_S, Home, Log, asks, chain, fan, home_in, keeper_of, step
from clocks import HandClock
from lives import Gate, begin, live
from ninelives import InvalidDecisionError, SuspendTimeoutError
from ninelives.config import ApprovalsSettings, LeaseSettings, QuestionsSettings, Settings
from ninelives.deadlines import outcome_of, sweep
from ninelives.interrupts import ask
from ninelives.model import ONE_USER, Action, AtDeadline, Interrupt, InterruptState
from ninelives.store import Store

HOUR, DAY = 3600.0, 86400.0


@pytest.fixture
def home(tmp_path: Path, clock: HandClock) -> Iterator[Home]:
    """A home whose store goes by the test's clock."""
    with home_in(tmp_path, clock=clock) as home:
        yield home


def pauses(home: Home, **terms: Any) -> Any:
    """A graph whose second node asks, on these terms."""

    def b(state: Log) -> Any:
        return {"log": [f"b: {ask('sure?', **terms)}"]}

    return chain(step("a", home.outside), b, step("c", home.outside))


def kinds(home: Home, thread: str = "t") -> list[str]:
    return [event.kind for event in home.store.perform(home.store.list_events(ONE_USER, thread))]


def timed(**questions: Any) -> Settings:
    return Settings(questions=QuestionsSettings(**questions))


# -- where the time comes from ---------------------------------------------------------------------------------------


def test_a_question_brings_its_own_time(home: Home, clock: HandClock) -> None:
    """`ask()` is LangGraph's `interrupt`: people see the question alone, and the row says how long it waits."""
    agent = home.protect(pauses(home, deadline_s=HOUR, at_deadline="respond", text="no", remind_s=60))

    out = agent.invoke(asks("in"), thread="t")

    (question,) = home.questions()
    assert [one.value for one in out["__interrupt__"]] == [question.payload] == ["sure?"]
    assert question.deadline_at == clock.now + HOUR
    assert question.at_deadline == AtDeadline("respond", "no")
    assert agent.invoke(Command(resume="yes"), thread="t")["log"][-2:] == ["b: yes", "c"]


def test_the_settings_give_a_time_to_all_others(home: Home, clock: HandClock) -> None:
    """`[questions]` holds where the question says nothing itself, also in a nested graph."""

    def b(state: Log) -> Any:
        return {"log": [interrupt("plain?")]}

    inner = StateGraph(Log).add_node("in", chain(b)).add_edge(START, "in").add_edge("in", END).compile()
    agent = home.protect(inner, settings=timed(deadline_s=DAY, at_deadline="respond", text="-"))

    agent.invoke(asks(), thread="t")

    (question,) = home.questions()
    assert (question.deadline_at, question.at_deadline) == (clock.now + DAY, AtDeadline("respond", "-"))


def test_without_a_time_a_question_waits_for_ever(home: Home, clock: HandClock) -> None:
    """That is the default: years later it is answered."""
    agent = home.protect(pauses(home))
    agent.invoke(asks("in"), thread="t")
    clock.advance(3650 * DAY)

    assert sweep(home.store) == []
    assert agent.invoke(Command(resume="yes"), thread="t")["log"][-1] == "c"


# -- what becomes of it ------------------------------------------------------------------------------------------------


def test_what_is_answered_at_the_deadline_runs_on_with_the_next_call(home: Home, clock: HandClock) -> None:
    """`continue_run` finds the decision that was made meanwhile; a late answer is told what became of it."""
    agent = home.protect(pauses(home, deadline_s=DAY, at_deadline="respond", text="nobody"))
    agent.invoke(asks("in"), thread="t")
    (question,) = home.questions()
    clock.advance(3 * DAY)

    for answer in ("late", {question.interrupt_id: "late"}):
        with pytest.raises(InvalidDecisionError, match=f"{question.interrupt_id}.*nobody answered in time"):
            agent.invoke(Command(resume=answer), thread="t")
    out = agent.continue_run("t")

    assert out["log"] == ["in", "a", "b: nobody", "c"]
    (decision,) = home.decisions()
    assert (decision.value, decision.actor, decision.channel) == ("nobody", "deadline", "deadline")
    assert home.outside.seen == ["a", "c"]


def test_an_expired_run_is_named_and_makes_room(home: Home, clock: HandClock) -> None:
    """Going on with it, waiting for it, its key and a late answer all name the question; new input begins anew."""
    agent = home.protect(pauses(home, deadline_s=DAY))
    agent.invoke(asks("in"), thread="t", idempotency_key="k")
    (question,) = home.questions()
    clock.advance(DAY)

    calls: list[Callable[[], Any]] = [
        lambda: agent.continue_run("t"),
        lambda: agent.wait_for_answers("t", timeout_s=SAFE_S),
        lambda: agent.invoke(asks("in"), thread="t", idempotency_key="k"),
    ]
    for call in calls:
        with pytest.raises(SuspendTimeoutError, match="could be answered until 2027-01-16") as expired:
            call()
        assert (expired.value.thread_id, expired.value.interrupt_id) == ("t", question.interrupt_id)
        assert expired.value.deadline_at == question.deadline_at
    with pytest.raises(InvalidDecisionError, match=question.interrupt_id):
        agent.invoke(Command(resume="late"), thread="t")

    assert home.statuses() == ["expired"]
    assert agent.invoke(asks("new"), thread="t")["log"] == ["in", "a", "new", "a"]
    assert home.outside.seen == ["a", "a"]


def test_what_waits_for_its_turn_runs_after_an_expired_question(home: Home, clock: HandClock) -> None:
    """The chain before it is over, so its turn has come."""
    agent = home.protect(pauses(home, deadline_s=DAY))
    agent.invoke(asks("in"), thread="t")
    agent.invoke(asks("later"), thread="t", on_waiting="queue")
    clock.advance(DAY)

    assert agent.continue_run("t")["log"] == ["in", "a", "later", "a"]
    assert home.statuses() == ["expired", "interrupted"]


def reviewed(home: Home, *names: str, allowed: list[str] | None = None, mode: Any = "batched") -> Any:
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langchain_core.language_models import GenericFakeChatModel

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

    def act(name: str) -> Any:
        def body(n: int) -> str:
            """Act."""
            home.outside.happens(f"{name} {n}")
            return f"{name} {n}"

        return tool(name)(body)

    wanted = [{"name": name, "args": {"n": n}, "id": f"call-{n}", "type": "tool_call"} for n, name in enumerate(names)]
    model = Model(messages=iter([AIMessage("", tool_calls=wanted), AIMessage("ready")]))
    config: Any = {"allowed_decisions": allowed or ["approve", "reject"]}
    review = HumanInTheLoopMiddleware(dict.fromkeys(names, config), interrupt_mode=mode)
    return create_agent(model, [act(name) for name in dict.fromkeys(names)], middleware=[review])


PAY = {"messages": [HumanMessage("pay")]}


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(("outcome", "acts"), [("reject", []), ("approve", ["charge 0"])])
def test_a_tool_call_is_decided_at_its_deadline(
    home: Home, clock: HandClock, mode: str, outcome: str, acts: list[str]
) -> None:
    """As it was set for its tool; the model is told the reason of a rejection, and nothing acts before that."""
    tools: Any = {"charge": {"deadline_s": DAY, "at_deadline": outcome, "text": "nobody was there"}}
    agent = home.protect(
        reviewed(home, "charge", mode=mode), settings=Settings(approvals=ApprovalsSettings(tools=tools))
    )
    agent.invoke(PAY, thread="t")
    clock.advance(DAY)

    out = agent.continue_run("t")

    (told,) = (message for message in out["messages"] if isinstance(message, ToolMessage))
    assert ("nobody was there" in str(told.content)) == (outcome == "reject")
    assert out["messages"][-1].content == "ready"
    assert home.outside.seen == acts


def test_of_two_tools_the_shorter_time_counts_and_nothing_happens_for_the_other(home: Home, clock: HandClock) -> None:
    """One question about both: where they differ in what becomes of them, both are rejected."""
    tools: Any = {
        "charge": {"deadline_s": DAY, "at_deadline": "approve"},
        "mail": {"deadline_s": 2 * DAY, "at_deadline": "reject"},
    }
    agent = home.protect(reviewed(home, "charge", "mail"), settings=Settings(approvals=ApprovalsSettings(tools=tools)))
    agent.invoke(PAY, thread="t")

    (question,) = home.questions()
    assert question.deadline_at == clock.now + DAY
    clock.advance(DAY)
    agent.continue_run("t")

    assert home.outside.seen == []


def test_an_outcome_is_had_for_every_call_of_a_question() -> None:
    """Also for one whose id nobody knows; and none is had that one of them does not take."""
    both = ("approve", "reject")
    actions = (Action(None, "a", {}, both), Action("c", "b", {}, both))
    of: Any = {
        **dict.fromkeys(("interrupt_id", "thread_id", "ns", "task_id", "checkpoint_id"), "x"),
        **{"ask_no": 1, "run_id": None, "payload": None, "state": InterruptState.PENDING, "asked_at": 0.0},
    }
    question = Interrupt(**of, kind="batch", actions=actions, at_deadline=AtDeadline("reject", "late"))
    strict = Interrupt(
        **of, kind="batch", actions=(actions[0], Action("c", "b", {}, ("reject",))), at_deadline=AtDeadline("approve")
    )

    assert outcome_of(question) == ("reject", {"decisions": [{"type": "reject", "message": "late"}] * 2})
    assert outcome_of(strict) == ("fail", None)
    assert outcome_of(Interrupt(**of)) == ("fail", None)
    assert outcome_of(Interrupt(**of, at_deadline=AtDeadline("escalate"))) == ("fail", None)


def test_escalation_and_reminders_over_days(home: Home, clock: HandClock) -> None:
    """Ann is reminded once, then the office is asked, then nobody is left; each once, days at a time."""
    settings = timed(deadline_s=DAY, at_deadline="escalate", to=("the office",), remind_s=HOUR)
    agent = home.protect(pauses(home), settings=settings)
    agent.invoke(asks("in"), thread="t")
    seen = []

    for hours in (2, 2, 24, 2, 24):
        clock.advance(hours * HOUR)
        with suppress(SuspendTimeoutError):
            agent.continue_run("t")
        told = [kind for kind in kinds(home) if kind.startswith("question_")]
        seen.append((told, [question.for_whom for question in home.questions()]))

    remind, escalate, expire = "question_reminder", "question_escalated", "question_expired"
    assert seen == [
        ([remind], [""]),
        ([remind], [""]),
        ([remind, escalate], ["the office"]),
        ([remind, escalate], ["the office"]),
        ([remind, escalate, expire], []),
    ]


def test_an_answer_in_time_wins_over_a_sweep_that_has_looked_already(home: Home, clock: HandClock) -> None:
    """A sweep that saw the question due finds it moved on, and decides nothing."""
    agent = home.protect(pauses(home, deadline_s=DAY, at_deadline="escalate", to=["ann"]))
    agent.invoke(asks("in"), thread="t")
    clock.advance(DAY)
    (due,) = home.store.perform(home.store.list_due(ONE_USER))
    assert due is not None

    sweep(home.store)
    agent.invoke(Command(resume="yes"), thread="t")

    assert home.store.perform(home.store.lapse(due, "fail", None, "r")) is None
    assert home.statuses() == ["interrupted", "done"]


# -- who looks ---------------------------------------------------------------------------------------------------------


class Heard:
    """Set when the store has committed an act of this name."""

    def __init__(self, store: Store, act: str) -> None:
        self._act, self._event = act, threading.Event()
        store.fault = self

    def __call__(self, act: str, statement: str, where: str) -> None:
        if (act, statement, where) == (self._act, "commit", "after"):
            self._event.set()

    def wait(self) -> None:
        assert self._event.wait(SAFE_S)


FAST = Settings(lease=LeaseSettings(ttl_s=60, heartbeat_s=0.02))


def test_a_living_process_looks_by_itself(home: Home, clock: HandClock) -> None:
    """Nobody calls: between two heartbeats what is due is seen to."""
    agent = home.protect(pauses(home, deadline_s=1, at_deadline="respond", text="nobody"), settings=FAST)
    agent.invoke(asks("in"), thread="t")
    heard = Heard(home.store, "lapse")

    clock.advance(30)
    heard.wait()
    keeper_of(agent).close()

    assert [decision.actor for decision in home.decisions()] == ["deadline"]


def test_no_heartbeat_waits_for_a_sweep(home: Home, clock: HandClock) -> None:
    """The lease is renewed again and again while an outcome is stuck on its way."""
    agent = home.protect(pauses(home, deadline_s=1), settings=FAST)
    agent.invoke(asks("in"), thread="t")
    stuck, beats, go = threading.Event(), threading.Semaphore(0), threading.Event()
    perform = home.store.perform

    def slow(act: Any) -> Any:
        if act.name == "lapse":
            stuck.set()
            assert go.wait(SAFE_S)
        result = perform(act)
        if act.name == "renew_worker" and stuck.is_set():
            beats.release()
        return result

    home.store.perform = slow  # type: ignore[method-assign]
    clock.advance(30)
    assert stuck.wait(SAFE_S)
    for _ in range(3):
        assert beats.acquire(timeout=SAFE_S)
    go.set()
    keeper_of(agent).close()

    assert home.statuses() == ["expired"]


def test_a_question_that_cannot_be_seen_to_does_not_stop_the_others(home: Home, clock: HandClock) -> None:
    """One that is broken in some way is left, and said in the log."""
    agent = home.protect(pauses(home, deadline_s=1))
    for thread in ("t", "u"):
        agent.invoke(asks("in"), thread=thread)
    clock.advance(1)
    perform, first = home.store.perform, threading.Event()

    def broken(act: Any) -> Any:
        if act.name == "lapse" and not first.is_set():
            first.set()
            raise InvalidDecisionError("broken")
        return perform(act)

    home.store.perform = broken  # type: ignore[method-assign]

    assert len(sweep(home.store)) == 1
    assert len(sweep(home.store)) == 1


# -- other processes ---------------------------------------------------------------------------------------------------


class Ahead:
    """A clock that is ahead of the system's by what a file says: one for several processes."""

    def __init__(self, folder: Path | str) -> None:
        self._path = Path(folder) / "ahead"

    def __call__(self) -> float:
        ahead = float(self._path.read_text()) if self._path.exists() else 0.0
        return 1_800_000_000.0 + ahead

    def advance(self, seconds: float) -> None:
        self._path.write_text(str(self() - 1_800_000_000.0 + seconds))


def life_that_asks(folder: str, *threads: str) -> None:
    with home_in(folder, clock=Ahead(folder)) as home:
        agent = home.protect(pauses(home, deadline_s=DAY, at_deadline="respond", text="nobody"))
        for thread in threads:
            agent.invoke(asks("in"), thread=thread)


def life_that_only_lives(folder: str) -> Any:
    """It has another graph, and calls nothing: it is just there, until somebody has seen what it did."""
    with home_in(folder, clock=Ahead(folder)) as home:
        heard = Heard(home.store, "lapse")
        agent = home.protect(chain(step("z")), "other", settings=FAST)
        agent.invoke(asks(), thread="another")
        Gate(folder).open()
        heard.wait()


def life_that_sweeps(folder: str) -> Any:
    with home_in(folder, clock=Ahead(folder)) as home:
        return [lapsed.thread_id for lapsed in sweep(home.store)]


@pytest.mark.crash
def test_a_process_of_another_graph_sees_to_it(tmp_path: Path) -> None:
    """Whoever asked is gone; a process that has not even its graph decides, and one that has goes on."""
    live(life_that_asks, tmp_path, "t")
    gate = Gate(tmp_path)
    other = begin(life_that_only_lives, tmp_path)
    gate.wait()

    Ahead(tmp_path).advance(2 * DAY)
    assert not other.end().error

    with home_in(tmp_path, clock=Ahead(tmp_path)) as home:
        assert [decision.actor for decision in home.decisions()] == ["deadline"]
        agent = home.protect(pauses(home))
        assert agent.continue_run("t")["log"] == ["in", "a", "b: nobody", "c"]


@pytest.mark.crash
def test_of_two_processes_that_sweep_at_once_one_decides(tmp_path: Path) -> None:
    """All that was due is seen to, by one of them each."""
    threads = [f"t{number}" for number in range(8)]
    live(life_that_asks, tmp_path, *threads)
    Ahead(tmp_path).advance(2 * DAY)

    lives = [begin(life_that_sweeps, tmp_path) for _ in range(2)]
    ended = [life.end() for life in lives]

    assert [each.error for each in ended] == ["", ""]
    with home_in(tmp_path, clock=Ahead(tmp_path)) as home:
        done = [name for each in ended for name in each.value] + [one.thread_id for one in sweep(home.store)]
        assert sorted(done) == threads
        for thread in threads:
            assert len(home.decisions(thread)) == 1
            assert home.statuses(thread) == ["interrupted", "queued"]


def test_parallel_questions_have_times_of_their_own(home: Home, clock: HandClock) -> None:
    """The one that is due is decided; the other waits on, and its answer goes on with both."""

    def x(state: Log) -> Any:
        return {"log": [f"x: {ask('x?', deadline_s=HOUR, at_deadline='respond', text='-')}"]}

    def y(state: Log) -> Any:
        return {"log": [f"y: {ask('y?', deadline_s=DAY, at_deadline='respond', text='-')}"]}

    agent = home.protect(fan(x, y))
    agent.invoke(asks(), thread="t")
    clock.advance(HOUR)

    out = agent.continue_run("t")
    assert [one.value for one in out["__interrupt__"]] == ["y?"]
    out = agent.invoke(Command(resume="yes"), thread="t")

    assert sorted(out["log"]) == ["x: -", "y: yes"]


def test_a_graph_of_messages_goes_on_after_an_expired_question(home: Home, clock: HandClock) -> None:
    """New input on the thread of an expired run finds a history that a model takes."""
    agent = home.protect(reviewed(home, "charge"), settings=timed(deadline_s=DAY))
    agent.invoke(PAY, thread="t")
    clock.advance(DAY)

    out = agent.invoke({"messages": [HumanMessage("and now?")]}, thread="t")

    kinds_of = [type(message).__name__ for message in out["messages"]]
    assert kinds_of == ["HumanMessage", "AIMessage", "ToolMessage", "HumanMessage", "AIMessage"]
    assert home.statuses() == ["expired", "done"]
    assert home.outside.seen == []
