"""
The payment service and the mailbox of the example, for all cases of the kill harness at once.

Each case has a shop of its own, named by its folder: in the path of its requests, and as the host that its mails come
from. What arrives is written into that case's history, by this process, which nobody kills.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sinks import AnyPort, Book, Mailbox, payments


def shop_at(outside: Path) -> str:
    """The name of the shop that keeps its books there."""
    return os.fsencode(outside).hex()


class Books(Book):
    """All cases' books; the charges are remembered here, too, since the payment service can be asked."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._known: list[dict[str, Any]] = []

    def add(self, entry: dict[str, Any]) -> None:
        shop = (entry["at"].split("/")[1] if "at" in entry else entry["by"]).strip("[]")
        told = {"declared": True, **(_charge(entry) if "at" in entry else _mail(entry))}
        with self._mutex:
            line = {"life": 0, "kind": "arrived", "at_ns": time.monotonic_ns(), "facts": told}
            with Path(os.fsdecode(bytes.fromhex(shop))).open("a") as file:
                file.write(f"{json.dumps(line)}\n")
                file.flush()
                os.fsync(file.fileno())
            self._known += [entry] if "at" in entry else []

    def entries(self) -> list[dict[str, Any]]:
        with self._mutex:
            return [*self._known]


def _charge(entry: dict[str, Any]) -> dict[str, Any]:
    return {"act": f"charge {entry['order']} {entry['cents']}", "key": entry["key"], "result": entry["receipt"]}


def _mail(entry: dict[str, Any]) -> dict[str, Any]:
    key = entry["id"].strip("<>").partition("@")[0]
    return {"act": f"mail {entry['to'][0]}", "key": key, "result": f"mailed {entry['to'][0]}"}


@contextmanager
def listening() -> Iterator[dict[str, Any]]:
    books = Books()
    till = payments(books)
    threading.Thread(target=till.serve_forever, daemon=True).start()
    box = AnyPort(Mailbox(books), hostname="127.0.0.1", port=0)
    box.start()
    try:
        yield {"payments": f"http://127.0.0.1:{till.server_port}", "mail": box.port}
    finally:
        box.stop()


if __name__ == "__main__":
    with listening() as places:
        print(json.dumps(places), flush=True)
        sys.stdin.read()
