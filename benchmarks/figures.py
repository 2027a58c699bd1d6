"""
What is read off the measurements: each figure names the measurements that it needs, and gives one number per round.

Figures that are compared have as many rounds as both sides have in common, so that those made one after the other are
compared with one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.spec import Measured, Saver, Spec, Workload

Results: TypeAlias = Mapping[Spec, list[Measured]]
"""The rounds of each measurement, in the order in which they were made."""


@dataclass(frozen=True)
class Figure:
    """
    Attributes:
        needs: the measurements that it is read off.
        of: the figure of one round, of these measurements in this order.
        timed: whether it is a time, which is measured several times, or a size, which is the same each time.
    """

    needs: tuple[Spec, ...]
    of: Callable[..., float]
    timed: bool = True

    def rounds(self, results: Results) -> list[float]:
        return [self.of(*measured) for measured in zip(*(results[spec] for spec in self.needs), strict=False)]


def plain(name: str, workload: Workload, saver: Saver, turns: int = 0, delta: int = 0) -> Figure:
    """As it was measured."""
    spec = Spec(workload, saver, turns, delta)
    return Figure((spec,), lambda measured: float(measured[name]), timed=not name.startswith("bytes"))


def stored(saver: Saver, turns: int, delta: int = 0) -> Figure:
    """The bytes of a whole chat."""
    return Figure((Spec("chat", saver, turns, delta),), lambda chat: float(chat["bytes"][str(turns)]), timed=False)


def over_least(saver: Saver, turns: int, delta: int = 0) -> Figure:
    """Bytes stored for one byte of the noise, at the best that can be done with it."""
    chat = Spec("chat", saver, turns, delta, "random")
    return Figure((chat,), lambda noise: float(noise["bytes"][str(turns)] / noise["least_bytes"]), timed=False)


def over_new(saver: Saver, turns: int, delta: int = 0) -> Figure:
    """Bytes stored for one byte that LangGraph's serialiser makes of the noise and its labels."""
    chat = Spec("chat", saver, turns, delta, "random")
    return Figure(
        (chat,), lambda noise: float(noise["bytes"][str(turns)] / noise["new_bytes"][str(turns)]), timed=False
    )


def growth(saver: Saver, turns: int, delta: int = 0) -> Figure:
    """The exponent by which bytes grow with the text of a chat: 1 is in proportion, 2 with its square."""
    return Figure((Spec("chat", saver, turns, delta),), exponent, timed=False)


def exponent(chat: Measured) -> float:
    """
    The slope of log bytes over log text, fitted to all turns at which the chat was weighed.

    Without the bytes of the empty store. Over text, not turns: with one long answer more among the first fifty turns,
    the same store would seem to grow more slowly.
    """
    empty = chat["bytes"]["0"]
    points = [(math.log(text), math.log(chat["bytes"][mark] - empty)) for mark, text in chat["new_bytes"].items()]
    middle_x, middle_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    rise = sum((x - middle_x) * (y - middle_y) for x, y in points)
    return float(rise / sum((x - middle_x) ** 2 for x, _ in points))


def superstep_s(saver: Saver, turns: int, delta: int = 0) -> Figure:
    """Seconds that a superstep takes more than without a saver, at the end of a chat."""
    needs = (Spec("chat", saver, turns, delta), Spec("chat", "nosaver", turns, delta))
    return Figure(needs, lambda chat, floor: _superstep_s(chat, floor, str(turns)))


def floor_s(turns: int, delta: int = 0) -> Figure:
    """Seconds of a superstep without a saver, at the end of a chat."""
    needs = (Spec("chat", "nosaver", turns, delta),)
    return Figure(needs, lambda floor: float(floor["turn_s"][str(turns)] / floor["supersteps"]))


def slowing(saver: Saver, turns: int, delta: int = 0, since: int = 50) -> Figure:
    """The time of a superstep over no saver at the end of a chat, by that at turn `since`."""
    needs, end, begin = superstep_s(saver, turns, delta).needs, str(turns), str(since)
    return Figure(needs, lambda chat, floor: _superstep_s(chat, floor, end) / _superstep_s(chat, floor, begin))


def _superstep_s(chat: Measured, floor: Measured, mark: str) -> float:
    return float((chat["turn_s"][mark] - floor["turn_s"][mark]) / chat["supersteps"])


def fresh_superstep_s(saver: Saver, turns: int, delta: int = 0) -> Figure:
    """The same where each turn is a process of its own; opening the store is part of it, importing is not."""
    needs = (Spec("turn", saver, turns, delta), Spec("turn", "nosaver", turns, delta))
    return Figure(needs, lambda turn, floor: float((turn["total_s"] - floor["total_s"]) / turn["supersteps"]))


def put_s(saver: Saver, *chats: tuple[int, int]) -> Figure:
    """One put, at the turn where it takes longest. `chats`: pairs of turns and delta."""
    needs = tuple(Spec("chat", saver, turns, delta) for turns, delta in chats)
    return Figure(needs, lambda *measured: max(s for chat in measured for s in chat["put_s"].values()))
