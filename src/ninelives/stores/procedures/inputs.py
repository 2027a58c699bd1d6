"""Inputs that wait for their turn: accepted, and not yet runs."""

from __future__ import annotations

from urllib.parse import quote

from ninelives.errors import IdempotencyMismatchError, UnknownTypeError
from ninelives.model import NewRun, QueuedInput, RunSpec, Scope, Unreadable
from ninelives.store import Query, Row, Steps
from ninelives.stores import codec
from ninelives.stores.procedures.base import Procedures, event, one


class Inputs(Procedures):
    """What other acts need of them."""

    def queued(self, row: Row) -> QueuedInput:
        values = {name: row[name] for name in row if name != "queued_no"}
        return QueuedInput(**{**values, "spec": self.spec_in(self.frames.open(row["spec"]))})

    def spec_in(self, frame: bytes) -> RunSpec:
        """A request with a class that this program does not allow can be listed, not driven."""
        try:
            return RunSpec(**(codec.decode(frame, self.types) or {}))
        except UnknownTypeError as error:
            return RunSpec(input=Unreadable(error))

    def queued_under_key(self, scope: Scope, new: NewRun) -> Steps[Row | None]:
        """
        The input that waits under this idempotency key.

        Raises:
            IdempotencyMismatchError: it is another request.
        """
        if new.key is None:
            return None
        row = one((yield Query("find_queued_by_key", {"key_scope": key_scope(scope, new.graph), "key": new.key})))
        if row is not None and row["request"] != new.request:
            raise IdempotencyMismatchError(new.key, row["run_id"])
        return row

    def next_queued(self, thread_no: int) -> Steps[Row | None]:
        return one((yield Query("find_queued_input", {"thread_no": thread_no})))

    def drop_all_queued(self, thread_no: int) -> Steps[list[QueuedInput]]:
        rows = yield Query("list_queued_inputs", {"thread_no": thread_no})
        for row in rows:
            yield Query("drop_queued_input", {"queued_no": row["queued_no"]})
            yield event(thread_no, "input_dropped", ref=row["run_id"])
        return [self.queued(row) for row in rows]


def key_scope(scope: Scope, graph: str) -> str:
    """Within what a key is unique; quoted, so that no two owners and graphs look alike."""
    return f"{quote(scope.owner or '', safe='')}/{quote(graph, safe='')}"
