"""
Make one measurement, in this process, and print its figures as one line of JSON.

    python -m benchmarks.measure chat --saver ninelives --turns 200
    python -m benchmarks.measure chat --saver stock --turns 200 --delta 50 --folder /tmp/kept
    python -m benchmarks.measure turn --saver stock --turns 200 --delta 50 --folder /tmp/kept

What begins with a kept database (turn, load, history) wants the folder in which `chat` left it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.spec import OF_A_CHAT, SAVERS, TEXTS, WORKLOADS, Spec
from benchmarks.workloads import measure


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    spec = Spec(options.workload, options.saver, options.turns, options.delta, options.text)
    if spec.workload in OF_A_CHAT and not spec.turns:
        return _refuse(f"{spec.workload} is of a chat: give its --turns")
    if spec.base and not options.folder:
        return _refuse(f"{spec.workload} begins with a kept database: give its --folder")
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
        figures = measure(spec, options.folder, options.seed, options.round)
    else:
        with tempfile.TemporaryDirectory(prefix="ninelives-bench-") as folder:
            figures = measure(spec, Path(folder), options.seed, options.round)
    json.dump({"measured": spec.key, **figures}, sys.stdout)
    print()
    return 0


def _refuse(why: str) -> int:
    print(why, file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.measure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--saver", choices=SAVERS, default="ninelives")
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--delta", type=int, default=0, help="snapshot_frequency of a DeltaChannel; 0: plain reducer")
    parser.add_argument("--text", choices=TEXTS, default="corpus", help="random: bytes that nothing makes smaller")
    parser.add_argument("--folder", type=Path, help="where the database is or stays; default: a temporary folder")
    parser.add_argument("--round", type=int, default=0, help="how often this was done with the database before")
    parser.add_argument("--seed", type=int, default=7)
    return parser


if __name__ == "__main__":
    sys.exit(main())
