"""A process that stands still past its lease, is superseded, and goes on."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


def test_a_process_that_was_superseded_leaves_no_trace(chaos: Chaos) -> None:
    """
    Stopped at every point until its lease is over and another has taken over and ended, then continued.

    It writes nothing, forks nothing, begins nothing but a call that was past its check; if that is a declared act, its
    outcome was reported unknown, and it arrives once.
    """
    found = chaos("LITTLE", "--mode", "stops", "--share", share(1), "--jobs", "6", subject="crash.subjects:QUICK")

    assert not found.breaches, found.told
    assert not found.missed
    assert found.counts["superseded"] > 0, "no process went on after its successor"
    assert found.counts["unknown"] > 0, "no stop came between the asking and the answer of an act"


@pytest.mark.parametrize(
    ("workload", "subject", "at_once"), [("TOOLNODE", "crash.subjects:QUICK", 3), ("AGENT", "crash.subjects:STEADY", 3)]
)
def test_a_superseded_agent_begins_no_call_but_those_past_their_check(
    chaos: Chaos, workload: str, subject: str, at_once: int
) -> None:
    """
    Stopped at a sample of points, half of them right after a check; superseded; continued.

    Each tool call that begins after that had passed its own check before, so they are no more than are asked for at
    once; of the declared ones the successor was told that their outcome is unknown.
    """
    found = chaos(workload, "--mode", "stops", "--share", "0", "--sample", "40", "--jobs", "6", subject=subject)

    assert not found.breaches, found.told
    assert not found.missed
    assert found.counts["superseded"] > 0, "no process went on after its successor"
    assert 0 < found.late_tools_max <= at_once, "no stop came between a check and its tool call"
