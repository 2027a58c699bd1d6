"""Accepting an input before its turn, and making a run of it when the turn has come."""

from __future__ import annotations

from ninelives.errors import DivergentStateError
from ninelives.model import Admission, NewRun, QueuedInput, Scope, WorkerLease
from ninelives.store import Act, Query, Steps, act, glancing, reading
from ninelives.stores.procedures.base import event
from ninelives.stores.procedures.inputs import key_scope
from ninelives.stores.procedures.runs import RunActs
from ninelives.stores.procedures.threads import open_thread, thread_row
from ninelives.stores.procedures.workers import must_live


class QueueActs(RunActs):
    def queue_input(self, scope: Scope, new: NewRun) -> Act[QueuedInput]:
        return self._queue_input(scope, new, self.frames.seal(self._pack(new.spec)))

    @act
    def _queue_input(self, scope: Scope, new: NewRun, spec: bytes) -> Steps[QueuedInput]:
        if (known := (yield from self.queued_under_key(scope, new))) is not None:
            return self.queued(known)
        if new.key is not None and (run := (yield from self._run_by_key(scope, new.graph, new.key))):
            raise DivergentStateError(new.thread_id, f"key {new.key!r} has become run {run.run_id!r}")
        thread, _ = yield from open_thread(scope, new.thread_id, new.graph, may_create=False)
        newest = yield from self._newest_run(thread["thread_no"])
        if newest is None or not newest.unfinished:
            found = newest.run_id if newest else None
            raise DivergentStateError(new.thread_id, "it waits for nothing any more, so an input need not wait", found)
        yield Query(
            "add_queued_input",
            {
                "thread_no": thread["thread_no"],
                "run_id": new.run_id,
                "graph": new.graph,
                "key_scope": key_scope(scope, new.graph) if new.key is not None else None,
                "key": new.key,
                "request": new.request,
                "spec": spec,
            },
        )
        yield event(thread["thread_no"], "input_queued", ref=new.run_id)
        rows = yield Query("list_queued_inputs", {"thread_no": thread["thread_no"]})
        return self.queued(rows[-1])

    def start_queued(self, scope: Scope, thread_id: str, worker: WorkerLease) -> Act[Admission | None]:
        return self.remembering((scope.owner or "", thread_id), self._start_queued(scope, thread_id, worker))

    @act
    def _start_queued(self, scope: Scope, thread_id: str, worker: WorkerLease) -> Steps[Admission | None]:
        yield from must_live(worker)
        thread = yield from thread_row(scope, thread_id)
        row = (yield from self.next_queued(thread["thread_no"])) if thread else None
        if thread is None or row is None:
            return None
        yield from self._free_slot(thread)
        newest = yield from self._newest_run(thread["thread_no"])
        if newest is not None and newest.unfinished:
            return None
        return (yield from self._insert_queued(scope, thread, row, worker))

    @glancing
    def find_queued(self, scope: Scope, thread_id: str) -> Steps[QueuedInput | None]:
        thread = yield from thread_row(scope, thread_id)
        row = (yield from self.next_queued(thread["thread_no"])) if thread else None
        return self.queued(row) if row else None

    @reading
    def list_queued(self, scope: Scope, thread_id: str | None = None, *, limit: int = 1000) -> Steps[list[QueuedInput]]:
        if thread_id is None:
            rows = yield Query("list_all_queued_inputs", {"owner": scope.owner, "limit": limit})
        else:
            thread = yield from thread_row(scope, thread_id)
            rows = (yield Query("list_queued_inputs", {"thread_no": thread["thread_no"]})) if thread else []
        return [self.queued(row) for row in rows[:limit]]

    @act
    def drop_queued(self, scope: Scope, thread_id: str) -> Steps[list[QueuedInput]]:
        thread = yield from thread_row(scope, thread_id)
        return (yield from self.drop_all_queued(thread["thread_no"])) if thread else []
