"""The control: LangGraph's own saver in SQLite, under its safest setting, put to the same tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import EmptyInputError
from langgraph.pregel import Pregel
from langgraph.types import Command

from crash.subjects import set_clock_back
from ninelives.chaos.faults import Faults, Point
from ninelives.chaos.subjects import THREAD, Letter, Request, checks_told, recorded_tasks, tell_questions
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
    """
    What a careful application does with the saver alone: go on if there is something, else begin.

    An answer it writes down first, and then hands it to the graph, as the documents say.
    """

    def __init__(
        self, saver: SqliteSaver, graph: Pregel[Any, Any, Any, Any], workload: Workload, world: World, answers: Path
    ) -> None:
        self._saver, self._graph, self._workload = saver, graph, workload
        self._recorder, self._answers = world.faults.recorder, answers
        self._config: RunnableConfig = {**CONFIG, "callbacks": [checks_told(world.faults)]}

    def recorded(self) -> dict[str, Any]:
        tasks, checkpoints = recorded_tasks(self._saver)
        digest = hashlib.sha256(repr(checkpoints).encode()).hexdigest()
        return {
            "tasks": tasks,
            "effects": {},
            "decisions": self._decisions(),
            "checkpoints": checkpoints,
            "rows": {"checkpoint": digest},
        }

    def ask(self, request: Request = "same", *, wait_s: float = 0.0) -> Any:
        try:
            output = self._call(None)
        except EmptyInputError:
            output = self._call(self._workload.input)
        while self._workload.answers and (questions := output.get("__interrupt__")):
            values = [self._workload.answer_to(each.value, self._recorder.life) for each in questions]
            letters = [Letter(each.id, value) for each, value in zip(questions, values, strict=True)]
            output = self.deliver(letters, elsewhere=False)
        return output

    def deliver(self, letters: Sequence[Letter], *, elsewhere: bool) -> Any:
        output = None
        for letter in letters:
            told = {"question": letter.question, "value": letter.value}
            self._recorder.write("answering", **told, again=letter.again)
            with self._answers.open("a") as file:
                file.write(f"{json.dumps([letter.question, letter.value])}\n")
            output = self._call(Command(resume=letter.value))
        return output

    def _call(self, input: Any) -> Any:
        output = self._graph.invoke(input, self._config, durability="sync")
        tell_questions(self._recorder, output)
        return output

    def _decisions(self) -> list[Any]:
        return [json.loads(line) for line in self._answers.read_text().splitlines()] if self._answers.exists() else []

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
            yield StockSession(saver, graph, workload, world, folder / "answers.jsonl")


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
