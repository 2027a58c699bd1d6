"""
The command line, by a clock that is ahead: `python later.py DAYS WORDS…` is `ninelives WORDS…` in so many days.

Only for showing what waiting costs, without waiting.
"""

from __future__ import annotations

import sys
import time

DAY_S = 86_400


def move_clock(days: float) -> None:
    """For this process."""
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + days * DAY_S
    time.time_ns = lambda: now_ns() + int(days * DAY_S * 1e9)


if __name__ == "__main__":
    move_clock(float(sys.argv.pop(1)))
    from ninelives.cli import main  # whose clock is taken as it is imported

    sys.exit(main())
