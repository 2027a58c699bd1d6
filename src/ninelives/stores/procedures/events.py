"""What watchers are told, and what graphs looked like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ninelives.model import Event, Scope
from ninelives.store import Query, Row, Steps, act, reading
from ninelives.stores.procedures.base import EVENT_KINDS, Procedures, one, unpacked
from ninelives.stores.procedures.threads import thread_row


class EventActs(Procedures):
    @reading
    def list_events(self, scope: Scope, thread_id: str, *, after: int = 0, limit: int = 1000) -> Steps[list[Event]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return []
        rows = yield Query("list_events", {"thread_no": thread["thread_no"], "after": after, "limit": limit})
        return [_event(row) for row in rows]

    @act
    def note_graph(self, fp: str, graph: str, description: Mapping[str, Any]) -> Steps[None]:
        yield Query("note_graph", {"fp": fp, "graph": graph, "description": self.encode(dict(description))})

    @reading
    def find_graph(self, fp: str) -> Steps[Mapping[str, Any] | None]:
        row = one((yield Query("find_graph", {"fp": fp})))
        return self.decode(row["description"]) if row else None


def _event(row: Row) -> Event:
    values = {**unpacked(row, "run_id", "ref"), "kind": EVENT_KINDS[row["kind"]]}
    if values["kind"] == "run_started":
        values["ref"] = values["run_id"]
    return Event(**values)
