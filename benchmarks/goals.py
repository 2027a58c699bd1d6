"""
What we want to reach.

`make bench` judges chats of 200 turns. `make bench-full` judges chats of 1,000 beside them, as far as there is room:
stock's plain form would take some 25 GB, so there it is measured at 200 turns, or not at all, and the row says so.
"""

from __future__ import annotations

from benchmarks.figures import (
    floor_s,
    fresh_superstep_s,
    growth,
    over_least,
    over_new,
    plain,
    put_s,
    slowing,
    stored,
    superstep_s,
)
from benchmarks.judging import Goal, Limit
from benchmarks.spec import STOCK_TURNS_MAX

SHORT, LONG = 200, 1000
DELTA, DELTA_LONG = 50, 1000
MB, KB, MS = 1e6, 1e3, 1e-3


def goals(turns: int = SHORT) -> list[Goal]:
    """The goals for chats that are so long at most."""
    long_ones = _size_of_long(turns) if turns > SHORT else []
    return [
        *_size(),
        *long_ones,
        *_growth(turns),
        *_time(),
        *_steadiness(turns),
        *_reading(turns),
        *_crowds(),
        *_payloads(),
    ]


def _size() -> list[Goal]:
    return [
        Goal(
            "bytes-plain",
            f"stored, {SHORT} turns, plain `add_messages`",
            "bytes",
            stored("stock", SHORT),
            stored("ninelives", SHORT),
            Limit(0.95 * MB, stretch=0.70 * MB),
        ),
        Goal(
            "bytes-delta",
            f"stored, {SHORT} turns, DeltaChannel({DELTA})",
            "bytes",
            stored("stock", SHORT, DELTA),
            stored("ninelives", SHORT, DELTA),
            Limit(1.1 * MB),
        ),
        Goal(
            "bytes-zstd",
            f"stored, {SHORT} turns, DeltaChannel({DELTA_LONG}); stock with a zstd serialiser",
            "bytes",
            stored("stock-zstd", SHORT, DELTA_LONG),
            stored("ninelives", SHORT, DELTA_LONG),
            Limit(0.45, "ratio"),
        ),
        Goal(
            "bytes-random",
            f"stored per new byte, {SHORT} turns of random bytes; stock DeltaChannel({DELTA})",
            "",
            over_new("stock", SHORT, DELTA),
            over_new("ninelives", SHORT),
            Limit(1.15),
            beside=(("ours, per byte of `zstd -19` over one copy", over_least("ninelives", SHORT)),),
        ),
    ]


def _size_of_long(turns: int) -> list[Goal]:
    return [
        Goal(
            f"bytes-plain-{turns}",
            f"stored, {turns} turns, plain",
            "bytes",
            "not run: about 25 GB",
            stored("ninelives", turns),
            Limit(4.8 * MB),
        ),
        Goal(
            f"bytes-delta-{turns}",
            f"stored, {turns} turns, DeltaChannel({DELTA})",
            "bytes",
            stored("stock", turns, DELTA),
            stored("ninelives", turns, DELTA),
            Limit(5.5 * MB),
        ),
    ]


def _growth(turns: int) -> list[Goal]:
    return [
        Goal(
            f"growth-{form}",
            f"exponent of the bytes' growth with the text, 50 to {turns} turns, {told}{_shorter(turns, delta)}",
            "",
            growth("stock", _for_stock(turns, delta), delta),
            growth("ninelives", turns, delta),
            Limit(1.02),
        )
        for form, told, delta in _FORMS
    ]


def _time() -> list[Goal]:
    limits = {0: Limit(0.15, "ratio", stretch=0.10), DELTA: Limit(0.45, "ratio", stretch=0.30)}
    fresh = {0: Limit(0.35, "ratio"), DELTA: Limit(1.0, "ratio")}
    held = [
        Goal(
            f"superstep-{form}",
            f"superstep over no saver, around turn {SHORT}, long-lived worker, {told}",
            "s",
            superstep_s("stock", SHORT, delta),
            superstep_s("ninelives", SHORT, delta),
            limits[delta],
            beside=(("no saver", floor_s(SHORT, delta)),),
        )
        for form, told, delta in _FORMS
    ]
    new = [
        Goal(
            f"fresh-{form}",
            f"superstep over no saver, each turn after {SHORT} a new process, opening included, {told}",
            "s",
            fresh_superstep_s("stock", SHORT, delta),
            fresh_superstep_s("ninelives", SHORT, delta),
            fresh[delta],
            beside=(("ours, opening alone", plain("open_s", "turn", "ninelives", SHORT, delta)),),
        )
        for form, told, delta in _FORMS
    ]
    chats = ((SHORT, 0), (SHORT, DELTA))
    put = Goal(
        "put",
        f"one `put`, at the slowest of {SHORT} turns, plain or DeltaChannel({DELTA})",
        "s",
        put_s("stock", *chats),
        put_s("ninelives", *chats),
        Limit(0.5 * MS, stretch=0.3 * MS),
        beside=(("raw commit", plain("commit_s", "disk", "nosaver")),),
    )
    return [*held, *new, put]


def _steadiness(turns: int) -> list[Goal]:
    return [
        Goal(
            f"steady-{form}",
            f"superstep over no saver, turn {turns} over turn 50, {told}{_shorter(turns, delta)}",
            "",
            slowing("stock", _for_stock(turns, delta), delta),
            slowing("ninelives", turns, delta),
            Limit(1.2),
        )
        for form, told, delta in _FORMS
    ]


def _reading(turns: int) -> list[Goal]:
    limits = {0: Limit(1.2, "ratio"), DELTA: Limit(1.0, "ratio", strict=True)}
    last_only = "; stock has the last state alone" * (turns > STOCK_TURNS_MAX)
    loads = [
        Goal(
            f"load-{form}",
            f"new process reads the newest state of {turns} turns, {told}{last_only * (not delta)}",
            "s",
            plain("state_s", "load", "stock", turns, delta),
            plain("state_s", "load", "ninelives", turns, delta),
            limits[delta],
            beside=(
                ("stock, opening included", plain("total_s", "load", "stock", turns, delta)),
                ("ours, opening included", plain("total_s", "load", "ninelives", turns, delta)),
            ),
        )
        for form, told, delta in _FORMS
    ]
    return [
        *loads,
        Goal(
            "history-time",
            f"whole history of {SHORT} turns, plain",
            "s",
            plain("history_s", "history", "stock", SHORT),
            plain("history_s", "history", "ninelives", SHORT),
            Limit(0.5),
        ),
        Goal(
            "history-memory",
            f"peak memory of a process that reads the whole history of {SHORT} turns, plain",
            "bytes",
            plain("peak_bytes", "history", "stock", SHORT),
            plain("peak_bytes", "history", "ninelives", SHORT),
            Limit(400 * MB),
            beside=(("ours, before reading", plain("peak_bytes_before", "history", "ninelives", SHORT)),),
        ),
    ]


def _crowds() -> list[Goal]:
    return [
        Goal(
            "threads",
            "200 threads of 10 steps at once; stock's AsyncSqliteSaver",
            "/s",
            plain("steps_per_s", "threads", "stock-async"),
            plain("steps_per_s", "threads", "ninelives"),
            Limit(1.5, "ratio", at_least=True),
            beside=(("no saver", plain("steps_per_s", "threads", "nosaver")),),
        ),
        Goal(
            "fanout",
            "run with a fan-out of 100 `Send`s",
            "s",
            plain("run_s", "fanout", "stock"),
            plain("run_s", "fanout", "ninelives"),
            Limit(35 * MS),
            beside=(("no saver", plain("run_s", "fanout", "nosaver")),),
        ),
    ]


def _payloads() -> list[Goal]:
    of_files = [
        Goal(
            f"files-{form}",
            f"stored per step, one of 30 files of 20 kB edited, {told}",
            "bytes",
            plain("bytes_per_step", "files", "stock", delta=delta),
            plain("bytes_per_step", "files", "ninelives", delta=delta),
            Limit(1.2 * KB),
        )
        for form, told, delta in _FORMS
    ]
    constant = Goal(
        "constant",
        "stored per step, 5 MB of text in a channel that stays as it is",
        "bytes",
        plain("bytes_per_step", "constant", "stock"),
        plain("bytes_per_step", "constant", "ninelives"),
        Limit(1.0 * KB),
    )
    return [*of_files, constant]


_FORMS = (("plain", "plain", 0), ("delta", f"DeltaChannel({DELTA})", DELTA))


def _for_stock(turns: int, delta: int) -> int:
    return turns if delta else min(turns, STOCK_TURNS_MAX)


def _shorter(turns: int, delta: int) -> str:
    return "" if _for_stock(turns, delta) == turns else f" (stock: {_for_stock(turns, delta)})"
