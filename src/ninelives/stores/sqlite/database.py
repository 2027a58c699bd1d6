"""Connections to one SQLite database, its settings and its schema."""

from __future__ import annotations

import inspect
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ninelives.clock import Clock
from ninelives.errors import SchemaVersionError, StoreCorruptError, StoreUnavailableError
from ninelives.model import Room
from ninelives.store import Act, Query, Row
from ninelives.stores.sqlite.statements import STATEMENTS, migrations

OLDEST_SQLITE = (3, 37, 0)
"""STRICT tables; RETURNING is older."""

NEW_FILE = ("pragma page_size = 2048", "pragma auto_vacuum = incremental")
"""
Count only for a file that is made now. Small pages, because a step changes a few hundred bytes in each of several
trees, and a page is what is written; free ones are given back after forgetting.
"""

T = TypeVar("T")
Tell: TypeAlias = Callable[[str, str, str], None]
"""Told of `(act, statement, where)`; see `ninelives.store.Fault`."""


class Database:
    """Makes connections that share path, clock and settings, and keeps idle ones for readers."""

    def __init__(self, path: str, *, clock: Callable[[], Clock], synchronous: str, busy_timeout_s: float) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreUnavailableError(
                f"SQLite {sqlite3.sqlite_version} is too old; ninelives needs {'.'.join(map(str, OLDEST_SQLITE))}."
                " Use a newer Python build, or another store."
            )
        self.path, self._clock = path, clock
        self._synchronous, self._busy_timeout_s = synchronous, busy_timeout_s
        self._idle: list[sqlite3.Connection] = []
        self._closed = False

    def connect(self) -> sqlite3.Connection:
        try:
            conn = sqlite3.connect(
                self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False, uri=True
            )
            conn.row_factory = _as_dict
            conn.create_function("now_s", 0, lambda: self._clock()())
            conn.execute(f"pragma synchronous = {self._synchronous}")
            conn.execute("pragma foreign_keys = on")
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        return conn

    @contextmanager
    def reader(self) -> Iterator[sqlite3.Connection]:
        """A connection for one act that reads: a snapshot of its own, waiting for no writer."""
        try:
            conn = self._idle.pop()
        except IndexError:
            conn = self.connect()
        try:
            conn.execute("begin")
            yield conn
            conn.execute("rollback")
        except BaseException:
            conn.close()
            raise
        self._idle.append(conn)
        if self._closed:
            self.close()

    def close(self) -> None:
        self._closed = True
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


def drive(conn: sqlite3.Connection, act: Act[T], tell: Tell) -> T:
    """Run an act's statements, one after the other, inside the transaction that is open."""
    steps = act.steps
    if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
        raise RuntimeError(f"act {act.name!r} has been run already; make a new one")
    rows: list[Row] | None = None
    try:
        while True:
            try:
                query = next(steps) if rows is None else steps.send(rows)
            except StopIteration as end:
                value: T = end.value
                return value
            tell(act.name, query.name, "before")
            rows = _run(conn, query)
            tell(act.name, query.name, "after")
    finally:
        steps.close()


def _run(conn: sqlite3.Connection, query: Query) -> list[Row]:
    sql = STATEMENTS[query.name]
    if query.many is not None:
        conn.executemany(sql, query.many)
        return []
    rows: list[Row] = conn.execute(sql, query.params).fetchall()
    return rows


def migrate(
    conn: sqlite3.Connection, path: str, *, wal: bool, new_secret: Callable[[], bytes | None] = lambda: None
) -> bytes | None:
    """
    Bring the schema up to date; each migration commits together with its record.

    Args:
        new_secret: gives what a store that is made now keeps of its encryption.

    Returns what the store keeps of it; None for a plain one.

    Raises:
        SchemaVersionError: the store was made by a newer release.
        StoreCorruptError: the file is no SQLite database.
        StoreUnavailableError: another program holds the file.
    """
    try:
        if conn.execute("pragma page_count").fetchone()["page_count"] == 0:
            for setting in NEW_FILE:
                conn.execute(setting)
        if wal:
            conn.execute("pragma journal_mode = wal")
        conn.execute("begin immediate")
        try:
            if _apply(conn) == 0 and (made := new_secret()) is not None:
                conn.execute("insert into meta (name, value) values ('secret', ?)", (made,))
            row = conn.execute("select value from meta where name = 'secret'").fetchone()
            conn.execute("commit")
        finally:
            if conn.in_transaction:
                conn.execute("rollback")
    except sqlite3.Error as error:
        raise translated(error, path) from error
    return row["value"] if row else None


def _apply(conn: sqlite3.Connection) -> int:
    """Returns the version that was found; 0 for a new store."""
    known = migrations()
    version = _version(conn)
    if version > known[-1][0]:
        raise SchemaVersionError(version, known[-1][0])
    for number, statements in known:
        if number > version:
            for statement in statements:
                conn.execute(statement)
            conn.execute(
                "insert into meta (name, value) values ('schema', ?) on conflict (name) do update set value = ?",
                (number, number),
            )
    return version


def give_back(conn: sqlite3.Connection) -> None:
    """Hand pages that hold nothing any more back to the file system. A file made by other hands may keep them."""
    conn.executescript("pragma incremental_vacuum")  # not `execute`: this pragma frees a page each time it is asked
    conn.execute("pragma wal_checkpoint(passive)").fetchall()  # only then is the file shorter; waits for nobody


def empty_log(conn: sqlite3.Connection) -> None:
    """Nothing is left in the write-ahead log, unless somebody reads on for longer than the busy timeout."""
    conn.execute("pragma wal_checkpoint(truncate)").fetchall()


def must_be_idle(conn: sqlite3.Connection, path: str) -> None:
    """
    Raises:
        StoreUnavailableError: a process is believed alive that works in the store.
    """
    row = conn.execute("select count(*) as n from worker where expires_at > now_s()").fetchone()
    if row["n"]:
        raise StoreUnavailableError(
            f"{path}: {row['n']} process(es) work in the store, and would have to wait while it is written anew; it was"
            " not. Try again when nothing runs."
        )


def write_anew(conn: sqlite3.Connection) -> None:
    """Copy what is kept, and nothing else; from then on the file can give room back, whoever made it."""
    conn.execute("pragma auto_vacuum = incremental")
    conn.execute("vacuum")


def room(conn: sqlite3.Connection, file: Path) -> Room:
    """Of a database file, with what is in its write-ahead log."""
    pages, free, page, mode = (
        int(next(iter(conn.execute(f"pragma {name}").fetchone().values())))
        for name in ("page_count", "freelist_count", "page_size", "auto_vacuum")
    )
    taken = sum(os.stat(path).st_size for path in (file, file.with_name(f"{file.name}-wal")) if path.exists())
    return Room(taken, max(0, taken - (pages - free) * page), mode == INCREMENTAL)


INCREMENTAL = 2


def schema(conn: sqlite3.Connection) -> str:
    """What the database holds, as the statements that would make it; `schema.sql` beside this file is its print."""
    rows = conn.execute(
        "select sql from sqlite_master where sql is not null and name not like 'sqlite_%'"
        " order by type desc, tbl_name, name"
    )
    return "".join(f"{row['sql']};\n" for row in rows)


def _version(conn: sqlite3.Connection) -> int:
    if not conn.execute("select 1 from sqlite_master where type = 'table' and name = 'meta'").fetchone():
        return 0
    row = conn.execute("select value from meta where name = 'schema'").fetchone()
    return int(row["value"]) if row else 0


_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_OUR_FAULT = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_MISUSE}


def translated(error: BaseException, path: str) -> BaseException:
    """Our error for one of SQLite's; any other, and SQLite's about a wrong statement, as it is."""
    code = getattr(error, "sqlite_errorcode", None)
    if not isinstance(error, sqlite3.Error) or code is None or code & 0xFF in _OUR_FAULT:
        return error
    if code & 0xFF in _DAMAGED:
        return StoreCorruptError(f"{path}: {error}. Restore it from a copy; nothing was written.")
    return StoreUnavailableError(
        f"{path}: {error}; nothing was written. Check that the disk has room and that no other program holds the file,"
        " then try again."
    )


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Mapping[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}
