"""
Checkpoints and task writes: putting them under a claim, and building them up again.

A checkpoint's body holds its versions, its metadata and, per channel, a node: which items the value is made of. Bodies
resemble one another, so most are stored as the difference from an earlier one, their *key*; a key rests on none.
Encoding happens before the transaction, decoding after the last statement has been read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ninelives import _langgraph
from ninelives.errors import DivergentStateError, FidelityError, LackOfSnapshotFrequency, StoreCorruptError
from ninelives.model import ONE_USER, Lease, Scope, StoredCheckpoint
from ninelives.store import Act, PutCheckpoint, PutWrites, Query, Row, Steps, act, glancing, reading
from ninelives.stores import codec
from ninelives.stores.codec.drafts import Draft, Intake, changed_in_place
from ninelives.stores.codec.memory import KeyBody, Memory, Walk
from ninelives.stores.codec.nodes import read_node, wrapped, wrapper_of
from ninelives.stores.codec.words import long, moment, short, spelled
from ninelives.stores.procedures.base import (
    as_json,
    claim_of,
    event,
    fenced,
    one,
    packed_id,
    unpacked_id,
)
from ninelives.stores.procedures.content import LOOKED_AT_END, ContentActs, Contents, ThreadKey
from ninelives.stores.procedures.questions import Questions
from ninelives.stores.procedures.runs import spend
from ninelives.stores.procedures.threads import add_thread, must_be_free, reopened, thread_row

T = TypeVar("T")

CHAIN_PAGE_KNOWN = 8
"""Fetched at once where a part of the chain is known already: what one request has added."""
CHAIN_PAGE = 64
"""Ancestors fetched at once; a DeltaChannel's snapshot is at most 50 updates away by deepagents' default."""
KEY_USES = 32
"""Bodies that are stored as the difference from one key, before the next is made."""

Entry = tuple[int, str, bytes]
"""A task's write: its place, channel and node."""
Drafts = Mapping[Any, Draft]


@dataclass(frozen=True, slots=True)
class Body:
    """A checkpoint's body, read: what LangGraph gave but the values, their nodes, and the graph's fingerprint."""

    skeleton: dict[str, Any]
    nodes: dict[str, bytes]
    metadata: dict[str, Any]
    graph_fp: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """What one run has written for one task."""

    ns: str
    place: int
    task_id: str
    run_no: int
    path: str
    entries: list[Entry]


class StateActs(ContentActs, Questions):
    # -- putting ------------------------------------------------------------------------------------------------------

    def put_checkpoint(
        self, scope: Scope, thread_id: str, put: PutCheckpoint, lease: Lease | None, *, amends: bool = False
    ) -> Act[list[str]]:
        key = _key(scope, thread_id, lease)
        values = put.checkpoint["channel_values"]

        def draft(memory: Memory | None) -> Drafts:
            drafter = self.drafter(memory, put.ns, lease)
            return {name: drafter.draft(name, value, f"channel_values.{name}") for name, value in values.items()}

        memory = self.memories.get(key)
        drafts = _under(memory, draft)
        return self.remembering(
            key, self._put_checkpoint(scope, thread_id, put, lease, key, draft, memory, drafts, amends)
        )

    @act
    def _put_checkpoint(
        self,
        scope: Scope,
        thread_id: str,
        put: PutCheckpoint,
        lease: Lease | None,
        key: ThreadKey,
        draft: Callable[[Memory | None], Drafts],
        drafted_with: Memory | None,
        drafts: Drafts,
        amends: bool,
    ) -> Steps[list[str]]:
        row = yield from self._writable(scope, thread_id, lease)
        memory = yield from self._recall(key, row, put.ns, lease)
        if lease and drafted_with is not None and memory is not drafted_with:
            drafts = _under(memory, draft)
        changed = [path for each in drafts.values() for path in each.changed]
        self._must_not_change(changed)
        intake = Intake(row["item_next"], memory, self.frames, bases=memory is drafted_with)
        nodes = {name: intake.node(value, (put.ns, name)) for name, value in drafts.items()}
        place = {"thread_no": row["thread_no"], "ns": put.ns, "checkpoint_id": packed_id(put.checkpoint_id)}
        metadata = dict(put.metadata)
        place |= {"run_no": lease.run_no if lease else None, "run_ref": _taken_run_id(metadata, lease)}
        skeleton = {name: value for name, value in put.checkpoint.items() if name not in ("channel_values", "id")}
        skeleton["ts"] = moment(skeleton.get("ts"))
        plain = self.checked(codec.encode([skeleton, nodes, metadata, put.graph_fp], self.types))
        if (amends or not lease) and (known := one((yield Query("find_place", place)))):
            place["seq"] = known["seq"]
            intake.skip()
            yield from self._rewrite(place, put, plain, memory)
        else:
            place["seq"] = row["event_next"]
            yield from self._add(thread_id, place, put, plain, memory)
        yield from self.add_items(row, intake)
        yield self.set_counters(row, intake, event_next=place["seq"] + 1)
        if lease:
            yield from spend(lease, put.usage)
            yield from fenced(lease)
        memory.claimed = lease is not None
        self.remember(memory, row, intake)
        memory.tips[put.ns] = put.checkpoint_id, place["seq"]
        memory.drop_heads(put.ns, {(put.ns, name) for name in drafts})
        base = memory.keys.get(put.ns)
        memory.keys[put.ns] = base._replace(uses=base.uses + 1) if base else KeyBody(place["seq"], plain, 0)
        return changed

    def changed_in_place(self, lease: Lease) -> list[str]:
        memory = self.memories.get((lease.owner, lease.thread_id))
        if memory is None:
            return []
        changed = changed_in_place(memory, self.types, self.frames, LOOKED_AT_END)
        self._must_not_change(changed)
        return changed

    def _must_not_change(self, paths: Sequence[str]) -> None:
        if paths and not self.trusting:
            raise FidelityError(paths[0], "the value, changed in place since it was stored,", "it was")

    def _add(
        self, thread_id: str, place: Mapping[str, Any], put: PutCheckpoint, plain: bytes, memory: Memory
    ) -> Steps[None]:
        """A new checkpoint takes its place on its branch; writes that landed before it find it."""
        base = memory.keys.get(put.ns)
        if base is not None and base.uses >= KEY_USES:
            base = None
            del memory.keys[put.ns]
        body = self.frames.seal(plain, base=base.plain if base else b"")
        key_seq = base.number if base else None
        parent = yield from self._parent(place, put, memory)
        full = {**place, "parent": parent, "key_seq": key_seq, "body": body}
        yield from self._move_head(thread_id, full, put)
        yield Query("add_checkpoint", full)
        if memory.early or place["run_no"] is None:
            yield Query("adopt_writes", full)

    def _rewrite(self, place: Mapping[str, Any], put: PutCheckpoint, plain: bytes, memory: Memory) -> Steps[None]:
        """A checkpoint that is there is put again: it rests on no other then, and no other on it."""
        yield from self._free_of_key(place["thread_no"], place["seq"])
        memory.keys.pop(put.ns, None)
        parent = yield from self._parent(place, put, memory)
        yield Query("rewrite_checkpoint", {**place, "parent": parent, "key_seq": None, "body": self.frames.seal(plain)})

    def _parent(self, place: Mapping[str, Any], put: PutCheckpoint, memory: Memory) -> Steps[int | bytes | str | None]:
        if put.parent_id is None:
            return None
        tip = memory.tips.get(put.ns)
        if tip is not None and tip[0] == put.parent_id:
            return tip[1]
        parent_id = packed_id(put.parent_id)
        known = one((yield Query("find_place", {**place, "checkpoint_id": parent_id})))
        return known["seq"] if known else parent_id

    def _free_of_key(self, thread_no: int, seq: int) -> Steps[None]:
        """Bodies that are the difference from one that changes, or goes, stand for themselves from now on."""
        for row in (yield Query("keyed_on", {"thread_no": thread_no, "seq": seq})):
            plain = self.frames.open(row["body"], base=self.frames.open(row["key_body"]))
            yield Query("set_body", {"thread_no": thread_no, "seq": row["seq"], "body": self.frames.seal(plain)})

    def _move_head(self, thread_id: str, place: Mapping[str, Any], put: PutCheckpoint) -> Steps[None]:
        if place["parent"] is not None:
            if (yield Query("move_tip", place)):
                return
            if put.extends:
                head = one((yield Query("find_head", place)))
                what = f"checkpoint {put.parent_id!r} has been moved on from by somebody else"
                raise DivergentStateError(thread_id, what, unpacked_id(head["checkpoint_id"]) if head else None)
        yield Query("open_branch", place)

    def put_writes(self, scope: Scope, thread_id: str, put: PutWrites, lease: Lease | None) -> Act[None]:
        key = _key(scope, thread_id, lease)

        def draft(memory: Memory | None) -> Drafts:
            drafter = self.drafter(memory, put.ns, lease)
            return {
                idx: drafter.draft(channel, value, f"channel_values.{channel}") for idx, channel, value in put.writes
            }

        questions = [self.asked(question) for question in put.questions]
        memory = self.memories.get(key)
        drafts = _under(memory, draft)
        act = self._put_writes(scope, thread_id, put, lease, key, draft, memory, drafts, questions)
        act.defers = put.defers
        return self.remembering(key, act)

    @act
    def _put_writes(
        self,
        scope: Scope,
        thread_id: str,
        put: PutWrites,
        lease: Lease | None,
        key: ThreadKey,
        draft: Callable[[Memory | None], Drafts],
        drafted_with: Memory | None,
        drafts: Drafts,
        questions: Sequence[Mapping[str, Any]],
    ) -> Steps[None]:
        row = yield from self._writable(scope, thread_id, lease)
        memory = yield from self._recall(key, row, put.ns, lease)
        if lease and drafted_with is not None and memory is not drafted_with:
            drafts = _under(memory, draft)
        intake = Intake(row["item_next"], memory, self.frames, bases=memory is drafted_with)
        computed: list[Entry] = [
            (idx, channel, intake.write(drafts[idx], (put.ns, channel))) for idx, channel, _ in put.writes
        ]
        place = yield from self._task_place(row["thread_no"], put, memory)
        stored = [self._written(each) for each in (yield Query("get_writes", place))]
        own = lease.run_no if lease else 0
        if put.replace:
            yield Query("drop_foreign_writes", {**place, "run_no": own})
            stored = [each for each in stored if each.run_no == own]
        new = yield from self._new_entries(row["thread_no"], thread_id, put, stored, computed, intake)
        taken = {*put.withdraw, *(idx for idx, _, _ in computed if idx < 0)}
        if memory.tips.get(put.ns, ("", 0))[1] != place["place"]:
            memory.walks.pop(put.ns, None)
        if not lease and not intake.entries:
            intake.skip()  # a run that remembers the thread must see that it was written to
        if new or intake.entries or taken:
            yield from self.add_items(row, intake)
            yield from self._set_writes(place, put, stored, new, taken, own)
        for question in questions:
            place = {**claim_of(lease), "thread_no": row["thread_no"], "ns": put.ns, "task_id": put.task_id}
            if (yield Query("add_interrupt", {**question, **place, "checkpoint_id": put.checkpoint_id})):
                yield event(row["thread_no"], "question", lease=lease, ref=question["interrupt_id"])
        yield event(row["thread_no"], put.kind, lease=lease, ref=put.task_id)
        yield self.set_counters(row, intake)
        if lease:
            yield from spend(lease, put.usage)
            yield from fenced(lease)
        self.remember(memory, row, intake)

    def _task_place(self, thread_no: int, put: PutWrites, memory: Memory) -> Steps[dict[str, Any]]:
        """A task's row is found by its checkpoint's number, or by its id while that is not there."""
        place = {"thread_no": thread_no, "ns": put.ns, "checkpoint_id": packed_id(put.checkpoint_id)}
        place["task_id"] = packed_id(put.task_id)
        tip = memory.tips.get(put.ns)
        if tip is not None and tip[0] == put.checkpoint_id:
            return {**place, "place": tip[1]}
        found = one((yield Query("find_place", place)))
        memory.early = memory.early or found is None
        return {**place, "place": found["seq"] if found else place["checkpoint_id"]}

    def _set_writes(
        self,
        place: Mapping[str, Any],
        put: PutWrites,
        stored: Sequence[Written],
        new: Sequence[Entry],
        taken: set[int],
        own: int,
    ) -> Steps[None]:
        """Special writes (errors, questions, answers) have one slot each per task; the newest counts."""
        mine: list[Entry] = []
        for each in stored:
            left = [entry for entry in each.entries if entry[0] not in taken]
            if each.run_no == own:
                mine = left
            elif len(left) < len(each.entries):
                yield from self._set_write(place, each.run_no, each.path, left)
        yield from self._set_write(place, own, put.task_path, [*mine, *new])

    def _set_write(self, place: Mapping[str, Any], run_no: int, path: str, entries: Sequence[Entry]) -> Steps[None]:
        which = {**place, "run_no": run_no}
        if entries:
            flat = [[idx, short(channel), node] for idx, channel, node in entries]
            plain = codec.encode([short(path), *flat], self.types)
            yield Query("set_write", {**which, "body": self.frames.seal(self.checked(plain))})
        else:
            yield Query("drop_write", which)

    def _new_entries(
        self,
        thread_no: int,
        thread_id: str,
        put: PutWrites,
        stored: Sequence[Written],
        computed: Sequence[Entry],
        intake: Intake,
    ) -> Steps[list[Entry]]:
        """
        Those of a task's writes that are to be added: all of them, or none.

        A task is recorded once: what is there already must be what this invocation computed. Only input (the null
        task) is added to; it is put again as a whole, and a shorter list of it is an older one.
        """
        special = [entry for entry in computed if entry[0] < 0]
        regular = {idx: (channel, node) for idx, channel, node in computed if idx >= 0}
        known = {idx: (channel, node) for each in stored for idx, channel, node in each.entries if idx >= 0}
        if not regular:
            return special
        grows = put.task_id == _langgraph.NULL_TASK_ID
        common = known.keys() & regular.keys() if grows or not known else known.keys() | regular.keys()
        for idx in common:
            if known.get(idx) != regular.get(idx) and not (
                yield from self._same_content(thread_no, known.get(idx), regular.get(idx), intake)
            ):
                what = f"task {put.task_id!r} was recorded by another invocation, with another result"
                raise DivergentStateError(thread_id, what)
        return special + [(idx, *entry) for idx, entry in regular.items() if idx not in known]

    def _same_content(
        self, thread_no: int, known: tuple[str, bytes] | None, computed: tuple[str, bytes] | None, intake: Intake
    ) -> Steps[bool]:
        """Whether two nodes make the same value, though their items are stored under different numbers."""
        if known is None or computed is None or known[0] != computed[0]:
            return False
        nodes = [known[1], computed[1]]
        found = Contents(self, {})
        found.entries.update(enumerate(intake.entries, intake.first))
        yield from self.fetch(thread_no, found, {node.far for node in map(read_node, nodes) if node.far is not None})
        before, now = map(found.node, nodes)
        shapes = [(node.form, node.wrapper, node.frame, len(node.numbers)) for node in (before, now)]
        yield from self.fetch(thread_no, found, {*before.numbers, *now.numbers})
        if shapes[0] != shapes[1]:  # what is remembered decides how a value is taken apart
            values = [found.join(node, set(), "") for node in nodes]
            return codec.encode(values[0], self.types) == codec.encode(values[1], self.types)
        return all(found.frame(a) == found.frame(b) for a, b in zip(before.numbers, now.numbers, strict=True))

    def _writable(self, scope: Scope, thread_id: str, lease: Lease | None) -> Steps[Row]:
        """
        The thread's row. A saver used alone makes the thread and may write while no live run holds it.

        The fence comes last, but is asked first too: a writer that is late should hear `LeaseLostError`, not what its
        successor has made of the state since. A claim is for one thread: on another one, which a node called with an id
        of its own, its saver is one used alone, but still fenced.
        """
        if lease:
            entered = one((yield Query("enter", claim_of(lease))))
            if entered is None:
                yield from fenced(lease)
            elif thread_id == lease.thread_id:
                return entered
        row = yield from thread_row(scope, thread_id)
        if row is None:
            row = yield from add_thread(scope, thread_id, "")
        yield from reopened(row)
        yield from must_be_free(row)
        return (yield Query("counters", {"thread_no": row["thread_no"]}))[0]

    def _recall(self, key: ThreadKey, row: Row, ns: str, lease: Lease | None) -> Steps[Memory]:
        """
        What this process remembers of the thread, or what can be told of its newest checkpoint's content. A run knows
        its objects; a saver used alone finds all that is stored by its digest, so it must know all of those.
        """
        memory = self.current(key, row)
        if memory is None or not (lease or memory.knows_all):
            memory = memory or Memory((row["item_next"], row["items_by"]))
            if row["item_next"] > 1:
                rows = yield Query("newest_checkpoint", {"thread_no": row["thread_no"], "ns": ns})
                bodies = [self._body(each) for each in rows]
                writes = yield from self._writes_of(row["thread_no"], rows)
                nodes = [node for body in bodies for node in body.nodes.values()]
                nodes += [node for write in writes for _, _, node in write.entries]
                yield from self.learn_digests(memory, row["thread_no"], nodes)
            memory.knows_all = True
            self.memories.put(key, memory)
        return memory

    # -- reading ------------------------------------------------------------------------------------------------------

    def get_checkpoint(
        self, scope: Scope, thread_id: str, ns: str, checkpoint_id: str | None, lease: Lease | None = None
    ) -> Act[StoredCheckpoint | None]:
        return self._glance_if_known(lease, self._get_checkpoint(scope, thread_id, ns, checkpoint_id, lease))

    def _glance_if_known(self, lease: Lease | None, act: Act[T]) -> Act[T]:
        """What a run of this process has left behind is read in no time: little of it comes from the store."""
        act.quick = lease is not None and self.trusting and bool(self.memories.get((lease.owner, lease.thread_id)))
        return act

    @reading
    def _get_checkpoint(
        self, scope: Scope, thread_id: str, ns: str, checkpoint_id: str | None, lease: Lease | None
    ) -> Steps[StoredCheckpoint | None]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return None
        name = "newest_checkpoint" if checkpoint_id is None else "one_checkpoint"
        place = {"thread_no": thread["thread_no"], "ns": ns, "checkpoint_id": packed_id(checkpoint_id or "")}
        rows = yield Query(name, place)
        memory = yield from self._memory_to_read(_key(scope, thread_id, None), thread["thread_no"], lease)
        try:
            found = yield from self._build(rows, memory, shares=lease is not None)
        except StoreCorruptError as error:
            raise (yield from self._what_is_good(thread, rows, error)) from error
        return found[0] if found else None

    def _memory_to_read(self, key: ThreadKey, thread_no: int, lease: Lease | None) -> Steps[Memory | None]:
        """
        What a run's reading is compared with, and added to. Nothing is remembered for anybody else: who reads without
        running gets objects of its own, and may do with them as it likes.
        """
        if lease is None:
            return None
        memory = self.memories.get(key)
        row = (yield Query("counters", {"thread_no": thread_no}))[0]
        stamp = (row["item_next"], row["items_by"])
        if memory is None or memory.stamp != stamp:
            if memory is not None and memory.stamp[1] == self.token and memory.stamp[0] > stamp[0]:
                return None  # an act of ours has gone ahead of what this one sees
            memory = Memory(stamp)
            self.memories.put(key, memory)
        memory.claimed, memory.knows_all = True, False
        return memory

    @glancing
    def has_checkpoint(self, scope: Scope, thread_id: str, ns: str, checkpoint_id: str) -> Steps[bool]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return False
        place = {"thread_no": thread["thread_no"], "ns": ns, "checkpoint_id": packed_id(checkpoint_id)}
        return bool((yield Query("find_place", place)))

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
        which = packed_id(checkpoint_id) if checkpoint_id is not None else None
        params: dict[str, Any] = {"owner": scope.owner, "thread_no": None, "ns": ns, "checkpoint_id": which}
        if thread_id is not None:
            thread = yield from thread_row(scope if scope.owner is not None else ONE_USER, thread_id)
            if thread is None:
                return []
            params["thread_no"] = thread["thread_no"]
            if before is not None:
                seq = (yield Query("find_seq", {**params, "checkpoint_id": packed_id(before)}))[0]["seq"]
                above = _order(thread["thread_no"], seq or 0)
                below_seq = above if below_seq is None else min(above, below_seq)
        elif before is not None:
            below_seq = 0
        name = "list_checkpoints" if thread_id is None else "list_thread_checkpoints"
        return (yield from self._build((yield Query(name, {**params, "below": below_seq, "limit": limit}))))

    def _build(
        self, rows: list[Row], memory: Memory | None = None, *, shares: bool = False
    ) -> Steps[list[StoredCheckpoint]]:
        """Checkpoints with their writes and content: four statements per thread, whatever their age and number."""
        built: dict[int, StoredCheckpoint] = {}
        shared = memory if shares and self.trusting else None
        for thread_no in dict.fromkeys(row["thread_no"] for row in rows):
            mine = [row for row in rows if row["thread_no"] == thread_no]
            writes = yield from self._writes_of(thread_no, mine)
            bodies = self._bodies(mine)
            used: set[int] = set()
            ready = self._ready(shared, mine[0]["ns"], bodies[mine[0]["seq"]].nodes, used) if shared else {}
            nodes = [node for body in bodies.values() for name, node in body.nodes.items() if name not in ready]
            nodes += [node for write in writes for _, _, node in write.entries]
            found = yield from self.contents(thread_no, nodes, shared)
            by_place: dict[int, list[Written]] = {}
            for write in writes:
                by_place.setdefault(write.place, []).append(write)
            for row in mine:
                body = bodies[row["seq"]]
                stored = self._assemble(row, body, by_place.get(row["seq"], []), found, ready, {*used})
                built[stored.seq] = stored
                if memory is not None:
                    with memory.lock:
                        unknown = {name: node for name, node in body.nodes.items() if name not in ready}
                        self.learn(memory, row["ns"], found, unknown, stored.checkpoint["channel_values"])
                        self._learn_key(memory, row)
        return [built[_order(row["thread_no"], row["seq"])] for row in rows]

    def _ready(self, memory: Memory, ns: str, nodes: Mapping[str, bytes], used: set[int]) -> dict[str, Any]:
        """Values of channels that this process holds as they are; `used`: their items, none of which comes twice."""
        ready = {}
        with memory.lock:
            for name, node in nodes.items():
                if (head := memory.list_of((ns, name), node)) is not None:
                    numbers = {*head.numbers}
                    if len(numbers) == len(head.numbers) and used.isdisjoint(numbers):
                        used |= numbers
                        ready[name] = wrapped(wrapper_of(node), [*head.values])
        return ready

    def _learn_key(self, memory: Memory, row: Row) -> None:
        if row["key_seq"] is not None:
            memory.keys.setdefault(row["ns"], KeyBody(row["key_seq"], self.frames.open(row["key_body"]), 0))
        else:
            memory.keys[row["ns"]] = KeyBody(row["seq"], self.frames.open(row["body"]), 0)

    def _assemble(
        self,
        row: Row,
        body: Body,
        writes: Iterable[Written],
        found: Contents,
        ready: Mapping[str, Any],
        used: set[int],
    ) -> StoredCheckpoint:
        checkpoint_id = unpacked_id(row["checkpoint_id"])
        run_id = unpacked_id(row["run_id"]) if row["run_id"] is not None else None
        values = {
            name: ready[name] if name in ready else found.join(node, used, f"channel {name!r}")
            for name, node in body.nodes.items()
        }
        return StoredCheckpoint(
            thread_id=row["thread_id"],
            ns=row["ns"],
            checkpoint_id=checkpoint_id,
            parent_id=unpacked_id(row["parent_id"]) if row["parent_id"] is not None else None,
            checkpoint={**body.skeleton, "id": checkpoint_id, "channel_values": values},
            metadata={"run_id": run_id, **body.metadata} if run_id is not None else body.metadata,
            writes=[
                (task_id, channel, found.join(node, used, f"write {channel!r}"))
                for task_id, _, channel, node in in_order(writes)
            ],
            seq=_order(row["thread_no"], row["seq"]),
            run_id=run_id,
            graph_fp=body.graph_fp,
            created_at=row["created_at"],
        )

    def _bodies(self, rows: Iterable[Row]) -> dict[int, Body]:
        return {row["seq"]: self._body(row) for row in rows}

    def _body(self, row: Row) -> Body:
        base = self.frames.open(row["key_body"]) if row["key_body"] is not None else b""
        plain = self.unchecked(self.frames.open(row["body"], base=base), f"checkpoint {row['seq']} of the thread")
        skeleton, *rest = codec.decode(plain, self.types)
        return Body({**skeleton, "ts": spelled(skeleton["ts"])}, *rest)

    def _writes_of(self, thread_no: int, rows: Iterable[Row]) -> Steps[list[Written]]:
        keys = as_json([row["ns"], row["seq"]] for row in rows)
        return [self._written(row) for row in (yield Query("writes_of", {"thread_no": thread_no, "keys": keys}))]

    def _written(self, row: Row) -> Written:
        plain = self.unchecked(self.frames.open(row["body"]), "what a task wrote")
        path, *flat = codec.decode(plain, self.types)
        entries = [(idx, long(channel), node) for idx, channel, node in flat]
        return Written(row["ns"], row["place"], unpacked_id(row["task_id"]), row["run_no"], long(path), entries)

    def _what_is_good(self, thread: Row, rows: list[Row], error: StoreCorruptError) -> Steps[StoreCorruptError]:
        """The error, with what can still be read: other channels of this checkpoint, and the newest whole one."""
        good: list[str] = []
        for row in rows:
            for name, node in self._nodes_or_none(row).items():
                if (yield from self._is_whole(thread["thread_no"], [node])):
                    good.append(name)
        place = {"thread_no": thread["thread_no"], "ns": rows[0]["ns"], "checkpoint_id": None, "owner": None}
        older = yield Query("list_thread_checkpoints", {**place, "below": rows[0]["seq"], "limit": LOOK_BACK})
        whole = None
        for row in older:
            nodes = [*self._nodes_or_none(row).values()]
            if nodes and (yield from self._is_whole(thread["thread_no"], nodes)):
                whole = unpacked_id(row["checkpoint_id"])
                break
        readable = f" Channels that can be read: {', '.join(map(repr, good))}." if good else ""
        newest = f" The newest whole checkpoint is {whole!r}: fork it, or start over." if whole else ""
        where = f"thread {thread['thread_id']!r}, checkpoint {unpacked_id(rows[0]['checkpoint_id'])!r}"
        return StoreCorruptError(f"{where}: {error}{readable}{newest} Or restore the store from a copy.")

    def _nodes_or_none(self, row: Row) -> dict[str, bytes]:
        try:
            return self._body(row).nodes
        except StoreCorruptError:
            return {}

    def _is_whole(self, thread_no: int, nodes: Sequence[bytes]) -> Steps[bool]:
        try:
            found = yield from self.contents(thread_no, nodes)
            for node in nodes:
                found.join(node, set(), "")
        except StoreCorruptError:
            return False
        return True

    # -- what a DeltaChannel replays ----------------------------------------------------------------------------------

    def delta_history(
        self,
        scope: Scope,
        thread_id: str,
        ns: str,
        checkpoint_id: str,
        channels: Sequence[str],
        lease: Lease | None = None,
    ) -> Act[dict[str, tuple[list[tuple[str, str, Any]], list[Any]]]]:
        act = self._delta_history(scope, thread_id, ns, checkpoint_id, channels, lease)
        return self._glance_if_known(lease, act)

    @reading
    def _delta_history(
        self,
        scope: Scope,
        thread_id: str,
        ns: str,
        checkpoint_id: str,
        channels: Sequence[str],
        lease: Lease | None,
    ) -> Steps[dict[str, tuple[list[tuple[str, str, Any]], list[Any]]]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return {name: ([], []) for name in channels}
        memory = yield from self._memory_to_read(_key(scope, thread_id, None), thread["thread_no"], lease)
        shared = memory if lease and self.trusting else None
        known = shared.walks.get(ns) if shared else None
        place = {"thread_no": thread["thread_no"], "ns": ns}
        walk = yield from self._walk(thread_id, place, checkpoint_id, channels, known)
        replays = {
            name: [
                (task_id, node)
                for seq in reversed(walk.chains[name])
                for task_id, channel, node in walk.writes.get(seq, [])
                if channel == name
            ]
            for name in channels
        }
        used: set[int] = set()
        ready = self._ready(shared, ns, walk.seeds, used) if shared else {}
        nodes = [node for name, node in walk.seeds.items() if name not in ready]
        nodes += [node for replay in replays.values() for _, node in replay]
        found = yield from self.contents(thread["thread_no"], nodes, shared)
        seeds = ready | {
            name: found.join(node, used, f"channel {name!r}") for name, node in walk.seeds.items() if name not in ready
        }
        history = {
            name: (
                [(task_id, name, found.join(node, used, f"write {name!r}")) for task_id, node in replays[name]],
                [seeds[name]] if name in seeds else [],
            )
            for name in channels
        }
        if memory is not None:
            with memory.lock:
                unknown = {name: node for name, node in walk.seeds.items() if name not in ready}
                self.learn(memory, ns, found, unknown, seeds)
                memory.walks[ns] = walk
                for name in channels:
                    for (_, node), (_, _, value) in zip(replays[name], history[name][0], strict=True):
                        self.learn_written(memory, (ns, name), node, value, found)
        return history

    def _walk(
        self,
        thread_id: str,
        place: Mapping[str, Any],
        checkpoint_id: str,
        channels: Sequence[str],
        known: Walk | None,
    ) -> Steps[Walk]:
        """From parent to parent, up to where the last walk began or every channel has a value to start from."""
        chains: dict[str, list[int]] = {name: [] for name in channels}
        seeds: dict[str, bytes] = {}
        walked: set[int] = set()
        cursor: Any = packed_id(checkpoint_id)
        here = one((yield Query("find_place", {**place, "checkpoint_id": cursor})))
        origin = cursor = here["seq"] if here else cursor
        if known is not None and known.chains.keys() != chains.keys():
            known = None
        while cursor is not None and len(seeds) < len(chains):
            rows = []
            if isinstance(cursor, int):
                limit = CHAIN_PAGE if known is None else CHAIN_PAGE_KNOWN
                rows = yield Query("ancestors", {**place, "seq": cursor, "limit": limit})
            if not rows:
                raise LackOfSnapshotFrequency(
                    f"thread {thread_id!r}: checkpoint {cursor if isinstance(cursor, int) else unpacked_id(cursor)!r},"
                    f" which channel {', '.join(sorted(set(channels) - seeds.keys()))!r} is rebuilt from, is not in the"
                    " store. Start over from an older checkpoint; set a lower snapshot_frequency on the channel to need"
                    " fewer."
                )
            for row in rows:
                if row["seq"] in walked or (row["seq"] == origin and walked):
                    continue
                walked.add(row["seq"])
                if row["seq"] != origin:
                    nodes = self._body(row).nodes
                    for name in (name for name in channels if name not in seeds):
                        chains[name].append(row["seq"])
                        if name in nodes:
                            seeds[name] = nodes[name]
                if known is not None and row["seq"] == known.origin:
                    for name in (name for name in channels if name not in seeds):
                        chains[name] += known.chains[name]
                        if name in known.seeds:
                            seeds[name] = known.seeds[name]
                    rows = [{**row, "parent": None}]
                    break
            cursor = rows[-1]["parent"]
            if cursor in walked or cursor == origin:
                break  # a saver used alone re-put an ancestor under its own descendant
        writes = yield from self._writes_on(place, {seq for chain in chains.values() for seq in chain}, known)
        return Walk(origin, chains, seeds, writes)

    def _writes_on(
        self, place: Mapping[str, Any], seqs: set[int], known: Walk | None
    ) -> Steps[dict[int, list[tuple[str, str, bytes]]]]:
        """What was written under these checkpoints. It is final: each of them has been moved on from."""
        found = {seq: known.writes[seq] for seq in seqs & known.writes.keys()} if known else {}
        rows = [{"ns": place["ns"], "seq": seq} for seq in sorted(seqs - found.keys())]
        by_place: dict[int, list[Written]] = {row["seq"]: [] for row in rows}
        for write in (yield from self._writes_of(place["thread_no"], rows)):
            by_place[write.place].append(write)
        for seq, writes in by_place.items():
            found[seq] = [(task_id, channel, node) for task_id, _, channel, node in in_order(writes)]
        return found


LOOK_BACK = 100
"""How many older checkpoints are looked at for one that is whole."""


def in_order(writes: Iterable[Written]) -> list[tuple[str, int, str, bytes]]:
    """`(task, place, channel, node)`, as a superstep applies them: by path, id and place."""
    flat = [(each.path, each.task_id, idx, channel, node) for each in writes for idx, channel, node in each.entries]
    return [(task_id, idx, channel, node) for _, task_id, idx, channel, node in sorted(flat, key=lambda f: f[:3])]


def _under(memory: Memory | None, draft: Callable[[Memory | None], Drafts]) -> Drafts:
    if memory is None:
        return draft(None)
    with memory.lock:
        return draft(memory)


def _key(scope: Scope, thread_id: str, lease: Lease | None) -> ThreadKey:
    return (lease.owner if lease and lease.thread_id == thread_id else scope.owner or ""), thread_id


def _taken_run_id(metadata: dict[str, Any], lease: Lease | None) -> bytes | str | None:
    """
    Taken out of a checkpoint's metadata, because its row says it: the run of the claim by its number, else this.

    What is no text, or another run's than that of the claim, stays where it is.
    """
    run_id = metadata.get("run_id")
    if type(run_id) is not str or not run_id or (lease and run_id != lease.run_id):
        return None
    del metadata["run_id"]
    return None if lease else packed_id(run_id)


def _order(thread_no: int, seq: int) -> int:
    """A number that grows with the order of checkpoints within a thread, and is unique among all."""
    return thread_no << 32 | seq
