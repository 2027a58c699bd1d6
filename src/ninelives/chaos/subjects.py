"""
Who is put to the test: something that keeps a run, driven by the one call that a user makes after a crash too.

A subject opens its store in a folder, in this process, and gives a session. The harness does not know what a subject
keeps or how; it asks for what is recorded, in words that every keeper of LangGraph runs can answer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, Interrupt

from ninelives import _langgraph, interrupts
from ninelives.chaos.faults import Faults, watch_store
from ninelives.chaos.history import Recorder
from ninelives.chaos.workload import Outside, Workload, World, normalised
from ninelives.clock import Clock, system_clock
from ninelives.config import Settings
from ninelives.effects import effect, idempotency_key
from ninelives.errors import EffectOutcomeUnknownError, InvalidDecisionError, NineLivesError, ThreadBusyError
from ninelives.model import ONE_USER, EffectState
from ninelives.protect import protect
from ninelives.saver import Saver
from ninelives.store import Store
from ninelives.stores import open_store

T = TypeVar("T")
Request: TypeAlias = Literal["same", "other", "continue"]

THREAD = "t"
KEY, OTHER_KEY = "the-request", "another-request"

NOT_STATE = {_langgraph.ERROR, _langgraph.ERROR_SOURCE_NODE, _langgraph.INTERRUPT, _langgraph.RESUME}
"""Channels of writes that do not make a task done."""


class UnknownOutcome(Exception):
    """The run stopped: the outcome of the act under this key is unknown."""

    def __init__(self, name: str, key: str) -> None:
        self.name, self.key = name, key
        super().__init__(f"{name} ({key})")


@dataclass(frozen=True, slots=True)
class Letter:
    """
    An answer on its way: what somebody has decided about a question, for a process that hands it in.

    Attributes:
        again: the process that had it before has died, so it is handed on once more.
    """

    question: str
    value: Any
    again: bool = False


class Session(Protocol):
    """A store, opened by this process, with one workload's graph on it."""

    def recorded(self) -> dict[str, Any]:
        """
        What is recorded: `tasks` (ids of tasks whose result is), `calls` (task and tool call id of single calls, where
        there are any), `effects` (state by key), `decisions` (lists of question and answer), `checkpoints` (pairs of id
        and parent), `rows` (all that the store holds of the thread, to compare).
        """

    def ask(self, request: Request = "same", *, wait_s: float = 0.0) -> Any:
        """
        Make the one request, or go on with it: a user's program is started again as it was.

        Args:
            request: `same` is the workload's; `other` is a second one with the same input, under a key of its own;
                `continue` names none.
            wait_s: how long to wait for a thread that a live process holds.

        Raises:
            UnknownOutcome: the run waits for somebody to say what became of an act.
        """

    def deliver(self, letters: Sequence[Letter], *, elsewhere: bool) -> Any:
        """
        Hand in answers, one after the other; one that is not taken is told to the history.

        Args:
            elsewhere: only record them, without the graph; else go on with them, and give the output.
        """

    def settle(self, key: str, *, happened: bool, result: Any) -> None:
        """Say what became of an act."""

    def values(self) -> Any:
        """The state of the thread."""

    def on(self, thread: str, world: World) -> Session:
        """The same store, opened once, for another thread, whose units report to a world of their own."""


class Subject(Protocol):
    name: str

    def world_of(self, faults: Faults, outside: Outside) -> World:
        """The world whose acts are declared in this subject's way."""

    def open(self, folder: Path, workload: Workload, world: World) -> AbstractContextManager[Session]:
        """Open the store in `folder`; it is closed, as at the end of a program, when the context ends."""


def recorded_tasks(
    saver: BaseCheckpointSaver[Any], thread: str = THREAD
) -> tuple[list[str], list[tuple[str, str, str | None]]]:
    """
    What is recorded in all namespaces of the thread.

    Returns: ids of the tasks with a result; `(namespace, checkpoint, parent)` of the checkpoints, newest first.
    """
    tasks, checkpoints = set(), []
    for found in saver.list({"configurable": {"thread_id": thread}}):
        here = found.config["configurable"]
        parent = found.parent_config["configurable"]["checkpoint_id"] if found.parent_config else None
        checkpoints.append((here["checkpoint_ns"], here["checkpoint_id"], parent))
        tasks |= {task for task, channel, _ in found.pending_writes or [] if channel not in NOT_STATE}
    return sorted(tasks), checkpoints


def digest(rows: Iterable[Any]) -> list[Any]:
    """How many, and a digest of all of them together."""
    texts = [repr(row) for row in rows]
    return [len(texts), hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]]


# -- ninelives ------------------------------------------------------------------------------------------------------


class ProtectedSession:
    """A protected graph and its store. Asking is one call, the same in the first process and in every later one."""

    def __init__(
        self, store: Store, workload: Workload, world: World, settings: Settings, thread: str = THREAD
    ) -> None:
        self._store, self.workload, self._world = store, workload, world
        self._settings, self.thread = settings, thread
        watch_store(store, world.faults)

    @cached_property
    def agent(self) -> Any:
        """Made when it is needed: a process that only records decisions has no graph."""
        return protect(self.workload.build(self._world), self._store, name=self.workload.name, settings=self._settings)

    def on(self, thread: str, world: World) -> ProtectedSession:
        return type(self)(self._store, self.workload, world, self._settings, thread)

    def recorded(self) -> dict[str, Any]:
        tasks, checkpoints = recorded_tasks(Saver(self._store), self.thread)
        acts = self._store.perform(self._store.list_effects(ONE_USER, thread_id=self.thread))
        decisions = self._store.perform(self._store.list_decisions(ONE_USER, self.thread))
        calls = self._store.perform(self._store.list_calls(ONE_USER, self.thread))
        return {
            "tasks": tasks,
            "effects": {act.key: str(act.state) for act in acts},
            "calls": [[key.split("/")[0], key.split("/", 2)[2]] for key in calls],
            "decisions": [[decision.interrupt_id, decision.value] for decision in decisions],
            "checkpoints": checkpoints,
            "rows": self._rows(),
        }

    def _rows(self) -> dict[str, Any]:
        """All but what is told from the worker's state: whether whoever made a run or act still lives."""
        perform, store, thread = self._store.perform, self._store, self.thread
        runs = perform(store.list_runs(ONE_USER, thread_id=thread))
        acts = perform(store.list_effects(ONE_USER, thread_id=thread))
        return {
            "checkpoint": digest(perform(store.list_checkpoints(ONE_USER, thread_id=thread, ns=None, limit=10_000))),
            "effect": digest(replace(act, holder_alive=False) for act in acts),
            "run": digest(replace(run, worker_alive=False) for run in runs),
            "interrupt": digest(perform(store.list_interrupts(ONE_USER, thread, pending_only=False))),
            "event": digest(perform(store.list_events(ONE_USER, thread, limit=100_000))),
        }

    def ask(self, request: Request = "same", *, wait_s: float = 0.0) -> Any:
        """The request, and then an answer to all that it asks, for as long as it asks something."""
        if request == "continue":
            output = self._call(None, wait_s=wait_s)
        else:
            key = f"{KEY if request == 'same' else OTHER_KEY} on {self.thread}"
            output = self._call(self.workload.input, wait_s=wait_s, idempotency_key=key, on_unfinished="continue")
        while self.workload.answers and (questions := output.get("__interrupt__")):
            output = self._call(Command(resume=self._answers(questions)), wait_s=wait_s)
        return output

    def _answers(self, questions: Iterable[Interrupt]) -> dict[str, Any]:
        recorder = self._world.faults.recorder
        answers = {each.id: self.workload.answer_to(each.value, recorder.life) for each in questions}
        for question, value in answers.items():
            recorder.write("answering", question=question, value=value)
        return answers

    def deliver(self, letters: Sequence[Letter], *, elsewhere: bool) -> Any:
        """Whoever was first with another answer, this process goes on with that."""
        output = None
        for letter in letters:
            told = {"question": letter.question, "value": letter.value}
            self._world.faults.recorder.write("answering", **told, again=letter.again)
            try:
                output = self._decide(letter, elsewhere)
            except (InvalidDecisionError, ThreadBusyError) as error:
                output, first = None, getattr(error, "first", None)
                refusal = {"error": type(error).__name__, "text": str(error), "first": first}
                self._world.faults.recorder.write("refused", question=letter.question, **refusal)
        return self.ask() if output is None and not elsewhere else output

    def _decide(self, letter: Letter, elsewhere: bool) -> Any:
        actor = f"process {self._world.faults.recorder.life}"
        if elsewhere:
            store, thread = self._store, self.thread
            return interrupts.decide(
                store, thread, letter.question, letter.value, actor=actor, channel="another terminal"
            )
        return self._call(Command(resume={letter.question: letter.value}), actor=actor)

    def _call(self, input: Any, **options: Any) -> Any:
        config = {"callbacks": [checks_told(self._world.faults)]}
        try:
            if self.workload.asynchronous:
                output = asyncio.run(self.agent.ainvoke(input, config, thread=self.thread, **options))
            else:
                output = self.agent.invoke(input, config, thread=self.thread, **options)
        except EffectOutcomeUnknownError as error:
            raise UnknownOutcome(error.name, error.key) from error
        tell_questions(self._world.faults.recorder, output)
        return output

    def settle(self, key: str, *, happened: bool, result: Any) -> None:
        state = EffectState.DONE if happened else EffectState.NOT_DONE
        self._store.perform(
            self._store.settle_effect(ONE_USER, key, state, result, by="the harness", why="it looked outside")
        )

    def values(self) -> Any:
        return self.agent.get_state({"configurable": {"thread_id": self.thread}}).values


def tell_questions(recorder: Recorder, output: Any) -> None:
    """Tell the history what a graph's output asks; the calls are those that the last turn of the model made."""
    for question in output.get("__interrupt__", ()):
        calls = _calls_of(question.value, output.get("messages", ()))
        recorder.write("asked", question=question.id, shown=normalised(question.value), calls=calls)


def _calls_of(shown: Any, messages: Iterable[Any]) -> list[str]:
    """Ids of the tool calls that LangChain's review asks about, in its order."""
    if not isinstance(shown, dict):
        return []
    if "tool_call_id" in shown:
        return [shown["tool_call_id"]]
    turns = [message.tool_calls for message in messages if isinstance(message, AIMessage) and message.tool_calls]
    called = {call["name"]: str(call["id"]) for call in (turns[-1] if turns else ())}
    return [called[request["name"]] for request in shown.get("action_requests", ())]


def checks_told(faults: Faults) -> _langgraph.Watch:
    """
    Says for which call the next check of the lease is made: the runner's own look at each call comes right after this.

    A check is made where the call is asked for (the event loop), the call runs elsewhere (a pool's thread): so it is
    their ids that tell which belongs to which.
    """
    return _langgraph.Watch(
        before_node=lambda name, ns, task_id: faults.about(task_id),
        before_tool=lambda name, call_id, arguments: faults.about(call_id),
    )


@dataclass(frozen=True, slots=True)
class Ninelives:
    """
    The real thing.

    Attributes:
        clock: the store's.
        settings: as `ninelives.toml` would give them.
        busy_timeout_s: how long the store waits for others; it and the lease's length are the patience with a writer
            that stands still.
        session: how the program asks.
    """

    name: str = "ninelives"
    clock: Clock = system_clock
    settings: Settings = field(default_factory=Settings)
    busy_timeout_s: float = 3.0
    session: type[ProtectedSession] = ProtectedSession

    def world_of(self, faults: Faults, outside: Outside) -> World:
        return World(faults, outside, _declared, _key)

    @contextmanager
    def open(self, folder: Path, workload: Workload, world: World) -> Iterator[ProtectedSession]:
        """The context ends without a word to the store, as a program does."""
        store = open_store(
            f"sqlite:///{folder / 'store.db'}",
            clock=self.clock,
            lease_ttl_s=self.settings.lease.ttl_s,
            busy_timeout_s=self.busy_timeout_s,
        )
        yield self.session(store, workload, world, self.settings)


NINELIVES = Ninelives()


def _declared(act: T, *, probe: Callable[..., Any] | None = None, key: Callable[..., str] | None = None) -> T:
    return effect(probe=probe, key=key)(act)  # type: ignore[type-var]


def _key() -> str | None:
    with suppress(NineLivesError):
        return idempotency_key()
    return None
