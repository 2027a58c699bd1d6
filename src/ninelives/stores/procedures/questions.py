"""What the graph has asked, and what people have answered."""

from __future__ import annotations

from ninelives.model import Decision, Interrupt, InterruptState, Scope
from ninelives.store import Query, Row, Steps, reading
from ninelives.stores.procedures.base import Procedures, packed_or_none, unpacked
from ninelives.stores.procedures.threads import thread_row


class QuestionActs(Procedures):
    @reading
    def list_interrupts(self, scope: Scope, thread_id: str, *, pending_only: bool = True) -> Steps[list[Interrupt]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return []
        name = "pending_interrupts" if pending_only else "list_interrupts"
        return [self._interrupt(row) for row in (yield Query(name, {"thread_no": thread["thread_no"]}))]

    @reading
    def list_decisions(self, scope: Scope, thread_id: str, *, chain: str | None = None) -> Steps[list[Decision]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return []
        rows = yield Query("list_decisions", {"thread_no": thread["thread_no"], "chain": packed_or_none(chain)})
        return [Decision(**{**unpacked(row, "run_id"), "value": self.decode(row["value"])}) for row in rows]

    def _interrupt(self, row: Row) -> Interrupt:
        changed = {"payload": self.decode(row["payload"]), "state": InterruptState(row["state"])}
        return Interrupt(**{**unpacked(row, "run_id"), **changed})
