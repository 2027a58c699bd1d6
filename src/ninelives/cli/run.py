"""
`ninelives run`: one agent in this terminal.

A thread whose last run is not finished is never gone on with, nor begun anew, without being told which: by a flag, or
by the person at the terminal. Without either, nothing is changed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shlex
import traceback
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NoReturn

from cyclopts import Parameter

from ninelives.cli import options, render
from ninelives.cli.drive import Outcome, drive
from ninelives.cli.exits import Exit, StoppedAtOnce, UsageError
from ninelives.cli.graphs import in_user_code, load_graph, protected, protection_of
from ninelives.cli.inputs import answers_of, input_of
from ninelives.cli.live import teller_for
from ninelives.cli.progress import Progress, Teller
from ninelives.cli.recorded import Recorded, recorded_before, recorded_record
from ninelives.cli.records import run_record, usage_in_words
from ninelives.cli.render import say
from ninelives.cli.unfinished import FLAGS, Choice, asked_for, in_words, settling, unfinished_record
from ninelives.config import Price, Settings
from ninelives.errors import (
    EffectOutcomeUnknownError,
    NineLivesError,
    NoCheckpointFoundError,
    ThreadBusyError,
    UnfinishedRunError,
)
from ninelives.model import Run, RunStatus, Started, Unfinished
from ninelives.protect.admission import Protection, abandon, answered_elsewhere, find_unfinished, first_request
from ninelives.protect.graph import start_over_options


def run(
    graph: Annotated[str, Parameter(help="file.py:attr, module:attr, or a name in langgraph.json.")],
    input: Annotated[
        str | None, Parameter(help="JSON if it starts with {, @file, else one user message.", show_default=False)
    ] = None,
    /,
    *,
    thread: Annotated[
        str | None, Parameter(help="The thread's id; 'new' for a fresh one. Needed.", show_default=False)
    ] = None,
    idempotency_key: Annotated[
        str | None, Parameter(help="The same key and INPUT again is the same run.", show_default=False)
    ] = None,
    go_on: Annotated[
        bool, Parameter(name="--continue", negative="", help="Go on with what is unfinished.", show_default=False)
    ] = False,
    start_over: Annotated[
        bool,
        Parameter(negative="", help="Begin what is unfinished anew; its history is kept.", show_default=False),
    ] = False,
    abandon: Annotated[
        bool, Parameter(negative="", help="Give up what is unfinished; it stays for reading.", show_default=False)
    ] = False,
    answer: Annotated[
        list[str] | None,
        Parameter(help="[ID=]VALUE, JSON or text, for what the graph asks.", negative="", show_default=False),
    ] = None,
    wait: Annotated[
        float | None,
        Parameter(help="Seconds to stay for an answer that is given elsewhere, and go on then.", show_default=False),
    ] = None,
    store: options.StoreUrl = None,
    json: options.AsJson = False,
    plain: options.Plain = False,
    debug: options.Debug = False,
) -> int:
    """
    Run an agent in this terminal: its steps and tool calls as they happen, then its answer.

    Ctrl-C stops after the step; run it again to go on.
    """
    flags: dict[Choice, bool] = {"continue": go_on, "start_over": start_over, "abandon": abandon}
    chosen = [choice for choice, on in flags.items() if on]
    _refuse_contradictions(input, chosen, answer, thread)
    loaded = load_graph(graph)
    settings = Settings.load()
    agent = protected(loaded, store, settings)
    call = _Call(
        agent=agent,
        place=graph,
        thread=str(thread),
        text=input,
        key=idempotency_key,
        choice=chosen[0] if chosen else None,
        answers=tuple(answer or ()),
        wait_s=wait,
        store=store,
        as_json=json,
        plain=plain,
        debug=debug,
        prices=settings.prices,
    )
    with asyncio.Runner() as runner:
        # Sync tools take the loop's own threads, and need one more to hand over their result: with the few that Python
        # gives a loop, what is done would wait unrecorded behind what has not begun. Also, these are counted per run.
        runner.get_loop().set_default_executor(call.protection.plan.executor)
        return _Run(call, runner).carry_out()


def _refuse_contradictions(
    text: str | None, chosen: list[Choice], answer: list[str] | None, thread: str | None
) -> None:
    if not thread:
        raise UsageError(
            "no thread was named; nothing ran. A thread is what the agent remembers of one conversation: name it, such"
            " as --thread user_42, or --thread new for a fresh one."
        )
    if thread == "new" and (chosen or answer):
        raise UsageError("--thread new is a fresh thread: nothing on it is unfinished or asked. Name the thread.")
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(FLAGS[choice] for choice in chosen)}: choose one of them.")
    if answer and (text is not None or chosen):
        raise UsageError(f"--answer goes on with what was asked; leave {'INPUT' if text else FLAGS[chosen[0]]} out.")


@dataclass(frozen=True)
class _Call:
    """The command line, read."""

    agent: Any
    place: str
    thread: str
    text: str | None
    key: str | None
    choice: Choice | None
    answers: tuple[str, ...]
    wait_s: float | None
    store: str | None
    as_json: bool
    plain: bool
    debug: bool
    prices: Mapping[str, Price]

    @property
    def protection(self) -> Protection:
        return protection_of(self.agent)


class _Run:
    """One `ninelives run`, up to its exit code."""

    def __init__(self, call: _Call, runner: asyncio.Runner) -> None:
        self.call, self.p, self._runner = call, call.protection, runner
        self.thread = call.thread
        self.recorded: Recorded | None = None

    def carry_out(self) -> int:
        choice, answers = self.call.choice, self.call.answers
        while True:
            try:
                return self._once(choice, answers)
            except UnfinishedRunError as error:
                self._show(error.unfinished)
                choice, answers = asked_for(error.unfinished)
                if choice is None and not answers:
                    return self._left(error.unfinished)

    # -- what is to be done ----------------------------------------------------------------------------------------

    def _once(self, choice: Choice | None, answers: tuple[str, ...]) -> int:
        """
        Raises:
            UnfinishedRunError: it must be chosen what becomes of the thread's last run.
        """
        call = self.call
        if answers:
            unfinished = self._unfinished()
            return self._drive(answers_of(answers, unfinished.questions if unfinished else ()))
        if call.text is not None:
            if choice is not None:
                self._must_be_there()
            return self._drive(input_of(call.text, call.agent), on_unfinished=choice or "ask")
        if choice == "continue":
            return self._drive(None)
        unfinished = self._unfinished() or self._nothing_unfinished()
        if choice == "abandon":
            return self._abandon()
        if choice == "start_over":
            return self._start_over()
        raise UnfinishedRunError(unfinished)

    def _must_be_there(self) -> None:
        """Whoever names what is to become of unfinished work means a thread that is there: a typo is no new one."""
        store, scope, thread_id = self.p.store, self.p.scope, self.call.thread
        if store.perform(store.find_thread(scope, thread_id)) is None:
            raise NoCheckpointFoundError(thread_id, near=store.perform(store.near_threads(scope, thread_id)))

    def _unfinished(self) -> Unfinished | None:
        return self._runner.run(find_unfinished(self.p, self.call.thread))

    def _nothing_unfinished(self) -> NoReturn:
        store, scope, thread_id = self.p.store, self.p.scope, self.call.thread
        run = store.perform(store.find_newest_run(scope, thread_id))
        if run is not None and run.held:
            self._who_holds(run.run_id)
            raise ThreadBusyError(thread_id, run.run_id)
        if run is None:
            raise NoCheckpointFoundError(thread_id, near=store.perform(store.near_threads(scope, thread_id)))
        raise UsageError(f"no INPUT, and nothing is unfinished on thread {thread_id!r}; nothing ran.")

    def _abandon(self) -> int:
        run = self._runner.run(abandon(self.p, self.call.thread, by="ninelives run --abandon"))
        if run is not None:
            say(f"abandoned run {run.run_id} of thread {run.thread_id}; what it did stays for reading")
        return Exit.DONE

    def _start_over(self) -> int:
        """With the input that the unfinished chain of runs began with, and whatever was stored beside it."""
        first = self._runner.run(first_request(self.p, self.call.thread))
        return self._drive(first.input, on_unfinished="start_over", **start_over_options(first))

    # -- doing it --------------------------------------------------------------------------------------------------

    def _drive(self, given: Any, **options: Any) -> int:
        call = self.call
        teller = teller_for(call.prices, plain=call.plain or call.as_json)
        progress = Progress(teller, as_json=call.as_json)
        options = {**options, "thread": self.thread, "idempotency_key": call.key}
        before = self._runner.run(recorded_before(self.p, call.thread))
        begins = partial(self._begins, teller, before)
        try:
            with closing(teller):
                outcome = self._runner.run(drive(call.agent, given, progress, begins, **options))
        except StoppedAtOnce as stop:
            say(f"stopped. Go on with: {self._again('--continue')}")
            # Not by way of sys.exit, which would wait for the call that nobody wants to wait for.
            os._exit(stop.code)
        except EffectOutcomeUnknownError as error:
            self._how_to_settle(error)
            raise
        except ThreadBusyError as error:
            self._who_holds(error.run_id)
            raise
        except NineLivesError:
            raise
        except Exception as error:
            return self._failed(error)
        return self._ended(outcome)

    def _begins(self, teller: Teller, before: Recorded | None, started: Started) -> None:
        self.thread = started.thread_id
        self.recorded = before if before is not None and self._chain_of(started.run_id) == before.chain else None
        teller.admitted(started, self.recorded)
        if self.call.as_json:
            render.put_json({"kind": "run", **dataclasses.asdict(started)})
            if self.recorded is not None:
                render.put_json(recorded_record(self.recorded))

    def _ended(self, outcome: Outcome) -> int:
        run = self._newest_run()
        if outcome.stopped is not None:
            self._tell_cost("so far", run)
            say(f"stopped after the step; nothing recorded is lost. Go on with: {self._again('--continue')}")
            self._tell_result(run, None)
            return outcome.stopped
        if outcome.questions:
            return self._asks(run, outcome.questions)
        if run is not None and run.status is RunStatus.INTERRUPTED:
            self._tell_cost("so far", run)
            say(f"paused at a breakpoint. Go on with: {self._again('--continue')}")
            self._tell_result(run, outcome.values)
            return Exit.ASKS
        if not outcome.ran:
            say("nothing had to run: this is the recorded answer")
        else:
            self._tell_cost("done", run)
        self._tell_result(run, outcome.values)
        return Exit.DONE

    def _asks(self, run: Run | None, questions: list[Any]) -> int:
        self._tell_cost("so far", run)
        for question in questions:
            say(f"asks {question.id}: {render.short(render.plain(question.value), 400)}")
            if self.call.as_json:
                render.put_json({"kind": "question", "interrupt_id": question.id, "payload": question.value})
        self._tell_result(run, None)
        self._how_to_answer([question.id for question in questions])
        return Exit.ASKS if self.call.wait_s is None else self._wait_for_answer(self.call.wait_s)

    def _wait_for_answer(self, wait_s: float) -> int:
        say(f"waiting for an answer from elsewhere, such as: ninelives inbox list (for {wait_s:g} s; Ctrl-C leaves it)")
        try:
            self._runner.run(answered_elsewhere(self.p, self.thread, wait_s))
        except TimeoutError as error:
            say(str(error))
            return Exit.ASKS
        return self._drive(None, wait_s=wait_s)  # whoever has answered may be at it

    def _failed(self, error: Exception) -> int:
        if self.call.debug:
            traceback.print_exception(error)
        say(f"the graph failed: {in_user_code(error)}")
        self._tell_cost("so far", self._newest_run())
        say(f"What was recorded is kept. Try the failed step again with: {self._again('--continue')}")
        return Exit.GRAPH_FAILED

    def _tell_result(self, run: Run | None, values: Any) -> None:
        if self.call.as_json:
            status = run_record(run) if run is not None else None
            render.put_json({"kind": "result", "thread_id": self.thread, "run": status, "output": values})
        elif values is not None:
            render.put(render.answer_of(values))

    def _chain_of(self, run_id: str) -> str:
        return self.p.store.perform(self.p.store.get_run(self.p.scope, run_id)).chain

    def _newest_run(self) -> Run | None:
        return self.p.store.perform(self.p.store.find_newest_run(self.p.scope, self.thread))

    def _tell_cost(self, word: str, run: Run | None) -> None:
        """What the chain of runs has cost, all its lives together, and what of it was not run again in this one."""
        if run is not None:
            usage = self.p.store.perform(self.p.store.chain_usage(self.p.scope, run.chain))
            replayed = f"; not run again: {self.recorded.in_numbers()}" if self.recorded is not None else ""
            say(f"{word}: {usage_in_words(usage, self.call.prices)}{replayed}")

    # -- saying what to do -----------------------------------------------------------------------------------------

    def _again(self, *more: str) -> str:
        """The command that goes on, to be copied."""
        store = ("--store", self.call.store) if self.call.store else ()
        return shlex.join(("ninelives", "run", self.call.place, "--thread", self.thread, *store, *more))

    def _show(self, unfinished: Unfinished) -> None:
        if self.call.as_json:
            render.put_json(unfinished_record(unfinished))
        for line in in_words(unfinished, self.call.prices):
            say(line)

    def _left(self, unfinished: Unfinished) -> int:
        """Nobody chose: nothing was changed, and this is how to choose."""
        if unfinished.run.ready and self.call.wait_s is not None and self.call.text is None:
            return self._drive(None, wait_s=self.call.wait_s)  # it was answered before we looked
        if unfinished.questions:
            self._how_to_answer([question.interrupt_id for question in unfinished.questions])
            if self.call.wait_s is not None and self.call.text is None:
                return self._wait_for_answer(self.call.wait_s)
            return Exit.ASKS if self.call.text is None else Exit.UNFINISHED
        say("Nothing ran, nothing was changed. Choose:")
        for flag, what in (
            ("--continue", "go on from the last recorded step"),
            ("--start-over", "begin it anew from where the thread stood before; history is kept"),
            ("--abandon", "give it up; what it did stays for reading"),
        ):
            say(f"  {self._again(flag)}    {what}")
        return Exit.UNFINISHED

    def _how_to_answer(self, interrupt_ids: list[str]) -> None:
        say("Answer with JSON or text; nothing runs until then:")
        for interrupt_id in interrupt_ids:
            answer = "VALUE" if len(interrupt_ids) == 1 else f"{interrupt_id}=VALUE"
            say(f"  {self._again('--answer')} {answer}")
        say("Tool calls are decided one by one, here or in another terminal: ninelives inbox --help")

    def _how_to_settle(self, error: EffectOutcomeUnknownError) -> None:
        say(f"act {error.name!r}, key {error.key!r}: find out whether it happened, then record that and go on.")
        why = ("--why", "HOW YOU KNOW")
        say(f"  it happened:        {settling(self.p, error.key, '--done', '--result', 'THE RESULT', *why)}")
        say(f"  it did not happen:  {settling(self.p, error.key, '--not-done', *why)}")
        say(f"  then:               {self._again('--continue')}")

    def _who_holds(self, run_id: str) -> None:
        store = self.p.store
        run = store.perform(store.get_run(self.p.scope, run_id))
        for worker in store.perform(store.list_workers()):
            if worker.worker_id == run.worker_id:
                say(f"run {run_id} is held by process {worker.pid} on {worker.host}")
