"""
Kill a workload at every point, and see whether it comes back.

Data goes to standard output, as JSON; talk to standard error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from ninelives.chaos.explore import Mode, Report, Search, compare, explore
from ninelives.chaos.processes import must_be_bare
from ninelives.chaos.subjects import Request
from ninelives.chaos.trial import Manners, Trial

SUBJECT = "ninelives.chaos.subjects:NINELIVES"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="ninelives-chaos-", dir=options.folder or _memory()))
    must_be_bare()
    report = _found(options, folder)
    if not report.failed or not options.keep:
        shutil.rmtree(folder)
    _tell(report, options)
    json.dump(_told(report), sys.stdout, default=str)
    return 1 if report.failed else 0


def _found(options: argparse.Namespace, folder: Path) -> Report:
    workload, search = named(options.workload), _search(options)
    trial = Trial(workload, named(options.subject), folder / "subject")
    with workload.around():
        if not options.against:
            return explore(trial, search)
        return compare(trial, Trial(workload, named(options.against), folder / "control"), search)


def named(place: str) -> Any:
    """The object at `module:attribute`."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ninelives.chaos", description=__doc__)
    parser.add_argument("workload", metavar="MODULE:WORKLOAD")
    parser.add_argument("--subject", default=SUBJECT, metavar="MODULE:SUBJECT", help=f"default: {SUBJECT}")
    parser.add_argument("--mode", choices=get_args(Mode), default="kills")
    parser.add_argument("--share", type=float, default=1.0, help="of the points within an act, how many are tried")
    parser.add_argument("--every", action="append", default=[], metavar="ACT", help="of this act all points are tried")
    parser.add_argument("--sample", type=int, help="of the points, so many at most, drawn")
    parser.add_argument("--against", metavar="MODULE:SUBJECT", help="kill this one too, at the points both go through")
    parser.add_argument("--cases", type=int, default=1, help="how many cases, where they are drawn; how often --at")
    parser.add_argument("--at", action="append", default=[], metavar="POINT", help="here only; again for a second kill")
    parser.add_argument("--request", choices=get_args(Request), default="same", help="of a second process beside")
    parser.add_argument("--wait-s", type=float, default=0.0, help="how long a second process waits for the thread")
    parser.add_argument("--elsewhere", action="store_true", help="who answers has no graph, for talks, clicks, rivals")
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, default=True, help="folders of failed cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--folder", help="where the cases are kept; in memory by default, if the system can")
    return parser


def _search(options: argparse.Namespace) -> Search:
    return Search(
        mode=options.mode,
        at=tuple(options.at),
        share=options.share,
        every=tuple(options.every),
        sample=options.sample,
        cases=options.cases,
        manners=Manners(options.request, options.wait_s),
        elsewhere=options.elsewhere,
        seed=options.seed,
        jobs=options.jobs,
    )


def _told(report: Report) -> dict[str, Any]:
    control = _told(report.control) if report.control else None
    return {**asdict(report), "counts": asdict(report.counts), "control": control}


def _memory() -> str | None:
    """A kill loses nothing that a page cache holds, so a file system in memory tests the same, faster."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _tell(report: Report, options: argparse.Namespace) -> None:
    """What went wrong, and how to see it again."""
    mode = "kills" if options.mode in ("pairs", "heartbeats") else options.mode
    second = f" --request {options.request} --wait-s {options.wait_s}" * (mode in ("beside", "races"))
    second += " --elsewhere" * options.elsewhere
    again = f"python -m ninelives.chaos {options.workload} --subject {options.subject} --mode {mode}{second}"
    for verdict in report.failed:
        points = "".join(f" --at '{point}'" for point in verdict.points)
        print(*verdict.breaches, f"  seed {options.seed}, {verdict.folder}", sep="\n", file=sys.stderr)
        print(f"  again: {again}{points}", file=sys.stderr)
    tried, cost = len(report.verdicts), report.seconds / max(1, len(report.verdicts))
    print(f"{report.workload}: {tried} points x {cost:.2f} s = {report.seconds:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
