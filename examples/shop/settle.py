"""
The shop, killed until it is done: what `make run-shop` shows.

Starts the payment service and the mailbox, then `ninelives run` again and again, ended by SIGKILL at moments that
nobody announced. Whenever it asks, a process in another terminal approves (`ninelives inbox approve`), some days later
by the clock. Whenever the outcome of an act is unknown, somebody looks into the books and says what is true (`ninelives
effects settle`). Then it counts what has arrived.

    python examples/shop/settle.py [--seed 7] [--orders 3]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sinks import MAILS, PAYMENTS, Book

HERE = Path(__file__).parent
AGENT = "examples/shop/clerk.py:agent"
DONE, ASKS, UNKNOWN = 0, 4, 5
TALK = "talk.txt"
KILLS = 4
LINES_BEFORE_KILL = (1, 10)
PAUSE_S_MAX, ACT_S_MAX = 0.2, 0.03
"""A process is killed after so many lines of its trace, and a pause; or as soon as it acts, and a short pause."""
DAYS = (1, 6)
"""So many days somebody takes to answer."""


@dataclass
class Shop:
    """The folder with the store and the books, and the day that it is: of every process that is begun from now on."""

    folder: Path
    dice: random.Random
    env: dict[str, str] = field(default_factory=dict)
    day: int = 0
    kills: int = 0
    approvals: int = 0
    unknown: int = 0

    def settle(self, order: str) -> None:
        """One order, to its end."""
        kills_left, asked = KILLS, [f"Settle order {order}"]
        while True:
            code = self._live(order, asked, killed=kills_left > 0)
            kills_left -= 1
            asked = ["--continue"]
            if code == DONE:
                return
            if code == ASKS:
                self._approve(order)
            elif code == UNKNOWN:
                self._look(order)
            elif code >= 0:
                raise SystemExit(f"ninelives run ended with exit code {code}:\n{self._talk()}")

    def _live(self, order: str, asked: list[str], *, killed: bool) -> int:
        """A process, to its end or to its kill."""
        words = ["run", AGENT, *asked, "--thread", order, "--json"]
        say(f"$ ninelives {shlex.join(words[:-1])}")
        last = self.dice.choice([ACTS, self.dice.randint(*LINES_BEFORE_KILL)]) if killed else None
        pause_s = self.dice.uniform(0, ACT_S_MAX if last == ACTS else PAUSE_S_MAX)
        with self._begun(words) as process:
            assert process.stdout is not None
            for number, line in enumerate(process.stdout, start=1):
                if last == number or (last == ACTS and _acts(line)):
                    time.sleep(pause_s)
                    process.kill()
        if process.returncode < 0:
            self.kills += 1
            say("  killed")
        return process.returncode

    def _approve(self, order: str) -> None:
        """As somebody in another terminal does who is shown the question, days later."""
        self.day += self.dice.randint(*DAYS)
        for entry in json.loads(self._typed("inbox", "list", "--json")):
            for question in entry["questions"] if entry["run"]["thread_id"] == order else ():
                self.approvals += 1
                self._typed("inbox", "approve", question["interrupt_id"], "--as", "ann")
                say(f"  on day {self.day} ann approves {question['actions'][0]['name']}")

    def _look(self, order: str) -> None:
        """As somebody does who has been told that nobody knows: look whether it has arrived, and say so."""
        for act in json.loads(self._typed("effects", "list", "--thread", order, "--json")):
            self.unknown += 1
            arrived = any(act["key"] in (entry["id"] or "") for entry in Book(self.folder / MAILS).entries())
            outcome = ["--done", "--result", '"mailed"'] if arrived else ["--not-done"]
            self._typed("effects", "settle", act["key"], *outcome, "--why", "looked into the mailbox", "--by", "ann")
            say(f"  ann has looked: {act['name']} was {'' if arrived else 'not '}done")

    def _typed(self, *words: str) -> str:
        with self._begun([*words]) as process:
            out, _ = process.communicate()
        if process.returncode != 0:
            said = f"ninelives {shlex.join(words)} ended with exit code {process.returncode}"
            raise SystemExit(f"{said}:\n{self._talk()}")
        return out

    def _begun(self, words: list[str]) -> subprocess.Popen[str]:
        command = [sys.executable, str(HERE / "later.py"), str(self.day), *words]
        with (self.folder / TALK).open("w") as talk:
            return subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=talk, text=True, cwd=HERE.parents[1], env=self.env
            )

    def _talk(self) -> str:
        """What the last process has said."""
        return (self.folder / TALK).read_text(errors="replace")


ACTS = "acts"


def _acts(line: str) -> bool:
    """Whether a line of the trace says that a tool has begun."""
    told = json.loads(line)
    return bool(told["kind"] == "tool" and told["state"] == "started")


@contextmanager
def outside(folder: Path) -> Iterator[dict[str, str]]:
    """The payment service and the mailbox, and where they are found."""
    command = [sys.executable, str(HERE / "sinks.py"), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sinks:
        assert sinks.stdout is not None
        said = json.loads(sinks.stdout.readline())
        try:
            yield {"SHOP_PAYMENTS": said["payments"], "SHOP_MAIL": str(said["mail"])}
        finally:
            assert sinks.stdin is not None
            sinks.stdin.close()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Settle orders, be killed, and count what arrived.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    parser.add_argument("--orders", type=int, default=2)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ninelives-shop-"))
    say(f"seed {given.seed}; store and books in {folder}")
    shop = Shop(folder, random.Random(given.seed))
    orders = [f"o{number}" for number in range(1, given.orders + 1)]
    try:
        with outside(folder) as places:
            shop.env = {**os.environ, **places, "NINELIVES_STORE": f"sqlite:///{folder / 'shop.db'}"}
            for order in orders:
                shop.settle(order)
        charged = Counter(entry["order"] for entry in Book(folder / PAYMENTS).entries())
        mailed = Counter(entry["id"] for entry in Book(folder / MAILS).entries())
    finally:
        shutil.rmtree(folder)
    results: dict[str, Any] = {
        "orders settled": len(orders),
        "kills": shop.kills,
        "approvals given": shop.approvals,
        "days that they took": shop.day,
        "outcomes unknown, settled by a person": shop.unknown,
        "charges arrived": charged.total(),
        "mails arrived": mailed.total(),
        "arrived twice": charged.total() - len(charged) + mailed.total() - len(mailed),
    }
    print()
    for name, number in results.items():
        print(f"{name:<40}{number:>6,}")
    once = charged == Counter(orders) and mailed.total() == len(mailed) == len(orders)
    return 0 if once and shop.approvals == 2 * len(orders) else 1


if __name__ == "__main__":
    sys.exit(main())
