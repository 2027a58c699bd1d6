"""A bare tool node, whose three calls are one task, killed at every point."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


def test_a_tool_node_killed_at_any_point_ends_as_if_it_had_not_been(chaos: Chaos) -> None:
    """The one task runs again, and yet no call in it whose result is recorded, be it declared or not."""
    found = chaos("TOOLNODE", "--share", share(1))

    points = {point for verdict in found.report["verdicts"] for point in verdict["points"]}
    assert not found.breaches, found.told
    assert not found.missed
    assert not found.report["unstable"]
    assert {f"keep_call#{n}.commit.{where}" for n in (1, 2, 3) for where in ("before", "after")} <= points


def test_two_kills_of_a_tool_node_cost_no_more_than_one(chaos: Chaos) -> None:
    """Whoever finishes the calls that were left is killed, too."""
    found = chaos("TOOLNODE", "--mode", "pairs", "--cases", "12")

    assert not found.breaches, found.told
    assert len(found.missed) <= 2
