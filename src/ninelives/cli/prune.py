"""`ninelives prune`: forgetting old checkpoints, and giving the room back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from ninelives.cli import options, render
from ninelives.cli.exits import Exit, UsageError, exit_of
from ninelives.cli.stores import Looking, looking, must_be_there
from ninelives.errors import NineLivesError, StoreUnavailableError, ThreadBusyError
from ninelives.model import Room, Scope, Thread


@dataclass(frozen=True)
class Outcome:
    """
    What pruning did to a thread, or would do.

    Attributes:
        checkpoints: that went.
        kept: that stayed.
        before, after: bytes of its content.
        error: why it was left as it is.
    """

    thread: Thread
    checkpoints: int
    kept: int
    before: int
    after: int
    error: NineLivesError | None = None


def prune(
    *thread: Annotated[str, Parameter(help="Ids of the threads.")],
    everything: Annotated[
        bool, Parameter(name="--all", negative="", show_default=False, help="Every thread of the owner.")
    ] = False,
    dry_run: Annotated[
        bool, Parameter(negative="", show_default=False, help="Say what would go, and change nothing.")
    ] = False,
    compact: Annotated[
        bool,
        Parameter(
            negative="",
            show_default=False,
            help="Then write the whole file anew: for one that does not get smaller by itself. Nothing may run.",
        ),
    ] = False,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """
    Forget old checkpoints of threads. They go on, answer and show their state as before.

    What stays is the newest checkpoint of each thread and subgraph, where a start-over of an unfinished run would
    begin, and what a DeltaChannel is rebuilt from. A thread that a live process has is left as it is, and named.
    """
    if bool(thread) == everything:
        raise UsageError("which threads? Name them, or say --all.")
    if compact and dry_run:
        raise UsageError("--compact and --dry-run: choose one of them.")
    with looking(store) as maybe:
        if maybe is None and everything:
            return Exit.DONE
        look, scope = must_be_there(maybe, thread[0] if thread else ""), Scope(owner)
        threads = _all(look, scope) if everything else _named(look, scope, thread)
        before, error = look.store.room(), None
        if dry_run:
            outcomes, after = [_planned(look, scope, one) for one in threads], before
        else:
            look.store.bury_the_dead()
            outcomes = [_pruned(look, scope, one) for one in threads]
            after, error = _given_back(look, whole=compact)
    if json:
        render.put_json({"dry_run": dry_run, **_record(outcomes, before, after)}, indent=2)
    else:
        _put(outcomes, before, after, dry_run)
    return _code(outcomes, error)


def _named(look: Looking, scope: Scope, ids: Sequence[str]) -> list[Thread]:
    """All of them, or an error, before anything is changed."""
    return [look.thread(scope, thread_id) for thread_id in dict.fromkeys(ids)]


def _all(look: Looking, scope: Scope) -> list[Thread]:
    found: list[Thread] = []
    while page := look.store.perform(look.store.list_threads(scope, limit=500, offset=len(found))):
        found += page
    return found


def _planned(look: Looking, scope: Scope, thread: Thread) -> Outcome:
    try:
        look.must_be_free(scope, thread.thread_id)
        plan = look.store.perform(look.store.plan_pruning(scope, thread.thread_id))
    except NineLivesError as error:
        return _left(thread, error)
    return Outcome(thread, plan.checkpoints, plan.kept, thread.bytes, max(0, thread.bytes - plan.bytes))


def _pruned(look: Looking, scope: Scope, thread: Thread) -> Outcome:
    try:
        gone = look.store.perform(look.store.prune_thread(scope, thread.thread_id))
    except NineLivesError as error:
        return _left(thread, error)
    now = look.store.perform(look.store.weigh_thread(scope, thread.thread_id)) or thread
    return Outcome(thread, gone, now.checkpoints, thread.bytes, now.bytes)


def _left(thread: Thread, error: NineLivesError) -> Outcome:
    """One thread that cannot be pruned is no reason to leave the others as they are."""
    render.say(f"left as it is: {error}")
    return Outcome(thread, 0, thread.checkpoints, thread.bytes, thread.bytes, error)


def _given_back(look: Looking, *, whole: bool) -> tuple[Room, NineLivesError | None]:
    try:
        room = look.store.compact(whole=whole)
    except StoreUnavailableError as error:
        render.say(str(error))
        return look.store.room(), error
    if room.free and room.gives_back:
        render.say(f"a process is reading: {render.size(room.free)} of free room are given back when it has read on")
    elif room.free:
        render.say(
            f"{render.size(room.free)} of the file are free, and used again, but it was made by a program that did not"
            " let it get smaller. To have it written anew, once, when nothing runs: ninelives prune --all --compact"
        )
    return room, None


# -- telling -----------------------------------------------------------------------------------------------------


def _record(outcomes: Sequence[Outcome], before: Room, after: Room) -> dict[str, Any]:
    threads = [
        {
            "thread_id": outcome.thread.thread_id,
            "owner": outcome.thread.owner,
            "checkpoints": outcome.checkpoints,
            "kept": outcome.kept,
            "bytes_before": outcome.before,
            "bytes_after": outcome.after,
            "left": None if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}",
        }
        for outcome in outcomes
    ]
    return {"threads": threads, "store": {"bytes_before": before.bytes, "bytes_after": after.bytes}}


def _put(outcomes: Sequence[Outcome], before: Room, after: Room, dry_run: bool) -> None:
    if outcomes:
        render.put_table([_row(outcome, dry_run) for outcome in outcomes])
    else:
        render.say("no threads")
    if not dry_run:
        render.put(f"\nthe store took {render.size(before.bytes)} on the disk, and takes {render.size(after.bytes)}")


def _row(outcome: Outcome, dry_run: bool) -> dict[str, str]:
    about = "about " if dry_run and outcome.checkpoints else ""
    return {
        "THREAD": outcome.thread.thread_id,
        "WOULD GO" if dry_run else "GONE": "left as it is" if outcome.error else f"{outcome.checkpoints:,}",
        "KEPT": f"{outcome.kept:,}",
        "SIZE": render.size(outcome.before),
        "THEN": f"{about}{render.size(outcome.after)}",
    }


def _code(outcomes: Sequence[Outcome], error: NineLivesError | None) -> Exit:
    """Of the first thing that went wrong. That a live process has a thread, or the store, is the least of them."""
    errors = [*(outcome.error for outcome in outcomes if outcome.error), *([error] if error else [])]
    errors.sort(key=lambda each: isinstance(each, ThreadBusyError | StoreUnavailableError))
    return exit_of(errors[0]) if errors else Exit.DONE
