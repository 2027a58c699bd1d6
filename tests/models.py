"""A model that says what it was told to say, and remembers what it was shown; and what histories are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field


class Replies(BaseChatModel):
    """
    Its next message depends only on how many of them it is shown: the same history gets the same answer.

    Attributes:
        shown: the messages of each call.
    """

    replies: list[AIMessage]
    shown: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "replies"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Replies:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.shown.append(messages)
        turn = sum(isinstance(message, AIMessage) for message in messages)
        reply = self.replies[min(turn, len(self.replies) - 1)].model_copy(update={"id": f"ai-{turn}"})
        return ChatResult(generations=[ChatGeneration(message=reply)])


def call(name: str, call_id: str, /, **args: Any) -> Any:
    """A tool call as a model makes it."""
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def results(out: Any) -> dict[str, Any]:
    """What tools have said, by tool call id."""
    return {m.tool_call_id: m.content for m in out["messages"] if isinstance(m, ToolMessage)}


def well_formed(messages: Sequence[BaseMessage]) -> bool:
    """Each call of a model is followed by its tool message, exactly one, before anybody else speaks."""
    due: list[str | None] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in due:
                return False
            due.remove(message.tool_call_id)
        elif due:
            return False
        elif isinstance(message, AIMessage):
            due = [one["id"] for one in message.tool_calls]
    return not due
