"""
Who is measured, each opened as its users open it: the floor, LangGraph's SQLite savers, and a protected graph.

All sync every commit: SQLite's `synchronous=FULL` is the default of both sides, and it is checked.
"""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import zstandard
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

import ninelives
import ninelives.stores.sqlite  # opening a store would import it, and importing is not measured
from benchmarks.nosaver import NoSaver
from benchmarks.spec import Saver
from ninelives.config import Settings
from ninelives.runner import RunSaver

Graph: TypeAlias = Pregel[Any, Any, Any, Any]
Builder: TypeAlias = StateGraph[Any, Any, Any, Any]

DATABASE = "state.db"
FULL = 2


@dataclass(frozen=True)
class Session:
    """
    An opened store.

    Attributes:
        compiled: makes a graph that keeps its threads there.
        run: carries out what is async, on the loop that the store belongs to.
        saver: LangGraph's door to the store, where there is one for all graphs.
    """

    compiled: Callable[[Builder], Graph]
    run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run
    saver: BaseCheckpointSaver[Any] | None = None


@dataclass(frozen=True)
class Subject:
    """
    Attributes:
        saver_class: whose `put` is timed.
        open: opens a store in a folder, until the context ends.
    """

    saver_class: type[BaseCheckpointSaver[Any]]
    open: Callable[[Path], AbstractContextManager[Session]]

    @contextmanager
    def timed_puts(self) -> Iterator[list[float]]:
        """The seconds that each `put` takes meanwhile, as LangGraph waits for it."""
        took: list[float] = []
        originals = {name: own for name in ("put", "aput") if (own := vars(self.saver_class).get(name))}
        for name, original in originals.items():
            setattr(self.saver_class, name, _timed(original, took))
        try:
            yield took
        finally:
            for name, original in originals.items():
                setattr(self.saver_class, name, original)


class ZstdSerializer(SerializerProtocol):
    """The ten lines that anybody may write: LangGraph's serialiser, and zstd over what it gives."""

    _inner = JsonPlusSerializer()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = self._inner.dumps_typed(obj)
        return kind, zstandard.compress(data, 3)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return self._inner.loads_typed((data[0], zstandard.decompress(data[1])))


def stored_bytes(folder: Path) -> int:
    """What a store takes: all its files, with the write-ahead log moved into the database."""
    database = folder / DATABASE
    if database.exists():
        with closing(sqlite3.connect(database, timeout=30)) as connection:
            busy, *_ = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
        if busy:
            raise RuntimeError(f"{database} is being written to; its size means nothing now")
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    return sum(path.stat().st_size for path in files)


def used_bytes(folder: Path) -> int:
    """The same without the database's free pages, which the next rows are put in."""
    with closing(sqlite3.connect(folder / DATABASE, timeout=30)) as connection:
        free_pages = connection.execute("pragma freelist_count").fetchone()[0]
        page_bytes = connection.execute("pragma page_size").fetchone()[0]
    return stored_bytes(folder) - int(free_pages * page_bytes)


@contextmanager
def _open_nothing(folder: Path) -> Iterator[Session]:
    yield _with(NoSaver())


@contextmanager
def _open_stock(folder: Path, serializer: SerializerProtocol | None = None) -> Iterator[Session]:
    # As SqliteSaver.from_conn_string, which takes no serialiser.
    with closing(sqlite3.connect(folder / DATABASE, check_same_thread=False)) as connection:
        saver = SqliteSaver(connection, serde=serializer)
        saver.setup()
        _must_sync(connection.execute("pragma synchronous").fetchone()[0])
        yield _with(saver)


@contextmanager
def _open_stock_async(folder: Path) -> Iterator[Session]:
    with asyncio.Runner() as runner:
        opening = AsyncSqliteSaver.from_conn_string(str(folder / DATABASE))
        saver = runner.run(opening.__aenter__())
        runner.run(saver.setup())
        try:
            yield Session(lambda builder: builder.compile(checkpointer=saver), runner.run, saver)
        finally:
            runner.run(opening.__aexit__(None, None, None))


@contextmanager
def _open_ours(folder: Path) -> Iterator[Session]:
    url, settings = f"sqlite:///{folder / DATABASE}", Settings()
    _must_sync({"FULL": FULL}.get(settings.sqlite.synchronous, 0))
    try:
        yield Session(lambda builder: ninelives.protect(builder.compile(), url, name="bench", settings=settings))
    finally:
        ninelives.shutdown()


SUBJECTS: dict[Saver, Subject] = {
    "nosaver": Subject(NoSaver, _open_nothing),
    "stock": Subject(SqliteSaver, _open_stock),
    "stock-zstd": Subject(SqliteSaver, functools.partial(_open_stock, serializer=ZstdSerializer())),
    "stock-async": Subject(AsyncSqliteSaver, _open_stock_async),
    "ninelives": Subject(RunSaver, _open_ours),
}


def _with(saver: BaseCheckpointSaver[Any]) -> Session:
    return Session(lambda builder: builder.compile(checkpointer=saver), saver=saver)


def _must_sync(synchronous: int) -> None:
    if synchronous != FULL:
        raise RuntimeError("this side does not sync every commit; it cannot be compared")


def _timed(put: Callable[..., Any], took: list[float]) -> Callable[..., Any]:
    @functools.wraps(put)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return put(*args, **kwargs)
        finally:
            took.append(time.perf_counter() - start)

    @functools.wraps(put)
    async def atimed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return await put(*args, **kwargs)
        finally:
            took.append(time.perf_counter() - start)

    return atimed if asyncio.iscoroutinefunction(put) else timed
