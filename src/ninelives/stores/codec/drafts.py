"""
A channel's value on its way into the store: which of it is there already, and what is new.

Drafting happens before the transaction, against what this process remembers of the thread (`memory.py`). Numbers are
given within it (`Intake`), because only there it is certain which come next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ninelives import _langgraph
from ninelives.stores.codec.encoding import encode
from ninelives.stores.codec.frames import Frames, pack
from ninelives.stores.codec.memory import (
    ENCODED_AGAIN,
    OPAQUE,
    SEEN_EACH_TIME,
    DictHead,
    Head,
    Held,
    ListHead,
    Memory,
    Place,
    same_beginning,
)
from ninelives.stores.codec.nodes import Form, Runs, unwrapped, write_node
from ninelives.stores.codec.packs import BASE_BYTES_MIN, CHAIN_MAX, Entry, plain_size
from ninelives.stores.codec.types import TypeRegistry

INLINE_MAX = 40
"""Bytes of a frame that is kept in its node."""
NODE_MAX = 256
"""Bytes of a node that is kept in its checkpoint; a longer one is an item of its own."""
WHOLE_MAX = 512
"""Bytes of a dict's frame that is not worth an item per entry."""
_SCALARS = (type(None), bool, int, float)


@dataclass(slots=True)
class New:
    """Content that may not be in the store yet. `held`: the object that stands for it, as it looked when encoded."""

    frame: bytes
    digest: bytes
    held: Held | None = None
    delta: Entry | None = None


Piece = int | New
"""The number of an item that is stored, or a new one."""


@dataclass(slots=True)
class Draft:
    """
    One value, drafted.

    Attributes:
        head: the list that this one continues, unchanged.
        pieces: what it is made of; of a list that continues another, what was added.
        keys: of a dict, the item that lists its keys.
        far: the item that was its node before, as far as that was one.
    """

    form: Form
    wrapper: int = 0
    value: Any = None
    pieces: list[Piece] = field(default_factory=list)
    keys: Piece | None = None
    frame: bytes = b""
    head: ListHead | None = None
    far: Held | None = None
    changed: list[str] = field(default_factory=list)
    """Paths of objects that were changed in place since they were stored."""


class Drafter:
    """
    Drafts the values of one act.

    Args:
        memory: of the thread, or None; held by its lock meanwhile.
        trusting: an object that looks as it did is not encoded again (`fidelity="strict"` does not trust).
        alone: for a saver used alone. Others may write between drafting and storing, so nothing is taken for stored
            here: everything is encoded, and found by its digest in the transaction.
    """

    def __init__(
        self,
        types: TypeRegistry,
        frames: Frames,
        memory: Memory | None,
        *,
        ns: str,
        trusting: bool = True,
        alone: bool = False,
    ) -> None:
        self.types, self.frames, self.memory, self.ns = types, frames, memory, ns
        self.trusting, self.alone = trusting, alone

    def draft(self, channel: str, value: Any, path: str) -> Draft:
        wrapper, inner = unwrapped(value)
        place = (self.ns, channel)
        if type(inner) is list and _is_worth_items(inner):
            draft = self._list(place, inner, path)
        elif type(inner) is dict and _has_plain_keys(inner):
            draft = self._dict(place, inner, path)
        else:
            wrapper, draft = 0, self._whole(place, value, path)
        draft.wrapper = wrapper
        return draft

    # -- a value as one item --------------------------------------------------------------------------------------

    def _whole(self, place: Place, value: Any, path: str) -> Draft:
        if (known := self._known(value)) is not None:
            return Draft(Form.VALUE, value=value, pieces=[known.number])
        # A failure is stored to be told: that its class or its cause is lost must not be another one.
        frame = encode(value, self.types, path=path, quiet=place[1] == _langgraph.ERROR)
        if len(frame) <= INLINE_MAX:
            return Draft(Form.INLINE, value=value, frame=frame)
        return Draft(Form.VALUE, value=value, pieces=[self._new(value, frame, self._head(place, Held))])

    def _known(self, value: Any) -> Held | None:
        """Only of what cannot be changed: all else is encoded again where it stands alone."""
        if self.memory is None or self.alone or type(value) not in (str, bytes):
            return None
        return self.memory.find(value)

    def _new(self, value: Any, frame: bytes, base: Held | None = None) -> Piece:
        digest = self.frames.digest(frame)
        held = Held(0, value, digest=digest, size=len(frame))
        if self.memory and not self.alone and (number := self.memory.numbers.get(digest)) is not None:
            held.number = number
            self.memory.hold(held)
            return number
        return New(frame, digest, held, self._delta(frame, base))

    def _delta(self, frame: bytes, base: Held | None) -> Entry | None:
        """The difference from what stood there before, if it is much shorter."""
        if base is None or base.digest is None or min(len(frame), base.size) < BASE_BYTES_MIN:
            return None
        before = encode(base.value, self.types, quiet=True)
        if self.frames.digest(before) != base.digest:
            return None
        return difference(frame, base.number, before, self.memory)

    def _head(self, place: Place, kind: type[Any]) -> Any:
        head = self.memory.heads.get(place) if self.memory else None
        return head if isinstance(head, kind) else None

    # -- a list: an item per element --------------------------------------------------------------------------------

    def _list(self, place: Place, values: list[Any], path: str) -> Draft:
        before: ListHead | None = None if self.alone else self._head(place, ListHead)
        values = [*values]  # the act may wait, and the list be changed meanwhile
        draft = Draft(Form.LIST, value=values, far=before.far if before else None)
        newest = max(0, len(values) - ENCODED_AGAIN) if self.trusting else 0
        same = same_beginning(before.values, values) if before else 0
        changed = [i for i in range(min(newest, same), same) if self._is_changed(values[i])]
        draft.changed = [f"{path}[{i}]" for i in changed]
        if before and changed and self.memory:
            self.memory.heads[place] = before._replace(lent=False)
        grew = before is not None and same == len(before.values)
        if before and grew and not changed and before.looks_same(SEEN_EACH_TIME):
            draft.head = before
        stored = {*map(id, before.values)} if before and not draft.head else set()
        for i in range(len(before.values) if before and draft.head else 0, len(values)):
            piece, was_changed = self._element(values[i], f"{path}[{i}]", trusted=i < newest)
            draft.pieces.append(piece)
            # What was only written by a task so far belongs to the reducer, which may well stamp an id on it.
            if was_changed and id(values[i]) in stored and i not in changed:
                draft.changed.append(f"{path}[{i}]")
        return draft

    def _is_changed(self, value: Any) -> bool:
        held = self.memory.by_id.get(id(value)) if self.memory else None
        return held is not None and self._differs(held)

    def _differs(self, held: Held) -> bool:
        return self.memory is None or is_changed(held, self.memory, self.types, self.frames)

    def _element(self, value: Any, path: str, *, trusted: bool) -> tuple[Piece, bool]:
        """The piece, and whether the object was changed since it was stored."""
        memory = self.memory
        held = memory.by_id.get(id(value)) if memory and not self.alone else None
        if held is None or memory is None:
            return self._new(value, encode(value, self.types, path=path)), False
        if held.live is None or (trusted and held.intact) or not self._differs(held):
            return held.number, False
        return self._new(value, encode(value, self.types, path=path)), True

    # -- a dict: an item per entry ------------------------------------------------------------------------------------

    def _dict(self, place: Place, value: dict[str, Any], path: str) -> Draft:
        head: DictHead | None = self._head(place, DictHead)
        if head is None:
            frame = encode(value, self.types, path=path)
            if len(frame) <= INLINE_MAX:
                return Draft(Form.INLINE, value=value, frame=frame)
            if len(frame) <= WHOLE_MAX:
                return Draft(Form.VALUE, value=value, pieces=[self._new(value, frame, self._head(place, Held))])
        value = {**value}  # as above
        draft = Draft(Form.DICT, value=value, far=head.far if head else None)
        known = head is not None and not self.alone and head.names == (*value,)
        draft.keys = head.keys if head and known else self._keys([*value], head)
        written = self.memory.written.get(place, {}) if self.memory else {}
        for key, member in value.items():
            before = head.entries.get(key) if head else None
            newest = _newer(before, written.get(key))
            draft.pieces.append(self._entry(before, newest, member, f"{path}.{key}", draft))
        return draft

    def _keys(self, names: list[str], before: DictHead | None) -> Piece:
        frame = encode(names, self.types)
        digest = self.frames.digest(frame)
        if self.memory and not self.alone and (number := self.memory.numbers.get(digest)) is not None:
            return number
        delta = None
        if before is not None and len(frame) >= BASE_BYTES_MIN:
            delta = difference(frame, before.keys, encode([*before.names], self.types), self.memory)
        return New(frame, digest, None, delta)

    def _entry(self, before: Held | None, newest: Held | None, value: Any, path: str, draft: Draft) -> Piece:
        """`before`: what the newest checkpoint has there; `newest`: what was stored for it last."""
        if before is not None and before.value is value and not self.alone:
            if before.live is None or (self.trusting and before.size > BASE_BYTES_MIN and before.intact):
                return before.number
            frame = encode(value, self.types, path=path)
            if self.frames.digest(frame) == before.digest:
                return before.number
            before.lent = False
            draft.changed.append(path)
            return self._new(value, frame)
        if (known := self._known(value)) is not None:
            return known.number
        return self._new(value, encode(value, self.types, path=path), newest)


def is_changed(held: Held, memory: Memory, types: TypeRegistry, frames: Frames) -> bool:
    """Whether an object would not make the bytes any more that its item has; then it is not given out for it either."""
    if held.live is None:
        return False
    digest = frames.digest(encode(held.value, types, quiet=True))
    if held.digest is None and held.intact:
        # It was loaded, and this is the first look at its bytes. What it stands for was not compared with them, so an
        # equal value elsewhere is not to be found by this digest.
        held.digest = digest
    if digest == held.digest:
        return False
    held.lent = False  # still held: what was drafted may not be stored, and is to be found changed again then
    return True


def changed_in_place(memory: Memory, types: TypeRegistry, frames: Frames, bytes_max: int) -> list[str]:
    """Paths of objects that were changed since they were stored; the next draft takes them for what they are now."""
    paths = []
    with memory.lock:
        for place, step, held in [*memory.suspects(bytes_max)]:
            if is_changed(held, memory, types, frames):
                memory.forget(held)
                memory.heads.pop(place, None)
                paths.append(f"{place[1]}{step}")
    return paths


def _newer(one: Held | None, other: Held | None) -> Held | None:
    return other if one is None or (other is not None and other.number > one.number) else one


def _is_worth_items(values: list[Any]) -> bool:
    """Long rows of numbers and short words are one value: an item each would cost more than they do."""
    return bool(values) and not (_is_small(values[0]) and _is_small(values[-1]))


def _is_small(value: Any) -> bool:
    return type(value) in _SCALARS or (type(value) is str and len(value) < 64)


def _has_plain_keys(value: Mapping[Any, Any]) -> bool:
    return bool(value) and all(type(key) is str for key in value)


# -- in the transaction ---------------------------------------------------------------------------------------------


class Heading(NamedTuple):
    """A value as one act has stored it; see `Draft` and `ListHead`. `place`: the channel that it is of, if of one."""

    place: Place | None
    draft: Draft
    numbers: list[int]
    keys: int | None
    runs: Runs
    far: Held | None
    data: bytes


class Intake:
    """
    Gives numbers to what is new, from the thread's next free one on, and makes nodes of drafts.

    Args:
        bases: what the drafts took for stored is stored, so an item may be kept as its difference from it.
    """

    def __init__(self, first: int, memory: Memory | None, frames: Frames, *, bases: bool = True) -> None:
        self.first, self.memory, self.frames, self.bases = first, memory, frames, bases
        self.entries: list[Entry | None] = []
        self.held: list[Held] = []
        self._given: dict[bytes, int] = {}
        self._heads: list[Heading] = []
        self._wrote: list[Heading] = []

    @property
    def next(self) -> int:
        return self.first + len(self.entries)

    def node(self, draft: Draft, place: Place | None) -> bytes:
        """
        Args:
            place: where the value will be looked for when the next one is drafted.
        """
        made = self._made(draft, place)
        if place is not None and draft.form is not Form.INLINE:
            self._heads.append(made)
        return made.data

    def write(self, draft: Draft, place: Place) -> bytes:
        """As `node`, of what a task writes to a channel: it is no value of the channel yet."""
        made = self._made(draft, place)
        if draft.form is Form.DICT:
            self._wrote.append(made)
        return made.data

    def _made(self, draft: Draft, place: Place | None) -> Heading:
        if draft.form is Form.INLINE:
            return Heading(place, draft, [], None, Runs(), None, write_node(draft.form, draft.wrapper, draft.frame))
        keys = None if draft.keys is None else self._number(draft.keys)
        numbers = [*map(self._number, draft.pieces)]
        before = draft.head
        runs = (before.runs if before else Runs()).add([*([] if keys is None else [keys]), *numbers])
        far = before.far if before else None
        node = self._written(draft, runs, far)
        if len(node) > NODE_MAX:
            whole = Runs().add([*before.numbers, *numbers]) if before else runs
            far = self._far(write_node(draft.form, draft.wrapper, whole.written()), far or draft.far)
            runs = Runs().add([far.number])
            node = self._written(draft, runs, far)
        return Heading(place, draft, numbers, keys, runs, far, node)

    def _written(self, draft: Draft, runs: Runs, far: Held | None) -> bytes:
        form = draft.form if far is None else Form.MORE if draft.form is Form.LIST else Form.FAR
        return write_node(form, draft.wrapper, runs.written())

    def _far(self, node: bytes, before: Held | None) -> Held:
        """A long node as an item, as the difference from the one before where there is one."""
        digest = self.frames.digest(node)
        number = self._lookup(digest)
        if number is None:
            delta = before and difference(node, before.number, before.value, self.memory)
            number = self._give(digest, delta or Entry(node))
        held = Held(number, node, digest=digest, size=len(node), raw=True)
        self.held.append(held)
        return held

    def _number(self, piece: Piece) -> int:
        if isinstance(piece, int):
            return piece
        known = self._lookup(piece.digest)
        if known is None:
            delta = piece.delta if self.bases else None
            known = self._give(piece.digest, delta or Entry(piece.frame))
        if piece.held is not None:
            piece.held.number = known
            self.held.append(piece.held)
        return known

    def _lookup(self, digest: bytes) -> int | None:
        number = self._given.get(digest)
        return self.memory.numbers.get(digest) if number is None and self.memory else number

    def _give(self, digest: bytes, entry: Entry) -> int:
        number = self._given[digest] = self.next
        self.entries.append(entry)
        return number

    def skip(self) -> None:
        """Give a number to nothing, so that whoever remembers the thread sees that it was changed."""
        self.entries.append(None)

    @property
    def bytes(self) -> int:
        return plain_size(self.entries)

    def remember(self, memory: Memory, stamp: tuple[int, str | None]) -> None:
        """What this act has stored; called when its statements have run. Taken back, it leaves another stamp."""
        memory.drop_unused()
        memory.stamp = stamp
        for number, entry in enumerate(self.entries, self.first):
            memory.rests[number] = entry.bases if entry else ()
        memory.numbers.update(self._given)
        for held in self.held:
            memory.hold(held)
        for heading in self._heads:
            assert heading.place is not None
            if (head := _head_of(memory, heading)) is not None:
                memory.heads[heading.place] = head
            else:
                memory.heads.pop(heading.place, None)
        for heading in self._wrote:
            assert heading.place is not None
            memory.wrote(heading.place, _entries(memory, heading.draft.value, heading.numbers))


def _head_of(memory: Memory, heading: Heading) -> Head | None:
    """None: the value was changed in place while it was stored."""
    draft, numbers = heading.draft, heading.numbers
    if draft.form is Form.LIST:
        return _list_head(memory, heading)
    if draft.form is Form.DICT:
        entries = dict(_entries(memory, draft.value, numbers))
        if heading.keys is None or len(entries) != len(numbers):
            return None
        memory.names[heading.keys] = (*entries,)
        return DictHead((*entries,), heading.keys, entries, heading.far)
    return memory.by_number.get(numbers[0])


def _list_head(memory: Memory, heading: Heading) -> ListHead | None:
    before, values, numbers = heading.draft.head, heading.draft.value, heading.numbers
    kept = len(before.values) if before else 0
    if len(values) != kept + len(numbers):
        return None
    held = [memory.by_id.get(id(value)) for value in values[kept:]]
    live = [each.live if each else OPAQUE for each in held]
    was = [each.was if each else None for each in held]
    lent = all(each is not None and each.lent for each in held)
    if before is not None:
        numbers, live, was = [*before.numbers, *numbers], [*before.live, *live], [*before.was, *was]
        lent = lent and before.lent
    return ListHead(values, numbers, heading.runs, heading.far, heading.data, live, was, lent)


def _entries(memory: Memory, value: Mapping[str, Any], numbers: Sequence[int]) -> Iterator[tuple[str, Held]]:
    for (key, member), number in zip(value.items(), numbers, strict=False):
        held = memory.by_id.get(id(member))
        if held is not None and held.number == number:
            yield key, held


def difference(data: bytes, base: int, before: bytes, memory: Memory | None) -> Entry | None:
    """The bytes as their difference from those of another item, if that is much shorter and its chain not too long."""
    rests = memory.rests.get(base) if memory else None
    if rests is None or len(rests) >= CHAIN_MAX - 1 or len(before) < len(data) // 4:
        return None
    packed = pack(data, base=before, dense=True)
    return Entry(packed, (base, *rests)) if len(packed) < len(data) // 4 else None
