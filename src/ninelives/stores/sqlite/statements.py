"""The statements of this dialect, from the `.sql` files beside this one: under a name, with their reason."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load() -> dict[str, str]:
    """Every named statement: name → SQL. A name used twice is refused."""
    statements: dict[str, str] = {}
    for path in sorted((files(__package__) / "sql").iterdir(), key=lambda p: p.name):
        parts = _NAME.split(path.read_text())[1:]
        for name, sql in zip(parts[::2], parts[1::2], strict=True):
            if name in statements:
                raise ValueError(f"statement {name!r} is defined twice")
            statements[name] = sql.strip().rstrip(";")
    return statements


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
