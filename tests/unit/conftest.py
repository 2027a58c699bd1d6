"""What the tests of agents share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import Home, home_in


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A store of the test's own, closed at its end, and agents that live in it."""
    with home_in(tmp_path) as home:
        yield home
