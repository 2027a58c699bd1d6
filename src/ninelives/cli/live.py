"""
The live view of `ninelives run`: the picture of `view`, painted over itself for as long as the run goes on.

Painted by a thread of its own and at a slow pace, so that no step waits for the terminal. The cursor stays visible, on
an empty line below the picture, and no mode of the terminal is changed: a process that is killed cannot tidy up.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TextIO
from uuid import UUID

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ninelives.cli import render
from ninelives.cli.progress import Doing, Ending, Lines, Teller
from ninelives.cli.recorded import Recorded
from ninelives.cli.view import View, render_view
from ninelives.config import Price
from ninelives.model import Started, Usage

PAUSE_S = 0.1
"""At the most so often what has changed is painted."""
TICK_S = 1.0
"""So often what has not changed is painted, for the seconds that are shown."""


def teller_for(prices: Mapping[str, Price], *, plain: bool) -> Teller:
    """The live view for a person at a terminal that can show it; else lines, as `plain` asks for."""
    return Lines() if plain or not _can_paint(sys.stderr) else Painted(prices)


def _can_paint(to: TextIO) -> bool:
    if not to.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    return (to.encoding or "").lower().replace("-", "") == "utf8" and _in_foreground(to)


def _in_foreground(to: TextIO) -> bool:
    """Whether what is typed at the terminal comes to us: in a shell's background we would paint over what is typed."""
    try:
        return os.tcgetpgrp(to.fileno()) == os.getpgrp()
    except OSError:
        return True  # it is not the terminal that controls us


class _Console(Console):
    def show_cursor(self, show: bool = True) -> bool:
        return False  # it is never hidden


class Painted(Teller):
    """Tells by a picture that is painted over itself."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._view = View(prices)
        self._mutex = threading.Lock()
        self._changed = False
        self._closing = threading.Event()
        self._terminal = sys.stderr
        self._live: Live | None = None
        self._painter = threading.Thread(target=self._paint, name="ninelives-view", daemon=True)
        self._steered: list[tuple[logging.StreamHandler[Any], Any]] = []

    # -- what is told ----------------------------------------------------------------------------------------------

    def admitted(self, started: Started, recorded: Recorded | None) -> None:
        with self._mutex:
            self._view.admitted(started, recorded, time.monotonic())
        if self._live is None:
            self._begin()

    def begins(self, doing: Doing) -> None:
        with self._mutex:
            self._changed = True
            self._view.begins(doing)

    def ends(self, doing: Doing, how: Ending, said: str) -> None:
        with self._mutex:
            self._changed = True
            self._view.ends(doing, how, said, time.monotonic())

    def model_answered(self, under: UUID | None, usage: Usage) -> None:
        with self._mutex:
            self._changed = True
            self._view.model_answered(under, usage)

    def close(self) -> None:
        if self._live is None:
            return
        self._closing.set()
        if self._painter.is_alive():
            self._painter.join()
        with self._mutex:
            self._view.close(time.monotonic())
        with suppress(OSError):
            self._live.stop()
        for handler, stream in self._steered:
            handler.setStream(stream)

    # -- painting --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """From now on what the graph's own code prints or logs comes out above the picture."""
        console = _Console(
            file=self._terminal, force_terminal=True, soft_wrap=True, markup=False, emoji=False, highlight=False
        )
        self._live = Live(
            console=console,
            get_renderable=self._picture,
            auto_refresh=False,
            vertical_overflow="crop",
            redirect_stdout=sys.stdout.isatty(),
        )
        streams = [(sys.stdout, "stdout"), (sys.stderr, "stderr")]
        self._live.start(refresh=True)
        for stream, name in streams:
            for handler in _log_handlers(stream) if getattr(sys, name) is not stream else ():
                handler.setStream(getattr(sys, name))
                self._steered.append((handler, stream))
        self._painter.start()

    def _paint(self) -> None:
        painted = time.monotonic()
        with suppress(OSError):  # the terminal is gone; the run goes on
            while not self._closing.wait(PAUSE_S):
                now = time.monotonic()
                if (self._changed or now - painted >= TICK_S) and _in_foreground(self._terminal):
                    assert self._live is not None
                    self._live.refresh()
                    painted = now

    def _picture(self) -> RenderableType:
        """The lines, and below them an empty one for the cursor while it is going to be painted again."""
        if self._live is None:
            return Text()
        console = self._live.console
        with self._mutex:
            self._changed = False
            try:
                lines = render_view(self._view, console.width, console.height - 1, time.monotonic())
            except Exception as error:  # whatever is wrong with a picture, the run is worth more
                lines = [Text(render.short(f"no picture ({error!r}); see --plain", console.width - 1))]
        return Group(*lines) if self._view.closed else Group(*lines, Text())


def _log_handlers(stream: TextIO) -> Iterator[logging.StreamHandler[Any]]:
    """Those that hold the stream themselves; they would write into the picture."""
    loggers = [logging.root, *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                yield handler
