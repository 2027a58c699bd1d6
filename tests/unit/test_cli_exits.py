"""Exit codes: one table, complete, and the same in the documentation."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from ninelives import errors
from ninelives.cli.exits import EXITS, Exit, UsageError, exit_of
from ninelives.errors import NineLivesError

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_every_error_has_a_code() -> None:
    """Each kind of error that there is stands in the table itself; a new one must find its place there."""
    kinds = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, NineLivesError)}

    assert kinds | {UsageError} == set(EXITS)


def test_error_below_a_known_kind_has_its_code() -> None:
    """A kind that somebody derives has the code of the nearest kind above it."""

    class Derived(errors.ThreadBusyError): ...

    assert exit_of(Derived("t", "r")) is Exit.TRY_LATER


def test_reference_lists_the_same_codes() -> None:
    """The table in docs/reference/cli.md names exactly the codes that there are."""
    table = REFERENCE.read_text().partition("## Exit codes")[2]

    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == list(Exit)
