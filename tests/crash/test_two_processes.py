"""Two live processes, one thread."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]

WAIT_S = ["0", "20"]
"""Not at all, or for as long as it takes."""


@pytest.mark.parametrize("wait_s", WAIT_S)
@pytest.mark.parametrize("request_kind", ["same", "other", "continue"])
def test_who_asks_for_a_busy_thread_is_told_or_waits(chaos: Chaos, request_kind: str, wait_s: str) -> None:
    """While one process is in the middle of a run, another one's start, input or continue does nothing to it."""
    found = chaos(
        "LITTLE",
        *("--mode", "beside", "--request", request_kind, "--wait-s", wait_s, "--cases", "12"),
        subject="crash.subjects:SHORT",
    )

    assert not found.breaches, found.told
    assert len(found.missed) <= found.tried // 3
    assert found.counts["busy"] == (found.tried - len(found.missed) if wait_s == "0" else 0)


@pytest.mark.parametrize("wait_s", WAIT_S)
def test_of_two_that_start_at_once_one_runs(chaos: Chaos, wait_s: str) -> None:
    """Both make the same request at the same time: every unit runs once, and who waits gets the answer."""
    found = chaos("LITTLE", "--mode", "races", "--wait-s", wait_s, "--cases", "20")

    assert not found.breaches, found.told
