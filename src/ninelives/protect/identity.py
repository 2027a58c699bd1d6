"""
Which conversation a call belongs to.

A thread is found again by its id alone. An id made anew for each call gives each call an empty memory, and nothing that
was cut off is ever found again; nothing fails, so it is noticed late.
"""

from __future__ import annotations

import warnings
from urllib.parse import quote

from ninelives.errors import MissingThreadError

MADE_WITHOUT_REUSE_MAX = 50


def thread_id(*parts: object) -> str:
    """
    A thread's id from the things that stay the same for one conversation: `thread_id("user", user_id, session)`.

    Different parts never give the same id, whatever characters they hold.

    Raises:
        MissingThreadError: no parts, or one that is None or empty: everybody who lacks it would share one thread.
    """
    words = ["" if part is None else str(part) for part in parts]
    if not words or not all(words):
        raise MissingThreadError(
            f"thread_id{parts!r}: every part must be given; nothing ran. Without one, all who lack it would share a"
            " thread."
        )
    return ":".join(quote(word, safe="@+ ") for word in words)


THREAD_ID_CHARS_MAX = 512


def checked(thread: object) -> str:
    """
    A thread's id as the caller gave it.

    Raises:
        MissingThreadError: it could not be shown or typed again: control characters, or too long.
    """
    text = str(thread)
    if len(text) > THREAD_ID_CHARS_MAX or not text.isprintable() or not text.strip():
        raise MissingThreadError(
            f"thread id {text[:40]!r}: an id is up to {THREAD_ID_CHARS_MAX} printable characters; nothing ran. Make it"
            ' with thread_id("user", user_id).'
        )
    return text


class Regulars:
    """Watches whether threads are ever used again, and says so once if none is."""

    def __init__(self) -> None:
        self._made, self._content = 0, False

    def came(self, *, created: bool) -> None:
        """A run was admitted on a thread that was made for it, or on one that was there."""
        if self._content:
            return
        self._made += 1
        if not created:
            self._content = True
        elif self._made >= MADE_WITHOUT_REUSE_MAX:
            self._content = True
            warnings.warn(
                f"{self._made} threads were made in this process and none was used a second time. If the id is made"
                ' anew for each call, no call remembers another: build it with thread_id("user", user_id), or say'
                ' thread="new" where that is meant.',
                stacklevel=2,
            )
