"""Ways to stop and break a store's hand in the middle of an act."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ninelives.store import Store


class BrokenError(Exception):
    pass


class PulledError(BaseException):
    """Not an Exception: what an interpreter raises in the middle of anything."""


class Breaker:
    """Raises at the nth point of one act; a point is before or after a statement, or before the commit."""

    def __init__(self, act: str, n: int, error: type[BaseException]) -> None:
        self.act, self.left, self.error = act, n, error
        self.points: list[tuple[str, str]] = []

    def __call__(self, act: str, statement: str, where: str) -> None:
        if act != self.act or (statement, where) == ("commit", "after"):
            return
        self.points.append((statement, where))
        self.left -= 1
        if self.left < 0:
            raise self.error(f"{act}: {where} {statement}")


class Gate:
    """Holds the store's hand in its next writing act until opened: what is handed over meanwhile waits together."""

    def __init__(self, store: Store, then: Callable[[str, str, str], None] | None = None) -> None:
        self._entered, self._opened = threading.Event(), threading.Event()
        self._store, self._then = store, then
        store.fault = self
        self._held = store.submit(store.note_graph("gate", "g", {}))
        assert self._entered.wait(10)

    def __call__(self, act: str, statement: str, where: str) -> None:
        if act == "note_graph":
            self._entered.set()
            assert self._opened.wait(10)
        elif self._then is not None:
            self._then(act, statement, where)

    def open(self) -> None:
        self._opened.set()
        self._held.result(10)
