"""A clock that the test holds."""

from __future__ import annotations


class HandClock:
    """UTC seconds that move only when told to."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
