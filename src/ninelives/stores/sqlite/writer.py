"""
One thread that does all writing of a process, several acts to a commit.

Acts run in the order in which they were handed over. Those that wait together share one transaction, each within a
savepoint of its own, so that one that is refused takes back only itself; they are acknowledged when the commit has
returned. On a disk where a commit costs a fsync, that is the difference between one fsync per act and one per crowd.

What is no transaction is done `between` two of them, by whoever asks for it.

Whatever happens, every act that was handed over gets an answer, and the thread lives to take the next one.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, TypeVar

from ninelives.errors import StoreUnavailableError
from ninelives.store import Act
from ninelives.stores.sqlite.database import Tell, drive, give_back, translated

T = TypeVar("T")

BATCH_MAX = 64
DEFER_S = 0.001
"""For how long acts that nobody waits for may wait for others. What a task wrote is followed by its checkpoint."""


class Waiting(NamedTuple):
    act: Act[Any]
    future: Future[Any]


class Writer:
    def __init__(
        self,
        conn: sqlite3.Connection,
        turn: Callable[[], AbstractContextManager[None]],
        tell: Tell,
        path: str,
    ) -> None:
        self._conn, self._turn, self._tell, self._path = conn, turn, tell, path
        self._mine = threading.Lock()
        """Of the connection: who has it is inside a transaction, or does what needs none."""
        self._waiting: deque[Waiting] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._work, name="ninelives-writer", daemon=True)
        self._thread.start()

    def submit(self, act: Act[Any]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # handed over: it will be done, whoever still waits for it
        self.must_serve()
        with self._changed:
            self.must_serve()
            self._waiting.append(Waiting(act, future))
            self._changed.notify()
        return future

    def perform_here(self, act: Act[T]) -> T:
        """
        As `submit`, and wait; in the caller's own thread, together with what was handed over before, if nobody is
        writing: that saves waking another thread, and being woken by it.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        self.must_serve()
        with self._changed:
            self.must_serve()
            self._waiting.append(Waiting(act, future))
        if self._mine.acquire(blocking=False):
            try:
                while not future.done() and (batch := self._pop()):
                    self._transact(batch)
            finally:
                self._mine.release()
        else:
            with self._changed:
                self._changed.notify()
        return future.result()

    def between(self, chore: Callable[[sqlite3.Connection], T]) -> T:
        """Do, in the caller's own thread, what is no transaction, while nobody writes."""
        self.must_serve()
        try:
            with self._mine, self._turn():
                self.must_serve()
                return chore(self._conn)
        except sqlite3.Error as error:
            raise translated(error, self._path) from error

    def must_serve(self) -> None:
        """
        Raises:
            StoreUnavailableError: closed, or this is a forked child, which has no writer thread.
        """
        if os.getpid() != self._pid:
            raise StoreUnavailableError(
                f"{self._path}: opened by process {self._pid}, before it forked this one; nothing was written."
                " Open the store in each process."
            )
        if self._closing:
            raise StoreUnavailableError(f"{self._path}: the store has been closed; nothing was written. Open it again.")

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _work(self) -> None:
        while self._wait():
            with self._mine:  # first, so that nobody overtakes what is taken from the queue
                if batch := self._pop():
                    self._transact(batch)
        with self._mine:
            self._conn.close()

    def _wait(self) -> bool:
        """Until something should be done; False: there is nothing any more, and will be nothing."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(self._is_urgent, DEFER_S)
            return bool(self._waiting) or not self._closing

    def _pop(self) -> list[Waiting]:
        with self._changed:
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_MAX))]

    def _is_urgent(self) -> bool:
        return self._closing or len(self._waiting) >= BATCH_MAX or not all(one.act.defers for one in self._waiting)

    def _transact(self, batch: list[Waiting]) -> None:
        """Run a crowd of acts in one transaction, then answer each of them."""
        done: list[tuple[Waiting, Any]] = []
        try:
            with self._turn():
                try:
                    self._conn.execute("begin immediate")
                    for waiting in batch:
                        self._attempt(waiting, done, alone=len(batch) == 1)
                    self._commit(done)
                finally:
                    self._take_back()  # before the turn is over: an open transaction always has a holder with a name
        except BaseException as error:
            for act, future in batch:
                if act.undo is not None:
                    act.undo()
                if not future.done():
                    future.set_exception(translated(error, self._path))
        else:
            for waiting, value in done:
                self._acknowledge(waiting, value)
            if any(waiting.act.frees for waiting, _ in done):
                self._give_back()

    def _attempt(self, waiting: Waiting, done: list[tuple[Waiting, Any]], *, alone: bool) -> None:
        """One act within its savepoint. A refusal is the act's own; it goes to its caller and to nobody else."""
        if not alone:
            self._conn.execute("savepoint act")
        try:
            done.append((waiting, drive(self._conn, waiting.act, self._tell)))
        except BaseException as refusal:
            if not self._conn.in_transaction:  # SQLite took the whole transaction back: a full disk, a bad sector
                raise
            self._conn.execute("rollback" if alone else "rollback to act")
            waiting.future.set_exception(translated(refusal, self._path))
        if not alone:
            self._conn.execute("release act")

    def _commit(self, done: list[tuple[Waiting, Any]]) -> None:
        for waiting, _ in done:
            self._tell(waiting.act.name, "commit", "before")
        if self._conn.in_transaction:
            self._conn.execute("commit")

    def _acknowledge(self, waiting: Waiting, value: Any) -> None:
        try:
            self._tell(waiting.act.name, "commit", "after")
        except BaseException as lost:  # it is in the store, but its caller is not told so
            waiting.future.set_exception(lost)
        else:
            waiting.future.set_result(value)

    def _give_back(self) -> None:
        """What can be done later is: nobody waits for it, and nobody is told if it fails."""
        with suppress(sqlite3.Error, StoreUnavailableError), self._turn():
            give_back(self._conn)

    def _take_back(self) -> None:
        """Whatever was not committed; nothing, where all went well."""
        with suppress(sqlite3.Error):
            if self._conn.in_transaction:
                self._conn.execute("rollback")
