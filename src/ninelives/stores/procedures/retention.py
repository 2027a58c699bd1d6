"""Forgetting checkpoints without breaking what can still go on, and giving the room back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ninelives import _langgraph
from ninelives.model import PrunePlan, Scope
from ninelives.store import Query, Row, Steps, forgetting, reading
from ninelives.stores.codec.packs import Entry, content, plain_size, read_pack, write_pack
from ninelives.stores.procedures.base import as_json, event, packed_id, unpacked_id
from ninelives.stores.procedures.content import neighbours
from ninelives.stores.procedures.state import StateActs
from ninelives.stores.procedures.threads import must_be_free, thread_row


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A checkpoint as retention sees it: its place, what it holds, what it replays from its ancestors, its bytes."""

    seq: int
    ns: str
    checkpoint_id: str
    parent: int | None
    run_id: str | None
    nodes: dict[str, bytes]
    replays: frozenset[str]
    bytes: int


@dataclass(frozen=True, slots=True)
class Swept:
    """A pack: its bytes as stored, its items, and those of them that are still used."""

    first: int
    bytes: int
    entries: list[Entry | None]
    swept: list[Entry | None]


class RetentionActs(StateActs):
    @forgetting
    def prune_thread(self, scope: Scope, thread_id: str) -> Steps[int]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return 0
        yield from must_be_free(thread)
        skeletons = yield from self._skeletons(thread["thread_no"])
        return (yield from self._drop_all_but(thread, skeletons, (yield from self._needed(thread, skeletons))))

    @reading
    def plan_pruning(self, scope: Scope, thread_id: str) -> Steps[PrunePlan]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return PrunePlan()
        thread_no = thread["thread_no"]
        skeletons = yield from self._skeletons(thread_no)
        needed = yield from self._needed(thread, skeletons)
        left = [s for s in skeletons if s.seq in needed]
        gone = [s for s in skeletons if s.seq not in needed]
        if not gone:
            return PrunePlan(0, len(left))
        places = {(s.ns, s.seq) for s in gone}
        lost: list[Row] = []
        stays: list[Row] = []
        for row in (yield Query("all_writes", {"thread_no": thread_no})):
            (lost if (row["ns"], row["place"]) in places else stays).append(row)
        used = yield from self._used(thread_no, left, stays)
        packs = yield from self._packs(thread_no, used)
        freed = sum(s.bytes for s in gone) + sum(len(row["body"]) for row in lost)
        return PrunePlan(len(gone), len(left), freed + sum(pack.bytes for pack in packs) - self._bytes_packed(packs))

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

    def _needed(self, thread: Row, skeletons: Sequence[Skeleton]) -> Steps[set[int]]:
        """What pruning keeps: the newest of every namespace, where a start-over would begin, and what these replay."""
        newest = {s.ns: s for s in skeletons}
        bases = yield from self._bases(thread)
        kept = [*newest.values(), *(s for s in skeletons if s.ns == "" and s.checkpoint_id in bases)]
        return with_ancestors(kept, skeletons)

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
        return Skeleton(row["seq"], row["ns"], checkpoint_id, parent, run_id, body.nodes, replays, len(row["body"]))

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
        used = yield from self._used(thread_no, left, (yield Query("all_writes", {"thread_no": thread_no})))
        if packs := (yield from self._packs(thread_no, used)):
            yield from self._sweep(thread_no, packs)
            yield from self.pack_anew(thread_no)
        yield Query("forget_items", {"thread_no": thread_no})

    def _used(self, thread_no: int, left: Iterable[Skeleton], rows: Iterable[Row]) -> Steps[set[int]]:
        """Items that these checkpoints, these writes and the thread's requests are made of."""
        nodes = [node for s in left for node in s.nodes.values()]
        writes = [self._written(row) for row in rows]
        nodes += [node for write in writes for _, _, node in write.entries]
        nodes += [self.frames.open(row["spec"]) for row in (yield Query("specs_of", {"thread_no": thread_no}))]
        return (yield from self.numbers(thread_no, nodes))

    def _packs(self, thread_no: int, used: set[int]) -> Steps[list[Swept]]:
        """Every pack of the thread, and what is left of it without the items that are not used."""
        rows = yield Query("list_packs", {"thread_no": thread_no})
        if not rows:
            return []
        last = rows[-1]["first"] + rows[-1]["items"]
        stored = yield Query("get_packs", {"thread_no": thread_no, "ranges": as_json([[0, last]])})
        packs = {row["first"]: read_pack(row["frame"], row["items"], self.frames) for row in stored}
        entries = {first + i: entry for first, pack in packs.items() for i, entry in enumerate(pack)}
        sizes = {row["first"]: len(row["frame"]) for row in stored}
        return [
            Swept(first, sizes[first], pack, [self._swept(first + i, e, entries, used) for i, e in enumerate(pack)])
            for first, pack in packs.items()
        ]

    def _sweep(self, thread_no: int, packs: Iterable[Swept]) -> Steps[None]:
        """Empty every pack of what is not used; an item whose base goes stands for itself from now on."""
        for pack in packs:
            if pack.swept == pack.entries:
                continue
            yield Query("drop_packs", {"thread_no": thread_no, "first": pack.first})
            if any(pack.swept):
                yield self.add_pack(thread_no, pack.first, pack.swept, dense=True)

    def _bytes_packed(self, packs: Iterable[Swept]) -> int:
        """How long these will be when they have been swept and packed anew."""
        left = [pack for pack in packs if any(pack.swept)]
        rows = [{"first": pack.first, "bytes": plain_size(pack.swept), "swept": pack.swept} for pack in left]
        groups = neighbours(rows)
        grouped = {row["first"] for group in groups for row in group}
        alone = [pack for pack in left if pack.first not in grouped]
        unchanged = sum(pack.bytes for pack in alone if pack.swept == pack.entries)
        new = [[entry for row in group for entry in row["swept"]] for group in groups]
        new += [pack.swept for pack in alone if pack.swept != pack.entries]
        return unchanged + sum(len(write_pack(entries, self.frames, dense=True)) for entries in new)

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
