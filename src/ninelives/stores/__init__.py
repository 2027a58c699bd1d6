"""Opening a store by its URL: the one place that knows the stores by name."""

from __future__ import annotations

from typing import Any

from ninelives.errors import ConfigError
from ninelives.store import Store

KNOWN = ("sqlite:///file.db", "memory://")


def open_store(url: str, **settings: Any) -> Store:
    """
    Open (and where needed make or migrate) a store.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db` or `memory://`.
        settings: of that store, such as `synchronous`, `busy_timeout_s`, `clock`.

    Raises:
        ConfigError: no store has such a URL.
        SchemaVersionError: the store was made by a newer release.
        StoreUnavailableError, StoreCorruptError: it cannot be opened; nothing was changed.
    """
    from ninelives.stores.sqlite import SqliteStore

    if url == "memory://":
        return SqliteStore(None, **settings)
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        return SqliteStore(url.removeprefix("sqlite:///"), **settings)
    raise ConfigError(f"store {url!r}: no such kind of store. Known: {', '.join(KNOWN)}.")
