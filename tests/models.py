"""A model that says what it was told to say, and remembers what it was shown."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
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
