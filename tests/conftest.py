"""What many tests share."""

from __future__ import annotations

import pytest

from clocks import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
