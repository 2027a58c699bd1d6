"""
Checkpoints and task writes: putting them under a claim, and building them up again.

A checkpoint's row holds its versions and, per channel, a *node*: which items the value is made of. Items are content,
kept once per thread. Encoding happens before the transaction, decoding after the last statement has been read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ninelives import _langgraph
from ninelives.errors import DivergentStateError, LackOfSnapshotFrequency, StoreCorruptError
from ninelives.model import ONE_USER, Lease, Scope, StoredCheckpoint
from ninelives.store import Act, PutCheckpoint, PutWrites, Query, Row, Steps, act, reading
from ninelives.stores import codec
from ninelives.stores.procedures.base import Procedures, claim_of, event, fenced, one
from ninelives.stores.procedures.runs import spend
from ninelives.stores.procedures.threads import add_thread, as_json, must_be_free, reopened, thread_row

CHAIN_PAGE = 64
"""Ancestors fetched at once; a DeltaChannel's snapshot is at most 50 updates away by deepagents' default."""

Items = Mapping[bytes, bytes]


class StateActs(Procedures):
    # -- putting --------------------------------------------------------------------------------------------------

    def put_checkpoint(self, scope: Scope, thread_id: str, put: PutCheckpoint, lease: Lease | None) -> Act[None]:
        skeleton = {k: v for k, v in put.checkpoint.items() if k != "channel_values"}
        nodes, items = self._split(put.checkpoint["channel_values"].items(), "channel_values.")
        packed = {
            "body": self.encode({**skeleton, "nodes": nodes}),
            "metadata": self.encode(dict(put.metadata)),
            "run_ref": None if lease else put.metadata.get("run_id"),
        }
        return self._put_checkpoint(scope, thread_id, put, packed, items, lease)

    @act
    def _put_checkpoint(
        self,
        scope: Scope,
        thread_id: str,
        put: PutCheckpoint,
        packed: Mapping[str, Any],
        items: Items,
        lease: Lease | None,
    ) -> Steps[None]:
        thread_no = yield from self._writable(scope, thread_id, lease)
        place = {"thread_no": thread_no, "ns": put.ns, "checkpoint_id": put.checkpoint_id, "parent_id": put.parent_id}
        row = {**place, **packed, **claim_of(lease), "source": put.source, "graph_fp": put.graph_fp}
        yield from _add_items(thread_no, items)
        if lease or not (yield Query("rewrite_checkpoint", row)):
            yield from self._move_head(thread_id, place, extends=put.extends)
            yield Query("add_checkpoint", row)
        yield Query("touch_thread", {"thread_no": thread_no})
        yield event(thread_no, "checkpoint", lease=lease, ref=put.checkpoint_id)
        if lease:
            yield from spend(lease, put.usage)
            yield from fenced(lease)

    def _move_head(self, thread_id: str, place: Mapping[str, Any], *, extends: bool) -> Steps[None]:
        if place["parent_id"] is not None:
            if (yield Query("move_tip", place)):
                return
            if extends:
                head = one((yield Query("find_head", place)))
                what = f"checkpoint {place['parent_id']!r} has been moved on from by somebody else"
                raise DivergentStateError(thread_id, what, head["checkpoint_id"] if head else None)
        yield Query("open_branch", place)

    def put_writes(self, scope: Scope, thread_id: str, put: PutWrites, lease: Lease | None) -> Act[None]:
        nodes, items = self._split(
            ((idx, value) for idx, _, value in put.writes), f"writes of task {put.task_id}, number "
        )
        rows = [{"idx": idx, "channel": channel, "node": nodes[idx]} for idx, channel, _ in put.writes]
        questions = [(interrupt_id, self.encode(payload)) for interrupt_id, payload in put.questions]
        return self._put_writes(scope, thread_id, put, rows, items, questions, lease)

    @act
    def _put_writes(
        self,
        scope: Scope,
        thread_id: str,
        put: PutWrites,
        rows: Sequence[Mapping[str, Any]],
        items: Items,
        questions: Sequence[tuple[str, bytes]],
        lease: Lease | None,
    ) -> Steps[None]:
        thread_no = yield from self._writable(scope, thread_id, lease)
        place = {"thread_no": thread_no, "ns": put.ns, "checkpoint_id": put.checkpoint_id, "task_id": put.task_id}
        full = [{**place, "task_path": put.task_path, **claim_of(lease), **row} for row in rows]
        yield from _add_items(thread_no, items)
        if put.withdraw:
            yield Query("drop_writes", {**place, "idxs": as_json(put.withdraw)})
        if put.replace:
            yield Query("drop_foreign_writes", {**place, **claim_of(lease)})
        if special := [row for row in full if row["idx"] < 0]:
            yield Query("set_writes", many=special)
        regular = [row for row in full if row["idx"] >= 0]
        if regular and (new := (yield from self._not_yet_written(thread_id, place, regular))):
            yield Query("add_writes", many=new)
        for interrupt_id, payload in questions:
            asked = {**place, **claim_of(lease), "interrupt_id": interrupt_id, "payload": payload}
            if (yield Query("add_interrupt", asked)):
                yield event(thread_no, "question", lease=lease, ref=interrupt_id)
        yield event(thread_no, put.kind, lease=lease, ref=put.task_id)
        if lease:
            yield from spend(lease, put.usage)
            yield from fenced(lease)

    def _not_yet_written(
        self, thread_id: str, place: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
    ) -> Steps[list[Mapping[str, Any]]]:
        """
        Those of a task's writes that are to be added: all of them, or none.

        A task is recorded once: what is there already must be what this invocation computed. Only input (the null
        task) is added to; it is put again as a whole, and a shorter list of it is an older one.
        """
        stored = {row["idx"]: (row["channel"], row["node"]) for row in (yield Query("written", place))}
        computed = {row["idx"]: (row["channel"], row["node"]) for row in rows}
        grows = place["task_id"] == _langgraph.NULL_TASK_ID
        common = stored.keys() & computed.keys() if grows or not stored else stored.keys() | computed.keys()
        if any(stored.get(idx) != computed.get(idx) for idx in common):
            what = f"task {place['task_id']!r} was recorded by another invocation, with another result"
            raise DivergentStateError(thread_id, what)
        return [row for row in rows if row["idx"] not in stored]

    def _writable(self, scope: Scope, thread_id: str, lease: Lease | None) -> Steps[int]:
        """
        The thread's number. A saver used alone makes the thread and may write while no live run holds it.

        The fence comes last, but is asked first too: a writer that is late should hear `LeaseLostError`, not what its
        successor has made of the state since. A claim is for one thread: on another one, which a node called with an id
        of its own, its saver is one used alone, but still fenced.
        """
        if lease:
            yield from fenced(lease)
            if thread_id == lease.thread_id:
                return lease.thread_no
        row = yield from thread_row(scope, thread_id)
        if row is None:
            row = yield from add_thread(scope, thread_id, "")
        yield from reopened(row)
        yield from must_be_free(row)
        return int(row["thread_no"])

    def _split(self, values: Iterable[tuple[Any, Any]], where: str) -> tuple[dict[Any, bytes], dict[bytes, bytes]]:
        nodes: dict[Any, bytes] = {}
        items: dict[bytes, bytes] = {}
        for name, value in values:
            nodes[name], parts = codec.split(value, self.types, path=f"{where}{name}")
            items.update(parts)
        return nodes, items

    # -- reading --------------------------------------------------------------------------------------------------

    @reading
    def get_checkpoint(
        self, scope: Scope, thread_id: str, ns: str, checkpoint_id: str | None
    ) -> Steps[StoredCheckpoint | None]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return None
        name = "newest_checkpoint" if checkpoint_id is None else "one_checkpoint"
        place = {"thread_no": thread["thread_no"], "ns": ns, "checkpoint_id": checkpoint_id}
        found = yield from self._build((yield Query(name, place)))
        return found[0] if found else None

    @reading
    def list_heads(self, scope: Scope, thread_id: str) -> Steps[list[StoredCheckpoint]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return []
        return (yield from self._build((yield Query("list_heads", {"thread_no": thread["thread_no"]}))))

    @reading
    def list_checkpoints(
        self,
        scope: Scope,
        *,
        thread_id: str | None,
        ns: str | None,
        checkpoint_id: str | None = None,
        before: str | None = None,
        below_seq: int | None = None,
        limit: int = 100,
    ) -> Steps[list[StoredCheckpoint]]:
        params: dict[str, Any] = {"owner": scope.owner, "thread_no": None, "ns": ns, "checkpoint_id": checkpoint_id}
        if thread_id is not None:
            thread = yield from thread_row(scope if scope.owner is not None else ONE_USER, thread_id)
            if thread is None:
                return []
            params["thread_no"] = thread["thread_no"]
        if before is not None:
            seq = (yield Query("find_seq", {**params, "checkpoint_id": before}))[0]["seq"]
            below_seq = min(s for s in (seq, below_seq) if s is not None) if seq is not None else 0
        name = "list_checkpoints" if thread_id is None else "list_thread_checkpoints"
        return (yield from self._build((yield Query(name, {**params, "below": below_seq, "limit": limit}))))

    def _build(self, rows: list[Row]) -> Steps[list[StoredCheckpoint]]:
        """Checkpoints with their writes and content: two statements per thread, whatever their age and number."""
        built: dict[int, StoredCheckpoint] = {}
        for thread_no in {row["thread_no"] for row in rows}:
            mine = [row for row in rows if row["thread_no"] == thread_no]
            keys = as_json([row["ns"], row["checkpoint_id"]] for row in mine)
            writes = yield Query("writes_of", {"thread_no": thread_no, "keys": keys})
            bodies = {row["seq"]: self.decode(row["body"]) for row in mine}
            nodes = [node for body in bodies.values() for node in body["nodes"].values()]
            items = yield from _get_items(thread_no, [*nodes, *(write["node"] for write in writes)])
            by_place: dict[tuple[str, str], list[Row]] = {}
            for write in writes:
                by_place.setdefault((write["ns"], write["checkpoint_id"]), []).append(write)
            for row in mine:
                own = by_place.get((row["ns"], row["checkpoint_id"]), [])
                built[row["seq"]] = self._assemble(row, bodies[row["seq"]], own, items)
        return [built[row["seq"]] for row in rows]

    def _assemble(self, row: Row, body: dict[str, Any], writes: list[Row], items: Items) -> StoredCheckpoint:
        body["channel_values"] = {
            name: self._join(node, items, f"channel {name!r}") for name, node in body.pop("nodes").items()
        }
        return StoredCheckpoint(
            thread_id=row["thread_id"],
            ns=row["ns"],
            checkpoint_id=row["checkpoint_id"],
            parent_id=row["parent_id"],
            checkpoint=body,
            metadata=self.decode(row["metadata"]),
            writes=[
                (w["task_id"], w["channel"], self._join(w["node"], items, f"write {w['channel']!r}")) for w in writes
            ],
            seq=row["seq"],
            run_id=row["run_id"],
            graph_fp=row["graph_fp"],
            created_at=row["created_at"],
        )

    def _join(self, node: bytes, items: Items, what: str) -> Any:
        def fetch(digest: bytes) -> bytes:
            try:
                return items[digest]
            except KeyError:
                raise StoreCorruptError(f"{what}: item {digest.hex()} is missing from the store") from None

        return codec.join(node, fetch, self.types)

    @reading
    def delta_history(
        self, scope: Scope, thread_id: str, ns: str, checkpoint_id: str, channels: Sequence[str]
    ) -> Steps[dict[str, tuple[list[tuple[str, str, Any]], list[Any]]]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return {name: ([], []) for name in channels}
        place = {"thread_no": thread["thread_no"], "ns": ns}
        chains, seeds = yield from self._walk(thread_id, place, checkpoint_id, channels)
        ids = sorted({ancestor for chain in chains.values() for ancestor in chain})
        params = {**place, "channels": as_json(channels), "ids": as_json(ids)}
        writes = yield Query("channel_writes", params)
        nodes = [*seeds.values(), *(write["node"] for write in writes)]
        items = yield from _get_items(thread["thread_no"], nodes)
        by_place: dict[tuple[str, str], list[Row]] = {}
        for write in writes:
            by_place.setdefault((write["channel"], write["checkpoint_id"]), []).append(write)
        history = {}
        for name in channels:
            replay = [w for ancestor in reversed(chains[name]) for w in by_place.get((name, ancestor), [])]
            values = [(w["task_id"], name, self._join(w["node"], items, f"write {name!r}")) for w in replay]
            seed = [self._join(seeds[name], items, f"channel {name!r}")] if name in seeds else []
            history[name] = (values, seed)
        return history

    def _walk(
        self, thread_id: str, place: Mapping[str, Any], checkpoint_id: str, channels: Sequence[str]
    ) -> Steps[tuple[dict[str, list[str]], dict[str, bytes]]]:
        """Per channel: the ancestors whose writes it replays, nearest first; and the node of its first value."""
        chains: dict[str, list[str]] = {name: [] for name in channels}
        seeds: dict[str, bytes] = {}
        walked: set[str] = set()
        cursor: str | None = checkpoint_id
        while cursor is not None and len(seeds) < len(chains):
            rows = yield Query("ancestors", {**place, "checkpoint_id": cursor, "limit": CHAIN_PAGE})
            if not rows:
                raise LackOfSnapshotFrequency(
                    f"thread {thread_id!r}: checkpoint {cursor!r}, which channel"
                    f" {', '.join(sorted(set(channels) - seeds.keys()))!r} is rebuilt from, is not in the store."
                    " Start over from an older checkpoint; set a lower snapshot_frequency on the channel to need fewer."
                )
            for row in rows:
                if row["checkpoint_id"] != checkpoint_id and row["checkpoint_id"] not in walked:
                    walked.add(row["checkpoint_id"])
                    nodes = self.decode(row["body"])["nodes"]
                    for name in (name for name in channels if name not in seeds):
                        chains[name].append(row["checkpoint_id"])
                        if name in nodes:
                            seeds[name] = nodes[name]
            cursor = rows[-1]["parent_id"]
            if cursor in walked or cursor == checkpoint_id:
                break  # a saver used alone re-put an ancestor under its own descendant
        return chains, seeds


def _add_items(thread_no: int, items: Items) -> Steps[None]:
    if items:
        rows = [{"thread_no": thread_no, "digest": digest, "frame": frame} for digest, frame in items.items()]
        yield Query("add_items", many=rows)


def _get_items(thread_no: int, nodes: Iterable[bytes]) -> Steps[Items]:
    digests = sorted({digest for node in nodes for digest in codec.refs(node)})
    params = {"thread_no": thread_no, "n": len(digests), "digests": b"".join(digests)}
    return {row["digest"]: row["frame"] for row in (yield Query("get_items", params))}
