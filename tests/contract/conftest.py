"""Every test of this folder runs on every store, and its acts by both ways to run one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clocks import HandClock
from contract.desk import Desk
from ninelives.store import Store
from ninelives.stores import open_store

STORES: dict[str, Callable[[Path], tuple[str, dict[str, Any]]]] = {
    # What a power cut would take is not tested here, and a fsync per act would cost a minute.
    "sqlite": lambda folder: (f"sqlite:///{folder}/store.db", {"synchronous": "NORMAL"}),
    "memory": lambda folder: ("memory://", {}),
}
"""URL and settings of an empty store of each kind; the folder is the test's own."""

SHARED = ("sqlite",)
"""Those that several processes can open."""


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    return STORES[request.param](tmp_path)


@pytest.fixture
def store(opened: tuple[str, dict[str, Any]], clock: HandClock) -> Iterator[Store]:
    url, settings = opened
    store = open_store(url, clock=clock, **settings)
    yield store
    store.close()


@pytest.fixture(params=["perform", "aperform"])
def desk(store: Store, clock: HandClock, request: pytest.FixtureRequest) -> Iterator[Desk]:
    with Desk(store, clock, sync=request.param == "perform") as desk:
        yield desk
