"""What the graph has asked, and what people have answered."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from ninelives import _langgraph
from ninelives.errors import InvalidDecisionError, UnknownTypeError
from ninelives.model import (
    Action,
    AtDeadline,
    Decision,
    Interrupt,
    InterruptState,
    NewQuestion,
    Scope,
    Unreadable,
    Verdict,
)
from ninelives.store import Query, Row, Steps, glancing, reading
from ninelives.stores.procedures.base import Procedures, one, packed_id, packed_or_none, unpacked
from ninelives.stores.procedures.threads import thread_row

OUTCOMES = {"approve": "approved", "reject": "rejected", "respond": "answered"}
"""What became of a question at its deadline, in words."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


class Questions(Procedures):
    """What other acts need of them."""

    def asked(self, new: NewQuestion) -> dict[str, Any]:
        """A question as its row has it."""
        outcome = None
        if new.at_deadline is not None:
            said = {**asdict(new.at_deadline), "after_s": new.deadline_s}
            outcome = self.private(json.dumps(said))
        payload = self.encode(new.payload)
        return {
            "interrupt_id": new.interrupt_id,
            "payload": payload,
            "kind": new.kind,
            "about": self.encode([[_fields(action) for action in new.actions], new.schema]),
            "digest": self.shown(new.payload),
            "deadline_s": new.deadline_s,
            "outcome": outcome,
            "remind_s": new.remind_s,
        }

    def shown(self, payload: Any) -> bytes:
        """A digest of what a person sees of a question."""
        return self.frames.digest(self.frames.open(self.encode(payload)))

    def interrupt(self, row: Row) -> Interrupt:
        values = unpacked(row, "run_id")
        actions, schema = self.decode(values.pop("about"))
        said = self.public(values.pop("outcome"))
        outcome = json.loads(said) if said else {}
        at = AtDeadline(outcome["kind"], outcome["text"], tuple(outcome["to"])) if outcome else None
        values |= {
            "payload": self._payload(row),
            "state": InterruptState(row["state"]),
            "actions": tuple(Action(**{**each, "allowed": tuple(each["allowed"])}) for each in actions),
            "schema": schema,
            "digest": row["digest"].hex(),
            "deadline_at": values.pop("deadline"),
            "at_deadline": at,
            "for_whom": outcome.get("for", ""),
        }
        return Interrupt(**values)

    def _payload(self, row: Row) -> Any:
        """A question with a class that this program does not allow can be listed, and answered."""
        try:
            return self.decode(row["payload"])
        except UnknownTypeError as error:
            return Unreadable(error)

    def not_pending(self, thread: Row, interrupt_id: str, pending: Sequence[str]) -> Steps[InvalidDecisionError]:
        """Why this cannot be answered; of one that was answered, who was first."""
        which = {"thread_no": thread["thread_no"], "interrupt_id": interrupt_id}
        row = one((yield Query("questions_of", which)))
        why = f"interrupt {interrupt_id!r} is not pending: it is not known here"
        first = None
        if row is not None:
            why = f"interrupt {interrupt_id!r} is not pending: it is {row['state']}"
            if row["state"] == InterruptState.EXPIRED:
                why = f"interrupt {interrupt_id!r} is not pending: nobody answered in time, and it expired with its run"
            first = one((yield Query("decided", {**which, "ask_no": row["ask_no"]})))
        if row is not None and first is not None and first["channel"] == "deadline":
            said = json.loads(self.public(row["outcome"]) or "{}")
            became = OUTCOMES.get(said.get("kind", ""), "decided")
            why = f"interrupt {interrupt_id!r} is not pending: it expired, nobody answered in time, and it was {became}"
            return InvalidDecisionError(why, pending, first=(first["actor"], first["decided_at"]))
        if row is not None and first is not None:
            said = self._said(row["kind"], first)
            who = f"{first['actor'] or 'somebody'} ({first['channel']})"
            why = f"interrupt {interrupt_id!r} is not pending: it was answered by {who} {said}"
            return InvalidDecisionError(why, pending, first=(first["actor"], first["decided_at"]))
        return InvalidDecisionError(why, pending)

    def _said(self, kind: str, row: Row) -> str:
        """An answer in a few words."""
        try:
            value = self.decode(row["value"])
        except UnknownTypeError:
            return "with something"
        decisions = value.get("decisions", [value]) if isinstance(value, dict) else ()
        types = [each.get("type") for each in decisions] if kind != "free" else ()
        return f"with {', '.join(map(str, types)) if types else _SHORT.repr(value)}"

    def is_asked(self, thread: Row, row: Row) -> Steps[bool]:
        """
        Whether the head asks it still: an edit of the state may have moved on. A nested one waits in a root task, too.
        """
        _, tasks = _langgraph.place_of(row["ns"])
        for ns, task_id in {("", (tasks or [row["task_id"]])[0]), (row["ns"], row["task_id"])}:
            which = {"thread_no": thread["thread_no"], "ns": ns}
            head = one((yield Query("find_head", which)))
            if head is None:
                return False
            # A graph with a saver of its own (checkpointer=True) is in a namespace that names no task.
            task = {"task_id": packed_id(task_id) if task_id else None}
            if not (yield Query("has_written_at", {**which, **task, "place": head["seq"]})):
                return False
        return True


class QuestionActs(Questions):
    @reading
    def list_interrupts(self, scope: Scope, thread_id: str, *, pending_only: bool = True) -> Steps[list[Interrupt]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return []
        name = "pending_interrupts" if pending_only else "list_interrupts"
        return [self.interrupt(row) for row in (yield Query(name, {"thread_no": thread["thread_no"]}))]

    @glancing
    def list_asked(self, scope: Scope, thread_id: str) -> Steps[list[str]]:
        thread = yield from thread_row(scope, thread_id)
        found = []
        for row in (yield Query("pending_interrupts", {"thread_no": thread["thread_no"]})) if thread else ():
            if (yield from self.is_asked(cast(Row, thread), row)):
                found.append(row["interrupt_id"])
        return found

    @reading
    def list_questions(self, scope: Scope, *, limit: int = 1000) -> Steps[list[Interrupt]]:
        rows = yield Query("list_questions", {"owner": scope.owner, "limit": limit})
        return [self.interrupt(row) for row in rows]

    @reading
    def list_decisions(
        self, scope: Scope, thread_id: str, *, chain: str | None = None, withdrawn: bool = False
    ) -> Steps[list[Decision]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return []
        params = {"thread_no": thread["thread_no"], "chain": packed_or_none(chain), "all": withdrawn}
        return [self._decision(row) for row in (yield Query("list_decisions", params))]

    @glancing
    def list_verdicts(self, scope: Scope, thread_id: str) -> Steps[dict[str, Verdict]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return {}
        decisions = yield Query("list_decisions", {"thread_no": thread["thread_no"], "chain": None, "all": False})
        if not decisions:
            return {}
        asked: dict[tuple[str, int], Row] = {}
        for row in (yield Query("list_interrupts", {"thread_no": thread["thread_no"]})):
            if row["kind"] == "batch":  # a review of one call is made in the very step that runs it
                asked[row["interrupt_id"], row["ask_no"]] = row
        found: dict[str, Verdict] = {}
        for row in decisions:
            question = asked.get((row["interrupt_id"], row["ask_no"]))
            if question is not None:
                found |= self._verdicts(question, self.decode(row["value"]), row["actor"])
        return found

    def _verdicts(self, row: Row, value: Any, actor: str) -> dict[str, Verdict]:
        actions, _ = self.decode(row["about"])
        found = {}
        for action, decision in zip(actions, value["decisions"], strict=False):
            call_id, shown = action["tool_call_id"], action["args"]
            if call_id is not None:
                args = (decision.get("edited_action") or {}).get("args", shown)
                message_id = action.get("message_id")
                found[call_id] = Verdict(call_id, decision["type"], action["name"], args, shown, actor, message_id)
        return found

    def _decision(self, row: Row) -> Decision:
        changed = {"value": self.decode(row["value"]), "note": self.public(row["note"]), "digest": row["digest"].hex()}
        return Decision(**{**unpacked(row, "run_id"), **changed})


def _fields(action: Action) -> Mapping[str, Any]:
    return {**asdict(action), "allowed": [*action.allowed]}
