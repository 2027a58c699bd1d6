"""Every test of this folder runs on every store, and its acts by both ways to run one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clocks import HandClock
from contract.desk import Desk
from ninelives.store import Store
from ninelives.stores import open_store

STORES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/store.db",
    "memory": lambda folder: "memory://",
}
"""How to get the URL of an empty store of each kind; the folder is the test's own."""

SHARED = ("sqlite",)
"""Those that several processes can open."""


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return STORES[request.param](tmp_path)


@pytest.fixture
def store(url: str, clock: HandClock) -> Iterator[Store]:
    store = open_store(url, clock=clock)
    yield store
    store.close()


@pytest.fixture(params=["perform", "aperform"])
def desk(store: Store, clock: HandClock, request: pytest.FixtureRequest) -> Iterator[Desk]:
    with Desk(store, clock, sync=request.param == "perform") as desk:
        yield desk
