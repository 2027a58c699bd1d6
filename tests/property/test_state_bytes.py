"""
Random histories of two processes that write to the same threads, against a model that is a dict of bytes.

Each history is played by its seed, which a failure prints. More of them: `NINELIVES_PLAY_ROUNDS=1000`; longer ones:
`NINELIVES_PLAY_STEPS=300`; from another seed on: `NINELIVES_PLAY_SEED=5000`.
"""

from __future__ import annotations

import copy
import os
import random
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite

from clocks import HandClock
from contract.desk import Desk
from contract.faults import Breaker, BrokenError, Gate, PulledError
from ninelives import _langgraph
from ninelives.config import KEYS_VARIABLE
from ninelives.errors import (
    DivergentStateError,
    FidelityError,
    LackOfSnapshotFrequency,
    LeaseLostError,
    ThreadBusyError,
)
from ninelives.model import ONE_USER, Lease, StoredCheckpoint
from ninelives.store import Act, PutCheckpoint, PutWrites
from ninelives.stores import open_store
from ninelives.stores.codec import encode
from ninelives.stores.codec.packs import read_pack
from ninelives.stores.sqlite import SqliteStore

SEED = int(os.environ.get("NINELIVES_PLAY_SEED", "1"))
ROUNDS = int(os.environ.get("NINELIVES_PLAY_ROUNDS", "8"))
STEPS = int(os.environ.get("NINELIVES_PLAY_STEPS", "60"))
POINTS_MAX = 25
"""Checkpoints of all threads together, before some are pruned."""

Values = dict[str, Any]
THREADS = ("t", "u", "v")
NAMESPACES = ("", "", "", "sub:1")


# -- the model ---------------------------------------------------------------------------------------------------------


@dataclass
class Point:
    """
    A checkpoint: what each channel and write must be, as bytes.

    Attributes:
        loose: for a channel whose objects are changed in place, all that each of its elements has ever been.
        replays: it is rebuilt from its ancestors, which pruning must keep.
        writes: by task and place.
    """

    ns: str
    name: str
    parent: str | None
    values: dict[str, bytes]
    loose: list[set[bytes]] | None = None
    run_id: str | None = None
    replays: bool = False
    writes: dict[str, dict[int, tuple[str, bytes]]] = field(default_factory=dict)

    def in_order(self, channel: str | None = None) -> list[tuple[str, str, bytes]]:
        flat = [(task, idx, *write) for task, writes in self.writes.items() for idx, write in writes.items()]
        return [(task, name, value) for task, _, name, value in sorted(flat) if channel in (None, name)]


Place = tuple[str, str]


@dataclass
class Thread:
    """Its checkpoints in the order in which they were stored first, and the tips of its branches."""

    points: dict[Place, Point] = field(default_factory=dict)
    tips: set[Place] = field(default_factory=set)
    early: dict[Place, dict[str, dict[int, tuple[str, bytes]]]] = field(default_factory=dict)
    runs: set[str] = field(default_factory=set)
    erased: bool = False

    def head(self, ns: str) -> Point | None:
        of_ns = [point for place, point in self.points.items() if place in self.tips and place[0] == ns]
        return of_ns[-1] if of_ns else None

    def add(self, point: Point, *, amends: bool) -> None:
        place = point.ns, point.name
        if amends:
            point.writes = self.points[place].writes
            point.parent = point.parent or self.points[place].parent
            self.points[place] = point
            return
        self.tips.discard((point.ns, point.parent or ""))
        self.tips.add(place)
        point.writes = self.early.pop(place, {})
        self.points[place] = point

    def keep(self, kept: set[Place]) -> int:
        """Only these, and those that they are rebuilt from; returns how many went."""
        for place in [*kept]:
            point = self.points[place]
            replays = point.replays and "log" not in point.values
            while replays and (point.ns, point.parent or "") in self.points:
                point = self.points[point.ns, point.parent or ""]
                kept.add((point.ns, point.name))
                replays = "log" not in point.values
        gone = self.points.keys() - kept
        if gone:
            self.points = {place: point for place, point in self.points.items() if place in kept}
            parents = {(point.ns, point.parent) for point in self.points.values()}
            self.tips = {place for place in self.points if place not in parents}
        return len(gone)

    def history(self, point: Point) -> tuple[list[bytes], list[bytes]] | None:
        """What the log of a checkpoint is rebuilt from; None if an ancestor is missing."""
        chain: list[Point] = []
        while point.parent is not None:
            if (point.ns, point.parent) not in self.points:
                return None
            point = self.points[point.ns, point.parent]
            chain.append(point)
            if "log" in point.values:
                break
        seed = [chain[-1].values["log"]] if chain and "log" in chain[-1].values else []
        return [value for each in reversed(chain) for _, _, value in each.in_order("log")], seed


# -- values that change ------------------------------------------------------------------------------------------------


class Author:
    """Makes the next state out of the one before: what stays is the same object, what changes a new one."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.count = chance, 0

    def number(self) -> int:
        self.count += 1
        return self.count

    def words(self, size: int) -> str:
        kinds = ["agent", "reads", "file", "tool", "answer", "wrote", str(self.number())]
        return " ".join(self.chance.choices(kinds, k=size // 6 + 1))

    def element(self) -> Any:
        n, chance = self.number(), self.chance
        calls = [{"name": "f", "args": {"x": [n], "t": "x" * chance.randrange(30)}, "id": f"c{n}", "type": "tool_call"}]
        kinds: list[Callable[[], Any]] = [
            lambda: HumanMessage(self.words(60), id=f"m{n}"),
            lambda: AIMessage(self.words(90), id=f"m{n}", tool_calls=calls),
            lambda: {"note": n, "deep": [{"n": n}]},
            lambda: {"note": n % 3},
            lambda: (n % 4, ["x" * 70]),
            lambda: [n % 3, {"a": n % 2}],
            lambda: self.words(chance.choice([20, 100, 3000])),
            lambda: chance.choice([1, True, 1.0, None, "", b"x", float("nan")]),
        ]
        return chance.choice(kinds)()

    def listed(self, values: list[Any]) -> list[Any]:
        chance, values = self.chance, [*values]
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            place = chance.randrange(len(values) + 1)
            kind = chance.randrange(15)
            if kind < 6:
                values += [self.element() for _ in range(chance.randrange(1, 4))]
            elif kind == 6:
                values.insert(place, self.element())
            elif kind == 7 and values:
                values[place - 1] = self.element()
            elif kind == 8 and values:
                del values[place - 1]
            elif kind == 9 and values:
                values.append(values[place - 1])
            elif kind == 10 and values:
                values.insert(place, copy.deepcopy(chance.choice(values)))
            elif kind == 11:
                chance.shuffle(values)
            elif kind == 12:
                values = values[:place]
            elif kind == 13:
                values = copy.deepcopy(values)
            elif kind == 14 and len(values) < 60:  # its node will be too long for the checkpoint
                values += [{"one of": chance.randrange(40)} for _ in range(130)]
        return values

    def file(self, before: Any) -> Any:
        """Mostly edited a little, so that it is kept as its difference from what it was."""
        text = before.get("content") if isinstance(before, dict) else before
        text = text if isinstance(text, str) else ""
        place, kind = self.chance.randrange(len(text) + 1), self.chance.randrange(12)
        if kind < 9 and len(text) > 500:
            text = text[:place] + self.words(30) + text[place + self.chance.randrange(40) :]
        elif kind == 9:
            text += self.words(500)
        else:
            text = self.words(self.chance.choice([10, 100, 3000, 9000, 9000]))
        as_dict = isinstance(before, dict) if before and kind < 9 else self.chance.random() < 0.5
        return {"content": text, "lines": [self.number()], "empty": ""} if as_dict else text

    def named(self, files: dict[str, Any]) -> dict[str, Any]:
        chance, files = self.chance, {**files}
        for _ in range(chance.choice([1, 1, 2, 3])):
            name, kind = f"file_{chance.randrange(5)}.txt", chance.randrange(12)
            if kind > 5 and files and kind < 8:
                name, kind = next(iter(files)), 0
            if kind < 6:
                files[name] = self.file(files.get(name))
            elif kind == 8:
                files.pop(name, None)
            elif kind == 9 and files:
                files[name] = copy.deepcopy(chance.choice([*files.values()]))
            elif kind == 10 and files:
                files[name] = chance.choice([*files.values()])
            elif kind == 11:
                files = dict(chance.sample([*files.items()], len(files)))
        return files

    def odd(self) -> Any:
        small: list[Any] = [
            1,
            True,
            1.0,
            -0.0,
            None,
            "",
            "1",
            [],
            {},
            (),
            set(),
            {"a": 1},
            {"a": True},
            [1, 2],
            ["a"],
            b"",
        ]
        large: list[Any] = [
            "x" * 60,
            {"a": "x" * 60},
            {"a": "x" * 600},
            [{"a": 1}],
            {1: "x" * 60},
            ["ab"] * 30,
            [*range(99)],
        ]
        return self.chance.choice(small + large)

    def next(self, before: Values) -> Values:
        """Values that share what did not change with the ones before, which are left as they are."""
        chance, values = self.chance, {**before}
        for _ in range(chance.choice([1, 1, 2, 3, 5])):
            kind = chance.randrange(12)
            messages, files = _inner(values.get("messages"), list), _inner(values.get("files"), dict)
            if kind < 4:
                values["messages"] = self.around(self.listed(messages))
            elif kind < 7:
                values["files"] = self.around(self.named(files))
            elif kind == 7:
                values["names"] = [*files]
            elif kind == 8:
                values["odd"] = self.odd()
            elif kind == 9:
                values["more"] = chance.choice([messages[-3:], [*messages], messages and messages[0], {**files}, files])
            elif kind == 10:
                values["text"] = self.file(values.get("text"))
            elif kind == 11 and values:
                values.pop(chance.choice([*values]))
        return dict(chance.sample([*values.items()], len(values))) if chance.random() < 0.1 else values

    def around(self, value: Any) -> Any:
        return self.chance.choice([value] * 8 + [Overwrite(value), _DeltaSnapshot(value)])

    def ruin(self, value: Any) -> None:
        """Change something somewhere within, in place."""
        inner, chance = getattr(value, "value", value), self.chance
        if isinstance(inner, HumanMessage | AIMessage):
            if isinstance(inner, HumanMessage) or not inner.tool_calls or chance.random() < 0.5:
                inner.content = self.words(30)
            else:
                self.ruin(inner.tool_calls[0]["args"])
        elif isinstance(inner, tuple) and inner:
            self.ruin(chance.choice(inner))
        elif isinstance(inner, dict | list) and inner and chance.random() < 0.6:
            self.ruin(chance.choice([*(inner.values() if isinstance(inner, dict) else inner)]))
        elif isinstance(inner, list):
            change: Callable[[], Any] = chance.choice([lambda: inner.append(self.number()), inner.reverse, inner.clear])
            change()
        elif isinstance(inner, dict):
            key = chance.choice([*inner, "new"])
            inner[key] = chance.choice([1, True, 1.0, "x", [1]]) if type(key) is str else 1


def _inner(value: Any, kind: type[Any]) -> Any:
    inner = getattr(value, "value", value)
    return inner if type(inner) is kind else kind()


def _is_long(values: list[Any]) -> bool:
    """It is stored by its elements: not both ends are numbers or short words."""
    ends = values[:: len(values) - 1 or 1]
    return any(type(end) not in (type(None), bool, int, float, str) or len(str(end)) >= 64 for end in ends)


# -- playing ---------------------------------------------------------------------------------------------------------


@dataclass
class Hand:
    """A process: its store object, and the objects of the states that it has put or loaded last."""

    desk: Desk
    live: dict[tuple[str, str], tuple[str, Values]] = field(default_factory=dict)


@dataclass
class Claim:
    hand: Hand
    lease: Lease
    base: Place | None
    alive: bool = True


class Play:
    """
    One history.

    Args:
        ruins: every object is changed in place as it comes, and the stores trust none.
    """

    def __init__(self, seed: int, urls: Sequence[str], clock: HandClock, *, ruins: bool) -> None:
        self.chance, self.clock, self.ruins = random.Random(seed), clock, ruins
        self.author = Author(self.chance)
        self.hands = [Hand(Desk(_opened(url, clock, trusting=not ruins), clock, sync=True)) for url in urls]
        self.threads: dict[str, Thread] = {}
        self.claims: dict[str, Claim] = {}
        self.late: list[tuple[Hand, Lease]] = []
        self.seen: dict[int, tuple[Any, set[bytes]]] = {}
        self.count, self.log = 0, list[str]()
        self.done: dict[str, int] = {}

    @property
    def too_strict(self) -> tuple[type[Exception], ...]:
        """A store that trusts nothing refuses, under a claim, what was changed in place."""
        return (FidelityError,) if self.ruins else ()

    def close(self) -> None:
        for hand in self.hands:
            hand.desk.store.close()

    def bytes_of(self, value: Any) -> bytes:
        store = self.hands[0].desk.store
        assert isinstance(store, SqliteStore)
        return encode(value, store.types)

    def play(self, steps: int) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (24, self.put), (8, self.go_on), (8, self.put_several), (5, self.put_anew), (14, self.write),
            (3, self.write_early),
            (5, self.load), (4, self.scribble), (5, self.replay), (6, self.start), (4, self.finish), (2, self.lose),
            (4, self.take_over), (3, self.come_late), (3, self.prune), (1, self.forget_runs), (2, self.copy),
            (1, self.delete), (2, self.reopen),
        ]  # fmt: skip
        for _ in range(steps):
            (act,) = self.chance.choices([act for _, act in acts], [weight for weight, _ in acts])
            if sum(len(thread.points) for thread in self.threads.values()) > POINTS_MAX:
                act = self.chance.choice([self.prune, self.prune, self.delete, self.finish])
            self.log.append(f"-- {act.__name__}")
            act()
            self.check()

    def say(self, *words: object) -> None:
        self.log.append("   " + " ".join(map(str, words)))

    # -- choosing ----------------------------------------------------------------------------------------------------

    def hand(self) -> Hand:
        return self.chance.choice(self.hands)

    def thread(self) -> tuple[str, Thread]:
        name = self.chance.choice(THREADS)
        return name, self.threads.get(name, Thread())

    def point(self, thread: Thread) -> Point | None:
        points = [*thread.points.values()]
        return self.chance.choice(points[-4:] if self.chance.random() < 0.7 else points) if points else None

    def writer(self, name: str) -> tuple[Hand, Lease | None]:
        """Whoever has the claim, mostly; or a process without one."""
        claim = self.claims.get(name)
        return (claim.hand, claim.lease) if claim and self.chance.random() < 0.9 else (self.hand(), None)

    def name(self) -> str:
        self.count += 1
        return f"c{self.count}"

    def state(self, hand: Hand, lease: Lease | None, thread: str, point: Point | None) -> Values:
        """The values to go on from: the objects at hand, or loaded anew."""
        if point is None:
            return {}
        at_hand = hand.live.get((thread, point.ns))
        if at_hand and (at_hand[0] == point.name or self.chance.random() < 0.2) and self.chance.random() < 0.8:
            return at_hand[1]
        found = self.read(hand, thread, point, lease)
        values: Values = found.checkpoint["channel_values"]
        hand.live[thread, point.ns] = point.name, values
        self.say("loads", point.name)
        return values

    # -- acts that write -----------------------------------------------------------------------------------------------

    def do(self, hand: Hand, act: Act[Any], *refusals: type[Exception]) -> tuple[bool, Any]:
        """Whether it was done; and what came of it. At times it breaks in the middle, or its answer is lost."""
        store, kind = hand.desk.store, self.chance.random()
        error = self.chance.choice([BrokenError, PulledError])
        if kind < 0.12:
            store.fault = Breaker(act.name, self.chance.randrange(14), error)
        elif kind < 0.14:
            store.fault = _lost_answer
        try:
            result = hand.desk.do(act)
        except (BrokenError, PulledError, LostError) as broken:
            self.say(act.name, "broke:", broken)
            return isinstance(broken, LostError), None
        except (*refusals, *self.too_strict) as refusal:
            self.say(act.name, "was refused:", type(refusal).__name__)
            return False, None
        finally:
            store.fault = None
        return True, result

    def putting(
        self, hand: Hand, thread: str, point: Point, values: Values, lease: Lease | None, extends: bool, amends: bool
    ) -> Act[Any]:
        versions = dict.fromkeys([*values, "log"], 1)
        checkpoint = {
            "v": 4, "id": point.name, "ts": "2030-01-02T03:04:05.678900+00:00", "channel_values": dict(values),
            "channel_versions": versions, "versions_seen": {}, "updated_channels": None,
        }  # fmt: skip
        counters = {_langgraph.DELTA_COUNTERS: {"log": [1, 1]}} if point.replays else {}
        meta = {"source": "loop", "step": self.count, "parents": {}, **counters}
        put = PutCheckpoint(point.ns, point.name, point.parent, checkpoint, meta, "loop", extends)
        return hand.desk.store.put_checkpoint(ONE_USER, thread, put, lease, amends=amends)

    def next_point(self, before: Values, lease: Lease | None, parent: Point | None, ns: str) -> tuple[Point, Values]:
        values = self.author.next(before)
        self.mess_up(values)
        if self.chance.random() < 0.15:
            values["log"] = _DeltaSnapshot(_inner(values.get("messages"), list)[:5])
        else:
            values.pop("log", None)
        point = Point(ns, self.name(), parent.name if parent else None, {}, run_id=lease.run_id if lease else None)
        point.replays = self.chance.random() < 0.5
        self.note(point, values)
        return point, values

    def mess_up(self, values: Values) -> None:
        """Objects that are changed in place at any depth, and copies of what they are now, which are not."""
        mess = values.get("mess", [])
        if self.ruins:
            for _ in range(self.chance.choice([0, 1, 3])):
                if values:
                    self.author.ruin(self.chance.choice([*values.values()]))
        elif self.chance.random() < 0.3:
            mess = values["mess"] = [*mess[-4:], {"mess": self.author.number(), "deep": [{"n": [1]}], "pad": "x" * 40}]
        if mess and not self.ruins and self.chance.random() < 0.7:
            self.author.ruin(self.chance.choice(mess))
        values.pop("fair", None)
        if mess and self.chance.random() < 0.5:
            values["fair"] = copy.deepcopy(mess)

    def note(self, point: Point, values: Values) -> None:
        exact = values if self.ruins else {name: value for name, value in values.items() if name != "mess"}
        point.values = {name: self.bytes_of(value) for name, value in exact.items()}
        if "mess" in values and not self.ruins:
            point.loose = [self.versions(element) for element in values["mess"]]
        point.values |= {"mess": b""} if point.loose is not None else {}

    def versions(self, element: Any) -> set[bytes]:
        """All that this object has been; more may come."""
        _, versions = self.seen.setdefault(id(element), (element, set()))
        versions.add(self.bytes_of(element))
        return versions

    def refusals(self, name: str, thread: Thread, lease: Lease | None) -> list[type[Exception]]:
        """What a writer must be told, whatever it writes."""
        claim = self.claims.get(name)
        return [ThreadBusyError] if claim and claim.alive and lease is None else []

    def put(self) -> None:
        """A checkpoint: the next of its branch, a fork, or one that comes too late."""
        name, thread = self.thread()
        hand, lease = self.writer(name)
        ns = self.chance.choice(NAMESPACES)
        parent = thread.head(ns) if self.chance.random() < 0.8 else self.point(thread)
        ns = parent.ns if parent else ns
        extends = self.chance.random() < 0.8
        point, values = self.next_point(self.state(hand, lease, name, parent), lease, parent, ns)
        act = self.putting(hand, name, point, values, lease, extends, amends=False)
        refusals = self.refusals(name, thread, lease)
        if extends and parent and (ns, parent.name) not in thread.tips:
            refusals.append(DivergentStateError)
        self.say(name, point.name, "after", point.parent, "ns", repr(ns), "lease", lease and lease.run_id, [*values])
        done, _ = self.do(hand, act, *refusals)
        assert not (done and refusals), refusals
        if done:
            self.has_put(hand, name, thread, point, values)

    def has_put(
        self, hand: Hand, name: str, thread: Thread, point: Point, values: Values, *, amends: bool = False
    ) -> None:
        self.threads.setdefault(name, thread).erased = False
        thread.add(point, amends=amends)
        hand.live[name, point.ns] = point.name, values

    def go_on(self) -> None:
        """Some steps of one process, each from what it has, or has loaded."""
        name, thread = self.thread()
        hand, lease = self.writer(name)
        if self.refusals(name, thread, lease):
            return
        for _ in range(self.chance.randrange(3, 9)):
            parent = thread.head("")
            point, values = self.next_point(self.state(hand, lease, name, parent), lease, parent, "")
            self.say(name, point.name, "after", point.parent, "lease", lease and lease.run_id, [*values])
            done, _ = self.do(hand, self.putting(hand, name, point, values, lease, parent is not None, amends=False))
            if done:
                self.has_put(hand, name, thread, point, values)
            if done and self.chance.random() < 0.5:
                found = self.read(hand, name, point, lease)
                hand.live[name, ""] = point.name, found.checkpoint["channel_values"]

    def put_several(self) -> None:
        """Checkpoints and writes handed over at once: they may share a commit, and one of them may break."""
        name, thread = self.thread()
        hand, lease = self.writer(name)
        if self.refusals(name, thread, lease) or (self.ruins and lease):
            return  # what a run puts may be drafted again when its act is done, and must not change until then
        parent, store = thread.head(""), hand.desk.store
        values = self.state(hand, lease, name, parent)
        breaks = Once("put_checkpoint", self.chance.randrange(50), BrokenError) if self.chance.random() < 0.4 else None
        gate = Gate(store, breaks)
        waiting: list[tuple[Any, Callable[[], None]]] = []
        for _ in range(self.chance.randrange(2, 5)):
            point, values = self.next_point(values, lease, parent, "")
            act = self.putting(hand, name, point, values, lease, parent is not None, amends=False)
            waiting.append((store.submit(act), self._then_has_put(hand, name, thread, point, values)))
            self.say(name, point.name, "after", point.parent, "lease", lease and lease.run_id, [*values])
            log = [point.name, *_inner(values.get("messages"), list)[-1:]]
            write = hand.desk.writing(lease, point.name, "k", ("log", log), thread_id=name)
            written = {"k": {0: ("log", self.bytes_of(log))}}
            waiting.append((store.submit(write), self._then_has_written(name, thread, point, written)))
            parent = point
        hand.live.pop((name, ""), None)
        gate.open()
        for future, then in waiting:
            failed = future.exception(20)
            assert failed is None or isinstance(failed, (BrokenError, DivergentStateError, *self.too_strict)), failed
            if failed is None:
                then()
            else:
                self.say("broke:", type(failed).__name__, failed)
        store.fault = None

    def _then_has_put(self, hand: Hand, name: str, thread: Thread, point: Point, values: Values) -> Callable[[], None]:
        return lambda: self.has_put(hand, name, thread, point, values)

    def _then_has_written(
        self, name: str, thread: Thread, point: Point, written: dict[str, dict[int, tuple[str, bytes]]]
    ) -> Callable[[], None]:
        def then() -> None:
            self.threads.setdefault(name, thread).erased = False
            if (point.ns, point.name) in thread.points:
                thread.points[point.ns, point.name].writes |= written
            else:  # its checkpoint broke
                thread.early[point.ns, point.name] = written

        return then

    def put_anew(self) -> None:
        """A checkpoint that is there already, by a saver used alone or by the run that made it."""
        name, thread = self.thread()
        hand, lease = self.writer(name)
        point = thread.head("") if lease else self.point(thread)
        if point is None:
            return
        values = self.author.next(self.state(hand, lease, name, point))
        self.mess_up(values)
        anew = Point(point.ns, point.name, point.parent, {}, run_id=point.run_id, replays=point.replays)
        if "log" in point.values:
            values["log"] = _DeltaSnapshot([self.author.number()])
        else:
            values.pop("log", None)
        self.note(anew, values)
        act = self.putting(hand, name, anew, values, lease, extends=False, amends=True)
        self.say(name, "again", point.name, "lease", lease and lease.run_id, [*values])
        refusals = self.refusals(name, thread, lease)
        done, _ = self.do(hand, act, *refusals)
        assert not (done and refusals)
        if done:
            self.has_put(hand, name, thread, anew, values, amends=True)

    def task_writes(self, hand: Hand, name: str) -> list[tuple[int, str, Any]]:
        """New content, and content that is in the state already, as the same object or an equal one."""
        _, values = hand.live.get((name, ""), ("", {}))
        messages, files = _inner(values.get("messages"), list), _inner(values.get("files"), dict)
        chance, writes = self.chance, list[tuple[int, str, Any]]()
        for idx in range(chance.randrange(1, 4)):
            kinds: list[Any] = [
                [self.author.element()], [*messages[:2], self.author.element()],
                [self.author.element(), *messages[-2:]],
                self.author.named(files), copy.deepcopy(messages), self.author.odd(), Overwrite([*messages]),
                self.author.file(values.get("text")), [],
            ]  # fmt: skip
            channel = chance.choice(["messages", "files", "text", "log", "log"])
            writes.append((idx, channel, chance.choice(kinds)))
        if chance.random() < 0.2:
            writes.append((-1, "__error__", self.author.words(100)))
        return writes

    def write(self) -> None:
        """A task's results: new, the same again, or others than are recorded."""
        name, thread = self.thread()
        hand, lease = self.writer(name)
        point = self.point(thread)
        if point is None:
            return
        task = self.chance.choice(["k1", "k2", "00000000-0000-0000-0000-00000000000a", f"k{self.author.number()}"])
        writes, known = self.task_writes(hand, name), point.writes.get(task, {})
        if known and self.chance.random() < 0.5:
            found = self.read(hand, name, point, None)
            again = [value for found_task, _, value in found.writes if found_task == task]
            writes = [(idx, known[idx][0], value) for idx, value in zip(sorted(known), again, strict=True)]
        new = {idx: (channel, self.bytes_of(value)) for idx, channel, value in writes}
        refusals = self.refusals(name, thread, lease)
        recorded = {idx: write for idx, write in known.items() if idx >= 0}
        regular = {idx: write for idx, write in new.items() if idx >= 0}
        if recorded and regular and recorded != regular:
            refusals.append(DivergentStateError)
        self.say(name, "task", task, "at", point.name, "lease", lease and lease.run_id, [w[:2] for w in writes])
        put = PutWrites(point.ns, point.name, task, "", writes)
        done, _ = self.do(hand, hand.desk.store.put_writes(ONE_USER, name, put, lease), *refusals)
        assert not (done and refusals), refusals
        if done:
            point.writes[task] = known | new

    def write_early(self) -> None:
        """What a task writes may land before its checkpoint does."""
        name, thread = self.thread()
        hand, lease = self.writer(name)
        refusals = self.refusals(name, thread, lease)
        if refusals or thread.erased or name not in self.threads:
            return
        head = thread.head("")
        before, place = self.state(hand, lease, name, head), ("", f"c{self.count + 1}")
        writes = self.task_writes(hand, name)
        put = PutWrites("", place[1], "early", "", writes)
        new = {idx: (channel, self.bytes_of(value)) for idx, channel, value in writes}
        done, _ = self.do(hand, hand.desk.store.put_writes(ONE_USER, name, put, lease))
        self.say(name, "early at", place[1], "done" if done else "not done")
        if done:
            thread.early[place] = {"early": new}
        point, values = self.next_point(before, lease, head, "")
        act = self.putting(hand, name, point, values, lease, head is not None, amends=False)
        self.say(name, point.name, "after", point.parent, [*values])
        done, _ = self.do(hand, act)
        if done:
            self.has_put(hand, name, thread, point, values)

    # -- acts that read ------------------------------------------------------------------------------------------------

    def read(self, hand: Hand, name: str, point: Point, lease: Lease | None) -> StoredCheckpoint:
        """By id, or as the newest of its namespace where it is that. It must be what was stored."""
        head = self.threads[name].head(point.ns) is point
        which = None if head and self.chance.random() < 0.5 else point.name
        claim = lease if lease and lease.thread_id == name else None
        found = hand.desk.do(hand.desk.store.get_checkpoint(ONE_USER, name, point.ns, which, claim))
        assert found is not None
        self.must_be(found, point, shared=claim is not None)
        for element, versions in zip(
            found.checkpoint["channel_values"].get("mess", []), point.loose or [], strict=False
        ):
            self.versions(element).update(versions)
        return found

    def load(self) -> None:
        name, thread = self.thread()
        hand, lease = self.writer(name)
        if (point := self.point(thread)) is not None:
            self.say(name, point.name, "lease", lease and lease.run_id)
            found = self.read(hand, name, point, lease)
            hand.live[name, point.ns] = point.name, found.checkpoint["channel_values"]

    def scribble(self) -> None:
        """Whoever has loaded a state changes it for itself, and loads it again."""
        name, thread = self.thread()
        hand, lease = self.writer(name)
        point = self.point(thread)
        if point is None:
            return
        self.say(name, point.name, "lease", lease and lease.run_id)
        within = self.chance.random() < 0.7
        if within:  # an object that the program has put may be a part of another one, and a change of that too deep
            assert isinstance(hand.desk.store, SqliteStore)
            hand.desk.store.memories.drop(("", name))
        for _ in range(2):
            values = self.read(hand, name, point, lease).checkpoint["channel_values"]
            for channel, value in values.items():
                inner = getattr(value, "value", value)
                if channel not in ("mess", "fair") and isinstance(inner, list | dict) and inner:
                    self.scribble_on(inner, within)
        for each in self.hands:
            each.live.clear()
        self.read(hand, name, point, lease)

    def scribble_on(self, value: list[Any] | dict[Any, Any], within: bool) -> None:
        """On a field or member of what is in it, where that is stored by itself, and on the value itself."""
        members = [*value.values()] if isinstance(value, dict) else value
        parts = _is_long(members) if isinstance(value, list) else len(self.bytes_of(value)) > 600
        for member in members if within and parts else []:
            if isinstance(member, HumanMessage | AIMessage):
                member.content = "scribbled"
            elif isinstance(member, dict) and member:
                member[next(iter(member))] = self.chance.choice([1, True, "scribbled"])
            elif isinstance(member, list):
                member.append("scribbled")
        if not within or self.chance.random() < 0.3:
            value.clear()

    def replay(self) -> None:
        """What a DeltaChannel is rebuilt from."""
        name, thread = self.thread()
        hand, lease = self.writer(name)
        point = self.point(thread)
        if point is None:
            return
        expected = thread.history(point)
        self.say(name, point.name, "lease", lease and lease.run_id)
        act = hand.desk.store.delta_history(ONE_USER, name, point.ns, point.name, ["log"], lease)
        try:
            writes, seed = hand.desk.do(act)["log"]
        except LackOfSnapshotFrequency:
            assert expected is None
            return
        assert expected is not None
        assert ([self.bytes_of(value) for _, _, value in writes], [*map(self.bytes_of, seed)]) == expected

    # -- runs --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        name, thread = self.thread()
        if name in self.claims or thread.erased:
            return
        hand, number = self.hand(), self.author.number()
        worker, head = hand.desk.worker(f"w{number}"), thread.head("")
        new = hand.desk.new(f"r{number}", name)
        done, admission = self.do(hand, hand.desk.store.start_run(ONE_USER, new, worker))
        if done and admission is None:  # the answer was lost: it dies with its worker
            self.lose()
            admission = hand.desk.do(hand.desk.store.take_over(ONE_USER, f"r{number}", hand.desk.worker(f"v{number}")))
        if done:
            self.threads.setdefault(name, thread).runs.add(f"r{number}")
            self.claims[name] = Claim(hand, admission.lease, (head.ns, head.name) if head else None)
            self.say(name, "run", f"r{number}", "hand", self.hands.index(hand))

    def finish(self) -> None:
        for name, claim in [*self.claims.items()]:
            if claim.alive and self.chance.random() < 0.7:
                claim.hand.desk.finish(claim.lease)
                self.late.append((claim.hand, claim.lease))
                del self.claims[name]
                self.say(name, "run", claim.lease.run_id)

    def lose(self) -> None:
        """Every worker is silent for too long."""
        self.clock.advance(7)
        for claim in self.claims.values():
            claim.alive = False

    def take_over(self) -> None:
        for name, claim in self.claims.items():
            if claim.alive:
                continue
            hand, number, run_id = self.hand(), self.author.number(), claim.lease.run_id
            act = hand.desk.store.take_over(ONE_USER, run_id, hand.desk.worker(f"w{number}"))
            done, admission = self.do(hand, act)
            if done and admission is None:
                self.lose()
                admission = hand.desk.do(hand.desk.store.take_over(ONE_USER, run_id, hand.desk.worker(f"v{number}")))
            if done:
                self.late.append((claim.hand, claim.lease))
                claim.hand, claim.lease, claim.alive = hand, admission.lease, True
                self.say(name, "run", run_id, "hand", self.hands.index(hand))

    def come_late(self) -> None:
        """Whoever has lost its claim writes nothing, whatever it remembers."""
        if not self.late:
            return
        hand, lease = self.chance.choice(self.late)
        thread = self.threads.get(lease.thread_id, Thread())
        parent = thread.head("")
        if parent is None:
            return
        point, values = self.next_point(self.state(hand, None, lease.thread_id, parent), None, parent, "")
        act = self.putting(hand, lease.thread_id, point, values, lease, True, amends=False)
        done, _ = self.do(hand, act, LeaseLostError)
        assert not done

    # -- keeping house -----------------------------------------------------------------------------------------------

    def prune(self) -> None:
        name, thread = self.thread()
        if not thread.points:
            return
        hand, claim = self.hand(), self.claims.get(name)
        refusals = [ThreadBusyError] if claim and claim.alive else []
        done, result = self.do(hand, hand.desk.store.prune_thread(ONE_USER, name), *refusals)
        assert not (done and refusals)
        if done:
            kept = {point.ns: place for place, point in thread.points.items()}
            bases = {claim.base} & thread.points.keys() if claim and claim.base else set()
            gone = thread.keep({*kept.values(), *bases})
            self.say(name, gone, "went")
            assert result in (None, gone)

    def forget_runs(self) -> None:
        """What a run made goes, but for what others rest on."""
        _, thread = self.thread()
        if not thread.runs:
            return
        run = self.chance.choice(sorted(thread.runs))
        of_run = {n: t for n, t in self.threads.items() if self._knows(t, run)}
        claims = {n: self.claims[n] for n in of_run if n in self.claims}
        refusals = [ThreadBusyError] if any(claim.alive for claim in claims.values()) else []
        done, _ = self.do(self.hand(), self.hands[0].desk.store.delete_for_runs(ONE_USER, [run]), *refusals)
        assert not (done and refusals)
        if done:
            for n, each in of_run.items():
                base = claims[n].base if n in claims else None
                kept = {place for place, point in each.points.items() if point.run_id != run or place == base}
                self.say(n, run, each.keep(kept), "went")

    def _knows(self, thread: Thread, run: str) -> bool:
        return run in thread.runs or any(point.run_id == run for point in thread.points.values())

    def copy(self) -> None:
        (name, source), (target, other) = self.thread(), self.thread()
        if name not in self.threads or source.erased or target == name or other.early:
            return
        claim = self.claims.get(target)
        refusals: list[type[Exception]] = [ThreadBusyError] if claim and claim.alive else []
        refusals += [DivergentStateError] if other.points else []
        hand = self.hand()
        done, _ = self.do(hand, hand.desk.store.copy_thread(ONE_USER, name, target), *refusals)
        assert not (done and refusals)
        if done:
            copied = copy.copy(source)
            copied.points = {place: copy.copy(point) for place, point in source.points.items()}
            for point in copied.points.values():
                point.writes = {task: {**writes} for task, writes in point.writes.items()}
            copied.tips, copied.early = {*source.tips}, other.early | source.early
            copied.runs, copied.erased = other.runs, False
            self.threads[target] = copied
            self.say(name, "to", target)

    def delete(self) -> None:
        name, _ = self.thread()
        if name not in self.threads:
            return
        hand, claim = self.hand(), self.claims.get(name)
        refusals = [ThreadBusyError] if claim and claim.alive else []
        done, _ = self.do(hand, hand.desk.store.delete_thread(ONE_USER, name), *refusals)
        assert not (done and refusals)
        if done:
            self.threads[name] = Thread(erased=True)
            if claim:
                self.late.append((claim.hand, claim.lease))
                del self.claims[name]
            self.say(name)

    def reopen(self) -> None:
        """A process ends without a word, and another one takes its place."""
        hand = self.hand()
        if hand.desk.store.in_memory or any(claim.hand is hand for claim in self.claims.values()):
            return
        url = hand.desk.store.url
        hand.desk.store.close()
        hand.desk, hand.live = Desk(_opened(url, self.clock, trusting=not self.ruins), self.clock, sync=True), {}
        self.say("hand", self.hands.index(hand))

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every checkpoint of every thread reads as it was stored, by each of the processes."""
        for hand in self.hands:
            for name, thread in self.threads.items():
                found = hand.desk.do(hand.desk.store.list_checkpoints(ONE_USER, thread_id=name, ns=None, limit=1000))
                points = [*reversed(thread.points.values())]
                assert [(f.ns, f.checkpoint_id) for f in found] == [(p.ns, p.name) for p in points], name
                for each, point in zip(found, points, strict=True):
                    self.must_be(each, point, shared=False)

    def must_be(self, found: StoredCheckpoint, point: Point, *, shared: bool) -> None:
        """
        Args:
            shared: its objects may be ones that were given out before. What was changed in one of those too deep to be
                noticed, an equal one may have as well.
        """
        values, where = found.checkpoint["channel_values"], f"{found.thread_id} {point.ns!r} {point.name}"
        assert values.keys() == point.values.keys(), where
        assert (found.parent_id, found.run_id) == (point.parent, point.run_id), where
        for name, due in point.values.items():
            if name == "mess" and point.loose is not None:
                assert len(values[name]) == len(point.loose), where
                for element, versions in zip(values[name], point.loose, strict=True):
                    assert shared or self.bytes_of(element) in versions, f"{where}: {element}"
            elif not (shared and name == "fair"):
                assert self.bytes_of(values[name]) == due, f"{where} {name} is {str(values[name])[:500]}"
        writes = [(task, channel, self.bytes_of(value)) for task, channel, value in found.writes]
        assert writes == point.in_order(), f"{where}: writes are {str(found.writes)[:500]}"

    def check_packs(self) -> None:
        """Numbers of items are given once, packs do not overlap, and pruning has left nothing that is not used."""
        store = self.hands[0].desk.store
        assert isinstance(store, SqliteStore)
        if store.in_memory:
            return
        with store._db.reader() as conn:
            assert [row["integrity_check"] for row in conn.execute("pragma integrity_check")] == ["ok"]
            rows = conn.execute("select pack_no >> 32 as t, pack_no & 0xffffffff as n, items, bytes, frame from pack")
            ends: dict[int, int] = {}
            for row in sorted(rows.fetchall(), key=lambda row: (row["t"], row["n"])):
                assert row["n"] >= ends.get(row["t"], 1)
                ends[row["t"]] = row["n"] + row["items"]
                entries = read_pack(row["frame"], row["items"], store.frames)
                assert sum(len(entry.data) for entry in entries if entry) == row["bytes"]
            for row in conn.execute("select thread_no, item_next from thread").fetchall():
                assert ends.get(row["thread_no"], 0) <= row["item_next"]


class Once(Breaker):
    """Of several acts it breaks one."""

    def __call__(self, act: str, statement: str, where: str) -> None:
        if self.left >= 0:
            super().__call__(act, statement, where)


class LostError(Exception):
    """The act is in the store, and its caller is not told so."""


def _lost_answer(act: str, statement: str, where: str) -> None:
    if (statement, where) == ("commit", "after"):
        raise LostError(act)


def _opened(url: str, clock: HandClock, *, trusting: bool) -> SqliteStore:
    store = open_store(url, clock=clock, **({} if url == "memory://" else {"synchronous": "NORMAL"}))
    assert isinstance(store, SqliteStore)
    store.trusting = trusting
    return store


@contextmanager
def told(play: Play, seed: int) -> Iterator[None]:
    """What is needed to bring a failure back, and what was played."""
    try:
        yield
    except BaseException:
        print(f"\nNINELIVES_PLAY_SEED={seed} NINELIVES_PLAY_ROUNDS=1 NINELIVES_PLAY_STEPS={STEPS}")
        print("\n".join(play.log[-60:]))
        raise
    finally:
        play.close()


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
@pytest.mark.parametrize("how", ["two processes", "in memory", "encrypted", "trusting nothing"])
def test_every_checkpoint_reads_as_it_was_stored(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch, seed: int, how: str
) -> None:
    """Whoever writes, forks, prunes, copies, deletes, breaks or comes late in between, and whoever reads it."""
    if how == "encrypted":
        monkeypatch.setenv(KEYS_VARIABLE, f"k1:{b64encode(bytes(32)).decode()}")
    url = "memory://" if how == "in memory" else f"sqlite:///{tmp_path}/s.db"
    play = Play(seed, [url] if how == "in memory" else [url, url], clock, ruins=how == "trusting nothing")
    with told(play, seed):
        play.play(STEPS)
        play.check_packs()
