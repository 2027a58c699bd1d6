"""
An outside act, once per key.

`@effect` marks a function or a tool as an act that cannot be taken back by forgetting it: a payment, a mail. Inside a
run its intent is durable before the call and its result after, so that a step which runs again gets the result instead
of acting again. Cut off between the two, the outcome is *unknown*: a `probe` may ask the outside world; without one the
run stops and a person settles it. Outside a run the plain function is called.

The one window that remains is between our last check of the lease and the call itself. The receiver closes it by
`idempotency_key()`, which stays the same for every attempt of one act.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args, overload
from urllib.parse import quote
from uuid import uuid4
from weakref import WeakKeyDictionary

from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp

from ninelives import _langgraph
from ninelives.config import EffectRule
from ninelives.errors import (
    ConfigError,
    EffectOutcomeUnknownError,
    InvalidDecisionError,
    LeaseLostError,
    NineLivesError,
    StoreUnavailableError,
    UnknownTypeError,
)
from ninelives.model import AtDeadline, Effect, EffectState, Lease, NewEffect, Scope
from ninelives.store import Act, Store

log = logging.getLogger(__name__)

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any] | BaseTool)


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """A probe's answer: it happened, with this result."""

    result: T


@dataclass(frozen=True, slots=True)
class NotDone:
    """A probe's answer: it did not happen, and the earlier attempt can no longer make it happen."""


class CallTimeoutError(TimeoutError):
    """An async call was cut off at its `timeout_s`. What it had set going may still happen: its outcome is unknown."""


Unknown = Literal["probe", "ask", "repeat", "skip"]
"""What becomes of an act whose outcome nobody knows."""
OnFork = Literal["recorded", "live", "ask"]
SKIPPED = "It is not known whether this was done. It was not done again."


@dataclass(frozen=True, slots=True)
class Marking:
    """What is declared about an act; see `effect`."""

    name: str
    key: Callable[..., str] | None = None
    probe: Callable[..., Any] | None = None
    not_done_on: tuple[type[BaseException], ...] = ()
    unknown: Unknown = "ask"
    timeout_s: float | None = None
    on_fork: OnFork = "recorded"
    skipped: Any = SKIPPED
    in_thread: bool = False
    """An async call that a thread does the work of, which nobody can cut off."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What was said of a question beside what it asks: how long it may wait, and what becomes of it then."""

    deadline_s: float | None = None
    at_deadline: AtDeadline | None = None
    remind_s: float | None = None


@dataclass(slots=True, eq=False, weakref_slot=True)
class Journal:
    """Where the acts of one claim are recorded; ambient while the run is driven."""

    store: Store
    lease: Lease
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _ordinals: dict[str, Counter[tuple[Any, ...]]] = field(default_factory=dict)
    _own: dict[str, Future[None]] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None
    """Raises a stop if the claim no longer stands; for a call that has waited for its thread."""
    stopped: Exception | None = None
    """The first reason for which one of our checks stopped the run; a node may have swallowed it."""
    records_models: bool = False
    """Whether what models say is recorded at once."""
    terms: dict[str, Terms] = field(default_factory=dict)
    """Of questions that are being asked, by interrupt id."""

    def stop(self, error: Exception) -> _langgraph.StopDriving:
        """To be raised: ends the run at the next edge, whatever else fails beside it."""
        with self._mutex:
            self.stopped = self.stopped or error
        return _langgraph.StopDriving(error)

    def begin_task(self, task_id: str) -> None:
        """An attempt of a task begins: its calls are counted from the start, as in every attempt before."""
        with self._mutex:
            self._ordinals.pop(task_id, None)

    def ordinal(self, task_id: str, equals: tuple[Any, ...]) -> int:
        """How many equal calls this attempt of the task has made before."""
        with self._mutex:
            counts = self._ordinals.setdefault(task_id, Counter())
            counts[equals] += 1
            return counts[equals] - 1

    def begin(self, key: str) -> Future[None] | None:
        """Ours to perform (None), or the future of the call in this process, of whatever run, that is at it."""
        with _in_flight_mutex:
            acts = _in_flight.setdefault(self.store, {})
            if (self.lease.owner, key) in acts:
                return acts[self.lease.owner, key]
            acts[self.lease.owner, key] = self._own[key] = Future()
            return None

    def end(self, key: str) -> None:
        with _in_flight_mutex:
            del _in_flight[self.store][self.lease.owner, key]
            ended = self._own.pop(key)
        ended.set_result(None)

    def in_flight(self) -> list[Future[None]]:
        """The ends of the acts that this claim is at; a tool node that fails leaves those of its other calls behind."""
        with _in_flight_mutex:
            return list(self._own.values())


_in_flight: WeakKeyDictionary[Store, dict[tuple[str, str], Future[None]]] = WeakKeyDictionary()
"""The acts that this process is at, by owner and key: a business key is shared by runs, so this is no run's own."""
_in_flight_mutex = threading.Lock()


def acts_in_flight(store: Store) -> bool:
    """Whether this process is performing an outside act for a run of this store, of whatever claim."""
    with _in_flight_mutex:
        return bool(_in_flight.get(store))


WHY_CHARS_MAX = 500
DEADLINE_MARGIN_S = 5.0
"""So long after its `timeout_s` an attempt counts as over: a clock may be off, and a cut-off takes a moment."""
MARKED = "__ninelives_effect__"
"""Attribute of a function that is an outside act."""
FINISH_PAUSES_S = (0.05, 0.2, 0.5, 1.0)

JOURNAL_KEY = "__ninelives"
"""Entry of `config["configurable"]` that carries the journal to every node and tool, also of nested graphs."""

_key: ContextVar[str | None] = ContextVar("ninelives_idempotency_key", default=None)


def idempotency_key() -> str:
    """
    The key of the act that is being performed, to hand to the receiver (Stripe, SES…): equal for all its attempts.

    Also inside a probe. Outside a run each call has a key of its own.

    Raises:
        NineLivesError: asked outside an `@effect` call.
    """
    key = _key.get()
    if key is None:
        raise NineLivesError("idempotency_key() was asked for outside a call of an @effect function or its probe.")
    return key


@overload
def effect(
    act: F,
    *,
    key: Callable[..., str] | None = None,
    probe: Callable[..., Any] | None = None,
    not_done_on: Sequence[type[BaseException]] = (),
    name: str | None = None,
    unknown: Unknown | None = None,
    timeout_s: float | None = None,
    on_fork: OnFork = "recorded",
    skipped: Any = SKIPPED,
) -> F: ...
@overload
def effect(
    *,
    key: Callable[..., str] | None = None,
    probe: Callable[..., Any] | None = None,
    not_done_on: Sequence[type[BaseException]] = (),
    name: str | None = None,
    unknown: Unknown | None = None,
    timeout_s: float | None = None,
    on_fork: OnFork = "recorded",
    skipped: Any = SKIPPED,
) -> Callable[[F], F]: ...


def effect(
    act: Any = None,
    *,
    key: Callable[..., str] | None = None,
    probe: Callable[..., Any] | None = None,
    not_done_on: Sequence[type[BaseException]] = (),
    name: str | None = None,
    unknown: Unknown | None = None,
    timeout_s: float | None = None,
    on_fork: OnFork = "recorded",
    skipped: Any = SKIPPED,
) -> Any:
    """
    Mark a function, sync or async, or a LangChain tool as an outside act.

    Args:
        key: gives a business key from the arguments, such as an order id: the act happens once per key and owner,
            whatever thread asks. Without it each tool call, or each call in a node, is an act of its own.
        probe: takes the same arguments and returns `Done(result)` or `NotDone()`; asked when a process died in the
            middle, and only once that attempt is known to be over.
        not_done_on: exceptions of the call after which it certainly did not happen. Any other exception leaves the
            outcome unknown.
        name: the act's name in keys and listings; the function's or tool's own by default. Renaming makes new keys.
        unknown: what becomes of an act whose outcome nobody knows. "ask" (without a probe the default): the run stops
            until a person settles it. "probe": as `probe` says. "repeat": it is declared safe, and done again under the
            same idempotency key. "skip": it is not done again, and the call gives `skipped`; it stays unknown.
        timeout_s: the call's own limit in seconds. An async call is cut off then, and its outcome is unknown. Of a sync
            call, which nobody can cut off, it is your word that it has a limit of its own within. A while after it
            (`DEADLINE_MARGIN_S`) the attempt counts as over, whatever became of its process.
        on_fork: where a thread begins anew from an older checkpoint (a start-over, a fork), and another branch has done
            the same at the same place: "recorded" takes over what became of it, "live" acts anew, "ask" asks a person.
        skipped: what "skip" gives.

    Raises:
        ConfigError: the arguments do not fit together.

    Raises (from a call inside a run):
        LeaseLostError: the run belongs to somebody else now; the act was not performed.
        EffectOutcomeUnknownError: ends the run as interrupted; see `settle_effect`.
    """
    policy = unknown or ("probe" if probe else "ask")
    _must_fit_together(policy, probe, timeout_s, on_fork)

    def mark(target: Any) -> Any:
        marking = Marking(name or _name_of(target), key, probe, tuple(not_done_on), policy, timeout_s, on_fork, skipped)
        return _marked_tool(target, marking) if isinstance(target, BaseTool) else _marked(target, marking)

    return mark if act is None else mark(act)


def _must_fit_together(unknown: str, probe: Any, timeout_s: float | None, on_fork: str) -> None:
    if unknown not in get_args(Unknown):
        raise ConfigError(f"unknown={unknown!r} is not a choice; allowed: {', '.join(get_args(Unknown))}.")
    if on_fork not in get_args(OnFork):
        raise ConfigError(f"on_fork={on_fork!r} is not a choice; allowed: {', '.join(get_args(OnFork))}.")
    if (unknown == "probe") != (probe is not None):
        raise ConfigError(f"unknown={unknown!r} and probe={probe!r} do not fit together.")
    if timeout_s is not None and not timeout_s > 0:
        raise ConfigError(f"timeout_s={timeout_s!r} must be more than 0 seconds.")


def marked_by_settings(tool: BaseTool, rules: Mapping[str, EffectRule]) -> BaseTool:
    """The tool as an outside act, where the settings say that it is one; what is marked in code stays as it is."""
    rule = rules.get(tool.name)
    if rule is None or any(hasattr(getattr(tool, name, None), MARKED) for name in _bodies(tool)):
        return tool
    policy = rule.unknown or ("probe" if rule.probe else "ask")
    key = _argument(rule.key) if rule.key else None
    marking = Marking(
        tool.name, key=key, probe=rule.probe, unknown=policy, timeout_s=rule.timeout_s, on_fork=rule.on_fork
    )
    return _marked_tool(tool, marking)


def _argument(name: str) -> Callable[..., str]:
    """A business key: the value of this argument."""

    def key(*args: Any, **kwargs: Any) -> str:
        value = kwargs.get(name)
        return "" if value is None else str(value)

    return key


def settle_effect(
    store: Store, key: str, outcome: Done[Any] | NotDone, *, by: str, why: str, owner: str = ""
) -> Effect:
    """
    Record what really became of an act whose outcome is unknown; then the run can be continued.

    Args:
        key: of the effect, as the error or `Store.list_effects` names it.
        outcome: `Done(result)` (the result that the agent is to see) or `NotDone()`: it will be performed again.
        by: who found out; `why`: how.

    Raises:
        NoCheckpointFoundError: no such effect.
        InvalidDecisionError: its outcome is known already, or the process that asked may still be at it.
    """
    store.bury_the_dead()
    state, result = (EffectState.DONE, outcome.result) if isinstance(outcome, Done) else (EffectState.NOT_DONE, None)
    return store.perform(store.settle_effect(Scope(owner), key, state, result, by=by, why=why))


# -- marking ---------------------------------------------------------------------------------------------------


def _name_of(target: Any) -> str:
    return str(target.name if isinstance(target, BaseTool) else target.__name__)


def _marked(act: Callable[..., Any], marking: Marking) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(act):

        @functools.wraps(act)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            return await _adrive(_flow(act, marking, args, kwargs))

        setattr(acall, MARKED, marking)
        return acall

    @functools.wraps(act)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _drive(_flow(act, marking, args, kwargs))

    setattr(call, MARKED, marking)
    return call


def _marked_tool(tool: BaseTool, marking: Marking) -> BaseTool:
    """A copy of the tool whose own body is the act, so that it is one wherever the tool is called."""
    copy = tool.model_copy()
    if tool.response_format == "content_and_artifact" and marking.skipped == SKIPPED:
        marking = replace(marking, skipped=(SKIPPED, None))
    for name in _bodies(tool):
        own = replace(marking, in_thread=name == "_arun" and type(tool)._arun is BaseTool._arun)
        # Past pydantic: a class that keeps its body in a method has no field to set.
        object.__setattr__(copy, name, _marked(getattr(tool, name), own))
    return copy


def _bodies(tool: BaseTool) -> list[str]:
    """Names of what the tool does."""
    return [name for name in ("func", "coroutine") if callable(getattr(tool, name, None))] or ["_run", "_arun"]


# -- one call ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Call:
    """Call this function; async ones are awaited by `_adrive`."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: str
    timeout_s: float | None = None


_Step: TypeAlias = Act[Any] | _Call | Future[None] | float
_Flow: TypeAlias = Generator[_Step, Any, Any]


def _flow(act: Callable[..., Any], marking: Marking, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Flow:
    """One call of a marked function, as steps that `_drive` and `_adrive` carry out."""
    book, task = current_journal(), _langgraph.current_task()
    if book is None or task is None:
        return (yield _Call(act, args, kwargs, uuid4().hex))
    new = _new_effect(act, marking, args, kwargs, book, task)
    if _key.get() == new.key:
        raise NineLivesError(f"effect {new.name!r} calls itself under its own key {new.key!r}; it would wait for ever.")
    while (busy := book.begin(new.key)) is not None:
        yield busy
    try:
        return (yield from _once(act, marking, args, kwargs, book, new))
    except LeaseLostError as lost:
        raise book.stop(lost) from lost
    finally:
        book.end(new.key)


def _once(
    act: Callable[..., Any],
    marking: Marking,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    book: Journal,
    new: NewEffect,
) -> _Flow:
    while True:
        found: Effect = yield book.store.open_effect(book.lease, new)
        if found.args_digest != new.args_digest:
            log.warning("effect %r (key %s) was recorded with other arguments; its record counts", new.name, new.key)
        if found.fresh:
            return (yield from _perform(act, marking, args, kwargs, book, found))
        if found.state is EffectState.DONE:
            return found.result
        if (why := _why_it_stops(marking, book, found)) is not None:
            raise book.stop(EffectOutcomeUnknownError(found.name, found.key, why))
        if marking.unknown == "skip":
            log.warning("effect %r (key %s) is unknown, and was skipped", new.name, new.key)
            return marking.skipped
        by, state, result, why = yield from _what_became(marking, args, kwargs, found)
        try:
            yield book.store.settle_effect(Scope(book.lease.owner), new.key, state, result, by=by, why=why)
        except InvalidDecisionError as error:
            log.info("effect %r was settled otherwise meanwhile: %s", new.name, error)


def _perform(
    act: Callable[..., Any],
    marking: Marking,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    book: Journal,
    found: Effect,
) -> _Flow:
    """The act itself, after its intent was recorded under a lease that still stood."""

    def end(state: EffectState, result: Any = None, why: str | None = None, *, cut_off: bool = False) -> Act[Effect]:
        return book.store.finish_effect(book.lease, found, state, result, why=why, cut_off=cut_off)

    try:
        result = yield _Call(act, args, kwargs, found.sent_as, None if marking.in_thread else marking.timeout_s)
    except asyncio.CancelledError:
        try:
            yield end(EffectState.UNKNOWN, why="the call was cut off", cut_off=True)
        except NineLivesError as error:
            log.warning("that effect %r was cut off could not be recorded: %s", found.name, error)
        raise
    except CallTimeoutError as error:
        yield end(EffectState.UNKNOWN, why=str(error), cut_off=True)
        raise
    except GraphBubbleUp:
        # It asks (interrupt) or is being stopped before it acted; the next attempt begins again.
        yield end(EffectState.NOT_DONE, why="it stopped to ask")
        raise
    except marking.not_done_on as error:
        yield end(EffectState.NOT_DONE, why=repr(error)[:WHY_CHARS_MAX])
        raise
    except Exception as error:
        yield end(EffectState.UNKNOWN, why=f"the call raised {error!r}"[:WHY_CHARS_MAX])
        raise
    try:
        ending = end(EffectState.DONE, result)
    except UnknownTypeError as error:
        yield end(EffectState.UNKNOWN, why=f"it was done, but its result cannot be stored: {error}")
        raise
    ended: Effect = yield from _persistently(ending, lambda: end(EffectState.DONE, result))
    if ended.by == book.lease.worker_id:
        return result
    log.warning("effect %r (key %s) ended when its time was long over; what was settled counts", found.name, found.key)
    return ended.result if ended.state is EffectState.DONE else result


def _persistently(ending: Act[Effect], again: Callable[[], Act[Effect]]) -> _Flow:
    """The act is done and its result in hand: a store that is out of breath for a moment must not make it unknown."""
    for pause_s in FINISH_PAUSES_S:
        try:
            return (yield ending)
        except StoreUnavailableError as error:
            log.warning("the result of an effect could not be recorded (%s); trying again", error)
            yield pause_s
            ending = again()
    return (yield ending)


def _why_it_stops(marking: Marking, book: Journal, found: Effect) -> str | None:
    """Why only a person, or time, can tell what becomes of an act whose outcome is unknown; None: its policy can."""
    elsewhere = found.state is EffectState.INTENT and found.epoch != book.lease.epoch
    asks = marking.unknown == "ask" or (marking.on_fork == "ask" and found.inherits is not None)
    if not asks and (found.over or (marking.unknown == "skip" and not elsewhere)):
        return None
    if elsewhere:
        return "another run is performing it now; continue this one when that is done"
    if not found.over:
        why = f"{found.why}; it" if found.why else "the process that asked for it is not known to be dead, so it"
        if found.deadline_at is None:
            return f"{why} may still be at it"
        over_at = datetime.fromtimestamp(found.deadline_at + DEADLINE_MARGIN_S, UTC)
        return f"{why} may still be at it until {over_at:%Y-%m-%d %H:%M:%S} UTC"
    return found.why or "an earlier attempt in this process was cut off"


def _what_became(
    marking: Marking, args: tuple[Any, ...], kwargs: Mapping[str, Any], found: Effect
) -> Generator[_Step, Any, tuple[str, EffectState, Any, str]]:
    """What its policy lets be recorded of an act whose outcome is unknown: by whom, how it ended, its result, why."""
    if marking.probe is None:
        return "policy", EffectState.NOT_DONE, None, "it is declared safe to be repeated"
    answer = yield _Call(marking.probe, args, kwargs, found.sent_as)
    if isinstance(answer, Done):
        return "probe", EffectState.DONE, answer.result, "the probe found it done"
    if isinstance(answer, NotDone):
        return "probe", EffectState.NOT_DONE, None, "the probe found it not done"
    raise NineLivesError(f"the probe of effect {found.name!r} returned {answer!r}; it must be Done(…) or NotDone().")


# -- carrying out the steps ------------------------------------------------------------------------------------------


def current_journal() -> Journal | None:
    """The journal of the run that this code is driven by; None outside a run of ours."""
    found = _langgraph.ambient_entry(JOURNAL_KEY)
    return found if isinstance(found, Journal) else None


def call_key(what: str) -> str | None:
    """
    A key for a call of `what` that is made in a node or tool of a run of ours: the effect's own inside an effect, else
    one of the place. None outside a run.
    """
    book, task = current_journal(), _langgraph.current_task()
    if book is None or task is None:
        return None
    equals = (task.path, task.call_key, what)
    return (
        _key.get()
        or f"nl-{_hash(task.thread_id, task.stored_task_id, *equals, book.ordinal(task.stored_task_id, equals))}"
    )


def _drive(flow: _Flow) -> Any:
    """The steps, one after the other; what a step raises is raised in the flow."""
    try:
        step = next(flow)
        while True:
            try:
                answer = _carry_out(step)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        return end.value


async def _adrive(flow: _Flow) -> Any:
    try:
        step = next(flow)
        while True:
            try:
                answer = await _acarry_out(step)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        return end.value


def _carry_out(step: _Step) -> Any:
    if isinstance(step, _Call):
        token = _key.set(step.key)
        try:
            return step.function(*step.args, **step.kwargs)
        finally:
            _key.reset(token)
    if isinstance(step, Future):
        return step.result()
    if isinstance(step, float):
        return time.sleep(step)
    book = current_journal()
    assert book is not None
    return book.store.perform(step)


async def _acarry_out(step: _Step) -> Any:
    if isinstance(step, _Call):
        token = _key.set(step.key)
        try:
            async with asyncio.timeout(step.timeout_s) as limit:
                result = step.function(*step.args, **step.kwargs)
                return await result if inspect.isawaitable(result) else result
        except TimeoutError as error:
            if limit.expired():
                raise CallTimeoutError(f"the call did not end within {step.timeout_s:g} s") from error
            raise
        finally:
            _key.reset(token)
    if isinstance(step, Future):
        return await asyncio.wrap_future(step)
    if isinstance(step, float):
        return await asyncio.sleep(step)
    book = current_journal()
    assert book is not None
    return await book.store.aperform(step)


# -- keys --------------------------------------------------------------------------------------------------------


def _new_effect(
    act: Callable[..., Any],
    marking: Marking,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    book: Journal,
    task: _langgraph.TaskInfo,
) -> NewEffect:
    """
    The act's key. Its place is the task (the same in every process that resumes it), the tool call if it is in one,
    name and arguments; then how many equal ones came before. The arguments, because calls that run side by side come in
    another order each time; so they must be the same whenever the step runs again, or a `key=` must name the act.
    """
    digest = _args_digest(act, args, kwargs, book)
    equals = (task.path, task.call_key, digest.hex(), marking.name)
    ordinal = book.ordinal(task.stored_task_id, equals)
    place = _hash(task.thread_id, task.stored_task_id, *equals, ordinal)
    return NewEffect(
        key=f"nl-{place}" if marking.key is None else _own_key(marking, args, kwargs),
        name=marking.name,
        checkpoint_id=task.checkpoint_id,
        ns=task.checkpoint_ns,
        node=task.path[-1] if task.path else "",
        task_id=task.stored_task_id,
        call_id=task.tool_call_id,
        ordinal=ordinal,
        args_digest=digest,
        lineage=_hash(*equals, ordinal),
        timeout_s=marking.timeout_s,
        on_fork=marking.on_fork if marking.key is None else "live",
    )


def _own_key(marking: Marking, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The business key; name and key are quoted, so that no two pairs of them look alike."""
    assert marking.key is not None
    own = marking.key(*args, **kwargs)
    if not isinstance(own, str) or not own:
        raise NineLivesError(
            f"key= of effect {marking.name!r} returned {own!r}; it must be a text that names the act, which was not"
            " performed."
        )
    return f"own:{quote(marking.name, safe='')}:{quote(own, safe=' @+.,/')}"


def _args_digest(act: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], book: Journal) -> bytes:
    """A digest of the arguments by name; one that cannot be stored (a client, a runtime) counts by its type."""
    named = inspect.signature(act).bind(*args, **kwargs).arguments
    digests = [_digest(name, value, book) for name, value in sorted(named.items())]
    return hashlib.blake2b(b"".join(digests), digest_size=16).digest()


def _digest(name: str, value: Any, book: Journal) -> bytes:
    try:
        return book.store.request_digest([name, value])
    except NineLivesError:
        return book.store.request_digest([name, f"{type(value).__module__}.{type(value).__qualname__}"])


def _hash(*parts: Any) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
