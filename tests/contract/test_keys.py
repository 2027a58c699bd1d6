"""A whole store is put under a new key: everything, nothing but the sealing, and however often it is stopped."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from clocks import HandClock
from contract.desk import Desk
from contract.faults import Breaker, BrokenError
from ninelives.config import KEYS_VARIABLE
from ninelives.errors import EncryptionKeyError, StoreCorruptError, StoreUnavailableError
from ninelives.model import (
    ONE_USER,
    AtDeadline,
    Bookmark,
    EffectState,
    Lease,
    NewQuestion,
    Resealed,
    Room,
    RunStatus,
    Scope,
)
from ninelives.store import Store
from ninelives.stores import open_store
from ninelives.stores.codec.keys import KeyRing
from ninelives.stores.procedures.keys import TABLES
from ninelives.stores.sqlite import SqliteStore

SECRETS = {name: Random(name).randbytes(32) for name in ("old", "new", "third")}


def ring(*names: str) -> KeyRing:
    """The current key first."""
    return KeyRing([(name, SECRETS[name]) for name in names])


def print_of(name: str) -> bytes:
    return ring(name).current.print


class Cabinet:
    """A store that is opened anew with other keys; one in memory, which would be gone, is handed them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, url: str, settings: dict[str, Any], clock: HandClock) -> None:
        self._monkeypatch, self._url, self._settings = monkeypatch, url, {**settings, "clock": clock}
        self.clock = clock
        self.store: Any = None
        self.open("old")

    def open(self, *names: str) -> None:
        if self.store is not None and self.store.in_memory:
            self.store.frames.keys = ring(*names)
            return
        if self.store is not None:
            self.store.close()
        keys = ",".join(f"{name}:{base64.b64encode(SECRETS[name]).decode()}" for name in names)
        self._monkeypatch.setenv(KEYS_VARIABLE, keys)
        self.store = open_store(self._url, **self._settings)

    @property
    def desk(self) -> Desk:
        return Desk(self.store, self.clock, sync=True)

    def values(self) -> dict[tuple[str, str], list[bytes]]:
        """All blobs of the database, by table and column."""
        return cast(SqliteStore, self.store)._writer.between(_blobs)


def _blobs(conn: Any) -> dict[tuple[str, str], list[bytes]]:
    found: dict[tuple[str, str], list[bytes]] = {}
    for table in [row["name"] for row in conn.execute("select name from sqlite_master where type = 'table'")]:
        for row in conn.execute(f"select * from {table}"):
            for column, value in row.items():
                if isinstance(value, bytes):
                    found.setdefault((table, column), []).append(value)
    return found


@pytest.fixture
def cabinet(opened: tuple[str, dict[str, Any]], clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cabinet]:
    cabinet = Cabinet(monkeypatch, *opened, clock)
    yield cabinet
    cabinet.store.close()


@pytest.fixture
def store(cabinet: Cabinet) -> Store:
    """So that a desk of the usual kind works at it."""
    return cast(Store, cabinet.store)


def filled(desk: Desk) -> Lease:
    """One of everything that is sealed; gives the lease of a run that goes on."""
    worker = desk.worker()
    lease = desk.start(worker)
    for n in range(5):
        desk.put(lease, f"c{n}", f"c{n - 1}" if n else None, values={"n": [f"message {i}" for i in range(n)]})
        desk.write(lease, f"c{n}", f"k{n}", ("n", f"written {n}"))
    effect = desk.do(desk.store.open_effect(lease, desk.effect()))
    desk.do(desk.store.finish_effect(lease, effect, EffectState.DONE, {"paid": 5}, why="the bank said so"))
    asked = NewQuestion("q1", "go?", deadline_s=60.0, at_deadline=AtDeadline("reject", "too late"))
    desk.write(lease, "c4", "asks", (-3, "__interrupt__", "go?"), questions=[asked], kind="task_asked")
    desk.do(desk.store.keep_call(lease, "call-1", "call", {"weather": "fine"}))
    desk.finish(lease, RunStatus.INTERRUPTED, cause="it asks")
    desk.do(desk.store.queue_input(ONE_USER, desk.new("r9")))
    answered = desk.answer(worker, {"q1": {"yes": True}}, note="it is cheap").lease
    assert answered is not None
    desk.finish(answered, RunStatus.FAILED, cause="ValueError: not so")
    desk.put(None, "c1", scope=Scope("ann"), values={"n": "ann's"})
    desk.do(desk.store.note_graph("fp", "g", {"nodes": ["a"]}))
    spec = {"sql": "insert into schedule values ('s', '', ?, 1.0)", "value": cast(Any, desk.store).encode("each day")}
    cast(SqliteStore, desk.store)._writer.between(lambda conn: conn.execute(spec["sql"], (spec["value"],)))
    return desk.start(worker, "r3", "other")


def walk(desk: Desk, meanwhile: Callable[[Resealed], None] = lambda step: None) -> list[Resealed]:
    """All steps."""
    steps: list[Resealed] = []
    after: Bookmark | None = None
    while not steps or after is not None:
        steps.append(desk.do(desk.store.reseal(after)))
        after = steps[-1].after
        meanwhile(steps[-1])
    return steps


def traced(desk: Desk) -> list[Any]:
    """All that can be read, and what a usual trace leaves out."""
    schedules = cast(SqliteStore, desk.store)._writer.between(
        lambda c: c.execute("select spec from schedule").fetchall()
    )
    graph = desk.do(desk.store.find_graph("fp"))
    return [*desk.trace(), graph, [cast(Any, desk.store).decode(row["spec"]) for row in schedules]]


# -- all of it ------------------------------------------------------------------------------------------------------


def test_afterwards_the_old_key_is_not_needed(cabinet: Cabinet, desk: Desk) -> None:
    """Every value of every kind is under the new key alone, and reads as before."""
    filled(desk)
    before, columns = traced(desk), cabinet.values()
    cabinet.open("new", "old")
    desk.store = cabinet.store

    steps = walk(desk)

    cabinet.open("new")
    desk.store = cabinet.store
    assert traced(desk) == before
    assert [key for key, values in cabinet.values().items() if any(print_of("old") in value for value in values)] == []
    assert sum(step.resealed for step in steps if step.walk == 1) == sum(
        len(columns[table.page.removeprefix("sealed_"), column]) for table in TABLES for column in table.sealed
    ), "each column had values, and each value was counted"


def test_nothing_but_the_sealing_changes(cabinet: Cabinet, desk: Desk) -> None:
    """No length, no digest, no id."""
    filled(desk)
    before = cabinet.values()
    cabinet.open("new", "old")
    desk.store = cabinet.store

    walk(desk)

    after = cabinet.values()
    sealed = {(table.page.removeprefix("sealed_"), column) for table in TABLES for column in table.sealed}
    for place in before.keys() - {("meta", "value")}:
        if place in sealed:
            assert [len(value) for value in after[place]] == [len(value) for value in before[place]], place
        else:
            assert after[place] == before[place], place


def test_a_second_time_there_is_nothing_to_do(cabinet: Cabinet, desk: Desk) -> None:
    """One walk finds nothing; only the secret is written again."""
    filled(desk)
    cabinet.open("new", "old")
    desk.store = cabinet.store
    walk(desk)
    before = cabinet.values()

    steps = walk(desk)

    assert [step.what for step in steps if step.resealed] == ["secret"]
    assert {step.walk for step in steps} == {1}
    after = cabinet.values()
    assert {place for place in after if after[place] != before[place]} == {("meta", "value")}


def test_many_rows_go_in_many_steps(cabinet: Cabinet, desk: Desk) -> None:
    """No transaction is longer than a page, and no row is left out between two."""
    pages = 3
    for n in range(pages * 16):
        desk.put(None, "c1", thread_id=f"t{n}", values={"n": Random(n).randbytes(200)})
    cabinet.open("new", "old")
    desk.store = cabinet.store

    steps = walk(desk)

    items = [step.resealed for step in steps if step.what == "items" and step.walk == 1]
    assert items == [16, 16, 16, 0]
    cabinet.open("new")
    assert len(cabinet.desk.trace()[0]) == 48


# -- beside others --------------------------------------------------------------------------------------------------


def test_a_run_goes_on_meanwhile(cabinet: Cabinet, desk: Desk) -> None:
    """What a run writes between any two steps is there afterwards as it wrote it, old steps too."""
    filled(desk)
    cabinet.open("new", "old")
    desk.store = cabinet.store
    lease = desk.start(desk.worker("w2"), "r4", "busy")
    written: list[list[int]] = []

    def go_on(step: Resealed) -> None:
        n = len(written)
        written.append([*range(n)])
        desk.put(lease, f"b{n}", f"b{n - 1}" if n else None, thread_id="busy", values={"n": written[-1]})
        desk.write(lease, f"b{n}", "k", ("n", n), thread_id="busy")

    walk(desk, go_on)

    desk.finish(lease)
    cabinet.open("new")
    desk.store = cabinet.store
    found = [desk.get(f"b{n}", "busy") for n in range(len(written))]
    assert [each.checkpoint["channel_values"]["n"] for each in found] == written
    assert [each.writes for each in found] == [[("k", "n", n)] for n in range(len(written))]


def test_who_still_writes_under_the_old_key_is_caught_up_with(cabinet: Cabinet, desk: Desk) -> None:
    """What came behind the walk's back is found by the next one; the secret waits for a walk that finds nothing."""
    filled(desk)
    cabinet.open("new", "old")
    desk.store = cabinet.store
    late = [False]

    def write_late(step: Resealed) -> None:
        if step.what == "schedules" and not late[0]:
            late[0] = True
            keys, cabinet.store.frames.keys = cabinet.store.frames.keys, ring("old", "new")
            desk.put(None, "late", thread_id="late", values={"n": "late" * 100})
            cabinet.store.frames.keys = keys

    steps = walk(desk, write_late)

    assert [step.what for step in steps if step.walk == 2 and step.resealed] == ["items", "checkpoints"]
    assert [step.walk for step in steps if step.what == "secret" and step.values] == [3]
    cabinet.open("new")
    desk.store = cabinet.store
    assert desk.get("late", "late").checkpoint["channel_values"] == {"n": "late" * 100}


# -- stopped and refused --------------------------------------------------------------------------------------------


def test_stopped_anywhere_it_opens_and_can_be_finished(cabinet: Cabinet) -> None:
    """
    Broken before or after any statement of any step, the store opens with both keys and holds what it held; the next
    time all is done, and the key before is not needed.
    """
    filled(cabinet.desk)
    before = traced(cabinet.desk)
    keys = ("old", "new")

    for n in range(1000):
        cabinet.open(*reversed(keys))
        cabinet.store.fault = breaker = Breaker("reseal", n, BrokenError)
        try:
            walk(cabinet.desk)
        except BrokenError:
            cabinet.store.fault = None
            cabinet.open(*reversed(keys))
            assert traced(cabinet.desk) == before, breaker.points[-1]
            walk(cabinet.desk)
            stopped = True
        else:
            stopped = False
        cabinet.open(keys[1])
        assert traced(cabinet.desk) == before, breaker.points[-1]
        keys = (keys[1], keys[0])
        if not stopped:
            break

    assert n == len(breaker.points) > 60


def test_a_plain_store_has_nothing_to_reseal(opened: tuple[str, dict[str, Any]]) -> None:
    """It says so, and what to do instead."""
    url, settings = opened
    store = open_store(url, **settings)

    with pytest.raises(EncryptionKeyError, match="not encrypted"):
        store.perform(store.reseal())

    store.close()


def test_a_key_that_is_missing_is_told_with_the_thread(cabinet: Cabinet, desk: Desk) -> None:
    """A value under a third key stops it; what was done stays, and with that key it goes on."""
    filled(desk)
    before = traced(desk)
    cabinet.store.frames.keys = ring("third", "old")
    desk.put(None, "c9", thread_id="third", values={"n": "third" * 100})
    cabinet.open("new", "old")
    desk.store = cabinet.store

    with pytest.raises(EncryptionKeyError, match=rf"items of thread 'third': .*print {print_of('third').hex()}"):
        walk(desk)

    cabinet.open("new", "old", "third")
    desk.store = cabinet.store
    walk(desk)
    cabinet.open("new")
    desk.store = cabinet.store
    assert desk.get("c9", "third").checkpoint["channel_values"] == {"n": "third" * 100}
    assert len(traced(desk)) > len(before)


def test_damage_is_told_with_the_thread(cabinet: Cabinet, desk: Desk) -> None:
    """A value that does not open is named, and is not written over."""
    filled(desk)
    longer = "update checkpoint set body = cast(body || x'00' as blob) where checkpoint_id = 'c1' and thread_no > 1"
    cabinet.store._writer.between(lambda conn: conn.execute(longer))
    cabinet.open("new", "old")
    desk.store = cabinet.store

    with pytest.raises(StoreCorruptError, match="checkpoints of thread 't' of owner 'ann'"):
        walk(desk)


# -- room -----------------------------------------------------------------------------------------------------------


def test_written_anew_no_file_holds_anything_under_the_old_key(cabinet: Cabinet, desk: Desk, tmp_path: Path) -> None:
    """Neither between what is kept, nor in free pages, nor in the log; who has the file open reads on."""
    for n in range(40):
        values = {"n": Random(n).randbytes(5000)}
        desk.put(None, f"c{n}", f"c{n - 1}" if n else None, thread_id="large", values=values)
    desk.finish(filled(desk))
    desk.do(desk.store.bury_worker("w1"))
    desk.do(desk.store.prune_thread(ONE_USER, "large"))
    before = desk.trace()
    cabinet.open("new", "old")
    desk.store = cabinet.store
    other = None if cabinet.store.in_memory else open_store(cabinet.store.url, clock=cabinet.clock)
    if other is not None:
        assert Desk(other, cabinet.clock, sync=True).trace() == before

    walk(desk)
    room = desk.store.compact(whole=True)

    assert room.free == 0
    files = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert [name for name, content in files.items() if print_of("old") in content] == []
    assert desk.trace() == before
    if other is not None:
        assert room.bytes == sum(len(files[name]) for name in ("store.db", "store.db-wal"))
        assert Desk(other, cabinet.clock, sync=True).trace() == before
        other.close()


def test_nothing_is_written_anew_beside_a_live_process(cabinet: Cabinet, desk: Desk) -> None:
    """It would have to wait, and could lose its lease by it; once it is gone, there is nothing in the way."""
    filled(desk)
    if cabinet.store.in_memory:
        assert desk.store.compact(whole=True) == Room()
        return

    with pytest.raises(StoreUnavailableError, match=r"1 process\(es\) work in the store"):
        desk.store.compact(whole=True)

    desk.clock.advance(100)
    assert desk.store.compact(whole=True).free == 0
