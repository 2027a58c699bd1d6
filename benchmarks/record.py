"""A run of the benchmarks as it is kept: one file of JSON per kind, overwritten by the next run of that kind."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from benchmarks.corpus import Corpus
from benchmarks.judging import Row
from benchmarks.spec import Measured, Spec

Kind: TypeAlias = Literal["bench", "bench-full"]
Record: TypeAlias = dict[str, Any]

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class About:
    """
    Attributes:
        at: when it began, as an ISO date.
        machine: as it was then.
    """

    kind: Kind
    seed: int
    at: str
    machine: Mapping[str, str]
    took_s: float


def record(about: About, corpus: Corpus, rows: Iterable[Row], results: Mapping[Spec, list[Measured]]) -> Record:
    """All that the page tells, and every single measurement, so that a figure can be traced to what it is made of."""
    weighed = [figures["new_bytes"] for spec, rounds in results.items() if _is_plain_chat(spec) for figures in rounds]
    disk = next((rounds for spec, rounds in results.items() if spec.workload == "disk"), [])
    return {
        **asdict(about),
        "disk": {name: statistics.median(figures[name] for figures in disk) for name in ("sync_s", "commit_s") if disk},
        "corpus": {"digest": corpus.digest, "prose_chars": len(corpus.prose), "code_chars": len(corpus.code)},
        "new_bytes": max(weighed, key=len, default={}),
        "rows": [asdict(row) for row in rows],
        "measured": {spec.key: _rounded(rounds) for spec, rounds in results.items()},
    }


def keep(run: Record, folder: Path = RESULTS) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{run['kind']}.json"
    path.write_text(json.dumps(run, indent=1) + "\n", "utf-8")
    return path


def kept(folder: Path = RESULTS) -> list[Record]:
    """The runs that are there, the shorter kind first."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]


def _is_plain_chat(spec: Spec) -> bool:
    return spec.workload == "chat" and spec.text == "corpus"


def _rounded(figures: Any) -> Any:
    """Five digits say all that can be repeated."""
    if isinstance(figures, float):
        return float(f"{figures:.5g}")
    if isinstance(figures, dict):
        return {name: _rounded(value) for name, value in figures.items()}
    return [_rounded(value) for value in figures] if isinstance(figures, list) else figures
