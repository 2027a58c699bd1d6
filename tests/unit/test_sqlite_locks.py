"""Who is alive and who is writing: what the kernel tells, tried on processes that are stopped and killed."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from clocks import HandClock
from contract.desk import Desk
from ninelives.errors import StoreUnavailableError
from ninelives.model import Worker
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.locks import Files, WriterLock, is_stopped, process_started

TESTS = Path(__file__).parents[1]
PATIENCE_S = 0.3

pytestmark = pytest.mark.crash


class Child:
    """A process of `sqlite_child.py` that says what it has come to."""

    def __init__(self, task: str, url: str, *args: str) -> None:
        command = [sys.executable, str(TESTS / "unit" / "sqlite_child.py"), task, url, *args]
        env = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        self.others: list[int] = []

    def wait_for(self, word: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("child", "program")):
                self.others.append(int(line.split()[1]))
            if line.startswith(word):
                return line
        raise AssertionError(f"the child ended before it said {word!r}")

    def wait_until_stopped(self) -> None:
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def ended_by(self) -> int:
        """The signal that ended it, waited for."""
        return -self.process.wait(10)

    def clean(self) -> None:
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        for pid in self.others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def store(tmp_path: Path, clock: HandClock) -> Iterator[SqliteStore]:
    store = SqliteStore(
        tmp_path / "store.db",
        clock=clock,
        synchronous="NORMAL",
        busy_timeout_s=PATIENCE_S / 2,
        lease_ttl_s=PATIENCE_S / 2,
    )
    yield store
    store.close()


@pytest.fixture
def desk(store: SqliteStore, clock: HandClock) -> Desk:
    return Desk(store, clock, sync=True)


@pytest.fixture
def child(store: SqliteStore, request: pytest.FixtureRequest) -> Iterator[Child]:
    """`@pytest.mark.parametrize("child", ["task" or ("task", …)], indirect=True)`"""
    task = request.param if isinstance(request.param, tuple) else (request.param,)
    child = Child(task[0], store.url, *task[1:])
    yield child
    child.clean()


def here(worker_id: str = "w1", host: str | None = None) -> Worker:
    return Worker(worker_id, host or os.uname().nodename, 1, 0.0, 0.0)


def is_dead(store: SqliteStore, worker_id: str = "w1") -> bool:
    return store.dead_workers([here(worker_id)]) == [worker_id]


# -- who is alive -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("child", ["hold"], indirect=True)
def test_a_killed_process_is_seen_dead_at_once(store: SqliteStore, child: Child) -> None:
    """While it lives it is never seen dead, however often one looks; when it is killed, nobody waits for a lease."""
    child.wait_for("held")
    assert not any(is_dead(store) for _ in range(100))

    child.kill()

    assert is_dead(store)
    assert is_dead(store)


@pytest.mark.parametrize("child", ["hold"], indirect=True)
def test_to_look_is_not_to_bury(store: SqliteStore, desk: Desk, child: Child, tmp_path: Path) -> None:
    """Whoever only looks at a dead neighbour leaves the proof of its death to the one who takes over."""
    child.wait_for("held")
    desk.worker("w1", ttl_s=1000)
    child.kill()
    looked = store.dead_workers(desk.do(store.list_workers()))

    store.bury_the_dead()

    assert looked == ["w1"]
    assert desk.do(store.list_workers()) == []
    assert [p.name for p in (tmp_path / "store.db-ninelives").iterdir()] == ["writer"]


@pytest.mark.parametrize("child", ["hold"], indirect=True)
def test_a_stopped_process_is_not_dead(store: SqliteStore, child: Child) -> None:
    """It may be continued and still be at it."""
    child.wait_for("held")
    os.kill(child.process.pid, signal.SIGSTOP)
    child.wait_until_stopped()

    assert not is_dead(store)


@pytest.mark.parametrize("child", ["hold_and_fork"], indirect=True)
def test_what_a_dead_process_left_running_does_not_keep_it_alive(store: SqliteStore, child: Child) -> None:
    """Neither a forked child, which closes its copies of the locks, nor a started program, which never gets them."""
    child.wait_for("held")
    if len(child.others) != 2:  # they speak in any order
        child.wait_for("child")
    assert len(child.others) == 2
    assert not is_dead(store)

    child.kill()

    for pid in child.others:
        os.kill(pid, 0)
    assert is_dead(store)


def test_a_dropped_lock_is_free_and_its_file_gone(store: SqliteStore, tmp_path: Path) -> None:
    """A worker that leaves leaves nothing behind; dropping another's changes nothing."""
    other = SqliteStore(tmp_path / "store.db")
    store.hold_worker_lock("a/../b")
    other.drop_worker_lock("a/../b")
    assert not other.dead_workers([here("a/../b")])

    store.drop_worker_lock("a/../b")

    assert other.dead_workers([here("a/../b")])
    assert [p.name for p in (tmp_path / "store.db-ninelives").iterdir()] == ["writer"]
    other.close()


def test_a_dead_worker_is_dead_whatever_its_host_was_called(store: SqliteStore) -> None:
    """A container that was made anew has another name; its database, and the free lock beside it, are the same."""
    assert store.dead_workers([here("w9", host="elsewhere")]) == ["w9"]


def test_a_database_in_memory_has_no_other_processes() -> None:
    """So nobody in it can be told dead by a lock."""
    memory = SqliteStore(None)

    assert memory.dead_workers([here("w9")]) == []
    memory.close()


def test_closing_a_store_lets_go_of_its_workers(store: SqliteStore, tmp_path: Path) -> None:
    """As if the process had ended."""
    other = SqliteStore(tmp_path / "store.db")
    other.hold_worker_lock("w1")
    assert not is_dead(store)

    other.close()

    assert is_dead(store)


def test_lock_files_are_closed_on_exec(tmp_path: Path) -> None:
    """A program that the process starts never holds its locks."""
    files = Files(tmp_path)

    assert fcntl.fcntl(files.open("writer"), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    files.close_all()


# -- who is writing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("child", ["stop_inside"], indirect=True)
def test_a_process_that_stopped_inside_a_transaction_is_ended(store: SqliteStore, desk: Desk, child: Child) -> None:
    """After the patience its successor ends it and writes; what it had not committed was never there."""
    child.wait_for("inside")
    child.wait_until_stopped()
    assert desk.checkpoints() == []
    begun = time.monotonic()

    desk.put(None, "c1")

    assert time.monotonic() - begun >= PATIENCE_S
    assert child.ended_by == signal.SIGKILL
    assert desk.checkpoints() == ["c1"]


@pytest.mark.parametrize("child", ["stop_outside"], indirect=True)
def test_a_process_that_stopped_outside_is_left_alone(store: SqliteStore, desk: Desk, child: Child) -> None:
    """It keeps nobody from writing; continued, it goes on."""
    child.wait_for("outside")
    child.wait_until_stopped()

    for n in range(20):
        desk.put(None, f"c{n}", f"c{n - 1}" if n else None)
    os.kill(child.process.pid, signal.SIGCONT)

    child.wait_for("went on")
    assert child.process.wait(10) == 0
    assert desk.checkpoints("child") == ["more", "mine"]


@pytest.mark.parametrize("child", [("slow", "0.3")], indirect=True)
def test_a_process_that_is_slow_but_moves_is_left_alone(tmp_path: Path, clock: HandClock, child: Child) -> None:
    """The patience is for one transaction, not for all of a busy writer's."""
    store = SqliteStore(tmp_path / "store.db", clock=clock, busy_timeout_s=0.5, lease_ttl_s=0.7)
    child.wait_for("begun")

    Desk(store, clock, sync=True).put(None, "c1")

    child.wait_for("went on")
    assert child.process.wait(10) == 0
    store.close()


@pytest.mark.parametrize("child", [("long_chore", str(PATIENCE_S))], indirect=True)
def test_a_process_that_says_that_it_goes_on_is_left_alone(store: SqliteStore, desk: Desk, child: Child) -> None:
    """Writing a whole file anew takes longer than the patience; whoever waits sees that it has not stopped."""
    child.wait_for("begun")

    desk.put(None, "c1")

    child.wait_for("went on")
    assert child.process.wait(10) == 0


@pytest.mark.parametrize("child", [("long_chore", str(PATIENCE_S))], indirect=True)
def test_a_process_that_stopped_in_a_long_chore_is_ended(store: SqliteStore, desk: Desk, child: Child) -> None:
    """Ctrl-Z in the middle of it keeps nobody out."""
    child.wait_for("begun")
    os.kill(child.process.pid, signal.SIGSTOP)
    child.wait_until_stopped()

    desk.put(None, "c1")

    assert child.ended_by == signal.SIGKILL


def signed(files: Files, text: str) -> int:
    """The writer's lock, held by a file of our own, in somebody's name."""
    fd = os.open(files.folder / "writer", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, text.ljust(80).encode(), 0)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def lock_of(files: Files) -> WriterLock:
    return WriterLock(files, patience_s=0.01)


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("name", ["reused", "unsigned", "nonsense"])
def test_a_process_that_is_not_the_holder_is_never_killed(
    tmp_path: Path, bystander: subprocess.Popen[bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pid that was given to somebody else since, and a lock that nobody has signed: the wait ends in an error."""
    monkeypatch.setattr("ninelives.stores.sqlite.locks.GRACE_S", 0.05)
    files = Files(tmp_path)
    texts = {"reused": f"{bystander.pid} 1 7", "unsigned": "", "nonsense": "what is this"}
    fd = signed(files, texts[name])

    with pytest.raises(StoreUnavailableError), lock_of(files).held():
        pass

    assert bystander.poll() is None
    os.close(fd)
    with lock_of(files).held():
        pass
    files.close_all()


def test_the_very_holder_is_killed(
    tmp_path: Path, bystander: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control for the above: with the right start time the one that signed is ended, if it has stopped."""
    files = Files(tmp_path)
    os.kill(bystander.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, bystander.pid, os.WSTOPPED | os.WNOWAIT)
    fd = signed(files, f"{bystander.pid} {process_started(bystander.pid)} 7")
    monkeypatch.setattr("ninelives.stores.sqlite.locks.GRACE_S", 0.05)

    with pytest.raises(StoreUnavailableError), lock_of(files).held():
        pass

    assert bystander.wait(10) == -signal.SIGKILL
    os.close(fd)
    files.close_all()


def test_a_holder_that_is_only_slow_is_named_and_left_alone(
    tmp_path: Path, bystander: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that stalls for longer than the patience is no reason to end a process that waits for it."""
    files = Files(tmp_path)
    fd = signed(files, f"{bystander.pid} {process_started(bystander.pid)} 7")
    monkeypatch.setattr("ninelives.stores.sqlite.locks.GRACE_S", 0.05)

    with pytest.raises(StoreUnavailableError, match=rf"written by process {bystander.pid}"), lock_of(files).held():
        pass

    assert bystander.poll() is None
    os.close(fd)
    files.close_all()


@pytest.mark.parametrize(
    ("line", "file", "frozen", "thawed"),
    [
        ("0::/agents/a", "agents/a/cgroup.events", "populated 1\nfrozen 1\n", "populated 1\nfrozen 0\n"),
        ("7:freezer:/agents", "freezer/agents/freezer.state", "FROZEN\n", "THAWED\n"),
    ],
)
def test_a_frozen_control_group_is_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, file: str, frozen: str, thawed: str
) -> None:
    """A paused container shows no stopped process; its control group tells."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    for path, text in ((proc / "7" / "cgroup", f"9:name=systemd:/\n{line}\n"), (groups / file, frozen)):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    (proc / "7" / "stat").write_text("7 (python (3)) S 1 2 3")
    monkeypatch.setattr("ninelives.stores.sqlite.locks.HAS_PROC", True)
    monkeypatch.setattr("ninelives.stores.sqlite.locks.PROC", proc)
    monkeypatch.setattr("ninelives.stores.sqlite.locks.CGROUPS", groups)

    seen = is_stopped(7)
    (groups / file).write_text(thawed)

    assert seen
    assert not is_stopped(7)


def test_a_lock_that_was_let_go_of_names_nobody(tmp_path: Path) -> None:
    """Who takes it next and stops before signing must not be mistaken for who had it before."""
    files = Files(tmp_path)
    lock = lock_of(files)

    with lock.held():
        inside = (tmp_path / "writer").read_text().split()

    assert inside[:2] == [str(os.getpid()), process_started(os.getpid())]
    assert (tmp_path / "writer").read_text().strip() == ""
    files.close_all()


def test_when_a_process_began_is_told_for_live_ones_only() -> None:
    """The pair of pid and start time names one process, ever."""
    gone = subprocess.Popen(["true"])
    gone.wait()

    assert process_started(os.getpid()) == process_started(os.getpid()) != ""
    assert process_started(gone.pid) == ""
