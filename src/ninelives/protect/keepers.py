"""
The stores that `protect()` has opened in this process, and the worker that it is in each.

One keeper per store and process: protecting two graphs makes one worker, not two. A process that ends in the ordinary
way signs off; one that is killed is found dead by its neighbours.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import warnings

from ninelives.config import Settings
from ninelives.errors import ConfigError
from ninelives.lease import Keeper
from ninelives.store import Store
from ninelives.stores import absolute, open_store

_keepers: dict[tuple[int, str], tuple[Keeper, bool]] = {}
"""By process and store: the keeper, and whether the store was opened here and is ours to close."""
_memories = itertools.count(1)
_mutex = threading.Lock()


def keeper_of(store: str | Store, settings: Settings) -> Keeper:
    """
    This process's keeper for a store, opened now if it was not.

    Raises:
        ConfigError: `memory://` in production, or no such kind of store.
        StoreUnavailableError, StoreCorruptError, SchemaVersionError: as `open_store`.
    """
    place = (os.getpid(), _name(store, settings))
    with _mutex:
        if place not in _keepers:
            ours = not isinstance(store, Store)
            opened = _open(store, settings) if not isinstance(store, Store) else store
            if opened.in_memory:
                _warn_of_memory(settings)
            keeper = Keeper(opened, ttl_s=settings.lease.ttl_s, heartbeat_s=settings.lease.heartbeat_s)
            _keepers[place] = (keeper, ours)
        return _keepers[place][0]


def shutdown() -> None:
    """
    Sign off from every store that `protect()` uses in this process, and close those that it opened.

    Runs that are still going are cut off, to be continued later. Graphs protected before can no longer be called.
    """
    with _mutex:
        mine = [place for place in _keepers if place[0] == os.getpid()]
        leaving = [_keepers.pop(place) for place in mine]
    for keeper, ours in leaving:
        keeper.close()
        if ours:
            keeper.store.close()


atexit.register(shutdown)


def _name(store: str | Store, settings: Settings) -> str:
    if isinstance(store, Store):
        return f"open store {id(store)}"
    if store == "memory://":
        return f"memory {next(_memories)}"
    return absolute(store)


def _open(url: str, settings: Settings) -> Store:
    own = {"synchronous": settings.sqlite.synchronous, "busy_timeout_s": settings.sqlite.busy_timeout_s}
    return open_store(url, **own, lease_ttl_s=settings.lease.ttl_s)


def _warn_of_memory(settings: Settings) -> None:
    if settings.production:
        raise ConfigError("memory:// keeps nothing and production is on; name a store that lasts.")
    warnings.warn("memory:// is for trying out: all threads are gone when this process ends.", stacklevel=5)
