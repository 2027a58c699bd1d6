"""A store with a hand that performs acts on it, and what tests put into one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from clocks import HandClock
from ninelives.model import (
    NO_USAGE,
    ONE_USER,
    SYSTEM,
    Admission,
    Lease,
    NewEffect,
    NewQuestion,
    NewRun,
    RunSpec,
    RunStatus,
    Scope,
    StoredCheckpoint,
    Usage,
    WorkerLease,
)
from ninelives.store import Act, PutCheckpoint, PutWrites, Store

T = TypeVar("T")
TTL_S = 6.0


class Desk:
    """
    Short names for long acts. Everything is on thread "t" of the one user unless a test says otherwise.

    Args:
        sync: whether acts go by `perform` or by `aperform`.
    """

    def __init__(self, store: Store, clock: HandClock, *, sync: bool) -> None:
        self.store, self.clock, self.sync = store, clock, sync
        self._loop = None if sync else asyncio.Runner()

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._loop:
            self._loop.close()

    def do(self, act: Act[T]) -> T:
        return self._loop.run(self.store.aperform(act)) if self._loop else self.store.perform(act)

    # -- workers and runs -----------------------------------------------------------------------------------------

    def worker(self, worker_id: str = "w1", *, ttl_s: float = TTL_S) -> WorkerLease:
        return self.do(self.store.register_worker(worker_id, host="here", pid=1, ttl_s=ttl_s))

    def renew(self, worker: WorkerLease) -> WorkerLease:
        return self.do(self.store.renew_worker(worker, ttl_s=TTL_S))

    def new(self, run_id: str = "r1", thread_id: str = "t", **fields: Any) -> NewRun:
        defaults: dict[str, Any] = {"graph": "g", "spec": RunSpec(input={"n": 1}), "may_create": True}
        return NewRun(run_id, thread_id, **{**defaults, **fields})

    def admit(
        self, worker: WorkerLease, run_id: str = "r1", thread_id: str = "t", *, scope: Scope = ONE_USER, **fields: Any
    ) -> Admission:
        return self.do(self.store.start_run(scope, self.new(run_id, thread_id, **fields), worker))

    def start(
        self, worker: WorkerLease, run_id: str = "r1", thread_id: str = "t", *, scope: Scope = ONE_USER, **fields: Any
    ) -> Lease:
        """A run that has been admitted and claimed."""
        lease = self.admit(worker, run_id, thread_id, scope=scope, **fields).lease
        assert lease is not None
        return lease

    def take_over(self, worker: WorkerLease, run_id: str = "r1") -> Lease:
        lease = self.do(self.store.take_over(ONE_USER, run_id, worker)).lease
        assert lease is not None
        return lease

    def finish(self, lease: Lease, status: RunStatus = RunStatus.DONE, **fields: Any) -> Any:
        return self.do(self.store.finish_run(lease, status, **fields))

    def answer(
        self,
        worker: WorkerLease | None,
        answers: Mapping[str, Any],
        run_id: str = "r2",
        *,
        actor: str = "ann",
        note: str | None = None,
        shown: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Admission:
        new, by = self.new(run_id, **fields), {"actor": actor, "channel": "test", "note": note, "shown": shown}
        return self.do(self.store.answer(ONE_USER, "t", answers, new, worker, **by))  # type: ignore[arg-type]

    # -- state ----------------------------------------------------------------------------------------------------

    def put(self, lease: Lease | None, checkpoint_id: str, parent_id: str | None = None, **fields: Any) -> None:
        self.do(self.putting(lease, checkpoint_id, parent_id, **fields))

    def putting(
        self,
        lease: Lease | None,
        checkpoint_id: str,
        parent_id: str | None = None,
        *,
        thread_id: str = "t",
        scope: Scope = ONE_USER,
        ns: str = "",
        source: str = "loop",
        values: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        versions: Sequence[str] = (),
        usage: Usage = NO_USAGE,
    ) -> Act[list[str]]:
        values = {"n": checkpoint_id} if values is None else values
        checkpoint = {
            "v": 4,
            "id": checkpoint_id,
            "ts": "",
            "channel_values": dict(values),
            "channel_versions": dict.fromkeys([*values, *versions], 1),
            "versions_seen": {},
            "updated_channels": None,
        }
        meta = {"source": source, "step": 0, "parents": {}, **(metadata or {})}
        put = PutCheckpoint(
            ns, checkpoint_id, parent_id, checkpoint, meta, source, source == "loop", graph_fp="fp", usage=usage
        )
        return self.store.put_checkpoint(scope, thread_id, put, lease)

    def write(
        self, lease: Lease | None, checkpoint_id: str, task_id: str, *writes: tuple[Any, ...], **fields: Any
    ) -> None:
        self.do(self.writing(lease, checkpoint_id, task_id, *writes, **fields))

    def writing(
        self,
        lease: Lease | None,
        checkpoint_id: str,
        task_id: str,
        *writes: tuple[Any, ...],
        thread_id: str = "t",
        scope: Scope = ONE_USER,
        ns: str = "",
        path: str = "",
        **fields: Any,
    ) -> Act[None]:
        """`writes` are `(channel, value)`, numbered in order, or `(idx, channel, value)`."""
        numbered = [w if len(w) == 3 else (i, *w) for i, w in enumerate(writes)]
        put = PutWrites(ns, checkpoint_id, task_id, path, numbered, **fields)
        return self.store.put_writes(scope, thread_id, put, lease)

    def ask(
        self,
        lease: Lease,
        interrupt_id: str = "q1",
        payload: Any = "go?",
        *,
        ns: str = "",
        task: str = "k",
        at: str = "c1",
    ) -> None:
        """A task's question, as the saver records it."""
        question = (-3, "__interrupt__", payload)
        self.write(lease, at, task, question, questions=[NewQuestion(interrupt_id, payload)], ns=ns, kind="task_asked")

    def head(self, thread_id: str = "t", *, ns: str = "", scope: Scope = ONE_USER) -> StoredCheckpoint | None:
        return self.do(self.store.get_checkpoint(scope, thread_id, ns, None))

    def get(self, checkpoint_id: str, thread_id: str = "t", *, ns: str = "") -> StoredCheckpoint:
        found = self.do(self.store.get_checkpoint(ONE_USER, thread_id, ns, checkpoint_id))
        assert found is not None
        return found

    def checkpoints(self, thread_id: str = "t", *, ns: str | None = "", scope: Scope = ONE_USER) -> list[str]:
        """Ids, the newest first."""
        found = self.do(self.store.list_checkpoints(scope, thread_id=thread_id, ns=ns))
        return [c.checkpoint_id for c in found]

    def history(self, checkpoint_id: str, channel: str, thread_id: str = "t") -> tuple[list[Any], list[Any]]:
        """What a delta channel replays: written values, and the value they start from (or none)."""
        act = self.store.delta_history(ONE_USER, thread_id, "", checkpoint_id, [channel])
        writes, seed = self.do(act)[channel]
        return [value for _, _, value in writes], seed

    # -- effects ----------------------------------------------------------------------------------------------------

    def effect(self, key: str = "e1", **fields: Any) -> NewEffect:
        defaults: dict[str, Any] = {
            "name": "pay",
            "checkpoint_id": "c1",
            "ns": "",
            "node": "tools",
            "task_id": "k",
            "call_id": "call-1",
            "ordinal": 0,
            "args_digest": b"args",
            "lineage": "line",
        }
        return NewEffect(key=key, **{**defaults, **fields})

    # -- everything -------------------------------------------------------------------------------------------------

    def trace(self) -> list[Any]:
        """All that can be read of the store: two equal traces, and nothing has happened in between."""
        store, do = self.store, self.do
        threads = do(store.list_threads(SYSTEM, limit=1000))
        traces: list[Any] = [
            threads,
            do(store.list_runs(SYSTEM)),
            do(store.list_effects(SYSTEM)),
            do(store.list_workers()),
            do(store.list_queued(SYSTEM)),
        ]
        for thread in threads:
            scope, name = Scope(thread.owner), thread.thread_id
            traces.append(do(store.list_checkpoints(scope, thread_id=name, ns=None, limit=1000)))
            traces.append(do(store.list_interrupts(scope, name, pending_only=False)))
            traces.append(do(store.list_decisions(scope, name)))
            traces.append(do(store.list_calls(scope, name)))
            traces.append(do(store.list_events(scope, name)))
        return traces
