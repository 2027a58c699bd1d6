"""
Putting a whole store under its current key, a few values at a time.

What must always hold: a value is read and written back in one transaction, so nothing newer is ever overwritten; every
step leaves a store that opens and reads with the keys that it was opened with; and the secret goes last, after a walk
that found nothing to do, so that a store which opens without an older key holds nothing that needs it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ninelives.errors import EncryptionKeyError, StoreCorruptError
from ninelives.model import Bookmark, Resealed
from ninelives.store import Query, Row, Steps, act
from ninelives.stores.codec.keys import KeyRing
from ninelives.stores.procedures.base import Procedures, one


class Table(NamedTuple):
    """
    A table with sealed values.

    Attributes:
        what: what they are, in words.
        page, set: statements that give the next rows, and that write one back.
        begin: the primary key, with what comes before its first value.
        sealed: columns. What is no blob in them (text that is ours, or none) is not sealed.
        rows: looked at in one transaction, so that nobody waits long: a pack is much larger than an answer.
    """

    what: str
    page: str
    set: str
    begin: dict[str, Any]
    sealed: tuple[str, ...]
    rows: int = 256


def _tables() -> list[Table]:
    question = {"thread_no": -1, "interrupt_id": "", "ask_no": -1}
    task = {"thread_no": -1, "ns": "", "place": -1, "task_id": "", "run_no": -1}
    return [
        Table("items", "sealed_pack", "reseal_pack", {"pack_no": -1}, ("frame",), 16),
        Table("checkpoints", "sealed_checkpoint", "reseal_checkpoint", {"thread_no": -1, "seq": -1}, ("body",)),
        Table("task results", "sealed_write", "reseal_write", task, ("body",)),
        Table("runs", "sealed_run", "reseal_run", {"run_no": -1}, ("spec", "cause")),
        Table("effects", "sealed_effect", "reseal_effect", {"effect_no": -1}, ("result", "why"), 32),
        Table("questions", "sealed_interrupt", "reseal_interrupt", question, ("payload", "about", "outcome")),
        Table("queued inputs", "sealed_queued_input", "reseal_queued_input", {"queued_no": -1}, ("spec",), 32),
        Table("answers", "sealed_decision", "reseal_decision", {**question, "actor": ""}, ("value", "note")),
        Table("journal", "sealed_journal", "reseal_journal", {"thread_no": -1, "key": ""}, ("body",), 32),
        Table("graphs", "sealed_graph_version", "reseal_graph_version", {"fp": ""}, ("description",)),
        Table("schedules", "sealed_schedule", "reseal_schedule", {"schedule_id": ""}, ("spec",)),
    ]


TABLES = _tables()
"""All but the secret. `tests/unit/test_statements.py` holds them to the schema."""


class KeyActs(Procedures):
    @act
    def reseal(self, after: Bookmark | None = None) -> Steps[Resealed]:
        if self.frames.keys is None:
            raise EncryptionKeyError(
                "the store is not encrypted, so there is nothing to put under another key. To encrypt what is in it,"
                " begin a new store with a key."
            )
        mark = after or Bookmark()
        if mark.table < len(TABLES):
            return (yield from self._reseal_page(self.frames.keys, mark, TABLES[mark.table]))
        return (yield from self._end_walk(self.frames.keys, mark))

    def _reseal_page(self, keys: KeyRing, mark: Bookmark, table: Table) -> Steps[Resealed]:
        place = zip(table.begin, mark.after or table.begin.values(), strict=True)
        rows = yield Query(table.page, {**dict(place), "limit": table.rows})
        changed: list[Row] = []
        values = resealed = 0
        for row in rows:
            try:
                new = {name: self._resealed(row[name]) for name in table.sealed}
            except (EncryptionKeyError, StoreCorruptError) as error:
                raise type(error)(f"{(yield from _whose(table, row))}: {error}") from None
            values += sum(isinstance(value, bytes) for value in new.values())
            if number := sum(new[name] is not row[name] for name in new):
                resealed += number
                changed.append({name: row[name] for name in table.begin} | new)
        if changed:
            yield Query(table.set, many=changed)
        return Resealed(keys.current.name, table.what, values, resealed, mark.walk, _next(mark, table, rows, resealed))

    def _resealed(self, stored: Any) -> Any:
        """The very same object, where there is nothing to do."""
        return self.frames.reseal(stored) if isinstance(stored, bytes) else stored

    def _end_walk(self, keys: KeyRing, mark: Bookmark) -> Steps[Resealed]:
        """The next walk where this one has found something: more may have been written behind its back."""
        if mark.found:
            return Resealed(keys.current.name, "secret", 0, 0, mark.walk, Bookmark(mark.walk + 1))
        row = one((yield Query("get_secret")))
        # Always: it is sealed under the name of its key, too, which may be a new one for the same key.
        yield Query("set_secret", {"value": self.frames.reseal_secret(row["value"] if row else None)})
        return Resealed(keys.current.name, "secret", 1, 1, mark.walk, None)


def _next(mark: Bookmark, table: Table, rows: list[Row], resealed: int) -> Bookmark:
    found = mark.found or resealed > 0
    if len(rows) < table.rows:
        return Bookmark(mark.walk, mark.table + 1, None, found)
    return replace(mark, after=tuple(rows[-1][name] for name in table.begin), found=found)


def _whose(table: Table, row: Row) -> Steps[str]:
    """Where a value is, in words that mean something outside the store."""
    if "thread_no" not in row:
        return f"{table.what}, {next(iter(table.begin))} {row[next(iter(table.begin))]!r}"
    thread = one((yield Query("thread_by_no", {"thread_no": row["thread_no"]})))
    owner = f" of owner {thread['owner']!r}" if thread and thread["owner"] else ""
    return f"{table.what} of thread {thread['thread_id']!r}{owner}" if thread else table.what
