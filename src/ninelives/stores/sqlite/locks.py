"""
What the operating system knows about our processes: who is alive, and who is writing.

Two kinds of files in a folder beside the database, never SQLite's own:

- `worker-<id>` is locked by a worker for as long as its process lives. The kernel lets go when the process dies,
  however it dies, and a neighbour sees it at once.
- `writer` is locked by the one process that is inside a write transaction, and says which it is. A process that was
  stopped there (SIGSTOP, a frozen container) would keep all others out for ever; after the patience has run out its
  successor ends it: what it had not committed was never there. One that is merely slow, on a disk that stalls, is not
  ended, however slow it is.

The locks are flock's, which belong to the open file and not to the process: a forked child closes its copies.

Source: the lock that dies with its holder is the session advisory lock's cousin; see Gray & Cheriton 1989 on leases
for what remains where no kernel is shared.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from ninelives.errors import StoreUnavailableError

POLL_S = (0.0002, 0.01)
"""First and longest pause between two tries for the writer's lock."""
GRACE_S = 5.0
"""How long after twice the patience a waiting writer gives up."""
NOBODY = b" " * 80
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
HAS_PROC = (PROC / "self").exists()


class Files:
    """The open lock files of one store; closed in every forked child."""

    _all: ClassVar[weakref.WeakSet[Files]] = weakref.WeakSet()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fds: dict[str, int] = {}
        Files._all.add(self)

    def open(self, name: str) -> int:
        if name not in self._fds:
            try:
                self._fds[name] = os.open(self.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise StoreUnavailableError(
                    f"{self.folder / name}: cannot be opened ({error.strerror}); nothing was written. The store and the"
                    " folder beside it must belong to the user that runs."
                ) from error
        return self._fds[name]

    def close(self, name: str, *, remove: bool = False) -> None:
        if (fd := self._fds.pop(name, None)) is None:
            return
        if remove:
            (self.folder / name).unlink(missing_ok=True)
        os.close(fd)

    def close_all(self) -> None:
        for name in list(self._fds):
            self.close(name)

    @classmethod
    def after_fork(cls) -> None:
        """In the child: the parent's locks are the parent's; keeping the files open would keep them after it died."""
        for files in cls._all:
            files.close_all()


os.register_at_fork(after_in_child=Files.after_fork)


class WorkerLocks:
    """One lock per worker, held while its process lives."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def hold(self, worker_id: str) -> None:
        fcntl.flock(self._files.open(_file(worker_id)), fcntl.LOCK_EX | fcntl.LOCK_NB)

    def drop(self, worker_id: str) -> None:
        self._files.close(_file(worker_id), remove=True)

    def clear(self, worker_id: str) -> None:
        """Not by whoever merely looks: a free lock is what proves the death to the next one who asks."""
        (self._files.folder / _file(worker_id)).unlink(missing_ok=True)

    def is_dead(self, worker_id: str, *, expired: bool) -> bool:
        """
        The lock is free: taken before the worker was known, it is let go of only by dying.

        A file that is gone proves nothing (somebody may have cleared the folder): then the lease has to end as well.
        """
        path = self._files.folder / _file(worker_id)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return expired
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            return True
        finally:
            os.close(fd)


def _file(worker_id: str) -> str:
    return f"worker-{quote(worker_id, safe='')}"


class WriterLock:
    """Held around each write transaction; names its holder, so that one that hangs can be ended."""

    def __init__(self, files: Files, *, patience_s: float) -> None:
        self._files = files
        self._patience_s = patience_s
        self._me = f"{os.getpid()} {process_started(os.getpid())}"
        self._turn = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """
        Wait for our turn, write who we are, and let go at the end.

        Raises:
            StoreUnavailableError: others kept writing for longer than the patience, or the one that hangs is not ours
                to end.
        """
        fd = self._files.open("writer")
        self._acquire(fd)
        self._sign(fd)
        try:
            yield
        finally:
            os.pwrite(fd, NOBODY, 0)  # else whoever stops between taking the lock and signing would do so in our name
            fcntl.flock(fd, fcntl.LOCK_UN)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Within `held`, for what takes longer than the patience: whoever waits sees that we have not stopped."""
        done = threading.Event()

        def beat(fd: int) -> None:
            while not done.wait(self._patience_s / 4):
                self._sign(fd)

        thread = threading.Thread(target=beat, args=(self._files.open("writer"),), name="ninelives-turn", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _sign(self, fd: int) -> None:
        self._turn += 1
        os.pwrite(fd, f"{self._me} {self._turn}".encode().ljust(len(NOBODY)), 0)

    def _acquire(self, fd: int) -> None:
        begun = time.monotonic()
        pause, holder, look_at = POLL_S[0], b"", begun
        deadline = begun + 2 * self._patience_s + GRACE_S
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            now, seen = time.monotonic(), os.pread(fd, len(NOBODY), 0)
            if seen != holder:
                holder, look_at = seen, now + self._patience_s
            elif now > look_at:
                _end_if_stopped(holder)
                look_at = now + self._patience_s / 4
            if now > deadline:
                raise StoreUnavailableError(
                    f"the store is being written by process {_signed(holder)[0] or 'unknown'} without a pause; nothing"
                    " was written."
                    " Try again, or give the store fewer writers or a faster disk."
                )
            time.sleep(pause)
            pause = min(pause * 1.5, POLL_S[1])


def _end_if_stopped(holder: bytes) -> None:
    """End the process that stopped inside a write transaction, if it is still the very one that signed."""
    pid, started = _signed(holder)
    if pid in (0, os.getpid()) or process_started(pid) != started or not is_stopped(pid):
        return
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        raise StoreUnavailableError(
            f"process {pid} stopped inside a write transaction and belongs to another user; nothing was written."
            " Ask its owner to end or continue it."
        ) from None
    except ProcessLookupError:
        return


def _signed(holder: bytes) -> tuple[int, str]:
    """Whose lock it is: pid and start time; 0 if nobody has signed."""
    pid, started, *_ = [*holder.decode(errors="replace").split(), "", ""]
    return (int(pid), started) if pid.isdecimal() and started else (0, "")


def process_started(pid: int) -> str:
    """When the process began, as the system tells it; '' if there is none. A pid alone may have been reused."""
    if not HAS_PROC:
        return "_".join(_ps(pid, "lstart="))
    stat = _stat(pid)
    return stat[19] if stat else ""


def is_stopped(pid: int) -> bool:
    """It was sent SIGSTOP or SIGTSTP, is held by a debugger, or its control group is frozen; not: it waits or works."""
    if not HAS_PROC:
        return "".join(_ps(pid, "state=")).startswith("T")
    stat = _stat(pid)
    return bool(stat) and (stat[0] in "Tt" or _is_frozen(pid))


def _stat(pid: int) -> list[str]:
    """What the kernel tells of a process, from its state on; nothing if there is none."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _ps(pid: int, column: str) -> list[str]:
    asked = subprocess.run(["ps", "-o", column, "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout.split()


def _is_frozen(pid: int) -> bool:
    """Source: the Linux kernel's documentation of cgroup v2 (`cgroup.events`) and of v1's freezer (`freezer.state`)."""
    with suppress(OSError):
        for line in (PROC / str(pid) / "cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if not kinds and _says("frozen 1", CGROUPS / path.lstrip("/") / "cgroup.events"):
                return True
            if "freezer" in kinds and _says("FROZEN", CGROUPS / "freezer" / path.lstrip("/") / "freezer.state"):
                return True
    return False


def _says(word: str, file: Path) -> bool:
    with suppress(OSError):
        return word in file.read_text()
    return False
