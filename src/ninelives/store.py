"""
The contract that every store keeps: the acts of the domain, each one transaction.

An act is written once, as a generator that yields statements and receives rows; `perform` and `aperform` are the only
two ways to run one. Either all of an act is in the store or nothing of it. What a store promises beyond that is in
the docstring of each act: they are the promises of the whole project, told one by one.

Two rules hold for every write of a run (checkpoint, task writes, effect, interrupt, event): it carries the claim it was
made under, and the store checks, inside the same transaction and last, that the claim still owns the run. A write that
comes too late raises `LeaseLostError` and leaves no trace. Clocks decide when a run may be taken over, never who may
write; and the order of checkpoints is the store's own sequence, never a clock's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar

from ninelives.clock import Clock, system_clock
from ninelives.model import (
    NO_USAGE,
    Admission,
    Bookmark,
    Decision,
    Effect,
    EffectState,
    Event,
    Interrupt,
    Lapsed,
    Lease,
    NewEffect,
    NewQuestion,
    NewRun,
    PrunePlan,
    QueuedInput,
    Resealed,
    Room,
    Run,
    RunSpec,
    RunStatus,
    Scope,
    StoredCheckpoint,
    Thread,
    Usage,
    Verdict,
    Worker,
    WorkerLease,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")
S = TypeVar("S")
Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """One named statement with its values; with `many`, the same statement once per entry, answered by no rows."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    many: Sequence[Mapping[str, Any]] | None = None


Steps: TypeAlias = Generator[Query, list[Row], T]


@dataclass(slots=True)
class Act(Generic[T_co]):
    """
    One transaction, not yet run. It runs once.

    Attributes:
        reads: it only reads.
        quick: it reads a row or two, which is done where it is asked for: handing it to a thread would take longer.
        frees: it forgets things, whose room may be given back.
        defers: nobody waits for it: it may be committed together with what comes in the next moment.
        undo: called when its statements had run and were then taken back; not when one of them raised.
    """

    name: str
    steps: Steps[T_co]
    reads: bool = False
    quick: bool = False
    frees: bool = False
    defers: bool = False
    undo: Callable[[], None] | None = None


def act(steps: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], Act[T]]:
    """Make a method that yields statements into one that returns an `Act` of the same name."""
    return _named(steps)


def reading(steps: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], Act[T]]:
    """As `act`, for one that only reads: it waits for no writer."""
    return _named(steps, reads=True)


def glancing(steps: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], Act[T]]:
    """As `reading`, for one that reads a row or two."""
    return _named(steps, reads=True, quick=True)


def forgetting(steps: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], Act[T]]:
    """As `act`, for one that frees room."""
    return _named(steps, frees=True)


def _named(steps: Callable[Concatenate[S, P], Steps[T]], **marks: Any) -> Callable[Concatenate[S, P], Act[T]]:
    @wraps(steps)
    def named(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Act[T]:
        return Act(steps.__name__.lstrip("_"), steps(self, *args, **kwargs), **marks)

    return named


ALONE: ContextVar[Callable[[], bool] | None] = ContextVar("ninelives_alone", default=None)
"""Set where an event loop of ours drives: tells whether a single call is all that it has to do."""


def is_alone() -> bool:
    """Whether an act may be performed in the thread of the running event loop: nobody else would wait meanwhile."""
    alone = ALONE.get()
    return alone is not None and alone()


Fault = Callable[[str, str, str], None]
"""
Told of `(act, statement, where)` before and after each statement, and of `(act, 'commit', where)` around the commit, by
the thread that does the work. It is how the crash tool stops the world; it must not touch the store. What it raises
goes to the act's own caller, and the act is taken back; raised before the commit, all acts that share it are; after it,
the act is in the store and only its caller is not told so.
"""


@dataclass(frozen=True, slots=True)
class PutWrites:
    """Writes of one task, `(idx, channel, value)` each: the place in the list, or a special one below 0."""

    ns: str
    checkpoint_id: str
    task_id: str
    task_path: str
    writes: Sequence[tuple[int, str, Any]]
    withdraw: Sequence[int] = ()
    replace: bool = False
    questions: Sequence[NewQuestion] = ()
    kind: str = "task_done"
    """Of the event that tells of it: `task_done`, `task_failed`, `task_asked`, `input`."""
    defers: bool = False
    """Nobody waits for it: see `Act`."""
    usage: Usage = NO_USAGE


@dataclass(frozen=True, slots=True)
class PutCheckpoint:
    """A checkpoint to store. `extends`: it must become the next of its branch; else it may open one."""

    ns: str
    checkpoint_id: str
    parent_id: str | None
    checkpoint: Mapping[str, Any]
    metadata: Mapping[str, Any]
    source: str
    extends: bool
    graph_fp: str | None = None
    usage: Usage = NO_USAGE


class Store(ABC):
    """Where threads, runs and state are kept. Thread-safe; not fork-safe: open one after forking."""

    url: str
    durability: str
    """What an acknowledgement means, in words."""
    in_memory: bool = False
    """It ends with this process."""
    clock: Clock = system_clock
    fault: Fault | None = None

    # -- running acts -------------------------------------------------------------------------------------------

    @abstractmethod
    def perform(self, act: Act[T]) -> T:
        """
        Run one act; it has committed when this returns.

        Raises:
            StoreUnavailableError: the store stayed locked or unreachable; nothing was written.
            NineLivesError: what the act's own docstring names; nothing was written.
        """

    @abstractmethod
    async def aperform(self, act: Act[T]) -> T:
        """As `perform`, for an event loop; a cancelled wait does not undo an act that has been handed over."""

    @abstractmethod
    def submit(self, act: Act[T]) -> Any:
        """Hand over an act now, in order with all others handed over; gives a `concurrent.futures.Future`."""

    @abstractmethod
    def close(self) -> None:
        """Finish what was handed over, then close. Closing twice is fine."""

    @abstractmethod
    def allow_types(self, *types: type) -> None:
        """Values of these types may be stored and loaded."""

    @abstractmethod
    def be_strict(self) -> None:
        """
        From now on every value is encoded whenever it is written, read back and compared, and refused
        (`FidelityError`) if it would not come back as it is. There is no way back: whoever asked for it relies on it.
        """

    @abstractmethod
    def request_digest(self, value: Any) -> bytes:
        """A digest of a value's stored form: equal requests are equal under it, in every process."""

    # -- workers ------------------------------------------------------------------------------------------------

    @abstractmethod
    def register_worker(self, worker_id: str, *, host: str, pid: int, ttl_s: float) -> Act[WorkerLease]:
        """
        Make a worker known, alive until `ttl_s` seconds from now. An id is used once, ever.

        Raises:
            WorkerLostError: the id is known already.
        """

    @abstractmethod
    def renew_worker(self, worker: WorkerLease, *, ttl_s: float) -> Act[WorkerLease]:
        """
        Move the lease's end to `ttl_s` from now, by the store's clock.

        Raises:
            WorkerLostError: the lease had ended. Stop at once and register anew.

        Source: leases, Gray & Cheriton 1989.
        """

    @abstractmethod
    def bury_worker(self, worker_id: str) -> Act[bool]:
        """The process is known to be dead (its file lock is free) or leaves: its lease ends now. False: it was gone."""

    @abstractmethod
    def list_workers(self) -> Act[list[Worker]]:
        """Every worker that has not been buried, the expired ones too."""

    # -- threads ------------------------------------------------------------------------------------------------

    @abstractmethod
    def find_thread(self, scope: Scope, thread_id: str) -> Act[Thread | None]:
        """The thread, in whatever state (an erased one is remembered as erased)."""

    @abstractmethod
    def near_threads(self, scope: Scope, thread_id: str) -> Act[list[str]]:
        """Up to three ids of the same owner that look like this one, the nearest first."""

    @abstractmethod
    def list_threads(self, scope: Scope, *, limit: int = 50, offset: int = 0) -> Act[list[Thread]]:
        """Threads that are not erased, the last changed first, with checkpoint counts and bytes of content."""

    @abstractmethod
    def weigh_thread(self, scope: Scope, thread_id: str) -> Act[Thread | None]:
        """As `find_thread`, with the counts that a list of threads has."""

    @abstractmethod
    def delete_thread(self, scope: Scope, thread_id: str) -> Act[None]:
        """
        Forget all that the thread holds; remember only that it was erased. An unknown thread is left unknown.

        Idempotency keys, and effects under keys of the user's own, are remembered without content. The numbers of the
        thread's events go on: the last one says that it was erased.

        Raises:
            ThreadBusyError: a live run holds it.
        """

    @abstractmethod
    def copy_thread(self, scope: Scope, source: str, target: str) -> Act[None]:
        """
        Copy checkpoints, writes and content to a new thread; runs, effects, questions and events stay behind.

        Raises:
            NoCheckpointFoundError: no such source.
            DivergentStateError: the target has checkpoints already.
        """

    @abstractmethod
    def prune_thread(self, scope: Scope, thread_id: str) -> Act[int]:
        """
        Keep the newest checkpoint of every namespace, and every ancestor that a DeltaChannel still replays.

        Returns how many checkpoints went. Content that nothing refers to any more goes with them.

        Raises:
            ThreadBusyError: a live run holds the thread.
        """

    @abstractmethod
    def plan_pruning(self, scope: Scope, thread_id: str) -> Act[PrunePlan]:
        """What `prune_thread` would take away now, if nothing holds the thread. Nothing is changed."""

    @abstractmethod
    def delete_for_runs(self, scope: Scope, run_ids: Sequence[str]) -> Act[int]:
        """
        Forget the checkpoints (and their writes) that these runs made, but for those that a live chain replays.

        Raises:
            ThreadBusyError: a live run holds one of the threads.
        """

    # -- runs ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def start_run(self, scope: Scope, new: NewRun, worker: WorkerLease) -> Act[Admission]:
        """
        Admit a run and claim it in one transaction: once this has returned, the request outlives every process.

        A key seen before gives back its run and no lease; nothing changes. `new.closes` names the unfinished run that
        this one supersedes: it becomes `abandoned` and its questions withdrawn in the same transaction. An input that
        has waited for its turn longer goes first: the run is that input's then, with a lease.

        Raises:
            IdempotencyMismatchError: the key was used with another request.
            NoCheckpointFoundError: no such thread and `may_create` is off, or the thread was erased or moved.
            GraphChangedError: the thread belongs to another graph.
            ThreadBusyError: a live run holds the thread.
            UnfinishedRunError: the newest run is unfinished and not the one named by `closes`.
            WorkerLostError: the worker's own lease has ended.
        """

    @abstractmethod
    def take_over(self, scope: Scope, run_id: str, worker: WorkerLease, *, leave: bool = False) -> Act[Admission]:
        """
        Claim an unfinished run that no live process has, under a new epoch: whoever had it can write no more.

        `leave`: a person lets it go on past the breakpoint that it stands at; recorded with the claim.

        Raises:
            ThreadBusyError: a live process has it.
            LeaseLostError: it is closed, or a newer run has superseded it.
            WorkerLostError: the worker's own lease has ended.
        """

    @abstractmethod
    def answer(
        self,
        scope: Scope,
        thread_id: str,
        answers: Mapping[str, Any],
        new: NewRun,
        worker: WorkerLease | None,
        *,
        actor: str,
        channel: str,
        shown: Mapping[str, str] | None = None,
        note: str | None = None,
    ) -> Act[Admission]:
        """
        Record decisions for pending questions and the run that goes on with them, in one transaction.

        Args:
            answers: value by interrupt id.
            worker: claims that run; None: it is queued, for whoever has the graph to take over.
            shown: by interrupt id, the digest of what whoever answers had before them.
            note: why, in words.

        A key seen before gives back its run and no lease, as in `start_run`.

        Raises:
            IdempotencyMismatchError: the key was used with another request.
            InvalidDecisionError: an id that is not pending (unknown, withdrawn, or answered: says by whom), or what
                was shown is not what is asked now; says what is pending.
            ThreadBusyError: a live run holds the thread.
        """

    @abstractmethod
    def finish_run(
        self,
        lease: Lease,
        status: RunStatus,
        *,
        cause: str | None = None,
        usage: Usage = NO_USAGE,
        spec: RunSpec | None = None,
    ) -> Act[Run]:
        """
        End the run under its claim: done, failed, interrupted, or back to queued (drained at a step boundary).

        `spec`: its request, where the caller has it; it is read again else.

        Raises:
            LeaseLostError: somebody else has it.
        """

    @abstractmethod
    def close_run(self, scope: Scope, run_id: str, status: RunStatus, *, by: str) -> Act[Run]:
        """
        Close an unfinished run that nobody holds (abandon, cancel); its questions are withdrawn. History is kept.

        One that has expired can still be abandoned: somebody has seen it.

        Raises:
            ThreadBusyError: a live process has it.
        """

    @abstractmethod
    def holds(self, lease: Lease) -> Act[bool]:
        """Whether the claim owns the run still and its worker is believed alive; asked before each node and tool."""

    @abstractmethod
    def get_run(self, scope: Scope, run_id: str) -> Act[Run]:
        """
        Raises:
            NoCheckpointFoundError: no such run in this scope.
        """

    @abstractmethod
    def find_run_by_key(self, scope: Scope, graph: str, key: str) -> Act[Run | None]:
        """The run that was made under this idempotency key."""

    @abstractmethod
    def find_newest_run(self, scope: Scope, thread_id: str) -> Act[Run | None]:
        """The thread's newest run, state edits left out."""

    @abstractmethod
    def list_runs(
        self, scope: Scope, *, thread_id: str | None = None, status: RunStatus | None = None, limit: int = 50
    ) -> Act[list[Run]]:
        """Runs, the newest first."""

    @abstractmethod
    def chain_usage(self, scope: Scope, chain: str) -> Act[Usage]:
        """What all runs of a chain have cost together."""

    @abstractmethod
    def has_leave(self, lease: Lease) -> Act[bool]:
        """Whether a person has let the run go on from the checkpoint that is the thread's head now."""

    @abstractmethod
    def status_before(self, lease: Lease) -> Act[RunStatus | None]:
        """How the run before this one ended on its thread, state edits left out; None: there was none."""

    @abstractmethod
    def has_begun(self, lease: Lease) -> Act[tuple[bool, bool]]:
        """Whether the run has a checkpoint of its own, and whether its command input is recorded at the head."""

    # -- state --------------------------------------------------------------------------------------------------

    @abstractmethod
    def put_checkpoint(
        self, scope: Scope, thread_id: str, put: PutCheckpoint, lease: Lease | None, *, amends: bool = False
    ) -> Act[list[str]]:
        """
        Store one checkpoint; returns the paths of values that were changed in place since they were stored.

        `amends`: it is there already, and the claim puts it anew with values that were found changed since.

        Under a claim, or with none (a saver used alone): then only on a thread that no live run holds. A claim is for
        its own thread; on another one it counts as none, but is still checked.

        Raises:
            LeaseLostError: the claim no longer owns the run.
            DivergentStateError: `extends`, and the parent is not the tip of a branch any more.
            ThreadBusyError: no claim, and a run holds the thread.
            UnknownTypeError: a value could not be loaded again; with the path to it.
            FidelityError: the store is strict, and a value would not come back as it is, or was changed in place.

        Source: compare-and-set on the head; fencing tokens, Kleppmann 2016.
        """

    @abstractmethod
    def changed_in_place(self, lease: Lease) -> list[str]:
        """
        Paths of values, held by this process for the claim's thread, that are no longer what was stored: the newest,
        and of the older ones as many in turn. No act: nothing is asked of the database. What is found is stored with
        the next checkpoint that holds it.
        """

    @abstractmethod
    def put_writes(self, scope: Scope, thread_id: str, put: PutWrites, lease: Lease | None) -> Act[None]:
        """
        Store one task's writes: all of them or none. Special ones (below 0) replace, others are written once: the same
        ones again are fine, only those of the null task (input) may be added to.

        Raises:
            LeaseLostError, ThreadBusyError, UnknownTypeError: as `put_checkpoint`.
            DivergentStateError: another invocation has recorded this task with another result.
        """

    @abstractmethod
    def get_checkpoint(
        self, scope: Scope, thread_id: str, ns: str, checkpoint_id: str | None, lease: Lease | None = None
    ) -> Act[StoredCheckpoint | None]:
        """
        One checkpoint, or the newest of its namespace.

        `lease`: it is read for the run that has the claim. Only then objects that this process holds already may be
        given out again; everybody else gets objects of their own.

        Raises:
            StoreCorruptError: content is missing or is not what was written.
        """

    @abstractmethod
    def has_checkpoint(self, scope: Scope, thread_id: str, ns: str, checkpoint_id: str) -> Act[bool]:
        """Whether it is there; nothing of it is read."""

    @abstractmethod
    def list_heads(self, scope: Scope, thread_id: str) -> Act[list[StoredCheckpoint]]:
        """The newest checkpoint of every namespace of a thread, the last written first."""

    @abstractmethod
    def list_checkpoints(
        self,
        scope: Scope,
        *,
        thread_id: str | None,
        ns: str | None,
        checkpoint_id: str | None = None,
        before: str | None = None,
        below_seq: int | None = None,
        limit: int = 100,
    ) -> Act[list[StoredCheckpoint]]:
        """
        Checkpoints, the newest first by the store's order; `before` is a checkpoint id of any namespace of the thread.
        """

    @abstractmethod
    def delta_history(
        self,
        scope: Scope,
        thread_id: str,
        ns: str,
        checkpoint_id: str,
        channels: Sequence[str],
        lease: Lease | None = None,
    ) -> Act[dict[str, tuple[list[tuple[str, str, Any]], list[Any]]]]:
        """
        What a DeltaChannel replays for this checkpoint: per channel the writes of its ancestors, oldest first, and
        the stored value they start from (a list of one, or empty).

        Raises:
            LackOfSnapshotFrequency: an ancestor is missing.
        """

    # -- questions ----------------------------------------------------------------------------------------------

    @abstractmethod
    def list_interrupts(self, scope: Scope, thread_id: str, *, pending_only: bool = True) -> Act[list[Interrupt]]:
        """The thread's questions, in the order in which they were asked."""

    @abstractmethod
    def list_asked(self, scope: Scope, thread_id: str) -> Act[list[str]]:
        """Ids of the pending questions that the thread's head asks still; an edit of the state moves on from others."""

    @abstractmethod
    def list_questions(self, scope: Scope, *, limit: int = 1000) -> Act[list[Interrupt]]:
        """What waits for an answer on any thread, the oldest first."""

    @abstractmethod
    def list_decisions(
        self, scope: Scope, thread_id: str, *, chain: str | None = None, withdrawn: bool = False
    ) -> Act[list[Decision]]:
        """Accepted answers, of all runs or of one chain, oldest first; with `withdrawn`, those taken back as well."""

    @abstractmethod
    def list_verdicts(self, scope: Scope, thread_id: str) -> Act[dict[str, Verdict]]:
        """What people have decided about the thread's tool calls, by tool call id."""

    @abstractmethod
    def ask_again(self, scope: Scope, thread_id: str, *, by: str) -> Act[list[str]]:
        """
        Take back the answers on which the thread's newest run has failed, and ask again: the same questions, under the
        next ask number. The run waits then. Returns their interrupt ids.

        Raises:
            InvalidDecisionError: the newest run has not failed, or on no answer.
            ThreadBusyError: a live run holds the thread.
            NoCheckpointFoundError: no such thread.
        """

    @abstractmethod
    def note_shadow(
        self, lease: Lease, question: NewQuestion, *, ns: str, task_id: str, checkpoint_id: str
    ) -> Act[None]:
        """
        Record what would have been asked; nothing waits for it. The same one again is fine.

        Raises:
            LeaseLostError: the claim no longer owns the run.
        """

    # -- deadlines of questions -----------------------------------------------------------------------------------

    @abstractmethod
    def any_due(self) -> Act[bool]:
        """Whether a question waits whose time is over, or that is to be reminded of."""

    @abstractmethod
    def list_due(
        self, scope: Scope, *, thread_id: str | None = None, limit: int = 100, skip: int = 0
    ) -> Act[list[Interrupt | None]]:
        """
        Questions whose time is over, the longest overdue first, without what they show; none of a busy thread. None in
        the place of one that this process cannot read: it is another's to see to, or damaged.
        """

    @abstractmethod
    def remind_due(self, scope: Scope, *, limit: int = 100) -> Act[list[Lapsed]]:
        """One event for each question that is to be reminded of now; each is once."""

    @abstractmethod
    def lapse(self, question: Interrupt, what: str, value: Any, run_id: str) -> Act[Lapsed | None]:
        """
        Have one outcome come true for a question whose time is over, if it is pending still.

        Args:
            what: "approve", "reject" or "respond": `value` is decided, and the run `run_id` queued that goes on with
                it; "escalate": it is asked of the next actor, for as long again; "fail": it is expired, and its run.

        Returns:
            None: it was decided meanwhile, or its run was cut off and has to be continued first.

        Raises:
            ThreadBusyError: a live run holds the thread.
        """

    # -- inputs that wait for their turn --------------------------------------------------------------------------

    @abstractmethod
    def queue_input(self, scope: Scope, new: NewRun) -> Act[QueuedInput]:
        """
        Accept an input for a thread whose newest run is unfinished: it outlives every process, and becomes a run when
        what is before it is over. The same key again is the same input.

        Raises:
            IdempotencyMismatchError: the key was used with another request.
            DivergentStateError: nothing is unfinished, so that it can run now.
            NoCheckpointFoundError, GraphChangedError: as `start_run`.
        """

    @abstractmethod
    def start_queued(self, scope: Scope, thread_id: str, worker: WorkerLease) -> Act[Admission | None]:
        """
        Make a run of the thread's next input and claim it. None: none waits, or what is before it is not over.

        Raises:
            ThreadBusyError: a live run holds the thread.
            WorkerLostError: the worker's own lease has ended.
        """

    @abstractmethod
    def find_queued(self, scope: Scope, thread_id: str) -> Act[QueuedInput | None]:
        """The thread's next input that waits for its turn."""

    @abstractmethod
    def list_queued(self, scope: Scope, thread_id: str | None = None, *, limit: int = 1000) -> Act[list[QueuedInput]]:
        """Inputs that wait for their turn, of one thread or of all, in order."""

    @abstractmethod
    def drop_queued(self, scope: Scope, thread_id: str) -> Act[list[QueuedInput]]:
        """Forget the inputs that wait on a thread; each leaves an event. Closing its unfinished run does so, too."""

    # -- effects ------------------------------------------------------------------------------------------------

    @abstractmethod
    def open_effect(self, lease: Lease, new: NewEffect) -> Act[Effect]:
        """
        Record the intent of an outside act, before it happens.

        A key seen before gives what is known of it: `done` with its result; an intent whose claim has ended becomes
        `unknown`, while one whose claim still stands stays an intent; one settled as not done is opened again, as the
        next attempt. `fresh` is True where the caller may act now.

        Where the run's chain began anew from an older checkpoint, and a branch has begun the same act since that one,
        a new key takes over what became of it, as `new.on_fork` says.

        Raises:
            LeaseLostError: the claim no longer owns the run; do not act.
        """

    @abstractmethod
    def finish_effect(
        self,
        lease: Lease,
        effect: Effect,
        state: EffectState,
        result: Any,
        *,
        why: str | None = None,
        cut_off: bool = False,
    ) -> Act[Effect]:
        """
        Record how the act ended, by the process that performed it. What was settled or begun anew meanwhile, since the
        call's deadline had passed, stays as it is.

        Args:
            cut_off: it was left before its end, so it may still happen until its process is dead or its time is over.

        Raises:
            LeaseLostError: the claim no longer owns the run: the act is reported as unknown to the new owner.
        """

    @abstractmethod
    def settle_effect(
        self, scope: Scope, key: str, state: EffectState, result: Any, *, by: str, why: str
    ) -> Act[Effect]:
        """
        Record what really happened: done (with a result) or not done. Not done only once the process that asked is
        known dead, or the call's deadline has passed by a margin: until then it may still be at it. It holds for every
        branch that has taken the act over.

        Raises:
            NoCheckpointFoundError: no such effect.
            InvalidDecisionError: its outcome is known already, or the process that asked may still be at it.
        """

    @abstractmethod
    def list_effects(
        self, scope: Scope, *, thread_id: str | None = None, state: EffectState | None = None
    ) -> Act[list[Effect]]:
        """Effects, oldest first; a result that this process may not load is an `Unreadable`."""

    # -- finished calls -----------------------------------------------------------------------------------------

    @abstractmethod
    def keep_call(self, lease: Lease, key: str, kind: str, output: Any) -> Act[None]:
        """
        Record what a finished call gave ("call": a tool's, "model": a model's) before the step that it is part of is
        recorded. The first record under a key counts.

        Kept for one step: what this run has recorded in steps that are over goes with the next record, and all of the
        thread's when a run of it is done.

        Args:
            key: of a tool's, it begins with the id of its task and a slash.

        Raises:
            LeaseLostError: the claim no longer owns the run.
            UnknownTypeError: it could not be loaded again.
        """

    @abstractmethod
    def find_call(self, lease: Lease, key: str) -> Act[Any]:
        """What was recorded under this key on the claim's thread; None if nothing was."""

    @abstractmethod
    def list_calls(self, scope: Scope, thread_id: str, task_ids: Collection[str] | None = None) -> Act[dict[str, Any]]:
        """
        The recorded outputs of tool calls, of these tasks or all, by key. One that cannot be loaded here is left out.
        """

    # -- events and graphs --------------------------------------------------------------------------------------

    @abstractmethod
    def list_events(self, scope: Scope, thread_id: str, *, after: int = 0, limit: int = 1000) -> Act[list[Event]]:
        """Events after a number, in order."""

    @abstractmethod
    def note_graph(self, fp: str, graph: str, description: Mapping[str, Any]) -> Act[None]:
        """Remember what a graph looked like under this fingerprint."""

    @abstractmethod
    def find_graph(self, fp: str) -> Act[Mapping[str, Any] | None]:
        """The description noted under a fingerprint."""

    # -- keys ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def reseal(self, after: Bookmark | None = None) -> Act[Resealed]:
        """
        Put some of the values that are under an older key under the current one. Go on until `after` is None.

        All values are walked through until a walk has found none under an older key; then the store's secret follows,
        and a store that opens without the older keys holds nothing that needs them. It may stop anywhere and begin
        anew, beside runs, too: a value is read and written back in one transaction, and means the same before and
        after. Every process must have the current key in front: what another one writes under an older key behind
        the walk's back stays under it until the next time.

        Args:
            after: from the last step; None to begin.

        Raises:
            EncryptionKeyError: the store is plain, or a value is under a key that is not there. Earlier steps stay.
            StoreCorruptError: a value is damaged; says whose it is.
        """

    # -- room on the disk ---------------------------------------------------------------------------------------

    @abstractmethod
    def room(self) -> Room:
        """What the store takes on the disk now; nothing in memory."""

    @abstractmethod
    def compact(self, *, whole: bool = False) -> Room:
        """
        Give room that holds nothing any more back to the file system. A process that is reading may keep some of it.

        Args:
            whole: write the store anew, so that nothing of what was forgotten is left between what is kept. It needs
                as much room again for a while, and whoever wants to write waits for it.

        Raises:
            StoreUnavailableError: `whole`, and a process works in the store; or it cannot be written. Nothing changed.
        """

    # -- liveness that no table can tell --------------------------------------------------------------------------

    @abstractmethod
    def hold_worker_lock(self, worker_id: str) -> None:
        """Take the operating system's lock that the kernel lets go of when this process dies."""

    @abstractmethod
    def drop_worker_lock(self, worker_id: str) -> None:
        """Let go of it."""

    def bury_the_dead(self) -> None:
        """End the leases of neighbours whose process has died, so that nobody waits for them to run out."""
        for worker_id in self.dead_workers(self.perform(self.list_workers())):
            self.perform(self.bury_worker(worker_id))
            self.clear_worker_lock(worker_id)

    @abstractmethod
    def clear_worker_lock(self, worker_id: str) -> None:
        """Take away what a buried worker has left: until then it proves that its process died."""

    @abstractmethod
    def dead_workers(self, workers: Iterable[Worker]) -> list[str]:
        """Those whose process is known to be dead, now, whatever their lease says. Asking changes nothing."""
