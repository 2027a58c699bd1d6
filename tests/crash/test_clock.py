"""Two workers whose clocks disagree."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


@pytest.mark.parametrize("workload", ["CHAIN", "LITTLE"])
def test_a_clock_set_back_by_a_minute_loses_no_step(chaos: Chaos, workload: str) -> None:
    """Whoever goes on makes ids that sort before those of the dead process; its steps come after them nonetheless."""
    found = chaos(workload, "--share", "0", subject="crash.subjects:SET_BACK")

    assert not found.breaches, found.told
