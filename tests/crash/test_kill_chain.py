"""Ten steps in a row, killed at every point."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


def test_a_chain_killed_at_any_point_ends_as_if_it_had_not_been(chaos: Chaos) -> None:
    """Killed at every statement, commit, step and act: same end, nothing recorded runs again, no act is doubled."""
    found = chaos("CHAIN", "--share", share(1))

    assert not found.breaches, found.told
    assert not found.missed
    assert not found.report["unstable"]


def test_a_chain_killed_at_a_heartbeat_ends_as_if_it_had_not_been(chaos: Chaos) -> None:
    """The heartbeat's own statements are points too; they come by the clock, so some are drawn."""
    found = chaos("CHAIN", "--mode", "heartbeats", "--cases", "16", subject="crash.subjects:BEATING")

    assert not found.breaches, found.told
    assert found.counts["kills"] >= 4
