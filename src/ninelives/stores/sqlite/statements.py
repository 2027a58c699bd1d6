"""The statements of this dialect, from the `.sql` files beside this one: under a name, with their reason."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files

_BLOCK = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)
"""A statement, or a part that several statements begin with and name in braces."""


def load() -> dict[str, str]:
    """Every named statement: name → SQL. A name used twice is refused."""
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for path in sorted((files(__package__) / "sql").iterdir(), key=lambda p: p.name):
        _, *blocks = _BLOCK.split(path.read_text())
        for kind, name, sql in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True):
            if name in found[kind]:
                raise ValueError(f"{kind} {name!r} is defined twice")
            found[kind][name] = sql.strip().rstrip(";")
    return {name: sql.format(**found["part"]) for name, sql in found["name"].items()}


def migrations() -> list[tuple[int, list[str]]]:
    """The schema's history: (version, statements), oldest first."""
    paths = sorted((files(__package__) / "migrations").iterdir(), key=lambda p: p.name)
    return [(int(path.name[:4]), list(split(path.read_text()))) for path in paths]


def split(script: str) -> Iterator[str]:
    """The single statements of a script: each must run inside a transaction of ours."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


STATEMENTS = load()
