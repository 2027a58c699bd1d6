"""
Bytes of state: any value of a graph to bytes, and the same value back.

What must always hold: what is loaded equals what was stored, type and value, or the difference was refused when it was
written (`UnknownTypeError`, with the path to the value); loading calls nothing that the program did not allow, whatever
the bytes say; equal values make equal bytes, so they are stored once.

    encoding, decoding    one value and its frame
    values, classes       how each kind of value is taken apart and built
    types                 which classes are allowed
    fidelity              what does not come back as it was
    frames                a frame and the bytes in a column: compressed, encrypted
    nodes, packs          a value as items; items as they lie in the store
    memory, drafts        what this process knows of a thread; a value on its way into the store

Identity is not kept: an object that occurs twice comes back as two. Nor are the order of a set, the traceback and
cause of an exception, or an exception's class unless it is a builtin or allowed (see `RecordedError`).
"""

from ninelives.stores.codec.decoding import RawValue, decode
from ninelives.stores.codec.encoding import encode
from ninelives.stores.codec.fidelity import Change, difference
from ninelives.stores.codec.types import DEFAULT_TYPES, TypeRegistry
from ninelives.stores.codec.values import RecordedError, UnstorableError

__all__ = [
    "DEFAULT_TYPES",
    "Change",
    "RawValue",
    "RecordedError",
    "TypeRegistry",
    "UnstorableError",
    "decode",
    "difference",
    "encode",
]
