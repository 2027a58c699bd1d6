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
from ninelives.errors import LeaseLostError, StoreUnavailableError, UnknownTypeError
from ninelives.model import Verdict
from ninelives.store import Act

log = logging.getLogger(__name__)

TOOLS_MAX = 1000
"""So many tools a run remembers what it made of them; one that builds its agents anew each time has no end of them."""


@dataclass(slots=True)
class Calls:
    """
    The hooks of a run (see `_langgraph.ToolHooks`).

    Attributes:
        executor: where the bodies of sync tools run, when they are called from the event loop.
        answers: accepted answers, by interrupt id.
        verdicts: what people have decided about tool calls of the thread, by tool call id.
        rules: tools that the settings declare outside acts.
    """

    journal: Journal
    executor: _langgraph.RunExecutor
    answers: Mapping[str, Any] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    rules: Mapping[str, EffectRule] = field(default_factory=dict)
    guard: Callable[[BaseTool], BaseTool] | None = None
    """Gives a tool whose calls ask for leave (see `approvals`)."""
    closings: Sequence[_langgraph.Closing] = ()
    _inputs: dict[str, Any] = field(default_factory=dict)
    _tools: dict[int, tuple[BaseTool, BaseTool]] = field(default_factory=dict)

    def began(self, tasks: Mapping[str, PregelExecutableTask]) -> None:
        for task_id, task in tasks.items():
            self._inputs[task_id] = task.input

    def forget(self, task_id: str) -> None:
        """The task has come to an end."""
        self._inputs.pop(task_id, None)

    def of_task(self, task_id: str) -> Sequence[Mapping[str, Any]]:
        """The tool calls that a task was given to look at, each with the id of its message."""
        return _langgraph.tool_calls_seen(self._inputs.get(task_id))

    def tool(self, tool: BaseTool) -> BaseTool:
        """Made once for each tool; the tool is kept with it, so that no other one gets its id."""
        if id(tool) not in self._tools:
            if len(self._tools) >= TOOLS_MAX:
                self._tools.clear()
            self._tools[id(tool)] = tool, self._made(tool)
        return self._tools[id(tool)][1]

    def _made(self, tool: BaseTool) -> BaseTool:
        """An outside act is marked within its thread, and asks for leave before it gets one."""
        plain = _langgraph.plain_tool(tool)
        marked = marked_by_settings(plain, self.rules)
        moved = tool if marked is plain is not tool else _langgraph.tool_on_executor(marked, self.executor)
        return moved if self.guard is None else self.guard(moved)

    def refusal(self, call: Mapping[str, Any], message_id: str | None, *, to_run: bool = False) -> str | None:
        verdict = self.verdicts.get(call.get("id") or "")
        if verdict is None or (message_id and verdict.message_id and message_id != verdict.message_id):
            return None
        if verdict.type in ("reject", "respond"):
            by = f" by {verdict.actor}" if verdict.actor else ""
            return f"This call of {call['name']} was decided against{by}. It was not executed."
        approved = [verdict.args] if to_run else [verdict.args, verdict.shown]
        if call["name"] == verdict.name and any(_within(args, call["args"]) for args in approved):
            return None
        return f"This call of {call['name']} is not the one that was approved. It was not executed."

    def moved(self, before: str, now: str) -> None:
        if before in self.journal.terms:
            self.journal.terms[now] = self.journal.terms.pop(before)

    def find(self, key: str) -> Any:
        return self.journal.store.perform(self.journal.store.find_call(self.journal.lease, key))

    async def afind(self, key: str) -> Any:
        return await self.journal.store.aperform(self.journal.store.find_call(self.journal.lease, key))

    def keep(self, key: str, output: Any) -> None:
        try:
            self.journal.store.perform(self._keeping(key, output))
        except (UnknownTypeError, StoreUnavailableError) as error:
            _not_kept(error)
        except LeaseLostError as lost:
            raise self.journal.stop(lost) from lost

    async def akeep(self, key: str, output: Any) -> None:
        try:
            await self.journal.store.aperform(self._keeping(key, output))
        except (UnknownTypeError, StoreUnavailableError) as error:
            _not_kept(error)
        except LeaseLostError as lost:
            raise self.journal.stop(lost) from lost

    def _keeping(self, key: str, output: Any) -> Act[None]:
        return self.journal.store.keep_call(self.journal.lease, key, "call", output)


def _within(args: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether all these arguments are given; a wrapper of the tool may have added others, which nobody was shown."""
    return all(name in given and given[name] == value for name, value in args.items())


def _not_kept(error: Exception) -> None:
    log.info("the output of a tool call is recorded with its step only: %s", error)
