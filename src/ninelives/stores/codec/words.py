"""
The words of LangGraph that stand in every task's write, as one byte each.

A compressor does nothing for sixty bytes that come alone. The table is part of what is stored: words are added at its
end, and none is ever changed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

WORDS = (
    "~__pregel_pull, ",
    "~__pregel_push, ",
    "branch:to:",
    "__start__",
    "__pregel_tasks",
    "__interrupt__",
    "__resume__",
    "__error__",
    "__error_source_node__",
    "__no_writes__",
    "__return__",
    "messages",
    "files",
    "todos",
    "agent",
    "model",
    "tools",
)
_MARKS = {word: chr(place) for place, word in enumerate(WORDS, 1)}
_WORD = re.compile("|".join(map(re.escape, sorted(WORDS, key=len, reverse=True))))
_ODD = re.compile("[\x00-\x1f]")
_MARK = re.compile("\x00(.)|([\x01-\x1f])", re.DOTALL)


def short(text: str) -> str:
    """The text with its known words as control characters, and those of its own behind a zero."""
    if _ODD.search(text):
        return _ODD.sub(lambda odd: "\x00" + odd.group(), text)
    return _WORD.sub(lambda word: _MARKS[word.group()], text)


def long(text: str) -> str:
    """
    The text that was made short.

    Raises:
        ValueError: it names a word that is not in the table.
    """
    return _MARK.sub(_spelled, text)


def _spelled(mark: re.Match[str]) -> str:
    if (odd := mark.group(1)) is not None:
        return odd
    place = ord(mark.group(2))
    if place > len(WORDS):
        raise ValueError(f"word {place} is not known")
    return WORDS[place - 1]


# -- moments ----------------------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def moment(text: object) -> object:
    """Microseconds since 1970 for a moment in the one spelling that LangGraph uses; anything else as it is."""
    if type(text) is not str:
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    count = (found - _EPOCH) // _MICROSECOND if found.tzinfo is UTC else None
    return count if count is not None and spelled(count) == text else text


def spelled(stored: object) -> object:
    """The text of a moment."""
    return (_EPOCH + stored * _MICROSECOND).isoformat() if type(stored) is int else stored
