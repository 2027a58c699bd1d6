"""What the processes do that the tests of the SQLite locks stop and kill. Run as: sqlite_child.py TASK URL …"""

from __future__ import annotations

import os
import signal
import sys
import time

from clocks import HandClock
from contract.desk import Desk
from ninelives.stores import open_store
from ninelives.stores.sqlite import SqliteStore


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())  # at once, whoever else is speaking


def hold(url: str) -> None:
    """Hold a worker's lock until killed."""
    store = open_store(url)
    store.hold_worker_lock("w1")
    say("held")
    signal.pause()


def hold_and_fork(url: str) -> None:
    """As `hold`, with a forked child and a program that both outlive it."""
    store = open_store(url)
    store.hold_worker_lock("w1")
    if os.fork() == 0:
        say(f"child {os.getpid()}")
        signal.pause()
    program = os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ)
    say(f"program {program}")
    say("held")
    signal.pause()


def stop_inside(url: str) -> None:
    """Stop in the middle of a write transaction."""
    store = open_store(url)

    def fault(act: str, statement: str, where: str) -> None:
        if (statement, where) == ("add_checkpoint", "after"):
            say("inside")
            os.kill(os.getpid(), signal.SIGSTOP)

    store.fault = fault
    with Desk(store, HandClock(), sync=True) as desk:
        desk.put(None, "never", thread_id="t")
    say("went on")


def stop_outside(url: str) -> None:
    """Write, then stop with the store open but no transaction; go on when continued."""
    store = open_store(url)
    with Desk(store, HandClock(), sync=True) as desk:
        desk.put(None, "mine", thread_id="child")
        say("outside")
        os.kill(os.getpid(), signal.SIGSTOP)
        desk.put(None, "more", "mine", thread_id="child")
    store.close()
    say("went on")


def slow(url: str, seconds: str) -> None:
    """Be slow in each of several transactions, though never as slow as the patience."""
    store = open_store(url)

    def fault(act: str, statement: str, where: str) -> None:
        if (statement, where) == ("commit", "before"):
            time.sleep(float(seconds))

    store.fault = fault
    with Desk(store, HandClock(), sync=True) as desk:
        say("begun")
        for n in range(6):
            desk.put(None, f"c{n}", f"c{n - 1}" if n else None, thread_id="child")
    store.close()
    say("went on")


def long_chore(url: str, patience_s: str) -> None:
    """Have the turn for much longer than the patience, and show all the while that it goes on."""
    store = SqliteStore(url.removeprefix("sqlite:///"), busy_timeout_s=0, lease_ttl_s=float(patience_s))

    def chore(conn: object) -> None:
        assert store._turn is not None
        with store._turn.beating():
            say("begun")
            time.sleep(float(patience_s) * 4)

    store._writer.between(chore)
    store.close()
    say("went on")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
