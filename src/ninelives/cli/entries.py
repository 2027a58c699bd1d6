"""
What waits for a person, as one list: threads that ask something, and threads that have come to a stop.

Each entry says what is asked or what went wrong, what would run, what has happened outside, and what it has cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ninelives import _langgraph
from ninelives.cli import render
from ninelives.cli.records import interrupt_record, money_in_words, run_record, state_of, usage_in_words
from ninelives.cli.stores import Looking
from ninelives.config import Price
from ninelives.deadlines import sweep
from ninelives.errors import UnknownTypeError
from ninelives.model import Effect, EffectState, Interrupt, Run, RunStatus, Scope, Unreadable, Usage
from ninelives.runner import EFFECT_UNKNOWN

RUNS_MAX = 10_000
STOPPED = [status for status in RunStatus if status not in (RunStatus.DONE, RunStatus.CANCELLED, RunStatus.ABANDONED)]
OPEN = (EffectState.INTENT, EffectState.UNKNOWN)


@dataclass(frozen=True)
class Entry:
    """
    One thread that waits for a person.

    Attributes:
        run: its newest.
        questions: that it waits with.
        next_up: nodes that would run; those that were in the middle of something run again.
        happened: outside acts of its chain of runs that are done.
        unknown: outside acts of the thread of which nobody knows.
        cost: of the whole chain.
    """

    run: Run
    state: str
    questions: Sequence[Interrupt] = ()
    next_up: Sequence[str] = ()
    happened: Sequence[str] = ()
    unknown: Sequence[Effect] = ()
    cost: Usage = field(default_factory=Usage)


def entries_in(look: Looking, scope: Scope) -> list[Entry]:
    """
    All of them, the longest unchanged first.

    What is due by its deadline is done before, so that nobody is shown a question whose time is over.
    """
    sweep(look.store, scope)
    found = [entry for thread in _threads(look, scope) if (entry := _entry(look, scope, thread)) is not None]
    return sorted(found, key=lambda entry: entry.run.updated_at)


def _threads(look: Looking, scope: Scope) -> set[str]:
    """Those that may have something: with a run that has not come to its end, or an act whose outcome is open."""
    store = look.store
    runs = [store.perform(store.list_runs(scope, status=status, limit=RUNS_MAX)) for status in STOPPED]
    acts = [store.perform(store.list_effects(scope, state=state)) for state in OPEN]
    return {run.thread_id for each in runs for run in each} | {act.thread_id for each in acts for act in each}


def _entry(look: Looking, scope: Scope, thread_id: str) -> Entry | None:
    store = look.store
    newest = store.perform(store.find_newest_run(scope, thread_id))
    run = newest and look.seen(newest)
    acts = store.perform(store.list_effects(scope, thread_id=thread_id))
    unknown = [act for act in acts if act.state in OPEN]
    if run is None or run.held or not (run.unfinished or run.status is RunStatus.EXPIRED or unknown):
        return None
    runs = store.perform(store.list_runs(scope, thread_id=thread_id, limit=RUNS_MAX))
    chain = {one.run_id for one in runs if one.chain == run.chain}
    questions = _questions(look, scope, thread_id)
    closed = not run.unfinished and run.status is not RunStatus.EXPIRED
    return Entry(
        run=run,
        state="outcome unknown" if closed else state_of(run, questions),
        questions=questions,
        next_up=_next_up(look, scope, thread_id) if run.unfinished and not questions else (),
        happened=[act.name for act in acts if act.state is EffectState.DONE and act.run_id in chain],
        unknown=unknown,
        cost=store.perform(store.chain_usage(scope, run.chain)),
    )


def _questions(look: Looking, scope: Scope, thread_id: str) -> Sequence[Interrupt]:
    try:
        return look.store.perform(look.store.list_interrupts(scope, thread_id))
    except UnknownTypeError:
        return ()


def _next_up(look: Looking, scope: Scope, thread_id: str) -> Sequence[str]:
    with suppress(UnknownTypeError):  # what is in the state is not for this process
        head = look.store.perform(look.store.get_checkpoint(scope, thread_id, "", None))
        return _langgraph.nodes_due(head.checkpoint) if head else ()
    return ()


# -- shown -----------------------------------------------------------------------------------------------------------


def rows_of(entry: Entry, prices: Mapping[str, Price]) -> list[dict[str, str]]:
    """A row for each question; one where there is none."""
    base = {"THREAD": entry.run.thread_id, "GRAPH": entry.run.graph, "STATE": entry.state}
    done = {"DONE": render.short(render.counted(entry.happened), 24), "COST": _cost(entry.cost, prices)}
    if not entry.questions:
        since = render.moment(entry.run.updated_at)
        return [{"ID": "", **base, "WHAT": render.short(_stopped(entry), 70), "SINCE": since, "UNTIL": "", **done}]
    return [
        {
            "ID": question.interrupt_id[:12],
            **base,
            "WHAT": render.short(_asks(question), 70),
            "SINCE": render.moment(question.asked_at),
            "UNTIL": render.moment(question.deadline_at) if question.deadline_at is not None else "",
            **done,
        }
        for question in entry.questions
    ]


def put_entry(entry: Entry, prices: Mapping[str, Price]) -> None:
    """All of one entry, a fact a line."""
    render.put_facts(
        {
            "thread": entry.run.thread_id,
            "graph": entry.run.graph,
            "run": entry.run.run_id,
            "state": entry.state,
            "cause": _cause(entry.run),
            "since": render.moment(entry.run.updated_at),
            "will run": render.counted(entry.next_up),
            "happened": render.counted(entry.happened),
            "unknown": ", ".join(f"{act.name} ({act.key})" for act in entry.unknown),
            "cost": usage_in_words(entry.cost, prices),
        }
    )
    for question in entry.questions:
        render.put("")
        _put_question(question)


def _put_question(question: Interrupt) -> None:
    until = ""
    if question.deadline_at is not None and question.at_deadline is not None:
        until = f"{render.moment(question.deadline_at)}, then {question.at_deadline.kind}"
    render.put_facts(
        {
            "asks": question.interrupt_id,
            "since": render.moment(question.asked_at),
            "until": until,
            "of": question.for_whom,
            "what": "" if question.actions else _shown(question, 2000),
        }
    )
    for action in question.actions:
        args = json.dumps(render.plain(action.args), ensure_ascii=False)  # whole: it is what will run
        render.put(f"  call {action.tool_call_id}: {action.name} {args}   [{', '.join(action.allowed)}]")


def entry_record(entry: Entry) -> dict[str, Any]:
    return {
        "run": run_record(entry.run),
        "state": entry.state,
        "questions": [_question_record(question) for question in entry.questions],
        "will_run": entry.next_up,
        "happened": entry.happened,
        "unknown": [{"key": act.key, "name": act.name} for act in entry.unknown],
        "usage": entry.cost,
    }


def _question_record(question: Interrupt) -> dict[str, Any]:
    return {
        **interrupt_record(question),
        "kind": question.kind,
        "actions": [
            {
                "tool_call_id": action.tool_call_id,
                "name": action.name,
                "args": action.args,
                "allowed": action.allowed,
                "description": action.description,
            }
            for action in question.actions
        ],
        "schema": question.schema,
        "digest": question.digest,
        "deadline_at": render.moment(question.deadline_at) if question.deadline_at is not None else None,
        "at_deadline": question.at_deadline,
        "for_whom": question.for_whom or None,
    }


def _asks(question: Interrupt) -> str:
    if question.actions:
        return "; ".join(f"{action.name}({render.arguments(action.args)})" for action in question.actions)
    return _shown(question, 400)


def _shown(question: Interrupt, chars_max: int) -> str:
    if isinstance(question.payload, Unreadable):
        return "(cannot be read without the graph's own types)"
    return render.short(render.plain(question.payload), chars_max)


def _stopped(entry: Entry) -> str:
    """Why a thread has come to a stop, and what would run."""
    unknown, again = render.counted(act.name for act in entry.unknown), render.counted(entry.next_up)
    parts = [_cause(entry.run), f"did it happen: {unknown}" if unknown else "", f"next: {again}" if again else ""]
    return "; ".join(part for part in parts if part)


def _cause(run: Run) -> str:
    return "" if run.cause in (None, EFFECT_UNKNOWN) else str(run.cause)


def _cost(usage: Usage, prices: Mapping[str, Price]) -> str:
    tokens = usage.tokens_in + usage.tokens_out
    words = render.count(tokens, "token") if tokens else render.count(usage.steps, "step")
    return money_in_words(usage, prices) or words
