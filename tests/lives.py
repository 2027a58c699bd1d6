"""
Lives: functions of a test file carried out by a process of their own, which they may end in the middle.

A *nursery* is a bare process that has imported everything and forks one child for each life, so a life costs
milliseconds instead of the seconds that importing the stack takes. A life's function stands at the top of its file,
takes values that JSON can hold and returns one; inside, `die()` is `kill -9`, and `die_at` names a place in the store.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ninelives.store import Store

HANGS_S = 60.0
"""A life that lasts longer hangs; its process tells where, and ends."""


@dataclass(frozen=True)
class Ended:
    """How a life ended: what it returned, or that it was killed, or the traceback of what it raised."""

    killed: bool
    value: Any = None
    error: str = ""


class Life:
    """A life that goes on in another process."""

    def __init__(self, nursery: Nursery, pid: int, out: Path) -> None:
        self._nursery, self.pid, self._out = nursery, pid, out

    def end(self) -> Ended:
        """Wait for it."""
        status = self._nursery.wait(self.pid)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL, status
            return Ended(killed=True)
        told = json.loads(self._out.read_text()) if self._out.exists() else {"error": f"exit status {status}"}
        return Ended(killed=False, **told)


class Nursery:
    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="lives-"))
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._count = 0

    def start(self, body: Callable[..., Any], *args: Any) -> Life:
        self._count += 1
        out = self._folder / f"{self._count}.json"
        file = sys.modules[body.__module__].__file__
        pid = self._ask(start=file, name=body.__name__, args=args, out=str(out))
        return Life(self, pid, out)

    def wait(self, pid: int) -> int:
        return self._ask(wait=pid)

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, **request: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request, default=str) + "\n")
        self._process.stdin.flush()
        return int(json.loads(self._process.stdout.readline()))


_nurseries: list[Nursery] = []


def begin(body: Callable[..., Any], *args: Any) -> Life:
    """Start a life and go on beside it."""
    if not _nurseries:
        _nurseries.append(Nursery())
        atexit.register(_nurseries[0].close)
    return _nurseries[0].start(body, *args)


def live(body: Callable[..., Any], *args: Any) -> Any:
    """A life that must end by itself: what its function returned."""
    ended = begin(body, *args).end()
    assert not ended.killed, "it was killed"
    assert not ended.error, ended.error
    return ended.value


def live_and_die(body: Callable[..., Any], *args: Any) -> None:
    """A life that must be killed on its way."""
    ended = begin(body, *args).end()
    assert ended.killed, f"it was to die, but {ended.error or f'returned {ended.value!r}'}"


# -- inside a life ---------------------------------------------------------------------------------------------


def die() -> None:
    """`kill -9`, at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(HANGS_S)  # the signal is on its way to this very thread


def die_at(store: Store, act: str, statement: str, where: str, nth: int = 1) -> None:
    """Die when the store comes to this point for the nth time."""
    seen: Counter[tuple[str, str, str]] = Counter()

    def fault(*point: str) -> None:
        seen[point] += 1  # type: ignore[index]
        if point == (act, statement, where) and seen[point] == nth:
            die()

    store.fault = fault


class Gate:
    """Opened by one process for another to go through: a pipe with a name, so that nobody waits by the clock."""

    def __init__(self, folder: Path | str, name: str = "gate") -> None:
        self._path = Path(folder) / name
        if not self._path.exists():
            os.mkfifo(self._path)

    def wait(self) -> None:
        self._path.read_bytes()

    def open(self) -> None:
        """Returns once the other one stands there."""
        self._path.write_bytes(b"")


# -- the nursery's process -------------------------------------------------------------------------------------


def _serve() -> None:
    modules: dict[str, ModuleType] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitpid(request["wait"], 0)[1]
        else:
            file = request["start"]
            if file not in modules:
                modules[file] = _loaded(file)
            answer = os.fork()
            if not answer:
                _be(getattr(modules[file], request["name"]), request["args"], Path(request["out"]))
        print(json.dumps(answer), flush=True)


def _loaded(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _be(body: Callable[..., Any], args: list[Any], out: Path) -> None:
    import faulthandler

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    try:
        told: dict[str, Any] = {"value": body(*args)}
    except BaseException:
        told = {"error": traceback.format_exc()}
    try:
        out.write_text(json.dumps(told))
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.modules["lives"] = sys.modules["__main__"]
    _serve()
