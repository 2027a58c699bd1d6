"""
`ninelives inbox`: all that waits for a person. What agents ask, and what has come to a stop, in one list.

A decision is recorded here and now, from whatever terminal, with or without the graph; the run that goes on with it is
done by whoever has the graph: a process that waits for it, `ninelives run --continue`, or `--go-on` right here.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import App, Parameter

from ninelives import interrupts
from ninelives.cli import options, render
from ninelives.cli.entries import Entry, entries_in, entry_record, put_entry, rows_of
from ninelives.cli.exits import Exit, UsageError
from ninelives.cli.graphs import is_named, load_graph, owner_of
from ninelives.cli.inputs import one_beginning, value_of
from ninelives.cli.records import run_record
from ninelives.cli.render import say
from ninelives.cli.run import run as run_command
from ninelives.cli.stores import Looking, looking, must_be_there
from ninelives.config import Settings
from ninelives.deadlines import sweep
from ninelives.errors import ConfigError, InvalidDecisionError, NoCheckpointFoundError, UnknownTypeError
from ninelives.interrupts import Choice
from ninelives.model import Interrupt, Run, RunStatus, Scope

app = App(name="inbox", help="What waits for a person: questions, and runs that have come to a stop.")

THREADS_MAX = 10_000
ID_SHOWN = 12

Id = Annotated[str, Parameter(help="The question's id, as `ninelives inbox list` shows it; its beginning will do.")]
ThreadId = Annotated[str, Parameter(help="The thread's id.")]
As = Annotated[
    str | None,
    Parameter(name="--as", help="Who decides. [default: the name that you are logged in with]", show_default=False),
]
Note = Annotated[str | None, Parameter(name="--note", help="Why, kept with the decision.", show_default=False)]
Shown = Annotated[
    str | None,
    Parameter(name="--shown", help="The digest of what was shown; refused if something else is asked by now.",
              show_default=False),
]  # fmt: skip
GoOn = Annotated[
    bool, Parameter(name="--go-on", negative="", show_default=False, help="Go on with the run here, in this terminal.")
]
Graph = Annotated[
    str | None,
    Parameter(
        name="--graph",
        show_default=False,
        help="To go on: file.py:attr or module:attr. [default: the thread's graph, by its name in langgraph.json]",
    ),
]
All = Annotated[
    bool, Parameter(name="--all", negative="", show_default=False, help="All tool calls that the question is about.")
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class By:
    """Who decides, and what is to be done then."""

    actor: As = None
    note: Note = None
    shown: Shown = None
    go_on: GoOn = False
    graph: Graph = None


NOBODY = By()


# -- looking -------------------------------------------------------------------------------------------------------


@app.command(name="list")
def list_entries(
    *,
    at: options.Common = options.DEFAULT,
) -> int:
    """List what waits for a person, the oldest first."""
    with looking(at.store) as look:
        entries = [] if look is None else entries_in(look, at.scope)
    if at.as_json:
        render.put_json([entry_record(entry) for entry in entries], indent=2)
    elif entries:
        prices = Settings.load().prices
        render.put_table([row for entry in entries for row in rows_of(entry, prices)])
    else:
        say("nothing waits for anybody")
    return Exit.DONE


@app.command
def show(
    id_or_thread: Annotated[str, Parameter(help="A question's id (or its beginning), or a thread.")],
    /,
    *,
    at: options.Common = options.DEFAULT,
) -> int:
    """Show what a thread waits for: what is asked, what will run again, what has happened, what it cost."""
    with looking(at.store) as maybe:
        entry = _meant(entries_in(must_be_there(maybe, id_or_thread), at.scope), id_or_thread)
    if at.as_json:
        render.put_json(entry_record(entry), indent=2)
    else:
        put_entry(entry, Settings.load().prices)
    return Exit.DONE


# -- deciding ------------------------------------------------------------------------------------------------------


@app.command
def approve(
    question_id: Id,
    /,
    *,
    all: All = False,
    by: By = NOBODY,
    at: options.Common = options.DEFAULT,
) -> int:
    """Let a tool call run as it was shown; with --all, each one that the question is about."""
    return _decide(question_id, lambda question: _each(question, interrupts.approve(), everything=all), by, at)


@app.command
def reject(
    question_id: Id,
    /,
    *,
    message: Annotated[str, Parameter(help="The reason, told to the model.", show_default=False)] = "",
    all: All = False,
    by: By = NOBODY,
    at: options.Common = options.DEFAULT,
) -> int:
    """Keep a tool call from running; with --all, each one that the question is about."""
    return _decide(question_id, lambda question: _each(question, interrupts.reject(message), everything=all), by, at)


@app.command
def edit(
    question_id: Id,
    /,
    *,
    args: Annotated[str, Parameter(help="The arguments to run the call with, a JSON object.")],
    by: By = NOBODY,
    at: options.Common = options.DEFAULT,
) -> int:
    """Run a tool call with other arguments; they are checked against the tool's own schema."""
    given = _arguments(args, "--args")
    return _decide(question_id, lambda question: _each(question, interrupts.edit(given)), by, at)


@app.command
def respond(
    question_id: Id,
    value: Annotated[str, Parameter(help="JSON if it can be read as such, else text.")],
    /,
    *,
    by: By = NOBODY,
    at: options.Common = options.DEFAULT,
) -> int:
    """Answer a question; of a tool call: the text that stands for its result."""

    def answer(question: Interrupt) -> Any:
        if question.kind != "free":
            return _each(question, interrupts.respond(value))
        return interrupts.respond(value_of(value))

    return _decide(question_id, answer, by, at)


@app.command
def decide(
    question_id: Id,
    /,
    *,
    approve: Annotated[list[str] | None, Parameter(negative="", help="CALL: let it run.", show_default=False)] = None,
    reject: Annotated[
        list[str] | None, Parameter(negative="", help="CALL[=REASON]: keep it from running.", show_default=False)
    ] = None,
    edit: Annotated[
        list[str] | None, Parameter(negative="", help="CALL=JSON: run it with these arguments.", show_default=False)
    ] = None,
    respond: Annotated[
        list[str] | None, Parameter(negative="", help="CALL=TEXT: this stands for its result.", show_default=False)
    ] = None,
    by: By = NOBODY,
    at: options.Common = options.DEFAULT,
) -> int:
    """Decide about several tool calls at once, each by its id; `ninelives inbox show` lists them."""
    choices: dict[str, Choice] = {}
    for text in approve or ():
        _take(choices, text, interrupts.approve())
    for text in reject or ():
        call_id, _, reason = text.partition("=")
        _take(choices, call_id, interrupts.reject(reason))
    for text in edit or ():
        call_id, _, args = text.partition("=")
        _take(choices, call_id, interrupts.edit(_arguments(args, f"--edit {call_id}=")))
    for text in respond or ():
        call_id, _, said = text.partition("=")
        _take(choices, call_id, interrupts.respond(said))
    if not choices:
        raise UsageError("nothing was decided: say --approve, --reject, --edit or --respond, with the id of a call.")
    return _decide(question_id, lambda question: choices, by, at)


# -- runs that have come to a stop -----------------------------------------------------------------------------------


@app.command(name="continue")
def continue_run(
    thread: ThreadId,
    /,
    *,
    graph: Graph = None,
    at: options.Common = options.DEFAULT,
) -> int:
    """Go on where a thread was cut off or failed, in this terminal."""
    place = _graph_of(thread, graph, at)
    return run_command(place, thread=thread, go_on=True, store=at.store, json=at.as_json, debug=at.debug)


@app.command(name="start-over")
def start_over(
    thread: ThreadId,
    /,
    *,
    graph: Graph = None,
    at: options.Common = options.DEFAULT,
) -> int:
    """Begin what is unfinished anew, in this terminal; the old branch stays readable."""
    place = _graph_of(thread, graph, at)
    return run_command(place, thread=thread, start_over=True, store=at.store, json=at.as_json, debug=at.debug)


@app.command
def abandon(
    thread: ThreadId,
    /,
    *,
    actor: As = None,
    at: options.Common = options.DEFAULT,
) -> int:
    """Give up what is unfinished on a thread, and withdraw what it asks; all of it stays for reading."""
    with looking(at.store) as maybe:
        look, scope = must_be_there(maybe, thread), at.scope
        look.thread(scope, thread)
        newest = look.store.perform(look.store.find_newest_run(scope, thread))
        if newest is None or not (newest.unfinished or newest.status is RunStatus.EXPIRED):
            raise UsageError(f"nothing is unfinished on thread {thread!r}; nothing was changed.")
        look.store.bury_the_dead()
        act = look.store.close_run(scope, newest.run_id, RunStatus.ABANDONED, by=options.who(actor))
        closed = look.store.perform(act)
    if at.as_json:
        render.put_json(run_record(closed), indent=2)
    say(f"abandoned run {closed.run_id} of thread {thread}; what it did stays for reading")
    return Exit.DONE


@app.command(name="ask-again")
def ask_again(
    thread: ThreadId,
    /,
    *,
    actor: As = None,
    at: options.Common = options.DEFAULT,
) -> int:
    """Take back an answer on which a thread has failed, and ask again."""
    with looking(at.store) as maybe:
        look = must_be_there(maybe, thread)
        asked = look.store.perform(look.store.ask_again(at.scope, thread, by=options.who(actor)))
    if at.as_json:
        render.put_json({"thread_id": thread, "asked_again": asked}, indent=2)
    for interrupt_id in asked:
        say(f"asks again: {interrupt_id}")
    return Exit.DONE


# -- which is meant ---------------------------------------------------------------------------------------------------


def _meant(entries: Sequence[Entry], id_or_thread: str) -> Entry:
    """
    Raises:
        NoCheckpointFoundError: no such thread or question waits.
        UsageError: it is the beginning of several questions' ids.
    """
    for entry in entries:
        if entry.run.thread_id == id_or_thread:
            return entry
    asked = {question.interrupt_id: entry for entry in entries for question in entry.questions}
    found = _only(asked, id_or_thread)
    if found is None:
        raise NoCheckpointFoundError(id_or_thread, what="question or thread", why="waits for nobody")
    return asked[found]


def _pending(look: Looking, scope: Scope, question_id: str) -> Interrupt:
    """
    Raises:
        InvalidDecisionError: it is not pending; says who has answered it.
    """
    questions = {each.interrupt_id: each for each in look.store.perform(look.store.list_questions(scope))}
    found = _only(questions, question_id)
    if found is not None:
        return questions[found]
    _who_was_first(look, scope, question_id)
    raise InvalidDecisionError(f"interrupt {question_id!r} is not pending", [*questions])


def _only(ids: Mapping[str, Any], begin: str) -> str | None:
    """The one id that is this, or begins so."""
    found = one_beginning(ids, begin)
    if len(found) > 1:
        raise UsageError(f"{begin!r} begins {len(found)} questions' ids; nothing was decided. Say more of it.")
    return found[0] if found else None


def _who_was_first(look: Looking, scope: Scope, question_id: str) -> None:
    """
    Raises:
        InvalidDecisionError: it was answered before; says by whom.
    """
    for thread in look.store.perform(look.store.list_threads(scope, limit=THREADS_MAX)) if question_id else ():
        with suppress(UnknownTypeError):  # of another graph
            for decision in look.store.perform(look.store.list_decisions(scope, thread.thread_id)):
                if decision.interrupt_id.startswith(question_id):
                    by = f"{decision.actor or 'somebody'} ({decision.channel})"
                    why = f"interrupt {decision.interrupt_id!r} is not pending: it was answered by {by}"
                    raise InvalidDecisionError(why, None, first=(decision.actor, decision.decided_at))


# -- one decision ------------------------------------------------------------------------------------------------------


def _decide(question_id: str, decision: Callable[[Interrupt], Any], by: By, at: options.Common) -> int:
    """
    Record a decision. Whether it can be gone on with here, where that is wanted, is looked at before.

    Raises:
        InvalidDecisionError: it does not fit, or somebody was first.
    """
    with looking(at.store) as maybe:
        look, scope = must_be_there(maybe, question_id), at.scope
        sweep(look.store, scope)
        question = _pending(look, scope, question_id)
        place = by.graph or look.thread(scope, question.thread_id).graph
        if by.go_on:
            _must_run_here(place, at.owner)
        run = interrupts.decide(
            look.store,
            question.thread_id,
            question.interrupt_id,
            decision(question),
            actor=options.who(by.actor),
            channel="inbox",
            owner=at.owner,
            note=by.note,
            shown=by.shown or question.digest,
        )
    if at.as_json and not by.go_on:
        render.put_json(run_record(run), indent=2)
    say(f"recorded for {question.interrupt_id}; run {run.run_id} of thread {run.thread_id} is ready to go on")
    if by.go_on:
        return run_command(place, thread=run.thread_id, go_on=True, store=at.store, json=at.as_json, debug=at.debug)
    _say_who_goes_on(run, by, at)
    return Exit.DONE


def _say_who_goes_on(run: Run, by: By, at: options.Common) -> None:
    if at.owner:
        say(f"a process that waits for it goes on with it, or the next one that continues it for {at.owner!r}")
        return
    graph = ("--graph", by.graph) if by.graph else () if is_named(run.graph) else ("--graph", "FILE.py:ATTRIBUTE")
    again = shlex.join(("ninelives", "inbox", "continue", run.thread_id, *graph, *at.store_words))
    say(f"a process that waits for it goes on with it; if there is none:  {again}")


def _must_run_here(place: str, owner: str) -> str:
    """
    Raises:
        ConfigError: the graph cannot be loaded, or not for this owner.
    """
    found = owner_of(load_graph(place))
    if found != owner:
        raise ConfigError(
            f"{place} runs for {found!r} here, not for {owner!r}; nothing was decided, and nothing ran. Protect it with"
            f" owner={owner!r}, or go on where that is done."
        )
    return place


def _each(question: Interrupt, choice: Choice, *, everything: bool | None = None) -> Any:
    """
    The same for each tool call that the question is about.

    Args:
        everything: whether all are meant, if there are several; None: that could not be meant.
    """
    if question.kind != "batch" or len(question.actions) == 1:
        return choice
    if everything:
        return {"decisions": [_raw(choice)] * len(question.actions)}  # also of calls without an id
    calls = ", ".join(f"{action.tool_call_id} ({action.name})" for action in question.actions)
    how = f"decide each: ninelives inbox decide {question.interrupt_id[:ID_SHOWN]} --approve CALL --reject CALL"
    raise UsageError(
        f"it asks about {len(question.actions)} tool calls: {calls}. Nothing was decided."
        f" {how if everything is None else f'Say --all, or {how}'}"
    )


def _raw(choice: Choice) -> Mapping[str, Any]:
    return {"type": choice.type, **({"message": choice.value} if choice.value else {})}


def _take(choices: dict[str, Choice], call_id: str, choice: Choice) -> None:
    if call_id in choices:
        raise UsageError(f"two decisions about {call_id!r}; nothing was decided.")
    choices[call_id] = choice


def _arguments(text: str, flag: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as wrong:
        raise UsageError(f"{flag}: no JSON ({wrong}); nothing was decided.") from wrong
    if not isinstance(found, dict):
        raise UsageError(f"{flag}: the arguments of a call are a JSON object; nothing was decided.")
    return found


def _graph_of(thread: str, graph: str | None, at: options.Common) -> str:
    with looking(at.store) as maybe:
        found = must_be_there(maybe, thread).thread(at.scope, thread).graph
    return _must_run_here(graph or found, at.owner)
