"""
`protect`: an existing graph, safe against being killed, in this process and without any service.

    agent = protect(graph, "sqlite:///agents.db", name="researcher")
    agent.invoke({"messages": [...]}, thread="user_42")
"""

from __future__ import annotations

import copy
import difflib
import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar, cast

from langchain_core.tools import BaseTool
from langgraph.pregel import Pregel

from ninelives import _langgraph, memo
from ninelives.approvals import Approvals
from ninelives.config import EffectsSettings, Settings
from ninelives.effects import current_journal
from ninelives.errors import ConfigError
from ninelives.interrupts import DECISIONS, Choice, tools_of
from ninelives.protect.admission import IfMissing, OnUnfinished, Protection, one_of
from ninelives.protect.graph import ATTRIBUTE, protected_class
from ninelives.protect.identity import thread_id
from ninelives.protect.keepers import keeper_of, shutdown
from ninelives.protect.waiting import OnWaiting
from ninelives.runner import CheckedSaver, Plan
from ninelives.store import Store

log = logging.getLogger(__name__)

G = TypeVar("G", bound=Pregel[Any, Any, Any, Any])
Fidelity = Literal["report", "strict"]

_named: dict[tuple[int, str], str] = {}
_mutex = threading.Lock()


def protect(
    graph: G | Callable[[], G],
    store: str | Store | None = None,
    *,
    name: str | None = None,
    owner: str = "",
    on_unfinished: OnUnfinished = "ask",
    on_waiting: OnWaiting | None = None,
    if_missing: IfMissing = "create",
    wait_s: float = 0.0,
    allow: Iterable[type] = (),
    keep: Iterable[str] = (),
    supply: Mapping[str, Callable[[], Any]] | None = None,
    fidelity: Fidelity | None = None,
    auto_approve: bool | None = None,
    replace_saver: bool = False,
    ephemeral: bool = False,
    settings: Settings | None = None,
) -> G:
    """
    Make a compiled graph survive its process.

    Args:
        graph: a compiled graph, or a function that makes one.
        store: a URL (`sqlite:///agents.db`), an open store, or None for the one of `ninelives.toml` or
            `NINELIVES_STORE` (`sqlite:///ninelives.db` by default).
        name: what threads know the graph by; needed where several unnamed graphs share a store.
        owner: whose threads; `''` where there is one user.
        on_unfinished, on_waiting, if_missing, wait_s: defaults for the calls; see `ProtectedCalls`. on_waiting None:
            what the settings say.
        allow: further classes that may be in the state, beside those that its schema names.
        keep: names of `configurable` and `context` entries that may be stored with a run.
        supply: functions that give an entry anew in each process: the place for secrets.
        fidelity: what becomes of a value that would not come back as it is: "report" (the log names it, once) or
            "strict" (FidelityError; for all graphs in the store). None: what the settings say.
        auto_approve: approve every tool call that asks for leave, as a script does; recorded as decided by that rule.
            None: what the settings say.
        replace_saver: the graph has a checkpointer compiled in; leave it aside.
        ephemeral: run without saving anything.

    Returns:
        A graph of a subclass of the graph's own class. The original is not changed.

    Raises:
        ConfigError: a saver is compiled in, a name is missing, a setting is wrong.
        UnsupportedVersionError: the installed LangGraph lacks something that we build on.
        StoreUnavailableError, StoreCorruptError, SchemaVersionError: as `open_store`.
    """
    _langgraph.check_version()
    one_of("on_unfinished", on_unfinished, OnUnfinished)
    one_of("if_missing", if_missing, IfMissing)
    settings = settings or Settings.load()
    on_waiting = one_of("on_waiting", on_waiting or settings.questions.on_input, OnWaiting)
    approvals = Approvals.of(settings.approvals, settings.questions, imported, auto_approve=auto_approve)
    strict = one_of("fidelity", fidelity or settings.state.fidelity, Fidelity) == "strict"
    compiled = _compiled(graph, replace_saver=replace_saver)
    keeper = keeper_of(store if store is not None else settings.store, settings)
    keeper.store.allow_types(Choice, *_langgraph.schema_types(compiled), *allow, *map(imported, settings.state.allow))
    if strict:
        keeper.store.be_strict()
    if settings.effects.model == "recorded":
        keeper.store.allow_types(*memo.STORED)
        memo.record_models()
    supply = supply if supply is not None else {k: imported(v) for k, v in settings.config.supply.items()}
    new_executor = partial(_langgraph.RunExecutor, settings.run.sync_threads, token=_run_of_caller, check=_may_begin)
    executor = new_executor()
    description = _langgraph.describe_graph(compiled)
    graph_name = name or compiled.get_name()
    frequency = settings.state.of(graph_name).snapshot_frequency
    plan = Plan(
        graph=_langgraph.prepared(compiled, executor, frequency=frequency),
        name=graph_name,
        fingerprint=_langgraph.fingerprint(compiled, description),
        executor=executor,
        keep=frozenset(keep) | frozenset(settings.config.store),
        replay_max=settings.state.replay_max,
        effects=_with_probes(settings.effects),
        approvals=approvals,
        tools=tools_of(description),
    )
    _tools_must_be_there(settings, compiled)
    _reviews_must_ask(compiled)
    _guarded_tools_must_be_there(settings, plan.tools)
    _must_be_told_apart(plan, keeper.store, named=name is not None)
    keeper.store.perform(keeper.store.note_graph(plan.fingerprint, plan.name, description))
    if untracked := _langgraph.untracked_channels(compiled):
        log.warning("graph %r: %s is not kept (UntrackedValue) and is gone after a kill", plan.name, untracked)
    if unsaved := _langgraph.subgraphs_without_saver(compiled):
        log.warning("graph %r: cut off inside %s, it begins there anew (checkpointer=False)", plan.name, unsaved)
    log.info("graph %r keeps its threads in %s (%s)", plan.name, keeper.store.url, keeper.store.durability)
    protection = Protection(
        plan=plan,
        keeper=keeper,
        owner=owner,
        on_unfinished=on_unfinished,
        on_waiting=on_waiting,
        if_missing=if_missing,
        wait_s=wait_s,
        supply=supply,
        new_executor=new_executor,
        recursion_limit=settings.run.recursion_limit,
        ephemeral=ephemeral,
    )
    protected: Any = copy.copy(compiled)
    protected.__class__ = protected_class(cast(Any, type(compiled)))
    protected.checkpointer = None if ephemeral else CheckedSaver(keeper.store, plan=plan, owner=owner, keep=plan.keep)
    protected.__dict__[ATTRIBUTE] = protection
    return cast(G, protected)


def imported(place: str) -> Any:
    """
    What a setting names as `module:name`.

    Raises:
        ConfigError: there is no such thing.
    """
    module, _, attribute = place.partition(":")
    try:
        found: Any = __import__(module, fromlist=["_"])
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{place!r} in ninelives.toml cannot be imported: {error}.") from error
    return found


def _compiled(graph: Any, *, replace_saver: bool) -> Any:
    compiled = graph if isinstance(graph, Pregel) else graph() if callable(graph) else graph
    if inspect.isawaitable(compiled) or not isinstance(compiled, Pregel):
        if inspect.iscoroutine(compiled):
            compiled.close()
        raise ConfigError(
            f"protect() takes a compiled graph or a plain function that returns one, not {type(compiled).__name__};"
            " call .compile() on a StateGraph first."
        )
    if ATTRIBUTE in compiled.__dict__:
        raise ConfigError("the graph is protected already; protect the plain graph.")
    if compiled.checkpointer not in (None, False) and not replace_saver:
        raise ConfigError(
            f"the graph has a {type(compiled.checkpointer).__name__} compiled in, which would not be used; compile it"
            " without a checkpointer, or pass replace_saver=True."
        )
    return compiled


def _with_probes(settings: EffectsSettings) -> EffectsSettings:
    """A probe that cannot be imported is found now, not when it is needed."""
    rules = {
        name: replace(rule, probe=imported(rule.probe)) if isinstance(rule.probe, str) else rule
        for name, rule in settings.tools.items()
    }
    return replace(settings, tools=rules)


def _tools_must_be_there(settings: Settings, graph: Any) -> None:
    """
    A rule for a tool that no graph has is a mistyped one, and a call that nobody guards.

    Raises:
        ConfigError: a tool has no such argument as its rule takes the business key from.
    """
    graphs = _langgraph.all_graphs(graph).values()
    tools: dict[str, BaseTool] = {}
    for node in (node for one in graphs for node in one.nodes.values()):
        tools |= _langgraph.tools_of(node.bound)
    for name, rule in settings.effects.tools.items():
        if name in tools and rule.key is not None and rule.key not in tools[name].args:
            has = ", ".join(tools[name].args) or "none"
            raise ConfigError(f"[effects.tools] key = {rule.key!r}: tool {name!r} has no such argument; it has {has}.")
        if name not in tools:
            near = difflib.get_close_matches(name, tools, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            log.warning("[effects.tools] names %r, which is no tool of graph %r%s", name, graph.get_name(), hint)


def _guarded_tools_must_be_there(settings: Settings, tools: Iterable[str]) -> None:
    """
    A tool of another graph is none of ours; one that is spelt almost like ours would be a gate that is quietly off.

    Raises:
        ConfigError: it is spelt almost like one of this graph's tools.
    """
    named = settings.approvals.tools
    for name in named.keys() - {*tools}:
        near = [one for one in difflib.get_close_matches(name, {*tools}, n=3, cutoff=0.8) if one not in named]
        if near:
            raise ConfigError(
                f"[approvals.tools] names {name!r}, which is no tool of this graph. Did you mean {near[0]!r}? If it is"
                f' one of another graph, say what holds for this one, too: {near[0]} = "graph".'
            )


def _reviews_must_ask(graph: Any) -> None:
    """
    A mistyped kind of decision could never be made, and a mistyped tool would never be asked about.

    Raises:
        ConfigError: there is no such kind of decision.
    """
    graphs = _langgraph.all_graphs(graph).values()
    tools = {name for one in graphs for node in one.nodes.values() for name in _langgraph.tools_of(node.bound)}
    for name, allowed in _langgraph.reviewed_tools(graph):
        for kind in allowed:
            if kind not in DECISIONS:
                raise ConfigError(
                    f"interrupt_on of {name!r} allows {kind!r}, which is no decision; allowed: {', '.join(DECISIONS)}."
                )
        if name not in tools:
            near = difflib.get_close_matches(name, tools, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            log.warning("interrupt_on names %r, which is no tool of graph %r%s", name, graph.get_name(), hint)


def _must_be_told_apart(plan: Plan, store: Store, *, named: bool) -> None:
    place = (id(store), plan.name)
    with _mutex:
        known = _named.setdefault(place, plan.fingerprint)
    if known != plan.fingerprint and not named:
        raise ConfigError(
            f"two different graphs would both be known as {plan.name!r} in {store.url}, and take each other's threads;"
            " give each a name=."
        )


def _may_begin() -> None:
    if book := current_journal():
        book.check()


def _run_of_caller() -> str | None:
    book = current_journal()
    return book.lease.run_id if book else None


__all__ = ["protect", "shutdown", "thread_id"]
