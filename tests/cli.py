"""What the tests of the command line have in common: a folder with an agent in it, and processes that are watched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AGENT = '''
import operator
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

import ninelives
from ninelives import effect


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def told(what):
    with open("trace.txt", "a") as trace:
        trace.write(what + "\\n")


def wait_at_gate():
    """Until somebody opens the gate, or for good: a FIFO without a writer."""
    if Path("gate").exists():
        with open("gate") as gate:
            gate.read()


def first(state):
    told("first")
    return {"log": ["first"]}


def second(state):
    told("second")
    wait_at_gate()
    return {"log": ["second"]}


def third(state):
    told("third")
    return {"log": ["third"]}


def ask(state):
    return {"log": [f"said {interrupt({'question': 'sure?'})!r}"]}


def bounded(state):
    return {"log": [f"said {ninelives.ask('sure?', deadline_s=3600)!r}"]}


def broken(state):
    raise ValueError("this node is broken")


@effect
def charge():
    told("charge")
    wait_at_gate()
    return "charged"


def pay(state):
    return {"log": [charge()]}


def chain(*nodes):
    builder = StateGraph(State)
    builder.add_sequence(nodes)
    builder.add_edge(START, nodes[0].__name__)
    return builder


agent = chain(first, second, third).compile()
asking = chain(first, ask, third).compile()
failing = chain(first, broken).compile()
paying = chain(first, pay, third).compile()
bounded = chain(first, bounded, third).compile()
'''

EMPTY = '{"log": []}'
NINELIVES = [sys.executable, "-c", "import sys; from ninelives.cli import main; sys.exit(main())"]
LATER = "import time; now = time.time; time.time = lambda: now() + {}"
HANGS_S = 60


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    talk: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Watched:
    """A command that goes on beside the test; what it says is the signal to do the next thing."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self._said = process, ""

    def says(self, begin: str) -> str:
        """Wait for a line of its talk that begins so."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said += line
            if line.lstrip().startswith(begin):
                return line
        raise AssertionError(f"it ended without saying {begin!r}:\n{self._said}")

    def signal(self, which: signal.Signals) -> None:
        self.process.send_signal(which)

    def ends(self) -> Ended:
        out, talk = self.process.communicate(timeout=HANGS_S)
        return Ended(self.process.returncode, out, self._said + talk)


class Desk:
    """
    A folder with an agent, where commands are typed.

    Attributes:
        ahead_s: so many seconds the clock of what is typed from now on is ahead.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.ahead_s = folder, 0.0
        (folder / "agent.py").write_text(AGENT)

    def type(self, *words: str) -> Ended:
        """A command, to its end; without a terminal."""
        with self.begin(*words) as watched:
            return watched.ends()

    @contextmanager
    def begin(self, *words: str) -> Iterator[Watched]:
        *python, main = NINELIVES
        command = [*python, f"{LATER.format(self.ahead_s)}; {main}"]
        process = subprocess.Popen(
            [*command, *words],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("NINELIVES_")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Watched(process)
        finally:
            process.kill()
            process.communicate()

    # -- the gate ----------------------------------------------------------------------------------------------------

    def shut_gate(self) -> None:
        """From now on `second` and `charge` do not come back."""
        os.mkfifo(self.folder / "gate")

    @contextmanager
    def meet_at_gate(self) -> Iterator[None]:
        """Once somebody waits there, and for as long as this lasts."""
        with (self.folder / "gate").open("w"):
            yield

    def open_gate(self) -> None:
        """Let go whoever waits there, or will."""
        with self.meet_at_gate():
            self.take_gate_away()

    def take_gate_away(self) -> None:
        """Whoever comes now does not wait."""
        (self.folder / "gate").unlink()

    @property
    def trace(self) -> list[str]:
        """What nodes and acts began, in all processes together."""
        return (self.folder / "trace.txt").read_text().splitlines()
