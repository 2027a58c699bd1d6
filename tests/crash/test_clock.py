"""Two workers whose clocks disagree."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]

BEHIND, AHEAD = "crash.subjects:SET_BACK", "crash.subjects:SET_AHEAD"
"""Who comes second."""


@pytest.mark.parametrize("workload", ["CHAIN", "LITTLE"])
def test_a_clock_set_back_by_a_minute_loses_no_step(chaos: Chaos, workload: str) -> None:
    """Whoever goes on makes ids that sort before those of the dead process; its steps come after them nonetheless."""
    found = chaos(workload, "--share", "0", subject=BEHIND)

    assert not found.breaches, found.told


@pytest.mark.parametrize(
    ("workload", "subject"),
    [("FANOUT", BEHIND), ("AGENT", BEHIND), ("CHAIN", AHEAD), ("FANOUT", AHEAD), ("AGENT", AHEAD)],
)
def test_clocks_a_minute_apart_lose_no_step(chaos: Chaos, workload: str, subject: str) -> None:
    """Whoever goes on is a minute behind the dead process, or a minute ahead of it: at a sample of points."""
    found = chaos(workload, "--share", "0", "--sample", "24", subject=subject)

    assert not found.breaches, found.told
    assert not found.missed


@pytest.mark.parametrize("subject", [BEHIND, AHEAD])
@pytest.mark.parametrize("workload", ["LITTLE", "FANOUT", "AGENT"])
def test_a_living_neighbour_with_another_clock_takes_over(chaos: Chaos, workload: str, subject: str) -> None:
    """
    Of two live processes, a minute apart and each on a thread of its own, one is killed.

    The other ends its own run, in the middle of which it was, and then the dead one's: no step of either is lost.
    """
    found = chaos(workload, "--mode", "survived", "--cases", "6", subject=subject)

    assert not found.breaches, found.told
    assert len(found.missed) <= found.tried // 2


@pytest.mark.parametrize("subject", [BEHIND, AHEAD])
@pytest.mark.parametrize("workload", ["LITTLE", "FANOUT", "AGENT"])
def test_two_clocks_on_two_threads_of_one_store_do_not_meet(chaos: Chaos, workload: str, subject: str) -> None:
    """Each in the middle of the other's run, both go on: neither takes the other, whose lease seems over, for dead."""
    found = chaos(workload, "--mode", "abreast", "--cases", "6", subject=subject)

    assert not found.breaches, found.told
    assert len(found.missed) <= found.tried // 2


def test_who_is_taken_for_dead_by_a_clock_ahead_leaves_no_trace(chaos: Chaos) -> None:
    """A process stands still; by its neighbour's clock its lease is over at once, by its own it is not."""
    found = chaos("LITTLE", "--mode", "stops", "--share", "0", "--sample", "24", "--jobs", "6", subject=AHEAD)

    assert not found.breaches, found.told
    assert found.counts["superseded"] > 0
