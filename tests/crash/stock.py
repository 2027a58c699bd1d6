"""The control: LangGraph's own saver in SQLite, under its safest setting, put to the same tests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import EmptyInputError
from langgraph.pregel import Pregel

from crash.subjects import set_clock_back
from ninelives.chaos.faults import Faults, Point
from ninelives.chaos.subjects import THREAD, Request, recorded_tasks
from ninelives.chaos.workload import Outside, Workload, World

T = TypeVar("T")

CONFIG: RunnableConfig = {"configurable": {"thread_id": THREAD}}


class WatchedSaver(SqliteSaver):
    """Its two writes, with a point before and after each, under the names of ours."""

    faults: Faults

    def put(self, *args: Any, **kwargs: Any) -> Any:
        return self._watched("put_checkpoint", super().put, *args, **kwargs)

    def put_writes(self, *args: Any, **kwargs: Any) -> Any:
        return self._watched("put_writes", super().put_writes, *args, **kwargs)

    def _watched(self, what: str, act: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        n = self.faults.number(what)
        self.faults.hit(Point(what, n, "commit", "before"))
        result = act(*args, **kwargs)
        self.faults.hit(Point(what, n, "commit", "after"))
        return result


class StockSession:
    """What a careful application does with the saver alone: go on if there is something, else begin."""

    def __init__(self, saver: SqliteSaver, graph: Pregel[Any, Any, Any, Any], input: Any) -> None:
        self._saver, self._graph, self._input = saver, graph, input

    def recorded(self) -> dict[str, Any]:
        tasks, checkpoints = recorded_tasks(self._saver)
        digest = hashlib.sha256(repr(checkpoints).encode()).hexdigest()
        return {
            "tasks": tasks,
            "effects": {},
            "decisions": [],
            "checkpoints": checkpoints,
            "rows": {"checkpoint": digest},
        }

    def ask(self, request: Request = "same", *, wait_s: float = 0.0) -> Any:
        try:
            return self._graph.invoke(None, CONFIG, durability="sync")
        except EmptyInputError:
            return self._graph.invoke(self._input, CONFIG, durability="sync")

    def settle(self, key: str, *, happened: bool, result: Any) -> None:
        raise NotImplementedError("it knows of no acts, so it asks nothing about them")

    def values(self) -> Any:
        return self._graph.get_state(CONFIG).values

    def on(self, thread: str, world: World) -> StockSession:
        raise NotImplementedError("it is put to no test on two threads")


class Stock:
    name = "stock"

    def world_of(self, faults: Faults, outside: Outside) -> World:
        return World(faults, outside, _undeclared)

    @contextmanager
    def open(self, folder: Path, workload: Workload, world: World) -> Iterator[StockSession]:
        with WatchedSaver.from_conn_string(str(folder / "stock.db")) as saver:
            saver.faults = world.faults  # type: ignore[attr-defined]
            graph = workload.build(world)
            graph.checkpointer = saver
            yield StockSession(saver, graph, workload.input)


def _undeclared(act: T, *, probe: Callable[..., Any] | None = None, key: Callable[..., str] | None = None) -> T:
    """Nothing is declared to it: a call is a call."""
    return act


class StockSetBack(Stock):
    """Whoever goes on has a clock that is behind."""

    name = "stock, a clock set back by 60 s"

    @contextmanager
    def open(self, folder: Path, workload: Workload, world: World) -> Iterator[StockSession]:
        if world.faults.recorder.life > 1:
            set_clock_back(60)
        with super().open(folder, workload, world) as session:
            yield session


STOCK, STOCK_SET_BACK = Stock(), StockSetBack()
