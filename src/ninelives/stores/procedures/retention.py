"""Forgetting checkpoints without breaking what can still go on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ninelives import _langgraph
from ninelives.model import Scope
from ninelives.store import Query, Row, Steps, act
from ninelives.stores import codec
from ninelives.stores.procedures.base import Procedures, event
from ninelives.stores.procedures.threads import as_json, must_be_free, thread_row


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A checkpoint as retention sees it: its place, what it holds, what it replays from its ancestors."""

    seq: int
    ns: str
    checkpoint_id: str
    parent_id: str | None
    run_id: str | None
    nodes: dict[str, bytes]
    replays: frozenset[str]

    @property
    def place(self) -> tuple[str, str]:
        return self.ns, self.checkpoint_id


class RetentionActs(Procedures):
    @act
    def prune_thread(self, scope: Scope, thread_id: str) -> Steps[int]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return 0
        yield from must_be_free(thread)
        skeletons = yield from self._skeletons(thread["thread_no"], {})
        newest = {s.ns: s for s in skeletons}
        bases = yield from self._bases(thread)
        kept = [*newest.values(), *(s for s in skeletons if s.ns == "" and s.checkpoint_id in bases)]
        return (yield from self._drop_all_but(thread, skeletons, with_ancestors(kept, skeletons)))

    @act
    def delete_for_runs(self, scope: Scope, run_ids: Sequence[str]) -> Steps[int]:
        threads = yield Query("threads_of_runs", {"owner": scope.owner, "run_ids": as_json(run_ids)})
        names = {row["run_no"]: row["run_id"] for row in (yield Query("run_nos", {"run_ids": as_json(run_ids)}))}
        dropped = 0
        for thread in threads:
            yield from must_be_free(thread)
            skeletons = yield from self._skeletons(thread["thread_no"], names)
            bases = yield from self._bases(thread)
            kept = [s for s in skeletons if s.run_id not in run_ids or (s.ns == "" and s.checkpoint_id in bases)]
            dropped += yield from self._drop_all_but(thread, skeletons, with_ancestors(kept, skeletons))
        return dropped

    def _bases(self, thread: Row) -> Steps[set[str]]:
        """Where a start-over of the unfinished run would begin."""
        return {row["base"] for row in (yield Query("open_bases", {"thread_no": thread["thread_no"]}))}

    def _skeletons(self, thread_no: int, names: dict[int, str]) -> Steps[list[Skeleton]]:
        rows = yield Query("skeletons", {"thread_no": thread_no})
        return [self._skeleton(row, names.get(row["run_no"], row["run_ref"])) for row in rows]

    def _skeleton(self, row: Row, run_id: str | None) -> Skeleton:
        body = self.decode(row["body"])
        nodes = body["nodes"]
        counters = self.decode(row["metadata"]).get(_langgraph.DELTA_COUNTERS) or {}
        replays = frozenset(counters) & body["channel_versions"].keys() - nodes.keys()  # no version: never written
        place = (row["seq"], row["ns"], row["checkpoint_id"], row["parent_id"])
        return Skeleton(*place, run_id, nodes, replays)

    def _drop_all_but(
        self, thread: Row, skeletons: Sequence[Skeleton], kept: Collection[tuple[str, str]]
    ) -> Steps[int]:
        gone = [s for s in skeletons if s.place not in kept]
        if not gone:
            return 0
        thread_no = thread["thread_no"]
        places = [{"thread_no": thread_no, "ns": s.ns, "checkpoint_id": s.checkpoint_id} for s in gone]
        yield Query("drop_checkpoints", many=places)
        yield Query("drop_checkpoint_writes", many=places)
        left = [s for s in skeletons if s.place in kept]
        yield Query("erase_head", {"thread_no": thread_no})
        yield Query("add_heads", many=[{"thread_no": thread_no, **tip} for tip in tips(left)])
        yield from self._drop_unused_items(thread_no, left)
        yield event(thread_no, "pruned", ref=str(len(gone)))
        return len(gone)

    def _drop_unused_items(self, thread_no: int, left: Iterable[Skeleton]) -> Steps[None]:
        nodes = [node for s in left for node in s.nodes.values()]
        nodes += [row["node"] for row in (yield Query("nodes_of_writes", {"thread_no": thread_no}))]
        used = {digest for node in nodes for digest in codec.refs(node)}
        stored = [row["digest"] for row in (yield Query("digests", {"thread_no": thread_no}))]
        if unused := [{"thread_no": thread_no, "digest": d} for d in stored if d not in used]:
            yield Query("drop_items", many=unused)


def with_ancestors(kept: Iterable[Skeleton], skeletons: Iterable[Skeleton]) -> set[tuple[str, str]]:
    """The kept checkpoints and every ancestor that one of their DeltaChannels still replays, to its last snapshot."""
    by_place = {s.place: s for s in skeletons}
    needed: set[tuple[str, str]] = set()
    for skeleton in kept:
        needed.add(skeleton.place)
        replays, cursor = set(skeleton.replays), skeleton
        while replays and cursor.parent_id and (parent := by_place.get((cursor.ns, cursor.parent_id))):
            needed.add(parent.place)
            replays -= parent.nodes.keys()
            cursor = parent
    return needed


def tips(skeletons: Sequence[Skeleton]) -> list[dict[str, Any]]:
    """The end of every branch: checkpoints that no other one continues, numbered within their namespace."""
    parents = {(s.ns, s.parent_id) for s in skeletons}
    ends = [s for s in skeletons if s.place not in parents]
    return [{"ns": s.ns, "branch": s.seq, "checkpoint_id": s.checkpoint_id} for s in ends]
