"""
The outside world of the example: somebody who takes money, and somebody who takes mail.

    python examples/shop/sinks.py FOLDER

A process of its own, which outlives the agent. It says on stdout where it listens, as one line of JSON, and ends with
its stdin. Whatever arrives is written down and synced before it is answered; nothing is thrown away for having come
twice, so that it can be counted.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

PAYMENTS, MAILS = "payments.jsonl", "mails.jsonl"


class Book:
    """A file to which lines are only added."""

    def __init__(self, path: Path) -> None:
        self._path, self._mutex = path, threading.Lock()

    def add(self, entry: dict[str, Any]) -> None:
        with self._mutex, self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def entries(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]


def payments(book: Book) -> ThreadingHTTPServer:
    """`POST /charges` charges a card, `GET /charges?key=K` says whether the charge with this key has arrived."""

    class Payments(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            entry = {"at": self.path, "key": self.headers["Idempotency-Key"], **asked, "receipt": f"r-{asked['order']}"}
            book.add(entry)
            self._answer(201, entry)

        def do_GET(self) -> None:
            key = parse_qs(urlsplit(self.path).query)["key"][0]
            found = next((entry for entry in book.entries() if entry["key"] == key), None)
            self._answer(200 if found else 404, found or {})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None: ...

    return ThreadingHTTPServer(("127.0.0.1", 0), Payments)


class Mailbox:
    """Takes every mail."""

    def __init__(self, book: Book) -> None:
        self._book = book

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        message = message_from_bytes(envelope.original_content or b"")
        told = {
            "by": session.host_name,
            "id": message["Message-ID"],
            "to": envelope.rcpt_tos,
            "subject": message["Subject"],
        }
        self._book.add(told)
        return "250 taken"


class AnyPort(Controller):
    """aiosmtpd looks at its own port when it has begun; with port 0 it has to be asked for it."""

    def _trigger_server(self) -> None:
        server: Any = self.server
        self.port = server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]


def main() -> None:
    folder = Path(sys.argv[1])
    till = payments(Book(folder / PAYMENTS))
    threading.Thread(target=till.serve_forever, daemon=True).start()
    box = AnyPort(Mailbox(Book(folder / MAILS)), hostname="127.0.0.1", port=0)
    box.start()
    print(json.dumps({"payments": f"http://127.0.0.1:{till.server_port}", "mail": box.port}), flush=True)
    sys.stdin.read()
    box.stop()


if __name__ == "__main__":
    main()
