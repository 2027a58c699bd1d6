"""What the procedures share: encoding, the fence, and the event that each change leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ninelives.errors import LeaseLostError
from ninelives.model import Lease
from ninelives.store import Query, Row, Steps
from ninelives.stores import codec


class Procedures:
    """State that every act may use: the types that may be stored, and nothing else."""

    types: codec.TypeRegistry

    def encode(self, value: Any) -> bytes:
        return codec.encode(value, self.types)

    def decode(self, data: bytes) -> Any:
        return codec.decode(data, self.types)


def one(rows: list[Row]) -> Row | None:
    return rows[0] if rows else None


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
        {"thread_no": thread_no, "kind": kind, "run_no": lease.run_no if lease else run_no, "ref": ref or None},
    )


def held(lease: Lease) -> Steps[None]:
    """As `fenced`, and the worker is believed alive: asked before something begins that cannot be taken back."""
    if not (yield Query("holds", claim_of(lease))):
        raise LeaseLostError(lease.run_id, lease.epoch)
