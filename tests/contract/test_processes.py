"""Several processes on one store: nothing is lost, nothing is done twice, nobody starves."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

import pytest

from clocks import HandClock
from contract.conftest import SHARED
from contract.desk import Desk
from ninelives.errors import DivergentStateError
from ninelives.model import ONE_USER
from ninelives.store import Store
from ninelives.stores import open_store

PROCESSES, PUTS, COUNTS = 4, 50, 10


def work(url: str, settings: dict[str, Any], me: int, ready: Connection) -> None:
    store = open_store(url, **settings)
    with Desk(store, HandClock(), sync=True) as desk:
        ready.send("open")
        ready.recv()
        for n in range(PUTS):
            desk.put(None, f"c{n}", f"c{n - 1}" if n else None, thread_id=f"own{me}", values={"log": [*range(n)]})
            desk.write(None, f"c{n}", "k", ("n", n), thread_id=f"own{me}")
        for n in range(COUNTS):
            count(desk, f"{me}-{n}")
    store.close()


def count(desk: Desk, checkpoint_id: str) -> None:
    """Add one to the counter that all share; whoever loses the compare-and-set reads again."""
    while True:
        head = desk.head("shared")
        assert head is not None
        total = head.checkpoint["channel_values"]["total"]
        try:
            return desk.put(None, checkpoint_id, head.checkpoint_id, thread_id="shared", values={"total": total + 1})
        except DivergentStateError:
            continue


@pytest.mark.parametrize("opened", SHARED, indirect=True)
def test_four_processes_lose_nothing(opened: tuple[str, dict[str, Any]], store: Store) -> None:
    """Each on its own thread, and all on one counter by compare-and-set."""
    url, settings = opened
    context = multiprocessing.get_context("spawn")
    with Desk(store, HandClock(), sync=True) as desk:
        desk.put(None, "start", thread_id="shared", values={"total": 0})
        pipes = [context.Pipe() for _ in range(PROCESSES)]
        children = [
            context.Process(target=work, args=(url, settings, me, theirs)) for me, (_, theirs) in enumerate(pipes)
        ]
        for child in children:
            child.start()
        for ours, theirs in pipes:
            theirs.close()  # so that a child that dies is heard of
            assert ours.recv() == "open"
        for ours, _ in pipes:
            ours.send("go")
        for child in children:
            child.join(120)

        assert [child.exitcode for child in children] == [0] * PROCESSES
        head = desk.head("shared")
        assert head is not None
        assert head.checkpoint["channel_values"] == {"total": PROCESSES * COUNTS}
        for me in range(PROCESSES):
            found = desk.do(desk.store.list_checkpoints(ONE_USER, thread_id=f"own{me}", ns="", limit=1000))
            assert [c.checkpoint_id for c in found] == [f"c{n}" for n in reversed(range(PUTS))]
            assert [c.writes for c in found] == [[("k", "n", n)] for n in reversed(range(PUTS))]
            assert found[0].checkpoint["channel_values"] == {"log": [*range(PUTS - 1)]}
