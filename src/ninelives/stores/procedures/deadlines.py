"""
What becomes of questions that nobody has answered in time.

Each outcome is one act, by the store's clock, and only while the question is still pending: of two processes that look
at once, or of one and a person, one is first, and the other finds nothing left to do.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from ninelives.errors import NineLivesError
from ninelives.interrupts import going_on
from ninelives.model import Interrupt, Lapsed, Lease, NewQuestion, NewRun, Run, RunStatus, Scope
from ninelives.store import Act, Query, Row, Steps, act, glancing, reading
from ninelives.stores.procedures.base import event, fenced, one, unpacked_id
from ninelives.stores.procedures.runs import RunActs, _By
from ninelives.stores.procedures.threads import thread_row

log = logging.getLogger(__name__)

DEADLINE = "deadline"
"""Who decides then, and by which channel."""


class DeadlineActs(RunActs):
    @glancing
    def any_due(self) -> Steps[bool]:
        return bool((yield Query("any_due"))[0]["due"])

    @reading
    def list_due(
        self, scope: Scope, *, thread_id: str | None = None, limit: int = 100, skip: int = 0
    ) -> Steps[list[Interrupt | None]]:
        page = {"limit": limit, "skip": skip}
        if thread_id is None:
            rows = yield Query("due_questions", {**page, "owner": scope.owner})
        else:
            thread = yield from thread_row(scope, thread_id)
            rows = (yield Query("due_questions_of", {**page, "thread_no": thread["thread_no"]})) if thread else []
        nothing = self.encode(None)
        return [self._readable({**row, "payload": nothing}) for row in rows]

    def _readable(self, row: Row) -> Interrupt | None:
        try:
            return self.interrupt(row)
        except NineLivesError as error:
            log.warning("question %s of thread %s is overdue: %s", row["interrupt_id"], row["thread_id"], error)
            return None

    @act
    def remind_due(self, scope: Scope, *, limit: int = 100) -> Steps[list[Lapsed]]:
        rows = yield Query("due_reminders", {"owner": scope.owner, "limit": limit})
        for row in rows:
            yield Query("set_reminded", {name: row[name] for name in ("thread_no", "interrupt_id", "ask_no")})
            yield event(row["thread_no"], "question_reminder", run_no=row["run_no"], ref=row["interrupt_id"])
        return [
            Lapsed(
                row["owner"],
                row["thread_id"],
                row["interrupt_id"],
                "reminded",
                unpacked_id(row["run_id"]) if row["run_id"] is not None else None,
            )
            for row in rows
        ]

    def lapse(self, question: Interrupt, what: str, value: Any, run_id: str) -> Act[Lapsed | None]:
        key = (question.owner, question.thread_id)
        return self.remembering(key, self._lapse(question, what, self.encode(value), run_id))

    @act
    def _lapse(self, question: Interrupt, what: str, value: bytes, run_id: str) -> Steps[Lapsed | None]:
        scope = Scope(question.owner)
        thread = yield from thread_row(scope, question.thread_id)
        if thread is None:
            return None
        which = {"thread_no": thread["thread_no"], "interrupt_id": question.interrupt_id, "ask_no": question.ask_no}
        row = one((yield Query("due_question", which)))
        if row is None:
            return None
        yield from self._free_slot(thread)
        newest = yield from self._newest_run(thread["thread_no"])
        if newest is None or not (newest.unfinished and (yield from self.is_asked(thread, row))):
            if newest is not None and newest.cut_off:
                return None  # it will ask anew, or has not come to the end of asking
            yield Query("withdraw_question", which)
            return Lapsed(question.owner, question.thread_id, question.interrupt_id, "withdrawn")
        if what == "escalate":
            yield from self._escalate(thread, which, row, newest)
            goes_on = newest.run_id
        elif what == "fail":
            yield event(thread["thread_no"], "question_expired", run_no=newest.run_no, ref=question.interrupt_id)
            why = f"question {question.interrupt_id!r} was not answered in time"
            yield from self._close(thread, newest, RunStatus.EXPIRED, why)
            goes_on = newest.run_id
        else:
            yield from self._decide_at_deadline(scope, thread, newest, row, value, run_id)
            goes_on = run_id
        return Lapsed(question.owner, question.thread_id, question.interrupt_id, what, goes_on)

    def _escalate(self, thread: Row, which: dict[str, Any], row: Row, run: Run) -> Steps[None]:
        said = json.loads(self.public(row["outcome"]) or "{}")
        said |= {"for": said["to"][0], "to": said["to"][1:]}
        outcome = self.private(json.dumps(said))
        yield Query("escalate_question", {**which, "outcome": outcome, "after_s": said["after_s"]})
        yield event(thread["thread_no"], "question_escalated", run_no=run.run_no, ref=which["interrupt_id"])

    def _decide_at_deadline(
        self, scope: Scope, thread: Row, parent: Run, row: Row, value: bytes, run_id: str
    ) -> Steps[None]:
        new = NewRun(run_id, thread["thread_id"], parent.graph, going_on(parent.spec))
        yield Query("set_run_waiting", {"run_no": parent.run_no})
        admission = yield from self._insert_run(scope, thread, new, self._pack(new.spec), None, parent=parent)
        by = _By(DEADLINE, DEADLINE, None, {})
        answers = {row["interrupt_id"]: value}
        yield from self._decide(thread, answers, {row["interrupt_id"]: row}, admission.run, by)

    # -- what would have been asked -------------------------------------------------------------------------------

    def note_shadow(
        self, lease: Lease, question: NewQuestion, *, ns: str, task_id: str, checkpoint_id: str
    ) -> Act[None]:
        asked = self.asked(question)
        place = {"thread_no": lease.thread_no, "ns": ns, "task_id": task_id, "checkpoint_id": checkpoint_id}
        row = {name: asked[name] for name in ("interrupt_id", "payload", "kind", "about", "digest")}
        return self._note_shadow(lease, {**place, **row, "run_no": lease.run_no})

    @act
    def _note_shadow(self, lease: Lease, row: dict[str, Any]) -> Steps[None]:
        if (yield Query("add_shadow", row)):
            yield event(lease.thread_no, "would_ask", lease=lease, ref=row["interrupt_id"])
        yield from fenced(lease)
