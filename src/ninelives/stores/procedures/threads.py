"""Threads: finding, copying, forgetting."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ninelives.errors import DivergentStateError, GraphChangedError, NoCheckpointFoundError, ThreadBusyError
from ninelives.model import Scope, Thread
from ninelives.store import Query, Row, Steps, act, forgetting, glancing, reading
from ninelives.stores import codec
from ninelives.stores.codec.nodes import Form, write_node
from ninelives.stores.procedures.base import Procedures, event, one, unpacked_id

NOTHING = write_node(Form.INLINE, 0, codec.encode(None, codec.DEFAULT_TYPES))
"""A node for None."""


class ThreadActs(Procedures):
    @glancing
    def find_thread(self, scope: Scope, thread_id: str) -> Steps[Thread | None]:
        row = yield from thread_row(scope, thread_id)
        return Thread(**row) if row else None

    @reading
    def near_threads(self, scope: Scope, thread_id: str) -> Steps[list[str]]:
        return (yield from near(scope, thread_id))

    @reading
    def list_threads(self, scope: Scope, *, limit: int = 50, offset: int = 0) -> Steps[list[Thread]]:
        rows = yield Query("list_threads", {"owner": scope.owner, "limit": limit, "offset": offset})
        return [Thread(**row) for row in rows]

    @reading
    def weigh_thread(self, scope: Scope, thread_id: str) -> Steps[Thread | None]:
        row = one((yield Query("weigh_thread", {"owner": scope.owner or "", "thread_id": thread_id})))
        return Thread(**row) if row else None

    @forgetting
    def delete_thread(self, scope: Scope, thread_id: str) -> Steps[None]:
        row = yield from thread_row(scope, thread_id)
        if row is None:
            return
        yield from must_be_free(row)
        which = {"thread_no": row["thread_no"]}
        yield event(row["thread_no"], "thread_erased")
        content = ("checkpoint", "head", "write", "pack", "journal")
        for name in (*content, "interrupt", "decision", "queued_input", "event", "effect"):
            yield Query(f"erase_{name}", which)
        yield Query("forget_effect", which)
        yield Query("erase_run", which)
        yield Query("forget_run", {**which, "spec": self.frames.seal(NOTHING)})
        yield Query("forget_items", which)
        yield Query("set_thread_state", {**which, "state": "erased"})

    @act
    def copy_thread(self, scope: Scope, source: str, target: str) -> Steps[None]:
        origin = yield from thread_row(scope, source)
        if origin is None or origin["state"] == "erased":
            raise NoCheckpointFoundError(source, near=(yield from near(scope, source)))
        copy = yield from thread_row(scope, target)
        copy = copy or (yield from add_thread(scope, target, origin["graph"], parent=origin["thread_no"]))
        yield from must_be_free(copy)
        if (yield Query("any_content", {"thread_no": copy["thread_no"]})):
            raise DivergentStateError(target, "it has content of its own, which a copy would mix with others")
        yield from reopened(copy)
        shift = (yield Query("counters", {"thread_no": copy["thread_no"]}))[0]["event_next"]
        for name in ("pack", "checkpoint", "write", "head", "counters"):
            which = {"source": origin["thread_no"], "target": copy["thread_no"], "shift": shift}
            yield Query(f"copy_{name}", which)
        yield event(copy["thread_no"], "thread_copied", ref=source)


def thread_row(scope: Scope, thread_id: str) -> Steps[Row | None]:
    return one((yield Query("find_thread", {"owner": scope.owner or "", "thread_id": thread_id})))


def near(scope: Scope, thread_id: str) -> Steps[list[str]]:
    rows = yield Query("recent_thread_ids", {"owner": scope.owner or ""})
    return difflib.get_close_matches(thread_id, [row["thread_id"] for row in rows], n=3, cutoff=0.6)


def add_thread(scope: Scope, thread_id: str, graph: str, parent: int | None = None) -> Steps[Row]:
    params = {"owner": scope.owner or "", "thread_id": thread_id, "graph": graph, "parent": parent}
    row = (yield Query("add_thread", params))[0]
    yield event(row["thread_no"], "thread_created")
    return row


def reopened(row: Row) -> Steps[None]:
    """A saver used alone, which knows no state of threads, begins an erased one anew; one that has moved stays so."""
    if row["state"] == "moved":
        raise NoCheckpointFoundError(row["thread_id"], why="has moved to another store")
    if row["state"] == "erased":
        yield Query("set_thread_state", {"thread_no": row["thread_no"], "state": "open"})


def must_be_free(row: Row) -> Steps[None]:
    """No live process may be advancing the thread."""
    held = one((yield Query("find_held_run", {"thread_no": row["thread_no"]})))
    if held:
        raise ThreadBusyError(row["thread_id"], unpacked_id(held["run_id"]), held["worker"])


def open_thread(scope: Scope, thread_id: str, graph: str, *, may_create: bool) -> Steps[tuple[Row, bool]]:
    """The thread's row for a run of `graph`, and whether it was made now."""
    row = yield from thread_row(scope, thread_id)
    if row is None:
        if not may_create:
            raise NoCheckpointFoundError(thread_id, near=(yield from near(scope, thread_id)))
        return (yield from add_thread(scope, thread_id, graph)), True
    if row["state"] != "open":
        raise NoCheckpointFoundError(thread_id, why=f"was {row['state']} and is not made anew under the same id")
    if row["graph"] == "":
        yield Query("adopt_thread", {"thread_no": row["thread_no"], "graph": graph})
    elif row["graph"] != graph:
        why = f"it belongs to graph {row['graph']!r}, not {graph!r}"
        raise GraphChangedError(thread_id, why, f"Use graph {row['graph']!r}, or a thread of its own for this one.")
    return row, False


def of_thread_or_all(what: str, scope: Scope, thread_id: str | None, params: Mapping[str, Any]) -> Steps[list[Row]]:
    """`list_<what>`, by the thread's own index where one thread of one owner is asked for."""
    if thread_id is None or scope.owner is None:
        return (yield Query(f"list_{what}", params))
    thread = yield from thread_row(scope, thread_id)
    return (yield Query(f"list_thread_{what}", {**params, "thread_no": thread["thread_no"]})) if thread else []
