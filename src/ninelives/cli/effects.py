"""`ninelives effects`: outside acts, and what really became of those that nobody is sure of."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter

from ninelives.cli import options, render
from ninelives.cli.exits import Exit, UsageError
from ninelives.cli.inputs import one_beginning, value_of
from ninelives.cli.records import effect_record
from ninelives.cli.stores import Looking, looking, must_be_there
from ninelives.effects import Done, NotDone, settle_effect
from ninelives.errors import NoCheckpointFoundError
from ninelives.model import Effect, EffectState, Scope, Unreadable

app = App(name="effects", help="Outside acts: what was done, and what nobody is sure of.")

OPEN = (EffectState.INTENT, EffectState.UNKNOWN)

Key = Annotated[str, Parameter(help="The act's key, as `ninelives effects list` shows it; its beginning will do.")]


@app.command(name="list")
def list_effects(
    *,
    thread: Annotated[str | None, Parameter(help="Only of this thread.", show_default=False)] = None,
    state: Annotated[str | None, Parameter(help="Only in this state.", show_default=False)] = None,
    everything: Annotated[
        bool, Parameter(name="--all", negative="", show_default=False, help="Those whose outcome is known, too.")
    ] = False,
    at: options.Common = options.DEFAULT,
) -> int:
    """List outside acts whose outcome is not known, or that are under way, the oldest first."""
    wanted = _states(state, everything)
    with looking(at.store) as look:
        found = [] if look is None else _effects(look, at.scope, thread, wanted)
        standing = {effect.key: _standing(look, effect) for effect in found if look is not None}
    if at.as_json:
        render.put_json([{**effect_record(effect), "standing": standing[effect.key]} for effect in found], indent=2)
    elif found:
        render.put_table([_row(effect, standing[effect.key]) for effect in found])
    else:
        render.say("no acts" if everything else "no act is open")
    return Exit.DONE


@app.command
def settle(
    key: Key,
    /,
    *,
    done: Annotated[bool, Parameter(negative="", show_default=False, help="It happened.")] = False,
    not_done: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="It did not happen: it will be done when its run goes on."),
    ] = False,
    result: Annotated[
        str | None,
        Parameter(show_default=False, help="With --done: what the call is to give. JSON if it can be read as such."),
    ] = None,
    why: Annotated[str, Parameter(help="How it was found out; kept with the act.")],
    by: Annotated[
        str | None, Parameter(show_default=False, help="Who found out. [default: the name that you are logged in with]")
    ] = None,
    at: options.Common = options.DEFAULT,
) -> int:
    """Record what really became of an act whose outcome is unknown; then its run can go on."""
    if done == not_done:
        raise UsageError("did it happen? Say --done or --not-done.")
    if result is not None and not done:
        raise UsageError("--result is for what happened; leave it out with --not-done.")
    if not why.strip():
        raise UsageError("--why is empty; say how it was found out.")
    with looking(at.store) as maybe:
        look = must_be_there(maybe, key)
        found = _find(look, at.scope, key)
        outcome = Done(_result(found, result)) if done else NotDone()
        settled = settle_effect(look.store, found.key, outcome, by=options.who(by), why=why, owner=at.owner)
        graph = _graph(look, settled)
    if at.as_json:
        render.put_json(effect_record(settled), indent=2)
    render.say(f"act {settled.name!r} of thread {settled.thread_id} is recorded as {_in_words(settled.state)}")
    again = shlex.join(("ninelives", "run", "GRAPH", "--thread", settled.thread_id, *at.store_words))
    render.say(f"then go on, with GRAPH for {graph!r}:  {again} --continue")
    return Exit.DONE


# -- looking ---------------------------------------------------------------------------------------------------


def _effects(look: Looking, scope: Scope, thread: str | None, wanted: Sequence[EffectState]) -> list[Effect]:
    if thread is not None:
        look.thread(scope, thread)  # an unknown one is an error that names near ones, not an empty list
    found = look.store.perform(look.store.list_effects(scope, thread_id=thread))
    return [effect for effect in found if effect.state in wanted]


def _states(name: str | None, everything: bool) -> Sequence[EffectState]:
    if name is None:
        return tuple(EffectState) if everything else OPEN
    try:
        return (EffectState(name),)
    except ValueError:
        raise UsageError(f"--state {name}: no such state. There are: {', '.join(EffectState)}.") from None


def _standing(look: Looking, effect: Effect) -> str:
    """How the act stands now: one that was begun may be going on, or have been cut off with its process."""
    if effect.state is EffectState.INTENT and effect.run_id is not None:
        run = look.seen(look.store.perform(look.store.get_run(Scope(effect.owner), effect.run_id)))
        return "under way" if run.held and run.epoch == effect.epoch else "cut off"
    return str(effect.state).replace("_", " ")


def _find(look: Looking, scope: Scope, key: str) -> Effect:
    """
    Raises:
        NoCheckpointFoundError: no act's key begins so, or several do.
    """
    effects = {effect.key: effect for effect in look.store.perform(look.store.list_effects(scope))}
    begin = one_beginning(effects, key)
    if len(begin) == 1:
        return effects[begin[0]]
    if begin:
        raise NoCheckpointFoundError(key, near=begin[:3], what="effect", why="is the beginning of several keys")
    near = difflib.get_close_matches(key, effects, n=3, cutoff=0.6)
    raise NoCheckpointFoundError(key, near=near, what="effect", why="is not known here")


def _result(effect: Effect, text: str | None) -> Any:
    """What was typed, else what another branch has recorded of the act."""
    if text is None:
        if isinstance(effect.result, Unreadable):
            raise UsageError(f"what is recorded cannot be read here ({effect.result.error}); say --result.")
        return effect.result
    return value_of(text)


def _graph(look: Looking, effect: Effect) -> str:
    thread = look.store.perform(look.store.find_thread(Scope(effect.owner), effect.thread_id))
    return thread.graph if thread else ""


def _in_words(state: EffectState) -> str:
    return "done" if state is EffectState.DONE else "not done"


def _row(effect: Effect, standing: str) -> dict[str, str]:
    result = "not readable here" if isinstance(effect.result, Unreadable) else render.plain(effect.result)
    return {
        "KEY": effect.key,
        "ACT": effect.name,
        "STATE": standing,
        "THREAD": effect.thread_id,
        "SINCE": render.moment(effect.settled_at or effect.created_at),
        "WHY": render.short(effect.why or "", 70),
        "RESULT": "" if effect.result is None else render.short(result),
    }
