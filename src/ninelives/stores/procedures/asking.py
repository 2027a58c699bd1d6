"""Asking again what was answered in a way that the graph could not use."""

from __future__ import annotations

from collections import defaultdict

from ninelives import _langgraph
from ninelives.errors import InvalidDecisionError, NoCheckpointFoundError
from ninelives.model import RunStatus, Scope
from ninelives.store import Query, Row, Steps, act
from ninelives.stores.procedures.base import event, one, packed_id, packed_or_none
from ninelives.stores.procedures.runs import RunActs
from ninelives.stores.procedures.state import Entry, StateActs
from ninelives.stores.procedures.threads import near, thread_row


class AskingActs(StateActs, RunActs):
    @act
    def ask_again(self, scope: Scope, thread_id: str, *, by: str) -> Steps[list[str]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            raise NoCheckpointFoundError(thread_id, near=(yield from near(scope, thread_id)))
        yield from self._free_slot(thread)
        run = yield from self._newest_run(thread["thread_no"])
        rows: list[Row] = []
        if run is not None and run.status is RunStatus.FAILED:
            rows = yield from self._failed_on(thread, run.chain)
        if run is None or not rows:
            pending = yield Query("pending_interrupts", {"thread_no": thread["thread_no"]})
            why = "the newest run of this thread has not failed in a step that used an answer; nothing to ask again"
            raise InvalidDecisionError(why, [row["interrupt_id"] for row in pending])
        for row in rows:
            which = {name: row[name] for name in ("interrupt_id", "ask_no")} | {"thread_no": thread["thread_no"]}
            yield Query("withdraw_decision", which)
            yield Query("ask_anew", which)
            yield event(thread["thread_no"], "question", run_no=run.run_no, ref=row["interrupt_id"])
        yield Query("end_run", {
            "run_no": run.run_no, "status": RunStatus.INTERRUPTED.value, "cause": self.private(f"{by} asks again"),
            "last_checkpoint": packed_or_none(run.last_checkpoint),
        })  # fmt: skip
        yield event(thread["thread_no"], "run_interrupted", run_no=run.run_no)
        return [row["interrupt_id"] for row in rows]

    def _failed_on(self, thread: Row, chain: str) -> Steps[list[Row]]:
        """
        The answers to take back: of each task that failed, those that were given last. Earlier ones had brought it to
        its next question. Where none is recorded as failed (its result could not be stored, say), of all that are not
        finished.
        """
        which = {"thread_no": thread["thread_no"], "chain": packed_id(chain)}
        tasks: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
        for row in (yield Query("answers_of_chain", which)):
            tasks[row["ns"], row["checkpoint_id"], row["task_id"]].append(row)
        failed, unfinished = [], []
        for answers in tasks.values():
            newest = [row for row in answers if row["run_id"] == answers[-1]["run_id"]]
            entries = yield from self._entries(thread, newest[0])
            if all(slot < 0 for slot, _, _ in entries) and (yield from self.is_asked(thread, newest[0])):
                unfinished += newest
                if any(channel == _langgraph.ERROR for _, channel, _ in entries):
                    failed += newest
        return failed or unfinished

    def _entries(self, thread: Row, row: Row) -> Steps[list[Entry]]:
        """What a task has written; of its result the slots are numbered from 0."""
        place = {"thread_no": thread["thread_no"], "ns": row["ns"], "checkpoint_id": packed_id(row["checkpoint_id"])}
        found = one((yield Query("find_place", place)))
        if found is None:
            return []
        written = yield Query("get_writes", {**place, "place": found["seq"], "task_id": packed_id(row["task_id"])})
        return [entry for each in written for entry in self._written(each).entries]
