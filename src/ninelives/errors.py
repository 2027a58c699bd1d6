"""
Everything that can go wrong for a user, by what the caller can do about it.

Each error carries its facts as fields; its text says what happened, then what to do. Nothing is lost when one is
raised: an act that raises has left the store as it was, unless its docstring says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any


class NineLivesError(Exception):
    """Base of all our errors."""


# -- stop ------------------------------------------------------------------------------------------------------


class LeaseLostError(NineLivesError):
    """Another worker owns the run now, or it was closed. Nothing was written; drop the run."""

    def __init__(self, run_id: str, epoch: int) -> None:
        self.run_id, self.epoch = run_id, epoch
        super().__init__(
            f"run {run_id!r} has moved past epoch {epoch}; nothing was written. Drop the run and claim another."
        )


class WorkerLostError(NineLivesError):
    """The worker's own lease ended. It is never revived: register anew."""

    def __init__(self, worker_id: str) -> None:
        self.worker_id = worker_id
        super().__init__(f"the lease of worker {worker_id!r} has ended. Stop its runs and register anew.")


# -- try later -------------------------------------------------------------------------------------------------


class StoreUnavailableError(NineLivesError):
    """The store could not be reached or stayed locked. It is not known whether the last act took."""


class ThreadBusyError(NineLivesError):
    """A live run holds the thread."""

    def __init__(self, thread_id: str, run_id: str, holder: str = "") -> None:
        self.thread_id, self.run_id, self.holder = thread_id, run_id, holder
        by = f" by {holder}" if holder else ""
        super().__init__(
            f"thread {thread_id!r} is being advanced by run {run_id!r}{by}; nothing was changed."
            " Call again later, or pass wait_s= to wait for it."
        )


# -- change the call -------------------------------------------------------------------------------------------


class MissingThreadError(NineLivesError):
    """A call that must be kept names no thread."""

    def __init__(self, why: str | None = None) -> None:
        super().__init__(
            why
            or 'no thread was named; nothing ran. Pass thread="some-id" (or config["configurable"]["thread_id"]),'
            ' or thread="new" for a fresh one, or ephemeral=True to protect() to run without saving.'
        )


class NoCheckpointFoundError(NineLivesError):
    """The thread (or checkpoint) that the call names is not there, and making it silently would lose work."""

    def __init__(
        self, thread_id: str, *, near: Sequence[str] = (), why: str = "is not known", what: str = "thread"
    ) -> None:
        self.thread_id, self.near = thread_id, tuple(near)
        hint = f" Did you mean {', '.join(map(repr, near))}?" if near else ""
        super().__init__(f"{what} {thread_id!r} {why}; nothing ran.{hint}")


class UnfinishedRunError(NineLivesError):
    """The thread's last run is not finished, and the call did not say what is to become of it."""

    def __init__(self, unfinished: Any, why: str = "") -> None:
        self.unfinished = unfinished
        super().__init__(f"thread {unfinished.run.thread_id!r}: {why} Nothing ran." if why else str(unfinished))


class InvalidDecisionError(NineLivesError):
    """
    The answer fits no pending question. Nothing was changed.

    Attributes:
        pending: ids of the questions that wait.
        first: of a question that was answered before: who did, and when (UTC seconds).
    """

    def __init__(self, why: str, pending: Sequence[str] | None = (), *, first: tuple[str, float] | None = None) -> None:
        self.pending, self.first = tuple(pending or ()), first
        tail = f" Pending: {', '.join(map(repr, self.pending))}." if self.pending else " Nothing is pending."
        when = f" at {datetime.fromtimestamp(first[1], UTC):%Y-%m-%d %H:%M:%S} UTC" if first else ""
        super().__init__(f"{why}{when}; nothing was changed.{'' if pending is None else tail}")


class IdempotencyMismatchError(NineLivesError):
    """The idempotency key was used before, with another request."""

    def __init__(self, key: str, run_id: str) -> None:
        self.key, self.run_id = key, run_id
        super().__init__(
            f"idempotency key {key!r} belongs to run {run_id!r}, which was made with another request; nothing ran."
            " Use a new key for a new request."
        )


class DivergentStateError(NineLivesError):
    """A lost compare-and-set: somebody else has extended the checkpoint that this write names as its parent."""

    def __init__(self, thread_id: str, what: str, head: str | None = None) -> None:
        self.thread_id, self.head = thread_id, head
        now = f" The head is now {head!r}." if head else ""
        super().__init__(f"thread {thread_id!r}: {what}; nothing was written.{now} Read the thread again and decide.")


class UnknownTypeError(NineLivesError):
    """A value whose type could not be loaded again (when written), or may not be (when read)."""

    def __init__(self, path: str, type_name: str, why: str = "is not a type that may be stored") -> None:
        self.path, self.type_name = path, type_name
        module, _, name = type_name.rpartition(".")
        setting = "" if module in ("", "__main__") else f', or [state] allow = ["{module}:{name}"] in ninelives.toml'
        super().__init__(
            f"{path or 'the value'}: {type_name} {why}. Name it in the graph's state schema, or allow it:"
            f" protect(..., allow=[{name}]){setting}."
        )


class FidelityError(NineLivesError):
    """A value that would not come back as it is, refused under `fidelity="strict"`. Nothing was written."""

    def __init__(self, path: str, before: str, after: str) -> None:
        self.path, self.before, self.after = path, before, after
        super().__init__(
            f"{path or 'the value'}: {before} would come back as {after}; nothing was written. Keep it out of the"
            ' state, or in it only what comes back, or have it reported instead: [state] fidelity = "report".'
        )


class MissingEntryError(NineLivesError):
    """A config or context entry is neither allowed to be stored nor supplied anew, so a later process would lack it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        listed = ", ".join(map(repr, names))
        super().__init__(
            f"the call needs {listed}, which the first call used and which was not stored. Pass it again, allow it with"
            " [config] store = [...], or name a function that supplies it with [config.supply] in ninelives.toml."
        )


# -- change the setup ------------------------------------------------------------------------------------------


class ConfigError(NineLivesError):
    """A setting is wrong: which, where, and what is allowed."""


class MutatedStateWarning(UserWarning):
    """
    A value of the state was changed in place after it had been stored. What it is now has been stored as well, but
    what an earlier checkpoint holds is what was there then; a process that was killed in between goes on from that.
    """

    def __init__(self, thread_id: str, path: str) -> None:
        self.thread_id, self.path = thread_id, path
        super().__init__(
            f"thread {thread_id!r}: {path} was changed in place since it was stored; it is stored anew. Return the"
            " change from the node as an update instead: a copy that was changed, under the same id."
        )


class EncryptionKeyError(NineLivesError):
    """A key of an encrypted store is missing, wrong or not of its form; or there are keys, and the store is plain."""

    def __init__(self, why: str, key: str = "") -> None:
        self.key = key
        super().__init__(why)


class GraphChangedError(NineLivesError):
    """The thread cannot go on with this graph: it belongs to another, or a part that it waits at is gone."""

    def __init__(self, thread_id: str, why: str, what_to_do: str = "") -> None:
        self.thread_id = thread_id
        todo = what_to_do or "Go on with the graph that made it, or call again with on_unfinished='start_over'."
        super().__init__(f"thread {thread_id!r}: {why}; nothing ran. {todo}")


class SchemaVersionError(NineLivesError):
    """The store was made by a newer ninelives than this one."""

    def __init__(self, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(
            f"the store has schema version {found}; this program knows up to {known}. Upgrade ninelives, nothing was"
            " changed."
        )


class UnsupportedVersionError(NineLivesError):
    """The installed LangGraph lacks something that we build on."""


# -- fetch a person --------------------------------------------------------------------------------------------


class StoreCorruptError(NineLivesError):
    """Bytes in the store are not what was written."""


class EffectOutcomeUnknownError(NineLivesError):
    """
    An outside act was cut off: nobody knows whether it happened. It is not repeated.

    Settle it with what really happened (`settle_effect`), then continue the run.
    """

    def __init__(
        self, name: str, key: str, why: str = "the process died between asking and answer", others: Sequence[str] = ()
    ) -> None:
        self.name, self.key, self.why, self.others = name, key, why, tuple(others)
        beside = f" Also unknown on this thread: {', '.join(map(repr, others))}." if others else ""
        super().__init__(
            f"the outcome of effect {name!r} (key {key!r}) is unknown: {why}. It was not repeated. Find out whether it"
            f" happened, record that with settle_effect(), and continue the run.{beside}"
        )


class LackOfSnapshotFrequency(NineLivesError):
    """A DeltaChannel cannot be rebuilt: a part of its chain is gone, or it has more updates than may be replayed."""

    def __init__(self, why: str, *, thread_id: str = "", channel: str = "", depth: int | None = None) -> None:
        self.thread_id, self.channel, self.depth = thread_id, channel, depth
        super().__init__(why)


class SuspendTimeoutError(NineLivesError):
    """
    A question was not answered in time, and its run has ended with it. New input begins a new run.

    Attributes:
        interrupt_id: the question.
        deadline_at: until when it could be answered (UTC seconds by the store's clock).
    """

    def __init__(self, thread_id: str, interrupt_id: str, deadline_at: float | None = None) -> None:
        self.thread_id, self.interrupt_id, self.deadline_at = thread_id, interrupt_id, deadline_at
        until = f" until {datetime.fromtimestamp(deadline_at, UTC):%Y-%m-%d %H:%M:%S} UTC" if deadline_at else ""
        super().__init__(
            f"thread {thread_id!r}: question {interrupt_id!r} could be answered{until} and was not; its run has"
            " expired. Nothing ran. Call with new input to begin a new run."
        )


class RunQuarantinedError(NineLivesError):
    """A run was set aside because it kept killing its worker."""


class BudgetExceededError(NineLivesError):
    """A run has spent a budget; it waits for a person."""
