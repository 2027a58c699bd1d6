"""Eight tasks at once, each acting outside, killed at every point."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


def test_a_fanout_killed_at_any_point_ends_as_if_it_had_not_been(chaos: Chaos) -> None:
    """Killed while eight tasks race: those that were recorded stay, only those in flight run again, no act doubles."""
    found = chaos("FANOUT", "--share", share(1))

    assert not found.breaches, found.told
    assert not found.missed
    assert not found.report["unstable"]
