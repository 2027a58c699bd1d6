"""Runs: admitting, claiming, ending them. Who may write is decided here and checked by the fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ninelives import _langgraph
from ninelives.errors import (
    DivergentStateError,
    IdempotencyMismatchError,
    InvalidDecisionError,
    LeaseLostError,
    NoCheckpointFoundError,
    ThreadBusyError,
    UnfinishedRunError,
    UnknownTypeError,
)
from ninelives.model import (
    CLOSED,
    COUNTS,
    NO_USAGE,
    Admission,
    InterruptState,
    Lease,
    NewRun,
    Run,
    RunSpec,
    RunStatus,
    Scope,
    Unfinished,
    Unreadable,
    Usage,
    WorkerLease,
)
from ninelives.store import Act, Query, Row, Steps, act, glancing, reading
from ninelives.stores import codec
from ninelives.stores.codec.drafts import Draft, Intake, New
from ninelives.stores.codec.nodes import Form
from ninelives.stores.procedures.base import (
    EVENT_KINDS,
    event,
    fenced,
    one,
    packed_id,
    packed_or_none,
    unpacked,
    unpacked_id,
)
from ninelives.stores.procedures.content import ContentActs, Contents
from ninelives.stores.procedures.inputs import Inputs, key_scope
from ninelives.stores.procedures.questions import Questions
from ninelives.stores.procedures.threads import near, of_thread_or_all, open_thread, thread_row
from ninelives.stores.procedures.workers import must_live

NULL_TASK = packed_id(_langgraph.NULL_TASK_ID)
SPEC_MAX = 128
"""Bytes of a request that is kept in its run's row; a longer one is an item of its thread, like what comes of it."""


class _By(NamedTuple):
    """Who answers, by which way and why; and, by question, the digest of what they were shown."""

    actor: str
    channel: str
    note: bytes | str | None
    shown: Mapping[str, str]


class RunActs(ContentActs, Questions, Inputs):
    # -- admitting and claiming -----------------------------------------------------------------------------------

    def start_run(self, scope: Scope, new: NewRun, worker: WorkerLease) -> Act[Admission]:
        key = (scope.owner or "", new.thread_id)
        return self.remembering(key, self._start_run(scope, new, self._pack(new.spec), worker))

    @act
    def _start_run(self, scope: Scope, new: NewRun, spec: bytes, worker: WorkerLease) -> Steps[Admission]:
        yield from must_live(worker)
        if new.key is not None and (known := (yield from self._run_by_key(scope, new.graph, new.key))):
            return self._known(known, new)
        queued = yield from self.queued_under_key(scope, new)
        thread, created = yield from open_thread(scope, new.thread_id, new.graph, may_create=new.may_create)
        yield from self._free_slot(thread)
        if new.driver != "edit":
            yield from self._settle_newest(thread, new)
            if new.closes is None and (first := (yield from self.next_queued(thread["thread_no"]))):
                return (yield from self._insert_queued(scope, thread, first, worker))
        if queued is not None:
            yield Query("drop_queued_input", {"queued_no": queued["queued_no"]})  # it is this very run
        return (yield from self._insert_run(scope, thread, new, spec, worker, created=created))

    def _known(self, known: Run, new: NewRun) -> Admission:
        if known.request != new.request:
            raise IdempotencyMismatchError(str(new.key), known.run_id)
        return Admission(known, None)

    def _free_slot(self, thread: Row) -> Steps[None]:
        """The one running slot of a thread: a dead holder's run lets go of it, a live one's is respected."""
        for row in (yield Query("release_dead_run", {"thread_no": thread["thread_no"]})):
            yield event(thread["thread_no"], "run_cut_off", run_no=row["run_no"])
        held = one((yield Query("find_held_run", {"thread_no": thread["thread_no"]})))
        if held:
            raise ThreadBusyError(thread["thread_id"], unpacked_id(held["run_id"]), held["worker"])

    def _settle_newest(self, thread: Row, new: NewRun) -> Steps[None]:
        row = one((yield Query("find_newest_run", {"thread_no": thread["thread_no"]})))
        newest = self._record(row, RunSpec()) if row else None
        if new.closes is not None and (newest is None or newest.run_id != new.closes):
            found = newest.run_id if newest else None
            raise DivergentStateError(thread["thread_id"], f"run {new.closes!r} is not its newest run", found)
        if newest is None or not newest.unfinished:
            return
        if new.closes is None:
            newest = yield from self._run(Scope(thread["owner"]), newest.run_id)
            raise UnfinishedRunError(Unfinished(newest, usage=newest.usage))
        if new.supersedes:
            for row in (yield Query("pending_interrupts", {"thread_no": thread["thread_no"]})):
                yield event(thread["thread_no"], "question_superseded", run_no=newest.run_no, ref=row["interrupt_id"])
            superseded = {"thread_no": thread["thread_no"], "state": InterruptState.SUPERSEDED.value}
            yield Query("withdraw_interrupts", superseded)
        yield from self._close(thread, newest, RunStatus.ABANDONED, "superseded")

    def _insert_queued(self, scope: Scope, thread: Row, row: Row, worker: WorkerLease) -> Steps[Admission]:
        """The run of an input whose turn has come."""
        frame = self.frames.open(row["spec"])
        new = NewRun(
            run_id=row["run_id"],
            thread_id=row["thread_id"],
            graph=row["graph"],
            spec=self.spec_in(frame),
            request=row["request"],
            key=row["key"],
        )
        yield Query("drop_queued_input", {"queued_no": row["queued_no"]})
        return (yield from self._insert_run(scope, thread, new, frame, worker))

    def _insert_run(
        self,
        scope: Scope,
        thread: Row,
        new: NewRun,
        spec: bytes,
        worker: WorkerLease | None,
        *,
        created: bool = False,
        parent: Run | None = None,
    ) -> Steps[Admission]:
        head = one((yield Query("find_head", {"thread_no": thread["thread_no"], "ns": ""})))
        base = (unpacked_id(head["checkpoint_id"]) if head else None) if new.take_head_as_base else new.base
        node = yield from self._keep_spec(scope, thread, spec)
        rows = yield Query(
            "add_run",
            {
                "run_id": packed_id(new.run_id),
                "thread_no": thread["thread_no"],
                "graph": new.graph,
                "key_scope": key_scope(scope, new.graph) if new.key is not None else None,
                "key": new.key,
                "request": new.request,
                "spec": node,
                "driver": new.driver,
                "chain": packed_id(parent.chain) if parent else None,
                "continues": packed_id(parent.run_id) if parent else None,
                "replaces": packed_or_none(new.replaces),
                "forks": None if parent else (yield from self._begins_anew(thread, new, base)),
                "base": packed_or_none(parent.base if parent else base),
                "worker": worker.worker_id if worker else None,
                "epoch": (yield from _next_epoch()),
            },
        )
        yield event(thread["thread_no"], "run_started", run_no=rows[0]["run_no"])
        run = yield from self._run(scope, new.run_id, new.spec)
        return Admission(run, _lease(run, thread["thread_no"], worker) if worker else None, created)

    def _begins_anew(self, thread: Row, new: NewRun, base: str | None) -> Steps[int | None]:
        """Where another branch may have acted since: the event that the run starts over or forks from, if it does."""
        if new.driver == "edit":
            return None
        if base is None:
            return 0 if new.spec.from_base else None
        place = {"thread_no": thread["thread_no"], "base": packed_id(base)}
        row = one((yield Query("branch_point", place)))
        return row["seq"] if row and (new.spec.from_base or row["passed"]) else None

    @act
    def take_over(self, scope: Scope, run_id: str, worker: WorkerLease, *, leave: bool = False) -> Steps[Admission]:
        yield from must_live(worker)
        run = yield from self._run(scope, run_id)
        thread = yield from _thread_of(run)
        yield from self._free_slot(thread)
        newest = yield from self._newest_run(thread["thread_no"])
        if run.status in CLOSED or newest is None or newest.run_id != run_id:
            raise LeaseLostError(run_id, run.epoch)
        epoch = yield from _next_epoch()
        yield Query("claim_run", {"run_id": packed_id(run_id), "worker": worker.worker_id, "epoch": epoch})
        yield event(thread["thread_no"], "run_taken_over", run_no=run.run_no, ref=run.worker_id or "")
        if leave and (head := one((yield Query("find_head", {"thread_no": thread["thread_no"], "ns": ""})))):
            passed = unpacked_id(head["checkpoint_id"])
            yield event(thread["thread_no"], "gate_passed", run_no=run.run_no, ref=passed)
        run = yield from self._run(scope, run_id)
        return Admission(run, _lease(run, thread["thread_no"], worker))

    def answer(
        self,
        scope: Scope,
        thread_id: str,
        answers: Mapping[str, Any],
        new: NewRun,
        worker: WorkerLease | None,
        *,
        actor: str,
        channel: str,
        shown: Mapping[str, str] | None = None,
        note: str | None = None,
    ) -> Act[Admission]:
        values = {interrupt_id: self.encode(value) for interrupt_id, value in answers.items()}
        by = _By(actor, channel, self.private(note), shown or {})
        spec = self._pack(new.spec)
        return self.remembering(
            (scope.owner or "", thread_id), self._answer(scope, thread_id, values, new, spec, worker, by)
        )

    @act
    def _answer(
        self,
        scope: Scope,
        thread_id: str,
        values: Mapping[str, bytes],
        new: NewRun,
        spec: bytes,
        worker: WorkerLease | None,
        by: _By,
    ) -> Steps[Admission]:
        if worker is not None:
            yield from must_live(worker)
        if new.key is not None and (known := (yield from self._run_by_key(scope, new.graph, new.key))):
            return self._known(known, new)
        if (queued := (yield from self.queued_under_key(scope, new))) is not None:
            yield Query("drop_queued_input", {"queued_no": queued["queued_no"]})  # it is this very request
        thread, _ = yield from open_thread(scope, thread_id, new.graph, may_create=False)
        rows = yield Query("pending_interrupts", {"thread_no": thread["thread_no"]})
        asked = {row["interrupt_id"]: row for row in rows}
        for interrupt_id in values:
            if interrupt_id not in asked:
                raise (yield from self.not_pending(thread, interrupt_id, [*asked]))
        yield from self._free_slot(thread)
        parent = yield from self._newest_run(thread["thread_no"])
        for interrupt_id in values:
            if not (yield from self.is_asked(thread, asked[interrupt_id])):
                why = f"interrupt {interrupt_id!r} is not pending: the state has moved on from it"
                raise InvalidDecisionError(why, [one for one in asked if one != interrupt_id])
            which = {name: asked[interrupt_id][name] for name in ("interrupt_id", "ask_no")}
            if (yield Query("due_question", {**which, "thread_no": thread["thread_no"]})):
                raise InvalidDecisionError(f"the time to answer interrupt {interrupt_id!r} is over", [*asked])
            if by.shown.get(interrupt_id, asked[interrupt_id]["digest"].hex()) != asked[interrupt_id]["digest"].hex():
                why = f"interrupt {interrupt_id!r} asks something else now than what was shown"
                raise InvalidDecisionError(why, [*asked])
        if parent is None or not values:
            raise InvalidDecisionError("nothing was answered", [*asked])
        yield Query("set_run_waiting", {"run_no": parent.run_no})
        admission = yield from self._insert_run(scope, thread, new, spec, worker, parent=parent)
        yield from self._decide(thread, values, asked, admission.run, by)
        return admission

    def _decide(
        self, thread: Row, values: Mapping[str, bytes], asked: Mapping[str, Row], run: Run, by: _By
    ) -> Steps[None]:
        for interrupt_id, value in values.items():
            question = asked[interrupt_id]
            which = {"thread_no": thread["thread_no"], "interrupt_id": interrupt_id, "ask_no": question["ask_no"]}
            said = {"actor": by.actor, "channel": by.channel, "note": by.note, "digest": question["digest"]}
            yield Query("add_decision", {**which, **said, "value": value, "run_id": packed_id(run.run_id)})
            yield Query("set_interrupt_answered", which)
            kind = "would_ask" if by.channel == "shadow" else "decision"
            yield event(thread["thread_no"], kind, run_no=run.run_no, ref=interrupt_id)

    # -- ending ---------------------------------------------------------------------------------------------------

    @act
    def finish_run(
        self,
        lease: Lease,
        status: RunStatus,
        *,
        cause: str | None = None,
        usage: Usage = NO_USAGE,
        spec: RunSpec | None = None,
    ) -> Steps[Run]:
        params = {"run_no": lease.run_no, "thread_no": lease.thread_no, "status": status.value, "cause": cause}
        yield from fenced(lease)
        yield from self._end(params)
        yield from spend(lease, usage)
        if status is RunStatus.DONE:
            yield Query("withdraw_interrupts_after", {"thread_no": lease.thread_no, "run_no": lease.run_no})
            yield Query("drop_journal", {"thread_no": lease.thread_no})
        yield event(lease.thread_no, f"run_{'drained' if status is RunStatus.QUEUED else status}", lease=lease)
        return (yield from self._run(Scope(lease.owner), lease.run_id, spec))

    @act
    def close_run(self, scope: Scope, run_id: str, status: RunStatus, *, by: str) -> Steps[Run]:
        run = yield from self._run(scope, run_id)
        thread = yield from _thread_of(run)
        yield from self._free_slot(thread)
        seen = run.status is RunStatus.EXPIRED and status is RunStatus.ABANDONED
        if run.unfinished or seen:
            yield from self._close(thread, run, status, by)
            if status is not RunStatus.EXPIRED:
                yield from self.drop_all_queued(thread["thread_no"])
        return (yield from self._run(scope, run_id))

    def _close(self, thread: Row, run: Run, status: RunStatus, by: str) -> Steps[None]:
        which = {"run_no": run.run_no, "thread_no": thread["thread_no"]}
        yield from self._end({**which, "status": status.value, "cause": by})
        state = InterruptState.EXPIRED if status is RunStatus.EXPIRED else InterruptState.WITHDRAWN
        yield Query("withdraw_interrupts", {"thread_no": thread["thread_no"], "state": state.value})
        yield from self._withdraw_input(thread["thread_no"], run)
        yield Query("leave_effects_unknown", {"thread_no": thread["thread_no"]})
        yield event(thread["thread_no"], f"run_{status}", run_no=run.run_no, ref=by)

    def _end(self, params: Mapping[str, Any]) -> Steps[None]:
        head = one((yield Query("find_head", {"thread_no": params["thread_no"], "ns": ""})))
        params = {**params, "cause": self.private(params["cause"])}
        yield Query("end_run", {**params, "last_checkpoint": head["checkpoint_id"] if head else None})

    def _withdraw_input(self, thread_no: int, run: Run) -> Steps[None]:
        """Input that the closed run left at the head and never moved on from: the next run must not apply it."""
        head = one((yield Query("find_head", {"thread_no": thread_no, "ns": ""})))
        if head is not None:
            place = {"thread_no": thread_no, "place": head["seq"], "run_no": run.run_no}
            input_task = packed_id(_langgraph.input_task(unpacked_id(head["checkpoint_id"])))
            yield Query("drop_input", {**place, "null_task": NULL_TASK, "input_task": input_task})

    # -- reading --------------------------------------------------------------------------------------------------

    @glancing
    def holds(self, lease: Lease) -> Steps[bool]:
        return bool((yield Query("holds", {"run_no": lease.run_no, "epoch": lease.epoch})))

    @reading
    def get_run(self, scope: Scope, run_id: str) -> Steps[Run]:
        return (yield from self._run(scope, run_id))

    @reading
    def find_run_by_key(self, scope: Scope, graph: str, key: str) -> Steps[Run | None]:
        return (yield from self._run_by_key(scope, graph, key))

    @reading
    def find_newest_run(self, scope: Scope, thread_id: str) -> Steps[Run | None]:
        thread = yield from thread_row(scope, thread_id)
        return (yield from self._newest_run(thread["thread_no"])) if thread else None

    @reading
    def list_runs(
        self, scope: Scope, *, thread_id: str | None = None, status: RunStatus | None = None, limit: int = 50
    ) -> Steps[list[Run]]:
        params = {"owner": scope.owner, "thread_id": thread_id, "status": status and status.value, "limit": limit}
        rows = yield from of_thread_or_all("runs", scope, thread_id, params)
        return (yield from self._records(rows))

    @reading
    def chain_usage(self, scope: Scope, chain: str) -> Steps[Usage]:
        params = {"owner": scope.owner, "chain": packed_id(chain)}
        usage = _usage((yield Query("chain_usage", params))[0])
        rows = yield Query("chain_models", params)
        models = {row["model"]: (row["model_calls"], row["tokens_in"], row["tokens_out"]) for row in rows}
        return replace(usage, by_model=models)

    @glancing
    def has_leave(self, lease: Lease) -> Steps[bool]:
        head = one((yield Query("find_head", {"thread_no": lease.thread_no, "ns": ""})))
        place = {"thread_no": lease.thread_no, "checkpoint_id": head["checkpoint_id"] if head else None}
        kind = EVENT_KINDS.index("gate_passed")
        return bool((yield Query("has_leave", {"run_no": lease.run_no, "kind": kind, **place})))

    @glancing
    def status_before(self, lease: Lease) -> Steps[RunStatus | None]:
        row = one((yield Query("status_before", {"thread_no": lease.thread_no, "run_no": lease.run_no})))
        return RunStatus(row["status"]) if row else None

    @glancing
    def has_begun(self, lease: Lease) -> Steps[tuple[bool, bool]]:
        params = {"run_no": lease.run_no, "thread_no": lease.thread_no, "null_task": NULL_TASK}
        row = (yield Query("has_begun", params))[0]
        return bool(row["checkpoint"]), bool(row["command"])

    # -- shared ---------------------------------------------------------------------------------------------------

    def _run(self, scope: Scope, run_id: str, spec: RunSpec | None = None) -> Steps[Run]:
        """`spec`: where the caller knows it already."""
        row = one((yield Query("get_run", {"owner": scope.owner, "run_id": packed_id(run_id)})))
        if row is None:
            raise NoCheckpointFoundError(run_id, what="run", why="is not known here")
        return (yield from self._records([row]))[0] if spec is None else self._record(row, spec)

    def _run_by_key(self, scope: Scope, graph: str, key: str) -> Steps[Run | None]:
        params = {"key_scope": key_scope(scope, graph), "key": key}
        row = one((yield Query("find_run_by_key", params)))
        return (yield from self._records([row]))[0] if row else None

    def _newest_run(self, thread_no: int) -> Steps[Run | None]:
        row = one((yield Query("find_newest_run", {"thread_no": thread_no})))
        return (yield from self._records([row]))[0] if row else None

    def _pack(self, spec: RunSpec) -> bytes:
        fields = {name: getattr(spec, name) for name in RunSpec.__slots__}
        return codec.encode({name: value for name, value in fields.items() if value is not None}, self.types)

    def _keep_spec(self, scope: Scope, thread: Row, frame: bytes) -> Steps[bytes]:
        """The request, as a node: its text lies beside the messages that are made of it, and costs little there."""
        if len(frame) <= SPEC_MAX:
            return self.frames.seal(Intake(0, None, self.frames).node(Draft(Form.INLINE, frame=frame), None))
        row = (yield Query("counters", {"thread_no": thread["thread_no"]}))[0]
        memory = self.current((scope.owner or "", thread["thread_id"]), row)
        intake = Intake(row["item_next"], memory, self.frames)
        node = intake.node(Draft(Form.VALUE, pieces=[New(frame, self.frames.digest(frame))]), None)
        yield from self.add_items(row, intake)
        yield self.set_counters(row, intake)
        if memory is not None:
            self.remember(memory, row, intake)
        return self.frames.seal(node)

    def _records(self, rows: Sequence[Row]) -> Steps[list[Run]]:
        specs: dict[int, RunSpec] = {}
        for thread_no in dict.fromkeys(row["thread_no"] for row in rows):
            nodes = {row["run_no"]: self.frames.open(row["spec"]) for row in rows if row["thread_no"] == thread_no}
            found = yield from self.contents(thread_no, nodes.values())
            specs |= {run_no: self._spec(node, found) for run_no, node in nodes.items()}
        return [self._record(row, specs[row["run_no"]]) for row in rows]

    def _spec(self, node: bytes, found: Contents) -> RunSpec:
        """A request with a class that this program does not allow can be listed, not driven."""
        try:
            return RunSpec(**(found.join(node, set(), "request") or {}))
        except UnknownTypeError as error:
            return RunSpec(input=Unreadable(error))

    def _record(self, row: Row, spec: RunSpec) -> Run:
        values = unpacked(row, "run_id", "chain", "continues", "replaces", "base", "last_checkpoint")
        usage = _usage(values)
        for name in (*COUNTS, "spec", "thread_no"):
            values.pop(name)
        values["cause"] = self.public(values["cause"])
        values["status"] = RunStatus(values["status"])
        values["worker_alive"] = bool(values["worker_alive"])
        return Run(spec=spec, usage=usage, **values)


def spend(lease: Lease, usage: Usage) -> Steps[None]:
    """Add to what the run has cost, in the transaction that records what it was spent on."""
    if usage:
        yield Query("add_usage", {"run_no": lease.run_no, **{name: getattr(usage, name) for name in COUNTS}})
    if usage.by_model:
        rows = [
            {"run_no": lease.run_no, "model": model, "model_calls": calls, "tokens_in": read, "tokens_out": said}
            for model, (calls, read, said) in usage.by_model.items()
        ]
        yield Query("add_model_usage", many=rows)


def _usage(row: Row) -> Usage:
    counts: dict[str, Any] = {name: row[name] or 0 for name in COUNTS}
    return Usage(**counts)


def _next_epoch() -> Steps[int]:
    return int((yield Query("next_epoch"))[0]["value"])


def _thread_of(run: Run) -> Steps[Row]:
    row = yield from thread_row(Scope(run.owner), run.thread_id)
    if row is None:
        raise NoCheckpointFoundError(run.thread_id, near=(yield from near(Scope(run.owner), run.thread_id)))
    return row


def _lease(run: Run, thread_no: int, worker: WorkerLease) -> Lease:
    return Lease(run.run_id, run.epoch, run.owner, run.thread_id, worker.worker_id, run.run_no, thread_no)
