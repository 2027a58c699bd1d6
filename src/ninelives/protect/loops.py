"""
Event loops in threads of ours, for callers that are not async.

`invoke` drives the graph's async API on such a loop, also when the caller's thread has a loop of its own (a notebook).
A call made from inside a run on one of these loops gets the next one: a loop that waits for a call on itself, or a
thread pool whose every thread waits for a thread, would wait for ever.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from ninelives._langgraph import RunExecutor
from ninelives.store import ALONE

T = TypeVar("T")

_depth: ContextVar[int] = ContextVar("ninelives_loop_depth", default=0)
_loops: dict[tuple[int, int], Loop] = {}
_mutex = threading.Lock()


def our_loop(executor: Callable[[], RunExecutor]) -> Loop:
    """The loop for calls from here. `executor` makes the pool for sync code, when the loop is new."""
    place = (os.getpid(), _depth.get())
    with _mutex:
        if place not in _loops:
            _loops[place] = Loop(place[1], executor())
        return _loops[place]


def executors_here() -> list[RunExecutor]:
    """The pool that the running loop gives sync code to, where it is a loop of ours."""
    running = asyncio.get_running_loop()
    return [loop.executor for loop in list(_loops.values()) if loop.is_loop(running)]


class Loop:
    """One loop, running in a daemon thread."""

    def __init__(self, depth: int, executor: RunExecutor) -> None:
        self._depth, self.executor = depth, executor
        self._running = 0
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(executor)
        threading.Thread(target=self._serve, name=f"ninelives-loop-{depth}", daemon=True).start()

    def _serve(self) -> None:
        """For ever: a task that ends with SystemExit, as a node that calls `sys.exit` does, stops asyncio's loop."""
        while True:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # the task has it as its outcome, and whoever called is told
            return

    def is_loop(self, running: asyncio.AbstractEventLoop) -> bool:
        return self._loop is running

    def is_alone(self) -> bool:
        """Whether the caller is on this loop, and one call all that runs on it."""
        return self._running == 1 and _running_loop() is self._loop

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """
        Carry out the awaitable that `work` gives and wait for its end.

        An exception in the waiting thread (Ctrl-C) cancels it and waits until it has ended, then goes on.
        """
        return self._run(work, self._context())

    def iterate(self, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """An async iterator, pulled one step at a time; closing this one closes it."""
        context = self._context()
        items = context.run(make)
        try:
            while True:
                try:
                    yield self._run(items.__anext__, context)
                except StopAsyncIteration:
                    return
        finally:
            self._run(items.aclose, context)  # type: ignore[attr-defined]

    def _context(self) -> Context:
        context = copy_context()
        context.run(_depth.set, self._depth + 1)
        context.run(ALONE.set, self.is_alone)
        return context

    def _run(self, work: Callable[[], Awaitable[T]], context: Context) -> T:
        ended: Future[T] = Future()
        tasks: list[asyncio.Task[Any]] = []

        async def carry_out() -> None:
            self._running += 1
            try:
                result = await work()
            except StopAsyncIteration as end:
                ended.set_exception(end)
            except BaseException as error:
                ended.set_exception(error)
            else:
                ended.set_result(result)
            finally:
                self._running -= 1

        self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(carry_out(), context=context)))
        try:
            return ended.result()
        except BaseException:
            if not ended.done():
                self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
                _wait(ended)
            raise


def _wait(ended: Future[Any]) -> None:
    while True:
        try:
            ended.exception()
        except KeyboardInterrupt:
            continue  # asked to stop already; what is being let go of is let go of first
        return


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
