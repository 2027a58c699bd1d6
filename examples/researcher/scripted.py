"""
A chat model that needs no key and no network: what it says next follows from the messages it is shown alone.

It stands in for a real model in the example beside it. It keeps nothing between calls, so it goes on wherever the
history ends, in this process or in the next one; and the ids of its messages and tool calls are made from the history
too, so a run that was killed and went on ends with the same ones as a run that was not.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.outputs import ChatGeneration, ChatResult


@dataclass(frozen=True)
class Call:
    """One tool call that a script asks for."""

    name: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """What a script goes by: the newest question, which one of the thread it is, and each tool's answers to it."""

    question: str
    number: int
    answers: dict[str, list[str]]

    def of(self, tool: str) -> list[str]:
        """The answers of one tool in the order they stand in the history; empty before it was called."""
        return self.answers.get(tool, [])


Script = Callable[[Turn], str | list[Call]]


class ScriptedModel(BaseChatModel):
    """A chat model driven by a script: text ends the turn, a list of calls is made in parallel."""

    script: Script

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> ScriptedModel:
        """The script knows its tools by name; there is nothing to bind."""
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        pause()
        message = _as_message(self.script(turn_of(messages)), _digest(messages))
        return ChatResult(generations=[ChatGeneration(message=message)])


def pause() -> None:
    """Take a visible moment: `NINELIVES_EXAMPLE_PACE_S` seconds, 0.15 unless set."""
    time.sleep(float(os.environ.get("NINELIVES_EXAMPLE_PACE_S", "0.15")))


def turn_of(messages: Sequence[BaseMessage]) -> Turn:
    """Sort what follows the newest question by the tool that said it."""
    asked = [at for at, message in enumerate(messages) if isinstance(message, HumanMessage)]
    newest = asked[-1] if asked else -1
    answers: dict[str, list[str]] = {}
    for message in messages[newest + 1 :]:
        if isinstance(message, ToolMessage):
            answers.setdefault(message.name or "", []).append(str(message.text))
    return Turn(str(messages[newest].text) if asked else "", len(asked), answers)


def _as_message(said: str | list[Call], digest: str) -> AIMessage:
    if isinstance(said, str):
        return AIMessage(said, id=f"said-{digest}")
    calls = [ToolCall(name=call.name, args=call.args, id=f"call-{digest}-{at}") for at, call in enumerate(said)]
    return AIMessage("", id=f"said-{digest}", tool_calls=calls)


def _digest(messages: Sequence[BaseMessage]) -> str:
    """A short name for a history. Message ids are left out: those of questions and answers are drawn at random."""
    told = hashlib.sha256()
    for message in messages:
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        told.update(repr((message.type, str(message.text), [(call["name"], call["args"]) for call in calls])).encode())
    return told.hexdigest()[:16]


# -- the two scripts -------------------------------------------------------------------------------------------


def researcher(turn: Turn) -> str | list[Call]:
    """Plan and let the reader read, write the report down, publish it, answer."""
    folder = folder_in(turn.question)
    if not turn.of("task"):
        order = f"List the files in '{folder}', count the words of each, and outline each."
        task = Call("task", {"subagent_type": "reader", "description": order})
        return [_todos("in_progress", "pending", "pending"), task]
    found = turn.of("task")[-1]
    if found.startswith(NOTHING):
        return found
    if not turn.of("write_file"):
        page = {"file_path": f"/report-{turn.number}.md", "content": f"# {folder}\n\n{found}\n"}
        return [_todos("completed", "completed", "in_progress"), Call("write_file", page)]
    if not turn.of("publish_report"):
        return [Call("publish_report", {"title": f"What is in {folder}", "body": found})]
    return f"{turn.of('publish_report')[-1]}\n\n{found}"


def reader(turn: Turn) -> str | list[Call]:
    """List the files, count the words of all of them at once, outline all of them at once, report."""
    if not turn.of("list_files"):
        return [Call("list_files", {"folder": folder_in(turn.question)})]
    listing = turn.of("list_files")[-1]
    if listing.startswith(NOTHING):
        return listing
    paths = listing.splitlines()
    if not turn.of("count_words"):
        return [Call("count_words", {"path": path}) for path in paths]
    if not turn.of("outline"):
        return [Call("outline", {"path": path}) for path in paths]
    return _report(turn.of("count_words"), turn.of("outline"))


NOTHING = "Nothing to read"
"""How `list_files` begins when there is nothing to count, so that a script can tell."""

_FOLDER_PATTERNS = (
    r"[\"'`]([^\"'`]+)[\"'`]",  # a quoted path
    r"(?:^|\s)((?:\S*/\S*)|\.{1,2})(?=[\s?!,;:]|$)",  # a word with a slash in it
    r"\b(?:folder|directory) (?!\b(?:is|has|and|here)\b)([\w.-]+)",
    r"([\w.-]+) (?:folder|directory)\b",
    r"\b(?:in|under|of) ([\w.-]+)",
)
_NO_NAMES = {"the", "this", "that", "a", "my", "our", "current", "here", "it", "each"}


def folder_in(question: str) -> str:
    """The folder that a question names, `.` if it names none."""
    for pattern in _FOLDER_PATTERNS:
        for found in re.finditer(pattern, question):
            name: str = found.group(1).rstrip("?!,;:")
            name = name if name in {".", ".."} else name.rstrip(".")
            if name and name.lower() not in _NO_NAMES:
                return name
    return "."


def _todos(read: str, write: str, publish: str) -> Call:
    plan = {"Have the files read": read, "Write the report": write, "Publish the report": publish}
    return Call("write_todos", {"todos": [{"content": what, "status": status} for what, status in plan.items()]})


def _report(counts: list[str], outlines: list[str]) -> str:
    words = sum(int(number) for count in counts for number in re.findall(r": (\d+) words$", count))
    listed = "\n".join(f"- {count}" for count in counts)
    outlined = "\n".join(f"- {outline}" for outline in outlines)
    return f"{len(counts)} files, {words} words.\n\n{listed}\n\nIn them:\n\n{outlined}"
