"""
A goal is two figures and a limit; judged, it is a row of the table.

A limit binds our own figure, or how it compares with stock's, measured in the same run.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal, TypeAlias

from benchmarks.figures import Figure, Results

Unit: TypeAlias = Literal["bytes", "s", "/s", ""]


@dataclass(frozen=True)
class Limit:
    """
    Attributes:
        bound: what must not be passed.
        by: whether it binds our own figure, or ours divided by stock's.
        stretch: what we would like better still.
        at_least: whether larger is better.
        strict: whether the bound itself is too much.
    """

    bound: float
    by: Literal["ours", "ratio"] = "ours"
    stretch: float | None = None
    at_least: bool = False
    strict: bool = False

    def met(self, value: float) -> bool:
        return self._within(value, self.bound) and not (self.strict and value == self.bound)

    def stretch_met(self, value: float) -> bool | None:
        return None if self.stretch is None else self._within(value, self.stretch)

    def _within(self, value: float, bound: float) -> bool:
        return value >= bound if self.at_least else value <= bound


@dataclass(frozen=True)
class Goal:
    """
    Attributes:
        name: what it is called on the command line and in the notes.
        text: what is compared.
        stock: the other side's figure; or why there is none.
        beside: further figures that help to read these, by name.
    """

    name: str
    text: str
    unit: Unit
    stock: Figure | str
    ours: Figure
    limit: Limit
    beside: tuple[tuple[str, Figure], ...] = ()

    @property
    def figures(self) -> list[Figure]:
        stock = [self.stock] if isinstance(self.stock, Figure) else []
        return [*stock, self.ours, *(figure for _, figure in self.beside)]


@dataclass(frozen=True)
class Row:
    """
    A goal, judged. Figures are medians; `ratio` is the median of the ratios of the rounds.

    Attributes:
        stock: the figure, or why there is none.
        rounds: how many pairs were compared.
    """

    name: str
    text: str
    unit: Unit
    stock: float | str
    ours: float
    ratio: float | None
    limit: Limit
    met: bool
    stretch_met: bool | None
    beside: dict[str, float]
    rounds: int


def judge(goal: Goal, results: Results) -> Row:
    ours = goal.ours.rounds(results)
    stock = goal.stock.rounds(results) if isinstance(goal.stock, Figure) else []
    ratios = [mine / theirs for mine, theirs in zip(ours, stock, strict=False)]
    ratio = statistics.median(ratios) if ratios else None
    value = ratio if goal.limit.by == "ratio" else statistics.median(ours)
    assert value is not None
    return Row(
        name=goal.name,
        text=goal.text,
        unit=goal.unit,
        stock=statistics.median(stock) if stock else str(goal.stock),
        ours=statistics.median(ours),
        ratio=ratio,
        limit=goal.limit,
        met=goal.limit.met(value),
        stretch_met=goal.limit.stretch_met(value),
        beside={name: statistics.median(figure.rounds(results)) for name, figure in goal.beside},
        rounds=len(ratios) or len(ours),
    )
