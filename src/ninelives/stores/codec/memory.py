"""
What this process knows of a thread: which object is which item, so that a step encodes only what is new.

An object stands for an item only while it is held here (so its identity is its own) and looks as it did: its fields, or
members, are the same ones. That is the *shape*, one level deep, and cheap. What lies deeper is found by encoding again:
`Memory.suspects` hands out what is to be looked at, the newest always, older ones in turn.

Nothing here is true for longer than its stamp: the thread's next free item number and who gave the last one. A stamp
that differs from the store's means that somebody else has written, or that our last act was taken back.

Source: the identity map of Fowler's *Patterns of Enterprise Application Architecture*.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import chain
from operator import eq, is_
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel

from ninelives.stores.codec.nodes import Runs
from ninelives.stores.codec.packs import BASE_BYTES_MIN

HELD_MAX = 400_000
"""Objects held for all threads together; the threads used longest ago are forgotten first."""
UNUSED_MAX = 4096
"""Objects held for a thread beside those of its newest values."""
WRITTEN_MAX = 1024
"""Entries of a dict remembered as tasks wrote them."""
LOOKED_AT_MAX = 2048
"""Objects whose shape is looked at on one loading; beyond that many, in turn."""
SEEN_EACH_TIME = 64
"""Of the newest elements of a list: their shape is looked at with each checkpoint."""
STRICTLY = 32
"""Of those, on loading: each field must be the very same object, not only an equal one."""
ENCODED_AGAIN = 4
"""Of the newest elements of a list: they are encoded again with each checkpoint, whatever their shape."""

Stamp = tuple[int, "str | None"]
Place = tuple[str, str]
"""Namespace and channel."""

_MEMBERS: tuple[type, ...] = (dict, list, set, OrderedDict, Counter, defaultdict, deque, bytearray)
_PLAIN = (str, bytes, int, float, bool, type(None), complex, datetime, date, time, timedelta, Decimal, Fraction, UUID)


class _Opaque:
    """Stands for an object whose changes nothing shows but its bytes. It is never the same."""

    __eq__ = None  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> None:
        return None


OPAQUE = _Opaque()


class Held:
    """
    An object that stands for an item.

    Attributes:
        digest: of its frame; None as long as nobody has asked.
        size: bytes of its frame.
        lent: it was held for a run, and may be given out to the next one.
        raw: the value is the item's very bytes (a node that was too long for its checkpoint).
    """

    __slots__ = ("digest", "lent", "live", "number", "raw", "size", "value", "was")

    def __init__(self, number: int, value: Any, *, digest: bytes | None, size: int, raw: bool = False) -> None:
        self.number, self.value, self.digest, self.size, self.raw = number, value, digest, size, raw
        self.lent = False
        self.live = _live_part(value)
        self.was = None if self.live is None else self.live.copy()

    @property
    def intact(self) -> bool:
        """Whether it looks as it did, each field or member being the very same object."""
        return self.live is None or _same(self.live, self.was)


def _live_part(value: Any) -> Any:
    """What of an object shows that it was changed: its fields or members. None: it cannot be changed."""
    cls = type(value)
    if cls in _PLAIN or isinstance(value, Enum):
        return None
    if cls in _MEMBERS:
        return value
    if cls in (tuple, frozenset) and all(type(member) in _PLAIN for member in value):
        return None
    if isinstance(value, BaseModel):
        return OPAQUE if value.__pydantic_extra__ or value.__pydantic_private__ else value.__dict__
    if isinstance(value, _CONTAINERS) or any("__slots__" in vars(parent) for parent in cls.__mro__[:-1]):
        return OPAQUE
    return getattr(value, "__dict__", OPAQUE)


_CONTAINERS = (dict, list, set, frozenset, tuple, deque, bytearray)


def _all_same(live: list[Any], was: list[Any]) -> bool:
    """Of many at once, and so by equality: what was replaced by its equal (1 by True) is not seen."""
    try:
        return all(map(eq, live, was))
    except Exception:  # arrays and the like have no plain answer: then it is another object
        return False


def _same(live: Any, was: Any) -> bool:
    if live is OPAQUE or len(live) != len(was):
        return False
    if isinstance(live, dict):
        return all(map(is_, live.values(), was.values())) and all(map(eq, live, was))
    return live == was if isinstance(live, set | bytearray) else all(map(is_, live, was))


class ListHead(NamedTuple):
    """
    A list as it was stored last.

    Attributes:
        runs: its numbers, or those behind the ones of `far`.
        data: its node.
        live, was: of each element, what shows a change, and how it looked. (Apart, to be compared at once.)
        lent: all of them were held for a run, and may be given out to the next one.
    """

    values: list[Any]
    numbers: list[int]
    runs: Runs
    far: Held | None
    data: bytes
    live: list[Any]
    was: list[Any]
    lent: bool

    def looks_same(self, newest: int) -> bool:
        """Whether the newest elements, but no more than that many, look as they did."""
        return _all_same(self.live[-newest:], self.was[-newest:])


class DictHead(NamedTuple):
    """A dict as it was stored last: its keys, the item of those, and an object per key."""

    names: tuple[str, ...]
    keys: int
    entries: dict[str, Held]
    far: Held | None = None


Head = ListHead | DictHead | Held


class Walk(NamedTuple):
    """
    What a checkpoint's DeltaChannels replay, as it was found out.

    Attributes:
        origin: the checkpoint.
        chains: per channel, the ancestors whose writes it replays, nearest first.
        seeds: per channel, the node that they start from.
        writes: `(task, channel, node)` of each of those ancestors.
    """

    origin: int
    chains: dict[str, list[int]]
    seeds: dict[str, bytes]
    writes: dict[int, list[tuple[str, str, bytes]]]


class KeyBody(NamedTuple):
    """A checkpoint's body that later ones are stored as the difference from."""

    number: int
    plain: bytes
    uses: int


@dataclass(slots=True)
class Memory:
    """Of one thread."""

    stamp: Stamp
    by_id: dict[int, Held] = field(default_factory=dict)
    by_number: dict[int, Held] = field(default_factory=dict)
    numbers: dict[bytes, int] = field(default_factory=dict)
    heads: dict[Place, Head] = field(default_factory=dict)
    written: dict[Place, dict[str, Held]] = field(default_factory=dict)
    """Entries of dicts as tasks wrote them last: what the next ones resemble while no checkpoint holds the channel."""
    rests: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Of each item that is known here: those that it is stored as the difference from, one after the other."""
    names: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Items that list the keys of a dict."""
    keys: dict[str, KeyBody] = field(default_factory=dict)
    walks: dict[str, Walk] = field(default_factory=dict)
    tips: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Of each namespace, the checkpoint that was put last: its id and number."""
    knows_all: bool = False
    """Of the newest checkpoint, the digests of all items; a run's loading takes those of the newest ones only."""
    early: bool = False
    """Writes were stored whose checkpoint was not there."""
    claimed: bool = False
    """A run of this process works on the thread: its objects are the ones to hold."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    _turn: int = 0
    _crowd: int = UNUSED_MAX

    def hold(self, held: Held) -> None:
        """Several objects may stand for one item; the last one is given out."""
        held.lent = self.claimed
        former = self.by_id.get(id(held.value))
        if former is not None and former.number != held.number and self.by_number.get(former.number) is former:
            del self.by_number[former.number]
        self.by_id[id(held.value)] = held
        self.by_number[held.number] = held
        if held.digest is not None:
            self.numbers[held.digest] = held.number

    def forget(self, held: Held) -> None:
        """The object does not stand for its item any more; the item is still there."""
        if self.by_id.get(id(held.value)) is held:
            del self.by_id[id(held.value)]
        if self.by_number.get(held.number) is held:
            del self.by_number[held.number]

    def find(self, value: Any) -> Held | None:
        """The item that an object stands for, if it looks as it did."""
        held = self.by_id.get(id(value))
        return held if held is not None and held.intact else None

    def usable(self, numbers: Sequence[int]) -> dict[int, Held]:
        """
        Those of the items whose objects may be given out again. What was changed since is forgotten.

        The shape of up to `LOOKED_AT_MAX` is looked at, the newest always.
        """
        known = [held for held in map(self.by_number.get, numbers) if held is not None and held.lent]
        for held in self._in_turn(known):
            if not held.intact and held.live is not None:
                self.forget(held)
        return {held.number: held for held in known if self.by_number.get(held.number) is held}

    def _in_turn(self, known: list[Held]) -> list[Held]:
        if len(known) <= LOOKED_AT_MAX:
            return known
        newest = LOOKED_AT_MAX // 2
        older, known = known[:-newest], known[-newest:]
        start = self._turn % len(older)
        self._turn += newest
        return [*known, *older[start:], *older[:start]][:LOOKED_AT_MAX]

    def list_of(self, place: Place, data: bytes) -> ListHead | None:
        """The list that a node makes, of objects that are held here and look as they did; None if it must be built."""
        head = self.heads.get(place)
        if not isinstance(head, ListHead) or head.data != data or not head.lent:
            return None
        length = len(head.values)
        newest = length - LOOKED_AT_MAX // 2 if length > LOOKED_AT_MAX else 0
        spans = [(newest, length)]
        if newest:
            start = self._turn % newest
            self._turn += LOOKED_AT_MAX // 2
            spans.append((start, start + LOOKED_AT_MAX // 2))
        same = all(_all_same(head.live[first:last], head.was[first:last]) for first, last in spans)
        strictly = all(map(_strictly_same, head.live[-STRICTLY:], head.was[-STRICTLY:]))
        return head if same and strictly else None

    def suspects(self, bytes_max: int) -> Iterator[tuple[Place, str, Held]]:
        """
        What to encode again, with where it is: of each list and dict the newest objects, and older ones in turn, each
        of the two up to about `bytes_max` bytes.
        """
        for place, head in [*self.heads.items()]:
            names: Sequence[str] = ()
            values: Sequence[Any] = ()
            if isinstance(head, ListHead):
                values = head.values
            elif isinstance(head, DictHead):
                names, values = [*head.entries], [held.value for held in head.entries.values()]
            count = len(values)
            start = self._turn % count if count else 0
            seen: set[int] = set()
            for some in (range(count - 1, -1, -1), chain(range(start, count), range(start))):
                left = bytes_max
                for i in some:
                    held = self.by_id.get(id(values[i]))
                    if held is None or held.live is None or i in seen:
                        continue
                    left -= held.size
                    seen.add(i)
                    yield place, f".{names[i]}" if names else f"[{i}]", held
                    if left <= 0:
                        break
            self._turn += len(seen)

    def drop_heads(self, ns: str, kept: Collection[Place]) -> None:
        """A checkpoint was stored: channels that are not in it hold nothing, but for what DeltaChannels start from."""
        seeds = self.walks[ns].seeds if ns in self.walks else {}
        for place in [*self.heads]:
            if place[0] == ns and place not in kept and place[1] not in seeds:
                del self.heads[place]

    def wrote(self, place: Place, entries: Iterable[tuple[str, Held]]) -> None:
        """A task has written these entries of a dict. Small ones are not kept, nor many: the latest are."""
        written = self.written.setdefault(place, {})
        for key, held in entries:
            written.pop(key, None)
            if held.size >= BASE_BYTES_MIN:
                written[key] = held
        for key in [*written][: max(0, len(written) - WRITTEN_MAX)]:
            del written[key]

    def drop_unused(self) -> None:
        """Let go of objects that no head holds any more, once there are many."""
        if len(self.by_number) < self._crowd:
            return
        used: set[int] = set()
        for head in self.heads.values():
            used.update(_numbers_of(head))
        for entries in self.written.values():
            used.update(held.number for held in entries.values())
        self._crowd = 2 * len(used) + UNUSED_MAX
        if len(self.by_number) >= self._crowd:
            self.by_id = {key: held for key, held in self.by_id.items() if held.number in used}
            self.by_number = {number: held for number, held in self.by_number.items() if number in used}
            self.numbers = {digest: number for digest, number in self.numbers.items() if number in used}
            self.rests = {number: bases for number, bases in self.rests.items() if number in used}
            self.names = {number: names for number, names in self.names.items() if number in used}


def _numbers_of(head: Head) -> Iterable[int]:
    match head:
        case ListHead(numbers=numbers, far=far):
            return [*numbers, *([far.number] if far else [])]
        case DictHead(keys=keys, entries=entries, far=far):
            return [keys, *(held.number for held in entries.values()), *([far.number] if far else [])]
        case Held():
            return [head.number]


def same_beginning(before: list[Any], now: list[Any]) -> int:
    """How many elements at the beginning are the very same objects."""
    if all(map(is_, before, now)):
        return min(len(before), len(now))
    return next(i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a is not b)


def _strictly_same(live: Any, was: Any) -> bool:
    return live is None or _same(live, was)


class Memories:
    """Of all threads that this process has to do with; the ones used last."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Memory] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, key: tuple[str, str]) -> Memory | None:
        with self._mutex:
            memory = self._known.get(key)
            if memory is not None:
                self._known.move_to_end(key)
            return memory

    def put(self, key: tuple[str, str], memory: Memory) -> None:
        with self._mutex:
            self._known[key] = memory
            self._known.move_to_end(key)
            total = sum(len(m.by_number) for m in self._known.values()) if len(self._known) % 16 == 0 else 0
            while total > HELD_MAX and len(self._known) > 1:
                _, forgotten = self._known.popitem(last=False)
                total -= len(forgotten.by_number)

    def drop(self, key: tuple[str, str]) -> None:
        with self._mutex:
            self._known.pop(key, None)
