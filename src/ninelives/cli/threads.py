"""`ninelives threads`: what graphs remember of conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from cyclopts import App, Parameter
from langgraph.graph.message import add_messages
from langgraph.types import Send

from ninelives import _langgraph
from ninelives.cli import options, render
from ninelives.cli.exits import Exit
from ninelives.cli.records import effect_record, interrupt_record, run_record, state_of, usage_in_words
from ninelives.cli.stores import Looking, looking, must_be_there
from ninelives.errors import UnknownTypeError
from ninelives.model import Effect, Interrupt, Run, Scope, StoredCheckpoint, Thread, Unreadable

app = App(name="threads", help="Threads: what a graph remembers of one conversation.")

ThreadId = Annotated[str, Parameter(help="The thread's id.")]


@app.command(name="list")
def list_threads(
    *,
    limit: Annotated[int, Parameter(help="So many at most, the last changed.")] = 50,
    at: options.Common = options.DEFAULT,
) -> int:
    """List threads, the last changed first."""
    with looking(at.store) as look:
        found = [] if look is None else _threads(look, at.scope, limit)
    if at.as_json:
        render.put_json([_record(thread, run, questions) for thread, run, questions in found], indent=2)
    elif found:
        render.put_table([_row(thread, run, questions) for thread, run, questions in found])
    else:
        render.say("no threads")
    return Exit.DONE


@app.command
def show(
    thread: ThreadId,
    /,
    *,
    at: options.Common = options.DEFAULT,
) -> int:
    """Show one thread: its runs, what it asks, its outside acts, what is in its state."""
    with looking(at.store) as maybe:
        look, scope = must_be_there(maybe, thread), at.scope
        found = look.thread(scope, thread)
        runs = look.store.perform(look.store.list_runs(scope, thread_id=thread))
        runs = [look.seen(run) for run in runs if run.driver != "edit"]
        questions = _questions(look, scope, thread)
        effects = look.store.perform(look.store.list_effects(scope, thread_id=thread))
        head = _head(look, scope, thread)
    if at.as_json:
        record = {
            **_record(found, runs[0] if runs else None, questions),
            "created_at": render.moment(found.created_at),
            "runs": [run_record(run) for run in runs],
            "questions": None if questions is None else [interrupt_record(question) for question in questions],
            "effects": [effect_record(effect) for effect in effects],
            "head": head,
        }
        render.put_json(record, indent=2)
    else:
        _put(found, runs, questions, effects, head)
    return Exit.DONE


@app.command
def history(
    thread: ThreadId,
    /,
    *,
    limit: Annotated[int, Parameter(help="So many at most, the newest.")] = 100,
    at: options.Common = options.DEFAULT,
) -> int:
    """List the checkpoints of a thread, the newest first: which step, what ran, by which run, on which branch."""
    with looking(at.store) as maybe:
        look, scope = must_be_there(maybe, thread), at.scope
        look.thread(scope, thread)
        # One more than is shown: what ran is read from a checkpoint and the one before it.
        found = look.store.perform(look.store.list_checkpoints(scope, thread_id=thread, ns="", limit=limit + 1))
    rows = _history(found)[:limit]
    if at.as_json:
        render.put_json(rows, indent=2)
    elif rows:
        render.put_table([_history_row(row) for row in rows])
    else:
        render.say(f"thread {thread} has no checkpoints")
    return Exit.DONE


# -- looking ---------------------------------------------------------------------------------------------------


def _threads(look: Looking, scope: Scope, limit: int) -> list[tuple[Thread, Run | None, list[Interrupt] | None]]:
    threads = look.store.perform(look.store.list_threads(scope, limit=limit))
    return [(t, _newest(look, scope, t.thread_id), _questions(look, scope, t.thread_id)) for t in threads]


def _newest(look: Looking, scope: Scope, thread_id: str) -> Run | None:
    run = look.store.perform(look.store.find_newest_run(scope, thread_id))
    return run and look.seen(run)


def _questions(look: Looking, scope: Scope, thread_id: str) -> list[Interrupt] | None:
    """Pending ones; None where they can only be read with the graph's own types."""
    try:
        questions = look.store.perform(look.store.list_interrupts(scope, thread_id))
    except UnknownTypeError:
        return None
    return None if any(isinstance(question.payload, Unreadable) for question in questions) else questions


def _head(look: Looking, scope: Scope, thread_id: str) -> dict[str, Any] | None:
    """The newest checkpoint in short; what cannot be read without the graph's own types is said to be so."""
    try:
        head = look.store.perform(look.store.get_checkpoint(scope, thread_id, "", None))
        if head is None:
            return None
        keys = [name for name in head.checkpoint["channel_versions"] if _langgraph.is_state_key(name)]
        return {
            "checkpoint_id": head.checkpoint_id,
            "step": head.metadata.get("step"),
            "keys": keys,
            "messages": _messages(look, scope, head) if "messages" in keys else None,
        }
    except UnknownTypeError as error:
        return {"unreadable": str(error)}


def _messages(look: Looking, scope: Scope, head: StoredCheckpoint) -> int:
    """How many messages the head holds; of a channel that stores what was added, by adding it up."""
    values = head.checkpoint["channel_values"]
    if "messages" in values:
        return len(values["messages"]) if isinstance(values["messages"], list) else 1
    act = look.store.delta_history(scope, head.thread_id, "", head.checkpoint_id, ["messages"])
    writes, begin = look.store.perform(act)["messages"]
    seed = begin[0] if begin else []
    messages: Any = getattr(seed, "value", seed)
    for _, _, value in writes:
        messages = add_messages(messages, value)
    return len(messages)


# -- one thread ------------------------------------------------------------------------------------------------


def _record(thread: Thread, run: Run | None, questions: Sequence[Interrupt] | None) -> dict[str, Any]:
    return {
        "thread_id": thread.thread_id,
        "owner": thread.owner,
        "graph": thread.graph,
        "state": state_of(run, questions) if run else None,
        "checkpoints": thread.checkpoints,
        "bytes": thread.bytes,
        "updated_at": render.moment(thread.updated_at),
    }


def _row(thread: Thread, run: Run | None, questions: Sequence[Interrupt] | None) -> dict[str, str]:
    return {
        "THREAD": thread.thread_id,
        "GRAPH": thread.graph,
        "STATE": state_of(run, questions) if run else "-",
        "CHECKPOINTS": str(thread.checkpoints),
        "SIZE": render.size(thread.bytes),
        "LAST CHANGE": render.moment(thread.updated_at),
    }


def _put(
    thread: Thread,
    runs: Sequence[Run],
    questions: Sequence[Interrupt] | None,
    effects: Sequence[Effect],
    head: Mapping[str, Any] | None,
) -> None:
    render.put_facts(
        {
            "thread": thread.thread_id,
            "graph": thread.graph,
            "state": state_of(runs[0], questions) if runs else "no runs",
            "head": _head_in_words(head),
            "checkpoints": str(thread.checkpoints),
            "size": render.size(thread.bytes),
            "began": render.moment(thread.created_at),
            "last change": render.moment(thread.updated_at),
        }
    )
    if questions is None:
        render.say("note: what it may ask cannot be read without the graph's own types")
    for question in questions or ():
        render.put(f"asks {question.interrupt_id}: {render.short(render.plain(question.payload), 400)}")
    newest = runs[0].run_id if runs else ""
    tables: list[list[dict[str, str]]] = [
        [_run_row(run, state_of(run, questions, newest=run.run_id == newest)) for run in runs],
        [_effect_row(effect) for effect in effects],
    ]
    for table in filter(None, tables):
        render.put("")
        render.put_table(table)


def _head_in_words(head: Mapping[str, Any] | None) -> str:
    if head is None:
        return "empty"
    if "unreadable" in head:
        return f"cannot be read without its graph: {head['unreadable']}"
    messages = "" if head["messages"] is None else f", {render.count(head['messages'], 'message')}"
    return f"step {head['step']}, state: {', '.join(head['keys'])}{messages}"


def _run_row(run: Run, state: str) -> dict[str, str]:
    return {
        "RUN": run.run_id,
        "STATE": state,
        "CAUSE": render.short(run.cause or ""),
        "COST": usage_in_words(run.usage, {}),
        "LAST CHANGE": render.moment(run.updated_at),
    }


def _effect_row(effect: Effect) -> dict[str, str]:
    return {
        "ACT": effect.name,
        "STATE": str(effect.state),
        "KEY": effect.key,
        "RESULT": _result_in_words(effect.result),
    }


def _result_in_words(result: Any) -> str:
    if isinstance(result, Unreadable):
        return "not readable here"
    return "" if result is None else render.short(render.plain(result))


# -- history ---------------------------------------------------------------------------------------------------


def _history(found: Sequence[StoredCheckpoint]) -> list[dict[str, Any]]:
    known = {stored.checkpoint_id: stored for stored in found}
    children = Counter(stored.parent_id for stored in found)
    return [
        {
            "checkpoint_id": stored.checkpoint_id,
            "parent_id": stored.parent_id,
            "step": stored.metadata.get("step"),
            "source": stored.metadata.get("source"),
            "nodes": nodes_between(known.get(stored.parent_id or ""), stored),
            "run_id": stored.run_id,
            "created_at": render.moment(stored.created_at),
            "branch": _mark(stored, children, newest=found[0]),
        }
        for stored in found
    ]


def _mark(stored: StoredCheckpoint, children: Mapping[str | None, int], newest: StoredCheckpoint) -> str | None:
    if stored is newest:
        return "head"
    if children[stored.checkpoint_id] > 1:
        return "fork"
    return None if children[stored.checkpoint_id] else "end of a branch"


def nodes_between(before: StoredCheckpoint | None, after: StoredCheckpoint) -> list[str]:
    """The nodes that ran between two checkpoints: those that have seen new versions, and those that were sent."""
    if before is None or after.metadata.get("source") != "loop":
        return []
    sent = [one.node for one in before.checkpoint["channel_values"].get(_langgraph.TASKS, ()) if isinstance(one, Send)]
    seen_before = cast(dict[str, Any], before.checkpoint["versions_seen"])
    seen = cast(dict[str, Any], after.checkpoint["versions_seen"])
    ran = [
        name for name, versions in seen.items() if not name.startswith("__") and versions != seen_before.get(name, {})
    ]
    return [*ran, *sent]


def _history_row(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "CHECKPOINT": row["checkpoint_id"],
        "STEP": str(row["step"]),
        "SOURCE": row["source"] or "",
        "RAN": render.counted(row["nodes"]),
        "RUN": (row["run_id"] or "")[:8],
        "AT": row["created_at"],
        "BRANCH": row["branch"] or "",
    }
