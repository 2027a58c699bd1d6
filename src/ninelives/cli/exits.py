"""What a process says by its exit code: one table, the same that docs/reference/cli.md shows."""

from __future__ import annotations

from enum import IntEnum

from ninelives import errors
from ninelives.errors import NineLivesError


class Exit(IntEnum):
    DONE = 0
    GRAPH_FAILED = 1
    USAGE = 2
    UNFINISHED = 3
    ASKS = 4
    EFFECT_UNKNOWN = 5
    TRY_LATER = 6
    NOT_FOUND = 7
    CALL = 8
    SETUP = 9
    PERSON = 10
    LOST = 11
    INTERRUPTED = 130
    TERMINATED = 143


class UsageError(NineLivesError):
    """The command line itself is wrong; nothing was looked at."""


class StoppedAtOnce(Exception):
    """A person did not want to wait for the end of the step: the process is to end now, whatever still runs in it."""

    def __init__(self, code: Exit) -> None:
        self.code = code
        super().__init__(code.name)


EXITS: dict[type[NineLivesError], Exit] = {
    UsageError: Exit.USAGE,
    errors.MissingThreadError: Exit.USAGE,
    errors.UnfinishedRunError: Exit.UNFINISHED,
    errors.EffectOutcomeUnknownError: Exit.EFFECT_UNKNOWN,
    # try later
    errors.StoreUnavailableError: Exit.TRY_LATER,
    errors.ThreadBusyError: Exit.TRY_LATER,
    # change the call
    errors.NoCheckpointFoundError: Exit.NOT_FOUND,
    errors.InvalidDecisionError: Exit.CALL,
    errors.IdempotencyMismatchError: Exit.CALL,
    errors.DivergentStateError: Exit.CALL,
    errors.UnknownTypeError: Exit.CALL,
    errors.FidelityError: Exit.CALL,
    errors.MissingEntryError: Exit.CALL,
    # change the setup
    errors.ConfigError: Exit.SETUP,
    errors.GraphChangedError: Exit.SETUP,
    errors.EncryptionKeyError: Exit.SETUP,
    errors.SchemaVersionError: Exit.SETUP,
    errors.UnsupportedVersionError: Exit.SETUP,
    # fetch a person
    errors.StoreCorruptError: Exit.PERSON,
    errors.LackOfSnapshotFrequency: Exit.PERSON,
    errors.SuspendTimeoutError: Exit.PERSON,
    errors.RunQuarantinedError: Exit.PERSON,
    errors.BudgetExceededError: Exit.PERSON,
    # stop
    errors.LeaseLostError: Exit.LOST,
    errors.WorkerLostError: Exit.LOST,
    NineLivesError: Exit.GRAPH_FAILED,
}


def exit_of(error: NineLivesError) -> Exit:
    """The code for an error: its own kind's, or the nearest kind's above it."""
    return next(EXITS[kind] for kind in type(error).__mro__ if kind in EXITS)
