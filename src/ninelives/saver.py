"""
A store seen as LangGraph's checkpointer, sync and async.

Bound to a claim (`lease=`) every write carries it and is refused once somebody else owns the run. Used alone
(`graph.compile(checkpointer=Saver(store))`) it keeps order and compare-and-set, but has no lease: two processes may
drive one thread, a stale one is stopped only when it tries to extend what others moved on from, and nobody takes over.

A checkpoint is newest because the store says so, not because its id, which is a clock reading, sorts last.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from ninelives import _langgraph
from ninelives.errors import MutatedStateWarning
from ninelives.interrupts import understood
from ninelives.model import NO_USAGE, Lease, NewQuestion, Scope, StoredCheckpoint, Usage
from ninelives.store import Act, PutCheckpoint, PutWrites, Store

log = logging.getLogger(__name__)

ERROR_SOURCE_IDX = -5
"""Beside LangGraph's own special slots (-1…-4): which node failed goes and comes with its error."""
PAGE_MAX = 250
Page: TypeAlias = Act[list[StoredCheckpoint]]
Paths: TypeAlias = list[str]

IDX = {**WRITES_IDX_MAP, _langgraph.ERROR_SOURCE_NODE: ERROR_SOURCE_IDX}


class Saver(BaseCheckpointSaver[int]):
    """
    Args:
        store: where to; one saver may serve many threads and graphs.
        owner: whose threads.
        lease: the claim that every write is made under; None for a saver used alone.
        graph_fp: fingerprint of the graph, recorded with each checkpoint.
        keep: names of `configurable` entries that may be stored with a checkpoint's metadata. All others are not:
            an API key passed as an entry must not end in the database.
        from_nothing: (with a lease) read the thread as empty until the run has put a checkpoint of its own.
        spent: gives, and forgets, what the run has cost since it was last asked.
    """

    def __init__(
        self,
        store: Store,
        *,
        owner: str = "",
        lease: Lease | None = None,
        graph_fp: str | None = None,
        keep: Collection[str] = (),
        from_nothing: bool = False,
        spent: Callable[[], Usage] = Usage,
    ) -> None:
        super().__init__()
        self.store, self.scope, self.lease = store, Scope(owner), lease
        self._graph_fp, self._keep, self._from_nothing, self._spent = graph_fp, frozenset(keep), from_nothing, spent

    _defers = False
    """A task's writes may be committed together with the checkpoint that follows them."""

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Saver:
        """Our types are always an allow-list; names of types found in data are never imported."""
        return self

    # -- reading --------------------------------------------------------------------------------------------------

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._tuple_or_none(self.store.perform(self._get(config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._tuple_or_none(await self.store.aperform(self._get(config)))

    def _get(self, config: RunnableConfig) -> Act[StoredCheckpoint | None]:
        conf = config["configurable"]
        return self.store.get_checkpoint(
            self.scope,
            str(conf["thread_id"]),
            conf.get("checkpoint_ns", ""),
            conf.get("checkpoint_id") or None,
            self.lease,
        )

    def _tuple_or_none(self, stored: StoredCheckpoint | None) -> CheckpointTuple | None:
        if stored is None:
            return None
        if self._from_nothing and self.lease and stored.run_id != self.lease.run_id:
            return None
        return _tuple(stored)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        wanted, below = _Wanted(filter, limit), None
        while wanted.more and (page := self.store.perform(self._page(config, before, below, wanted.page))):
            yield from wanted.of(page)
            below = page[-1].seq

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        wanted, below = _Wanted(filter, limit), None
        while wanted.more and (page := await self.store.aperform(self._page(config, before, below, wanted.page))):
            for found in wanted.of(page):
                yield found
            below = page[-1].seq

    def _page(
        self, config: RunnableConfig | None, before: RunnableConfig | None, below: int | None, limit: int
    ) -> Page:
        conf = config["configurable"] if config else {}
        return self.store.list_checkpoints(
            self.scope,
            thread_id=str(conf["thread_id"]) if "thread_id" in conf else None,
            ns=conf.get("checkpoint_ns"),
            checkpoint_id=conf.get("checkpoint_id") or None,
            before=before["configurable"].get("checkpoint_id") if before else None,
            below_seq=below,
            limit=limit,
        )

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        return _history(self.store.perform(self._delta(config, channels)))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        return _history(await self.store.aperform(self._delta(config, channels)))

    def _delta(self, config: RunnableConfig, channels: Sequence[str]) -> Act[Any]:
        thread_id, ns, checkpoint_id = _place(config)
        return self.store.delta_history(self.scope, thread_id, ns, checkpoint_id, channels, self.lease)

    # -- writing --------------------------------------------------------------------------------------------------

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self._warn(config, self.store.perform(self._put(config, checkpoint, metadata)))
        return _config(*_place(config, checkpoint["id"]))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self._warn(config, await self.store.aperform(self._put(config, checkpoint, metadata)))
        return _config(*_place(config, checkpoint["id"]))

    def _warn(self, config: RunnableConfig, changed: Sequence[str]) -> None:
        for path in changed:
            warnings.warn(MutatedStateWarning(str(config["configurable"]["thread_id"]), path), stacklevel=2)

    def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, *, amends: bool = False
    ) -> Act[Paths]:
        thread_id, ns, _ = _place(config, "")
        source = metadata.get("source", "loop")
        put = PutCheckpoint(
            ns=ns,
            checkpoint_id=checkpoint["id"],
            parent_id=config["configurable"].get("checkpoint_id") or None,
            checkpoint=checkpoint,
            metadata=self._metadata(config, metadata),
            source=source,
            extends=source == "loop",
            graph_fp=self._graph_fp,
            usage=self._spent(),
        )
        return self.store.put_checkpoint(self.scope, thread_id, put, self.lease, amends=amends)

    def _metadata(self, config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
        """
        LangGraph's metadata and the caller's, but no entry of `configurable` that was not allowed.

        LangGraph's own savers keep every plain entry of `configurable`, and some find their way into
        `config["metadata"]`: there a secret would slip in.
        """
        conf, given = config.get("configurable", {}), config.get("metadata") or {}
        allowed = {key: conf[key] for key in self._keep & conf.keys()}
        allowed |= {key: value for key, value in given.items() if key not in conf or key in self._keep}
        extra = {k: v for k, v in allowed.items() if isinstance(v, _PLAIN) and not k.startswith(_RESERVED)}
        return {**extra, **metadata}

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.store.perform(self._put_writes(config, writes, task_id, task_path))

    def aput_writes(  # type: ignore[override]
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> Awaitable[None]:
        """
        Hand the writes over when called, not when awaited.

        LangGraph gates what it awaits by `max_concurrency`: there a finished task's writes would stand in line behind
        tasks that have not begun, and be lost with the process.
        """
        try:
            future = self.store.submit(self._put_writes(config, writes, task_id, task_path))
        except Exception as error:
            future = Future()
            future.set_exception(error)
        return self._submitted(future)

    def _submitted(self, future: Future[None]) -> Awaitable[None]:
        return _done(future)

    def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> Act[None]:
        thread_id, ns, checkpoint_id = _place(config)
        failed = any(channel == _langgraph.ERROR for channel, _ in writes)
        put = PutWrites(
            ns=ns,
            checkpoint_id=checkpoint_id,
            task_id=task_id,
            task_path=task_path,
            writes=_numbered(_of_failure(writes) if failed else writes),
            replace=self.lease is not None and _langgraph.is_input_task(checkpoint_id, task_id),
            questions=self._questions(writes, task_id) if self.lease else (),
            kind=_kind(checkpoint_id, task_id, {channel for channel, _ in writes}),
            usage=self._spent() if self.lease else NO_USAGE,
            defers=self._defers,
        )
        return self.store.put_writes(self.scope, thread_id, put, self.lease)

    def _questions(self, writes: Sequence[tuple[str, Any]], task_id: str) -> Sequence[NewQuestion]:
        asked = [each for channel, value in writes if channel == _langgraph.INTERRUPT for each in value]
        return [understood(each) for each in asked]

    # -- keeping house --------------------------------------------------------------------------------------------

    def delete_thread(self, thread_id: str) -> None:
        self.store.perform(self.store.delete_thread(self.scope, str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        await self.store.aperform(self.store.delete_thread(self.scope, str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.store.perform(self.store.delete_for_runs(self.scope, [*map(str, run_ids)]))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self.store.aperform(self.store.delete_for_runs(self.scope, [*map(str, run_ids)]))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.store.perform(self.store.copy_thread(self.scope, str(source_thread_id), str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self.store.aperform(self.store.copy_thread(self.scope, str(source_thread_id), str(target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread_id in thread_ids:
            self.store.perform(self._prune(thread_id, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread_id in thread_ids:
            await self.store.aperform(self._prune(thread_id, strategy))

    def _prune(self, thread_id: str, strategy: str) -> Act[Any]:
        if strategy == "keep_latest":
            return self.store.prune_thread(self.scope, str(thread_id))
        if strategy == "delete":
            return self.store.delete_thread(self.scope, str(thread_id))
        raise ValueError(f"strategy={strategy!r}: 'keep_latest' or 'delete'")


_PLAIN = (str, int, float, bool)
_RESERVED = ("__", "langgraph_")
_OF_FAILURE = (_langgraph.ERROR, _langgraph.ERROR_SOURCE_NODE, _langgraph.INTERRUPT)


class _Wanted:
    """Which of the listed checkpoints the caller asked for, and whether it wants more."""

    def __init__(self, filter: Mapping[str, Any] | None, limit: int | None) -> None:
        self._filter, self._left = filter or {}, limit

    @property
    def more(self) -> bool:
        return self._left is None or self._left > 0

    @property
    def page(self) -> int:
        """How many to ask for next."""
        return PAGE_MAX if self._filter or self._left is None else min(PAGE_MAX, self._left)

    def of(self, page: Sequence[StoredCheckpoint]) -> Iterator[CheckpointTuple]:
        for stored in page:
            fits = all(stored.metadata.get(key) == value for key, value in self._filter.items())
            if fits and self.more:
                self._left = None if self._left is None else self._left - 1
                yield _tuple(stored)


def _tuple(stored: StoredCheckpoint) -> CheckpointTuple:
    parent = _config(stored.thread_id, stored.ns, stored.parent_id) if stored.parent_id else None
    return CheckpointTuple(
        _config(stored.thread_id, stored.ns, stored.checkpoint_id),
        cast(Checkpoint, stored.checkpoint),
        cast(CheckpointMetadata, stored.metadata),
        parent,
        stored.writes,
    )


def _config(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _place(config: RunnableConfig, checkpoint_id: str | None = None) -> tuple[str, str, str]:
    conf = config["configurable"]
    if checkpoint_id is None:
        checkpoint_id = conf["checkpoint_id"]
    return str(conf["thread_id"]), conf.get("checkpoint_ns", ""), str(checkpoint_id)


def _history(found: Mapping[str, tuple[Sequence[Any], Sequence[Any]]]) -> dict[str, DeltaChannelHistory]:
    history: dict[str, DeltaChannelHistory] = {}
    for channel, (writes, seed) in found.items():
        history[channel] = {"writes": [*writes], "seed": seed[0]} if seed else {"writes": [*writes]}
    return history


def _of_failure(writes: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """
    Of a failed task only the failure is recorded.

    LangGraph would keep what the node had written before, say, its router raised, and then read the task as finished:
    the run would end there, quietly. And it would keep the answer that the node has failed on, and give it to every
    later attempt. Answers to the node's earlier questions were recorded with the question that came next, and stay.
    """
    return [w for w in writes if w[0] in _OF_FAILURE]


def _numbered(writes: Sequence[tuple[str, Any]]) -> list[tuple[int, str, Any]]:
    return [(IDX.get(channel, place), channel, value) for place, (channel, value) in enumerate(writes)]


def _kind(checkpoint_id: str, task_id: str, channels: set[str]) -> str:
    if task_id == _langgraph.NULL_TASK_ID or _langgraph.is_input_task(checkpoint_id, task_id):
        return "input"
    if _langgraph.ERROR in channels:
        return "task_failed"
    return "task_asked" if channels <= {_langgraph.INTERRUPT, _langgraph.RESUME} else "task_done"


async def _done(future: Future[None]) -> None:
    await asyncio.shield(asyncio.wrap_future(future))
