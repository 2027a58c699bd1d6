"""
Items as they lie in the store: several in a row, compressed together.

What one act stores goes into one pack. Such packs are small and compress badly, so now and then neighbours are packed
anew, up to `PACK_BYTES` together: the text of a conversation repeats itself, which only a compressor that sees much of
it at once can use. The numbers of the items stay, so nothing that refers to them changes.

An item may be kept as its difference from another one (its *base*): an edited file costs its edit. A chain of bases is
at most `CHAIN_MAX` long and each entry names the whole of it, so that one more look into the store finds them all.

Plain content of a pack: a checksum, then per item a varint and its bytes. Nothing for a number that was given and
never used (its act was taken back).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xxhash import xxh3_64_digest

from ninelives.errors import StoreCorruptError
from ninelives.stores.codec.frames import Frames, unpack
from ninelives.stores.codec.nodes import read_varint, varint

PACK_BYTES = 256 << 10
"""Plain bytes in one pack, about: what is read to see one old item."""
CROWD_BYTES = 64 << 10
"""Plain bytes of small packs that are left lying before they are packed anew."""
CHAIN_MAX = 16
BASE_BYTES_MIN = 1024
"""Smaller items are not worth a base."""
CHECKSUM_BYTES = 8


class Entry(NamedTuple):
    """One item of a pack: its bytes, or their difference from the first of `bases` (which follow one another)."""

    data: bytes
    bases: tuple[int, ...] = ()


def write_pack(entries: Sequence[Entry | None], frames: Frames, *, dense: bool = False) -> bytes:
    """Items whose numbers follow one another; None for a number that was never used."""
    body = b"".join(map(_written, entries))
    return frames.seal(checksum(body) + body, dense=dense)


def read_pack(stored: bytes, items: int, frames: Frames) -> list[Entry | None]:
    """
    Raises:
        StoreCorruptError: not the bytes that were stored.
    """
    plain = frames.open(stored)
    body = memoryview(plain)[CHECKSUM_BYTES:]
    if checksum(body) != plain[:CHECKSUM_BYTES]:
        raise StoreCorruptError("a pack of items is damaged: its bytes have another checksum.")
    entries: list[Entry | None] = []
    place = 0
    for _ in range(items):
        head, place = read_varint(body, place)
        bases: tuple[int, ...] = ()
        if head & 1:
            depth, place = read_varint(body, place)
            found = []
            for _ in range(min(depth, CHAIN_MAX + 1)):
                base, place = read_varint(body, place)
                found.append(base)
            bases = tuple(found)
        size = head >> 1
        entries.append(Entry(bytes(body[place : place + size]), bases) if head else None)
        place += size
    return entries


def _written(entry: Entry | None) -> bytes:
    if entry is None:
        return b"\0"
    if not entry.bases:
        return varint(len(entry.data) << 1) + entry.data
    chain = varint(len(entry.bases)) + b"".join(map(varint, entry.bases))
    return varint(len(entry.data) << 1 | 1) + chain + entry.data


def plain_size(entries: Sequence[Entry | None]) -> int:
    return sum(len(entry.data) for entry in entries if entry)


def content(number: int, entries: Mapping[int, Entry | None]) -> bytes:
    """
    An item's bytes, its bases applied.

    Args:
        entries: those of it and of its bases, by number.

    Raises:
        StoreCorruptError: one of them is missing.
    """
    chain = [number]
    while (entry := entries.get(chain[-1])) is not None and entry.bases:
        chain.append(entry.bases[0])
        if len(chain) > CHAIN_MAX + 1:
            raise StoreCorruptError(f"item {number} rests on too many others.")
    if entry is None:
        raise StoreCorruptError(f"item {chain[-1]} is missing from the store.")
    data = entry.data
    for above in reversed(chain[:-1]):
        stored = entries[above]
        assert stored is not None
        data = unpack(stored.data, base=data)
    return data


def checksum(data: bytes | memoryview) -> bytes:
    """Against accidents, not against people: those are kept out by encryption, which has a seal of its own."""
    return xxh3_64_digest(data)
