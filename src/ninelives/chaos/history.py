"""
What happened: events that outlive the process that wrote them.

An event is one line, appended by one `write`, so it survives SIGKILL (the page cache does) and lines of several
processes never mix. A case keeps two files: what the processes did (`HISTORY`), and what arrived in the outside world
(`OUTSIDE`), which a real receiver would keep for itself and which is therefore synced to the disk.

Kinds of events, with their facts:

- `point`: a place where the world may stop (`point`, its id), told before the world stops there. A check of the lease
  says what it is made for (`of`, the id of a tool call or task).
- `enter`, `exit`: a unit of work begins, has returned (`unit`, `step`, `task`, `call`, `key`, `point`).
- `arrived`: an act arrived outside (`act`, `key`, `result`, `declared`; `call`, the tool call that it was made for).
- `found`, `left`: what a process found in the store before it did anything, and what it left there (`tasks`, `calls`,
  `effects`, `decisions`, `checkpoints`, `rows`).
- `asked`: a process was shown what the graph asks (`question`, its id; `shown`; `calls`, the tool calls it is about).
- `answering`: a process is about to answer what the graph asked (`question`, its id; `value`; `again`: it is the same
  answer once more, handed on since the process that had it died).
- `refused`: that answer was not taken (`question`, `error`, `text`; `first`, who had answered).
- `told`: the node or tool that asked goes on with this answer (`question`, in its own words; `value`).
- `unknown`: the run stopped, because the outcome of an act is unknown (`name`, `key`).
- `settled`: that outcome was recorded by who knows it (`key`, `happened`).
- `outcome`: the request was answered (`output`, `values`).
- `raised`: it ended otherwise (`error`, `text`).
- `stopped`, `continued`: a process stood still between the two (`point`).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HISTORY = "history.jsonl"
OUTSIDE = "outside.jsonl"


@dataclass(frozen=True, slots=True)
class Event:
    """
    Attributes:
        life: which process of the case, from 1 in the order in which they began.
        at_ns: by the machine's monotonic clock, which all processes share. That of a look at the store (`found`,
            `left`) is when it began: what another process does meanwhile comes after it.
    """

    life: int
    kind: str
    at_ns: int
    facts: Mapping[str, Any]

    def __getitem__(self, fact: str) -> Any:
        return self.facts.get(fact)


class Recorder:
    """Writes the events of one life."""

    def __init__(self, path: Path, life: int, *, synced: bool = False) -> None:
        self.life, self._synced = life, synced
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._mutex = threading.Lock()

    def write(self, kind: str, **facts: Any) -> None:
        self.write_of(time.monotonic_ns(), kind, facts)

    def write_of(self, at_ns: int, kind: str, facts: Mapping[str, Any]) -> None:
        """What is told later than it was."""
        line = json.dumps({"life": self.life, "kind": kind, "at_ns": at_ns, "facts": facts})
        with self._mutex:
            os.write(self._fd, f"{line}\n".encode())
            if self._synced:
                os.fsync(self._fd)


class History(Sequence[Event]):
    """The events of one case, oldest first."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = sorted(events, key=lambda event: event.at_ns)

    def __len__(self) -> int:
        return len(self._events)

    def __getitem__(self, place: Any) -> Any:
        return self._events[place]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def of(self, *kinds: str, life: int | None = None) -> list[Event]:
        return [event for event in self if event.kind in kinds and life in (None, event.life)]

    def last(self, kind: str) -> Event | None:
        return next(iter(self.of(kind)[::-1]), None)

    @property
    def lives(self) -> list[int]:
        return sorted({event.life for event in self})


def read_history(folder: Path) -> History:
    """The history of the case in `folder`; a line that was cut off, the last of a dead process, is no event."""
    return History([*_events(folder / HISTORY), *_events(folder / OUTSIDE)])


def read_events(path: Path) -> list[Event]:
    """The events of one file, in the order in which they were written."""
    return [*_events(path)]


def _events(path: Path) -> Iterator[Event]:
    if not path.exists():
        return
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield Event(**json.loads(line))
