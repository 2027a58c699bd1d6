"""What the procedures share: encoding, ids, the fence, and the event that each change leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from ninelives.errors import LeaseLostError, StoreCorruptError
from ninelives.model import Lease
from ninelives.store import Query, Row, Steps
from ninelives.stores import codec
from ninelives.stores.codec.frames import Frames
from ninelives.stores.codec.memory import Memories
from ninelives.stores.codec.packs import checksum

CHECKED_BYTES = 4
IDS_KNOWN = 4096
"""Ids kept in both forms: a step names its checkpoint, task and run several times."""

EVENT_KINDS = (
    "checkpoint", "input", "task_done", "task_failed", "task_asked", "question", "decision",
    "thread_created", "thread_copied", "thread_erased", "pruned",
    "run_started", "run_taken_over", "run_cut_off", "gate_passed", "run_drained",
    "run_done", "run_failed", "run_interrupted", "run_cancelled", "run_abandoned", "run_expired", "run_quarantined",
    "run_retrying", "effect_intent", "effect_done", "effect_not_done", "effect_unknown",
    "effect_inherited", "question_reminder", "question_escalated", "question_expired", "would_ask",
    "question_superseded", "input_queued", "input_dropped",
)  # fmt: skip
"""Stored as their place here: new ones come last."""


class Procedures:
    """
    State that every act may use.

    Attributes:
        types: those that may be stored and loaded.
        frames: between encoded values and what lies in a column.
        memories: what this process knows of threads.
        token: names this store object among all that write to the same database.
        trusting: an object that looks as it did when it was stored is not encoded again.
    """

    types: codec.TypeRegistry
    frames: Frames
    memories: Memories
    token: str
    trusting: bool = True

    def encode(self, value: Any) -> bytes:
        return self.frames.seal(codec.encode(value, self.types))

    def decode(self, data: bytes) -> Any:
        return codec.decode(self.frames.open(data), self.types)

    def private(self, text: str | None) -> bytes | str | None:
        """What people and programs say in their own words: readable in a plain store, sealed in an encrypted one."""
        return text if text is None or self.frames.keys is None else self.frames.seal(text.encode())

    def public(self, stored: bytes | str | None) -> str | None:
        return self.frames.open(stored).decode() if isinstance(stored, bytes) else stored

    def checked(self, plain: bytes) -> bytes:
        """With a checksum in front, for what is told apart from damage by nothing else."""
        return checksum(plain)[:CHECKED_BYTES] + plain

    def unchecked(self, data: bytes, what: str) -> bytes:
        plain = data[CHECKED_BYTES:]
        if checksum(plain)[:CHECKED_BYTES] != data[:CHECKED_BYTES]:
            raise StoreCorruptError(f"{what} is damaged: its bytes have another checksum.")
        return plain


@lru_cache(IDS_KNOWN)
def packed_id(text: str) -> bytes | str:
    """As it is stored: 16 bytes for a UUID in its usual spelling, else the text."""
    if len(text) == 36:
        try:
            found = UUID(text)
        except ValueError:
            return text
        if str(found) == text:
            return found.bytes
    return text


@lru_cache(IDS_KNOWN)
def unpacked_id(stored: bytes | str) -> str:
    return str(UUID(bytes=stored)) if isinstance(stored, bytes) else stored


def unpacked(row: Row, *names: str) -> dict[str, Any]:
    """The row with these ids as text."""
    return {**row, **{name: unpacked_id(row[name]) for name in names if row[name] is not None}}


def packed_or_none(text: str | None) -> bytes | str | None:
    return None if text is None else packed_id(text)


def one(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None


def as_json(values: Iterable[Any]) -> str:
    """A list for `json_each`, which is how a statement takes a set of values."""
    return json.dumps(list(values))


def claim_of(lease: Lease | None) -> Mapping[str, Any]:
    return {"run_no": lease.run_no if lease else None, "epoch": lease.epoch if lease else None}


def fenced(lease: Lease) -> Steps[None]:
    """Last in every write of a run: whoever took it over has changed this row, in a transaction of its own."""
    if not (yield Query("fence", claim_of(lease))):
        raise LeaseLostError(lease.run_id, lease.epoch)


def event(thread_no: int, kind: str, *, lease: Lease | None = None, run_no: int | None = None, ref: str = "") -> Query:
    """The next event of a thread: its number is one above the last."""
    return Query(
        "add_event",
        {
            "thread_no": thread_no,
            "kind": EVENT_KINDS.index(kind),
            "run_no": lease.run_no if lease else run_no,
            "ref": packed_id(ref) if ref else None,
        },
    )


def held(lease: Lease) -> Steps[None]:
    """As `fenced`, and the worker is believed alive: asked before something begins that cannot be taken back."""
    if not (yield Query("holds", claim_of(lease))):
        raise LeaseLostError(lease.run_id, lease.epoch)
