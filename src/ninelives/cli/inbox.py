"""
`ninelives inbox`: all that waits for a person. What agents ask, and what has come to a stop, in one list.

A decision is recorded here and now, from whatever terminal, with or without the graph; the run that goes on with it is
done by whoever has the graph: a process that waits for it, `ninelives run --continue`, or `--go-on` right here.
"""

from __future__ import annotations

import getpass
import json as json_module
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from cyclopts import App, Parameter

from ninelives import _langgraph, interrupts
from ninelives.cli import options, render
from ninelives.cli.exits import Exit, UsageError
from ninelives.cli.records import interrupt_record, run_record, state_of, usage_in_words
from ninelives.cli.render import say
from ninelives.cli.run import run as run_command
from ninelives.cli.stores import Looking, looking, must_be_there
from ninelives.config import Settings
from ninelives.deadlines import sweep
from ninelives.errors import InvalidDecisionError, NoCheckpointFoundError, UnknownTypeError
from ninelives.interrupts import Choice
from ninelives.model import EffectState, Interrupt, Run, RunStatus, Scope, Unreadable, Usage

app = App(name="inbox", help="What waits for a person: questions, and runs that have come to a stop.")

THREADS_MAX = 10_000

Id = Annotated[str, Parameter(help="The question's id, as `ninelives inbox list` shows it; its beginning will do.")]
ThreadId = Annotated[str, Parameter(help="The thread's id.")]
As = Annotated[
    str | None,
    Parameter(name="--as", help="Who decides. [default: the name that you are logged in with]", show_default=False),
]
Note = Annotated[str | None, Parameter(name="--note", help="Why, kept with the decision.", show_default=False)]
GoOn = Annotated[
    bool, Parameter(name="--go-on", negative="", show_default=False, help="Go on with the run here, in this terminal.")
]
Graph = Annotated[
    str | None,
    Parameter(
        name="--graph",
        show_default=False,
        help="For --go-on: file.py:attr or module:attr. [default: the thread's graph, by its name in langgraph.json]",
    ),
]
All = Annotated[
    bool, Parameter(name="--all", negative="", show_default=False, help="All tool calls that the question is about.")
]


@dataclass(frozen=True)
class Entry:
    """
    One thread that waits for a person.

    Attributes:
        run: its newest.
        questions: that it waits with.
        next_up: nodes that would run; those that were in the middle of something run again.
        happened: outside acts of the chain that are done, and those of which nobody knows.
        cost: of the whole chain.
    """

    run: Run
    state: str
    questions: Sequence[Interrupt] = ()
    next_up: Sequence[str] = ()
    happened: Sequence[str] = ()
    unknown: Sequence[str] = ()
    cost: Usage = field(default_factory=Usage)


# -- looking -------------------------------------------------------------------------------------------------------


@app.command(name="list")
def list_entries(
    *,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """List what waits for a person, the oldest first."""
    with looking(store) as look:
        entries = [] if look is None else _entries(look, Scope(owner))
    if json:
        render.put_json([_record(entry) for entry in entries], indent=2)
    elif entries:
        render.put_table([row for entry in entries for row in _rows(entry)])
    else:
        say("nothing waits for anybody")
    return Exit.DONE


@app.command
def show(
    id_or_thread: Annotated[str, Parameter(help="A question's id (or its beginning), or a thread.")],
    /,
    *,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Show what a thread waits for: what is asked, what will run again, what has happened, what it cost."""
    with looking(store) as maybe:
        look, scope = must_be_there(maybe, id_or_thread), Scope(owner)
        entries = _entries(look, scope)
        entry = next((one for one in entries if one.run.thread_id == id_or_thread), None)
        if entry is None:
            question = _question(entries, id_or_thread)
            entry = next(one for one in entries if one.run.thread_id == question.thread_id)
    if json:
        render.put_json(_record(entry), indent=2)
    else:
        _put(entry)
    return Exit.DONE


# -- deciding ------------------------------------------------------------------------------------------------------


@app.command
def approve(
    question_id: Id,
    /,
    *,
    all: All = False,
    actor: As = None,
    note: Note = None,
    go_on: GoOn = False,
    graph: Graph = None,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Let a tool call run as it was shown; with --all, each one that the question is about."""
    by = _By(actor, note, go_on, graph, owner, store, json, debug)
    return _decide(question_id, lambda question: _each(question, interrupts.approve(), everything=all), by)


@app.command
def reject(
    question_id: Id,
    /,
    *,
    message: Annotated[str, Parameter(help="The reason, told to the model.", show_default=False)] = "",
    all: All = False,
    actor: As = None,
    note: Note = None,
    go_on: GoOn = False,
    graph: Graph = None,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Keep a tool call from running; with --all, each one that the question is about."""
    by = _By(actor, note, go_on, graph, owner, store, json, debug)
    return _decide(question_id, lambda question: _each(question, interrupts.reject(message), everything=all), by)


@app.command
def edit(
    question_id: Id,
    /,
    *,
    args: Annotated[str, Parameter(help="The arguments to run the call with, a JSON object.")],
    actor: As = None,
    note: Note = None,
    go_on: GoOn = False,
    graph: Graph = None,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Run a tool call with other arguments; they are checked against the tool's own schema."""
    given = _arguments(args, "--args")
    by = _By(actor, note, go_on, graph, owner, store, json, debug)
    return _decide(question_id, lambda question: _each(question, interrupts.edit(given), everything=False), by)


@app.command
def respond(
    question_id: Id,
    value: Annotated[str, Parameter(help="JSON if it can be read as such, else text.")],
    /,
    *,
    actor: As = None,
    note: Note = None,
    go_on: GoOn = False,
    graph: Graph = None,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Answer a question; of a tool call: the text that stands for its result."""
    by = _By(actor, note, go_on, graph, owner, store, json, debug)

    def answer(question: Interrupt) -> Any:
        if question.kind != "free":
            return _each(question, interrupts.respond(value), everything=False)
        return interrupts.respond(_value(value))

    return _decide(question_id, answer, by)


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
    actor: As = None,
    note: Note = None,
    go_on: GoOn = False,
    graph: Graph = None,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
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
    by = _By(actor, note, go_on, graph, owner, store, json, debug)
    return _decide(question_id, lambda question: choices, by)


# -- runs that have come to a stop -----------------------------------------------------------------------------------


@app.command(name="continue")
def continue_run(
    thread: ThreadId,
    /,
    *,
    graph: Graph = None,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Go on where a thread was cut off or failed, in this terminal."""
    place = _graph_of(thread, graph, owner, store)
    return run_command(place, thread=thread, go_on=True, store=store, json=json, debug=debug)


@app.command(name="start-over")
def start_over(
    thread: ThreadId,
    /,
    *,
    graph: Graph = None,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Begin what is unfinished anew, in this terminal; the old branch stays readable."""
    place = _graph_of(thread, graph, owner, store)
    return run_command(place, thread=thread, start_over=True, store=store, json=json, debug=debug)


@app.command
def abandon(
    thread: ThreadId,
    /,
    *,
    actor: As = None,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Give up what is unfinished on a thread, and withdraw what it asks; all of it stays for reading."""
    with looking(store) as maybe:
        look, scope = must_be_there(maybe, thread), Scope(owner)
        look.thread(scope, thread)
        newest = look.store.perform(look.store.find_newest_run(scope, thread))
        if newest is None or not newest.unfinished:
            raise UsageError(f"nothing is unfinished on thread {thread!r}; nothing was changed.")
        look.store.bury_the_dead()
        act = look.store.close_run(scope, newest.run_id, RunStatus.ABANDONED, by=_name(actor))
        closed = look.store.perform(act)
    if json:
        render.put_json(run_record(closed), indent=2)
    say(f"abandoned run {closed.run_id} of thread {thread}; what it did stays for reading")
    return Exit.DONE


@app.command(name="ask-again")
def ask_again(
    thread: ThreadId,
    /,
    *,
    actor: As = None,
    owner: options.Owner = "",
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    debug: options.Debug = False,
) -> int:
    """Take back an answer on which a thread has failed, and ask again."""
    with looking(store) as maybe:
        look = must_be_there(maybe, thread)
        asked = look.store.perform(look.store.ask_again(Scope(owner), thread, by=_name(actor)))
    if json:
        render.put_json({"thread_id": thread, "asked_again": asked}, indent=2)
    for interrupt_id in asked:
        say(f"asks again: {interrupt_id}")
    return Exit.DONE


# -- what waits -----------------------------------------------------------------------------------------------------


def _entries(look: Looking, scope: Scope) -> list[Entry]:
    """What is due by its deadline is done first, so that nobody is shown a question whose time is over."""
    sweep(look.store, scope)
    threads = look.store.perform(look.store.list_threads(scope, limit=THREADS_MAX))
    found = []
    for thread in threads:
        run = look.store.perform(look.store.find_newest_run(scope, thread.thread_id))
        if run is not None and (entry := _entry(look, scope, look.seen(run))) is not None:
            found.append(entry)
    return sorted(found, key=lambda entry: entry.run.updated_at)


def _entry(look: Looking, scope: Scope, run: Run) -> Entry | None:
    if run.held or not (run.unfinished or run.status is RunStatus.EXPIRED):
        return None
    store, thread_id = look.store, run.thread_id
    try:
        questions: Sequence[Interrupt] = store.perform(store.list_interrupts(scope, thread_id))
    except UnknownTypeError:
        questions = ()
    next_up: list[str] = []
    with suppress(UnknownTypeError):  # what is in the state is not for this process
        head = store.perform(store.get_checkpoint(scope, thread_id, "", None))
        next_up = _langgraph.nodes_due(head.checkpoint) if head else []
    runs = store.perform(store.list_runs(scope, thread_id=thread_id, limit=1000))
    chain = {one.run_id for one in runs if one.chain == run.chain}
    acts = [one for one in store.perform(store.list_effects(scope, thread_id=thread_id)) if one.run_id in chain]
    open_states = (EffectState.INTENT, EffectState.UNKNOWN)
    return Entry(
        run=run,
        state=state_of(run, questions),
        questions=questions,
        next_up=[] if questions else next_up,
        happened=[one.name for one in acts if one.state is EffectState.DONE],
        unknown=[f"{one.name} ({one.key})" for one in acts if one.state in open_states],
        cost=store.perform(store.chain_usage(scope, run.chain)),
    )


def _rows(entry: Entry) -> list[dict[str, str]]:
    base = {"THREAD": entry.run.thread_id, "GRAPH": entry.run.graph, "STATE": entry.state}
    since = render.moment(entry.run.updated_at)
    if not entry.questions:
        again = render.counted(entry.next_up)
        what = "; ".join(part for part in (entry.run.cause or "", f"next: {again}" if again else "") if part)
        return [{"ID": "", **base, "WHAT": render.short(what, 70), "SINCE": since, "UNTIL": ""}]
    return [
        {
            "ID": question.interrupt_id[:12],
            **base,
            "WHAT": render.short(_asks(question), 70),
            "SINCE": render.moment(question.asked_at),
            "UNTIL": render.moment(question.deadline_at) if question.deadline_at is not None else "",
        }
        for question in entry.questions
    ]


def _asks(question: Interrupt) -> str:
    if question.actions:
        return "; ".join(f"{action.name}({render.arguments(action.args)})" for action in question.actions)
    return _shown(question, 400)


def _shown(question: Interrupt, chars_max: int) -> str:
    if isinstance(question.payload, Unreadable):
        return "(cannot be read without the graph's own types)"
    return render.short(render.plain(question.payload), chars_max)


def _put(entry: Entry) -> None:
    prices = Settings.load().prices
    render.put_facts(
        {
            "thread": entry.run.thread_id,
            "graph": entry.run.graph,
            "run": entry.run.run_id,
            "state": entry.state,
            "cause": entry.run.cause or "",
            "since": render.moment(entry.run.updated_at),
            "will run": render.counted(entry.next_up),
            "happened": render.counted(entry.happened),
            "unknown": ", ".join(entry.unknown),
            "cost": usage_in_words(entry.cost, prices),
        }
    )
    for question in entry.questions:
        render.put("")
        facts = {"asks": question.interrupt_id, "since": render.moment(question.asked_at)}
        if question.deadline_at is not None and question.at_deadline is not None:
            facts["until"] = f"{render.moment(question.deadline_at)}, then {question.at_deadline.kind}"
        if question.for_whom:
            facts["of"] = question.for_whom
        if not question.actions:
            facts["what"] = _shown(question, 2000)
        render.put_facts(facts)
        for action in question.actions:
            args = json_module.dumps(render.plain(action.args), ensure_ascii=False)
            render.put(f"  call {action.tool_call_id}: {action.name} {args}   [{', '.join(action.allowed)}]")


def _record(entry: Entry) -> dict[str, Any]:
    return {
        "run": run_record(entry.run),
        "state": entry.state,
        "questions": [
            {
                **interrupt_record(question),
                "kind": question.kind,
                "actions": [
                    {"tool_call_id": a.tool_call_id, "name": a.name, "args": a.args, "allowed": a.allowed}
                    for a in question.actions
                ],
                "schema": question.schema,
                "digest": question.digest,
                "deadline_at": render.moment(question.deadline_at) if question.deadline_at is not None else None,
                "at_deadline": question.at_deadline,
                "for_whom": question.for_whom or None,
            }
            for question in entry.questions
        ],
        "will_run": entry.next_up,
        "happened": entry.happened,
        "unknown": entry.unknown,
        "usage": entry.cost,
    }


# -- one decision ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _By:
    """Who decides, and what is to be done then."""

    actor: str | None
    note: str | None
    go_on: bool
    graph: str | None
    owner: str
    store: str | None
    as_json: bool
    debug: bool


def _decide(question_id: str, decision: Any, by: _By) -> int:
    """
    Raises:
        InvalidDecisionError: it does not fit, or somebody was first.
    """
    with looking(by.store) as maybe:
        look, scope = must_be_there(maybe, question_id), Scope(by.owner)
        sweep(look.store, scope)
        question = _pending(look, scope, question_id)
        run = interrupts.decide(
            look.store,
            question.thread_id,
            question.interrupt_id,
            decision(question),
            actor=_name(by.actor),
            channel="inbox",
            owner=by.owner,
            note=by.note,
            shown=question.digest,
        )
    if by.as_json and not by.go_on:
        render.put_json(run_record(run), indent=2)
    say(f"recorded for {question.interrupt_id}; run {run.run_id} of thread {run.thread_id} is ready to go on")
    place = by.graph or run.graph
    if by.go_on:
        return run_command(place, thread=run.thread_id, go_on=True, store=by.store, json=by.as_json, debug=by.debug)
    again = f"ninelives run {by.graph or 'GRAPH'} --thread {run.thread_id} --continue"
    say(f"A process that waits for it goes on with it; or: {again}")
    return Exit.DONE


def _pending(look: Looking, scope: Scope, question_id: str) -> Interrupt:
    questions = look.store.perform(look.store.list_questions(scope))
    found = [each for each in questions if each.interrupt_id.startswith(question_id)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{question_id!r} begins {len(found)} questions' ids; nothing was decided. Say more of it.")
    _who_was_first(look, scope, question_id)
    raise InvalidDecisionError(f"interrupt {question_id!r} is not pending", [each.interrupt_id for each in questions])


def _who_was_first(look: Looking, scope: Scope, question_id: str) -> None:
    """
    Raises:
        InvalidDecisionError: it was answered before; says by whom.
    """
    for thread in look.store.perform(look.store.list_threads(scope, limit=THREADS_MAX)):
        for decision in look.store.perform(look.store.list_decisions(scope, thread.thread_id)):
            if decision.interrupt_id.startswith(question_id):
                by = decision.actor or "somebody"
                why = (
                    f"interrupt {decision.interrupt_id!r} is not pending: it was answered by {by} ({decision.channel})"
                )
                raise InvalidDecisionError(why, None, first=(decision.actor, decision.decided_at))


def _question(entries: Sequence[Entry], question_id: str) -> Interrupt:
    found = [q for entry in entries for q in entry.questions if q.interrupt_id.startswith(question_id)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{question_id!r} begins {len(found)} questions' ids. Say more of it.")
    raise NoCheckpointFoundError(question_id, what="question or thread", why="waits for nobody")


def _each(question: Interrupt, choice: Choice, *, everything: bool) -> Any:
    """The same for each tool call that the question is about, which must be meant if there are several."""
    if question.kind == "batch" and len(question.actions) > 1:
        if not everything:
            calls = ", ".join(f"{action.tool_call_id} ({action.name})" for action in question.actions)
            raise UsageError(
                f"it asks about {len(question.actions)} tool calls: {calls}. Nothing was decided. Say --all, or decide"
                f" each: ninelives inbox decide {question.interrupt_id[:12]} --approve CALL --reject CALL"
            )
        return {"decisions": [_raw(choice)] * len(question.actions)}
    return choice


def _raw(choice: Choice) -> Mapping[str, Any]:
    return {"type": choice.type, **({"message": choice.value} if choice.value else {})}


def _take(choices: dict[str, Choice], call_id: str, choice: Choice) -> None:
    if call_id in choices:
        raise UsageError(f"two decisions about {call_id!r}; nothing was decided.")
    choices[call_id] = choice


def _arguments(text: str, flag: str) -> Mapping[str, Any]:
    try:
        found = json_module.loads(text)
    except ValueError as wrong:
        raise UsageError(f"{flag}: no JSON ({wrong}); nothing was decided.") from wrong
    if not isinstance(found, dict):
        raise UsageError(f"{flag}: the arguments of a call are a JSON object; nothing was decided.")
    return found


def _value(text: str) -> Any:
    try:
        return json_module.loads(text)
    except ValueError:
        return text


def _name(actor: str | None) -> str:
    if actor:
        return actor
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def _graph_of(thread: str, graph: str | None, owner: str, store: str | None) -> str:
    if graph:
        return graph
    with looking(store) as maybe:
        return must_be_there(maybe, thread).thread(Scope(owner), thread).graph
