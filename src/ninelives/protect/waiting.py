"""
Plain input on a thread that waits for an answer: what somebody types while a question is open.

New input would drop the question, so it is refused unless the caller has said what it is: the answer, something for
afterwards, or what counts instead of the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage

from ninelives.errors import InvalidDecisionError
from ninelives.interrupts import Tools, resolved, respond
from ninelives.model import Interrupt

OnWaiting = Literal["refuse", "answer", "queue", "replace"]


def answer_in(input: Any, questions: Sequence[Interrupt], tools: Tools) -> dict[str, Any]:
    """
    Free text as the answer to the one question that is pending, by its id.

    Args:
        input: as it is stored: what goes to a channel of messages is messages.

    Raises:
        InvalidDecisionError: it is no text, or the question does not take one; says why.
    """
    pending = [question.interrupt_id for question in questions]
    text = text_of(input)
    if text is None:
        why = "the input is no answer: that is a plain text, or messages of which the last human one is text alone"
        raise InvalidDecisionError(why, pending)
    if len(questions) != 1:
        why = "several questions are pending, so an answer must name its interrupt id"
        raise InvalidDecisionError(why, pending)
    return {pending[0]: resolved(questions[0], respond(text), tools, pending)}


def text_of(input: Any) -> str | None:
    """What a person has typed; None where the input says more than that, or something else."""
    if isinstance(input, str):
        return input or None
    if not isinstance(input, dict) or len(input) != 1:
        return None
    (given,) = input.values()
    messages = given if isinstance(given, list | tuple) else [given]
    if not messages or not all(isinstance(message, BaseMessage) for message in messages):
        return None
    said = [message for message in messages if isinstance(message, HumanMessage)]
    content = said[-1].content if said else None
    if isinstance(content, list):
        parts = [part if isinstance(part, str) else part.get("text") for part in content]
        content = "".join(map(str, parts)) if all(isinstance(part, str) for part in parts) else None
    return content or None
