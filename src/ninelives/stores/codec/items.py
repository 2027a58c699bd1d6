"""
A channel's value as items that are stored once each, and a small node that says how they make the value.

A list gets an item per element, so a step that appends one message adds one item. Every frame is checked against its
digest when it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from ninelives.errors import StoreCorruptError
from ninelives.stores.codec.decoding import decode
from ninelives.stores.codec.encoding import encode
from ninelives.stores.codec.types import TypeRegistry

Item = tuple[bytes, bytes]
"""Digest and frame."""

DIGEST_BYTES = 16
_VALUE, _LIST = b"\x01", b"\x02"
"""A node's first byte: how its digests make the value. The digests follow, in order."""


def digest(data: bytes) -> bytes:
    """The name under which a frame is stored: `DIGEST_BYTES` bytes."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def split(value: object, types: TypeRegistry, *, path: str = "") -> tuple[bytes, list[Item]]:
    """
    The value as (node, items); equal elements of a list are equal items, and each is given.

    Raises:
        UnknownTypeError: see `encode`.
    """
    if type(value) is not list:
        item = _item(value, types, path)
        return _VALUE + item[0], [item]
    items = [_item(member, types, f"{path}[{i}]") for i, member in enumerate(value)]
    return _LIST + b"".join(name for name, _ in items), items


def join(node: bytes, fetch: Callable[[bytes], bytes], types: TypeRegistry, *, path: str = "") -> Any:
    """
    The value that was split.

    Args:
        node: from `split`.
        fetch: gives the frame of a digest; raises LookupError for one that is not there.

    Raises:
        StoreCorruptError: an item is missing or not what was stored; says which.
        UnknownTypeError: see `decode`.
    """
    names = refs(node)
    if node[:1] == _LIST:
        return [decode(_checked(name, fetch), types, path=f"{path}[{i}]") for i, name in enumerate(names)]
    return decode(_checked(names[0], fetch), types, path=path)


def refs(node: bytes) -> list[bytes]:
    """
    The digests of the items that make the node's value, in order.

    Raises:
        StoreCorruptError: not a node.
    """
    kind, rest = node[:1], node[1:]
    if len(rest) % DIGEST_BYTES or kind not in (_VALUE, _LIST) or (kind == _VALUE and len(rest) != DIGEST_BYTES):
        raise StoreCorruptError(f"a node of {len(node)} bytes that begins with {kind!r} is not what was stored.")
    return [rest[i : i + DIGEST_BYTES] for i in range(0, len(rest), DIGEST_BYTES)]


def _item(value: object, types: TypeRegistry, path: str) -> Item:
    frame = encode(value, types, path=path)
    return digest(frame), frame


def _checked(name: bytes, fetch: Callable[[bytes], bytes]) -> bytes:
    try:
        frame = fetch(name)
    except LookupError:
        raise StoreCorruptError(f"item {name.hex()} is missing.") from None
    if frame is None:
        raise StoreCorruptError(f"item {name.hex()} is missing.")
    if digest(frame) != name:
        raise StoreCorruptError(f"item {name.hex()} is not what was stored: its bytes have another digest.")
    return frame
