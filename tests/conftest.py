"""What many tests share."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest

from clocks import HandClock

# Machines are slow now and then: how long an example takes is no failure of the code that it tries.
hypothesis.settings.register_profile("ninelives", deadline=None)
hypothesis.settings.load_profile("ninelives")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What the kill harness tried, and what that cost. Here, since the controller of all workers loads no other."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    told = [report.user_properties for report in reports if getattr(report, "when", None) == "call"]
    lines = [line for properties in told for name, line in properties if name == "chaos"]
    if lines:
        terminalreporter.section("killed and stopped")
        for line in lines:
            terminalreporter.write_line(line)
