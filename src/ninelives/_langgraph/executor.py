"""Threads for sync code, counted per run: a call whose run was cancelled is known to be alive until it returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from threading import Condition
from typing import ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

current_work: ContextVar[Hashable | None] = ContextVar("ninelives_current_work", default=None)
"""What the calls submitted from here are counted under; the runner sets it around a run."""


class RunExecutor(ThreadPoolExecutor):
    """
    A thread pool that knows, per token, how many calls have not returned; all pools of a process count together.

    Args:
        max_workers: calls at once.
        token: asked in the context of each `submit`, where `current_work` is not set.
        check: called by a node's or tool's thread right before its body, in the body's context; what it raises takes
            the body's place. A call may have waited long for its thread.
    """

    _alive: ClassVar[Counter[Hashable]] = Counter()
    _changed: ClassVar[Condition] = Condition()

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        token: Callable[[], Hashable | None] = lambda: None,
        check: Callable[[], None] = lambda: None,
        thread_name_prefix: str = "ninelives",
    ) -> None:
        super().__init__(max_workers, thread_name_prefix=thread_name_prefix)
        self._token, self.check = token, check

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        token = current_work.get() or self._token()
        future = super().submit(fn, *args, **kwargs)
        with self._changed:
            self._alive[token] += 1
        # A waiter that gives up cancels only its own future; this one is done when the thread is.
        future.add_done_callback(lambda _: self._ended(token))
        return future

    def alive(self, token: Hashable) -> int:
        """Calls submitted under `token` that have not returned, queued ones too."""
        with self._changed:
            return self._alive[token]

    def wait_idle(self, token: Hashable, timeout_s: float) -> bool:
        """Wait until no call of `token` is alive; False if one still is after `timeout_s`. Blocks the thread."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._alive[token], timeout_s)

    def _ended(self, token: Hashable) -> None:
        with self._changed:
            self._alive[token] -= 1
            if not self._alive[token]:
                del self._alive[token]
            self._changed.notify_all()
