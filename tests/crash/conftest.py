"""The harness as a fixture; what it tried and what that cost is told at the end of the test run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crash.harness import Found, run_chaos

Chaos = Callable[..., Found]


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Chaos:
    def run(*args: Any, **kwargs: Any) -> Found:
        found = run_chaos(*args, **kwargs)
        request.node.user_properties.append(("chaos", found.line))
        return found

    return run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found]
    told = [report.user_properties for report in reports if getattr(report, "when", None) == "call"]
    lines = [line for properties in told for name, line in properties if name == "chaos"]
    if lines:
        terminalreporter.section("killed and stopped")
        for line in lines:
            terminalreporter.write_line(line)
