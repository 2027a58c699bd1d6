"""Forgetting checkpoints without breaking what can still go on, and giving the room back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninelives import _langgraph
from ninelives.model import Scope
from ninelives.store import Query, Row, Steps, forgetting
from ninelives.stores.codec.packs import Entry, content, read_pack
from ninelives.stores.procedures.base import as_json, event, packed_id, unpacked_id
from ninelives.stores.procedures.state import StateActs
from ninelives.stores.procedures.threads import must_be_free, thread_row


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A checkpoint as retention sees it: its place, what it holds, what it replays from its ancestors."""

    seq: int
    ns: str
    checkpoint_id: str
    parent: int | None
    run_id: str | None
    nodes: dict[str, bytes]
    replays: frozenset[str]


class RetentionActs(StateActs):
    @forgetting
    def prune_thread(self, scope: Scope, thread_id: str) -> Steps[int]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return 0
        yield from must_be_free(thread)
        skeletons = yield from self._skeletons(thread["thread_no"])
        newest = {s.ns: s for s in skeletons}
        bases = yield from self._bases(thread)
        kept = [*newest.values(), *(s for s in skeletons if s.ns == "" and s.checkpoint_id in bases)]
        return (yield from self._drop_all_but(thread, skeletons, with_ancestors(kept, skeletons)))

    @forgetting
    def delete_for_runs(self, scope: Scope, run_ids: Sequence[str]) -> Steps[int]:
        threads: dict[int, Row] = {}
        for run_id in run_ids:
            rows = yield Query("threads_of_run", {"owner": scope.owner, "run_id": packed_id(run_id)})
            threads.update((row["thread_no"], row) for row in rows)
        dropped = 0
        for thread in threads.values():
            yield from must_be_free(thread)
            skeletons = yield from self._skeletons(thread["thread_no"])
            bases = yield from self._bases(thread)
            kept = [s for s in skeletons if s.run_id not in run_ids or (s.ns == "" and s.checkpoint_id in bases)]
            dropped += yield from self._drop_all_but(thread, skeletons, with_ancestors(kept, skeletons))
        return dropped

    def _bases(self, thread: Row) -> Steps[set[str]]:
        """Where a start-over of the unfinished run would begin."""
        return {
            unpacked_id(row["base"])
            for row in (yield Query("open_bases", {"thread_no": thread["thread_no"]}))
            if row["base"]
        }

    def _skeletons(self, thread_no: int) -> Steps[list[Skeleton]]:
        return [self._skeleton(row) for row in (yield Query("skeletons", {"thread_no": thread_no}))]

    def _skeleton(self, row: Row) -> Skeleton:
        body = self._body(row)
        counters = body.metadata.get(_langgraph.DELTA_COUNTERS) or {}
        # A channel without a version was never written.
        replays = frozenset(counters) & body.skeleton["channel_versions"].keys() - body.nodes.keys()
        parent = row["parent"] if isinstance(row["parent"], int) else None
        checkpoint_id = unpacked_id(row["checkpoint_id"])
        run_id = unpacked_id(row["run_id"]) if row["run_id"] is not None else None
        return Skeleton(row["seq"], row["ns"], checkpoint_id, parent, run_id, body.nodes, replays)

    def _drop_all_but(self, thread: Row, skeletons: Sequence[Skeleton], kept: Collection[int]) -> Steps[int]:
        gone = [s for s in skeletons if s.seq not in kept]
        if not gone:
            return 0
        thread_no = thread["thread_no"]
        for s in gone:
            yield from self._free_of_key(thread_no, s.seq)
        places = [{"thread_no": thread_no, "seq": s.seq, "ns": s.ns} for s in gone]
        yield Query("lose_parents", {"thread_no": thread_no, "seqs": as_json(s.seq for s in gone)})
        yield Query("drop_checkpoint", many=places)
        yield Query("drop_checkpoint_writes", many=places)
        left = [s for s in skeletons if s.seq in kept]
        yield Query("erase_head", {"thread_no": thread_no})
        yield Query("open_branch", many=[{"thread_no": thread_no, "ns": s.ns, "seq": s.seq} for s in tips(left)])
        yield from self._drop_unused_items(thread_no, left)
        yield event(thread_no, "pruned", ref=str(len(gone)))
        return len(gone)

    # -- content ------------------------------------------------------------------------------------------------------

    def _drop_unused_items(self, thread_no: int, left: Iterable[Skeleton]) -> Steps[None]:
        nodes = [node for s in left for node in s.nodes.values()]
        writes = [self._written(row) for row in (yield Query("all_writes", {"thread_no": thread_no}))]
        nodes += [node for write in writes for _, _, node in write.entries]
        nodes += [self.frames.open(row["spec"]) for row in (yield Query("specs_of", {"thread_no": thread_no}))]
        used = yield from self.numbers(thread_no, nodes)
        rows = yield Query("list_packs", {"thread_no": thread_no})
        if rows:
            yield from self._sweep(thread_no, rows, used)
            yield from self.pack_anew(thread_no)
        yield Query("forget_items", {"thread_no": thread_no})

    def _sweep(self, thread_no: int, rows: Sequence[Row], used: set[int]) -> Steps[None]:
        """Empty every pack of what is not used; an item whose base goes stands for itself from now on."""
        last = rows[-1]["first"] + rows[-1]["items"]
        stored = yield Query("get_packs", {"thread_no": thread_no, "ranges": as_json([[0, last]])})
        packs = {row["first"]: read_pack(row["frame"], row["items"], self.frames) for row in stored}
        entries = {first + i: entry for first, pack in packs.items() for i, entry in enumerate(pack)}
        for first, pack in packs.items():
            swept = [self._swept(first + i, entry, entries, used) for i, entry in enumerate(pack)]
            if swept == pack:
                continue
            yield Query("drop_packs", {"thread_no": thread_no, "first": first})
            if any(swept):
                yield self.add_pack(thread_no, first, swept, dense=True)

    def _swept(
        self, number: int, entry: Entry | None, entries: Mapping[int, Entry | None], used: set[int]
    ) -> Entry | None:
        if entry is None or number not in used:
            return None
        if all(base in used for base in entry.bases):
            return entry
        return Entry(content(number, entries))


def with_ancestors(kept: Iterable[Skeleton], skeletons: Iterable[Skeleton]) -> set[int]:
    """The kept checkpoints and every ancestor that one of their DeltaChannels still replays, to its last snapshot."""
    by_seq = {s.seq: s for s in skeletons}
    needed: set[int] = set()
    for skeleton in kept:
        needed.add(skeleton.seq)
        replays, cursor = set(skeleton.replays), skeleton
        while replays and cursor.parent is not None and (parent := by_seq.get(cursor.parent)):
            needed.add(parent.seq)
            replays -= parent.nodes.keys()
            cursor = parent
    return needed


def tips(skeletons: Sequence[Skeleton]) -> list[Skeleton]:
    """The end of every branch: checkpoints that no other one continues."""
    parents: set[Any] = {s.parent for s in skeletons}
    return [s for s in skeletons if s.seq not in parents]
