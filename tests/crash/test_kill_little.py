"""A little of everything, of plain functions and of async ones, killed at every point."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


@pytest.mark.parametrize("workload", ["LITTLE", "LITTLE_ASYNC"])
def test_killed_at_any_point_it_ends_as_if_it_had_not_been(chaos: Chaos, workload: str) -> None:
    """Driven by `invoke` or `ainvoke`; only the call that nobody declared may go out again, and that is counted."""
    found = chaos(workload, "--share", share(1))

    assert not found.breaches, found.told
    assert not found.missed
    assert not found.report["unstable"]
    assert found.counts["calls_again"] > 0
