"""
The records that the store gives out, and the rules about them that need no store.

All are frozen; moments end in `_at` (UTC seconds by the store's clock), lengths of time in `_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Owner = str
"""Whose thread it is; `''` where there is one user."""


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    INTERRUPTED = "interrupted"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"


CLOSED = frozenset({RunStatus.DONE, RunStatus.CANCELLED, RunStatus.ABANDONED, RunStatus.EXPIRED})
"""A thread whose newest run is in one of these takes new input without a question."""

Driver = Literal["caller", "worker", "edit"]
"""Who advances the run: the process that called, any worker, or one state edit (`update_state`, prune)."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose rows an act may see: one owner's, or (`owner=None`) the whole store's."""

    owner: Owner | None = ""


SYSTEM = Scope(None)
ONE_USER = Scope("")


@dataclass(frozen=True, slots=True)
class WorkerLease:
    """A process's right to be believed alive until `expires_at`."""

    worker_id: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class Worker:
    worker_id: str
    host: str
    pid: int
    started_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class Thread:
    owner: Owner
    thread_id: str
    graph: str
    state: Literal["open", "moved", "erased"]
    created_at: float
    updated_at: float
    thread_no: int = field(repr=False)
    checkpoints: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """
    What pruning a thread would take away.

    Attributes:
        checkpoints: that would go.
        kept: that would stay.
        bytes: of content that would go, about: what stays is packed anew.
    """

    checkpoints: int = 0
    kept: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """
    What a store takes on the disk.

    Attributes:
        bytes: of all its files.
        free: of them, that hold nothing any more and have not been given back.
        gives_back: whether they can be, without writing the store anew.
    """

    bytes: int = 0
    free: int = 0
    gives_back: bool = True


@dataclass(frozen=True, slots=True)
class Bookmark:
    """
    How far putting a store under its current key has come: in which walk, in which table, after which row.

    `found`: this walk has come by a value that was under an older key.
    """

    walk: int = 1
    table: int = 0
    after: tuple[Any, ...] | None = None
    found: bool = False


@dataclass(frozen=True, slots=True)
class Resealed:
    """
    One step of putting a store under its current key.

    Attributes:
        key: the current key's name.
        what: kind of the values that were looked at, such as "checkpoints".
        values: so many of them.
        resealed: so many that were under an older key, and are not any more.
        walk: the number of the walk through all values that this was a step of.
        after: where to go on; None: all is done.
    """

    key: str
    what: str
    values: int
    resealed: int
    walk: int
    after: Bookmark | None


COUNTS = ("steps", "model_calls", "tokens_in", "tokens_out", "tool_calls", "active_s")
"""What a run's row counts."""


def _sum(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run has cost so far; counts across crashes."""

    steps: int = 0
    model_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tool_calls: int = 0
    active_s: float = 0.0
    by_model: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """Calls, tokens in, tokens out of each model, where it is known which one answered."""

    def __add__(self, other: Usage) -> Usage:
        models = {
            name: _sum(self.by_model.get(name, (0, 0, 0)), other.by_model.get(name, (0, 0, 0)))
            for name in {**self.by_model, **other.by_model}
        }
        counts = {name: getattr(self, name) + getattr(other, name) for name in COUNTS}
        return Usage(**counts, by_model=models)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in COUNTS)


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a stored value that this program may not load; `error` says which class it would need."""

    error: Exception


@dataclass(frozen=True, slots=True)
class RunSpec:
    """
    A run request, complete enough for another process to carry it out.

    `withheld` names the config and context entries (`context.name`) that the call used and that may not be stored: a
    later process must be given them again. `from_base`: begin at the run's `base`, not at the head.
    """

    input: Any = None
    configurable: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    context: Any = None
    recursion_limit: int | None = None
    interrupt_before: Sequence[str] | Literal["*"] | None = None
    interrupt_after: Sequence[str] | Literal["*"] | None = None
    withheld: tuple[str, ...] = ()
    from_base: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """
    One request to advance a thread until it ends, fails or interrupts.

    `continues` names the run whose question this one answers; the first of such a chain is `chain`. `base` is the
    checkpoint that was head when the chain began (None: the thread was empty): where a start-over begins.
    """

    run_id: str
    owner: Owner
    thread_id: str
    graph: str
    status: RunStatus
    driver: Driver
    spec: RunSpec
    chain: str
    continues: str | None
    replaces: str | None
    base: str | None
    key: str | None
    request: bytes
    attempt: int
    epoch: int
    worker_id: str | None
    worker_alive: bool
    cause: str | None
    last_checkpoint: str | None
    usage: Usage
    created_at: float
    updated_at: float
    seq: int
    run_no: int = field(repr=False)

    @property
    def held(self) -> bool:
        """A live process is advancing it now."""
        return self.status is RunStatus.RUNNING and self.worker_alive

    @property
    def cut_off(self) -> bool:
        """It was running, or was let go at a step boundary, and no process has it."""
        return not self.held and self.status in (RunStatus.RUNNING, RunStatus.QUEUED, RunStatus.RETRYING)

    @property
    def ready(self) -> bool:
        """A decision has made it, and nothing of it has begun."""
        return self.status is RunStatus.QUEUED and self.continues is not None and not self.usage.steps

    @property
    def unfinished(self) -> bool:
        """A new input on this thread would drop something: it is cut off, failed, or waits for an answer."""
        return self.status not in CLOSED and self.driver != "edit"


@dataclass(frozen=True, slots=True)
class Lease:
    """A claim: one worker's right to advance one run. `(run_id, epoch)` goes with every write."""

    run_id: str
    epoch: int
    owner: Owner
    thread_id: str
    worker_id: str
    run_no: int = field(repr=False)
    thread_no: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of a run request: `lease` is None where it had been made before (`run` says how it stands)."""

    run: Run
    lease: Lease | None
    created: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """What `on_start=` is told, after the run was committed and before its first node."""

    thread_id: str
    run_id: str
    created: bool


@dataclass(frozen=True, slots=True)
class NewRun:
    """A request to be admitted. `request` is its digest: the same key with another digest is refused."""

    run_id: str
    thread_id: str
    graph: str
    spec: RunSpec
    request: bytes = b""
    key: str | None = None
    driver: Driver = "caller"
    may_create: bool = False
    closes: str | None = None
    replaces: str | None = None
    base: str | None = None
    take_head_as_base: bool = True
    supersedes: bool = False
    """The questions of the run that it closes are superseded, not withdrawn."""


@dataclass(frozen=True, slots=True)
class QueuedInput:
    """An input accepted while its thread waited: it becomes the run `run_id` when what is before it is over."""

    run_id: str
    owner: Owner
    thread_id: str
    graph: str
    key: str | None
    request: bytes
    spec: RunSpec
    queued_at: float


@dataclass(frozen=True, slots=True)
class Lapsed:
    """
    What became of a question whose time was over.

    Attributes:
        what: an outcome of `AtDeadline`, "reminded", or "withdrawn": nobody asks it any more.
        run_id: of the run that goes on with it, or that has ended with it.
    """

    owner: Owner
    thread_id: str
    interrupt_id: str
    what: str
    run_id: str | None = None


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """
    One checkpoint with what was written under it.

    `writes` are `(task_id, channel, value)`, in the order in which a superstep applies them (path, id, index).
    """

    thread_id: str
    ns: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: list[tuple[str, str, Any]]
    seq: int
    run_id: str | None
    graph_fp: str | None
    created_at: float


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What is unfinished on a thread, what it has cost, and what would run again: shown before anybody chooses."""

    run: Run
    questions: tuple[Interrupt, ...] = ()
    would_run_again: tuple[str, ...] = ()
    usage: Usage = Usage()
    unknown_effects: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.questions:
            asked = ", ".join(f"{q.interrupt_id!r}: {q.payload!r}" for q in self.questions)
            return (
                f"thread {self.run.thread_id!r} waits for an answer ({asked}); nothing ran."
                " Answer it with Command(resume=...), or pass on_unfinished='start_over' or 'abandon'."
            )
        again = f" {', '.join(self.would_run_again)} would run again." if self.would_run_again else ""
        why = f" ({self.run.cause})" if self.run.cause else ""
        state = "cut off" if self.run.cut_off else self.run.status
        return (
            f"thread {self.run.thread_id!r} has an unfinished run {self.run.run_id!r}: "
            f"{'answered, but not continued yet' if self.run.ready else state}{why},"
            f" with {self.usage.steps} step(s) begun,"
            f" {self.usage.model_calls} model call(s) and {self.usage.tokens_in + self.usage.tokens_out} tokens.{again}"
            " Nothing ran. Choose on_unfinished='continue', 'start_over' or 'abandon'."
        )


class EffectState(StrEnum):
    INTENT = "intent"
    DONE = "done"
    NOT_DONE = "not_done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Effect:
    """
    An outside act under its key.

    `fresh` is True for the one caller that may now perform it. `holder_alive`: the process that asked is not known to
    be dead (a stopped one is not), so it may still be at it. `claim_stands`: the run that asked is still being driven
    by it. `inherits`: key of the act on another branch of the thread whose outcome counts for this one, too; `sent_as`:
    the key that its receiver knows it by, which is that one's where it may have been sent there.
    """

    key: str
    name: str
    owner: Owner
    thread_id: str
    run_id: str | None
    epoch: int
    state: EffectState
    result: Any
    attempt: int
    args_digest: bytes
    call_id: str | None
    by: str | None
    why: str | None
    created_at: float
    settled_at: float | None
    holder_alive: bool
    claim_stands: bool
    effect_no: int = field(repr=False)
    node: str = ""
    task_id: str = ""
    deadline_at: float | None = None
    overdue: bool = False
    inherits: str | None = None
    sent_as: str = ""
    fresh: bool = False

    @property
    def over(self) -> bool:
        """
        The last attempt cannot make it happen any more: it reported its own end, its process is known to be dead, or
        the call's own limit has passed by a margin.
        """
        return self.by is not None or not self.holder_alive or self.overdue


@dataclass(frozen=True, slots=True)
class NewEffect:
    key: str
    name: str
    checkpoint_id: str
    ns: str
    node: str
    task_id: str
    call_id: str | None
    ordinal: int
    args_digest: bytes
    lineage: str
    timeout_s: float | None = None
    on_fork: Literal["recorded", "live", "ask"] = "recorded"


class InterruptState(StrEnum):
    PENDING = "pending"
    ANSWERED = "answered"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    SHADOW = "shadow"
    """It was not asked: it is what would have been."""


QuestionKind = Literal["free", "batch", "call"]
"""What is asked: anything; leave for several tool calls at once (LangChain's review of a turn); for one tool call."""

DecisionType = Literal["approve", "edit", "reject", "respond"]


@dataclass(frozen=True, slots=True)
class Action:
    """
    One tool call that a question asks leave for.

    Attributes:
        tool_call_id: None where nothing tells which call of the turn it is.
        allowed: kinds of decisions that the graph takes for it.
        message_id: of the message of the model that the call stands in; ids of calls may come again in another one.
    """

    tool_call_id: str | None
    name: str
    args: Mapping[str, Any]
    allowed: tuple[str, ...]
    description: str = ""
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class AtDeadline:
    """
    What becomes of a question that nobody has answered in time.

    Attributes:
        text: the reason of a rejection, or what is answered.
        to: who is asked next, one after the other, each for as long again; then it fails.
    """

    kind: Literal["reject", "approve", "respond", "escalate", "fail"]
    text: str = ""
    to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewQuestion:
    """A question to be recorded. `schema`: JSON schema of what an answer must look like, if the graph says."""

    interrupt_id: str
    payload: Any
    kind: QuestionKind = "free"
    actions: tuple[Action, ...] = ()
    schema: Mapping[str, Any] | None = None
    deadline_s: float | None = None
    at_deadline: AtDeadline | None = None
    remind_s: float | None = None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """
    One question that the graph asked; `ask_no` grows when the same place asks again.

    Attributes:
        digest: of the payload, as hex: what an answer says that it was shown.
        for_whom: the actor that it has been escalated to; "" for anybody.
    """

    interrupt_id: str
    ask_no: int
    thread_id: str
    ns: str
    task_id: str
    run_id: str | None
    checkpoint_id: str
    payload: Any
    state: InterruptState
    asked_at: float
    owner: Owner = ""
    kind: QuestionKind = "free"
    actions: tuple[Action, ...] = ()
    schema: Mapping[str, Any] | None = None
    digest: str = ""
    deadline_at: float | None = None
    at_deadline: AtDeadline | None = None
    for_whom: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one question: who, when, by which channel, and what they had been shown."""

    interrupt_id: str
    ask_no: int
    value: Any
    actor: str
    channel: str
    decided_at: float
    run_id: str
    note: str | None = None
    digest: str = ""
    status: Literal["accepted", "withdrawn"] = "accepted"


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What a person has decided about one tool call.

    Attributes:
        args: those that may run.
        shown: those that were asked about.
        message_id: of the message that the call stands in.
    """

    tool_call_id: str
    type: DecisionType
    name: str
    args: Mapping[str, Any]
    shown: Mapping[str, Any]
    actor: str = ""
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a watcher is told, numbered within its thread from 1."""

    seq: int
    kind: str
    run_id: str | None
    attempt: int | None
    ref: str | None
    at: float
