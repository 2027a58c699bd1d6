"""What the graph has asked, and what people have answered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ninelives.errors import InvalidDecisionError, NoCheckpointFoundError, ThreadBusyError
from ninelives.model import (
    Action,
    AtDeadline,
    Decision,
    Interrupt,
    InterruptState,
    NewQuestion,
    Scope,
    Verdict,
)
from ninelives.store import Query, Row, Steps, act, glancing, reading
from ninelives.stores.procedures.base import Procedures, event, one, packed_or_none, unpacked, unpacked_id
from ninelives.stores.procedures.threads import thread_row

OUTCOMES = {"approve": "approved", "reject": "rejected", "respond": "answered"}
"""What became of a question at its deadline, in words."""


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
        """
        Raises:
            UnknownTypeError: a class in it that this program does not allow.
        """
        values = unpacked(row, "run_id")
        actions, schema = self.decode(values.pop("about"))
        said = self.public(values.pop("outcome"))
        outcome = json.loads(said) if said else {}
        at = AtDeadline(outcome["kind"], outcome["text"], tuple(outcome["to"])) if outcome else None
        values |= {
            "payload": self.decode(row["payload"]),
            "state": InterruptState(row["state"]),
            "actions": tuple(Action(**{**each, "allowed": tuple(each["allowed"])}) for each in actions),
            "schema": schema,
            "digest": row["digest"].hex(),
            "deadline_at": values.pop("deadline"),
            "at_deadline": at,
            "for_whom": outcome.get("for", ""),
        }
        return Interrupt(**values)

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
        if first is not None:
            by = first["actor"] or "somebody"
            why = f"interrupt {interrupt_id!r} is not pending: it was answered by {by} ({first['channel']})"
            return InvalidDecisionError(why, pending, first=(first["actor"], first["decided_at"]))
        return InvalidDecisionError(why, pending)


class QuestionActs(Questions):
    @reading
    def list_interrupts(self, scope: Scope, thread_id: str, *, pending_only: bool = True) -> Steps[list[Interrupt]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return []
        name = "pending_interrupts" if pending_only else "list_interrupts"
        return [self.interrupt(row) for row in (yield Query(name, {"thread_no": thread["thread_no"]}))]

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
                found[call_id] = Verdict(call_id, decision["type"], action["name"], args, shown, actor)
        return found

    @act
    def ask_again(self, scope: Scope, thread_id: str, *, by: str) -> Steps[list[str]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            raise NoCheckpointFoundError(thread_id)
        run = one((yield Query("find_newest_run", {"thread_no": thread["thread_no"]})))
        held = one((yield Query("find_held_run", {"thread_no": thread["thread_no"]})))
        if held is not None:
            raise ThreadBusyError(thread_id, unpacked_id(held["run_id"]), held["worker"])
        chain = run and (run["chain"] if run["chain"] is not None else run["run_id"])
        rows = yield Query("list_decisions", {"thread_no": thread["thread_no"], "chain": chain, "all": False})
        if run is None or run["status"] != "failed" or not rows:
            why = "no run of this thread has failed on an answer, so there is nothing to ask again"
            raise InvalidDecisionError(why, None)
        newest = [row for row in rows if row["run_id"] == run["run_id"]] or rows[-1:]
        for row in newest:
            which = {name: row[name] for name in ("interrupt_id", "ask_no")} | {"thread_no": thread["thread_no"]}
            yield Query("withdraw_decision", which)
            yield Query("ask_anew", which)
            yield event(thread["thread_no"], "question", run_no=run["run_no"], ref=row["interrupt_id"])
        yield Query("end_run", {
            "run_no": run["run_no"], "status": "interrupted", "cause": self.private(f"{by} asks again"),
            "last_checkpoint": run["last_checkpoint"],
        })  # fmt: skip
        yield event(thread["thread_no"], "run_interrupted", run_no=run["run_no"])
        return [row["interrupt_id"] for row in newest]

    def _decision(self, row: Row) -> Decision:
        changed = {"value": self.decode(row["value"]), "note": self.public(row["note"]), "digest": row["digest"].hex()}
        return Decision(**{**unpacked(row, "run_id"), **changed})


def _fields(action: Action) -> Mapping[str, Any]:
    return {**asdict(action), "allowed": [*action.allowed]}
