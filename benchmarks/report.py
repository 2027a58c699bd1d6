"""
Write `docs/benchmarks.md` from the kept results: `python -m benchmarks.report`.

What a person has to say about a goal is in `notes.toml`, by the goal's name, and stays when the page is written anew.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.record import Record, kept
from benchmarks.tables import HEADINGS, cells, in_words

NOTES = Path(__file__).parent / "notes.toml"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"

TITLES = {"bench": "Chats of 200 turns", "bench-full": "Chats of 1,000 turns"}

BEGIN = """\
# Benchmarks

ninelives beside the saver that everybody has, `langgraph-checkpoint-sqlite` ("stock"), in the same run on the same
disk. `make bench` measures chats of 200 turns, in a few minutes; `make bench-full` those of 1,000, too.

This page is written by `python -m benchmarks.report`, out of `benchmarks/results/` and `benchmarks/notes.toml`. Change
those.

## How it is measured

- **The same work, as users do it.** Ours is `ninelives.protect(graph, "sqlite:///…")`: lease, fence, run and event rows
  are in its figures. Stock is a graph compiled with `SqliteSaver`; with `AsyncSqliteSaver` for many threads at once.
- **The same safety.** Both sides sync every commit (`synchronous=FULL`, `durability="sync"`).
- **In turns.** Each measurement is a process of its own, and nothing runs beside it. Those that are compared take turns
  (no saver, stock, ours, no saver, …). Figures are medians of the rounds; a ratio is the median of the rounds' ratios.
- **Over no saver.** "No saver" is a checkpointer that keeps references and serialises nothing: LangGraph's own time,
  which is subtracted. A superstep is whatever ends in a checkpoint; a turn of the chat has five. "Around a turn" is the
  median of the tenth of the chat before it, but of twenty turns at least.
- **Bytes** are those of all files of the store, indexes included, after `wal_checkpoint(TRUNCATE)`. The whole history
  is kept. 1 MB is a million bytes. "Per step" is by how much the store grows, free pages left out.
- **The chat.** A question, a tool call, what the tool read (2 to 7.5 kB of code, each fortieth 50 kB), an answer, with
  the ids and counts that come with them. Code is Python's standard library; prose is its help topics and the docstrings
  of a few libraries. Nothing of it is from this repository, on whose text our compression is trained, and no passage
  comes twice. "New text" is one copy of every message as LangGraph's serialiser writes it.
- **What cannot be made smaller.** The same chat, with each text replaced by as many random bytes. Bytes stored are
  compared with the new text; beside it, with what `zstd -19` makes of one copy of all messages in one piece.
- **Growth** is the slope of log bytes over log new text, fitted to all turns at which the chat was weighed (50, 100,
  200, 500, 1,000), less the bytes of an empty store.
- **A new process per turn.** Importing is left out, opening the store is counted. The process without a saver is handed
  the state.
- **Reading** is done by a new process; the system's file cache is warm. Of 1,000 turns in plain form, stock is given a
  database that holds the last state alone, since all of them would take 25 GB.
- **Nothing is extrapolated.** What was not run says so.
"""


def page(runs: Iterable[Record], notes: Mapping[str, str]) -> str:
    parts = [BEGIN, *map(_run, runs := [*runs]), _missed(runs, notes)]
    return "\n".join(part for part in parts if part)


def write_page() -> None:
    PAGE.write_text(page(kept(), read_notes()), "utf-8")


def read_notes() -> dict[str, str]:
    return tomllib.loads(NOTES.read_text("utf-8"))


def _run(run: Record) -> str:
    rows = [[*HEADINGS], ["---"] * len(HEADINGS), *(_named(cells(row)) for row in run["rows"])]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    met = sum(row["met"] for row in run["rows"])
    return "\n".join(
        [
            f"## {TITLES[run['kind']]}\n",
            f"`make {run['kind']}`, {run['at'][:10]}, {run['took_s'] / 60:.0f} minutes, seed {run['seed']}."
            f" {met} of {len(run['rows'])} goals are met.\n",
            f"{table}\n",
            f"{_beside(run)}\n",
            f"{_where(run)}\n",
        ]
    )


def _named(row: list[str]) -> list[str]:
    return [f"`{row[0]}`", *row[1:]]


def _beside(run: Record) -> str:
    """What helps to read the figures, and how often each was measured."""
    lines = []
    for row in run["rows"]:
        told = [f"{name} {in_words(value, row['unit'])}" for name, value in row["beside"].items()]
        lines += [f"- `{row['name']}`: {', '.join(told)}."] if told else []
    rounds = sorted({row["rounds"] for row in run["rows"]})
    often = ", ".join(f"{number}: {_names(run, number)}" for number in rounds)
    return "\n".join(["Beside these:\n", *lines, f"- Rounds. {often}."])


def _names(run: Record, rounds: int) -> str:
    return " ".join(f"`{row['name']}`" for row in run["rows"] if row["rounds"] == rounds)


def _where(run: Record) -> str:
    where, disk = run["machine"], run["disk"]
    told = ("system", "cpu", "memory", "load")
    packages = [f"{name} {version}" for name, version in where.items() if name not in told]
    text = run["corpus"]
    new = [f"{int(turns):,} turns {in_words(size, 'bytes')}" for turns, size in run["new_bytes"].items()]
    return "\n".join(
        [
            f"Machine: {where['cpu']}, {where['memory']}, {where['system']}; load {where['load']} when it began."
            f" Its disk takes {in_words(disk['sync_s'], 's')} to append and sync 3 kB,"
            f" {in_words(disk['commit_s'], 's')} for a commit of SQLite that inserts as much.\n",
            f"Versions: {', '.join(packages)}.\n",
            f"Corpus `{text['digest']}`: {in_words(text['prose_chars'], 'bytes')} of prose,"
            f" {in_words(text['code_chars'], 'bytes')} of code. New text: {', '.join(new)}.",
        ]
    )


def _missed(runs: list[Record], notes: Mapping[str, str]) -> str:
    """Every missed goal, with what is known about it; and notes on others, if somebody wrote them."""
    rows = {row["name"]: row for run in runs for row in run["rows"]}
    missed = {row["name"] for run in runs for row in run["rows"] if not row["met"]}
    told = [name for name in rows if name in missed or name in notes]
    if not told:
        return ""
    lines = [
        f"- **{rows[name]['text']}** (`{name}`): {notes.get(name, 'not looked into yet.').strip()}" for name in told
    ]
    return "\n".join(["## What is missed, and why\n", *lines, ""])


def main() -> int:
    write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
