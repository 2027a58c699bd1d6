"""Time as a dependency: the store's clock, which tests can hold in their hand."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Gives UTC seconds. Clocks decide only when to take over, never who may write or what comes first."""

system_clock: Clock = time.time
