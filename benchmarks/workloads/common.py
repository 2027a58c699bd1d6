"""What the workloads share."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig


def thread(name: str = "t1") -> RunnableConfig:
    return {"configurable": {"thread_id": name}, "recursion_limit": 10_000}


def seconds(act: Callable[[], Any]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def peak_bytes() -> int:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
