"""
What stands between plain encoded bytes and the bytes in a column: compression and encryption.

What must always hold: what is opened is what was sealed, or an error, or (without keys) other bytes, which the digest
that the caller keeps will find; opening makes no more bytes than `PLAIN_BYTES_MAX`, nor more than the stored ones can
hold; with keys nothing is written or taken in plain.

One header byte, then:

    plain        the payload
    encrypted    the key's print (4), a nonce (12), the payload, a tag (16); see keys.py. The header is bound to it.

The payload is the plain bytes, or a zstd frame without its first five bytes: the magic number is always the same, and
the descriptor after it is one of four, which the header names. The plain size follows in the zstd frame itself. So a
value takes at most one byte more than itself, 33 when encrypted.

    header       bits 7-6 version · 5 encrypted · 4-3 descriptor · 2-0 what is needed to unpack it (`Kind`)

A value's size stays visible when it is encrypted, and so how well it packs.

A store that may be encrypted has a *secret*: 32 random bytes that its digests are keyed with, so that they tell nothing
of the content and are other ones in another store. They stay the same when keys change. What a store does with it:

    made       meta := frames.new_secret()      bytes to keep as they are, or None: a plain store
    opened     frames.use_secret(meta)          refuses missing and wrong keys, and keys for a plain store
    rotated    every column that holds frames := frames.reseal(value), then, last, meta := frames.reseal_secret(meta)

Rotation changes only the sealing: no digest, no compression, nothing that refers to a value. It may stop anywhere and
begin again. The secret comes last, so that a store which opens without the old key holds nothing that needs it.
Every process must have been given the new key (behind the old one) before any has it in front.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from enum import IntEnum
from pathlib import Path

import zstandard

from ninelives.config import KEYS_VARIABLE
from ninelives.errors import EncryptionKeyError, StoreCorruptError
from ninelives.stores.codec.keys import PRINT_BYTES, KeyRing

PLAIN_BYTES_MAX = 1 << 30
"""What is longer is stored as it is, and nothing is unpacked that claims to be."""

BASE_BYTES_MAX = 1 << 20
"""A longer base is not used: looking for repeats in it costs more than it gives."""

DIGEST_BYTES = 16
_SECRET_BYTES = 32


class Kind(IntEnum):
    """What is needed to unpack a payload. Part of what is stored: a dictionary is never changed, only added."""

    STORED, ZSTD, BASE, DICTIONARY_1 = range(4)


class Frames:
    """
    Seals and opens the values of one store. May be shared by threads, and used on in a forked child.

    Args:
        keys: None for a plain store.
    """

    def __init__(self, keys: KeyRing | None = None) -> None:
        self.keys = keys
        self._secret: bytes | None = None

    # -- values ---------------------------------------------------------------------------------------------------

    def seal(self, plain: bytes, *, base: bytes = b"", dense: bool = False) -> bytes:
        """
        The bytes to store.

        Args:
            plain: any bytes.
            base: bytes much like these, which will be at hand when they are opened. Of no use above `BASE_BYTES_MAX`.
            dense: pack harder, for what is kept long.
        """
        if self.keys is None:
            return pack(plain, base=base, dense=dense)
        header, payload = _pack(plain, base, dense)
        begin = bytes((header | _ENCRYPTED,))
        return begin + self.keys.seal(payload, _VALUE + begin)

    def open(self, stored: bytes, *, base: bytes = b"") -> bytes:
        """
        The bytes that were sealed.

        Raises:
            StoreCorruptError: not what `seal` wrote, or with another base. (Another base, and flipped bits in a plain
                store, may as well give other bytes: compare their digest.)
            EncryptionKeyError: it is sealed under a key that is not there.
        """
        header, sealed = self._parts(stored)
        payload = sealed if self.keys is None else self.keys.open(sealed, _VALUE + stored[:1])
        return _unpack(header, payload, base)

    def digest(self, data: bytes) -> bytes:
        """
        The name under which plain bytes are stored: `DIGEST_BYTES` bytes, the same for the same bytes in one store.

        Raises:
            RuntimeError: there are keys, and neither `new_secret` nor `use_secret` was called.
        """
        if self.keys is None:
            return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
        if self._secret is None:
            raise RuntimeError("an encrypted store's secret comes first: call use_secret() or new_secret().")
        return hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=self._secret).digest()

    def key_id(self, stored: bytes) -> str | None:
        """
        The name of the key that a stored value is sealed under; None if it is plain.

        Raises:
            EncryptionKeyError: the key is not there.
        """
        _, sealed = self._parts(stored)
        return None if self.keys is None else self.keys.key_of(sealed).name

    def reseal(self, stored: bytes) -> bytes:
        """The same value under the current key; what is under it already, or plain, comes back as it is."""
        _, sealed = self._parts(stored)
        if self.keys is None or self.keys.key_of(sealed) is self.keys.current:
            return stored
        bound = _VALUE + stored[:1]
        return stored[:1] + self.keys.seal(self.keys.open(sealed, bound), bound)

    def _parts(self, stored: bytes) -> tuple[int, memoryview]:
        """The header, and what follows it, if the value is of this store's sort: encrypted, or plain."""
        header = _header(stored)
        if bool(header & _ENCRYPTED) != (self.keys is not None):
            was, is_ = ("is", "is not") if header & _ENCRYPTED else ("is not", "is")
            raise StoreCorruptError(f"a value {was} encrypted, and the store {is_}: damaged, or another program's.")
        return header, memoryview(stored)[1:]

    # -- the store's secret -----------------------------------------------------------------------------------------

    def new_secret(self) -> bytes | None:
        """What a store that is being made keeps, to be given to `use_secret` later; None for a plain one."""
        if self.keys is None:
            return None
        self._secret = os.urandom(_SECRET_BYTES)
        return self._sealed_secret(self.keys, self._secret)

    def use_secret(self, sealed: bytes | None) -> None:
        """
        Begin to work with a store.

        Args:
            sealed: from `new_secret` or `reseal_secret`; None: the store has none, so it is plain.

        Raises:
            EncryptionKeyError: the store is encrypted, and its key is not there or is another one; or the store is
                plain, and there are keys.
            StoreCorruptError: not what `new_secret` gave.
        """
        self._secret = self._opened_secret(sealed)

    def reseal_secret(self, sealed: bytes | None) -> bytes | None:
        """The same secret under the current key, to be kept in place of the other one as the last step of rotation."""
        secret = self._opened_secret(sealed)
        return None if secret is None or self.keys is None else self._sealed_secret(self.keys, secret)

    def _sealed_secret(self, keys: KeyRing, secret: bytes) -> bytes:
        name = keys.current.name.encode()
        begin = bytes((_VERSION | _ENCRYPTED, len(name))) + name
        return begin + keys.seal(secret, _SECRET + begin)

    def _opened_secret(self, sealed: bytes | None) -> bytes | None:
        if sealed is None:
            if self.keys is not None:
                raise EncryptionKeyError(
                    f"the store is not encrypted, and there are keys; nothing was written. Take {KEYS_VARIABLE} away to"
                    " go on with this store, or name a new one, which will be encrypted from its first value on."
                )
            return None
        if len(sealed) < 2 or sealed[0] != _VERSION | _ENCRYPTED or len(sealed) < 2 + sealed[1] + PRINT_BYTES:
            raise StoreCorruptError("the store's secret is not what was stored.")
        at = 2 + sealed[1]
        name, print_ = sealed[2:at].decode("ascii", "replace"), sealed[at : at + PRINT_BYTES]
        if self.keys is None:
            raise EncryptionKeyError(f"the store is encrypted with key {name!r}, and there is no key. {_SET}", name)
        self._must_have(self.keys, name, print_)
        return self.keys.open(memoryview(sealed)[at:], _SECRET + sealed[:at])

    def _must_have(self, keys: KeyRing, name: str, print_: bytes) -> None:
        if any(key.print == print_ for key in keys.keys):
            return
        namesake = any(key.name == name for key in keys.keys)
        why = "the key of that name is another one" if namesake else "that key is not there"
        raise EncryptionKeyError(
            f"the store is encrypted with key {name!r} (print {print_.hex()}), and {why}; {KEYS_VARIABLE} has {keys}."
            " Bring that key, behind the current one if it is an older one.",
            name,
        )


_VERSION, _VERSIONS = 0x40, 0xC0
_ENCRYPTED = 0x20
_VALUE, _SECRET = b"ninelives value", b"ninelives secret"
"""Bound to what is sealed, so that one cannot stand for the other."""
_SET = f"Set {KEYS_VARIABLE}, as it was when the store was made."


# -- packing -------------------------------------------------------------------------------------------------------

_MAGIC = b"\x28\xb5\x2f\xfd"
_DESCRIPTORS = (0x20, 0x60, 0xA0, 0x80)
"""How zstd writes the plain size: in 1, 2 or 4 bytes; the last for what is longer than its window."""
_SIZE_PLACES = ((0, 1, 0), (0, 2, 256), (0, 4, 0), (1, 4, 0))
"""For each of these where the size begins, its length, and what is to be added to it."""
_BEGINS = [_MAGIC + bytes((descriptor,)) for descriptor in _DESCRIPTORS]
_BEGIN_BYTES = len(_BEGINS[0])
_HEADER_BITS = {begin: code << 3 for code, begin in enumerate(_BEGINS)}
_BLOCK_BYTES_MIN, _BLOCK_BYTES_MAX = 4, 128 * 1024
"""What a block of zstd takes at least, and what it unpacks to at most."""

_TINY, _TINY_WITH_BASE = 24, 14
"""Shorter values are stored as they are: trying gains nothing."""
_DICTIONARY_UP_TO = 320 * 1024
"""Longer values have repeats enough. Each gets a compressor of its own, whose memory no thread then keeps."""
_FAST, _DENSE = 3, 9
"""Levels of zstd. Above 9 a large value takes more than twice the time and shrinks by less than a hundredth."""


def pack(plain: bytes, *, base: bytes = b"", dense: bool = False) -> bytes:
    """`seal` without a key: for a part of something that will be sealed as a whole, such as a difference in a pack."""
    header, payload = _pack(plain, base, dense)
    return bytes((header,)) + payload


def unpack(packed: bytes, *, base: bytes = b"") -> bytes:
    """
    The bytes that were given to `pack`.

    Raises:
        StoreCorruptError: see `Frames.open`.
    """
    header = _header(packed)
    if header & _ENCRYPTED:
        raise StoreCorruptError("a part of a value is encrypted by itself, which is never written.")
    return _unpack(header, memoryview(packed)[1:], base)


def _header(stored: bytes) -> int:
    header = stored[0] if stored else 0
    if header & _VERSIONS != _VERSION:
        raise StoreCorruptError(f"a value of {len(stored)} bytes begins with {stored[:1]!r}: no version we know.")
    return header


def _pack(plain: bytes, base: bytes, dense: bool) -> tuple[int, bytes]:
    """The header (a plain store's) and the payload."""
    size = len(plain)
    if size < (_TINY_WITH_BASE if base else _TINY) or size > PLAIN_BYTES_MAX:
        return _VERSION | Kind.STORED, plain
    if base and len(base) <= BASE_BYTES_MAX:
        kind, compressor = Kind.BASE, _compressor(dense, _raw(base))
    elif size <= _DICTIONARY_UP_TO:
        kind, compressor = Kind.DICTIONARY_1, _tools.compressor(dense)
    else:
        kind, compressor = Kind.ZSTD, _compressor(dense)
    frame = compressor.compress(plain)
    if len(frame) - _BEGIN_BYTES >= size:
        return _VERSION | Kind.STORED, plain
    return _VERSION | _HEADER_BITS[frame[:_BEGIN_BYTES]] | kind, frame[_BEGIN_BYTES:]


def _unpack(header: int, payload: bytes | memoryview, base: bytes) -> bytes:
    kind, code = header & 7, header >> 3 & 3
    if kind == Kind.STORED and code == 0:
        return bytes(payload)
    at, length, more = _SIZE_PLACES[code]
    size = int.from_bytes(payload[at : at + length], "little") + more
    if size > min(PLAIN_BYTES_MAX, len(payload) // _BLOCK_BYTES_MIN * _BLOCK_BYTES_MAX):
        raise StoreCorruptError(f"a value of {len(payload)} bytes claims to unpack to {size}.")
    try:
        frame = b"".join((_BEGINS[code], payload))
        plain: bytes = _decompressor(kind, base).decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise StoreCorruptError(f"a value is not what was stored, or its base is another one ({error}).") from None
    return plain


def _decompressor(kind: int, base: bytes) -> zstandard.ZstdDecompressor:
    if kind in (Kind.ZSTD, Kind.DICTIONARY_1):
        return _tools.decompressor(kind)
    if kind != Kind.BASE:
        raise StoreCorruptError(f"a value was packed in way {kind}, which this release does not know.")
    if not base:
        raise StoreCorruptError("a value was packed with a base, and none is there.")
    return zstandard.ZstdDecompressor(dict_data=_raw(base))


class _Tools(threading.local):
    """What each thread keeps of zstd's own objects, none of which may be used by two at once."""

    def __init__(self) -> None:
        self.compressors: dict[bool, zstandard.ZstdCompressor] = {}
        self.decompressors: dict[int, zstandard.ZstdDecompressor] = {}

    def compressor(self, dense: bool) -> zstandard.ZstdCompressor:
        """One that has the newest dictionary."""
        found = self.compressors.get(dense)
        if found is None:
            found = self.compressors[dense] = _compressor(dense, _dictionary(1, dense))
        return found

    def decompressor(self, kind: int) -> zstandard.ZstdDecompressor:
        found = self.decompressors.get(kind)
        if found is None:
            dictionary = _dictionary(1, False) if kind == Kind.DICTIONARY_1 else None
            found = self.decompressors[kind] = zstandard.ZstdDecompressor(dict_data=dictionary)
        return found


_tools = _Tools()


def _compressor(dense: bool, dictionary: zstandard.ZstdCompressionDict | None = None) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(
        level=_DENSE if dense else _FAST,
        dict_data=dictionary,
        write_checksum=False,
        write_content_size=True,
        write_dict_id=False,
    )


def _raw(base: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


@functools.cache
def _dictionary(number: int, dense: bool) -> zstandard.ZstdCompressionDict:
    """A dictionary made ready once for all threads, which only read it."""
    made = zstandard.ZstdCompressionDict(dictionary_path(number).read_bytes(), dict_type=zstandard.DICT_TYPE_FULLDICT)
    made.precompute_compress(level=_DENSE if dense else _FAST)
    return made


def dictionary_path(number: int) -> Path:
    return Path(__file__).with_name(f"dictionary{number}.zst-dict")
