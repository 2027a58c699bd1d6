"""
Opening a store to look into it.

Looking changes nothing: a file that is not there is not made, and a process that has died since it was last heard of is
seen to be dead without that being written down. The few commands that do change something ask the store for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ninelives.cli.render import say
from ninelives.config import Settings
from ninelives.errors import NoCheckpointFoundError, ThreadBusyError
from ninelives.model import Run, RunStatus, Scope, Thread, Worker
from ninelives.protect import imported
from ninelives.store import Store
from ninelives.stores import open_store

_SQLITE = "sqlite:///"


class Looking:
    """A store that is looked into, with what is known of the processes that work in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.workers: dict[str, Worker] = {w.worker_id: w for w in store.perform(store.list_workers())}
        self._dead = set(store.dead_workers(self.workers.values()))

    def seen(self, run: Run) -> Run:
        """The run, no longer believed to be held where its process is known to be dead."""
        return replace(run, worker_alive=False) if run.worker_id in self._dead else run

    def thread(self, scope: Scope, thread_id: str) -> Thread:
        """
        The thread with its counts.

        Raises:
            NoCheckpointFoundError: it is not known, or was erased.
        """
        found = self.store.perform(self.store.weigh_thread(scope, thread_id))
        if found is None:
            raise NoCheckpointFoundError(thread_id, near=self.store.perform(self.store.near_threads(scope, thread_id)))
        if found.state == "erased":
            raise NoCheckpointFoundError(thread_id, why="was erased")
        return found

    def must_be_free(self, scope: Scope, thread_id: str) -> None:
        """
        Raises:
            ThreadBusyError: a live process is advancing it.
        """
        act = self.store.list_runs(scope, thread_id=thread_id, status=RunStatus.RUNNING)
        for run in map(self.seen, self.store.perform(act)):
            if run.held:
                raise ThreadBusyError(thread_id, run.run_id, run.worker_id or "")


@contextmanager
def looking(url: str | None) -> Iterator[Looking | None]:
    """
    The store of `url`, or of the settings; None, said on stderr, where there is none yet.

    Raises:
        ConfigError, StoreUnavailableError, StoreCorruptError, SchemaVersionError: as `open_store`.
    """
    settings = Settings.load()
    url = url or settings.store
    if not _is_there(url):
        say(f"there is no store at {url} yet; `ninelives run` makes it")
        yield None
        return
    store = open_store(url)
    try:
        store.allow_types(*map(imported, settings.state.allow))
        yield Looking(store)
    finally:
        store.close()


def must_be_there(look: Looking | None, thing_id: str) -> Looking:
    """
    Raises:
        NoCheckpointFoundError: there is no store, so the thing that was asked for is not there.
    """
    if look is None:
        raise NoCheckpointFoundError(thing_id, why="is not there, as there is no store")
    return look


def _is_there(url: str) -> bool:
    if url == "memory://":
        return False
    path = Path(url.removeprefix(_SQLITE))
    return not url.startswith(_SQLITE) or (path.is_file() and path.stat().st_size > 0)
