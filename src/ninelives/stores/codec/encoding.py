"""
One value to bytes.

A frame is a version byte and MessagePack. Values that MessagePack cannot carry are extensions: a code and their parts,
encoded in turn. Equal values give equal bytes, whichever of the two ways below they went.

The fast way lets ormsgpack do all of it and asks us for what it does not know. Only when that fails, or might have
changed something unseen, the value is walked in Python: that finds every odd value there is and can say where.
It is walked, too, when the fast way met something that may not come back as it is, to tell where (see `fidelity`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import ormsgpack

from ninelives.errors import UnknownTypeError
from ninelives.stores.codec.decoding import decode
from ninelives.stores.codec.fidelity import Change, difference, must_be_equal, name_of, step, tell
from ninelives.stores.codec.types import TypeRegistry
from ninelives.stores.codec.values import (
    BY_CLASS,
    SURROGATES,
    TAGS_DEEP_MAX,
    VERSION,
    Code,
    Kind,
    Refused,
    UnstorableError,
    full_name,
)

DEEP_MAX = 200
"""How deep a value is walked, lists and dicts included."""

_OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
# Not OPT_NON_STR_KEYS: it would turn a datetime, a UUID or an enum member that is a key into a plain string.


def encode(value: object, types: TypeRegistry, *, path: str = "", quiet: bool = False) -> bytes:
    """
    The value as a frame.

    What is known not to come back as it is is logged, once; with `types.strict` it is refused.

    Args:
        value: anything built of plain values, numpy arrays, exceptions and allowed classes.
        types: the allowed classes.
        path: what the value is called, to begin the paths in errors with.
        quiet: whatever is lost: the bytes are only compared with others, or tell people of a failure.

    Raises:
        UnknownTypeError: something within could not be loaded again; `path` says where it is.
        FidelityError: it would not come back as it is, and `types.strict` is set.
    """
    packer, walk = _Packer(types), _Walk(types)
    body = _encode_fast(value, types, packer)
    frame = VERSION + (walk.encode(value, path) if body is None else body)
    if quiet:
        return frame
    if types.strict:
        must_be_equal(value, decode(frame, types, path=path), path)
        return frame
    if body is not None and packer.suspects:
        with suppress(UnknownTypeError):  # the walk goes less deep; then it stays untold
            walk.encode(value, path)
    tell(walk.changes)
    return frame


# -- the fast way -------------------------------------------------------------------------------------------------


def _encode_fast(value: object, types: TypeRegistry, packer: _Packer | None = None) -> bytes | None:
    packer = packer or _Packer(types)
    try:
        return packer.pack(value)
    except (TypeError, RecursionError):
        if packer.interrupted is not None:
            raise packer.interrupted from None
        return None


class _Packer:
    """One call of ormsgpack, with the calls within it. It tells nothing of what is raised inside, so we keep that."""

    __slots__ = ("deep", "interrupted", "seen", "suspects", "types")

    def __init__(self, types: TypeRegistry) -> None:
        self.types, self.deep = types, 0
        self.interrupted: BaseException | None = None
        self.seen: dict[int, object] = {}
        self.suspects = False

    def pack(self, value: object) -> bytes:
        packed = ormsgpack.packb(value, self.tagged, _OPTIONS)
        if _has_bytes(packed) and _has_bytearray(value):
            raise TypeError
        return packed

    def tagged(self, value: object) -> ormsgpack.Ext:
        kind = self.types.kind_of(value)
        if kind is None or self.deep >= TAGS_DEEP_MAX:
            raise TypeError
        if kind.mutable:
            self.suspects |= id(value) in self.seen
            self.seen[id(value)] = value  # held, so that no other gets its id
        if kind.loses is not None:
            self.suspects |= kind.loses(value)
        self.deep += 1
        try:
            parts = kind.parts(value)
            if not kind.raw:
                parts = self.pack(self._sorted(parts) if kind.code in _UNORDERED else parts)
        except (KeyboardInterrupt, SystemExit) as interrupted:
            self.interrupted = interrupted
            raise
        self.deep -= 1
        return ormsgpack.Ext(kind.code, parts)

    def _sorted(self, members: list[Any]) -> list[Any]:
        return [ormsgpack.Fragment(packed) for packed in sorted(map(self.pack, members))]


def _has_bytes(packed: bytes) -> bool:
    """Never False if there are some; the marks of bytes may as well be a part of a number or a letter."""
    return b"\xc4" in packed or b"\xc5" in packed or b"\xc6" in packed


def _has_bytearray(tree: object) -> bool:
    # ormsgpack writes these as if they were bytes, and does not ask.
    waiting: list[Any] = [[tree]]
    while waiting:
        members = waiting.pop()
        for member in members.values() if type(members) is dict else members:
            cls = type(member)
            if cls is list or cls is dict:
                waiting.append(member)
            elif cls is bytearray or cls is memoryview:
                return True
    return False


_UNORDERED = (Code.SET, Code.FROZENSET)


# -- the way that knows the path -----------------------------------------------------------------------------------


class _Walk:
    """Turns a value into a tree that ormsgpack takes as it is, and knows the path of whatever it cannot turn."""

    def __init__(self, types: TypeRegistry) -> None:
        self.types = types
        self.above: set[int] = set()
        self.tags = 0
        self.changes: list[Change] = []
        """What was met that will not come back as it is."""
        self.seen: dict[int, object] = {}

    def encode(self, value: object, path: str) -> bytes:
        try:
            return ormsgpack.packb(self.plain(value, path), None, _OPTIONS)
        except RecursionError:
            raise _unstorable(path, value, "is nested too deep for the stack that is left") from None

    def plain(self, value: Any, path: str) -> Any:
        cls = type(value)
        if cls in _AS_IS or (cls is str and _is_utf8(value)) or (cls is int and -(2**63) <= value < 2**64):
            return value
        if id(value) in self.above:
            raise _unstorable(path, value, "contains itself")
        if len(self.above) >= DEEP_MAX or self.tags >= TAGS_DEEP_MAX:
            raise _unstorable(path, value, "is nested too deep to be stored")
        self.above.add(id(value))
        plain = self._container(value, path)
        self.above.discard(id(value))
        return plain

    def _container(self, value: Any, path: str) -> Any:
        if type(value) is list:
            return [self.plain(member, f"{path}[{i}]") for i, member in enumerate(value)]
        if type(value) is dict and all(type(key) is str and _is_utf8(key) for key in value):
            return {key: self.plain(member, path + step(key)) for key, member in value.items()}
        return self._tagged(value, path)

    def _tagged(self, value: Any, path: str) -> ormsgpack.Ext:
        kind = SURROGATES if type(value) is str else self.types.kind_of(value)
        if kind is None:
            raise UnknownTypeError(path, full_name(value if isinstance(value, type) else type(value)))
        parts = _parts(kind, value, path)
        self.changes += self._changed(kind, value, parts, path)
        if not kind.raw:
            self.tags += 1
            parts = ormsgpack.packb(self._members(kind.code, parts, path), None, _OPTIONS)
            self.tags -= 1
        return ormsgpack.Ext(kind.code, parts)

    def _changed(self, kind: Kind, value: Any, parts: Any, path: str) -> Iterable[Change]:
        if kind.mutable:
            if id(value) in self.seen:
                yield Change(path, f"a {name_of(type(value))} that is held twice", "one of its own")
            self.seen[id(value)] = value
        if kind.loses is not None and kind.loses(value):
            yield from difference(value, kind.build(parts[1:] if kind.code in BY_CLASS else parts), path)

    def _members(self, code: int, parts: list[Any], path: str) -> list[Any]:
        if code == Code.TUPLE:
            return [self.plain(part, f"{path}[{i}]") for i, part in enumerate(parts)]
        if code == Code.DICT:
            return [self.plain(part, path + step(parts[i - i % 2])) for i, part in enumerate(parts)]
        if code in _UNORDERED:
            packed = [ormsgpack.packb(self.plain(part, path + "{...}"), None, _OPTIONS) for part in parts]
            return [ormsgpack.Fragment(member) for member in sorted(packed)]
        return [self.plain(part, path) for part in parts]


_AS_IS = (type(None), bool, float, bytes)


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _parts(kind: Kind, value: object, path: str) -> Any:
    try:
        return kind.parts(value)
    except Refused as refused:
        raise _unstorable(path, value, str(refused)) from None
    except RecursionError:
        raise
    except Exception as error:
        raise _unstorable(path, value, f"could not be read: {type(error).__name__}: {error}") from error


def _unstorable(path: str, value: object, why: str) -> UnstorableError:
    return UnstorableError(path, full_name(type(value)), why)
