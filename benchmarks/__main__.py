"""
Measure ninelives beside `langgraph-checkpoint-sqlite`, and say which goals are met.

The table goes to standard output, progress to standard error. A missed goal is said; it is not a failure.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.corpus import load_corpus
from benchmarks.goals import LONG, SHORT, goals
from benchmarks.judging import Goal, judge
from benchmarks.machine import machine
from benchmarks.plan import ROUNDS, MeasuringFailedError, carry_out, planned
from benchmarks.record import About, Kind, keep, record
from benchmarks.report import write_page
from benchmarks.tables import HEADINGS, aligned, cells


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    known = goals(LONG if options.full else SHORT)
    if strange := {*options.only} - {goal.name for goal in known}:
        _tell(f"no such goal: {', '.join(sorted(strange))}; there are {', '.join(goal.name for goal in known)}")
        return 2
    wanted = [goal for goal in known if not options.only or goal.name in options.only]
    try:
        _measure(wanted, options)
    except MeasuringFailedError as error:
        _tell(str(error))
        return 1
    return 0


def _measure(wanted: Sequence[Goal], options: argparse.Namespace) -> None:
    corpus, where, at, start = load_corpus(), machine(), datetime.now(UTC), time.monotonic()
    plan = planned((figure for goal in wanted for figure in goal.figures), options.repeats)
    with tempfile.TemporaryDirectory(prefix="ninelives-bench-", dir=options.folder) as folder:
        results = carry_out(plan, Path(folder), options.seed, _tell)
    took_s = time.monotonic() - start
    rows = [judge(goal, results) for goal in wanted]
    print(aligned([[*HEADINGS], *(cells(asdict(row)) for row in rows)]))
    _tell(f"{sum(row.met for row in rows)} of {len(rows)} goals are met; it took {took_s:.0f} s")
    if options.only:
        _tell("the kept results and the page are as before: they tell of all goals or none")
        return
    kind: Kind = "bench-full" if options.full else "bench"
    about = About(kind, options.seed, at.isoformat(timespec="seconds"), where, round(took_s))
    keep(record(about, corpus, rows, results))
    write_page()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help=f"chats of {LONG} turns, too")
    parser.add_argument("--only", action="append", default=[], metavar="GOAL", help="measure for this one; repeatable")
    parser.add_argument("--repeats", type=int, default=ROUNDS, metavar="N", help=f"of what is short; default: {ROUNDS}")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where the databases are kept meanwhile; default: the system's")
    return parser


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
