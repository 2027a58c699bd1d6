"""A bare tool node, whose three calls are one task, killed at every point."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


def test_a_tool_node_killed_at_any_point_ends_as_if_it_had_not_been(chaos: Chaos) -> None:
    """The one task runs again as a whole, and yet the declared calls in it are not made a second time."""
    found = chaos("TOOLNODE", "--share", share(1))

    assert not found.breaches, found.told
    assert not found.missed
    assert not found.report["unstable"]
