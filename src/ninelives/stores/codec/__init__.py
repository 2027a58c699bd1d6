"""
Bytes of state: any value of a graph to bytes, and the same value back.

What must always hold: what is loaded equals what was stored, type and value, or the difference was refused when it was
written (`UnknownTypeError`, with the path to the value); loading calls nothing that the program did not allow, whatever
the bytes say; equal values make equal bytes, so they are stored once.

    encoding, decoding    one value and its frame        items    a channel's value as items and a node
    values, classes       how each kind of value is taken apart and built        types    which classes are allowed

Identity is not kept: an object that occurs twice comes back as two. Nor are the order of a set, the traceback and
cause of an exception, or an exception's class unless it is a builtin or allowed (see `RecordedError`).
"""

from ninelives.stores.codec.decoding import decode
from ninelives.stores.codec.encoding import encode
from ninelives.stores.codec.items import DIGEST_BYTES, Item, digest, join, refs, split
from ninelives.stores.codec.types import DEFAULT_TYPES, TypeRegistry
from ninelives.stores.codec.values import RecordedError, UnstorableError

__all__ = [
    "DEFAULT_TYPES",
    "DIGEST_BYTES",
    "Item",
    "RecordedError",
    "TypeRegistry",
    "UnstorableError",
    "decode",
    "digest",
    "encode",
    "join",
    "refs",
    "split",
]
