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
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import eq, is_
from typing import Any, NamedTuple

from ninelives.stores.codec.nodes import Runs

HELD_MAX = 400_000
"""Objects held for all threads together; the threads used longest ago are forgotten first."""
UNUSED_MAX = 4096
"""Objects held for a thread beside those of its newest values."""
LOOKED_AT_MAX = 2048
"""Objects whose shape is looked at on one loading; beyond that many, in turn."""
ENCODED_AGAIN = 8
"""Of the newest elements of a list: they are encoded again with each checkpoint, whatever their shape."""

Stamp = tuple[int, "str | None"]
Place = tuple[str, str]
"""Namespace and channel."""

_MEMBERS: tuple[type, ...] = (dict, list, set, OrderedDict, Counter, deque, bytearray)
_PLAIN = (str, bytes, int, float, bool, type(None), complex)


class Held:
    """
    An object that stands for an item.

    Attributes:
        digest: of its frame; None as long as nobody has asked.
        size: bytes of its frame.
        raw: the value is the item's very bytes (a node that was too long for its checkpoint).
    """

    __slots__ = ("digest", "live", "number", "raw", "size", "value", "was")

    def __init__(self, number: int, value: Any, *, digest: bytes | None, size: int, raw: bool = False) -> None:
        self.number, self.value, self.digest, self.size, self.raw = number, value, digest, size, raw
        self.live = _live_part(value)
        self.was = None if self.live is None else self.live.copy()

    @property
    def intact(self) -> bool:
        return _same(self.live, self.was)


def _live_part(value: Any) -> Any:
    """What of an object shows that it was changed: its fields or members."""
    cls = type(value)
    if cls in _PLAIN:
        return None
    if cls in _MEMBERS:
        return value
    return getattr(value, "__dict__", None)


def _all_same(live: list[Any], was: list[Any]) -> bool:
    try:
        return all(map(eq, live, was))
    except Exception:  # see `_same`
        return False


def _same(live: Any, was: Any) -> bool:
    try:
        return bool(live == was)
    except Exception:  # arrays and the like have no plain answer: then it is another object
        return False


class ListHead(NamedTuple):
    """
    A list as it was stored last.

    Attributes:
        runs: its numbers, or those behind the ones of `far`.
        data: its node.
        live, was: of each element, what shows a change, and how it looked. (Apart, to be compared at once.)
    """

    values: list[Any]
    numbers: list[int]
    runs: Runs
    far: Held | None
    data: bytes
    live: list[Any]
    was: list[Any]


class DictHead(NamedTuple):
    """A dict as it was stored last: the item of its keys, and an object per key."""

    keys: Held
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
    rests: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Items that are stored as the difference from others, and from which."""
    keys: dict[str, KeyBody] = field(default_factory=dict)
    walks: dict[str, Walk] = field(default_factory=dict)
    claimed: bool = False
    """A run of this process works on the thread: its objects are the ones to hold."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    _turn: int = 0
    _crowd: int = UNUSED_MAX

    def hold(self, held: Held) -> None:
        if former := self.by_number.get(held.number):
            self.by_id.pop(id(former.value), None)
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
        known = [held for held in map(self.by_number.get, numbers) if held is not None]
        for held in self._in_turn(known):
            if not held.intact:
                self.forget(held)
        return {held.number: held for held in known if self.by_number.get(held.number) is held}

    def _in_turn(self, known: list[Held]) -> list[Held]:
        if len(known) > LOOKED_AT_MAX:
            newest = LOOKED_AT_MAX // 4
            older, known = known[:-newest], known[-newest:]
            start = self._turn % len(older)
            self._turn += LOOKED_AT_MAX - newest
            known += islice(_round(older, start), LOOKED_AT_MAX - newest)
        return [] if _all_same([held.live for held in known], [held.was for held in known]) else known

    def list_of(self, place: Place, data: bytes) -> list[Any] | None:
        """The list that a node makes, of objects that are held here and look as they did; None if it must be built."""
        head = self.heads.get(place)
        if not isinstance(head, ListHead) or head.data != data:
            return None
        length = len(head.values)
        newest = length - LOOKED_AT_MAX // 2 if length > LOOKED_AT_MAX else 0
        spans = [(newest, length)]
        if newest:
            start = self._turn % newest
            self._turn += LOOKED_AT_MAX // 2
            spans.append((start, start + LOOKED_AT_MAX // 2))
        same = all(_all_same(head.live[first:last], head.was[first:last]) for first, last in spans)
        return [*head.values] if same else None

    def suspects(self, limit: int) -> Iterator[tuple[Place, str, Held]]:
        """
        What to encode again, with where it is: of each list and dict up to `limit` objects, the newest half of them
        always, the others in turn.
        """
        for place, head in [*self.heads.items()]:
            parts: list[tuple[str, Any]] = []
            if isinstance(head, ListHead):
                parts = [(f"[{i}]", value) for i, value in enumerate(head.values)]
            elif isinstance(head, DictHead):
                parts = [(f".{key}", held.value) for key, held in head.entries.items()]
            if len(parts) > limit:
                older, parts = parts[: -limit // 2], parts[-limit // 2 :]
                start = self._turn % len(older)
                parts += [*older[start:], *older[:start]][: limit // 2]
                self._turn += limit // 2
            for step, value in parts:
                if (held := self.by_id.get(id(value))) is not None and held.live is not None:
                    yield place, step, held

    def drop_unused(self) -> None:
        """Let go of objects that no head holds any more, once there are many."""
        if len(self.by_number) < self._crowd:
            return
        used: set[int] = set()
        for head in self.heads.values():
            used.update(_numbers_of(head))
        self._crowd = 2 * len(used) + UNUSED_MAX
        if len(self.by_number) >= self._crowd:
            for number in self.by_number.keys() - used:
                self.forget(self.by_number[number])
            self.numbers = {digest: number for digest, number in self.numbers.items() if number in used}


def _round(values: list[Held], start: int) -> Iterator[Held]:
    yield from values[start:]
    yield from values[:start]


def _numbers_of(head: Head) -> Iterable[int]:
    match head:
        case ListHead(numbers=numbers, far=far):
            return [*numbers, *([far.number] if far else [])]
        case DictHead(keys=keys, entries=entries, far=far):
            return [keys.number, *(held.number for held in entries.values()), *([far.number] if far else [])]
        case Held():
            return [head.number]


def same_beginning(before: list[Any], now: list[Any]) -> int:
    """How many elements at the beginning are the very same objects."""
    if all(map(is_, before, now)):
        return min(len(before), len(now))
    return next(i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a is not b)


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
