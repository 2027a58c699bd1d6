"""
How the tasks of a superstep are run: nobody is cancelled because a sibling failed.

LangGraph's async API cancels a failing task's siblings mid-flight, so they run again although their outside acts may
have happened. Handed in as the runner's `submit`, `Supersteps` lets a failing task keep its exception until every
sibling has returned and its result was handed to the saver; then all failures come out, and LangGraph raises one.

Everything else is left to LangGraph: tasks are still started on, awaited and cancelled by the executor of the loop
that they belong to. That executor also starts the saver's writes, so the number of tasks at once is limited here, by
a gate of our own, and a finished task's write never queues behind a task that waits for its turn.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.types import PregelExecutableTask

from ninelives._langgraph.messages import stamp_writes
from ninelives._langgraph.private import (
    CONFIG_KEY_CALL,
    CONFIG_KEY_RUNNER_SUBMIT,
    AsyncBackgroundExecutor,
    BackgroundExecutor,
    FuturesDict,
    PregelLoop,
    PregelRunner,
)


def take_max_concurrency(config: RunnableConfig | None) -> tuple[RunnableConfig, int | None]:
    """The config without `max_concurrency`, which LangGraph would also apply to the saver's writes, and its value."""
    rest = dict(config or {})
    limit = rest.pop("max_concurrency", None)
    return rest, limit  # type: ignore[return-value]


class Supersteps:
    """
    Runs the tasks of one run and of every graph nested in it.

    Args:
        max_concurrency: tasks at once, per graph and not in total, as LangGraph counts; None for no limit (graphs run
            through the sync API then have a thread pool of the usual size).
    """

    def __init__(self, *, max_concurrency: int | None) -> None:
        self._limit = max_concurrency
        self._steps: dict[int, _Superstep] = {}
        self._gates: weakref.WeakKeyDictionary[Any, dict[int, asyncio.Semaphore]] = weakref.WeakKeyDictionary()
        self._pools: weakref.WeakKeyDictionary[Any, dict[int, ThreadPoolExecutor]] = weakref.WeakKeyDictionary()
        self._executors: weakref.WeakSet[AsyncBackgroundExecutor] = weakref.WeakSet()
        self._lock = Lock()

    def configurable(self) -> dict[str, Any]:
        """To be merged into `config["configurable"]` of the run; nested graphs inherit it."""
        return {CONFIG_KEY_RUNNER_SUBMIT: self._get_submit}

    async def aclose(self) -> None:
        """
        Cancel the tasks that a run left behind, and wait for them and for the saver's last writes.

        A run whose stream was closed has left no task, but a cancelled one may still be storing that it was.
        """
        for executor in [one for one in self._executors if one.loop is asyncio.get_running_loop()]:
            for task, (cancel_on_exit, _) in list(executor.tasks.items()):
                if cancel_on_exit:
                    task.cancel()
            while left := [task for task in list(executor.tasks) if not task.done()]:
                await asyncio.wait(left)
                await asyncio.sleep(0)  # what they set off (a commit, its write) is there in the next round
        for pools in list(self._pools.values()):
            _shut(pools)

    # -- LangGraph's side --------------------------------------------------------------------------------------

    def _get_submit(self) -> Callable[..., Any]:
        return self._submit

    def _submit(
        self,
        fn: Callable[..., Any],
        task: PregelExecutableTask,
        *args: Any,
        __name__: str | None = None,
        __cancel_on_exit__: bool = False,
        __reraise_on_exit__: bool = True,
        __next_tick__: bool = False,
        **kwargs: Any,
    ) -> Any:
        tick = _tick_of(kwargs)
        stamp_writes(task, tick.loop.specs)  # an error handler's too, which no control saw
        work = partial(fn, task, *args, **kwargs)
        member = _Member(self._superstep(tick, task), task, tick)
        member.start()
        flags = (__cancel_on_exit__, __reraise_on_exit__)
        try:
            if isinstance(tick.executor, AsyncBackgroundExecutor):
                return self._submit_async(work, member, tick.executor, flags, name=__name__, lazy=__next_tick__)
            return self._submit_sync(work, member, tick.executor, flags)
        except BaseException:
            member.step.give_up()  # its siblings wait for tasks that will never start
            raise

    # -- async -------------------------------------------------------------------------------------------------

    def _submit_async(
        self,
        work: Callable[[], Any],
        member: _Member,
        executor: AsyncBackgroundExecutor,
        flags: tuple[bool, bool],
        *,
        name: str | None,
        lazy: bool,
    ) -> asyncio.Future[Any]:
        self._executors.add(executor)
        cancel, reraise = flags
        future = executor.submit(
            partial(self._arun, work, member, self._gate(executor, member.depth)),
            __name__=name,
            __cancel_on_exit__=cancel,
            __reraise_on_exit__=reraise,
            __next_tick__=lazy,
        )
        # LangGraph commits in a callback that it adds after this one: settle once those of this round have run.
        future.add_done_callback(lambda done: done.get_loop().call_soon(member.settle, done))
        return future

    async def _arun(self, work: Callable[[], Any], member: _Member, gate: AbstractAsyncContextManager[Any]) -> Any:
        try:
            async with gate:
                return await work()
        except Exception as error:
            if member.keeps(error):
                await _until_released(member.step)
            raise

    def _gate(self, executor: AsyncBackgroundExecutor, depth: int) -> AbstractAsyncContextManager[Any]:
        if not self._limit:
            return nullcontext()
        gates = self._gates.setdefault(executor, {})
        return gates.setdefault(depth, asyncio.Semaphore(self._limit))

    # -- sync --------------------------------------------------------------------------------------------------

    def _submit_sync(
        self, work: Callable[[], Any], member: _Member, executor: BackgroundExecutor, flags: tuple[bool, bool]
    ) -> Future[Any]:
        future = _TaskFuture(member)
        self._pool(executor, member.depth).submit(copy_context().run, _run, work, member, future)
        for waited, its_flags in ((future, flags), (future.committed, (False, False))):
            executor.tasks[waited] = its_flags
            Future.add_done_callback(waited, executor.done)
        return future

    def _pool(self, executor: BackgroundExecutor, depth: int) -> ThreadPoolExecutor:
        with self._lock:
            if executor not in self._pools:
                self._pools[executor] = {}
                weakref.finalize(executor, _shut, self._pools[executor])
            pools = self._pools[executor]
            if depth not in pools:
                pools[depth] = ThreadPoolExecutor(self._limit or None, thread_name_prefix="ninelives-task")
            return pools[depth]

    def _superstep(self, tick: _Tick, first: PregelExecutableTask) -> _Superstep:
        key = id(tick.futures)
        with self._lock:
            if key not in self._steps:
                # A call that comes first was made by a lone node, which LangGraph runs without submitting it.
                lone = _call_depth(first.path) > 0
                due = {task.id for task in tick.loop.tasks.values() if not task.writes and not lone}
                self._steps[key] = _Superstep(due)
                weakref.finalize(tick.futures, self._steps.pop, key, None)
            return self._steps[key]


class _Superstep:
    """
    Knows the tasks of one superstep that have not been committed, and keeps the failures until only those are left.

    A task that failed and has an error handler leaves its place to the handler, which LangGraph starts a little later.

    Args:
        due: ids of the tasks that LangGraph is about to start: one may fail before the next is submitted.
    """

    def __init__(self, due: Iterable[str]) -> None:
        self._lock = Lock()
        self._open = set(due)
        self._handlers_due = 0
        self._kept: list[Callable[[], Any]] = []
        self._given_up = False

    def start(self, task_id: str, *, is_handler: bool) -> None:
        with self._lock:
            self._open.add(task_id)
            self._handlers_due -= is_handler and self._handlers_due > 0

    def settle(self, task_id: str, *, handler_due: bool) -> None:
        with self._lock:
            self._open.discard(task_id)
            self._handlers_due += handler_due
        self._release_if_alone()

    def give_up(self) -> None:
        """Keep nothing any more."""
        self._given_up = True
        self._release_if_alone()

    def keep(self, release: Callable[[], Any]) -> None:
        """`release` is called, from whichever thread settles last, when all others are committed or kept too."""
        with self._lock:
            self._kept.append(release)
        self._release_if_alone()

    def forget(self, release: Callable[[], Any]) -> None:
        with self._lock:
            if release in self._kept:
                self._kept.remove(release)

    def _release_if_alone(self) -> None:
        with self._lock:
            if len(self._kept) < len(self._open) + self._handlers_due and not self._given_up:
                return
            due, self._kept = self._kept, []
        for release in due:
            release()


class _Member:
    """A task as a part of its superstep."""

    def __init__(self, step: _Superstep, task: PregelExecutableTask, tick: _Tick) -> None:
        self.step = step
        self.depth = _call_depth(task.path)
        self._id, self._path = task.id, task.path
        self._routed = tick.runner._should_route_to_error_handler(task)
        # Should LangGraph fail to start the handler, its async API cancels whoever waits for it; the sync one cannot.
        self._leaves_place = self._routed and isinstance(tick.executor, AsyncBackgroundExecutor)

    def start(self) -> None:
        self.step.start(self._id, is_handler=_is_handler(self._path))

    def keeps(self, error: BaseException) -> bool:
        """Whether LangGraph would stop the siblings for this error, so that it must be kept back."""
        if isinstance(error, GraphBubbleUp) or not isinstance(error, Exception):
            return False
        # A called task (functional API) hands its error to its caller, which waits for it.
        return not self._routed and self.depth == 0

    def settle(self, done: Any) -> None:
        error = None if done.cancelled() else done.exception()
        failed = isinstance(error, Exception) and not isinstance(error, GraphBubbleUp)
        self.step.settle(self._id, handler_due=self._leaves_place and failed)


class _TaskFuture(Future[Any]):
    """
    Counts as settled once its first callback has returned: LangGraph's, which commits the task.

    Who waits for the future itself wakes before its callbacks run, and could close the loop under the commit; so the
    loop is given `committed` to wait for, too.
    """

    def __init__(self, member: _Member) -> None:
        super().__init__()
        self.committed: Future[None] = Future()
        self._member: _Member | None = member

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        member, self._member = self._member, None
        super().add_done_callback(partial(self._then_settle, fn, member) if member else fn)

    def _then_settle(self, fn: Callable[[Future[Any]], object], member: _Member, done: Future[Any]) -> None:
        try:
            fn(done)
        finally:
            self.committed.set_result(None)
            member.settle(done)


class _Tick(NamedTuple):
    """One superstep of one graph, as LangGraph has it in hand."""

    futures: FuturesDict[Any, Any]
    runner: PregelRunner
    loop: PregelLoop
    executor: Any  # AsyncBackgroundExecutor or BackgroundExecutor


def _tick_of(kwargs: dict[str, Any]) -> _Tick:
    """Follows the way from a task's `call` function to the superstep's futures, to the runner, loop and executor."""
    futures = kwargs["configurable"][CONFIG_KEY_CALL].keywords["futures"]()
    runner = futures.callback().__self__
    loop = runner.put_writes().__self__
    return _Tick(futures, runner, loop, loop.submit.__self__)


def _is_handler(path: tuple[Any, ...]) -> bool:
    return path[-2:] == ("node_error_handler", False)


def _call_depth(path: tuple[Any, ...]) -> int:
    """0 for a node, 1 for a task that it calls, and so on: whoever waits for a call must not hold the callee's gate."""
    if path[-1] is True:
        return 1 + (_call_depth(path[1]) if isinstance(path[1], tuple) else 0)
    return 0


async def _until_released(step: _Superstep) -> None:
    released = asyncio.get_running_loop().create_future()

    def release() -> None:
        if not released.done():
            released.set_result(None)

    step.keep(release)
    try:
        await released
    except asyncio.CancelledError:
        step.forget(release)  # the run ends from outside; the kept error is still what happened to this task


def _run(work: Callable[[], Any], member: _Member, future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        if member.keeps(error):
            # Kept without blocking this thread, which a sibling may be waiting for.
            member.step.keep(partial(future.set_exception, error))
        else:
            future.set_exception(error)
    else:
        future.set_result(result)


def _shut(pools: dict[int, ThreadPoolExecutor]) -> None:
    for pool in pools.values():
        pool.shutdown(wait=False)
