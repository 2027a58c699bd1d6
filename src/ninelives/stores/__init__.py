"""Opening a store by its URL: the one place that knows the stores by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ninelives.errors import ConfigError
from ninelives.store import Store

_SQLITE = "sqlite:///"
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

    if url == f"{_SQLITE}:memory:":
        raise ConfigError(f"store {url!r}: a database in memory is named memory:// here.")
    url = absolute(url)
    if url == "memory://":
        return SqliteStore(None, **settings)
    if url.startswith(_SQLITE) and len(url) > len(_SQLITE):
        return SqliteStore(url.removeprefix(_SQLITE), **settings)
    raise ConfigError(f"store {url!r}: no such kind of store. Known: {', '.join(KNOWN)}.")


def absolute(url: str) -> str:
    """The same store as named from any folder, and past links: one file has one URL."""
    if not url.startswith(_SQLITE) or len(url) == len(_SQLITE):
        return url
    return f"{_SQLITE}{Path(url.removeprefix(_SQLITE)).resolve()}"
