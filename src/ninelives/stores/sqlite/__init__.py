"""
The store in one SQLite file (or, to try things out, in memory).

WAL, so readers never wait; `synchronous=FULL` by default, so an acknowledged act survives the power being cut, if the
disk keeps its word. Any number of processes of one machine may share the file; a network file system may not.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import quote

from ninelives.clock import Clock, system_clock
from ninelives.errors import ConfigError, StoreUnavailableError
from ninelives.model import Room, Worker
from ninelives.store import Act, Store, is_alone
from ninelives.stores import codec
from ninelives.stores.codec.frames import Frames
from ninelives.stores.codec.keys import KeyRing
from ninelives.stores.codec.memory import Memories
from ninelives.stores.procedures import SqlActs
from ninelives.stores.sqlite.database import (
    Database,
    drive,
    empty_log,
    give_back,
    migrate,
    must_be_idle,
    room,
    translated,
    write_anew,
)
from ninelives.stores.sqlite.locks import Files, WorkerLocks, WriterLock
from ninelives.stores.sqlite.writer import Writer

T = TypeVar("T")


class SqliteStore(SqlActs, Store):
    """
    Args:
        path: of the database file, made if missing; None for a database in memory that ends with this object.
        synchronous: "FULL" (an acknowledged act survives a power cut) or "NORMAL" (it survives the process).
        busy_timeout_s: how long to wait for a program that is not ours and holds the file.
        lease_ttl_s: a process that has been stopped inside a write transaction for longer than this and
            `busy_timeout_s` together is ended by whoever waits for it.
        clock: UTC seconds.
    """

    def __init__(
        self,
        path: str | Path | None,
        *,
        synchronous: str = "FULL",
        busy_timeout_s: float = 3.0,
        lease_ttl_s: float = 6.0,
        clock: Clock = system_clock,
    ) -> None:
        if synchronous.upper() not in ("FULL", "NORMAL", "EXTRA"):
            raise ConfigError(f"synchronous={synchronous!r}: SQLite knows FULL, EXTRA and NORMAL for us.")
        keys = KeyRing.from_env()
        # Once and for all: a link to it would have lock files of its own, and the current folder may change.
        path = None if path is None else Path(path).resolve()
        self._file, self._inode = path, 0
        self.clock = clock
        self.types = codec.DEFAULT_TYPES.copy()
        self.frames, self.memories, self.token = Frames(keys), Memories(), token_hex(8)
        self.in_memory = path is None
        self.url = "memory://" if path is None else f"sqlite:///{path}"
        self.durability = _promise(path, synchronous)
        uri = ":memory:" if path is None else f"file:{quote(str(path))}"
        self._db = Database(uri, clock=lambda: self.clock, synchronous=synchronous, busy_timeout_s=busy_timeout_s)
        self._locks = _open_locks(path)
        self._workers = WorkerLocks(self._locks) if self._locks else None
        self._turn = WriterLock(self._locks, patience_s=lease_ttl_s + busy_timeout_s) if self._locks else None
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="ninelives-reader")
        self._writer = Writer(self._connect(), self._my_turn, self._tell, self.url)

    def _connect(self) -> sqlite3.Connection:
        """The writer's connection, to a database that has our schema."""
        try:
            with self._my_turn():
                conn = self._db.connect()
                try:
                    secret = migrate(conn, self.url, wal=not self.in_memory, new_secret=self.frames.new_secret)
                    self.frames.use_secret(secret)
                except BaseException:
                    conn.close()
                    raise
        except BaseException:
            if self._locks:
                self._locks.close_all()
            raise
        return conn

    # -- running acts -----------------------------------------------------------------------------------------------

    def perform(self, act: Act[T]) -> T:
        if act.reads and not self.in_memory:
            return self._read(act)
        result: T = self.submit(act).result()
        return result

    async def aperform(self, act: Act[T]) -> T:
        if act.reads and not self.in_memory:
            if act.quick or is_alone():
                return self._read(act)
            self._writer.must_serve()
            return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, act)
        if is_alone():
            return self._writer.perform_here(act)
        result: T = await asyncio.shield(asyncio.wrap_future(self.submit(act)))
        return result

    def submit(self, act: Act[T]) -> Future[T]:
        return self._writer.submit(act)

    def close(self) -> None:
        self._writer.close()
        self._readers.shutdown()
        self._db.close()
        if self._locks:
            self._locks.close_all()

    def allow_types(self, *types: type) -> None:
        self.types.allow(*types)

    def be_strict(self) -> None:
        self.types.strict, self.trusting = True, False

    def request_digest(self, value: Any) -> bytes:
        return self.frames.digest(codec.encode(value, self.types))

    def _read(self, act: Act[T]) -> T:
        self._writer.must_serve()
        try:
            with self._db.reader() as conn:
                return drive(conn, act, self._tell)
        except sqlite3.Error as error:
            raise translated(error, self.url) from error

    def _tell(self, act: str, statement: str, where: str) -> None:
        if self.fault is not None:
            self.fault(act, statement, where)

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        if self._turn is None:
            yield
        else:
            with self._turn.held():
                self._must_be_there()
                yield

    def _must_be_there(self) -> None:
        """A file that was deleted or replaced goes on taking writes, which nobody will ever find again."""
        if self._file is None:
            return
        try:
            found = os.stat(self._file)
        except FileNotFoundError:
            found = None
        if found is None or found.st_ino != (self._inode or found.st_ino):
            raise StoreUnavailableError(
                f"{self.url}: the database file was removed or replaced while it was open; nothing was written. Put it"
                " back, or end this process and begin with the new file."
            )
        self._inode = found.st_ino

    # -- room on the disk -------------------------------------------------------------------------------------------

    def room(self) -> Room:
        self._writer.must_serve()
        if self._file is None:
            return Room()
        try:
            with self._db.reader() as conn:
                return room(conn, self._file)
        except sqlite3.Error as error:
            raise translated(error, self.url) from error

    def compact(self, *, whole: bool = False) -> Room:
        if self._turn is None:
            return Room()
        if whole:
            self.bury_the_dead()
        self._writer.between(self._write_anew if whole else _tidy)
        return self.room()

    def _write_anew(self, conn: sqlite3.Connection) -> None:
        assert self._turn is not None
        must_be_idle(conn, self.url)
        with self._turn.beating():
            write_anew(conn)
            _tidy(conn)

    # -- liveness ---------------------------------------------------------------------------------------------------

    def hold_worker_lock(self, worker_id: str) -> None:
        if self._workers:
            self._workers.hold(worker_id)

    def drop_worker_lock(self, worker_id: str) -> None:
        if self._workers:
            self._workers.drop(worker_id)

    def clear_worker_lock(self, worker_id: str) -> None:
        if self._workers:
            self._workers.clear(worker_id)

    def dead_workers(self, workers: Iterable[Worker]) -> list[str]:
        if self._workers is None:
            return []
        # Whatever host a worker named: a container made anew has another name, and the file is on one machine only.
        now, locks = self.clock(), self._workers
        return [w.worker_id for w in workers if locks.is_dead(w.worker_id, expired=w.expires_at <= now)]


def _tidy(conn: sqlite3.Connection) -> None:
    give_back(conn)
    empty_log(conn)


def _open_locks(path: str | Path | None) -> Files | None:
    if path is None:
        return None
    file = Path(path)
    if file.is_dir():
        raise ConfigError(
            f"{file} is a folder, not a database file. Name a file in it, such as {file / 'ninelives.db'}."
        )
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(0o600)  # conversations are their owner's; SQLite gives its other files the same mode
        return Files(file.with_name(f"{file.name}-ninelives"))
    except OSError as error:
        raise StoreUnavailableError(
            f"{path}: cannot be made or opened ({error.strerror}). Name a folder that this user may write to."
        ) from error


def _promise(path: str | Path | None, synchronous: str) -> str:
    if path is None:
        return "in memory: gone when this process ends"
    if synchronous.upper() == "NORMAL":
        return "acknowledged acts survive the process; a power cut may take the last ones back"
    return "acknowledged acts survive a power cut, if the disk keeps its word"
