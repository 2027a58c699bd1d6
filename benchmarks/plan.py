"""
What is measured in which order, and the measuring itself: one process at a time, nothing beside it.

Measurements that differ in the saver alone take turns (no saver, stock, ours, no saver, …): what the machine does
meanwhile befalls all of them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.spec import OF_A_CHAT, ON_A_KEPT_DATABASE, SAVERS, STOCK_TURNS_MAX, WORKLOADS, Measured, Spec, Workload

ROOT = Path(__file__).resolve().parents[1]
HANGS_S = 900

ROUNDS = 3
ONCE: set[Workload] = {"head", "history"}
"""Stock takes so long, or so much memory, that once must do."""


class MeasuringFailedError(Exception):
    def __init__(self, spec: Spec, stderr: str) -> None:
        self.spec, self.stderr = spec, stderr
        super().__init__(f"{spec.key} could not be measured:\n{stderr.strip()}")


@dataclass(frozen=True)
class Round:
    """One measurement to make; `number` counts from 0 for each spec."""

    spec: Spec
    number: int


def planned(figures: Iterable[Figure], rounds: int = ROUNDS) -> list[Round]:
    """All that the figures need, and the databases that it begins with, in the order in which it is measured."""
    wanted = [*figures]
    specs = {spec for figure in wanted for spec in figure.needs}
    timed = {spec for figure in wanted if figure.timed for spec in figure.needs}
    ordered = sorted(specs | {spec.base for spec in specs if spec.base}, key=_order)
    plan: list[Round] = []
    for _, group in groupby(ordered, key=lambda spec: spec.kind):
        alike = [*group]
        number_max = _rounds(alike[0], rounds) if timed & {*alike} else 1
        plan += [Round(spec, number) for number in range(number_max) for spec in alike]
    return plan


def _order(spec: Spec) -> tuple[object, ...]:
    """Chats first, what begins with their databases later; and `turn`, which makes them longer, after what reads."""
    reads = ("head", "chat", "load", "history", "turn")
    place = reads.index(spec.workload) if spec.workload in reads else len(reads)
    kind = WORKLOADS.index(spec.workload), spec.turns, spec.delta, spec.text
    return place, *kind, SAVERS.index(spec.saver)


def _rounds(spec: Spec, rounds: int) -> int:
    """What is short is measured more often; nobody waits three times for a long chat."""
    if spec.workload in ONCE or (spec.workload == "chat" and spec.turns > STOCK_TURNS_MAX):
        return 1
    return 2 * rounds + 1 if spec.workload in ON_A_KEPT_DATABASE else rounds


def carry_out(plan: list[Round], folder: Path, seed: int, tell: Callable[[str], None]) -> dict[Spec, list[Measured]]:
    """
    Make the measurements, each in a process of its own.

    Raises:
        MeasuringFailedError: one could not be made; the rest was not tried.
    """
    results: dict[Spec, list[Measured]] = {}
    kept = {round.spec.base for round in plan}
    for place, round in enumerate(plan, 1):
        start = time.monotonic()
        results.setdefault(round.spec, []).append(_measured(round, folder, seed, keep=round.spec in kept))
        tell(f"[{place}/{len(plan)}] {round.spec.key}: {time.monotonic() - start:.1f} s")
    return results


def _measured(round: Round, folder: Path, seed: int, *, keep: bool) -> Measured:
    database = round.spec.base or (round.spec if keep else None)
    place = folder / database.key.replace(" ", "-") if database else None
    if place and database == round.spec:
        shutil.rmtree(place, ignore_errors=True)  # of an earlier round
    options = ["--folder", str(place)] if place else []
    command = [sys.executable, "-m", "benchmarks.measure", *_arguments(round.spec), *options]
    command += ["--round", str(round.number), "--seed", str(seed)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_S)
    except subprocess.TimeoutExpired as error:
        raise MeasuringFailedError(round.spec, f"it had not ended after {HANGS_S} s") from error
    if done.returncode:
        raise MeasuringFailedError(round.spec, done.stderr)
    figures: Measured = json.loads(done.stdout.splitlines()[-1])
    return {name: figure for name, figure in figures.items() if name != "measured"}


def _arguments(spec: Spec) -> list[str]:
    turns = ["--turns", str(spec.turns)] if spec.workload in OF_A_CHAT else []
    return [spec.workload, "--saver", spec.saver, *turns, "--delta", str(spec.delta), "--text", spec.text]
