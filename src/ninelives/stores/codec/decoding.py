"""
Bytes to one value.

Nothing is imported or called by a name found in the data, and bytes that no writer of ours makes raise one of two
errors, whatever they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ormsgpack

from ninelives.errors import StoreCorruptError, UnknownTypeError
from ninelives.stores.codec.types import TypeRegistry
from ninelives.stores.codec.values import KINDS_BY_CODE, TAGS_DEEP_MAX, VERSION, Code, Kind, UnstorableError


def decode(data: bytes, types: TypeRegistry, *, path: str = "") -> Any:
    """
    The value that was encoded. Nothing is imported or called by a name found in the data.

    Raises:
        UnknownTypeError: a class that is not allowed here, or no longer fits what was stored.
        StoreCorruptError: not what `encode` writes.
    """
    if data[:1] != VERSION:
        raise StoreCorruptError(f"{path or 'a value'} begins with {data[:1]!r}, which is no version that we know.")
    return _Decoder(types, path).decode(memoryview(data)[1:])


class _Tagged(NamedTuple):
    """An extension not built yet. Built after ormsgpack has returned, so that its calls never nest on the stack."""

    code: int
    raw: bytes


class _Decoder:
    """Reads one frame."""

    def __init__(self, types: TypeRegistry, path: str) -> None:
        self.types, self.path, self.tags = types, path, 0

    def decode(self, data: bytes | memoryview) -> Any:
        found: list[_Tagged] = []

        def keep(code: int, raw: bytes) -> _Tagged:
            found.append(tagged := _Tagged(code, raw))
            return tagged

        try:
            tree = ormsgpack.unpackb(data, ext_hook=keep)
        except ValueError as error:
            raise self._corrupt(str(error)) from None
        return self._built(tree) if found else tree

    def _built(self, tree: Any) -> Any:
        """The tree with each extension in it built, in place. A loop: data may be nested deeper than our stack."""
        if type(tree) is _Tagged:
            return self._build(tree)
        waiting = [tree]
        while waiting:
            members = waiting.pop()
            for key, member in members.items() if type(members) is dict else enumerate(members):
                if type(member) is _Tagged:
                    members[key] = self._build(member)
                elif type(member) is list or type(member) is dict:
                    waiting.append(member)
        return tree

    def _build(self, tagged: _Tagged) -> Any:
        if self.tags >= TAGS_DEEP_MAX:
            raise self._corrupt("nested deeper than anything is stored")
        self.tags += 1
        kind = KINDS_BY_CODE.get(tagged.code)
        if kind is not None:
            value = self._build_value(kind, tagged.raw)
        elif tagged.code == Code.CLASS:
            value = self._find_class(tagged.raw)
        else:
            value = self._build_object(tagged.code, self._parts(tagged.raw))
        self.tags -= 1
        return value

    def _build_value(self, kind: Kind, raw: bytes) -> Any:
        parts = raw if kind.raw else self._parts(raw)
        try:
            return kind.build(parts)
        except (ImportError, NotImplementedError) as error:  # no numpy here; a path of another system
            raise UnstorableError(self.path, Code(kind.code).name, f"cannot be built here: {error}") from error
        except Exception as error:
            raise self._corrupt(f"{Code(kind.code).name}: {type(error).__name__}: {error}") from error

    def _find_class(self, raw: bytes) -> type:
        class_tag = raw.decode(errors="replace")
        cls = self.types.find_class(class_tag)
        if cls is None:
            raise self._unknown(class_tag, "is not a class that may be loaded")
        return cls

    def _build_object(self, code: int, parts: list[Any]) -> Any:
        class_tag = parts[0] if parts else None
        if code not in _BY_CLASS or type(class_tag) is not str:
            raise self._corrupt(f"extension {code} is none of ours")
        kind = self.types.find(class_tag)
        if kind is None:
            raise self._unknown(class_tag, "is not a type that may be loaded")
        if kind.code != code:
            raise self._unknown(class_tag, "is now made in another way than the value that was stored")
        try:
            return kind.build(parts[1:])
        except Exception as error:
            why = f"does not fit the value that was stored: {type(error).__name__}: {error}"
            raise self._unknown(class_tag, why) from error

    def _parts(self, raw: bytes) -> list[Any]:
        parts = self.decode(raw)
        if type(parts) is not list:
            raise self._corrupt("an extension has no parts")
        return parts

    def _unknown(self, class_tag: str, why: str) -> UnknownTypeError:
        return UnknownTypeError(self.path, class_tag.replace(":", "."), why)

    def _corrupt(self, why: str) -> StoreCorruptError:
        return StoreCorruptError(f"{self.path or 'a value'} is not what was stored ({why}).")


_BY_CLASS = (Code.ENUM, Code.NAMED_TUPLE, Code.MODEL, Code.OBJECT, Code.DERIVED)
