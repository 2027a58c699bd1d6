"""The kill harness, run in a process of its own: it forks, so it must hold none of the things that a test run holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ninelives

SEED = os.environ.get("NINELIVES_CRASH_SEED", "1")
SHARE = os.environ.get("NINELIVES_CRASH_SHARE")
"""Of the points within an act, how many are tried everywhere; without it each test says."""

TESTS = Path(__file__).parents[1]
PATHS = [TESTS, TESTS.parent / "examples" / "shop", Path(ninelives.__file__).parents[1]]


@dataclass(frozen=True)
class Found:
    """What the harness found; `told` is what it says to people, with the command that brings each failure back."""

    report: dict[str, Any]
    told: str

    @property
    def counts(self) -> dict[str, int]:
        counts: dict[str, int] = self.report["counts"]
        return counts

    @property
    def tried(self) -> int:
        return len(self.report["verdicts"])

    @property
    def missed(self) -> list[list[str]]:
        return [verdict["points"] for verdict in self.report["verdicts"] if verdict["missed"]]

    @property
    def breaches(self) -> Counter[str]:
        """How many cases each checker objected to."""
        return Counter(
            checker
            for verdict in self.report["verdicts"]
            for checker in {breach.partition(":")[0] for breach in verdict["breaches"]}
        )

    @property
    def control(self) -> Found:
        """What became of the subject that it was compared with."""
        return Found(self.report["control"], "")

    @property
    def late_tools_max(self) -> int:
        """The most tool calls that one superseded process began after it had gone on."""
        counts: list[int] = [verdict["counts"]["late_tools"] for verdict in self.report["verdicts"]]
        return max(counts)

    @property
    def line(self) -> str:
        return self._line() if self.report["control"] is None else f"{self._line()} | {self.control._line()}"

    def _line(self) -> str:
        search, seconds = self.report["search"], self.report["seconds"]
        kept = OF_TWO if search["mode"] in ("beside", "races", "abreast") else self.counts.keys()
        counts = ", ".join(f"{name} {self.counts[name]}" for name in kept if self.counts[name] or name in ALWAYS_SHOWN)
        return (
            f"{self.report['workload']} under {self.report['subject']}, {search['mode']}: {self.tried} cases of"
            f" {self.report['known']} points x {seconds / max(1, self.tried):.2f} s = {seconds:.0f} s,"
            f" seed {search['seed']}: {counts}"
        )


OF_TWO = ("busy", "unknown")
"""What says something where two processes make requests of their own."""
ALWAYS_SHOWN = ("returned_again", "recorded_again", "back", "doubled", "ran_again")


def run_chaos(workload: str, *options: str, subject: str = "ninelives.chaos.subjects:NINELIVES") -> Found:
    """
    Let the harness loose.

    Args:
        workload: its name in `graphs`, or `module:name`.
        options: of `python -m ninelives.chaos`.
    """
    place = workload if ":" in workload else f"crash.graphs:{workload}"
    command = [sys.executable, "-m", "ninelives.chaos", place]
    paths = os.pathsep.join([*map(str, PATHS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "LANGSMITH_TRACING": "false"}
    command += ["--subject", subject, "--seed", SEED, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise AssertionError(f"the harness itself failed:\n{done.stderr}")
    return Found(json.loads(done.stdout), done.stderr)


def share(usual: float) -> str:
    return SHARE or str(usual)
