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
