"""The SQLite store when the file is not as it should be, and when many write at once."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from clocks import HandClock
from contract.desk import Desk
from contract.faults import Gate
from ninelives.errors import ConfigError, SchemaVersionError, StoreCorruptError, StoreUnavailableError
from ninelives.model import ONE_USER
from ninelives.stores import open_store
from ninelives.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path, clock: HandClock) -> Iterator[SqliteStore]:
    store = SqliteStore(path, clock=clock, synchronous="NORMAL", busy_timeout_s=0.1)
    yield store
    store.close()


@pytest.fixture
def desk(store: SqliteStore, clock: HandClock) -> Desk:
    return Desk(store, clock, sync=True)


def on_the_writer(store: SqliteStore, sql: str) -> None:
    """Run a statement on the writer's own connection, in the writer's own thread."""
    done: list[bool] = []

    def fault(act: str, statement: str, where: str) -> None:
        if not done:
            done.append(bool(store._writer._conn.execute(sql).fetchall()) or True)

    store.fault = fault
    store.perform(store.note_graph("sql", "g", {}))
    store.fault = None
    assert done


# -- opening --------------------------------------------------------------------------------------------------------


def test_a_store_of_a_newer_release_is_not_touched(path: Path) -> None:
    """The older program says what it found and what it knows; the file is byte for byte as it was."""
    open_store(f"sqlite:///{path}").close()
    with sqlite3.connect(path) as conn:
        conn.execute("update meta set value = 99 where name = 'schema'")
    conn.close()
    before = path.read_bytes()

    with pytest.raises(SchemaVersionError) as newer:
        open_store(f"sqlite:///{path}")

    assert (newer.value.found, newer.value.known) == (99, 1)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_not_touched(path: Path) -> None:
    """A mistyped path must not cost somebody a file."""
    path.write_bytes(b"my thesis " * 1000)

    with pytest.raises(StoreCorruptError, match="not a database"):
        open_store(f"sqlite:///{path}")

    assert path.read_bytes() == b"my thesis " * 1000


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    """Where nothing can be opened, the error says where."""
    with pytest.raises(ConfigError, match=f"{tmp_path} is a folder"):
        open_store(f"sqlite:///{tmp_path}")


def test_unknown_urls_and_settings_are_refused() -> None:
    """With what is known."""
    for url in ("mysql://x", "sqlite://", "sqlite:///", ""):
        with pytest.raises(ConfigError, match="memory://"):
            open_store(url)
    with pytest.raises(ConfigError, match="FULL"):
        open_store("memory://", synchronous="OFF")


def test_opening_again_finds_all(path: Path) -> None:
    """Folders are made; a path with a space, a question mark and a hash is a path."""
    odd = path.parent / "a b" / "what?#1.db"
    for n in range(2):
        store = open_store(f"sqlite:///{odd}")
        with Desk(store, HandClock(), sync=True) as desk:
            desk.put(None, f"c{n}", f"c{n - 1}" if n else None)
            assert len(desk.checkpoints()) == n + 1
        store.close()

    assert odd.is_file()


def test_the_promise_is_in_words(path: Path) -> None:
    """What an acknowledgement means depends on the settings."""
    promises = []
    for url, settings in (
        (f"sqlite:///{path}", {}),
        (f"sqlite:///{path}", {"synchronous": "normal"}),
        ("memory://", {}),
    ):
        store = open_store(url, **settings)
        promises.append(store.durability)
        store.close()

    assert len(set(promises)) == 3


def test_a_store_is_opened_in_each_process(store: SqliteStore, desk: Desk) -> None:
    """A forked child that uses its parent's is told so, and does not hang; the parent's goes on."""
    desk.put(None, "c1")
    reader, writer = os.pipe()

    if (child := os.fork()) == 0:
        told = b"nothing"
        for act in (desk.putting(None, "c2", "c1"), store.get_checkpoint(ONE_USER, "t", "", None)):
            try:
                store.perform(act)
            except StoreUnavailableError as error:
                told = str(error).encode()
        store.close()
        os.write(writer, told)
        os._exit(0)

    os.waitpid(child, 0)
    assert b"each process" in os.read(reader, 1000)
    os.close(reader)
    os.close(writer)
    desk.put(None, "c2", "c1")


# -- room -----------------------------------------------------------------------------------------------------------


def large(desk: Desk, thread_id: str = "t") -> None:
    """Twenty checkpoints of 20 kB that cannot be packed."""
    for n in range(20):
        desk.put(
            None, f"c{n}", f"c{n - 1}" if n else None, thread_id=thread_id, values={"n": Random(n).randbytes(20_000)}
        )


def test_the_file_gets_smaller_when_a_thread_is_forgotten(path: Path, store: SqliteStore, desk: Desk) -> None:
    """All of the room, not a page of it, and though another process has read the file and has it open."""
    large(desk)
    store.compact()
    before = path.stat().st_size
    other = SqliteStore(path)
    assert len(Desk(other, HandClock(), sync=True).checkpoints()) == 20

    desk.do(store.prune_thread(ONE_USER, "t"))
    store.compact()

    assert before > 400_000
    assert path.stat().st_size < 130_000
    assert store.room().free == 0
    assert Desk(other, HandClock(), sync=True).checkpoints() == ["c19"]
    other.close()


def test_room_is_given_back_by_itself(path: Path, store: SqliteStore, desk: Desk) -> None:
    """Whoever forgets need not ask for it; a moment later the file is smaller."""
    large(desk)
    store.compact()

    desk.do(store.delete_thread(ONE_USER, "t"))
    desk.worker()  # acts are done in order: what followed the last one is done, too

    assert path.stat().st_size < 130_000


def test_a_reader_keeps_its_room_until_it_has_read_on(path: Path, store: SqliteStore, desk: Desk) -> None:
    """It sees what it saw; what it keeps is told, and given back the next time."""
    large(desk)
    store.compact()
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("begin")
    assert reader.execute("select count(*) from checkpoint").fetchone() == (20,)

    desk.do(store.prune_thread(ONE_USER, "t"))
    room = store.compact()

    assert room.free > 300_000
    assert room.gives_back
    assert reader.execute("select count(*) from checkpoint").fetchone() == (20,)
    reader.close()
    assert store.compact().free == 0
    assert path.stat().st_size < 130_000


def test_a_file_made_by_other_hands_is_written_anew(path: Path, clock: HandClock) -> None:
    """One without SQLite's setting keeps its free room until it was written anew, once; from then on it is as any."""
    with sqlite3.connect(path) as made:
        made.execute("create table stranger (a)")
    made.close()
    store = SqliteStore(path, clock=clock)
    desk = Desk(store, clock, sync=True)
    large(desk)
    desk.do(store.prune_thread(ONE_USER, "t"))
    kept = store.compact()

    room = store.compact(whole=True)

    assert not kept.gives_back
    assert kept.free > 300_000
    assert room.gives_back
    assert room.free == 0
    assert path.stat().st_size == room.bytes < 200_000
    large(desk, "u")
    desk.do(store.delete_thread(ONE_USER, "u"))
    assert store.compact().free == 0
    store.close()


def test_acts_wait_while_the_file_is_written_anew(store: SqliteStore, desk: Desk) -> None:
    """Many threads write, one writes the file anew again and again: nothing is lost, nobody is refused."""
    errors: list[BaseException] = []

    def advance(name: str) -> None:
        try:
            for n in range(20):
                store.perform(desk.putting(None, f"c{n}", f"c{n - 1}" if n else None, thread_id=name))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=advance, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        store.compact(whole=True)
    for thread in threads:
        thread.join(60)

    assert errors == []
    assert [t.checkpoints for t in desk.do(store.list_threads(ONE_USER))] == [20] * 4


# -- disk and damage ------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_and_recovers(store: SqliteStore, desk: Desk) -> None:
    """Nothing of the act is written; when there is room again, the store works without being opened anew."""
    desk.put(None, "c1")
    before = desk.trace()
    on_the_writer(store, "pragma max_page_count = 1")

    with pytest.raises(StoreUnavailableError, match=r"full.*room"):
        desk.put(None, "c2", "c1", values={"n": os.urandom(100_000)})
    assert desk.trace() == before

    on_the_writer(store, "pragma max_page_count = 1000000")
    desk.put(None, "c2", "c1", values={"n": os.urandom(100_000)})
    assert desk.checkpoints() == ["c2", "c1"]


def test_a_full_disk_is_told_to_whom_it_concerns(store: SqliteStore, desk: Desk) -> None:
    """Of several acts in one transaction every one gets an answer, and what is answered well is there."""
    on_the_writer(store, "pragma max_page_count = 60")
    gate = Gate(store)
    names = [f"t{n}" for n in range(30)]
    values = {"n": os.urandom(20_000)}
    futures = [store.submit(desk.putting(None, "c1", thread_id=name, values=values)) for name in names]

    gate.open()

    store.fault = None
    told = [future.exception(10) for future in futures]
    assert any(isinstance(error, StoreUnavailableError) for error in told)
    assert {type(error) for error in told} <= {StoreUnavailableError, type(None)}
    stored = {name for name in names if desk.checkpoints(name)}
    assert stored == {name for name, error in zip(names, told, strict=True) if error is None}


def test_a_file_held_by_another_program(path: Path, store: SqliteStore, desk: Desk) -> None:
    """Held longer than the busy timeout: the act is refused, nothing is written; readers and later writers go on."""
    desk.put(None, "c1")
    stranger = sqlite3.connect(path, isolation_level=None)
    stranger.execute("begin immediate")

    with pytest.raises(StoreUnavailableError, match="locked"):
        desk.put(None, "c2", "c1")
    assert desk.checkpoints() == ["c1"]

    stranger.execute("rollback")
    stranger.close()
    desk.put(None, "c2", "c1")
    assert desk.checkpoints() == ["c2", "c1"]


def test_content_that_was_changed_behind_our_back_is_damage(path: Path, desk: Desk) -> None:
    """A missing item and one with other bytes are errors, never other values."""
    desk.put(None, "c1", values={"n": ["good" * 20]})
    desk.put(None, "c2", "c1", values={"n": ["bad" * 30]})
    with sqlite3.connect(path) as conn:
        conn.execute(
            "update pack set frame = cast(frame || 'x' as blob) where pack_no = (select max(pack_no) from pack)"
        )
    conn.close()

    with pytest.raises(StoreCorruptError, match=r"thread .t., checkpoint .c2.: .* The newest whole checkpoint is .c1."):
        [desk.get(checkpoint_id) for checkpoint_id in ("c1", "c2")]

    with sqlite3.connect(path) as conn:
        conn.execute("delete from pack")
    conn.close()
    with pytest.raises(StoreCorruptError, match=r"channel 'n': item \w+ is missing"):
        desk.get("c1")


# -- group commit -----------------------------------------------------------------------------------------------------


class Commits:
    """Counts real commits: the acts that were told of one between two others' statements."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def __call__(self, act: str, statement: str, where: str) -> None:
        self.told.append((act, statement, where))

    @property
    def groups(self) -> list[int]:
        """How many acts each commit carried."""
        sizes, size = [], 0
        for _, statement, where in self.told:
            if (statement, where) == ("commit", "before"):
                size += 1
            elif size:
                sizes.append(size)
                size = 0
        return [*sizes, size] if size else sizes


def test_acts_that_wait_together_share_a_commit(store: SqliteStore, desk: Desk) -> None:
    """Sixty-four to a commit at most, in order; alone, each has its own."""
    commits = Commits()
    gate = Gate(store, commits)
    futures = [store.submit(desk.putting(None, "c1", thread_id=f"t{n}")) for n in range(100)]

    gate.open()
    for future in futures:
        future.result(10)

    assert commits.groups == [64, 36]
    commits.told.clear()
    store.fault = commits
    for n in range(3):
        desk.put(None, "c2", "c1", thread_id=f"t{n}")
    assert commits.groups == [1, 1, 1]


def test_a_refused_one_is_not_part_of_the_commit(store: SqliteStore, desk: Desk) -> None:
    """Its neighbours are committed without it, once."""
    desk.put(None, "c1")
    commits = Commits()
    gate = Gate(store, commits)
    good = [store.submit(desk.putting(None, "c1", thread_id=name)) for name in "ab"]
    bad = store.submit(desk.putting(None, "c9", "nothing"))
    good.append(store.submit(desk.putting(None, "c1", thread_id="c")))

    gate.open()

    assert bad.exception(10) is not None
    assert [future.result(10) for future in good] == [[]] * 3
    assert commits.groups == [3]
    assert desk.checkpoints() == ["c1"]


def breaking(error: type[BaseException], act: str, statement: str, where: str) -> Callable[[str, str, str], None]:
    def fault(*point: str) -> None:
        if point == (act, statement, where):
            raise error(statement)

    return fault


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration])
@pytest.mark.parametrize("where", ["before", "after"])
def test_whatever_is_raised_the_writer_lives(
    store: SqliteStore, desk: Desk, error: type[BaseException], where: str
) -> None:
    """Also what is no Exception, or what generators take for an end: it goes to the caller, and the next is done."""
    store.fault = breaking(error, "put_checkpoint", "add_checkpoint", where)

    future = store.submit(desk.putting(None, "c1"))

    assert isinstance(future.exception(10), error)
    store.fault = None
    desk.put(None, "c1")
    assert desk.checkpoints() == ["c1"]


def test_an_acknowledgement_that_is_lost_is_not_the_act(store: SqliteStore, desk: Desk) -> None:
    """What breaks after the commit is told to that caller only; the act is in the store, as are its neighbours."""
    gate = Gate(store, breaking(KeyboardInterrupt, "copy_thread", "commit", "after"))
    before = store.submit(desk.putting(None, "c1"))
    lost = store.submit(store.copy_thread(ONE_USER, "t", "copy"))
    after = store.submit(desk.putting(None, "c1", thread_id="u"))

    gate.open()

    assert isinstance(lost.exception(10), KeyboardInterrupt)
    assert (before.result(10), after.result(10)) == ([], [])
    assert desk.checkpoints("copy") == ["c1"]


def test_closing_from_within_does_not_wait_for_itself(store: SqliteStore, desk: Desk) -> None:
    """A callback of the last act may close the store, in the writer's own thread."""
    gate = Gate(store)
    future = store.submit(desk.putting(None, "c1"))
    future.add_done_callback(lambda done: store.close())
    late = threading.Event()
    future.add_done_callback(lambda done: late.set())

    gate.open()

    assert late.wait(10)
    with pytest.raises(StoreUnavailableError):
        desk.put(None, "c2", "c1")
