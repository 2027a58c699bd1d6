"""A store seen by a program that lacks a class of the one that wrote it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ninelives.model import ONE_USER, NewRun, RunSpec, Unreadable
from ninelives.stores.sqlite import SqliteStore


@dataclass(frozen=True)
class Order:
    number: int


def test_a_request_of_an_unknown_class_can_be_listed(tmp_path: Path) -> None:
    """The run is there for reading; in place of its input stands the reason why it cannot be driven."""
    writer = SqliteStore(tmp_path / "store.db")
    writer.allow_types(Order)
    worker = writer.perform(writer.register_worker("w1", host="here", pid=1, ttl_s=6))
    new = NewRun("r1", "t", "g", RunSpec(input=Order(1)), may_create=True)
    writer.perform(writer.start_run(ONE_USER, new, worker))
    reader = SqliteStore(tmp_path / "store.db")

    (run,) = reader.perform(reader.list_runs(ONE_USER))

    assert isinstance(run.spec.input, Unreadable)
    assert "Order" in str(run.spec.input.error)
    writer.close()
    reader.close()
