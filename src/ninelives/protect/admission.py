"""
What a call on a thread leads to, before anything is driven: a new run, an old one continued, a recorded result.

**Continue, start over, abandon** are decided here, once, for the library and the command line alike. A run's request is
in the store before its first node: from then on it outlives every process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from ninelives import _langgraph, deadlines
from ninelives.errors import (
    ConfigError,
    DivergentStateError,
    GraphChangedError,
    IdempotencyMismatchError,
    InvalidDecisionError,
    LeaseLostError,
    MissingEntryError,
    NoCheckpointFoundError,
    SuspendTimeoutError,
    ThreadBusyError,
    UnfinishedRunError,
    WorkerLostError,
)
from ninelives.interrupts import resolved
from ninelives.lease import Claim, Keeper
from ninelives.model import (
    Admission,
    EffectState,
    Interrupt,
    NewRun,
    Run,
    RunSpec,
    RunStatus,
    Scope,
    Started,
    StoredCheckpoint,
    Unfinished,
    Unreadable,
    WorkerLease,
)
from ninelives.protect.entries import Supply, inherited, must_be_complete, stored
from ninelives.protect.identity import Regulars
from ninelives.protect.waiting import OnWaiting, answer_in
from ninelives.runner import EFFECT_UNKNOWN, AnyGraph, CheckedSaver, Plan
from ninelives.store import Act, Store

log = logging.getLogger(__name__)

Claimed = TypeVar("Claimed", bound=Admission | None)
OnUnfinished = Literal["ask", "continue", "start_over", "abandon"]
IfMissing = Literal["create", "error"]
WAIT_PAUSE_S = (0.02, 0.25)
OVERTAKEN_MAX = 10
SWEPT_MAX = 20
"""So many overdue questions of other threads a call sees to before its own work."""


@dataclass(frozen=True, slots=True)
class Protection:
    """What `protect()` was told, and what it made of it."""

    plan: Plan
    keeper: Keeper
    owner: str
    on_unfinished: OnUnfinished
    if_missing: IfMissing
    wait_s: float
    supply: Supply
    new_executor: Callable[[], _langgraph.RunExecutor]
    regulars: Regulars = field(default_factory=Regulars)
    recursion_limit: int | None = None
    ephemeral: bool = False
    on_waiting: OnWaiting = "refuse"

    @property
    def store(self) -> Store:
        return self.keeper.store

    @property
    def scope(self) -> Scope:
        return Scope(self.owner)


@dataclass(frozen=True, slots=True)
class Request:
    """One call, as the caller made it."""

    input: Any
    thread_id: str
    config: RunnableConfig
    context: Any = None
    key: str | None = None
    on_unfinished: OnUnfinished = "ask"
    on_waiting: OnWaiting = "refuse"
    if_missing: IfMissing = "create"
    wait_s: float = 0.0
    interrupt_before: Any = None
    interrupt_after: Any = None
    on_start: Callable[[Started], Any] | None = None
    actor: str = ""
    note: str | None = None
    shown: str | None = None
    interrupt_id: str | None = None
    new_thread: bool = False

    @property
    def checkpoint_id(self) -> str | None:
        """Where the call wants to begin. For a checkpoint of a subgraph: the root's that it belongs to."""
        own = self.config.get("configurable") or {}
        if own.get(_langgraph.CHECKPOINT_NS_KEY):
            return (own.get(_langgraph.CHECKPOINT_MAP_KEY) or {}).get("") or None
        return own.get(_langgraph.CHECKPOINT_ID_KEY) or None


@dataclass(frozen=True, slots=True)
class Admitted:
    """
    What came of a request.

    Attributes:
        claim: to be driven; None: there is nothing to run, `run` (or the thread's head) holds the answer.
        questions: what the thread waits with, where that is the answer.
        then_again: this run only has to be finished first; the request itself is to be admitted after it.
    """

    run: Run | None
    claim: Claim | None = None
    questions: list[Interrupt] = field(default_factory=list)
    then_again: bool = False


async def admit(p: Protection, request: Request) -> Admitted:
    """
    Admit a request; waits for a busy thread for up to `request.wait_s` seconds.

    Raises: as `Store.start_run`, `Store.take_over` and `Store.answer`; MissingEntryError for an answer that lacks one.
    """
    deadline, pause, overtaken = time.monotonic() + request.wait_s, WAIT_PAUSE_S[0], 0
    while True:
        worker = await ready(p, request.thread_id)
        try:
            return await _Admission(p, request, worker).admit()
        except WorkerLostError:
            # The machine was asleep: its clock says that the lease has ended, ours has not noticed yet.
            p.keeper.distrust(worker)
            overtaken += 1
            if overtaken > OVERTAKEN_MAX:
                raise
        except (LeaseLostError, DivergentStateError):
            # Somebody else has ended the run between our look at it and our hand on it: look again.
            overtaken += 1
            if overtaken > OVERTAKEN_MAX:
                raise
        except ThreadBusyError:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(pause * 1.5, WAIT_PAUSE_S[1])


async def ready(p: Protection, thread_id: str | None = None) -> WorkerLease:
    """
    Our worker, after the dead neighbours were buried, and what was due while nobody was there has come true, on this
    thread in any case; off the loop, since all may wait for the store.
    """
    p.keeper.must_serve()

    def prepare() -> WorkerLease:
        p.store.bury_the_dead()
        if thread_id is not None:
            deadlines.sweep(p.store, p.scope, thread_id=thread_id)
        deadlines.sweep(p.store, limit=SWEPT_MAX)
        return p.keeper.worker()

    return await asyncio.get_running_loop().run_in_executor(p.plan.executor, prepare)


async def with_worker(p: Protection, act: Callable[[WorkerLease], Act[Admission]]) -> Admission:
    """Perform a claim as this process's worker; as a new one, if the store says that the lease has ended."""
    worker = await ready(p)
    try:
        return await p.store.aperform(act(worker))
    except WorkerLostError:
        p.keeper.distrust(worker)
        return await p.store.aperform(act(await ready(p)))


class _Admission:
    """One try."""

    def __init__(self, p: Protection, request: Request, worker: WorkerLease) -> None:
        self.p, self.request, self.worker = p, request, worker
        self.store, self.scope = p.store, p.scope
        self.head: StoredCheckpoint | None = None

    async def admit(self) -> Admitted:
        given = self.request.input
        if isinstance(given, Command) and (given.resume is not None or not (given.update or given.goto)):
            return await self._answer(given)
        if given is None and self.request.checkpoint_id is None:
            return await self._continue()
        return await self._start()

    # -- a new run ------------------------------------------------------------------------------------------------

    async def _start(self) -> Admitted:
        if self.request.checkpoint_id is not None:
            await self._must_be_ours()
            await must_have(self.p, self.request.thread_id, self.request.checkpoint_id)
        new = self._new_run()
        try:
            admission = await self._claim(self.store.start_run(self.scope, new, self.worker))
        except UnfinishedRunError as error:
            return await self._on_unfinished(error.unfinished.run, new)
        if admission.lease is None:
            return await self._known(admission.run)
        queued_before = admission.run.run_id != new.run_id
        return replace(await self._claimed(admission), then_again=queued_before)

    def _new_run(self) -> NewRun:
        request, p = self.request, self.p
        given = _langgraph.with_message_ids(p.plan.graph, request.input)
        travels = request.checkpoint_id is not None
        spec = RunSpec(
            input=given,
            recursion_limit=request.config.get("recursion_limit", p.recursion_limit),
            interrupt_before=request.interrupt_before,
            interrupt_after=request.interrupt_after,
            from_base=travels,
            **stored(request.config, request.context, p.plan.keep, p.supply),
        )
        asked = {"graph": p.plan.name, "input": request.input}
        if request.interrupt_id is not None:
            asked["interrupt_id"] = request.interrupt_id
        return NewRun(
            run_id=str(uuid4()),
            thread_id=request.thread_id,
            graph=p.plan.name,
            spec=spec,
            request=self.store.request_digest(asked),
            key=request.key,
            may_create=request.if_missing == "create" and not isinstance(given, Command) and given is not None,
            base=request.checkpoint_id,
            take_head_as_base=not travels,
        )

    async def _on_unfinished(self, run: Run, new: NewRun) -> Admitted:
        """The caller's choice for a thread whose last run is not finished; without one, ask."""
        choice = self.request.on_unfinished
        questions = await self._questions()
        if choice in ("ask", "continue") and (admitted := await self._on_waiting(run, questions, new)):
            return admitted
        if choice == "ask" or (choice == "continue" and (questions or _paused(run))):
            raise UnfinishedRunError(await unfinished(self.p, run, questions))
        if choice == "continue":
            admitted = await self._take_over(run)
            asked_first = await self.store.aperform(self.store.get_run(self.scope, run.chain))
            return replace(admitted, then_again=asked_first.request != new.request)
        closing = replace(new, closes=run.run_id)
        if choice == "start_over":
            spec = replace(new.spec, from_base=True)
            closing = replace(closing, spec=spec, replaces=run.run_id, base=run.base, take_head_as_base=False)
        return await self._claimed(await self._claim(self.store.start_run(self.scope, closing, self.worker)))

    async def _on_waiting(self, run: Run, questions: list[Interrupt], new: NewRun) -> Admitted | None:
        """What becomes of input on a thread that waits for an answer, or has just been given one; None: refused."""
        choice, answered = self.request.on_waiting, _was_answered(run)
        if answered and choice == "queue":
            return replace(await self._take_over(run), then_again=True)
        if not questions or choice == "refuse":
            return None
        if choice == "answer":
            answers = answer_in(new.spec.input, questions, self.p.plan.tools)
            spec = inherited(replace(new.spec, input=None, from_base=False), run.spec)
            return await self._commit(answers, replace(new, spec=spec), self.request.actor, "input")
        if choice == "queue":
            await self.store.aperform(self.store.queue_input(self.scope, new))
            return Admitted(run, questions=questions)
        if answered:
            return None  # what was decided is not to be dropped by somebody who has not seen it
        closing = replace(new, closes=run.run_id, supersedes=True)
        return await self._claimed(await self._claim(self.store.start_run(self.scope, closing, self.worker)))

    async def _commit(self, answers: Mapping[str, Any], new: NewRun, actor: str, channel: str) -> Admitted:
        """Commit decisions that fit, and the run that goes on with them."""
        must_be_complete(new.spec, self.request.config, self.request.context)
        thread_id = self.request.thread_id
        act = self.store.answer(self.scope, thread_id, answers, new, self.worker, actor=actor, channel=channel)
        admission = await self._claim(act)
        return await (self._claimed(admission) if admission.lease else self._known(admission.run))

    async def go_on(self, *, asks: bool) -> Admitted | None:
        """What there is to do when a run of this process has come to a stop: decided by rule, or next in the queue."""
        if not asks:
            return await self._next_queued()
        run = await self.store.aperform(self.store.find_newest_run(self.scope, self.request.thread_id))
        if run is None or run.held or not run.unfinished:
            return None
        return await self._by_rules(run, await self._questions())

    async def _by_rules(self, asking: Run, questions: list[Interrupt]) -> Admitted | None:
        """The run that goes on with what the rules have decided; None: a person is asked."""
        approvals, loop = self.p.plan.approvals, asyncio.get_running_loop()
        ruled = {}
        for question in questions if approvals.decides else ():
            found = await loop.run_in_executor(self.p.plan.executor, approvals.decided, question, self.p.plan.tools)
            if found is not None:
                ruled[question.interrupt_id] = found
        if not ruled:
            return None
        first = next(iter(ruled.values()))
        same = {one: each.value for one, each in ruled.items() if each.actor == first.actor}
        request = self.request
        spec = RunSpec(
            recursion_limit=request.config.get("recursion_limit", self.p.recursion_limit),
            interrupt_before=request.interrupt_before,
            interrupt_after=request.interrupt_after,
            **stored(request.config, request.context, self.p.plan.keep, self.p.supply),
        )
        new = NewRun(str(uuid4()), request.thread_id, self.p.plan.name, inherited(spec, asking.spec))
        return await self._commit(same, new, first.actor, first.channel)

    async def _next_queued(self) -> Admitted | None:
        """The run of the thread's next input that waits for its turn; the request itself comes after it."""
        queued = await self.store.aperform(self.store.find_queued(self.scope, self.request.thread_id))
        if queued is None:
            return None
        must_be_complete(queued.spec, self.request.config, self.request.context)
        act = self.store.start_queued(self.scope, self.request.thread_id, self.worker)
        admission = await self._claim(act)
        return None if admission is None else replace(await self._claimed(admission), then_again=True)

    async def _expired(self) -> SuspendTimeoutError | None:
        """The error about the question that the thread's newest run has expired with."""
        asked = self.store.list_interrupts(self.scope, self.request.thread_id, pending_only=False)
        return deadlines.expired(await self.store.aperform(asked))

    async def _known(self, run: Run) -> Admitted:
        """The key was used before, for the same request: it is that run, however it stands."""
        newest = await self.store.aperform(self.store.find_newest_run(self.scope, run.thread_id))
        run = newest if newest is not None and newest.chain == run.chain else run
        if run.held:
            raise ThreadBusyError(run.thread_id, run.run_id, run.worker_id or "")
        if run.status is RunStatus.DONE:
            return Admitted(run)
        if run.status is RunStatus.EXPIRED and (error := await self._expired()):
            raise error
        if not run.unfinished:
            why = f"has its run of this idempotency key closed as {run.status}; a new request needs a new key"
            raise NoCheckpointFoundError(run.thread_id, why=why)
        if questions := await self._questions():
            return await self._by_rules(run, questions) or Admitted(run, questions=questions)
        if _paused(run):
            return Admitted(run)  # the same request again is nobody's leave to pass the breakpoint
        return await self._take_over(run)

    # -- going on -------------------------------------------------------------------------------------------------

    async def _continue(self) -> Admitted:
        """Go on where the thread's newest run was cut off, failed or paused; a finished thread has nothing to do."""
        await self._must_be_ours()
        newest = await self.store.aperform(self.store.find_newest_run(self.scope, self.request.thread_id))
        if newest is not None and newest.unfinished:
            if newest.held:
                raise ThreadBusyError(newest.thread_id, newest.run_id, newest.worker_id or "")
            if (questions := await self._questions()) and not _was_answered(newest):
                return await self._by_rules(newest, questions) or Admitted(newest, questions=questions)
            return await self._take_over(newest, leave=_paused(newest))
        if (queued := await self._next_queued()) is not None:
            return queued
        if newest is not None and newest.status is RunStatus.EXPIRED and (error := await self._expired()):
            raise error
        if newest is not None and not await self._has_tasks():
            return Admitted(newest)
        return await self._claimed(await self._claim(self.store.start_run(self.scope, self._new_run(), self.worker)))

    async def _take_over(self, run: Run, *, leave: bool = False) -> Admitted:
        act = self.store.take_over(self.scope, run.run_id, self.worker, leave=leave)
        return await self._claimed(await self._claim(act))

    async def _must_be_ours(self) -> None:
        """To go on, or to answer, there must be a thread, and it must be this graph's; the store asks again."""
        thread_id, graph = self.request.thread_id, self.p.plan.name
        thread = await self.store.aperform(self.store.find_thread(self.scope, thread_id))
        if thread is None:
            near = await self.store.aperform(self.store.near_threads(self.scope, thread_id))
            raise NoCheckpointFoundError(thread_id, near=near)
        if thread.state != "open":
            raise NoCheckpointFoundError(thread_id, why=f"was {thread.state} and is not made anew under the same id")
        if thread.graph not in ("", graph):
            todo = f"Use graph {thread.graph!r}, or a thread of its own for this one."
            raise GraphChangedError(thread_id, f"it belongs to graph {thread.graph!r}, not {graph!r}", todo)

    # -- answers --------------------------------------------------------------------------------------------------

    async def _answer(self, command: Command[Any]) -> Admitted:
        """Commit the answers and the run that goes on with them, before anything is driven."""
        thread_id, new = self.request.thread_id, self._new_run()
        await self._must_be_ours()
        if new.key is not None and (known := await self._answered_before(new)):
            return await self._known(known)
        questions = await self._questions()
        if command.resume is None and self.request.interrupt_id is None:
            why = "the Command says nothing (to answer with None, name the question: resume={interrupt_id: None})"
            raise InvalidDecisionError(why, [question.interrupt_id for question in questions])
        if self.request.interrupt_id is not None:
            given = {self.request.interrupt_id: command.resume}
        elif not questions and not _names_questions(command.resume):
            raise await self._too_late()
        else:
            given = _by_id(command.resume, questions)
        answers = await self._checked(given, questions)
        await self._must_fit_graph(questions)
        rest = replace(command, resume=None)
        asking = await self.store.aperform(self.store.find_newest_run(self.scope, thread_id))
        spec = replace(new.spec, input=rest if rest.update or rest.goto else None)
        spec = inherited(spec, asking.spec) if asking else spec
        must_be_complete(spec, self.request.config, self.request.context)
        admission = await self._claim(
            self.store.answer(
                self.scope,
                thread_id,
                answers,
                replace(new, spec=spec),
                self.worker,
                actor=self.request.actor,
                channel="call",
                shown={} if self.request.shown is None else dict.fromkeys(answers, self.request.shown),
                note=self.request.note,
            )
        )
        return await (self._claimed(admission) if admission.lease else self._known(admission.run))

    async def _checked(self, answers: Mapping[str, Any], questions: list[Interrupt]) -> dict[str, Any]:
        """Each answer as its question takes it; what is not asked now is the store's to refuse, which knows why."""
        asked = {question.interrupt_id: question for question in questions}
        moved_on = set()
        if answers.keys() - asked.keys():
            act = self.store.list_interrupts(self.scope, self.request.thread_id)
            moved_on = {row.interrupt_id for row in await self.store.aperform(act)} - asked.keys()
        for interrupt_id in answers.keys() & moved_on:
            raise InvalidDecisionError(f"interrupt {interrupt_id!r} is not pending: the state has moved on", [*asked])
        tools = self.p.plan.tools
        return {
            interrupt_id: resolved(asked[interrupt_id], answer, tools, [*asked]) if interrupt_id in asked else answer
            for interrupt_id, answer in answers.items()
        }

    async def _too_late(self) -> InvalidDecisionError:
        """Where nothing is asked: what became of the last question of the thread's newest work, if it asked any."""
        thread_id = self.request.thread_id
        newest = await self.store.aperform(self.store.find_newest_run(self.scope, thread_id))
        if newest is not None and newest.status is RunStatus.EXPIRED and (error := await self._expired()):
            return InvalidDecisionError(f"interrupt {error.interrupt_id!r} expired: nobody answered in time")
        chain = newest.chain if newest is not None else None
        decisions = await self.store.aperform(self.store.list_decisions(self.scope, thread_id, chain=chain))
        for one in decisions[-1:]:
            became = f"was answered by {one.actor or 'somebody'} ({one.channel})"
            if one.channel == "deadline":
                became = "expired: nobody answered in time, and it was decided"
            why = f"nothing is asked any more: interrupt {one.interrupt_id!r} {became}"
            return InvalidDecisionError(why, first=(one.actor, one.decided_at))
        return InvalidDecisionError("nothing was asked")

    async def _must_fit_graph(self, questions: list[Interrupt]) -> None:
        """
        An answer is not accepted where the graph has changed so that it could not go on with it.

        Raises:
            GraphChangedError: it lacks what is to run, or what is stored.
        """
        thread_id, plan = self.request.thread_id, self.p.plan
        if self.head is None or self.head.graph_fp == plan.fingerprint:
            return
        heads = await self.store.aperform(self.store.list_heads(self.scope, thread_id))
        graphs, asking = _langgraph.all_graphs(plan.graph), {question.ns for question in questions}
        missing = []
        for head in heads:
            path = _langgraph.place_of(head.ns)[0]
            graph = graphs.get("|".join(path))
            if graph is not None and (head.ns == "" or any(ns.startswith(head.ns) for ns in asking)):
                found = _langgraph.missing_parts(graph, head.checkpoint, head.writes)
                missing += [f"in {'/'.join(path)}: {sentence}" if path else sentence for sentence in found]
        if missing:
            raise GraphChangedError(thread_id, "; ".join(missing))

    async def _answered_before(self, new: NewRun) -> Run | None:
        """The run that this very answer has made, under the same idempotency key."""
        known = await self.store.aperform(self.store.find_run_by_key(self.scope, new.graph, str(new.key)))
        if known is not None and known.request != new.request:
            raise IdempotencyMismatchError(str(new.key), known.run_id)
        return known

    async def _questions(self) -> list[Interrupt]:
        """
        What the thread really waits with: recorded as pending, and still asked at its head (an edit of the state may
        have moved on from it).
        """
        thread_id = self.request.thread_id
        rows = await self.store.aperform(self.store.list_interrupts(self.scope, thread_id))
        if not rows:
            return []
        self.head = await self.store.aperform(self.store.get_checkpoint(self.scope, thread_id, "", None))
        asked = {i.id for i in _langgraph.pending_interrupts(self.head.writes)} if self.head else set()
        if any(row.ns for row in rows):
            asked &= {*await self.store.aperform(self.store.list_asked(self.scope, thread_id))}
        questions = [row for row in rows if row.interrupt_id in asked]
        for question in questions:
            if isinstance(question.payload, Unreadable):
                raise question.payload.error
        return questions

    # -- shared ---------------------------------------------------------------------------------------------------

    async def _claim(self, act: Act[Claimed]) -> Claimed:
        """A caller that is cancelled while the store is at it lets go of the run that it is given then."""
        claiming = self.store.submit(act)
        try:
            admission: Claimed = await asyncio.shield(asyncio.wrap_future(claiming))
        except asyncio.CancelledError:
            claiming.add_done_callback(self._let_go)
            raise
        return admission

    def _let_go(self, claiming: Future[Admission | None]) -> None:
        admission = None if claiming.exception() else claiming.result()
        if admission is not None and admission.lease:
            handed_back(Claim(admission.lease, self.p.keeper), "its caller was cancelled")

    async def _claimed(self, admission: Admission) -> Admitted:
        assert admission.lease is not None
        run, claim = admission.run, Claim(admission.lease, self.p.keeper)
        try:
            self._tell(Started(run.thread_id, run.run_id, admission.created))
        except BaseException:
            await let_go(claim, "on_start raised")
            raise
        return Admitted(run, claim)

    def _tell(self, started: Started) -> None:
        if started.created:
            log.info("thread %s was made for graph %s", started.thread_id, self.p.plan.name)
        if not self.request.new_thread:
            self.p.regulars.came(created=started.created)
        if self.request.on_start is not None:
            self.request.on_start(started)

    async def _has_tasks(self) -> bool:
        return bool((await _snapshot(self.p, self.request.thread_id)).tasks)


async def go_on(p: Protection, request: Request, *, asks: bool) -> Admitted | None:
    """
    What a call goes on with by itself after its run has come to a stop.

    Args:
        asks: the run has stopped with a question; else it is over.
    """
    if asks and not p.plan.approvals.decides:
        return None
    if not asks and await p.store.aperform(p.store.find_queued(p.scope, request.thread_id)) is None:
        return None
    worker = await ready(p)
    try:
        return await _Admission(p, request, worker).go_on(asks=asks)
    except (ThreadBusyError, InvalidDecisionError, LeaseLostError, DivergentStateError) as error:
        log.info("thread %s: somebody else goes on with it (%s)", request.thread_id, error)
    except MissingEntryError as error:
        log.info("thread %s: what waits for its turn stays in the queue (%s)", request.thread_id, error)
    except WorkerLostError:
        p.keeper.distrust(worker)
    return None


async def let_go(claim: Claim, cause: str) -> None:
    """Give back a run that nothing has been driven of."""
    with suppress(LeaseLostError):  # somebody has taken it already
        await asyncio.shield(asyncio.wrap_future(handed_back(claim, cause)))


def handed_back(claim: Claim, cause: str) -> Future[Run]:
    given: Future[Run] = claim.store.submit(claim.store.finish_run(claim.lease, RunStatus.QUEUED, cause=cause))
    return given


def _was_answered(run: Run) -> bool:
    """It was made by an answer and has not used it: others may be pending still, and are asked again if they are."""
    return run.cut_off and run.continues is not None


def _paused(run: Run) -> bool:
    """It has stopped for a person: at a breakpoint, or with a question."""
    return run.status is RunStatus.INTERRUPTED and run.cause != EFFECT_UNKNOWN


def one_of(name: str, value: Any, choices: Any) -> Any:
    """
    Raises:
        ConfigError: no such choice; taken for another it would drop work.
    """
    allowed = get_args(choices)
    if value not in allowed:
        raise ConfigError(f"{name}={value!r} is not a choice; allowed: {', '.join(map(repr, allowed))}.")
    return value


def _names_questions(resume: Any) -> bool:
    return isinstance(resume, dict) and bool(resume) and all(_langgraph.is_interrupt_id(key) for key in resume)


def _by_id(resume: Any, questions: list[Interrupt]) -> dict[str, Any]:
    """Answers by interrupt id. A plain answer is for the one question there is; it is never guessed among several."""
    pending = [question.interrupt_id for question in questions]
    calls = {action.tool_call_id for question in questions for action in question.actions}
    if _names_questions(resume) and not (len(pending) == 1 and resume.keys() <= calls):
        return dict(resume)
    if len(pending) == 1:
        return {pending[0]: resume}
    why = "several questions are pending, so an answer must name its interrupt id" if pending else "nothing was asked"
    raise InvalidDecisionError(why, pending)


async def must_have(p: Protection, thread_id: str, checkpoint_id: str) -> None:
    """LangGraph would take an unknown checkpoint, or one that was pruned, for an empty thread, and begin anew."""
    if not await p.store.aperform(p.store.has_checkpoint(p.scope, thread_id, "", checkpoint_id)):
        raise NoCheckpointFoundError(thread_id, why=f"has no checkpoint {checkpoint_id!r} (any more)")


async def answered_elsewhere(p: Protection, thread_id: str, timeout_s: float) -> None:
    """
    Until the thread does not wait for an answer any more.

    Raises:
        TimeoutError: it still does after `timeout_s` seconds.
    """
    deadline, pause = time.monotonic() + timeout_s, WAIT_PAUSE_S[0]
    while True:
        admission = _Admission(p, Request(None, thread_id, {}), await ready(p))
        await admission._must_be_ours()
        run = await p.store.aperform(p.store.find_newest_run(p.scope, thread_id))
        if run is None or run.status is not RunStatus.INTERRUPTED or not await admission._questions():
            return
        if time.monotonic() >= deadline:
            raise TimeoutError(f"thread {thread_id!r}: nobody has answered in {timeout_s:g} s; it still waits.")
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, WAIT_PAUSE_S[1])


async def retake(p: Protection, claim: Claim) -> Claim | None:
    """
    A new claim on a run whose lease ended while this process was away (a closed laptop), if nobody has it since.

    None: somebody has taken it over, or closed it.
    """
    lease = claim.lease
    run = await p.store.aperform(p.store.get_run(p.scope, lease.run_id))
    if run.epoch != lease.epoch or run.status not in (RunStatus.RUNNING, RunStatus.QUEUED):
        return None
    try:
        admission = await with_worker(p, lambda worker: p.store.take_over(p.scope, run.run_id, worker))
    except (LeaseLostError, ThreadBusyError):
        return None
    assert admission.lease is not None
    return Claim(admission.lease, p.keeper)


async def first_request(p: Protection, thread_id: str) -> RunSpec:
    """
    What the unfinished chain of runs was asked first: what a start-over begins with.

    Raises:
        NoCheckpointFoundError: nothing is unfinished.
    """
    found = await find_unfinished(p, thread_id)
    if found is None:
        raise NoCheckpointFoundError(thread_id, why="has nothing unfinished that could be started over")
    return (await p.store.aperform(p.store.get_run(p.scope, found.run.chain))).spec


async def find_unfinished(p: Protection, thread_id: str) -> Unfinished | None:
    """What is unfinished on a thread, and what would run again; None if nothing is, or a live process has it."""
    admission = _Admission(p, Request(None, thread_id, {}), await ready(p))
    await admission._must_be_ours()
    run = await p.store.aperform(p.store.find_newest_run(p.scope, thread_id))
    if run is None or run.held or not run.unfinished:
        return None
    return await unfinished(p, run, await admission._questions())


async def unfinished(p: Protection, run: Run, questions: list[Interrupt]) -> Unfinished:
    """Everything that a person should see before choosing."""
    head = await p.store.aperform(p.store.get_checkpoint(p.scope, run.thread_id, "", None))
    finished = _langgraph.finished_tasks(head.writes) if head else set()
    try:
        tasks = (await _snapshot(p, run.thread_id)).tasks
        again = [task.name for task in tasks if task.id not in finished and not task.interrupts]
    except Exception as error:
        # What is recorded cannot be put together, such as an input that a reducer refuses: it cannot be gone on with,
        # and whoever is to choose must be told, not stopped.
        again = [f"nothing could go on ({type(error).__name__}: {error})"]
    if head is None or (head.run_id != run.run_id and run.continues is None and run.status is not RunStatus.FAILED):
        again = ["the whole request"]
    runs = await p.store.aperform(p.store.list_runs(p.scope, thread_id=run.thread_id, limit=1000))
    chain = {one.run_id for one in runs if one.chain == run.chain}
    acts = await p.store.aperform(p.store.list_effects(p.scope, thread_id=run.thread_id))
    effects = [act for act in acts if act.run_id in chain]
    open_states = (EffectState.UNKNOWN, EffectState.INTENT)
    return Unfinished(
        run=run,
        questions=tuple(questions),
        would_run_again=tuple(again),
        usage=await p.store.aperform(p.store.chain_usage(p.scope, run.chain)),
        unknown_effects=tuple(effect.name for effect in effects if effect.state in open_states),
    )


async def abandon(p: Protection, thread_id: str, *, by: str = "") -> Run | None:
    """Close the thread's unfinished run; what it has done stays for reading. None: there was none."""
    await _Admission(p, Request(None, thread_id, {}), await ready(p))._must_be_ours()
    run = await p.store.aperform(p.store.find_newest_run(p.scope, thread_id))
    if run is None or not run.unfinished:
        await p.store.aperform(p.store.drop_queued(p.scope, thread_id))
        return None
    return await p.store.aperform(p.store.close_run(p.scope, run.run_id, RunStatus.ABANDONED, by=by or "abandoned"))


def reading_graph(p: Protection) -> AnyGraph:
    """The graph with a saver that reads: for looking at a thread's state."""
    graph: AnyGraph = _langgraph.with_saver(p.plan.graph, CheckedSaver(p.store, plan=p.plan, owner=p.owner))
    return graph


async def _snapshot(p: Protection, thread_id: str) -> Any:
    return await reading_graph(p).aget_state({"configurable": {"thread_id": thread_id}})
