"""What the tests of `protect` share: a home with a store, small graphs, an outside world that remembers."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph

from ninelives import protect
from ninelives.config import Settings
from ninelives.lease import Keeper
from ninelives.model import ONE_USER, Decision, Effect, Interrupt, Run
from ninelives.protect.graph import ATTRIBUTE
from ninelives.store import Store
from ninelives.stores import open_store

SAFE_S = 20.0
"""Nothing waits so long unless it hangs."""


class Log(TypedDict):
    log: Annotated[list[str], operator.add]


def asks(*words: str) -> Any:
    return {"log": [*words]}


class Outside:
    """A file that outlives every process: one line for each thing that happened."""

    def __init__(self, folder: Path | str, name: str = "outside.txt") -> None:
        self._path = Path(folder) / name

    def happens(self, what: str) -> None:
        to = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(to, f"{what}\n".encode())
        finally:
            os.close(to)

    @property
    def seen(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []

    def times(self, what: str) -> int:
        return self.seen.count(what)

    def once(self, what: str) -> bool:
        """Whether it is the first time, by all processes together; so a life dies once and its successor goes on."""
        if what in self.seen:
            return False
        self.happens(what)
        return True


class Neighbour:
    """Another process at the same store, as far as the store can tell: a worker of its own."""

    def __init__(self, store: Store) -> None:
        self._keeper = Keeper(store)

    def takes(self, run: Run) -> None:
        self._keeper.store.perform(self._keeper.store.take_over(ONE_USER, run.run_id, self._keeper.worker()))

    def leaves(self) -> None:
        self._keeper.close()


class Home:
    """A store in a folder, and agents that keep their threads in it."""

    def __init__(self, folder: Path | str, **settings: Any) -> None:
        self.folder = Path(folder)
        self.outside = Outside(folder)
        self.store: Store = open_store(f"sqlite:///{self.folder}/agents.db", **{"synchronous": "NORMAL", **settings})
        self._keepers: set[Keeper] = set()

    def protect(self, graph: Any, name: str | None = "agent", **options: Any) -> Any:
        agent: Any = protect(graph, self.store, name=name, **{"settings": Settings(), **options})
        self._keepers.add(keeper_of(agent))
        return agent

    def close(self) -> None:
        for keeper in self._keepers:
            keeper.close()
        self.store.close()

    def neighbour(self) -> Neighbour:
        return Neighbour(self.store)

    # -- looking into the store ------------------------------------------------------------------------------------

    def runs(self, thread: str = "t") -> list[Run]:
        """The thread's runs, oldest first."""
        return self.store.perform(self.store.list_runs(ONE_USER, thread_id=thread))[::-1]

    def statuses(self, thread: str = "t") -> list[str]:
        return [str(run.status) for run in self.runs(thread)]

    def questions(self, thread: str = "t", *, pending_only: bool = True) -> list[Interrupt]:
        return self.store.perform(self.store.list_interrupts(ONE_USER, thread, pending_only=pending_only))

    def decisions(self, thread: str = "t") -> list[Decision]:
        return self.store.perform(self.store.list_decisions(ONE_USER, thread))

    def effects(self, thread: str = "t") -> list[Effect]:
        return self.store.perform(self.store.list_effects(ONE_USER, thread_id=thread))


@contextmanager
def home_in(folder: Path | str, **settings: Any) -> Iterator[Home]:
    home = Home(folder, **settings)
    try:
        yield home
    finally:
        home.close()


def keeper_of(agent: Any) -> Keeper:
    keeper: Keeper = agent.__dict__[ATTRIBUTE].keeper
    return keeper


def loses_its_lease(home: Home, agent: Any) -> None:
    """As after a pause of the whole machine: the store has given this process up, and it begins to notice."""
    keeper = keeper_of(agent)
    home.store.perform(home.store.bury_worker(keeper.worker().worker_id))
    keeper._trusted_until = 0.0


def config(thread: str = "t", **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def chain(*nodes: Callable[..., Any], schema: type[Any] = Log, **compiled: Any) -> Any:
    """A graph of these nodes, one after the other, each under its function's name."""
    graph = StateGraph(schema)
    for node in nodes:
        graph.add_node(node.__name__, node)
    places = [START, *(node.__name__ for node in nodes), END]
    for start, end in pairwise(places):
        graph.add_edge(start, end)
    return graph.compile(**compiled)


def fan(*nodes: Callable[..., Any], schema: type[Any] = Log, **compiled: Any) -> Any:
    """A graph of these nodes, all at once."""
    graph = StateGraph(schema)
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
        graph.add_edge(node.__name__, END)
    return graph.compile(**compiled)


def step(word: str, outside: Outside | None = None, then: Callable[[], Any] | None = None) -> Callable[..., Any]:
    """A node that tells outside that it began, does `then`, and logs its name."""

    def node(state: Log) -> Any:
        if outside is not None:
            outside.happens(word)
        if then is not None:
            then()
        return {"log": [word]}

    node.__name__ = word
    return node


def counts(outside: Outside, words: Iterable[str]) -> dict[str, int]:
    return {word: outside.times(word) for word in words}
