"""
The tool calls of one run: which may run, which have run, and what people have said about them.

A call whose id a person has rejected, or answered in the tool's place, is not executed by whatever other way leads to
the tools; one that was approved runs with the arguments that were shown, or as it was edited, or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.types import PregelExecutableTask

from ninelives import _langgraph
from ninelives.config import EffectRule
from ninelives.effects import Journal, marked_by_settings
from ninelives.errors import UnknownTypeError
from ninelives.model import Verdict

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Calls:
    """
    The hooks of a run (see `_langgraph.ToolHooks`).

    Attributes:
        answers: accepted answers, by interrupt id.
        verdicts: what people have decided about tool calls of the thread, by tool call id.
        rules: tools that the settings declare outside acts.
    """

    journal: Journal
    answers: Mapping[str, Any] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    rules: Mapping[str, EffectRule] = field(default_factory=dict)
    guard: Callable[[BaseTool], BaseTool] | None = None
    """Gives a tool whose calls ask for leave (see `approvals`)."""
    _inputs: dict[str, Any] = field(default_factory=dict)

    def began(self, tasks: Mapping[str, PregelExecutableTask]) -> None:
        for task_id, task in tasks.items():
            self._inputs[task_id] = task.input

    def forget(self, task_id: str) -> None:
        """The task has come to an end."""
        self._inputs.pop(task_id, None)

    def of_task(self, task_id: str) -> Sequence[Mapping[str, Any]]:
        """The tool calls that a task was given to look at."""
        return _langgraph.tool_calls_seen(self._inputs.get(task_id))

    def tool(self, tool: BaseTool) -> BaseTool:
        marked = marked_by_settings(tool, self.rules) if self.rules else tool
        return marked if self.guard is None else self.guard(marked)

    def refusal(self, call: Mapping[str, Any]) -> str | None:
        verdict = self.verdicts.get(call.get("id") or "")
        if verdict is None:
            return None
        if verdict.type in ("reject", "respond"):
            by = f" by {verdict.actor}" if verdict.actor else ""
            return f"This call of {call['name']} was decided against{by}. It was not executed."
        may = [(verdict.name, verdict.args), (verdict.name, verdict.shown)]
        if (call["name"], call["args"]) in may:
            return None
        return f"This call of {call['name']} is not the one that was approved. It was not executed."

    def asks(self, call: Mapping[str, Any]) -> Mapping[str, Any] | str | None:
        return None

    def moved(self, before: str, now: str) -> None:
        if before in self.journal.terms:
            self.journal.terms[now] = self.journal.terms.pop(before)

    def find(self, key: str) -> Any:
        return self.journal.store.perform(self.journal.store.find_call(self.journal.lease, key))

    async def afind(self, key: str) -> Any:
        return await self.journal.store.aperform(self.journal.store.find_call(self.journal.lease, key))

    def keep(self, key: str, output: Any) -> None:
        try:
            act = self.journal.store.keep_call(self.journal.lease, key, "call", output)
        except UnknownTypeError as error:
            log.info("the output of a tool call is recorded with its step only: %s", error)
            return
        self.journal.store.perform(act)

    async def akeep(self, key: str, output: Any) -> None:
        try:
            act = self.journal.store.keep_call(self.journal.lease, key, "call", output)
        except UnknownTypeError as error:
            log.info("the output of a tool call is recorded with its step only: %s", error)
            return
        await self.journal.store.aperform(act)
