"""
The work that is measured: functions that drive one subject in one folder and give its figures.

What is not the subject's doing (making the text, importing) is outside of what is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.spec import Measured, Spec, Workload
from benchmarks.workloads.chats import chat, head, history, load, turn
from benchmarks.workloads.crowds import fanout, threads
from benchmarks.workloads.disk import disk
from benchmarks.workloads.payloads import constant, files


def measure(spec: Spec, folder: Path, seed: int = 7, round: int = 0) -> Measured:
    """
    Make one measurement, in this process.

    Args:
        folder: an empty one, or that of the database which the measurement begins with.
        round: how often it was made with this database before; a turn that has been taken is not taken again.
    """
    return WORKLOADS[spec.workload](spec, folder, seed, round)


WORKLOADS: dict[Workload, Callable[[Spec, Path, int, int], Measured]] = {
    "chat": chat,
    "head": head,
    "turn": turn,
    "load": load,
    "history": history,
    "threads": threads,
    "fanout": fanout,
    "files": files,
    "constant": constant,
    "disk": disk,
}
