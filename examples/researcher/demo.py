"""
The example agent, killed twice: what `make run` shows.

Runs `ninelives run` in processes of its own, ends two of them with SIGKILL at moments that nobody announced, goes on
each time with `--continue`, and then counts: from the trace of what the processes ran, from the store as it was at each
kill, and from the outbox.

    python examples/researcher/demo.py ["What is in docs?"] [--seed 7]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ninelives import open_store
from ninelives.model import ONE_USER, Thread

ROOT = Path(__file__).parents[2]
AGENT = "examples/researcher/agent.py:agent"
KILLS = 2
LINES_BEFORE_KILL = (2, 50)
"""Between so many lines of the trace one is picked; a whole run has about a hundred and fifty."""
PAUSE_S_MAX = 0.3
"""After that line the kill waits for up to so long, so that it can hit anything: a tool, a commit, nothing at all."""


@dataclass
class Life:
    """One process: what it told, and what the store knew when it had ended."""

    killed: bool
    trace: list[dict[str, Any]]
    recorded: set[str]

    @property
    def begun(self) -> list[str]:
        """The task ids of the steps that it began, subagents' steps too."""
        return [line["task"] for line in self.trace if line["kind"] == "step" and line["state"] == "started"]


@dataclass
class Demo:
    folder: Path
    question: str
    dice: random.Random
    thread: str = "demo"
    lives: list[Life] = field(default_factory=list)

    @property
    def store_url(self) -> str:
        return f"sqlite:///{self.folder / 'demo.db'}"

    @property
    def outbox(self) -> Path:
        return self.folder / "outbox.jsonl"

    # -- running and killing ---------------------------------------------------------------------------------------

    def play(self) -> None:
        """Until the agent is done, having been killed twice. A run that was faster than its killer does not count."""
        attempt = 1
        while not self._killed_twice_and_done():
            self.lives.clear()
            self.outbox.unlink(missing_ok=True)
            self.thread = "demo" if attempt == 1 else f"demo-{attempt}"
            attempt += 1

    def _killed_twice_and_done(self) -> bool:
        for kill in range(KILLS):
            self.lives.append(self._live(first=kill == 0, killed_after=self.dice.randint(*LINES_BEFORE_KILL)))
            if not self.lives[-1].killed:
                say("it had ended before it was to be killed; that does not count. Again, on a new thread.")
                return False
            say(f"killed by SIGKILL, {kill + 1} of {KILLS}")
        self.lives.append(self._live(first=False, killed_after=None))
        return True

    def _live(self, *, first: bool, killed_after: int | None) -> Life:
        asked = [self.question] if first else ["--continue"]
        command = ["ninelives", "run", AGENT, *asked, "--thread", self.thread, "--json"]
        say(f"$ {shlex.join(command[:-1])}")
        place = Path(sys.executable).with_name(command[0])
        with subprocess.Popen([place, *command[1:]], stdout=subprocess.PIPE, cwd=ROOT, env=self._env()) as process:
            trace = list(self._watched(process, killed_after))
        if process.returncode not in (0, -signal.SIGKILL):
            raise SystemExit(f"the agent ended with exit code {process.returncode}")
        return Life(process.returncode != 0, trace, self._recorded())

    def _watched(self, process: subprocess.Popen[bytes], killed_after: int | None) -> Iterator[dict[str, Any]]:
        """What the process tells; a line that the kill has torn is none."""
        assert process.stdout is not None
        for number, line in enumerate(process.stdout, start=1):
            if line.endswith(b"\n"):
                yield json.loads(line)
            if number == killed_after:
                time.sleep(self.dice.uniform(0, PAUSE_S_MAX))
                process.kill()

    def _env(self) -> dict[str, str]:
        """The scripted model unless another is asked for, and a pace at which one can watch."""
        ours = {"NINELIVES_STORE": self.store_url, "NINELIVES_EXAMPLE_OUTBOX": str(self.outbox)}
        return {"NINELIVES_EXAMPLE_MODEL": "scripted", **os.environ, **ours}

    # -- counting --------------------------------------------------------------------------------------------------

    def _recorded(self) -> set[str]:
        """The task ids of all steps whose result is in the store now."""
        store = open_store(self.store_url)
        try:
            events = store.perform(store.list_events(ONE_USER, self.thread, limit=100_000))
            return {event.ref for event in events if event.kind == "task_done" and event.ref}
        finally:
            store.close()

    def _thread(self) -> Thread:
        store = open_store(self.store_url)
        try:
            return next(t for t in store.perform(store.list_threads(ONE_USER)) if t.thread_id == self.thread)
        finally:
            store.close()

    def results(self) -> dict[str, int]:
        begun = Counter(task for life in self.lives for task in life.begun)
        repeated = sum(
            1
            for before, life in enumerate(self.lives)
            for task in life.begun
            if any(task in earlier.recorded for earlier in self.lives[:before])
        )
        published = Counter((line["title"], line["body"]) for line in self._published())
        return {
            "kills": sum(life.killed for life in self.lives),
            "steps run": begun.total(),
            "  cut off by a kill, run again": begun.total() - len(begun) - repeated,
            "recorded steps repeated": repeated,
            "tool calls": sum(
                line["kind"] == "tool" and line["state"] == "started" for life in self.lives for line in life.trace
            ),
            "outside acts done": published.total(),
            "outside acts done twice": published.total() - len(published),
            "bytes stored": self._thread().bytes,
        }

    def _published(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.outbox.read_text("utf-8").splitlines()]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the example agent, kill it twice, and count.")
    parser.add_argument("question", nargs="?", default="What is in src/ninelives?")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ninelives-demo-"))
    demo = Demo(folder, given.question, random.Random(given.seed))
    say(f"seed {given.seed}; store and outbox in {folder}")
    try:
        demo.play()
        results = demo.results()
    finally:
        shutil.rmtree(folder)
    print()
    for name, number in results.items():
        print(f"{name:<32}{number:>9,}")
    kept = not results["recorded steps repeated"] and not results["outside acts done twice"]
    return 0 if kept and results["outside acts done"] == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
