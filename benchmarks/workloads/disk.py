"""What the disk itself takes: no store that syncs every commit can be faster."""

from __future__ import annotations

import os
import sqlite3
import statistics
from contextlib import closing
from pathlib import Path

from benchmarks.spec import Measured, Spec
from benchmarks.workloads.common import seconds

TIMES = 300
ROW_BYTES = 3000


def disk(spec: Spec, folder: Path, seed: int, round: int) -> Measured:
    return {"sync_s": _sync_s(folder / "plain"), "commit_s": _commit_s(folder / "plain.db")}


def _sync_s(path: Path) -> float:
    """Writing a few kilobytes at the end of a file, and syncing it."""
    with path.open("wb", buffering=0) as file:

        def write() -> None:
            file.write(os.urandom(ROW_BYTES))
            os.fsync(file.fileno())

        return statistics.median(seconds(write) for _ in range(TIMES))


def _commit_s(path: Path) -> float:
    """A transaction of SQLite that inserts one row of as much."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("pragma journal_mode=wal")
        connection.execute("pragma synchronous=full")
        connection.execute("create table kept (number integer primary key, content blob)")
        insert = "insert into kept (content) values (?)"
        return statistics.median(
            seconds(lambda: connection.execute(insert, (os.urandom(ROW_BYTES),))) for _ in range(TIMES)
        )
