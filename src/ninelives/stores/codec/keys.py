"""
The keys of an encrypted store: one that new values are sealed under, and older ones to read with.

Keys come from the environment alone and are never shown, in no error and no repr. A sealed value names its key by a
*print*: four bytes that follow from the key and tell nothing of it. A name may so be given to another key by mistake,
and that is noticed instead of read as damage.

AES-256-GCM with a random nonce of 96 bits. Two equal nonces under one key would give both values away; the chance of
that stays below one in four billion up to 2**32 values under one key, so make a new key current before that (at
a hundred values a second: in a year).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ninelives.config import KEYS_VARIABLE
from ninelives.errors import EncryptionKeyError, StoreCorruptError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
PRINT_BYTES = 4
_NONCE_BYTES, _TAG_BYTES = 12, 16
SEALED_BYTES_MORE = PRINT_BYTES + _NONCE_BYTES + _TAG_BYTES
"""So much longer than its plain bytes a sealed value is."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_FORM = f'"name:key", or "new:key,old:key" with the current key first; a key is {KEY_BYTES} random bytes in base64'


@dataclass(frozen=True)
class Key:
    """One key, ready for use."""

    name: str
    print: bytes
    cipher: AESGCM


class KeyRing:
    """
    One current key and any number of older ones. Cannot be changed; may be shared by threads.

    Args:
        keys: name and key of each, the current one first.

    Raises:
        EncryptionKeyError: no key, one of a wrong length, or one name or key twice.
    """

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        _must_be_sound(keys)
        self.keys = tuple(_key(name, secret) for name, secret in keys)
        self.current = self.keys[0]
        self._by_print = {key.print: key for key in self.keys}

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> KeyRing | None:
        """
        The ring that the environment names; None if it names none.

        Raises:
            EncryptionKeyError: it is set and not of its form; what is in it is not repeated.
        """
        text = env.get(KEYS_VARIABLE, "")
        return cls.parse(text) if text else None

    @classmethod
    def parse(cls, text: str) -> KeyRing:
        """
        The ring that a text like `new:BASE64,old:BASE64` names.

        Raises:
            EncryptionKeyError: the text is not of this form; it is not repeated.
        """
        return cls([_entry(entry.strip(), number) for number, entry in enumerate(text.split(","), 1)])

    def seal(self, plain: bytes, bound: bytes) -> bytes:
        """Print, nonce, bytes encrypted under the current key, tag. Opens only with the same `bound`."""
        nonce = os.urandom(_NONCE_BYTES)
        return self.current.print + nonce + self.current.cipher.encrypt(nonce, plain, bound)

    def open(self, sealed: bytes | memoryview, bound: bytes) -> bytes:
        """
        The bytes that were sealed.

        Raises:
            EncryptionKeyError: the key that they were sealed under is not in this ring.
            StoreCorruptError: damaged, or not what was sealed.
        """
        from cryptography.exceptions import InvalidTag

        if len(sealed) < SEALED_BYTES_MORE:
            raise StoreCorruptError(f"an encrypted value of {len(sealed)} bytes is too short to be one.")
        key, begin = self.key_of(sealed), PRINT_BYTES + _NONCE_BYTES
        try:
            return key.cipher.decrypt(sealed[PRINT_BYTES:begin], sealed[begin:], bound)
        except InvalidTag:
            raise StoreCorruptError(
                f"a value that was encrypted under key {key.name!r} is not what was stored."
            ) from None

    def key_of(self, sealed: bytes | memoryview) -> Key:
        """
        The key that opens these bytes.

        Raises:
            EncryptionKeyError: it is not in this ring.
        """
        key = self._by_print.get(bytes(sealed[:PRINT_BYTES]))
        if key is None:
            raise EncryptionKeyError(
                f"a value was encrypted under the key with the print {bytes(sealed[:PRINT_BYTES]).hex()}, and"
                f" {KEYS_VARIABLE} has {self}. Add that key behind the current one; if there never was such a key, the"
                " value is damaged."
            )
        return key

    def __str__(self) -> str:
        return ", ".join(f"{key.name!r} (print {key.print.hex()})" for key in self.keys)

    def __repr__(self) -> str:
        return f"KeyRing({self})"


def _key(name: str, secret: bytes) -> Key:
    # Not at the top: it takes long to load, and most stores have no keys.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return Key(name, _derived(secret, b"ninelives print", PRINT_BYTES), AESGCM(_derived(secret, b"ninelives seal", 32)))


def _derived(secret: bytes, purpose: bytes, size: int) -> bytes:
    return hashlib.blake2b(key=secret, person=purpose, digest_size=size).digest()


# -- what is refused -----------------------------------------------------------------------------------------------


def _entry(entry: str, number: int) -> tuple[str, bytes]:
    """Name and key. Errors name the entry by its number where its name could be a part of a key."""
    name, colon, encoded = entry.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise EncryptionKeyError(f"{KEYS_VARIABLE}: entry {number} has no name before a colon. Allowed: {_FORM}.")
    try:
        return name, base64.b64decode(encoded.strip().translate(_URL_SAFE), validate=True)
    except binascii.Error:
        raise EncryptionKeyError(f"{KEYS_VARIABLE}: key {name!r} is not base64. Allowed: {_FORM}.") from None


_URL_SAFE = str.maketrans("-_", "+/")


def _must_be_sound(keys: Sequence[tuple[str, bytes]]) -> None:
    if not keys:
        raise EncryptionKeyError(f"no key was given. Allowed: {_FORM}.")
    for name, secret in keys:
        if len(secret) != KEY_BYTES:
            raise EncryptionKeyError(
                f"{KEYS_VARIABLE}: key {name!r} has {len(secret)} bytes, not {KEY_BYTES}. Make one with"
                f' python -c "import base64, os; print(base64.b64encode(os.urandom({KEY_BYTES})).decode())".'
            )
    names = [name for name, _ in keys]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise EncryptionKeyError(f"{KEYS_VARIABLE}: {twice[0]!r} is the name of two keys. Give each its own.")
    if len({secret for _, secret in keys}) < len(keys):
        raise EncryptionKeyError(f"{KEYS_VARIABLE}: one key has two names. Name each key once.")
