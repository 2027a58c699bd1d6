"""Acts that people have to approve, killed at every act: nothing twice, nothing unasked, nothing lost."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


@pytest.mark.parametrize("workload", ["REVIEWED", "REVIEWED_EACH", "BARE_ASKING"])
def test_what_people_decide_holds_however_often_it_is_killed(chaos: Chaos, workload: str) -> None:
    """
    One call is approved, one edited, one rejected; in one question, in one each, or in a bare tool node that gets them
    all in one task.

    What was approved arrives once, as it was approved, or is reported unknown; what was not never arrives; nothing
    arrives before its answer is in the store; an accepted answer is never asked for again; and the end is the same.
    """
    found = chaos(workload, "--share", share(0), "--every", "answer", "--sample", "90")

    assert not found.breaches, found.told
    assert not found.missed
    assert found.counts["doubled"] == 0
    assert found.counts["kills"] == found.tried


@pytest.mark.parametrize("workload", ["REVIEWED", "BARE_ASKING"])
def test_two_kills_of_a_reviewed_run_cost_no_more_than_one(chaos: Chaos, workload: str) -> None:
    """Whoever goes on is killed, too."""
    found = chaos(workload, "--mode", "pairs", "--cases", "12")

    assert not found.breaches, found.told
    assert len(found.missed) <= 2
