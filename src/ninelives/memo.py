"""
Model calls that are paid for once.

A node that calls a model, and is killed behind it, calls it again when it runs again. With `[effects] model =
"recorded"` what the model said is recorded at once, and said again. LangChain asks a cache before it asks a model; ours
stands in front of the one that there was, and speaks only inside a run whose settings say so.

Calls are told apart by their task, what was asked, and how many equal ones came before: asking twice on purpose is
asking twice.
"""

from __future__ import annotations

import hashlib
import logging
from collections import defaultdict, deque
from collections.abc import Sequence
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from langchain_core.caches import BaseCache
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation, GenerationChunk

from ninelives import _langgraph
from ninelives.effects import Journal, current_journal
from ninelives.errors import UnknownTypeError
from ninelives.store import Act

log = logging.getLogger(__name__)

STORED = (Generation, GenerationChunk, ChatGeneration, ChatGenerationChunk)
"""Classes that a recorded answer is made of, beside messages."""

Answer = Sequence[Generation]


class RecordedCalls(BaseCache):
    """
    Args:
        behind: the cache that was there; asked where nothing is recorded.
    """

    def __init__(self, behind: BaseCache | None) -> None:
        self._behind = behind
        self._missed: WeakKeyDictionary[Journal, dict[str, deque[str]]] = WeakKeyDictionary()
        self._mutex = Lock()

    def lookup(self, prompt: str, llm_string: str) -> Answer | None:
        asked = self._asked(prompt, llm_string)
        if asked is not None:
            book, digest, key = asked
            found = book.store.perform(book.store.find_call(book.lease, key))
            if found is not None:
                return _said_again(found)
            self._miss(book, digest, key)
        return self._behind.lookup(prompt, llm_string) if self._behind else None

    async def alookup(self, prompt: str, llm_string: str) -> Answer | None:
        asked = self._asked(prompt, llm_string)
        if asked is not None:
            book, digest, key = asked
            found = await book.store.aperform(book.store.find_call(book.lease, key))
            if found is not None:
                return _said_again(found)
            self._miss(book, digest, key)
        return await self._behind.alookup(prompt, llm_string) if self._behind else None

    def update(self, prompt: str, llm_string: str, return_val: Answer) -> None:
        if (act := self._recording(prompt, llm_string, return_val)) is not None:
            act[0].store.perform(act[1])
        if self._behind:
            self._behind.update(prompt, llm_string, return_val)

    async def aupdate(self, prompt: str, llm_string: str, return_val: Answer) -> None:
        if (act := self._recording(prompt, llm_string, return_val)) is not None:
            await act[0].store.aperform(act[1])
        if self._behind:
            await self._behind.aupdate(prompt, llm_string, return_val)

    def clear(self, **kwargs: Any) -> None:
        if self._behind:
            self._behind.clear(**kwargs)

    def _asked(self, prompt: str, llm_string: str) -> tuple[Journal, str, str] | None:
        """The run that asks, what it asks, and the key of this call; None outside a run, or where it is not wanted."""
        book, task = current_journal(), _langgraph.current_task()
        if book is None or task is None or not book.records_models:
            return None
        digest = hashlib.blake2b(f"{prompt}\0{llm_string}".encode(), digest_size=16).hexdigest()
        equals = (task.path, task.tool_call_id, "model", digest)
        ordinal = book.ordinal(task.stored_task_id, equals)
        key = hashlib.blake2b(repr((task.stored_task_id, *equals, ordinal)).encode(), digest_size=16).hexdigest()
        return book, digest, f"model/{key}"

    def _miss(self, book: Journal, digest: str, key: str) -> None:
        """The model is asked now: what it says belongs to this key."""
        with self._mutex:
            self._missed.setdefault(book, defaultdict(deque))[digest].append(key)

    def _recording(self, prompt: str, llm_string: str, said: Answer) -> tuple[Journal, Act[None]] | None:
        book = current_journal()
        digest = hashlib.blake2b(f"{prompt}\0{llm_string}".encode(), digest_size=16).hexdigest()
        with self._mutex:
            waiting = self._missed.get(book, {}).get(digest) if book is not None else None
            key = waiting.popleft() if waiting else None
        if book is None or key is None:
            return None
        try:
            return book, book.store.keep_call(book.lease, key, "model", [*said])
        except UnknownTypeError as error:
            log.warning("what a model said cannot be recorded, and is paid for again after a kill: %s", error)
            return None


_mutex = Lock()


def record_models() -> None:
    """Stand in front of the process's cache of model calls; once is enough."""
    with _mutex:
        if not isinstance(get_llm_cache(), RecordedCalls):
            set_llm_cache(RecordedCalls(get_llm_cache()))


def _said_again(found: Answer) -> list[Generation]:
    return [
        said.model_copy(update={"generation_info": {**(said.generation_info or {}), _langgraph.RECORDED: True}})
        for said in found
    ]
