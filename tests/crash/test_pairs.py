"""Killed, gone on with, and killed again."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


@pytest.mark.parametrize(("workload", "cases"), [("CHAIN", 60), ("FANOUT", 60), ("TOOLNODE", 40), ("AGENT", 24)])
def test_two_kills_cost_no_more_than_one(chaos: Chaos, workload: str, cases: int) -> None:
    """The process that goes on dies as well, wherever it is: the third ends as if there had been none before it."""
    found = chaos(workload, "--mode", "pairs", "--cases", str(cases))

    assert not found.breaches, found.told
    assert len(found.missed) <= cases // 10
