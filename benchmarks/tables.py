"""Rows as people read them: in the terminal, and on the page."""

from __future__ import annotations

from typing import Any

from benchmarks.judging import Unit

HEADINGS = ("goal", "", "stock", "ours", "ours / stock", "limit", "")


def cells(row: dict[str, Any]) -> list[str]:
    """A row, as it was kept, in words and with units."""
    stock = row["stock"] if isinstance(row["stock"], str) else in_words(row["stock"], row["unit"])
    ratio = "" if row["ratio"] is None else in_words(row["ratio"], "")
    return [row["name"], row["text"], stock, in_words(row["ours"], row["unit"]), ratio, limit(row), verdict(row)]


def limit(row: dict[str, Any]) -> str:
    bound = row["limit"]
    unit: Unit = row["unit"] if bound["by"] == "ours" else ""
    sign = "≥" if bound["at_least"] else "<" if bound["strict"] else "≤"
    of = " of stock" * (bound["by"] == "ratio")
    better = f" (better: {in_words(bound['stretch'], unit)})" if bound["stretch"] is not None else ""
    return f"{sign} {in_words(bound['bound'], unit)}{of}{better}"


def verdict(row: dict[str, Any]) -> str:
    if not row["met"]:
        return "missed"
    return "met, and better" if row["stretch_met"] else "met"


def in_words(value: float, unit: Unit) -> str:
    """Three digits, and the unit that suits the size."""
    if unit == "bytes":
        return _scaled(value, ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")))
    if unit == "s":
        return _scaled(value, ((1, "s"), (1e-3, "ms"), (1e-6, "µs")))
    return f"{_digits(value)}{unit}"


def _scaled(value: float, scales: tuple[tuple[float, str], ...]) -> str:
    size, name = next((scale for scale in scales if abs(value) >= scale[0]), scales[-1])
    return f"{_digits(value / size)} {name}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def aligned(rows: list[list[str]]) -> str:
    """A table for the terminal."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)
