"""
The protected graph: a subclass of the compiled graph's own class, whose calls are runs.

What reads (`get_state`, `get_graph`, …) is LangGraph's own. What drives goes through admission and the runner; what
edits state takes the thread first, as a run of its own kind.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any, cast
from uuid import uuid4

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt, StateUpdate

from ninelives import _langgraph, effects
from ninelives.errors import InvalidDecisionError, LeaseLostError, MissingThreadError, UnfinishedRunError
from ninelives.model import NewRun, QueuedInput, Run, RunSpec, RunStatus, Unfinished
from ninelives.protect.admission import (
    Admitted,
    IfMissing,
    OnUnfinished,
    Protection,
    Request,
    abandon,
    admit,
    answered_elsewhere,
    find_unfinished,
    first_request,
    go_on,
    let_go,
    must_have,
    one_of,
    reading_graph,
    ready,
    retake,
    unfinished,
    with_worker,
)
from ninelives.protect.entries import context_fields, restored
from ninelives.protect.identity import checked
from ninelives.protect.loops import Loop, executors_here, our_loop
from ninelives.protect.waiting import OnWaiting
from ninelives.runner import AnyGraph, CheckedSaver, Drive, Driving, call_options, shielded

log = logging.getLogger(__name__)

ATTRIBUTE = "_ninelives"
RETAKES_MAX = 3
"""So often one call goes on after its lease has ended; a process that keeps losing it is too slow to be trusted."""


@cache
def protected_class(base: type[Any]) -> type[Any]:
    """
    The subclass for graphs of this class; one per class, so that `type(a) is type(b)` holds as before.

    The calls are copied into it rather than inherited beside `base`: with two bases its layout would differ, and the
    class of a copied graph could not be set to it.
    """
    calls = {name: value for name, value in vars(ProtectedCalls).items() if name not in ("__dict__", "__weakref__")}
    return type(f"Protected{base.__name__}", (base,), {**calls, "__module__": base.__module__, "_base": base})


class ProtectedCalls:
    """
    The calls of a protected graph. All take, beside LangGraph's own arguments:

    Args:
        thread: the thread's id, or "new" for a fresh one; or `config["configurable"]["thread_id"]` as ever.
        idempotency_key: the same key and request again is the same run: continued, or its recorded output.
        on_unfinished: "ask" (raise, the default), "continue", "start_over" or "abandon" what is unfinished there.
        on_waiting: what becomes of plain input on a thread that waits for an answer: "refuse" (raise, the default),
            "answer" (its text is the answer), "queue" (accepted, runs after) or "replace" (the question is closed).
        if_missing: "create" the thread, or "error".
        wait_s: seconds to wait for a thread that a live run holds.
        on_start: called with a `Started`, after the run was committed and before its first node.
        actor, note: who answers, and why; recorded with the decision that `Command(resume=…)` or `decide` makes.
        interrupt_id: the question that `Command(resume=…)` answers, where it does not name it itself.
        shown: the question's digest as whoever answers had it before them; refused if something else is asked now.

    Raises: MissingThreadError, NoCheckpointFoundError, GraphChangedError, ThreadBusyError, UnfinishedRunError,
        InvalidDecisionError, IdempotencyMismatchError, MissingEntryError, EffectOutcomeUnknownError, LeaseLostError.
    """

    _base: type[Any]

    # -- driving --------------------------------------------------------------------------------------------------

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        if self._inside(config, kwargs):
            return self._base.invoke(self, input, config, **_langgraphs(kwargs))
        key = _key_of_caller(self._p, kwargs)
        return self._loop.run(lambda: self._ainvoke(input, config, key, kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        if self._inside(config, kwargs):
            return await self._base.ainvoke(self, input, config, **_langgraphs(kwargs))
        return await self._ainvoke(input, config, _key_of_caller(self._p, kwargs), kwargs)

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        if self._inside(config, kwargs):
            yield from self._base.stream(self, input, config, **_langgraphs(kwargs))
            return
        key = _key_of_caller(self._p, kwargs)
        yield from self._loop.iterate(lambda: self._astream(input, config, key, kwargs))

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:
        if self._inside(config, kwargs):
            chunks = self._base.astream(self, input, config, **_langgraphs(kwargs))
        else:
            chunks = self._astream(input, config, _key_of_caller(self._p, kwargs), kwargs)
        async with _Closing(chunks) as parts:
            async for chunk in parts:
                yield chunk

    def continue_run(self, thread: str, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """
        Go on where the thread's run was cut off, failed or paused.

        A finished thread gives its state; one that waits for an answer gives its questions; neither runs anything.
        """
        return self.invoke(None, config, thread=thread, **kwargs)

    async def acontinue_run(self, thread: str, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """As `continue_run`, on the caller's loop."""
        return await self.ainvoke(None, config, thread=thread, **kwargs)

    def decide(
        self,
        thread: str,
        decision: Any,
        config: RunnableConfig | None = None,
        *,
        interrupt_id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """
        Answer a question, and go on with it.

        Args:
            decision: `approve()`, `edit(…)`, `reject(…)` or `respond(…)`; for a question about several tool calls a
                dict of them by tool call id; for a question of another kind any value.
            interrupt_id: needed where several questions are pending.

        Raises:
            InvalidDecisionError: it does not fit, or somebody was first; nothing was changed.
        """
        command = _answering(interrupt_id, decision)
        return self.invoke(command, config, thread=thread, interrupt_id=interrupt_id, **kwargs)

    async def adecide(
        self,
        thread: str,
        decision: Any,
        config: RunnableConfig | None = None,
        *,
        interrupt_id: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """As `decide`, on the caller's loop."""
        command = _answering(interrupt_id, decision)
        return await self.ainvoke(command, config, thread=thread, interrupt_id=interrupt_id, **kwargs)

    def ask_again(self, thread: str, *, by: str = "") -> list[str]:
        """
        Take back the answers on which the thread's run has failed, and ask again; gives the questions' ids.

        Raises:
            InvalidDecisionError: it has not failed, or on no answer.
        """
        return self._loop.run(lambda: self.aask_again(thread, by=by))

    async def aask_again(self, thread: str, *, by: str = "") -> list[str]:
        """As `ask_again`, on the caller's loop."""
        await ready(self._p)
        return await self._p.store.aperform(self._p.store.ask_again(self._p.scope, thread, by=by or "somebody"))

    def wait_for_answers(
        self, thread: str, config: RunnableConfig | None = None, *, timeout_s: float, **kwargs: Any
    ) -> Any:
        """
        Wait until what the thread asks has been answered by another process, then go on with that.

        Raises:
            TimeoutError: nobody has, in `timeout_s` seconds.
            SuspendTimeoutError: the question's own deadline has passed.
        """
        return self._loop.run(lambda: self.await_answers(thread, config, timeout_s=timeout_s, **kwargs))

    async def await_answers(
        self, thread: str, config: RunnableConfig | None = None, *, timeout_s: float, **kwargs: Any
    ) -> Any:
        """As `wait_for_answers`, on the caller's loop."""
        await answered_elsewhere(self._p, thread, timeout_s)
        return await self.ainvoke(None, config, thread=thread, **kwargs)

    async def _ainvoke(self, input: Any, config: Any, key: str | None, kwargs: dict[str, Any]) -> Any:
        request, options = self._request(input, config, key, kwargs)
        if request is None:
            return _refuse_interrupt(await self._unsaved().ainvoke(input, config, **options))
        again: Admitted | None = None
        retakes = RETAKES_MAX
        while True:
            admitted = again or await admit(self._p, request)
            if admitted.claim is None:
                return await self._recorded(admitted)
            driving, given = await self._driving(admitted, request)
            try:
                async with driving as drive:
                    if not (drive.waiting or drive.paused):
                        result = await drive.graph.ainvoke(drive.input, drive.config, **{**options, **given})
            except LeaseLostError:
                retakes -= 1
                if retakes < 0 or (again := await self._again(admitted, driving)) is None:
                    raise
                continue
            again = await self._goes_on(admitted, drive, request)
            if again is not None:
                continue
            if drive.waiting or drive.paused:
                return await self._recorded(Admitted(drive.run), drive.waiting)
            if not admitted.then_again:
                return result

    async def _astream(self, input: Any, config: Any, key: str | None, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        request, options = self._request(input, config, key, kwargs)
        if request is None:
            async for chunk in self._unsaved().astream(input, config, **options):
                yield _refuse_interrupt(chunk)
            return
        again: Admitted | None = None
        retakes = RETAKES_MAX
        while True:
            admitted = again or await admit(self._p, request)
            if admitted.claim is None:
                yield _as_chunk(await self._recorded(admitted), options)
                return
            driving, given = await self._driving(admitted, request)
            try:
                async with driving as drive:
                    if not (drive.waiting or drive.paused):
                        chunks = drive.graph.astream(drive.input, drive.config, **{**options, **given})
                        async with _Closing(chunks) as parts:
                            async for chunk in parts:
                                yield chunk
            except LeaseLostError:
                retakes -= 1
                if retakes < 0 or (again := await self._again(admitted, driving)) is None:
                    raise
                continue
            again = await self._goes_on(admitted, drive, request)
            if again is not None:
                continue
            if drive.waiting or drive.paused:
                yield _as_chunk(await self._recorded(Admitted(drive.run), drive.waiting), options)
            if not admitted.then_again:
                return

    async def _goes_on(self, admitted: Admitted, drive: Drive, request: Request) -> Admitted | None:
        """What the call goes on with by itself: what was asked is decided by rule, or an input waits for its turn."""
        if drive.paused:
            return None
        asks = bool(drive.waiting or drive.saver.asked)
        following = await go_on(self._p, request, asks=asks)
        if following is None:
            return None
        return replace(following, then_again=admitted.then_again)

    async def _again(self, admitted: Admitted, driving: Driving) -> Admitted | None:
        """
        The same run under a new claim, after this process was away for longer than its lease, a closed laptop say.

        None: somebody else has the run now, or has ended it, which is for the caller to know.
        """
        assert admitted.claim is not None
        await driving.drive.quiet()
        claim = await retake(self._p, admitted.claim)
        if claim is None:
            return None
        run = await self._p.store.aperform(self._p.store.get_run(self._p.scope, claim.lease.run_id))
        log.warning("run %s goes on: its lease had ended, and nobody had taken it over", run.run_id)
        return replace(admitted, run=run, claim=claim)

    async def _driving(self, admitted: Admitted, request: Request) -> tuple[Driving, dict[str, Any]]:
        """What drives the run that was admitted, and the options to call its graph with."""
        run, claim = admitted.run, admitted.claim
        assert run is not None
        assert claim is not None
        try:
            fields = context_fields(self.__dict__.get("context_schema"))
            config, context = restored(run.spec, request.config, request.context, self._p.supply, fields)
            driving = Driving(self._p.plan, claim, run, config, self._attributes(), executors_here())
        except BaseException:
            await let_go(claim, "an entry was missing")
            raise
        return driving, call_options(run, {"durability": "sync", "context": context})

    async def _recorded(self, admitted: Admitted, asked: Sequence[Interrupt] = ()) -> Any:
        """The state that a run left, as `invoke` would have returned it; with the questions, if it waits."""
        assert admitted.run is not None
        place: dict[str, Any] = {"thread_id": admitted.run.thread_id}
        if admitted.run.status is RunStatus.DONE and admitted.run.last_checkpoint:
            place["checkpoint_id"] = admitted.run.last_checkpoint
            await must_have(self._p, admitted.run.thread_id, admitted.run.last_checkpoint)
        state = await reading_graph(self._p).aget_state({"configurable": place})
        questions = [*asked, *(Interrupt(value=q.payload, id=q.interrupt_id) for q in admitted.questions)]
        return _output(self, state.values, questions)

    # -- what is unfinished -----------------------------------------------------------------------------------------

    def unfinished(self, thread: str) -> Unfinished | None:
        """What is unfinished on a thread, its cost, what would run again; None: nothing, or a live run is at it."""
        return self._loop.run(lambda: find_unfinished(self._p, thread))

    def start_over(self, thread: str, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the first input of the unfinished work once more, from the state that it began with; history is kept."""
        return self._loop.run(lambda: self.astart_over(thread, config, **kwargs))

    async def astart_over(self, thread: str, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """As `start_over`, on the caller's loop. Raises NoCheckpointFoundError where nothing is unfinished."""
        first = await first_request(self._p, thread)
        options = {**start_over_options(first, config), **kwargs}
        return await self.ainvoke(first.input, **options, thread=thread, on_unfinished="start_over")

    def abandon(self, thread: str, *, by: str = "") -> Run | None:
        """Close the unfinished run; what it has done stays for reading. None: there was none."""
        return self._loop.run(lambda: abandon(self._p, thread, by=by))

    def queued(self, thread: str) -> list[QueuedInput]:
        """Inputs that were accepted while the thread waited, in order; each runs when what is before it is over."""
        return self._loop.run(lambda: self.aqueued(thread))

    async def aqueued(self, thread: str) -> list[QueuedInput]:
        """As `queued`, on the caller's loop."""
        return await self._p.store.aperform(self._p.store.list_queued(self._p.scope, thread))

    # -- editing --------------------------------------------------------------------------------------------------

    def update_state(self, config: RunnableConfig, values: Any, as_node: Any = None, task_id: Any = None) -> Any:
        return self._loop.run(lambda: self.aupdate_state(config, values, as_node, task_id))

    async def aupdate_state(
        self, config: RunnableConfig, values: Any, as_node: Any = None, task_id: Any = None
    ) -> RunnableConfig:
        """As LangGraph's, but never beside a live run (ThreadBusyError)."""
        async with self._editing(config, as_node) as graph:
            values = _langgraph.with_message_ids(self._edited(config), values)
            updated: RunnableConfig = await graph.aupdate_state(config, values, as_node, task_id)
            return updated

    def bulk_update_state(self, config: RunnableConfig, supersteps: Any) -> Any:
        return self._loop.run(lambda: self.abulk_update_state(config, supersteps))

    async def abulk_update_state(self, config: RunnableConfig, supersteps: Any) -> RunnableConfig:
        """As LangGraph's, but never beside a live run (ThreadBusyError)."""
        as_nodes = [as_node for superstep in supersteps for _, as_node, *_ in superstep]
        async with self._editing(config, *as_nodes) as graph:
            edited = self._edited(config)
            stamped = [
                [StateUpdate(_langgraph.with_message_ids(edited, values), *rest) for values, *rest in superstep]
                for superstep in supersteps
            ]
            updated: RunnableConfig = await graph.abulk_update_state(config, stamped)
            return updated

    @asynccontextmanager
    async def _editing(self, config: RunnableConfig, *as_nodes: str | None) -> AsyncIterator[AnyGraph]:
        p = self._p
        thread_id = _thread_id(self._config, config)
        if p.ephemeral:
            raise MissingThreadError("with ephemeral=True there is no state that could be edited.")
        if thread_id is None:
            raise MissingThreadError
        new = NewRun(
            run_id=str(uuid4()),
            thread_id=checked(thread_id),
            graph=p.plan.name,
            spec=RunSpec(),
            driver="edit",
            may_create=p.if_missing == "create",
        )
        await self._must_be_applied(thread_id, config, as_nodes)
        admission = await with_worker(p, lambda worker: p.store.start_run(p.scope, new, worker))
        assert admission.lease is not None
        saver = CheckedSaver(p.store, plan=p.plan, owner=p.owner, lease=admission.lease, graph_fp=p.plan.fingerprint)
        status = RunStatus.FAILED
        try:
            yield _langgraph.with_saver(p.plan.graph, saver)
            status = RunStatus.DONE
        finally:
            await p.store.aperform(p.store.finish_run(admission.lease, status))

    def _edited(self, config: RunnableConfig) -> AnyGraph:
        """The graph whose state is edited: ours, or the one inside it whose namespace the config names."""
        graph = self._p.plan.graph
        if ns := _own_place(config):
            return _langgraph.all_graphs(graph).get("|".join(_langgraph.place_of(ns)[0]), graph)
        return graph

    async def _must_be_applied(self, thread_id: str, config: RunnableConfig, as_nodes: Sequence[str | None]) -> None:
        """
        A step that is half done, with results recorded that no checkpoint holds yet, cannot be edited: the edit would
        make a new step of it, in which what is recorded runs again. So would a graph inside that has begun; unless the
        edit stands for its result, or is made in it.
        """
        p = self._p
        if (config.get("configurable") or {}).get("checkpoint_id"):
            return
        head = await p.store.aperform(p.store.get_checkpoint(p.scope, thread_id, "", None))
        newest = await p.store.aperform(p.store.find_newest_run(p.scope, thread_id))
        if head is None or newest is None or newest.held or not newest.unfinished:
            return
        if _langgraph.finished_tasks(head.writes):
            found = await unfinished(p, newest, [])
            raise UnfinishedRunError(
                found, "its last step is half done: recorded results would run again after an edit. Continue it first."
            )
        if _own_place(config) or (inside := await self._begun_inside(thread_id, as_nodes)) is None:
            return
        raise UnfinishedRunError(
            await unfinished(p, newest, []),
            f"graph {inside!r} inside it has begun: what it has done would run again after an edit. Let it end first,"
            f" edit its own state (checkpoint_ns), or put its result in its place (as_node={inside!r}).",
        )

    async def _begun_inside(self, thread_id: str, as_nodes: Sequence[str | None]) -> str | None:
        """The node that is due and whose graph has recorded a step; None: there is none."""
        p = self._p
        snapshot = await reading_graph(p).aget_state({"configurable": {"thread_id": thread_id}})
        due = {task.id: task.name for task in snapshot.tasks if task.name not in as_nodes}
        for inner in await p.store.aperform(p.store.list_heads(p.scope, thread_id)) if due else ():
            _, tasks = _langgraph.place_of(inner.ns)
            if tasks and tasks[0] in due and inner.metadata.get("step", 0) > 0:
                return due[tasks[0]]
        return None

    # -- copies ---------------------------------------------------------------------------------------------------

    def copy(self, update: dict[str, Any] | None = None) -> Any:
        """A protected copy; LangGraph's own would pass our attribute to a constructor that does not know it."""
        clone = copy.copy(self)
        clone.__dict__.update(update or {})
        return clone

    # -- helpers --------------------------------------------------------------------------------------------------

    @property
    def _p(self) -> Protection:
        protection: Protection = self.__dict__[ATTRIBUTE]
        return protection

    @property
    def _config(self) -> RunnableConfig | None:
        return self.__dict__.get("config")

    @property
    def _loop(self) -> Loop:
        return our_loop(self._p.new_executor)

    def _inside(self, config: RunnableConfig | None, kwargs: Mapping[str, Any]) -> bool:
        """The call is LangGraph's, as a node or subgraph of a running graph; one that names a thread is a run."""
        return not kwargs.get("thread") and _langgraph.inside_langgraph(self._config, config)

    def _attributes(self) -> dict[str, Any]:
        """What `with_config` and the like have changed on this copy since the graph was prepared."""
        kept = {k: v for k, v in self.__dict__.items() if k not in (ATTRIBUTE, "nodes", "checkpointer")}
        return kept

    def _unsaved(self) -> AnyGraph:
        graph: AnyGraph = _langgraph.with_saver(self._p.plan.graph, None)
        graph.__dict__.update(self._attributes())
        return graph

    def _request(
        self, input: Any, config: RunnableConfig | None, key: str | None, kwargs: Mapping[str, Any]
    ) -> tuple[Request | None, dict[str, Any]]:
        """The call as a request, and the options that are LangGraph's; no request for a graph that saves nothing."""
        p, options = self._p, _langgraphs(kwargs)
        p.keeper.must_serve()
        _must_be_known(self._base, options)
        options.pop("durability", None)
        if p.ephemeral:
            return None, options
        config = _with_bound(self._config, _langgraph.outside_config(config))
        thread_id = kwargs.get("thread") or _thread_id(config)
        if not thread_id:
            raise MissingThreadError
        if kwargs.get("thread") == "new":
            thread_id = str(uuid4())
        request = Request(
            input=input,
            thread_id=checked(thread_id),
            config=config,
            context=options.pop("context", None),
            key=key,
            on_unfinished=one_of("on_unfinished", kwargs.get("on_unfinished") or p.on_unfinished, OnUnfinished),
            on_waiting=one_of("on_waiting", kwargs.get("on_waiting") or p.on_waiting, OnWaiting),
            if_missing=one_of("if_missing", kwargs.get("if_missing") or p.if_missing, IfMissing),
            wait_s=p.wait_s if kwargs.get("wait_s") is None else kwargs["wait_s"],
            interrupt_before=options.pop("interrupt_before", None),
            interrupt_after=options.pop("interrupt_after", None),
            on_start=kwargs.get("on_start"),
            actor=kwargs.get("actor") or "",
            note=kwargs.get("note"),
            shown=kwargs.get("shown"),
            interrupt_id=kwargs.get("interrupt_id"),
            new_thread=kwargs.get("thread") == "new",
        )
        return request, options


OURS = frozenset(
    {
        "thread",
        "idempotency_key",
        "on_unfinished",
        "on_waiting",
        "if_missing",
        "wait_s",
        "on_start",
        "actor",
        "note",
        "shown",
        "interrupt_id",
    }
)


def _answering(interrupt_id: str | None, decision: Any) -> Command[Any]:
    if interrupt_id is None and decision is None:
        raise InvalidDecisionError("to answer with None, name the question: interrupt_id=…", None)
    return Command(resume=decision)


def _langgraphs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in OURS}


def _known(base: type[Any]) -> frozenset[str]:
    return frozenset(name for call in (base.invoke, base.astream) for name in inspect.signature(call).parameters) | {
        "checkpoint_during"
    }


def _must_be_known(base: type[Any], options: Mapping[str, Any]) -> None:
    """LangGraph passes over arguments that it does not know: a mistyped `idempotency_key` would be a lost promise."""
    for name in options:
        if name not in _known(base):
            near = difflib.get_close_matches(name, [*OURS, *_known(base)], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{name!r} is not an argument of this call; nothing ran.{hint}")


def _with_bound(bound: RunnableConfig | None, config: RunnableConfig) -> RunnableConfig:
    """The call's config over what `with_config` has bound, as far as a run is made of it; LangGraph merges the rest."""
    known: dict[str, Any] = dict(bound or {})
    merged: dict[str, Any] = {**config}
    for name in ("configurable", "metadata"):
        if known.get(name):
            merged[name] = {**known[name], **(merged.get(name) or {})}
    if "recursion_limit" in known:
        merged.setdefault("recursion_limit", known["recursion_limit"])
    return cast(RunnableConfig, merged)


def _own_place(config: RunnableConfig) -> str:
    """The graph inside that a config is about."""
    return str((config.get("configurable") or {}).get("checkpoint_ns") or "")


def _thread_id(*configs: RunnableConfig | None) -> str | None:
    found = None
    for config in configs:
        found = ((config or {}).get("configurable") or {}).get("thread_id", found)
    return None if found in (None, "") else str(found)


def _key_of_caller(p: Protection, kwargs: Mapping[str, Any]) -> str | None:
    """The key that was given; else, for a call made in a node or tool of a run of ours, one that its place gives."""
    return kwargs.get("idempotency_key") or effects.call_key(f"call of {p.plan.name}")


def _output(graph: Any, values: Any, questions: Sequence[Interrupt]) -> Any:
    wanted = graph.output_channels
    if isinstance(wanted, str):
        return values.get(wanted) if isinstance(values, dict) else values
    result = {name: values[name] for name in wanted if name in values} if isinstance(values, dict) else values
    return {**result, "__interrupt__": list(questions)} if questions and isinstance(result, dict) else result


def _as_chunk(values: Any, options: Mapping[str, Any]) -> Any:
    """A recorded state in the shape that the asked stream mode gives its last "values"."""
    if options.get("version") == "v2":
        return {"type": "values", "ns": (), "data": values}
    chunk = ("values", values) if isinstance(options.get("stream_mode"), list | tuple) else values
    if not options.get("subgraphs"):
        return chunk
    return ((), *chunk) if isinstance(chunk, tuple) else ((), chunk)


def _refuse_interrupt(result: Any) -> Any:
    """A question that nobody could ever answer is refused when it is asked."""
    if isinstance(result, dict) and result.get("__interrupt__"):
        raise MissingThreadError(
            "the graph asks a question, but with ephemeral=True nothing is kept that an answer could go on from."
        )
    return result


class _Closing:
    """
    A stream that is closed with the block that reads it: `async with _Closing(chunks) as chunks`.

    Its generator is not made known to the event loop, which at its end closes all that it knows at once, each under the
    hands of the one that reads it.
    """

    def __init__(self, chunks: Any) -> None:
        self._chunks = chunks

    async def __aenter__(self) -> _Closing:
        return self

    def __aiter__(self) -> _Closing:
        return self

    def __anext__(self) -> Any:
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)
        try:
            return self._chunks.__anext__()
        finally:
            sys.set_asyncgen_hooks(*hooks)

    async def __aexit__(self, *error: Any) -> None:
        await shielded(self._aclose())

    async def _aclose(self) -> None:
        await self._chunks.aclose()


def start_over_options(first: RunSpec, config: RunnableConfig | None = None) -> dict[str, Any]:
    """What was stored beside the first input, as options of a call: entries, limit, breakpoints."""
    given: dict[str, Any] = dict(config or {})
    for name in ("configurable", "metadata"):
        given[name] = {**getattr(first, name), **(given.get(name) or {})}
    if first.recursion_limit is not None:
        given.setdefault("recursion_limit", first.recursion_limit)
    stored = {name: getattr(first, name) for name in ("context", "interrupt_before", "interrupt_after")}
    return {"config": given, **{name: value for name, value in stored.items() if value is not None}}
