"""Who is believed alive."""

from __future__ import annotations

from dataclasses import replace

from ninelives.errors import WorkerLostError
from ninelives.model import Worker, WorkerLease
from ninelives.store import Query, Steps, act, glancing
from ninelives.stores.procedures.base import Procedures


class WorkerActs(Procedures):
    @act
    def register_worker(self, worker_id: str, *, host: str, pid: int, ttl_s: float) -> Steps[WorkerLease]:
        rows = yield Query("add_worker", {"worker_id": worker_id, "host": host, "pid": pid, "ttl_s": ttl_s})
        if not rows:
            raise WorkerLostError(worker_id)
        return WorkerLease(worker_id, rows[0]["expires_at"])

    @act
    def renew_worker(self, worker: WorkerLease, *, ttl_s: float) -> Steps[WorkerLease]:
        rows = yield Query("renew_worker", {"worker_id": worker.worker_id, "ttl_s": ttl_s})
        if not rows:
            raise WorkerLostError(worker.worker_id)
        return replace(worker, expires_at=rows[0]["expires_at"])

    @act
    def bury_worker(self, worker_id: str) -> Steps[bool]:
        return bool((yield Query("drop_worker", {"worker_id": worker_id})))

    @glancing
    def list_workers(self) -> Steps[list[Worker]]:
        return [Worker(**row) for row in (yield Query("list_workers"))]


def must_live(worker: WorkerLease) -> Steps[None]:
    """Only a worker that is believed alive may claim."""
    if not (yield Query("find_live_worker", {"worker_id": worker.worker_id})):
        raise WorkerLostError(worker.worker_id)
