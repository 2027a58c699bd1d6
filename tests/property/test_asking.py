"""
Random histories of one thread that asks for leave, against a model of what may happen.

People answer, answer again, answer wrongly, come too late, give up, type something else; time decides; the process
loses its store in the middle of anything and another takes over. Whatever happens: nothing acts that nobody has
allowed, and nothing twice; what was accepted is never lost; and the thread can always be brought to an end.

Each history is played by its seed, which a failure prints. More of them: `NINELIVES_ASKING_ROUNDS=1000`; longer ones:
`NINELIVES_ASKING_STEPS=200`; from another seed on: `NINELIVES_ASKING_SEED=5000`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from agents import Home, home_in, keeper_of
from clocks import HandClock
from ninelives import interrupts
from ninelives.config import ApprovalsSettings, LeaseSettings, Settings
from ninelives.deadlines import sweep
from ninelives.effects import Done, NotDone, effect
from ninelives.errors import (
    IdempotencyMismatchError,
    InvalidDecisionError,
    NoCheckpointFoundError,
    SuspendTimeoutError,
    UnfinishedRunError,
)
from ninelives.interrupts import Choice, approve, edit, reject
from ninelives.model import ONE_USER, Interrupt, QueuedInput, Run, RunStatus

SEED = int(os.environ.get("NINELIVES_ASKING_SEED", "1"))
ROUNDS = int(os.environ.get("NINELIVES_ASKING_ROUNDS", "8"))
STEPS = int(os.environ.get("NINELIVES_ASKING_STEPS", "30"))

HOUR = 3600.0
CHANGED = 1000
"""An edit adds so many cents, so that an act says whether it was edited."""
DYING = 0.3
"""How often a process dies in what it does."""


# -- what is played on -------------------------------------------------------------------------------------------------


class Planner(BaseChatModel):
    """Wants `charge` called as often as the last thing said to it says, and is ready when it has been told of them."""

    @property
    def _llm_type(self) -> str:
        return "planner"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=planned(messages))])


def planned(messages: list[AnyMessage]) -> AIMessage:
    if not isinstance(messages[-1], HumanMessage):
        return AIMessage("ready")
    turn, count = map(int, str(messages[-1].content).split())
    calls = [
        {"name": "charge", "args": {"turn": turn, "cents": place}, "id": f"{turn}-{place}", "type": "tool_call"}
        for place in range(1, count + 1)
    ]
    return AIMessage("", tool_calls=calls)


def graph_of(home: Home, kind: str) -> Any:
    def happened(turn: int, cents: int) -> Any:
        return Done("charged") if f"{turn} {cents}" in home.outside.seen else NotDone()

    @effect(key=lambda turn, cents: f"{turn}-{cents}", probe=happened)
    def charge(turn: int, cents: int) -> str:
        """Charge a card."""
        home.outside.happens(f"{turn} {cents}")
        return "charged"

    charging = tool(charge)
    if kind == "batch":
        return create_agent(Planner(), [charging], middleware=[HumanInTheLoopMiddleware({"charge": True})])

    def model(state: MessagesState) -> Any:
        return {"messages": [planned(state["messages"])]}

    def more(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    graph = StateGraph(MessagesState).add_node("model", model).add_node("tools", ToolNode([charging]))
    graph.add_edge(START, "model").add_conditional_edges("model", more, ["tools", END]).add_edge("tools", "model")
    return graph.compile()


class Gone(Exception):
    """The store does not answer any more, as to a process that is dead."""


class Ends:
    """From the nth point on, no statement of the store is carried out, and no act answers."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, act: str, statement: str, where: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Gone(f"{act}: {where} {statement}")


# -- the model ---------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """
    What is known to have happened, and what may have.

    Attributes:
        said: what somebody, or the deadline, may have decided about each call, by turn and place.
        taken: decisions whose acceptance was acknowledged, by interrupt and ask.
        accepted: turns whose input was acknowledged.
        dropped: turns that may be forgotten: somebody gave up on what was before them.
    """

    said: dict[tuple[int, int], set[str]] = field(default_factory=dict)
    taken: set[tuple[str, int]] = field(default_factory=set)
    accepted: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)

    def may(self, question: Interrupt, what: str) -> None:
        """From now on it may be that this was decided about a question."""
        for action in question.actions:
            self.said.setdefault((action.args["turn"], action.args["cents"]), set()).add(what)

    def may_happen(self) -> dict[str, tuple[int, int]]:
        """Every act that somebody may have allowed, as it is seen outside, with its call."""
        acts = {}
        for (turn, place), said in self.said.items():
            if "approve" in said:
                acts[f"{turn} {place}"] = turn, place
            if "edit" in said:
                acts[f"{turn} {place + CHANGED}"] = turn, place
        return acts


class Play:
    """One history. `told` is what happened in it, in words."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance, self.clock, self.model = random.Random(seed), HandClock(), Model()
        self.turn, self._folder = 0, folder
        self.kind = self.chance.choice(["batch", "call"])
        self.outcome = self.chance.choice(["reject", "approve", "fail", "escalate"])
        self.told: list[str] = [f"{self.kind}, at the deadline: {self.outcome}"]
        charge: Any = {"deadline_s": HOUR, "at_deadline": self.outcome, "to": ["ann"]}
        if self.kind == "call":
            charge["policy"] = "ask"
        self.settings = Settings(
            approvals=ApprovalsSettings(tools={"charge": charge}), lease=LeaseSettings(ttl_s=3600, heartbeat_s=1200)
        )

    def play(self) -> None:
        with home_in(self._folder, clock=self.clock) as self.home:
            self.agent = self.home.protect(graph_of(self.home, self.kind), settings=self.settings)
            for _ in range(STEPS):
                self.step()
                self.check()
            self.end()
            self.check()

    def step(self) -> None:
        acts: dict[Callable[[], None], int] = {
            self.input: 4,
            self.answer: 6,
            self.answer_elsewhere: 2,
            self.answer_wrongly: 2,
            self.answer_again: 1,
            self.go_on: 2,
            self.time_passes: 2,
            self.give_up: 1,
            self.ask_again: 1,
            self.send_again: 1,
        }
        (act,) = self.chance.choices([*acts], [*acts.values()])
        dies = self.chance.random() < DYING
        self.told.append(f"{act.__name__}{' and dies' if dies else ''}")
        if dies:
            self.dying(act)
        else:
            act()

    def dying(self, act: Callable[[], None]) -> None:
        """What a process does at its end: what it says of it is nobody's to hear, and its lock is free afterwards."""
        self.home.store.fault = Ends(self.chance.randrange(120))
        try:
            act()
        except Exception as error:
            self.told.append(f"  {type(error).__name__}")
        finally:
            self.home.store.fault = None
            keeper_of(self.agent).close()

    # -- what people do --------------------------------------------------------------------------------------------

    def input(self) -> None:
        self.turn += 1
        turn, count = self.turn, self.chance.choice([1, 1, 2])
        policy = self.chance.choice(["refuse", "queue", "queue", "replace", "answer"])
        self.told.append(f"  {turn} {count}, {policy}")
        try:
            self.agent.invoke(said(f"{turn} {count}"), thread="t", idempotency_key=f"{turn} {count}", on_waiting=policy)
        except (UnfinishedRunError, InvalidDecisionError) as error:
            self.told.append(f"  {type(error).__name__}")
        else:
            self.model.accepted.add(turn)

    def send_again(self) -> None:
        """The same request once more, or another one under its key: never a second run."""
        keys = [run.key for run in self.runs() if run.key]
        if not keys:
            return
        key = self.chance.choice(keys)
        with pytest.raises(IdempotencyMismatchError):
            self.agent.invoke(said("99 1"), thread="t", idempotency_key=key, on_waiting="queue")
        with suppress(NoCheckpointFoundError, SuspendTimeoutError):  # its run was closed
            self.agent.invoke(said(key), thread="t", idempotency_key=key, on_waiting="queue")
        assert [run.key for run in self.runs()].count(key) == 1

    def answer(self) -> None:
        if (question := self.one_question()) is not None:
            self.agent.decide("t", self.decided(question), interrupt_id=question.interrupt_id, actor="ann")
            self.model.taken.add((question.interrupt_id, question.ask_no))

    def answer_elsewhere(self) -> None:
        """From a process that has no graph; somebody who has it goes on later."""
        if (question := self.one_question()) is not None:
            decision = self.decided(question)
            interrupts.decide(self.home.store, "t", question.interrupt_id, decision, actor="bob", channel="inbox")
            self.model.taken.add((question.interrupt_id, question.ask_no))

    def answer_wrongly(self) -> None:
        if (question := self.one_question()) is not None:
            call_id, interrupt_id = question.actions[0].tool_call_id, question.interrupt_id
            misspelt: Any = Choice("aprove")  # type: ignore[arg-type]
            wrong: list[tuple[str, Any]] = [
                ("0" * 32, approve()),
                (interrupt_id, "yes"),
                (interrupt_id, edit({"cents": "many"})),
                (interrupt_id, {"9-9": approve()}),
                (interrupt_id, {call_id: misspelt}),
            ]
            self.refused(*self.chance.choice(wrong))

    def answer_again(self) -> None:
        """To a question that was decided, or is not asked any more: never counts."""
        pending = {question.interrupt_id for question in self.home.questions()}
        old = [one for one in self.home.questions(pending_only=False) if one.interrupt_id not in pending]
        if old:
            self.refused(self.chance.choice(old).interrupt_id, approve())

    def refused(self, interrupt_id: str, decision: Any) -> None:
        sweep(self.home.store)  # what is due comes true by the way, and is no consequence of the answer
        before = self.trace()
        with pytest.raises(InvalidDecisionError):
            self.agent.decide("t", decision, interrupt_id=interrupt_id)
        assert self.trace() == before

    def go_on(self) -> None:
        try:
            self.agent.continue_run("t")
        except (NoCheckpointFoundError, SuspendTimeoutError) as error:
            self.told.append(f"  {type(error).__name__}")

    def time_passes(self) -> None:
        hours = self.chance.choice([0.4, 1.5, 60])
        self.told.append(f"  {hours} hours")
        self.clock.advance(hours * HOUR)
        for question in self.home.questions():
            self.model.may(question, "approve" if self.outcome == "approve" else "reject")
        if self.chance.random() < 0.5:
            sweep(self.home.store)

    def give_up(self) -> None:
        self.model.dropped |= {turn_of(queued) for queued in self.queued()}
        with suppress(NoCheckpointFoundError):
            self.agent.abandon("t")

    def ask_again(self) -> None:
        newest = self.newest()
        if newest is not None and newest.status is RunStatus.FAILED:
            self.model.taken.clear()
            with suppress(InvalidDecisionError):
                self.agent.ask_again("t", by="ann")

    # -- what is there ---------------------------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        """All of them, oldest first."""
        return self.home.store.perform(self.home.store.list_runs(ONE_USER, thread_id="t", limit=1000))[::-1]

    def newest(self) -> Run | None:
        return self.home.store.perform(self.home.store.find_newest_run(ONE_USER, "t"))

    def queued(self) -> list[QueuedInput]:
        return self.home.store.perform(self.home.store.list_queued(ONE_USER, "t"))

    def one_question(self) -> Interrupt | None:
        """One of those that the thread really waits with, as a person is shown them."""
        sweep(self.home.store)
        try:
            found = self.agent.unfinished("t")
        except NoCheckpointFoundError:
            return None
        return self.chance.choice(found.questions) if found and found.questions else None

    def decided(self, question: Interrupt) -> Any:
        """A decision about each of its calls; from now on it may be that it was accepted."""
        each = {}
        for action in question.actions:
            turn, place = action.args["turn"], action.args["cents"]
            edited = edit({"turn": turn, "cents": place + CHANGED})
            choice = self.chance.choice([approve(), approve(), edited, reject("no")])
            self.model.said.setdefault((turn, place), set()).add(choice.type)
            each[action.tool_call_id] = choice
        self.told.append(f"  {[(call, choice.type) for call, choice in each.items()]}")
        return each if question.kind == "batch" else each[question.actions[0].tool_call_id]

    def trace(self) -> Any:
        return (
            [(one.interrupt_id, one.ask_no, one.state) for one in self.home.questions(pending_only=False)],
            [(one.interrupt_id, one.ask_no, one.value) for one in self.home.decisions()],
            self.home.statuses(),
            self.home.outside.seen,
        )

    # -- what holds ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        seen, may = self.home.outside.seen, self.model.may_happen()
        assert {*seen} <= may.keys(), "something happened that nobody has allowed"
        assert len(seen) == len({*seen}), "something happened twice"
        assert max(Counter(may[act] for act in seen).values(), default=1) == 1, "a call happened in two ways"

        decided = Counter((one.interrupt_id, one.ask_no) for one in self.home.decisions())
        assert max(decided.values(), default=1) == 1, "one question was decided twice"
        assert self.model.taken <= decided.keys(), "a decision that was accepted is lost"
        assert self.allowed_in_finished_chains() <= {*seen}, "a decision has come to nothing"
        made = {decision.run_id for decision in self.home.decisions()}
        unused = [run for run in self.runs() if run.run_id in made and not run.attempt and run.cause == "superseded"]
        assert not unused, "an input has dropped a decision that nobody had used"

        ran, waits = {turn_of(run) for run in self.runs() if run.key}, {turn_of(one) for one in self.queued()}
        assert self.model.accepted <= ran | waits | self.model.dropped, "an input that was accepted is lost"
        assert not ran & waits, "an input ran and waits as well"

    def allowed_in_finished_chains(self) -> set[str]:
        """The acts that were approved in chains of runs that are done: all of them must have happened."""
        runs = {run.run_id: run for run in self.runs()}
        ended = {run.chain: run.status for run in runs.values()}  # the last one of each counts
        asked = {(one.interrupt_id, one.ask_no): one for one in self.home.questions(pending_only=False)}
        acts = set()
        for decision in self.home.decisions():
            if ended[runs[decision.run_id].chain] is not RunStatus.DONE:
                continue
            question = asked[decision.interrupt_id, decision.ask_no]
            choices = decision.value["decisions"] if question.kind == "batch" else [decision.value]
            for action, choice in zip(question.actions, choices, strict=True):
                if choice["type"] in ("approve", "edit"):
                    args = (choice.get("edited_action") or {}).get("args", action.args)
                    acts.add(f"{args['turn']} {args['cents']}")
        return acts

    def end(self) -> None:
        """The thread can be brought to an end: all is approved, what waits runs, and a new input is carried out."""
        self.told.append("to the end")
        for _ in range(60):
            newest = self.newest()
            if newest is None or not (newest.unfinished or self.queued()):
                break
            if (question := self.one_question()) is None:
                self.go_on()
                continue
            self.model.may(question, "approve")
            each: Any = {action.tool_call_id: approve() for action in question.actions}
            decision = each if question.kind == "batch" else approve()
            self.agent.decide("t", decision, interrupt_id=question.interrupt_id)
        else:
            raise AssertionError(f"the thread is wedged: {self.home.statuses()}")
        self.turn += 1
        out = self.agent.invoke(said(f"{self.turn} 0"), thread="t")
        assert out["messages"][-2].content == f"{self.turn} 0"
        well_formed(out["messages"])


def said(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


def turn_of(one: Run | QueuedInput) -> int:
    return int(str(one.key).split()[0])


def well_formed(messages: list[AnyMessage]) -> None:
    """Behind each message with tool calls come their tool messages, and no other is anywhere."""
    wanted: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in wanted, f"{message.tool_call_id} was told of without having been called"
            wanted.remove(message.tool_call_id)
            continue
        assert not wanted, f"no tool message for {wanted}"
        if isinstance(message, AIMessage):
            wanted = [str(call["id"]) for call in message.tool_calls]
    assert not wanted, f"no tool message for {wanted}"


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_whatever_people_do_nothing_happens_unasked_and_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    """Acts beyond what was approved: 0. Acts twice: 0. Decisions and inputs lost: 0. Wedged threads: 0."""
    play = Play(tmp_path, seed)
    try:
        play.play()
    except BaseException as error:
        told = "\n".join(play.told)
        raise AssertionError(f"NINELIVES_ASKING_SEED={seed}\n{told}\n{type(error).__name__}: {error}") from error
