"""The harness itself: what it records survives, its points have names that last, its parent holds nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lives import Ended, begin
from ninelives.chaos.cases import points_of
from ninelives.chaos.explore import chosen, unwritten
from ninelives.chaos.faults import Faults, How, Plan, Point, around, watch_store
from ninelives.chaos.history import HISTORY, Recorder, read_history
from ninelives.model import ONE_USER
from ninelives.store import Store
from ninelives.stores import open_store

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]

POINTS = ["read#1.a.before", "read#1.a.after", "put#1.b.before", "put#1.b.after", "put#1.commit.before",
          "put#1.commit.after", "node:x#1.enter", "node:x#1.exit"]  # fmt: skip


def faults_in(folder: Path, plan: Plan | None = None) -> Faults:
    return Faults(Recorder(folder / HISTORY, 1), plan)


def dies_at_enter(folder: str) -> None:
    with around(faults_in(Path(folder), Plan("node:x#2.enter")), "node:x"):
        pass
    with around(faults_in(Path(folder), Plan("node:x#1.enter")), "node:x"):
        pass


def test_the_fatal_event_is_the_last_one(tmp_path: Path) -> None:
    """What was recorded before SIGKILL is there after it, and nothing after it is."""
    ended = begin(dies_at_enter, tmp_path).end()

    told = read_history(tmp_path)
    assert ended == Ended(killed=True)
    assert [(event.kind, event["fatal"]) for event in told] == [("enter", None), ("exit", None), ("enter", True)]


def stops_at_enter(folder: str) -> str:
    with around(faults_in(Path(folder), Plan("node:x#1.enter", How.STOP)), "node:x"):
        return "gone on"


def test_a_stopped_process_goes_on_when_it_is_told_to(tmp_path: Path) -> None:
    """It stands still between the two events, and then does what it would have done."""
    process = begin(stops_at_enter, tmp_path)
    while "T (stopped)" not in Path(f"/proc/{process.pid}/status").read_text():
        os.sched_yield()
    before = [event.kind for event in read_history(tmp_path)]

    os.kill(process.pid, signal.SIGCONT)

    assert process.end().value == "gone on"
    assert before == ["enter", "stopped"]
    assert [event.kind for event in read_history(tmp_path)] == ["enter", "stopped", "continued", "exit"]


def test_a_line_that_was_cut_off_is_no_event(tmp_path: Path) -> None:
    """The last word of a process that died in the middle of it is left out, not misread."""
    Recorder(tmp_path / HISTORY, 1).write("outcome", output=1)
    with (tmp_path / HISTORY).open("a") as file:
        file.write('{"life": 1, "kind": "left"')

    assert [event.kind for event in read_history(tmp_path)] == ["outcome"]


def test_a_look_at_the_store_is_as_old_as_its_begin(tmp_path: Path) -> None:
    """An act that another process does while this one reads is not missing from what this one saw."""
    faults, other = faults_in(tmp_path), Recorder(tmp_path / HISTORY, 2)

    def read() -> dict[str, object]:
        other.write("arrived", act="mail")
        return {"effects": {}}

    faults.look("left", read)

    assert [event.kind for event in read_history(tmp_path)] == ["left", "arrived"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'store.db'}")


def test_points_of_a_store_are_named_by_act_call_and_statement(store: Store, tmp_path: Path) -> None:
    """Each statement of each call has a name of its own, before and after; so has the commit."""
    watch_store(store, faults_in(tmp_path))

    for worker in ("w1", "w2"):
        store.perform(store.register_worker(worker, host="h", pid=1, ttl_s=6))
    store.perform(store.list_threads(ONE_USER))
    store.close()

    points = points_of(read_history(tmp_path))
    assert [point for point in points if point.startswith("register_worker#2")] == [
        "register_worker#2.add_worker.before",
        "register_worker#2.add_worker.after",
        "register_worker#2.commit.before",
        "register_worker#2.commit.after",
    ]
    assert points[-1] == "list_threads#1.list_threads.after"
    assert len(points) == len({*points})


def test_a_refused_act_takes_no_name_from_the_next(store: Store, tmp_path: Path) -> None:
    """An act that raises is never committed; the commit that follows is the next one's."""
    watch_store(store, faults_in(tmp_path))

    with pytest.raises(Exception, match="not known"):
        store.perform(store.copy_thread(ONE_USER, "nowhere", "t"))
    store.perform(store.register_worker("w", host="h", pid=1, ttl_s=6))
    store.close()

    commits = [point for point in points_of(read_history(tmp_path)) if ".commit." in point]
    assert commits == ["register_worker#1.commit.before", "register_worker#1.commit.after"]


def test_a_sample_keeps_the_ends_of_each_act_and_all_units() -> None:
    """With a share of nothing the first and last point of each call stay."""
    kept = chosen(POINTS, 0.0, random.Random(1))

    assert kept == [*POINTS[:3], *POINTS[5:]]
    assert chosen(POINTS, 1.0, random.Random(1)) == POINTS


def test_points_outside_write_transactions_are_known() -> None:
    """An act that commits is a write; one that does not, and a unit, hold up nobody."""
    assert unwritten(POINTS) == [*POINTS[:2], *POINTS[6:]]


def test_a_point_says_where_it_is() -> None:
    """Its id is what one types to come back to it."""
    assert str(Point("put_writes", 3, "fence~2", "before")) == "put_writes#3.fence~2.before"
    assert str(Point("tool:search a", 1, "", "exit")) == "tool:search a#1.exit"


HOLDS_A_STORE = """
from ninelives.chaos.processes import must_be_bare
from ninelives.stores import open_store
must_be_bare()
held = open_store("memory://")
must_be_bare()
"""


def test_a_process_that_holds_a_store_must_not_fork() -> None:
    """The parent of the cases holds no store, no thread and no loop, and it looks."""
    asked = subprocess.run([sys.executable, "-c", HOLDS_A_STORE], capture_output=True, text=True, check=False)

    assert "line 6, in <module>" in asked.stderr
    assert "SqliteStore" in asked.stderr
