"""
`python -m ninelives.chaos MODULE:WORKLOAD`: kill it at every point, and see whether it comes back.

Data goes to standard output, as JSON; talk to standard error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ninelives.chaos.explore import Report, Search, Trial, explore
from ninelives.chaos.processes import must_be_bare


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    workload, subject = named(options.workload), named(options.subject)
    folder = Path(tempfile.mkdtemp(prefix="ninelives-chaos-", dir=options.folder or _memory()))
    must_be_bare()
    report = explore(Trial(workload, subject, folder), Search(options.share, options.pairs, options.seed, options.jobs))
    json.dump(_as_data(report), sys.stdout, default=str)
    return 1 if report.failed else 0


def named(place: str) -> Any:
    """The object at `module:attribute`."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ninelives.chaos", description=__doc__)
    parser.add_argument("workload", metavar="MODULE:WORKLOAD")
    parser.add_argument("--subject", default="ninelives.chaos.subjects:NINELIVES", metavar="MODULE:SUBJECT")
    parser.add_argument("--share", type=float, default=1.0, help="of the points within an act, how many are tried")
    parser.add_argument("--pairs", type=int, default=0, help="try this many pairs of kills, not single ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--folder", help="where the cases are kept; a file system in memory by default, if there is one")
    return parser


def _memory() -> str | None:
    """A kill loses nothing that a page cache holds, so a file system in memory tests the same, faster."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _as_data(report: Report) -> dict[str, Any]:
    return {**asdict(report), "counts": asdict(report.counts)}


if __name__ == "__main__":
    sys.exit(main())
