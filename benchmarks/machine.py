"""Where it was measured: what somebody needs to know who wants to see the same figures."""

from __future__ import annotations

import os
import platform
import sqlite3
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "ninelives",
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "langchain-core",
    "deepagents",
    "ormsgpack",
    "zstandard",
)


def machine() -> dict[str, str]:
    """As it is now; `load` is how many processes want to run."""
    return {
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "cpu": f"{_cpu()}, {os.cpu_count()} cores",
        "memory": f"{_memory_bytes() / 2**30:.0f} GiB",
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        **{name: _version(name) for name in PACKAGES},
    }


def _cpu() -> str:
    """By its name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"
