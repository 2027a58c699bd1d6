"""`ninelives runs`: what was asked of agents, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter

from ninelives.cli import options, render
from ninelives.cli.exits import Exit, UsageError
from ninelives.cli.records import event_record, run_record, state_of, usage_in_words
from ninelives.cli.stores import Looking, looking, must_be_there
from ninelives.config import Settings
from ninelives.errors import UnknownTypeError
from ninelives.model import Event, Interrupt, Run, RunStatus, Scope, Usage

app = App(name="runs", help="Runs: one request each to advance a thread.")

RunId = Annotated[str, Parameter(help="The run's id, as `ninelives runs list` shows it.")]


@app.command(name="list")
def list_runs(
    *,
    thread: Annotated[str | None, Parameter(help="Only of this thread.", show_default=False)] = None,
    status: Annotated[str | None, Parameter(help="Only with this status.", show_default=False)] = None,
    limit: Annotated[int, Parameter(help="So many at most, the newest.")] = 50,
    at: options.Common = options.DEFAULT,
) -> int:
    """List runs, the newest first."""
    wanted = _status(status)
    with looking(at.store) as look:
        runs = [] if look is None else _runs(look, at.scope, thread, wanted, limit)
        states = [] if look is None else [_state(look, at.scope, run) for run in runs]
    if at.as_json:
        render.put_json([run_record(run) for run in runs], indent=2)
    elif runs:
        render.put_table([_row(run, state) for run, state in zip(runs, states, strict=True)])
    else:
        render.say("no runs")
    return Exit.DONE


@app.command
def show(
    run_id: RunId,
    /,
    *,
    at: options.Common = options.DEFAULT,
) -> int:
    """Show one run: how it stands, who has it, what it cost, what happened."""
    with looking(at.store) as maybe:
        look, scope = must_be_there(maybe, run_id), at.scope
        run = look.seen(look.store.perform(look.store.get_run(scope, run_id)))
        usage = look.store.perform(look.store.chain_usage(scope, run.chain))
        events = [event for event in _events(look, scope, run.thread_id) if event.run_id == run_id]
        state = _state(look, scope, run)
        holder = _holder(look, run)
    if at.as_json:
        more = {"held_by": holder, "chain_usage": usage, "events": [event_record(event) for event in events]}
        render.put_json({**run_record(run), **more}, indent=2)
    else:
        _put(run, state, usage, holder, events)
    return Exit.DONE


def _put(run: Run, state: str, usage: Usage, holder: dict[str, Any] | None, events: Sequence[Event]) -> None:
    prices = Settings.load().prices
    render.put_facts(
        {
            "run": run.run_id,
            "thread": run.thread_id,
            "graph": run.graph,
            "state": state,
            "held by": f"process {holder['pid']} on {holder['host']}" if holder else "",
            "cause": run.cause or "",
            "attempts": str(run.attempt),
            "cost": usage_in_words(run.usage, prices),
            "chain cost": usage_in_words(usage, prices) if usage != run.usage else "",
            "continues": run.continues or "",
            "replaces": run.replaces or "",
            "key": run.key or "",
            "began": render.moment(run.created_at),
            "last change": render.moment(run.updated_at),
        }
    )
    if events:
        render.put("")
        render.put_table([_event_row(event) for event in events])


def _event_row(event: Event) -> dict[str, str]:
    attempt = "" if event.attempt is None else str(event.attempt)
    return {
        "EVENT": str(event.seq),
        "AT": render.moment(event.at),
        "WHAT": event.kind,
        "ATTEMPT": attempt,
        "REF": event.ref or "",
    }


def _row(run: Run, state: str) -> dict[str, str]:
    return {
        "RUN": run.run_id,
        "THREAD": run.thread_id,
        "GRAPH": run.graph,
        "STATE": state,
        "STEPS": str(run.usage.steps),
        "ATTEMPTS": str(run.attempt),
        "LAST CHANGE": render.moment(run.updated_at),
    }


def _runs(look: Looking, scope: Scope, thread: str | None, status: RunStatus | None, limit: int) -> list[Run]:
    act = look.store.list_runs(scope, thread_id=thread, status=status, limit=limit)
    return [look.seen(run) for run in look.store.perform(act) if run.driver != "edit"]


def _status(name: str | None) -> RunStatus | None:
    try:
        return None if name is None else RunStatus(name)
    except ValueError:
        raise UsageError(f"--status {name}: no such status. There are: {', '.join(RunStatus)}.") from None


def _events(look: Looking, scope: Scope, thread_id: str) -> list[Event]:
    events: list[Event] = []
    while page := look.store.perform(
        look.store.list_events(scope, thread_id, after=events[-1].seq if events else 0, limit=1000)
    ):
        events += page
    return events


def _state(look: Looking, scope: Scope, run: Run) -> str:
    """How the run stands; what it asks, if it does, may be unreadable without the graph's own types."""
    if run.status is not RunStatus.INTERRUPTED:
        return state_of(run)
    newest = look.store.perform(look.store.find_newest_run(scope, run.thread_id))
    try:
        questions: list[Interrupt] | None = look.store.perform(look.store.list_interrupts(scope, run.thread_id))
    except UnknownTypeError:
        questions = None
    return state_of(run, questions, newest=newest is not None and newest.run_id == run.run_id)


def _holder(look: Looking, run: Run) -> dict[str, Any] | None:
    worker = look.workers.get(run.worker_id or "")
    return {"worker_id": worker.worker_id, "pid": worker.pid, "host": worker.host} if worker and run.held else None
