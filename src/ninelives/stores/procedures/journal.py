"""What finished calls gave, kept until the step that they belong to is recorded as a whole."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from ninelives.errors import UnknownTypeError
from ninelives.model import Lease, Scope
from ninelives.store import Act, Query, Steps, act, glancing, reading
from ninelives.stores.procedures.base import Procedures, claim_of, fenced, one
from ninelives.stores.procedures.threads import thread_row

log = logging.getLogger(__name__)


class JournalActs(Procedures):
    def keep_call(self, lease: Lease, key: str, kind: str, output: Any) -> Act[None]:
        return self._keep_call(lease, key, kind, self.encode(output))

    @act
    def _keep_call(self, lease: Lease, key: str, kind: str, body: bytes) -> Steps[None]:
        claim = {**claim_of(lease), "thread_no": lease.thread_no}
        yield Query("drop_passed_calls", claim)
        yield Query("keep_call", {**claim, "key": key, "kind": kind, "body": body})
        yield from fenced(lease)

    @glancing
    def find_call(self, lease: Lease, key: str) -> Steps[Any]:
        row = one((yield Query("find_call", {"thread_no": lease.thread_no, "key": key})))
        return self.decode(row["body"]) if row else None

    @reading
    def list_calls(
        self, scope: Scope, thread_id: str, task_ids: Collection[str] | None = None
    ) -> Steps[dict[str, Any]]:
        thread = yield from thread_row(scope, thread_id)
        if thread is None:
            return {}
        found = {}
        for row in (yield Query("list_calls", {"thread_no": thread["thread_no"]})):
            if task_ids is None or row["key"].partition("/")[0] in task_ids:
                try:
                    found[row["key"]] = self.decode(row["body"])
                except UnknownTypeError as error:
                    log.warning("what a tool call has given cannot be told: %s", error)
        return found
