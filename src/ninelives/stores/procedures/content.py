"""Items going into a thread and coming out of it, for every act that stores values: state, runs, retention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from ninelives.errors import StoreCorruptError
from ninelives.model import Lease
from ninelives.store import Act, Query, Row, Steps
from ninelives.stores import codec
from ninelives.stores.codec.drafts import Drafter, Intake
from ninelives.stores.codec.memory import OPAQUE, DictHead, Held, ListHead, Memory, Place
from ninelives.stores.codec.nodes import Form, Node, Runs, read_node, unwrapped, wrapped
from ninelives.stores.codec.packs import (
    CHAIN_MAX,
    CROWD_BYTES,
    PACK_BYTES,
    Entry,
    content,
    plain_size,
    read_pack,
    write_pack,
)
from ninelives.stores.procedures.base import Procedures, as_json

T = TypeVar("T")

LOOKED_AT_END = 32 << 10
"""Bytes of each list and dict that are encoded again when a run ends: of the newest elements, and of older ones."""
WATCHED = 256
"""Elements whose bytes are known from their loading on, the newest."""
NEAR = 16
"""Numbers that lie no further apart are asked for as one range."""

ThreadKey: TypeAlias = tuple[str, str]
"""Owner and id: what a process remembers is found by it."""


class Contents:
    """
    Items that were read, as bytes and as objects.

    An object is given out once for one checkpoint: where an item occurs twice, the second is built anew, so that
    changing one does not change the other.

    Args:
        shared: objects that may be given out again.
    """

    def __init__(self, acts: Procedures, shared: Mapping[int, Held]) -> None:
        self._acts, self.shared = acts, shared
        self.entries: dict[int, Entry | None] = {}
        self.known_names: dict[int, tuple[str, ...]] = {}
        self.fresh: dict[int, tuple[Any, bytes]] = {}
        """What was built now: the object, and its frame."""
        self._objects: dict[int, Any] = {number: held.value for number, held in shared.items()}
        """What is there to be given out."""
        self._near: dict[bytes, Node] = {}
        self._nodes: dict[bytes, Node] = {}
        self._far: dict[int, Node] = {}

    def frame(self, number: int) -> bytes:
        held = self.shared.get(number)
        if held is not None and held.raw:
            frame: bytes = held.value
            return frame
        if number in self.entries or held is None:
            return content(number, self.entries)
        return codec.encode(held.value, self._acts.types, quiet=True)

    def take(self, number: int, used: set[int], path: str) -> Any:
        if number in used:
            return codec.decode(self.frame(number), self._acts.types, path=path)
        used.add(number)
        return self._objects[number] if number in self._objects else self._build(number, path)

    def _build(self, number: int, path: str) -> Any:
        frame = self.frame(number)
        value = codec.decode(frame, self._acts.types, path=path)
        self.fresh[number] = (value, frame)
        self._objects[number] = value
        return value

    def _take_all(self, numbers: Sequence[int], used: set[int], path: str) -> list[Any]:
        """As `take`, of a list's elements: mostly each occurs once, and is there already."""
        distinct = {*numbers}
        if len(distinct) < len(numbers) or not used.isdisjoint(distinct):
            return [self.take(number, used, f"{path}[{i}]") for i, number in enumerate(numbers)]
        used |= distinct
        if missing := distinct - self._objects.keys():
            for i, number in enumerate(numbers):
                if number in missing:
                    self._build(number, f"{path}[{i}]")
        return [*map(self._objects.__getitem__, numbers)]

    def join(self, data: bytes, used: set[int], path: str) -> Any:
        """
        Raises:
            StoreCorruptError: an item is missing or damaged; says where.
            UnknownTypeError: a class that is not allowed here; with the path.
        """
        try:
            node = self.node(data)
            return wrapped(node.wrapper, self._inner(node, used, path))
        except StoreCorruptError as error:
            raise StoreCorruptError(f"{path}: {error}") from None

    def _inner(self, node: Node, used: set[int], path: str) -> Any:
        if node.form is Form.INLINE:
            return codec.decode(node.frame, self._acts.types, path=path)
        if node.form is Form.VALUE:
            return self.take(node.numbers[0], used, path)
        if node.form is Form.LIST:
            return self._take_all(node.numbers, used, path)
        keys = self.names(node.numbers[0], path)
        if len(keys) != len(node.numbers) - 1:
            raise StoreCorruptError("a dict has not as many keys as entries.")
        entries = zip(keys, node.numbers[1:], strict=True)
        return {key: self.take(number, used, f"{path}.{key}") for key, number in entries}

    def names(self, number: int, path: str) -> tuple[str, ...]:
        """The keys of a dict."""
        if number not in self.known_names:
            found = codec.decode(self.frame(number), self._acts.types, path=path)
            if type(found) is not list or not all(type(name) is str for name in found):
                raise StoreCorruptError("the keys of a dict are not what was stored.")
            self.known_names[number] = (*found,)
        return self.known_names[number]

    def near(self, data: bytes) -> Node:
        """The node as it is written. Read once, as all of them: a history has many."""
        if data not in self._near:
            self._near[data] = read_node(data)
        return self._near[data]

    def node(self, data: bytes) -> Node:
        """The node, looked up where it is an item of its own."""
        node = self._nodes.get(data)
        if node is None:
            node = self.near(data)
            if node.far is not None:
                if node.far not in self._far:
                    self._far[node.far] = read_node(self.frame(node.far))
                node = node.after(self._far[node.far])
            self._nodes[data] = node
        return node

    def with_objects(self, shared: Mapping[int, Held]) -> Contents:
        """What has been read so far, and objects that may be given out again."""
        whole = Contents(self._acts, shared)
        whole.entries, whole._near, whole._nodes, whole._far = self.entries, self._near, self._nodes, self._far
        return whole


class ContentActs(Procedures):
    # -- in -----------------------------------------------------------------------------------------------------------

    def drafter(self, memory: Memory | None, ns: str, lease: Lease | None) -> Drafter:
        return Drafter(self.types, self.frames, memory, ns=ns, trusting=self.trusting, alone=lease is None)

    def add_items(self, row: Row, intake: Intake) -> Steps[None]:
        """What an act brings, as one small pack; when many lie about, they are packed anew."""
        if intake.entries:
            yield self.add_pack(row["thread_no"], intake.first, intake.entries)
            if row["items_loose"] + intake.bytes >= CROWD_BYTES:
                yield from self.pack_anew(row["thread_no"])

    def add_pack(self, thread_no: int, first: int, entries: Sequence[Entry | None], *, dense: bool = False) -> Query:
        pack = {"first": first, "items": len(entries), "bytes": plain_size(entries)}
        frame = write_pack(entries, self.frames, dense=dense)
        return Query("add_pack", {"thread_no": thread_no, **pack, "frame": frame})

    def pack_anew(self, thread_no: int) -> Steps[None]:
        """Neighbouring small packs become larger ones; the numbers in them stay."""
        rows = yield Query("list_packs", {"thread_no": thread_no})
        for group in neighbours(rows):
            first, last = group[0]["first"], group[-1]["first"] + group[-1]["items"] - 1
            stored = yield Query("get_packs", {"thread_no": thread_no, "ranges": as_json([[first, last]])})
            entries: list[Entry | None] = [None] * (last - first + 1)
            for row in stored:
                place = row["first"] - first
                entries[place : place + row["items"]] = read_pack(row["frame"], row["items"], self.frames)
            yield Query("drop_packs", many=[{"thread_no": thread_no, "first": row["first"]} for row in group])
            yield self.add_pack(thread_no, first, entries, dense=True)

    def set_counters(self, row: Row, intake: Intake, *, event_next: int = 0) -> Query:
        """Whoever finds other counters than it remembers knows that somebody else has stored items since."""
        by = self.token if intake.entries else row["items_by"]
        loose = row["items_loose"] + intake.bytes
        counters = {"item_next": intake.next, "items_by": by, "event_next": event_next}
        counters["items_loose"] = 0 if intake.entries and loose >= CROWD_BYTES else loose
        return Query("set_counters", {"thread_no": row["thread_no"], **counters})

    def remember(self, memory: Memory, row: Row, intake: Intake) -> None:
        """Called when all statements of an act have run; one that is taken back leaves other counters in the store."""
        with memory.lock:
            intake.remember(memory, (intake.next, self.token if intake.entries else row["items_by"]))

    def remembering(self, key: ThreadKey, act: Act[T]) -> Act[T]:
        """An act that ends with `remember`; should it be taken back then, nothing is known of the thread."""
        act.undo = partial(self.memories.drop, key)
        return act

    def current(self, key: ThreadKey, row: Row) -> Memory | None:
        """What this process remembers of a thread, if it is true."""
        memory = self.memories.get(key)
        return memory if memory is not None and memory.stamp == (row["item_next"], row["items_by"]) else None

    # -- out ----------------------------------------------------------------------------------------------------------

    def contents(self, thread_no: int, nodes: Iterable[bytes], memory: Memory | None = None) -> Steps[Contents]:
        """
        All that the nodes are made of, in three statements at most: long nodes, items, and the bases of those.

        Args:
            memory: gives objects that may be given out again.
        """
        nodes = [*nodes]
        found = Contents(self, {})
        far = {node.far for node in map(found.near, nodes) if node.far is not None}
        found.shared = memory.usable([*far]) if memory and far else {}
        yield from self.fetch(thread_no, found, far - found.shared.keys())
        whole_nodes = [*map(found.node, nodes)]
        named = Counter(node.numbers[0] for node in whole_nodes if node.form is Form.DICT)
        counts = Counter(number for node in whole_nodes for number in node.numbers)
        shared = memory.usable([*counts, *far]) if memory else {}
        whole = found.with_objects(shared)
        if memory:
            whole.known_names = {number: memory.names[number] for number in named if number in memory.names}
        names_only = {number for number in whole.known_names if counts[number] == named[number]}
        twice = {number for number, count in counts.items() if count > 1}
        yield from self.fetch(thread_no, whole, ({*counts} - shared.keys() - names_only) | (twice - names_only))
        return whole

    def fetch(self, thread_no: int, found: Contents, numbers: set[int]) -> Steps[None]:
        """Read the packs that hold these items, and then those that hold their bases."""
        wanted = numbers
        for _ in range(CHAIN_MAX + 1):
            missing = wanted - found.entries.keys()
            if missing:
                rows = yield Query("get_packs", {"thread_no": thread_no, "ranges": as_json(ranges(sorted(missing)))})
                for row in rows:
                    entries = read_pack(row["frame"], row["items"], self.frames)
                    found.entries.update(zip(range(row["first"], row["first"] + row["items"]), entries, strict=True))
                found.entries.update((number, None) for number in missing - found.entries.keys())
            bases = {base for number in wanted if (entry := found.entries[number]) for base in entry.bases}
            wanted = bases - found.entries.keys()
            if not wanted:
                return

    def numbers(self, thread_no: int, nodes: Sequence[bytes]) -> Steps[set[int]]:
        """Of all items that the nodes need, the nodes that are items included."""
        read = [read_node(node) for node in nodes]
        far = {node.far for node in read if node.far is not None}
        found = Contents(self, {})
        yield from self.fetch(thread_no, found, far)
        return far | {number for node in read for number in _items(node, found)}

    def learn_digests(self, memory: Memory, thread_no: int, nodes: Sequence[bytes]) -> Steps[None]:
        """Which content is stored under which number, as far as these nodes tell."""
        found = yield from self.contents(thread_no, nodes)
        numbers = {number for data in nodes for node in (found.near(data), found.node(data)) for number in node.numbers}
        for number in numbers:
            memory.numbers[self.frames.digest(found.frame(number))] = number
            entry = found.entries[number]
            memory.rests[number] = entry.bases if entry else ()

    # -- remembering what was read ------------------------------------------------------------------------------------

    def learn(
        self, memory: Memory, ns: str, found: Contents, nodes: Mapping[str, bytes], values: Mapping[str, Any]
    ) -> None:
        """The objects that were given out stand for their items from now on."""
        recent = len(found.fresh) - WATCHED
        for place, (number, (value, frame)) in enumerate(found.fresh.items()):
            if entry := found.entries.get(number):
                memory.rests[number] = entry.bases
            digest = self.frames.digest(frame) if place >= recent else None
            memory.hold(Held(number, value, digest=digest, size=len(frame)))
        for number, names in found.known_names.items():
            if number not in memory.names:
                memory.names[number] = names
                memory.numbers[self.frames.digest(codec.encode([*names], self.types))] = number
        for channel, data in nodes.items():
            self._learn_head(memory, (ns, channel), data, values[channel], found)

    def _learn_head(self, memory: Memory, place: Place, data: bytes, value: Any, found: Contents) -> None:
        near, node = found.near(data), found.node(data)
        inner = value.value if node.wrapper else value
        if node.form is Form.LIST:
            far = self._far_held(memory, near, found)
            numbers = near.numbers if near.form is Form.MORE else node.numbers if far is None else [far.number]
            elements = [memory.by_id.get(id(value)) for value in inner]
            live = [each.live if each else OPAQUE for each in elements]
            was = [each.was if each else None for each in elements]
            lent = all(each is not None and each.lent for each in elements)
            memory.heads[place] = ListHead([*inner], [*node.numbers], Runs().add(numbers), far, data, live, was, lent)
        elif node.form is Form.DICT:
            entries = {key: memory.by_id.get(id(member)) for key, member in inner.items()}
            held = {key: each for key, each in entries.items() if each is not None}
            for each in held.values():
                self._take_digest(memory, each, found)
            if len(held) == len(inner):
                far = self._far_held(memory, near, found)
                memory.heads[place] = DictHead((*inner,), node.numbers[0], held, far)
        elif node.form is Form.VALUE and (only := memory.by_number.get(node.numbers[0])) is not None:
            self._take_digest(memory, only, found)
            memory.heads[place] = only

    def learn_written(self, memory: Memory, place: Place, data: bytes, value: Any, found: Contents) -> None:
        """A dict that a task has written: the next one may resemble it."""
        node = found.node(data)
        if node.form is Form.DICT:
            entries = [(key, memory.by_id.get(id(member))) for key, member in unwrapped(value)[1].items()]
            held = [(key, each) for key, each in entries if each is not None]
            for _, each in held:
                self._take_digest(memory, each, found)
            memory.wrote(place, held)

    def _far_held(self, memory: Memory, node: Node, found: Contents) -> Held | None:
        if node.far is None:
            return None
        plain = found.frame(node.far)
        if entry := found.entries.get(node.far):
            memory.rests[node.far] = entry.bases
        held = Held(node.far, plain, digest=self.frames.digest(plain), size=len(plain), raw=True)
        memory.hold(held)
        return held

    def _take_digest(self, memory: Memory, held: Held, found: Contents) -> None:
        """Needed where the next value may be stored as the difference from this one."""
        if held.digest is None and held.number in found.fresh:
            held.digest = self.frames.digest(found.fresh[held.number][1])
            memory.numbers[held.digest] = held.number


def _items(node: Node, found: Contents) -> Sequence[int]:
    """The items that a node needs, the ones named by the node that it continues included."""
    return node.numbers if node.far is None else node.after(read_node(found.frame(node.far))).numbers


def neighbours(rows: Sequence[Row]) -> list[list[Row]]:
    """Small packs that lie beside one another, in groups that make one pack each. One alone is no group."""
    groups: list[list[Row]] = [[]]
    size = 0
    for row in rows:
        if groups[-1] and (row["bytes"] >= PACK_BYTES or size >= PACK_BYTES):
            groups.append([])
            size = 0
        if row["bytes"] < PACK_BYTES:
            groups[-1].append(row)
            size += row["bytes"]
    return [group for group in groups if len(group) > 1]


def ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Sorted numbers as `[first, last]` each, near ones together."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number - found[-1][1] <= NEAR:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found
