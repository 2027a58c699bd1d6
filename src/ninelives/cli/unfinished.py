"""What is unfinished on a thread, said to a person or a script, and the choice that follows."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Any, Literal

from ninelives.cli import render
from ninelives.cli.records import interrupt_record, run_record, state_of, usage_in_words
from ninelives.config import Price
from ninelives.model import Interrupt, Unfinished
from ninelives.protect.admission import Protection

Choice = Literal["continue", "start_over", "abandon"]
FLAGS: dict[Choice, str] = {"continue": "--continue", "start_over": "--start-over", "abandon": "--abandon"}


def settling(p: Protection, key: str, *outcome: str) -> str:
    """The command that settles an effect, to be copied."""
    owner = ("--owner", p.owner) if p.owner else ()
    return shlex.join(("ninelives", "effects", "settle", key, *outcome, *owner, "--store", p.store.url))


def in_words(unfinished: Unfinished, prices: Mapping[str, Price]) -> list[str]:
    """What a person should know before choosing, a fact a line."""
    run = unfinished.run
    why = run.cause or ("its process died" if run.cut_off and not run.ready else "")
    state = f"{state_of(run, unfinished.questions)} ({why})" if why else state_of(run, unfinished.questions)
    facts = {
        "is": f"{state}, since {render.moment(run.updated_at)}",
        "cost so far": usage_in_words(unfinished.usage, prices),
        "would run again": render.counted(unfinished.would_run_again),
        "acts unknown": render.counted(unfinished.unknown_effects),
    }
    lines = [f"thread {run.thread_id} has an unfinished run {run.run_id}:"]
    lines += [f"  {name + ':':<17}{value}" for name, value in facts.items() if value]
    return lines + [f"  {'asks:':<17}{q.interrupt_id}: {payload(q)}" for q in unfinished.questions]


def payload(question: Interrupt) -> str:
    return render.short(render.plain(question.payload), 400)


def unfinished_record(unfinished: Unfinished) -> dict[str, Any]:
    return {
        "kind": "unfinished",
        "run": run_record(unfinished.run),
        "usage": unfinished.usage,
        "would_run_again": unfinished.would_run_again,
        "unknown_effects": unfinished.unknown_effects,
        "questions": [interrupt_record(question) for question in unfinished.questions],
    }


def asked_for(unfinished: Unfinished) -> tuple[Choice | None, tuple[str, ...]]:
    """What the person at the terminal wants; without one: nothing."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None, ()
    if len(unfinished.questions) == 1:
        said = _line("answer (JSON or text), /start-over, /abandon, or Enter to leave it: ")
        return (None, (said,)) if said and not said.startswith("/") else (_choice(said.removeprefix("/")), ())
    return _choice(_line("[c]ontinue, [s]tart over, [a]bandon, or Enter to leave it: ")), ()


def _line(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def _choice(said: str) -> Choice | None:
    return next((choice for choice in FLAGS if said and choice.startswith(said.lower().replace("-", "_"))), None)
