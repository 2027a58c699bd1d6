"""
Which tool calls ask for leave, and which are decided by a rule.

The settings name tools; the graph need not be edited. A call of a tool that is to be asked for asks right before it
runs, wherever it is called from a tool node: in a subagent, too. A call that the graph has had reviewed itself
(LangChain's middleware) is not asked for again. A rule decides in a person's place; what it decides is recorded as
decided by that rule before anything acts on it, and where it says nothing a person is asked.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeVar

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import set_config_context
from langchain_core.tools import BaseTool
from langgraph.types import interrupt

from ninelives import _langgraph
from ninelives.config import ApprovalsSettings, QuestionsSettings, ToolApproval
from ninelives.effects import Journal, Terms, current_journal
from ninelives.errors import ConfigError, InvalidDecisionError, NineLivesError
from ninelives.interrupts import Tools, approve, resolved
from ninelives.model import Action, AtDeadline, Decision, Interrupt, InterruptState, NewQuestion
from ninelives.store import Act, Store

log = logging.getLogger(__name__)

T = TypeVar("T")
Rule: TypeAlias = Callable[[str, Mapping[str, Any]], Any]
"""Gets a tool's name and the arguments of a call; gives a decision, or None: a person is asked."""

BY = "approvals"
"""What a question says under "by" that no graph has asked."""
SHADOW = "rule:shadow"
ALL: tuple[str, ...] = ("approve", "edit", "reject", "respond")


@dataclass(frozen=True, slots=True)
class Ruled:
    """What rules have decided about a question. `channel` "shadow": it only would have been asked."""

    value: Any
    actor: str
    channel: Literal["rule", "shadow"]


@dataclass(frozen=True, slots=True)
class Approvals:
    """The settings about approvals and questions, with the rules that they name."""

    tools: Mapping[str, ToolApproval] = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict)
    auto_approve: bool = False
    questions: QuestionsSettings = field(default_factory=QuestionsSettings)

    @staticmethod
    def of(
        settings: ApprovalsSettings,
        questions: QuestionsSettings,
        imported: Callable[[str], Any],
        *,
        auto_approve: bool | None = None,
    ) -> Approvals:
        """
        Args:
            imported: gives what a setting names as `module:name`.
            auto_approve: instead of what the settings say.

        Raises:
            ConfigError: a rule cannot be imported, or is no plain function.
        """
        rules = {}
        for name, tool in settings.tools.items():
            if tool.auto is not None:
                rules[name] = imported(tool.auto)
                if not callable(rules[name]) or inspect.iscoroutinefunction(rules[name]):
                    raise ConfigError(f"[approvals.tools] {name}: {tool.auto!r} is not a plain function.")
        auto = settings.auto_approve if auto_approve is None else auto_approve
        return Approvals(settings.tools, rules, auto, questions)

    @property
    def decides(self) -> bool:
        """Whether it may decide anything in a person's place."""
        return self.auto_approve or bool(self.rules) or any(tool.policy == "shadow" for tool in self.tools.values())

    def asks(self, name: str) -> bool:
        """Whether each call of this tool asks, whatever the graph says."""
        tool = self.tools.get(name)
        return tool is not None and (tool.policy == "ask" or tool.auto is not None)

    def watches(self, name: str) -> bool:
        """Whether what would have been asked about this tool is recorded."""
        tool = self.tools.get(name)
        return tool is not None and tool.policy == "shadow"

    # -- deciding -------------------------------------------------------------------------------------------------

    def decided(self, question: Interrupt, tools: Tools) -> Ruled | None:
        """What the rules decide about a question; None: a person is asked, about all of its tool calls."""
        if question.kind == "free" or not question.actions:
            return None
        choices, actors = [], []
        for action in question.actions:
            ruled = self._choice(action)
            if ruled is None:
                return None
            choices.append(ruled[0])
            actors.append(ruled[1])
        try:
            value = resolved(question, {"decisions": choices} if question.kind == "batch" else choices[0], tools)
        except InvalidDecisionError as error:
            log.warning("what a rule has decided does not fit, so a person is asked: %s", error)
            return None
        shadow = set(actors) == {SHADOW}
        return Ruled(value, ", ".join(dict.fromkeys(actors)), "shadow" if shadow else "rule")

    def _choice(self, action: Action) -> tuple[Any, str] | None:
        tool = self.tools.get(action.name)
        if tool is not None and tool.auto is not None:
            try:
                said = self.rules[action.name](action.name, dict(action.args))
            except Exception:
                log.warning("rule %s failed, so a person is asked", tool.auto, exc_info=True)
                return None
            if said is not None:
                return said, f"rule:{tool.auto}"
        if self.watches(action.name):
            return approve(), SHADOW
        return (approve(), "rule:auto_approve") if self.auto_approve else None

    # -- how long -------------------------------------------------------------------------------------------------

    def timed(self, question: NewQuestion, own: Terms | None = None) -> NewQuestion:
        """
        The question with how long it waits and what becomes of it then: as it says itself, else as is set for its
        tools, else for all questions.

        Of several tools the shortest time counts. Where they differ in what becomes of them, all are rejected: nothing
        may happen that was allowed for another.
        """
        terms = [self._terms(action.name) for action in question.actions] or [self._terms(None)]
        timed = [each for each in terms if each.deadline_s is not None]
        reminders = [each.remind_s for each in terms if each.remind_s is not None]
        found = Terms(remind_s=min(reminders, default=None))
        if timed:
            first = min(timed, key=lambda each: each.deadline_s or 0.0)
            at = first.at_deadline if all(each.at_deadline == first.at_deadline for each in terms) else _REJECTED
            found = Terms(first.deadline_s, at, found.remind_s)
        if own is not None and own.deadline_s is not None:
            found = replace(found, deadline_s=own.deadline_s, at_deadline=own.at_deadline)
        if own is not None and own.remind_s is not None:
            found = replace(found, remind_s=own.remind_s)
        return replace(question, deadline_s=found.deadline_s, at_deadline=found.at_deadline, remind_s=found.remind_s)

    def _terms(self, name: str | None) -> Terms:
        tool, every = self.tools.get(name or "", ToolApproval()), self.questions
        deadline_s = every.deadline_s if tool.deadline_s is None else tool.deadline_s
        kind: Any = tool.at_deadline or every.at_deadline
        text = every.text if tool.text is None else tool.text
        to = every.to if tool.to is None else tool.to
        at = AtDeadline(kind, text, to if kind == "escalate" else ())
        return Terms(deadline_s, at if deadline_s is not None else None, tool.remind_s or every.remind_s)


_REJECTED = AtDeadline("reject", "Nobody decided in time.")


# -- a call that asks ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reviewed:
    """Calls that the graph itself has had reviewed, in the chain of runs that is being driven: id, name, arguments."""

    calls: Collection[tuple[str, str, Mapping[str, Any]]] = ()

    @staticmethod
    def of(questions: Collection[Interrupt], decisions: Collection[Decision]) -> Reviewed:
        values = {(each.interrupt_id, each.ask_no): each.value for each in decisions}
        found = []
        for question in questions:
            value = values.get((question.interrupt_id, question.ask_no))
            ours = isinstance(question.payload, Mapping) and question.payload.get("by") == BY
            if question.state is not InterruptState.ANSWERED or question.kind == "free" or ours or value is None:
                continue
            said = value["decisions"] if question.kind == "batch" else [value]
            for action, each in zip(question.actions, said, strict=False):
                if action.tool_call_id is not None:
                    found.append((action.tool_call_id, action.name, action.args))
                    args = (each.get("edited_action") or {}).get("args", action.args)
                    found.append((action.tool_call_id, action.name, args))
        return Reviewed(found)


def guarded(tool: BaseTool, approvals: Approvals, reviewed: Reviewed) -> BaseTool:
    """The tool, or a copy of it that asks, or is watched, whenever it is called by a tool node."""
    if not (approvals.asks(tool.name) or approvals.watches(tool.name)):
        return tool
    copy = tool.model_copy()
    invoke, ainvoke = copy.invoke, copy.ainvoke
    guard = _Guard(tool, approvals, reviewed)

    def guarded_invoke(input: Any, config: Any = None, **kwargs: Any) -> Any:
        passed, note = _in(config, guard.before, input)
        if note is not None:
            note.store.perform(note.act)
        return (
            passed if isinstance(passed, ToolMessage) else guard.told(input, passed, invoke(passed, config, **kwargs))
        )

    async def guarded_ainvoke(input: Any, config: Any = None, **kwargs: Any) -> Any:
        passed, note = _in(config, guard.before, input)
        if note is not None:
            await note.store.aperform(note.act)
        if isinstance(passed, ToolMessage):
            return passed
        return guard.told(input, passed, await ainvoke(passed, config, **kwargs))

    # Past pydantic, which takes no methods for an object.
    object.__setattr__(copy, "invoke", guarded_invoke)
    object.__setattr__(copy, "ainvoke", guarded_ainvoke)
    return copy


def _in(config: Any, function: Callable[[Any], T], input: Any) -> T:
    """Called as the tool itself would be: of the calls of one task, each has questions of its own in its config."""
    if config is None:
        return function(input)
    with set_config_context(config) as context:
        return context.run(function, input)


@dataclass(frozen=True, slots=True)
class _Note:
    """What is to be recorded of a call that is only watched."""

    store: Store
    act: Act[None]


class _Guard:
    def __init__(self, tool: BaseTool, approvals: Approvals, reviewed: Reviewed) -> None:
        self._tool, self._approvals, self._reviewed = tool, approvals, reviewed
        self._known = frozenset(tool.args)

    def before(self, call: Any) -> tuple[Any, _Note | None]:
        """The call as it may run, or what the model is told instead; and what is to be recorded of it."""
        if not _is_call(call) or self._was_reviewed(call):
            return call, None
        if self._approvals.watches(self._tool.name):
            return call, self._note(call)
        return self._passes(call), None

    def _passes(self, call: Mapping[str, Any]) -> Any:
        """Asks; the call as it may run, or what the model is told instead."""
        decision = interrupt(self._asked(call))
        kind = decision.get("type") if isinstance(decision, Mapping) else None
        if kind == "approve":
            return call
        if kind == "edit":
            injected = {name: value for name, value in call["args"].items() if name not in self._known}
            return {**call, "args": {**injected, **decision["edited_action"]["args"]}}
        if kind == "reject":
            reason = f" The reason: {decision['message']}" if decision.get("message") else ""
            told = f"This call of {call['name']} was rejected and was not executed.{reason}"
            return self._instead(call, told, "error")
        if kind == "respond":
            return self._instead(call, decision["message"], "success")
        raise _book().stop(
            NineLivesError(
                f"tool {call['name']!r} now asks for leave ([approvals]), and what was answered in its place says"
                " nothing about that; nothing ran. Start over, or take the tool out of [approvals] until this run has"
                " ended."
            )
        )

    def _note(self, call: Mapping[str, Any]) -> _Note | None:
        book, task = current_journal(), _langgraph.current_task()
        if book is None or task is None:
            return None
        place = f"{task.stored_task_id}/{task.checkpoint_ns}/{call['id']}"
        action = Action(call["id"], call["name"], self._shown(call), ALL)
        question = NewQuestion(
            hashlib.blake2b(place.encode(), digest_size=16).hexdigest(), self._asked(call), "call", (action,)
        )
        act = book.store.note_shadow(
            book.lease,
            question,
            ns=task.checkpoint_ns,
            task_id=task.stored_task_id,
            checkpoint_id=task.checkpoint_id,
        )
        return _Note(book.store, act)

    def told(self, before: Any, passed: Any, output: Any) -> Any:
        """The output, with a word to the model where the call was edited: its own message still has what it wanted."""
        if passed is before or not isinstance(output, ToolMessage) or not isinstance(output.content, str):
            return output
        ran = {name: value for name, value in passed["args"].items() if name in self._known}
        note = f"[A person changed this call before it ran; the arguments were {ran!r}.]"
        return output.model_copy(update={"content": f"{note}\n{output.content}"})

    def _was_reviewed(self, call: Mapping[str, Any]) -> bool:
        return (call["id"], call["name"], self._shown(call)) in self._reviewed.calls

    def _shown(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that the model gave; a tool node has added what the tool gets from the graph."""
        return {name: value for name, value in call["args"].items() if name in self._known}

    def _asked(self, call: Mapping[str, Any]) -> dict[str, Any]:
        shown = {"name": call["name"], "args": self._shown(call)}
        return {"type": "tool_approval", "tool_call_id": call["id"], **shown, "description": "", "by": BY}

    def _instead(self, call: Mapping[str, Any], text: str, status: Literal["success", "error"]) -> ToolMessage:
        return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status=status)


def _is_call(input: Any) -> bool:
    return isinstance(input, Mapping) and input.get("type") == "tool_call" and isinstance(input.get("args"), Mapping)


def _book() -> Journal:
    book = current_journal()
    assert book is not None, "a guarded tool is only called inside a run"
    return book
