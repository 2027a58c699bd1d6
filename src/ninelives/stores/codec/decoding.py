"""
Bytes to one value.

Nothing is imported or called by a name found in the data, and bytes that no writer of ours makes raise one of two
errors, whatever they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import ormsgpack

from ninelives.errors import StoreCorruptError, UnknownTypeError
from ninelives.stores.codec.fidelity import step
from ninelives.stores.codec.types import TypeRegistry
from ninelives.stores.codec.values import (
    BY_CLASS,
    KINDS_BY_CODE,
    TAGS_DEEP_MAX,
    VERSION,
    Code,
    Kind,
    UnstorableError,
)


@dataclass(frozen=True, slots=True)
class RawValue:
    """What stands for a value that cannot be built here: to be looked at, never to go on with. It cannot be stored."""

    type_name: str
    parts: list[Any]

    def __hash__(self) -> int:
        return hash(self.type_name)


def decode(data: bytes, types: TypeRegistry, *, path: str = "", unknown: Literal["refuse", "raw"] = "refuse") -> Any:
    """
    The value that was encoded. Nothing is imported or called by a name found in the data.

    Args:
        path: what the value is called, to begin the paths in errors with.
        unknown: what becomes of one whose class is not allowed here, or no longer fits what was stored: it is refused,
            or, for tools that only show, a `RawValue` stands in its place.

    Raises:
        UnknownTypeError: there is such a value; the path says where.
        StoreCorruptError: not what `encode` writes.
    """
    if data[:1] != VERSION:
        raise StoreCorruptError(f"{path or 'a value'} begins with {data[:1]!r}, which is no version that we know.")
    try:
        return _Decoder(types, path, raw=unknown == "raw").decode(memoryview(data)[1:])
    except _Unbuildable as bad:
        raise bad.error(path) from bad.__cause__


class _Tagged(NamedTuple):
    """An extension not built yet. Built after ormsgpack has returned, so that its calls never nest on the stack."""

    code: int
    raw: bytes


class _Unbuildable(Exception):
    """A value that is to be refused. Gathers its place on the way out."""

    def __init__(self, type_name: str, why: str, kind: type[UnknownTypeError] = UnknownTypeError) -> None:
        self.type_name, self.why, self.kind, self.place = type_name, why, kind, ""

    def error(self, path: str) -> UnknownTypeError:
        return self.kind(path + self.place, self.type_name, self.why)


class _Decoder:
    """Reads one frame."""

    def __init__(self, types: TypeRegistry, path: str, *, raw: bool) -> None:
        self.types, self.path, self.raw, self.tags = types, path, raw, 0

    def decode(self, data: bytes | memoryview, within: int | None = None) -> Any:
        """`within`: the code of the extension whose parts these are."""
        found: list[_Tagged] = []

        def keep(code: int, raw: bytes) -> _Tagged:
            found.append(tagged := _Tagged(code, raw))
            return tagged

        try:
            tree = ormsgpack.unpackb(data, ext_hook=keep)
        except ValueError as error:
            raise self._corrupt(str(error)) from None
        return self._built(tree, within) if found else tree

    def _built(self, tree: Any, within: int | None) -> Any:
        """The tree with each extension in it built, in place. A loop: data may be nested deeper than our stack."""
        if type(tree) is _Tagged:
            return self._build(tree)
        waiting = [tree]
        while waiting:
            members = waiting.pop()
            for key, member in members.items() if type(members) is dict else enumerate(members):
                if type(member) is _Tagged:
                    try:
                        members[key] = self._build(member)
                    except _Unbuildable as bad:
                        bad.place = _place(tree, member, within) + bad.place
                        raise
                elif type(member) is list or type(member) is dict:
                    waiting.append(member)
        return tree

    def _build(self, tagged: _Tagged) -> Any:
        if self.tags >= TAGS_DEEP_MAX:
            raise self._corrupt("nested deeper than anything is stored")
        self.tags += 1
        kind = KINDS_BY_CODE.get(tagged.code)
        raw = tagged.code == Code.CLASS or (kind is not None and kind.raw)
        parts: Any = tagged.raw if raw else self._parts(tagged)
        try:
            value = self._build_object(tagged.code, parts) if kind is None else self._build_value(kind, parts)
        except _Unbuildable as bad:
            if not self.raw:
                raise
            value = RawValue(bad.type_name, [] if raw else parts[1:] if tagged.code in BY_CLASS else parts)
        self.tags -= 1
        return value

    def _build_value(self, kind: Kind, parts: Any) -> Any:
        try:
            return kind.build(parts)
        except (ImportError, NotImplementedError) as error:  # no numpy here; a path of another system
            raise _Unbuildable(Code(kind.code).name, f"cannot be built here: {error}", UnstorableError) from error
        except Exception as error:
            raise self._corrupt(f"{Code(kind.code).name}: {type(error).__name__}: {error}") from error

    def _find_class(self, raw: bytes) -> type:
        class_tag = raw.decode(errors="replace")
        cls = self.types.find_class(class_tag)
        if cls is None:
            raise _unknown(class_tag, "is not a class that may be loaded")
        return cls

    def _build_object(self, code: int, parts: Any) -> Any:
        if code == Code.CLASS:
            return self._find_class(parts)
        class_tag = parts[0] if parts else None
        if code not in BY_CLASS or type(class_tag) is not str:
            raise self._corrupt(f"extension {code} is none of ours")
        kind = self.types.find(class_tag)
        if kind is None:
            raise _unknown(class_tag, "is not a type that may be loaded")
        if kind.code != code:
            raise _unknown(class_tag, "is now made in another way than the value that was stored")
        try:
            return kind.build(parts[1:])
        except Exception as error:
            why = f"does not fit the value that was stored: {type(error).__name__}: {error}"
            raise _unknown(class_tag, why) from error

    def _parts(self, tagged: _Tagged) -> list[Any]:
        parts = self.decode(tagged.raw, within=tagged.code)
        if type(parts) is not list:
            raise self._corrupt("an extension has no parts")
        return parts

    def _corrupt(self, why: str) -> StoreCorruptError:
        return StoreCorruptError(f"{self.path or 'a value'} is not what was stored ({why}).")


def _unknown(class_tag: str, why: str) -> _Unbuildable:
    return _Unbuildable(class_tag.replace(":", "."), why)


# -- where it was, looked for only when something could not be built ---------------------------------------------------


def _place(tree: Any, wanted: _Tagged, within: int | None) -> str:
    waiting: list[tuple[Any, str]] = [(tree, "")]
    while waiting:
        members, path = waiting.pop()
        for key, member in members.items() if type(members) is dict else enumerate(members):
            here = path + (step(key) if type(members) is dict else f"[{key}]")
            if member is wanted:
                return here if within is None else _of_value(here, within, tree)
            if type(member) is list or type(member) is dict:
                waiting.append((member, here))
    return ""


def _of_value(place: str, code: int, parts: list[Any]) -> str:
    """A place among an extension's parts as the place in its value, as `encode` would name it."""
    first = re.match(r"\[(\d+)\]", place)
    if code == Code.TUPLE or first is None:
        return place
    number, inner = int(first[1]), place[first.end() :]
    if code == Code.DICT:
        return step(parts[number - number % 2]) + inner
    return "{...}" if code in (Code.SET, Code.FROZENSET) else inner
