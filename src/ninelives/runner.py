"""
Driving one claimed run: what it begins with, what is checked on the way, how it ends.

The run's row says what was asked; what has already happened is read from what the run itself has written, never from
LangGraph's `next`, which is empty at one kill point in eight. Durability is always "sync": a superstep's checkpoint is
in the store before the next one begins, and so a recorded step never runs again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.errors import GraphDrained
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, PregelTask, StateSnapshot

from ninelives import _langgraph
from ninelives.approvals import Approvals, Reviewed, guarded
from ninelives.calls import Calls
from ninelives.config import EffectsSettings
from ninelives.effects import JOURNAL_KEY, Journal
from ninelives.errors import (
    EffectOutcomeUnknownError,
    GraphChangedError,
    LeaseLostError,
    NineLivesError,
    NoCheckpointFoundError,
    StoreUnavailableError,
)
from ninelives.interrupts import understood
from ninelives.lease import Claim
from ninelives.model import (
    Effect,
    EffectState,
    NewQuestion,
    Run,
    RunSpec,
    RunStatus,
    Scope,
    StoredCheckpoint,
    Unreadable,
    Usage,
)
from ninelives.saver import Paths, Saver
from ninelives.store import Act, Store

log = logging.getLogger(__name__)

AnyGraph: TypeAlias = Pregel[Any, Any, Any, Any]
CAUSE_CHARS_MAX = 500
REPLAY_MAX = 5000
"""So many updates a DeltaChannel may be rebuilt from, unless the settings say otherwise."""
EXPECTED_MAX = 256
"""So many checkpoints a saver remembers that it gave, and whose history it was not asked for yet."""
EFFECT_UNKNOWN = "effect_unknown"
"""Cause of a run that stopped because nobody knows whether an act of it happened."""
QUIET_S = 60.0
"""So long a run that was stopped is quiet about a call of its own that has not ended."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph prepared for being driven, with what is known of it: shared by all its runs."""

    graph: AnyGraph
    name: str
    fingerprint: str
    executor: _langgraph.RunExecutor
    keep: frozenset[str] = frozenset()
    replay_max: int = REPLAY_MAX
    effects: EffectsSettings = field(default_factory=EffectsSettings)
    approvals: Approvals = field(default_factory=Approvals)
    tools: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Spent:
    """Counts what a run costs; gives it away once, with the next thing that is stored."""

    _usage: Usage = field(default_factory=Usage)
    _since: float = field(default_factory=time.monotonic)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def add(self, usage: Usage) -> None:
        with self._mutex:
            self._usage += usage

    def take(self) -> Usage:
        with self._mutex:
            now = time.monotonic()
            usage = replace(self._usage, active_s=now - self._since)
            self._usage, self._since = Usage(), now
            return usage


class Drive:
    """
    One claim being driven. Use `Driving`, which makes one and ends it well.

    Attributes:
        graph: to be called with `input`, `config` and `durability="sync"`; None input means "go on".
        waiting: the questions that the run waits with; non-empty before anything ran: then there is nothing to drive.
    """

    def __init__(
        self,
        plan: Plan,
        claim: Claim,
        run: Run,
        config: RunnableConfig,
        attributes: Mapping[str, Any],
        executors: Collection[_langgraph.RunExecutor],
    ) -> None:
        self.plan, self.claim, self.run = plan, claim, run
        self.paused = False
        self.executors = [plan.executor, *executors]
        self.store, self.scope = claim.store, Scope(run.owner)
        self.spent = Spent()
        self.waiting: list[Interrupt] = []
        self.input: Any = None
        recorded = plan.effects.model == "recorded"
        self.journal = Journal(self.store, claim.lease, check=self._check, records_models=recorded)
        config, limit = _langgraph.take_max_concurrency(config)
        self.supersteps = _langgraph.Supersteps(max_concurrency=limit)
        self.saver = RunSaver(
            self.store,
            plan=plan,
            owner=run.owner,
            lease=claim.lease,
            graph_fp=plan.fingerprint,
            keep=plan.keep,
            from_nothing=run.spec.from_base and run.base is None,
            spent=self.spent.take,
        )
        self.calls = Calls(self.journal, plan.executor, rules=plan.effects.tools)
        self.saver.graph, self.saver.calls = plan.graph, self.calls
        self.graph = _langgraph.with_saver(plan.graph, self.saver)
        self.graph.__dict__.update(attributes)
        self.config = self._config(config)

    # -- before ---------------------------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """
        The preflight: where the run stands, whether this graph can go on from there, and with which input.

        Raises:
            GraphChangedError: a pending node, Send target or stored channel is gone.
        """
        if isinstance(self.run.spec.input, Unreadable):
            raise self.run.spec.input.error
        self.calls.verdicts = await self.store.aperform(self.store.list_verdicts(self.scope, self.run.thread_id))
        if self.plan.approvals.tools:
            await self._guard_calls()
        checkpointed, command_kept = await self.store.aperform(self.store.has_begun(self.claim.lease))
        goes_on = checkpointed or command_kept or self.run.continues is not None
        if goes_on or not self.run.spec.from_base:
            await self._check_head(pending=goes_on or self.run.spec.input is None or _is_command(self.run.spec.input))
        if goes_on and self.run.continues is None and await self._at_gate():
            self.paused = True
        elif goes_on:
            self.input = await self._resumption(fresh=not (checkpointed or command_kept))
            if (taken_in := self.saver.input_taken_in()) is not None:
                await self._close_open_calls(taken_in)
        else:
            self.input = self.run.spec.input
            if self.run.spec.from_base and self.run.base is not None:
                await self._must_have(self.run.base)
                self.config["configurable"]["checkpoint_id"] = self.run.base
            from_nothing = self.run.spec.from_base and self.run.base is None
            if self.input is not None and not _is_command(self.input) and not from_nothing:
                await self._close_open_calls(self.run.base if self.run.spec.from_base else None)

    async def _guard_calls(self) -> None:
        """Have the tools that the settings name ask, but for calls that the graph itself has had reviewed."""
        thread_id, approvals = self.run.thread_id, self.plan.approvals
        decisions = await self.store.aperform(self.store.list_decisions(self.scope, thread_id, chain=self.run.chain))
        asked = self.store.list_interrupts(self.scope, thread_id, pending_only=False)
        reviewed = Reviewed.of(await self.store.aperform(asked) if decisions else (), decisions)
        self.calls.guard = lambda tool: guarded(tool, approvals, reviewed)

    async def _at_gate(self) -> bool:
        """
        Whether the run was cut off in front of a breakpoint: LangGraph takes any resume as the leave to pass it.

        Where a task of the gated step has a recorded result, the gate was passed before.
        """
        if not (self.breakpoints or _langgraph.has_gates(self.plan.graph)):
            return False
        if await self.store.aperform(self.store.has_leave(self.claim.lease)):
            return False
        graphs = _langgraph.all_graphs(self.plan.graph)
        finished = _langgraph.finished_tasks(self.saver.head_writes())
        snapshot = await self.graph.aget_state(self.config, subgraphs=True)
        due = {"": [task for task in snapshot.tasks if task.id not in finished]}
        for task in due[""]:
            if isinstance(task.state, StateSnapshot):
                due[task.state.config["configurable"]["checkpoint_ns"]] = list(task.state.tasks)
        for head in await self.store.aperform(self.store.list_heads(self.scope, self.run.thread_id)):
            graph = graphs.get("|".join(_langgraph.place_of(head.ns)[0]))
            if head.ns in due and graph is not None and await self._gated(graph, head, due[head.ns]):
                return True
        return False

    async def _gated(self, graph: AnyGraph, head: StoredCheckpoint, due: Sequence[PregelTask]) -> bool:
        spec = self.run.spec if head.ns == "" else RunSpec()
        parent = None
        if head.parent_id:
            act = self.store.get_checkpoint(self.scope, self.run.thread_id, head.ns, head.parent_id)
            parent = await self.store.aperform(act)
        recorded = _langgraph.finished_tasks(head.writes)
        return _langgraph.at_gate(
            head.checkpoint,
            parent.checkpoint if parent else None,
            [] if recorded else [task.name for task in due],
            before=spec.interrupt_before or graph.interrupt_before_nodes,
            after=[] if recorded else spec.interrupt_after or graph.interrupt_after_nodes,
        )

    async def _close_open_calls(self, base: str | None) -> None:
        """
        A new input never comes behind tool calls that have no result: no model would take that history.

        Args:
            base: the checkpoint that the input follows; None: the head.
        """
        if await self.store.aperform(self.store.status_before(self.claim.lease)) in (None, RunStatus.DONE):
            return
        act = self.store.get_checkpoint(self.scope, self.run.thread_id, "", base)
        if (head := await self.store.aperform(act)) is None:
            return
        # Named, so that LangGraph does not apply what is recorded at the head: the new input will drop it.
        place = {"thread_id": self.run.thread_id, "checkpoint_id": head.checkpoint_id}
        reader = CheckedSaver(self.store, plan=self.plan, owner=self.run.owner)
        snapshot = await _langgraph.with_saver(self.plan.graph, reader).aget_state({"configurable": place})
        if openings := _langgraph.open_calls(self.plan.graph, snapshot.values):
            await self._close(openings, head, {task.id for task in snapshot.tasks})

    async def _close(self, openings: Sequence[_langgraph.Opening], head: StoredCheckpoint, tasks: set[str]) -> None:
        """Only what the tasks of the head have done counts: another turn may have given its calls the same ids."""
        thread_id = self.run.thread_id
        outputs = await self.store.aperform(self.store.list_calls(self.scope, thread_id, tasks))
        effects = await self.store.aperform(self.store.list_effects(self.scope, thread_id=thread_id))
        acts = [effect for effect in effects if effect.task_id in tasks]
        self.calls.closings = [
            _langgraph.closing(
                self.run.run_id,
                opening,
                _langgraph.finished_work(opening.channel, head.writes, outputs.values()),
                lambda call: _what_is_known(call, [act for act in acts if act.call_id == call["id"]]),
            )
            for opening in openings
        ]

    async def _must_have(self, base: str) -> None:
        """LangGraph would take a checkpoint that is not there for an empty thread, and begin anew."""
        if not await self.store.aperform(self.store.has_checkpoint(self.scope, self.run.thread_id, "", base)):
            why = f"has no checkpoint {base!r} any more, which this run is to begin from"
            raise NoCheckpointFoundError(self.run.thread_id, why=why)

    async def _check_head(self, *, pending: bool) -> None:
        """`pending`: what waits at the head is to go on; a new input drops it, by its caller's own choice."""
        act = self.store.get_checkpoint(self.scope, self.run.thread_id, "", None, self.claim.lease)
        head = await self.store.aperform(act)
        if head is None:
            return
        self.saver.preload(head)
        if head.graph_fp != self.plan.fingerprint:
            missing = await (self._missing(head) if pending else self._missing_state(head))
            if missing:
                raise GraphChangedError(self.run.thread_id, "; ".join(missing))
            if head.graph_fp is not None:
                log.info("thread %s goes on with a changed graph %s", self.run.thread_id, self.plan.name)

    async def _missing_state(self, head: StoredCheckpoint) -> list[str]:
        state = {"channel_versions": head.checkpoint["channel_versions"]}
        return _langgraph.missing_parts(self.plan.graph, state, [])

    async def _missing(self, head: StoredCheckpoint) -> list[str]:
        """What the head needs and this graph lacks, also inside the subgraphs that its unfinished tasks are in."""
        missing = _langgraph.missing_parts(self.plan.graph, head.checkpoint, head.writes)
        graphs = _langgraph.all_graphs(self.plan.graph)
        snapshot = await self.graph.aget_state(self.config)
        waiting = {task.id for task in snapshot.tasks}
        for inner in await self.store.aperform(self.store.list_heads(self.scope, self.run.thread_id)):
            path, tasks = _langgraph.place_of(inner.ns)
            graph = graphs.get("|".join(path))
            if inner.ns and graph is not None and tasks[0] in waiting:
                found = _langgraph.missing_parts(graph, inner.checkpoint, inner.writes)
                missing += [f"in {'/'.join(path)}: {sentence}" for sentence in found]
        return missing

    async def _resumption(self, *, fresh: bool) -> Any:
        """
        How a run that has begun, or that continues another, goes on: with every accepted answer whose question is
        still open. A run whose open tasks all wait for an answer that nobody has given has nothing to do.
        """
        asked = self.saver.open_questions()
        decisions = await self.store.aperform(
            self.store.list_decisions(self.scope, self.run.thread_id, chain=self.run.chain)
        )
        known = self.calls.answers = {decision.interrupt_id: decision.value for decision in decisions}
        answers = {interrupt.id: known[interrupt.id] for interrupt in asked if interrupt.id in known}
        given = self.run.spec.input if fresh and _is_command(self.run.spec.input) else None
        if answers or given is not None:
            return replace(given or Command(), resume=answers or None)
        if asked and not await self._has_work() and not await self._moved_on_inside():
            self.waiting = asked
        return None

    async def _moved_on_inside(self) -> bool:
        """Somebody has edited the state of a graph inside: it does not wait for what it had asked."""
        rows = await self.store.aperform(self.store.list_interrupts(self.scope, self.run.thread_id))
        if not any(row.ns for row in rows):
            return False
        asked = await self.store.aperform(self.store.list_asked(self.scope, self.run.thread_id))
        return bool({row.interrupt_id for row in rows} - {*asked})

    async def _has_work(self) -> bool:
        snapshot = await self.graph.aget_state(self.config)
        finished = _langgraph.finished_tasks(self.saver.head_writes())
        return any(not task.interrupts and task.id not in finished for task in snapshot.tasks)

    def _config(self, config: RunnableConfig) -> RunnableConfig:
        run = self.run
        configurable = {
            **{k: v for k, v in config.get("configurable", {}).items() if k != "checkpoint_id"},
            **self.supersteps.configurable(),
            "thread_id": run.thread_id,
            _langgraph.STRICT_RESUME_KEY: True,
            JOURNAL_KEY: self.journal,
            _langgraph.HOOKS_KEY: self.calls,
        }
        merged: RunnableConfig = {
            **config,
            "configurable": configurable,
            "metadata": {**run.spec.metadata, **(config.get("metadata") or {}), "run_id": run.run_id},
            "callbacks": _with(config.get("callbacks"), self._watch()),
        }
        if "recursion_limit" not in merged and run.spec.recursion_limit is not None:
            merged["recursion_limit"] = run.spec.recursion_limit
        return merged

    # -- on the way -----------------------------------------------------------------------------------------------

    def _watch(self) -> _langgraph.Watch:
        return _langgraph.Watch(
            before_node=self._before_node,
            before_tool=self._before_tool,
            after_model=self._after_model,
        )

    def _before_node(self, name: str, ns: str, task_id: str) -> None:
        self._check()
        self.journal.begin_task(task_id)
        self.spent.add(Usage(steps=1))

    def _before_tool(self, name: str, tool_call_id: str | None, arguments: Any) -> None:
        self._check()
        self.spent.add(Usage(tool_calls=1))

    def _after_model(self, tokens_in: int, tokens_out: int, model: str) -> None:
        by_model = {model: (1, tokens_in, tokens_out)} if model else {}
        self.spent.add(Usage(model_calls=1, tokens_in=tokens_in, tokens_out=tokens_out, by_model=by_model))

    def _check(self) -> None:
        try:
            self.claim.check()
        except NineLivesError as error:
            raise self.journal.stop(error) from error

    # -- after ----------------------------------------------------------------------------------------------------

    async def succeed(self) -> None:
        """The graph came to a stop by itself: it is done, or asks something; unless a node swallowed a stop of ours."""
        if self.journal.stopped is not None:
            raise self.journal.stopped
        await self.saver.settled()
        await self.saver.store_changed()
        paused = bool(self.paused or self.waiting or self.saver.asked) or await self._at_breakpoint()
        await self._finish(RunStatus.INTERRUPTED if paused else RunStatus.DONE)

    async def fail(self, error: BaseException) -> BaseException:
        """
        Record how the run ended with an exception; gives the one that the caller is to see.

        Where several tasks fail together LangGraph raises any one of them; a stop of ours counts before all others.
        """
        if isinstance(error, Exception) and self.journal.stopped is not None:
            error = self.journal.stopped
        if isinstance(error, EffectOutcomeUnknownError):
            await self.quiet()
            await self._finish(RunStatus.INTERRUPTED, EFFECT_UNKNOWN)
            return await self._with_others(error)
        if isinstance(error, LeaseLostError):
            # If it is still ours by the store's word, it must not look alive when nobody drives it any more.
            self.let_go("its lease had ended")
            return error
        if isinstance(error, GraphDrained):
            await self._finish(RunStatus.QUEUED, "drained at a step boundary")
        elif isinstance(error, Exception):
            await self.quiet()
            await self._finish(RunStatus.FAILED, repr(error)[:CAUSE_CHARS_MAX])
        else:
            self.let_go("stopped by its caller")
        return error

    async def _with_others(self, error: EffectOutcomeUnknownError) -> EffectOutcomeUnknownError:
        """All that is unknown on the thread, so that a person can settle it in one round."""
        act = self.store.list_effects(self.scope, thread_id=self.run.thread_id, state=EffectState.UNKNOWN)
        others = [effect.key for effect in await self.store.aperform(act) if effect.key != error.key]
        return EffectOutcomeUnknownError(error.name, error.key, error.why, others)

    async def _finish(self, status: RunStatus, cause: str | None = None) -> None:
        """
        Record the end. Where the store cannot take it now, the heartbeat tries again: a run that nobody drives any more
        must not look alive for as long as its process lives.
        """
        usage = self.spent.take()
        act = self.store.finish_run(self.claim.lease, status, cause=cause, usage=usage, spec=self.run.spec)
        try:
            self.run = await self.store.aperform(act)
        except StoreUnavailableError:
            self.claim.keeper.end_later(self.claim.lease, RunStatus.QUEUED, cause or "its end could not be recorded")
            raise

    async def quiet(self) -> None:
        """
        Until no call of this run is at work any more: a tool node that fails does not wait for its other calls, and
        what goes on would be begun a second time by whoever continues the run.
        """
        if self._at_work():
            # In a thread of its own: it may be the pool's threads that are waited for.
            await asyncio.wrap_future(_in_a_thread(self._wait_until_quiet))

    def _at_work(self) -> bool:
        return bool(self.journal.in_flight()) or any(one.alive(self.run.run_id) for one in self.executors)

    def _wait_until_quiet(self) -> None:
        while self._at_work():
            wait(self.journal.in_flight(), QUIET_S)
            if not all([executor.wait_idle(self.run.run_id, QUIET_S) for executor in self.executors]):
                log.warning("run %s was stopped, but a call of it is still running in a thread", self.run.run_id)

    def let_go(self, cause: str) -> None:
        """
        Let go of a run that was cancelled, but not while one of its calls is still alive in a thread.

        Until then the run stays claimed: nobody may repeat a call that has not ended.
        """
        act = self.store.finish_run(self.claim.lease, RunStatus.QUEUED, cause=cause, usage=self.spent.take())

        def release() -> None:
            self._wait_until_quiet()
            try:
                self.store.perform(act)
            except StoreUnavailableError:
                self.claim.keeper.end_later(self.claim.lease, RunStatus.QUEUED, cause)
            except NineLivesError as error:
                log.info("run %s was not released: %s", self.run.run_id, error)

        if self._at_work():
            _in_a_thread(release)
        else:
            release()

    async def _at_breakpoint(self) -> bool:
        """Stopped by `interrupt_before` or `interrupt_after`, which ask nothing and leave tasks to be run."""
        if not (self.breakpoints or _langgraph.has_gates(self.plan.graph)):
            return False
        return bool((await self.graph.aget_state(self.config)).tasks)

    @property
    def breakpoints(self) -> bool:
        return bool(self.run.spec.interrupt_before or self.run.spec.interrupt_after)


class CheckedSaver(Saver):
    """
    A saver that gives no state with a DeltaChannel of which a part is gone, or that would be replayed too far back.

    Args:
        plan: the graph whose state it is.

    Raises: `LackOfSnapshotFrequency`, from what reads.
    """

    def __init__(self, store: Store, *, plan: Plan, **kwargs: Any) -> None:
        super().__init__(store, **kwargs)
        self.plan = plan
        self._updates: dict[tuple[str, str, str], Mapping[str, int]] = {}
        """By thread, namespace, checkpoint: what the history that LangGraph asks for next must hold."""

    def must_be_shallow(self, stored: StoredCheckpoint) -> None:
        updates = _langgraph.replayed(stored.checkpoint, stored.metadata)
        _langgraph.must_not_be_deep(stored.thread_id, self.plan.name, updates, self.plan.replay_max)
        if len(self._updates) > EXPECTED_MAX:
            self._updates.clear()  # whoever asks later goes unchecked
        if updates:
            self._updates[stored.thread_id, stored.ns, stored.checkpoint_id] = updates

    def _tuple_or_none(self, stored: StoredCheckpoint | None) -> CheckpointTuple | None:
        found = super()._tuple_or_none(stored)
        if found is not None and stored is not None:
            self.must_be_shallow(stored)
        return found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._whole(config, super().get_delta_channel_history(config=config, channels=channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._whole(config, await super().aget_delta_channel_history(config=config, channels=channels))

    def _whole(
        self, config: RunnableConfig, history: Mapping[str, DeltaChannelHistory]
    ) -> Mapping[str, DeltaChannelHistory]:
        conf = config["configurable"]
        place = str(conf["thread_id"]), conf.get("checkpoint_ns", ""), str(conf.get("checkpoint_id"))
        _langgraph.must_be_whole(place[0], self.plan.name, self._updates.pop(place, {}), history)
        return history


class RunSaver(CheckedSaver):
    """A saver under a claim that remembers the head it was given and what the graph has asked in this drive."""

    graph: AnyGraph
    calls: Calls
    _defers = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head: StoredCheckpoint | None = None
        self._untouched = False
        self._underway: list[Future[Any]] = []
        self._newest: tuple[RunnableConfig, Checkpoint, CheckpointMetadata] | None = None
        self.asked: set[str] = set()

    def _submitted(self, future: Future[None]) -> Awaitable[None]:
        """
        A task's writes are on their way, in order with all that follows; they are committed with the checkpoint.

        Nothing is built on them before that, and what became of them is told to whoever puts it, or ends the run.
        (Where a graph has a DeltaChannel, LangGraph would wait for the writes first: a commit of their own.)
        """
        self._underway.append(future)
        return _nothing()

    async def settled(self) -> None:
        """
        Raises: what became of writes that were on their way.
        """
        underway, self._underway = self._underway, []
        for future in underway:
            await asyncio.wrap_future(future)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        if metadata.get("source") == "input":
            return self._put_on_its_way(config, checkpoint, metadata)
        try:
            return await super().aput(config, checkpoint, metadata, new_versions)
        finally:
            await self.settled()

    def _put_on_its_way(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> RunnableConfig:
        """
        The checkpoint of an input, which no node has seen yet: committed with the next one, before any node begins.

        Cut off before that, the run begins anew from its request, which is recorded.
        """
        act = self._put(config, checkpoint, metadata)
        act.defers = True
        self._underway.append(self.store.submit(act))
        return {"configurable": {**_place_of(config), "checkpoint_id": checkpoint["id"]}}

    def preload(self, head: StoredCheckpoint) -> None:
        """The head as it was read by the preflight; nobody else can have moved it under our claim."""
        self.must_be_shallow(head)
        self._head, self._untouched = head, True

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._tuple_or_none(head) if (head := self._preloaded(config)) else super().get_tuple(config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._tuple_or_none(head) if (head := self._preloaded(config)) else await super().aget_tuple(config)

    def _preloaded(self, config: RunnableConfig) -> StoredCheckpoint | None:
        """The head, for the first who asks for it: a second one would get the same objects, and others may be due."""
        conf, head = config["configurable"], self._head
        wanted = conf.get("checkpoint_id") or (head.checkpoint_id if head else None)
        if head is None or not self._untouched or conf.get("checkpoint_ns") or wanted != head.checkpoint_id:
            return None
        self._untouched = False
        return head

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, *, amends: bool = False
    ) -> Act[Paths]:
        self._untouched = False
        if not config["configurable"].get("checkpoint_ns"):
            self._newest = config, checkpoint, metadata
        return super()._put(config, checkpoint, metadata, amends=amends)

    async def store_changed(self) -> None:
        """
        What was changed in place and not seen when its checkpoint was put is put again, under that checkpoint's id.

        Raises: as `put_checkpoint`.
        """
        assert self.lease is not None
        changed = self.store.changed_in_place(self.lease)
        if changed and self._newest is not None:
            await self.store.aperform(self._put(*self._newest, amends=True))
            self._warn(self._newest[0], changed)

    def open_questions(self) -> list[Interrupt]:
        return _langgraph.pending_interrupts(self._head.writes) if self._head else []

    def input_taken_in(self) -> str | None:
        """Where the head is the checkpoint of an input that no node has seen yet: the one before it."""
        head = self._head
        return head.parent_id if head is not None and head.metadata.get("source") == "input" else None

    def head_writes(self) -> list[tuple[str, str, Any]]:
        return self._head.writes if self._head else []

    def _tuple_or_none(self, stored: StoredCheckpoint | None) -> CheckpointTuple | None:
        found = super()._tuple_or_none(stored)
        if found is None or stored is None:
            return found
        settled = _langgraph.settle_handled_errors(
            self.graph, stored.checkpoint, stored.metadata, stored.ns, stored.writes
        )
        return found._replace(pending_writes=settled)

    def _put_writes(self, config: RunnableConfig, writes: Any, task_id: str, task_path: str) -> Any:
        self._untouched = False
        if not config["configurable"].get("checkpoint_ns"):
            self.asked.update(i.id for channel, value in writes if channel == _langgraph.INTERRUPT for i in value)
        act = super()._put_writes(config, writes, task_id, task_path)
        self.calls.forget(task_id)
        return act

    def _questions(self, writes: Any, task_id: str) -> Sequence[NewQuestion]:
        asked = [each for channel, value in writes if channel == _langgraph.INTERRUPT for each in value]
        return [self._question(each, self.calls.of_task(task_id)) for each in asked]

    def _question(self, asked: Interrupt, tool_calls: Sequence[Mapping[str, Any]]) -> NewQuestion:
        own = self.calls.journal.terms.pop(asked.id, None)
        return self.plan.approvals.timed(understood(asked, tool_calls), own)


class Driving:
    """
    `async with Driving(...) as drive`: drives a claimed run; records the outcome whatever happens inside.

    `attributes` are set on the copy of the graph that is driven, such as a config bound by `with_config`. `executors`
    run calls of it, beside the plan's own; a run that ended badly is let go of when they have none of it any more.

    No generator: a loop that is shut down closes all async generators at once, and this one under its caller's hands.

    Raises: what the graph raised, or the public error where one of our checks stopped it.
    """

    def __init__(
        self,
        plan: Plan,
        claim: Claim,
        run: Run,
        config: RunnableConfig,
        attributes: Mapping[str, Any] = MappingProxyType({}),
        executors: Collection[_langgraph.RunExecutor] = (),
    ) -> None:
        self.drive = Drive(plan, claim, run, config, attributes, executors)
        self._ended = asyncio.Event()
        self._guard = self._until_ended()

    async def __aenter__(self) -> Drive:
        await anext(self._guard)
        try:
            await self.drive.prepare()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self.drive

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            await self._end(error)
        except GeneratorExit:
            # The loop was closed under our hands, as when a program ends right after it broke out of a stream.
            self.drive.let_go("its event loop was closed")
            raise
        finally:
            self._ended.set()

    async def _until_ended(self) -> AsyncIterator[None]:
        """
        A generator that the event loop knows, and so closes before it ends itself: a program that breaks out of a
        stream and ends at once would else cut off what lets go of the run.
        """
        try:
            yield
        finally:
            await self._ended.wait()

    async def _end(self, error: BaseException | None) -> None:
        # Before the run is let go of: nothing of it may be at work any more.
        await shielded(self.drive.supersteps.aclose())
        try:
            if error is not None:
                raise error
            await self.drive.succeed()
        except BaseException as failed:
            public = await shielded(self.drive.fail(failed))
            if public is not failed:
                raise public from failed
            if failed is not error:
                raise


def _what_is_known(call: Mapping[str, Any], acts: Sequence[Effect]) -> tuple[str, str]:
    """What a model is told of a call whose step was never finished, and the status of that."""
    states = {act.state for act in acts}
    if states & {EffectState.UNKNOWN, EffectState.INTENT}:
        return "It is not known whether this was done: the work was stopped in the middle of it.", "error"
    done = [act for act in acts if act.state is EffectState.DONE]
    if len(done) == 1 and done[0].name == call["name"]:
        return _as_text(done[0].result), "success"
    if done:
        told = "; ".join(f"{act.name}: {_as_text(act.result)}" for act in done)
        return f"This call did not come to its end: the work was stopped in the middle of it. Done was: {told}", "error"
    return "This call was not carried out, or not to its end: the work was stopped.", "error"


def _as_text(result: Any) -> str:
    result = result.content if isinstance(result, ToolMessage) else result
    return result if isinstance(result, str) else json.dumps(result, default=str)


def _is_command(input: Any) -> bool:
    return isinstance(input, Command)


def _in_a_thread(work: Callable[[], None]) -> Future[None]:
    ended: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    threading.Thread(target=run, name="ninelives-release", daemon=True).start()
    return ended


async def shielded(work: Awaitable[Any]) -> Any:
    """
    To its end, even when the task that asks is being cancelled.

    Also through one `GeneratorExit`: Python throws it a second time into a generator whose closing was cancelled before
    it began, as at the end of `asyncio.run`.
    """
    task, exits = asyncio.ensure_future(work), 0
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
        except GeneratorExit:
            exits += 1
            if exits > 1:
                raise
    return task.result()


def _with(callbacks: Any, watch: BaseCallbackHandler) -> Any:
    if callbacks is None:
        return [watch]
    if isinstance(callbacks, BaseCallbackManager):
        extended = callbacks.copy()
        extended.add_handler(watch, inherit=True)
        return extended
    return [*callbacks, watch]


def call_options(run: Run, given: Mapping[str, Any]) -> dict[str, Any]:
    """Breakpoints of the stored request, unless this call names its own."""
    stored = {"interrupt_before": run.spec.interrupt_before, "interrupt_after": run.spec.interrupt_after}
    return {**{name: value for name, value in stored.items() if value is not None}, **given}


def _place_of(config: RunnableConfig) -> dict[str, str]:
    conf = config["configurable"]
    return {"thread_id": str(conf["thread_id"]), "checkpoint_ns": conf.get("checkpoint_ns", "")}


async def _nothing() -> None:
    """Done already."""
