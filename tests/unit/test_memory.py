"""What a process remembers of a thread saves work and bytes, and is never mistaken for what is stored."""

from __future__ import annotations

import copy
import random
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite

from clocks import HandClock
from contract.desk import Desk
from contract.faults import Breaker, BrokenError, PulledError
from ninelives.errors import DivergentStateError, FidelityError, UnknownTypeError
from ninelives.model import ONE_USER, Lease, RunSpec
from ninelives.stores import open_store
from ninelives.stores.codec import encode
from ninelives.stores.codec.packs import CHAIN_MAX
from ninelives.stores.sqlite import SqliteStore

Values = dict[str, Any]
History = Callable[[], Iterator[Values]]
"""The values of one checkpoint after the other, each as it is when it is stored."""


@dataclass(slots=True)
class Slotted:
    rows: Any


@dataclass
class Box:
    rows: Any


class Note(pydantic.BaseModel):
    rows: Any


class Tags(list[Any]):
    """A subclass of a builtin."""


class Name(str):
    """Equal to a plain text, but another type."""

    __slots__ = ()


OWN = (Slotted, Box, Note, Tags, Name)


class Bench:
    """
    A store that is written to, and what must be in it: seen by a process that knows nothing of it.

    Attributes:
        due: the values of each checkpoint, as their bytes: equal bytes are equal in type and value, all the way down.
    """

    def __init__(self, url: str, clock: HandClock, stack: ExitStack) -> None:
        self.url, self.clock, self._stack = url, clock, stack
        self.due: dict[str, bytes] = {}
        self._reader: Desk | None = None
        self.desk = self.another()
        self.store = self.desk.store

    def another(self) -> Desk:
        """A store object that knows nothing; of a database in memory there is only one."""
        if self.url == "memory://" and self.due:
            return self.desk
        settings = {} if self.url == "memory://" else {"synchronous": "NORMAL"}
        store = open_store(self.url, clock=self.clock, **settings)
        self._stack.callback(store.close)
        store.allow_types(*OWN)
        return Desk(store, self.clock, sync=True)

    def start(self, desk: Desk | None = None) -> Lease:
        """A run of its own worker, which is let go at once if it ends."""
        desk = desk or self.desk
        number = len(desk.do(desk.store.list_workers())) + 1
        return desk.start(desk.worker(f"w{number}"), f"r{number}", closes=f"r{number - 1}" if number > 1 else None)

    def put(self, values: Values, lease: Lease | None = None, desk: Desk | None = None) -> list[str]:
        """The next checkpoint. Returns the paths that were found changed in place."""
        desk = desk or self.desk
        name, parent = f"c{len(self.due)}", f"c{len(self.due) - 1}" if self.due else None
        due = self.bytes_of(values)
        found: Any = desk.do(desk.putting(lease, name, parent, values=values))
        self.due[name] = due
        return [*found]

    def bytes_of(self, values: Any) -> bytes:
        assert isinstance(self.store, SqliteStore)
        return encode(values, self.store.types)

    def check(self, newest: int = 1000) -> None:
        """Every checkpoint is what was stored, or the newest are. (Listing leaves nothing in memory.)"""
        self._reader = self._reader or self.another()
        desk = self._reader if newest < 1000 else self.another()
        listed = desk.do(desk.store.list_checkpoints(ONE_USER, thread_id="t", ns="", limit=newest))
        found = {each.checkpoint_id: each.checkpoint["channel_values"] for each in listed}
        if desk not in (self.desk, self._reader):
            desk.store.close()
        assert found.keys() == {*[*self.due][-newest:]}
        for name, values in found.items():
            assert self.bytes_of(values) == self.due[name], f"{name} is {str(values)[:2000]}"

    def read(self, lease: Lease | None, name: str | None = None, desk: Desk | None = None) -> Values:
        desk = desk or self.desk
        found = desk.do(desk.store.get_checkpoint(ONE_USER, "t", "", name, lease))
        assert found is not None
        values: Values = found.checkpoint["channel_values"]
        return values

    def must_read(self, lease: Lease | None, name: str | None = None, desk: Desk | None = None) -> Values:
        """What is read is what was stored."""
        values = self.read(lease, name, desk)
        assert self.bytes_of(values) == self.due[name or [*self.due][-1]], str(values)[:2000]
        return values

    @property
    def stored(self) -> int:
        """Bytes of content of all threads."""
        return sum(thread.bytes or 0 for thread in self.desk.do(self.store.list_threads(ONE_USER)))


@pytest.fixture(params=["sqlite", "memory"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else "memory://", clock, stack)


@pytest.fixture
def file(tmp_path: Path, clock: HandClock) -> Iterator[Bench]:
    """Of a file, which several store objects may open."""
    with ExitStack() as stack:
        yield Bench(f"sqlite:///{tmp_path}/s.db", clock, stack)


def note(n: Any, size: int = 50) -> dict[str, Any]:
    return {"note": n, "text": f"{n} " * size}


def say(n: int) -> AnyMessage:
    if n % 3 == 0:
        return HumanMessage(f"question {n}", id=f"m{n}")
    if n % 3 == 1:
        calls = [{"name": "search", "args": {"terms": [f"term {n}"], "n": n}, "id": f"call-{n}", "type": "tool_call"}]
        return AIMessage(f"answer {n}", id=f"m{n}", tool_calls=calls)
    return ToolMessage(f"found {n}", tool_call_id=f"call-{n - 1}", id=f"m{n}")


def text(size: int, seed: int = 1) -> str:
    """Lines of words, of about so many characters."""
    chance = random.Random(seed)
    words = ["the", "agent", "reads", "a", "file", "and", "writes", "what", "it", "found"]
    return "\n".join(" ".join(chance.choices(words, k=9)) + f" {n}" for n in range(size // 45 + 1))[:size]


# -- new objects for what is new -------------------------------------------------------------------------------------


def grows() -> Iterator[Values]:
    messages: list[Any] = []
    for n in range(25):
        messages = [*messages, *map(say, range(3 * n, 3 * n + 1 + n % 3))]
        yield {"messages": messages, "n": n}


def shrinks() -> Iterator[Values]:
    messages = [*map(say, range(12))]
    for length in (12, 11, 7, 7, 1, 0, 1, 12):
        yield {"messages": messages[:length]}


def is_reordered() -> Iterator[Values]:
    notes = [*map(note, range(20))]
    yield {"notes": notes}
    for seed in range(5):
        yield {"notes": random.Random(seed).sample(notes, 20)}
    yield {"notes": notes[::-1]}
    yield {"notes": notes}


def is_replaced_in_the_middle() -> Iterator[Values]:
    notes = [*map(note, range(20))]
    yield {"notes": notes}
    for place in (10, 0, 19, 11, 10):
        notes = [*notes[:place], note(f"new {place}"), *notes[place + 1 :]]
        yield {"notes": notes}


def has_some_removed() -> Iterator[Values]:
    messages = [*map(say, range(30))]
    yield {"messages": messages}
    for place in (29, 0, 14, 14, 3):
        messages = [message for i, message in enumerate(messages) if i != place]
        yield {"messages": messages}
        yield {"messages": [*messages, say(100 + place)]}


def goes_in_and_out_of_order() -> Iterator[Values]:
    """So that its node is long, short, and long again."""
    notes = [*map(note, range(600))]
    for n in (100, 600):
        mixed = random.Random(n).sample(notes, n)
        yield {"notes": mixed}
        yield {"notes": [*mixed, note("one more")]}
        yield {"notes": [*mixed, note("one more"), note("and another")]}
        yield {"notes": mixed[:3]}
        yield {"notes": Overwrite(mixed)}
        yield {"notes": _DeltaSnapshot([*mixed, note("the last")])}


def has_an_object_twice() -> Iterator[Values]:
    one, other = note(1), note(2)
    yield {"notes": [one, one]}
    yield {"notes": [one, other, one, one]}
    yield {"notes": [one, other, one], "more": [one], "alone": one, "by name": {"a": one, "b": one, "c": other}}
    yield {"notes": [other, one], "more": [one, one, other], "alone": other, "by name": {"a": other, "b": one}}


def has_equal_ones() -> Iterator[Values]:
    yield {"notes": [note(1), note(1)]}
    yield {"notes": [note(1), note(1), note(1)], "more": [note(1)], "alone": note(1)}
    kept = note(1)
    yield {"notes": [kept, note(1)]}
    yield {"notes": [note(1), kept, note(2)]}


def has_keys_that_come_and_go() -> Iterator[Values]:
    files: dict[str, Any] = {}
    for n in range(12):
        files = {**files, f"{n}.txt": text(300, n)}
        yield {"files": files}
    for name in ("3.txt", "0.txt", "11.txt"):
        files = {key: value for key, value in files.items() if key != name}
        yield {"files": files}
    yield {"files": dict(reversed(files.items()))}
    yield {"files": dict(sorted(files.items()))}
    yield {"files": {f"new/{key}": value for key, value in files.items()}}
    yield {"files": dict(zip(files, reversed(files.values()), strict=True))}
    yield {"files": {}}
    yield {"files": files}


def has_hundreds_of_keys() -> Iterator[Values]:
    """Their node is too long for the checkpoint."""
    files = {f"{n}.txt": note(n) for n in random.Random(1).sample(range(500), 500)}
    yield {"files": files}
    for n in (3, 250, 499):
        files = {**files, f"{n}.txt": note("changed"), f"{n}.md": note("added")}
        yield {"files": files}
    yield {"files": {key: value for key, value in files.items() if key.endswith("3.txt")}}
    yield {"files": _DeltaSnapshot(files)}


def is_wrapped_and_bare() -> Iterator[Values]:
    notes, files = [*map(note, range(10))], {f"{n}": note(n) for n in range(10)}
    for value in (notes, [], ["short"], files, {}, {"a": 1}, (1, 2), None, "text " * 20):
        yield {"n": value}
        yield {"n": Overwrite(value)}
        yield {"n": _DeltaSnapshot(value)}
        yield {"n": value, "m": _DeltaSnapshot(Overwrite(value))}


def is_something_else_each_time() -> Iterator[Values]:
    long = [note(1), note(2)]
    kinds: list[Any] = [
        long,
        {"a": note(1), "b": text(600)},
        "text " * 50,
        b"bytes" * 50,
        None,
        [],
        {},
        "",
        b"",
        (),
        set(),
        0,
    ]
    for value in [*kinds, *reversed(kinds)]:
        yield {"n": value}
    for value in kinds:
        yield {"n": [value, *kinds]}
        yield {"n": dict(zip("abcdefghijkl", [value, *kinds[1:]], strict=True)) | {"more": text(600)}}


def is_equal_but_of_another_type() -> Iterator[Values]:
    pad = "x" * 100
    for one in (1, True, 1.0, 1 + 0j, 0, False, 0.0, -0.0, "a", Name("a"), "a", float("nan"), float("nan")):
        yield {
            "n": one,
            "list": [one, note(1)],
            "entry": {"a": one, "pad": pad * 9},
            "deep": [{"a": [one], "pad": pad}],
        }
        yield {"n": [one], "set": {one}, "keys": {one: pad}, "tuple": (one, pad), "in list": [(one, pad), {"k": one}]}
    for many in ([pad, note(1)], Tags([pad, note(1)]), (pad, note(1)), {"a": pad * 9}, OrderedDict(a=pad * 9)):
        yield {"n": many}


def is_all_sorts_of_values() -> Iterator[Values]:
    ints = [*range(20_000), 2**63, -(2**200)]
    short = [f"word {n}" for n in range(500)]
    pairs = [(n, [f"pair {n}", {"n": (n,)}]) for n in range(50)]
    for n in range(3):
        ints, short, pairs = [*ints, n], [*short, f"new {n}"], [*pairs, (n, [])]
        counted = {"set": {*short}, "frozen": frozenset(short), "count": Counter("hello" * 9), "n": n}
        yield {"ints": ints, "short": short, "pairs": pairs, "mixed": [1, note(n), 2], **counted}
        yield {"boxes": [Slotted([n]), Box([n]), Note(rows=[n]), Tags([n, short])], "nans": [float("nan"), note(n)]}


HISTORIES: dict[str, History] = {
    history.__name__: history
    for history in (
        grows, shrinks, is_reordered, is_replaced_in_the_middle, has_some_removed, goes_in_and_out_of_order,
        has_an_object_twice, has_equal_ones, has_keys_that_come_and_go, has_hundreds_of_keys, is_wrapped_and_bare,
        is_something_else_each_time, is_equal_but_of_another_type, is_all_sorts_of_values,
    )
}  # fmt: skip


@pytest.mark.parametrize("by", ["itself", "a run", "a run that loads"])
@pytest.mark.parametrize("name", HISTORIES)
def test_a_value_that_changes_comes_back_as_it_was(bench: Bench, name: str, by: str) -> None:
    """Whatever becomes of it: each checkpoint holds what it was given, and nothing is said to be changed in place."""
    lease = bench.start() if by != "itself" else None
    for values in HISTORIES[name]():
        assert bench.put(values, lease) == []
        bench.check(newest=2)
        if by == "a run that loads":
            bench.must_read(lease)
    bench.check()


@pytest.mark.parametrize("name", HISTORIES)
def test_whoever_stores_the_next_value_knows_what_is_there(file: Bench, name: str) -> None:
    """Each checkpoint by another of three processes: what one remembers is not true any more, and it notices."""
    desks = [file.desk, file.another(), file.another()]
    for n, values in enumerate(HISTORIES[name]()):
        assert file.put(values, desk=desks[n % 3]) == []
        file.check(newest=2)
    file.check()


@pytest.mark.parametrize("name", HISTORIES)
def test_a_run_that_was_loaded_goes_on(file: Bench, name: str) -> None:
    """Each checkpoint by a process that has just begun, and has read the one before for its run."""
    for values in HISTORIES[name]():
        desk = file.another()
        lease = file.start(desk)
        if file.due:
            file.must_read(lease, desk=desk)
        assert file.put(values, lease, desk) == []
        desk.finish(lease)
        desk.store.close()
    file.check()


@pytest.mark.parametrize("name", HISTORIES)
def test_loaded_values_stored_again_are_the_same(file: Bench, name: str) -> None:
    """What a run loads and hands back unchanged costs nothing, and is not reported as changed in place."""
    for n, values in enumerate(HISTORIES[name]()):
        if n % 3:
            continue
        file.put(values)
        desk = file.another()
        lease = file.start(desk)
        loaded = file.must_read(lease, desk=desk)
        packs = _packs(file)

        assert file.put(loaded, lease, desk) == []

        assert _packs(file) == packs
        desk.finish(lease)
        file.check()


def _packs(bench: Bench) -> int:
    """Plain bytes of all items. Asked of the writer, so that nothing is remembered of the question."""
    assert isinstance(bench.store, SqliteStore)
    with bench.store._db.reader() as conn:
        row = conn.execute("select coalesce(sum(bytes), 0) as bytes from pack").fetchone()
    found: int = row["bytes"]
    return found


# -- the same objects, changed in place --------------------------------------------------------------------------------


def the_list_itself() -> Iterator[Values]:
    notes = [*map(note, range(12))]
    yield {"notes": notes}
    for change in (
        lambda: notes.append(note("new")),
        lambda: notes.pop(),
        lambda: notes.pop(0),
        lambda: notes.__setitem__(3, note("another")),
        lambda: notes.insert(5, notes[5]),
        lambda: notes.reverse(),
        lambda: notes.extend([note(1), note(1)]),
        lambda: notes.__setitem__(slice(2, 9), []),
        lambda: notes.clear(),
        lambda: notes.append(note("last")),
    ):
        change()
        yield {"notes": notes}


def the_dict_itself() -> Iterator[Values]:
    files: dict[str, Any] = {f"{n}.txt": text(300, n) for n in range(5)}
    yield {"files": files}
    for change in (
        lambda: files.update({"new.txt": text(100)}),
        lambda: files.pop("0.txt"),
        lambda: files.update({"1.txt": text(300, 99)}),
        lambda: files.update({"2.txt": files.pop("2.txt")}),
        lambda: files.update({"1.txt": files["2.txt"], "2.txt": files["1.txt"]}),
        lambda: files.update({"3.txt": {"content": ["x"], "n": 1}}),
        lambda: files["3.txt"]["content"].append("y"),
        lambda: files["3.txt"].update(n=True),
        lambda: files.clear(),
    ):
        change()
        yield {"files": files}


def the_newest_message() -> Iterator[Values]:
    messages: list[Any] = [*map(say, range(20)), say(1), say(4)]
    yield {"messages": messages}
    newest: Any = messages[-1]
    for change in (
        lambda: setattr(newest, "content", "another answer"),
        lambda: newest.tool_calls[0]["args"]["terms"].append("deep inside"),
        lambda: newest.tool_calls[0]["args"].update(n=True),
        lambda: newest.additional_kwargs.update(reason={"a": [1]}),
        lambda: newest.additional_kwargs["reason"]["a"].append(2),
        lambda: newest.response_metadata.update(model="m"),
        lambda: setattr(newest, "content", [{"type": "text", "text": "a block"}]),
        lambda: newest.content[0].update(text="another block"),
        lambda: setattr(newest, "mood", "said by nobody"),
    ):
        change()
        yield {"messages": messages}


def an_old_message() -> Iterator[Values]:
    messages: list[Any] = [*map(say, range(30))]
    yield {"messages": messages}
    messages[4].content = "another answer"
    yield {"messages": messages}
    messages[0].name = "ann"
    yield {"messages": [*messages, say(30)]}
    messages[1].tool_calls = []
    yield {"messages": messages[1:]}


def an_old_dict() -> Iterator[Values]:
    notes = [note(n) for n in range(30)]
    yield {"notes": notes}
    for value in (1.0, True, 1, [1], (1,)):
        notes[3]["note"] = value
        yield {"notes": notes}
        yield {"notes": [*notes, note("more")]}
    notes[4]["note"] = notes[4].pop("note")
    yield {"notes": notes}
    yield {"notes": notes[:-1]}


def a_small_value() -> Iterator[Values]:
    plan: dict[str, Any] = {"steps": ["one", "two"], "done": {"n": 0}}
    words, odd = [f"word {n}" for n in range(20)], {1: ["a" * 50]}
    yield {"plan": plan, "words": words, "odd": odd}
    plan["done"]["n"] = 1
    words[3] = "another"
    yield {"plan": plan, "words": words, "odd": odd}
    plan["steps"].append("three")
    words.append("more")
    odd[1].append("b")
    yield {"plan": plan, "words": words, "odd": odd}


def members_of_all_kinds() -> Iterator[Values]:
    rows: list[Any] = ["x" * 30]
    kinds: list[Any] = [
        (rows,), defaultdict(list, a=rows), Slotted(rows), Box(rows), Note(rows=rows), Tags([rows]), {"a": rows},
    ]  # fmt: skip
    others: list[Any] = [deque("ab" * 20), bytearray(50), {*"ab"}, Counter("ab" * 9), OrderedDict(a="b" * 30)]
    for n in range(3):
        rows.append(n)
        others[0].append(n)
        others[1].extend(b"x")
        others[2].add(n)
        others[3][n] += 1
        others[4][str(n)] = n
        yield {f"list {i}": [each] for i, each in enumerate([*kinds, *others])}
    for n in range(3):
        kinds[1][f"new {n}"] = [n]
        kinds[2].rows = [f"new {n}"]
        kinds[3].rows = [f"new {n}"]
        kinds[4].rows = [f"new {n}"]
        kinds[5].append(n)
        yield {f"list {i}": [note(1), each] for i, each in enumerate(kinds)}
        yield {"by name": {f"{i}": each for i, each in enumerate([*kinds, *others])} | {"pad": "x" * 600}}
        yield {"alone": tuple(kinds)}


def a_large_entry() -> Iterator[Values]:
    files: dict[str, Any] = {f"{n}.txt": {"content": text(3000, n), "n": 0} for n in range(4)}
    yield {"files": files}
    files["1.txt"]["content"] = text(3000, 77)
    yield {"files": files}
    files["1.txt"]["n"] = False
    yield {"files": files}
    files["2.txt"]["n"] = files["2.txt"].pop("n")
    files["2.txt"]["content"] = files["2.txt"].pop("content")
    yield {"files": files}


CHANGES: dict[str, History] = {
    history.__name__: history
    for history in (
        the_list_itself, the_dict_itself, the_newest_message, an_old_message, an_old_dict, a_small_value,
        members_of_all_kinds, a_large_entry,
    )
}  # fmt: skip


@pytest.mark.parametrize("by", ["itself", "a run"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_changed_in_place_is_seen(bench: Bench, name: str, by: str) -> None:
    """In the newest elements at any depth, elsewhere one level deep: what is stored is what it was at that moment."""
    lease = bench.start() if by == "a run" else None
    for values in CHANGES[name]():
        bench.put(values, lease)
        bench.check()


def deep_in_an_old_message() -> Iterator[Values]:
    messages: list[Any] = [*map(say, range(30))]
    yield {"messages": messages}
    messages[1].tool_calls[0]["args"]["terms"].append("deep inside")
    yield {"messages": messages}
    messages[4].additional_kwargs["reason"] = {"a": [1]}
    yield {"messages": messages[1:]}
    messages[4].additional_kwargs["reason"]["a"].append(2)
    yield {"messages": messages[::-1]}


def deep_in_a_large_entry() -> Iterator[Values]:
    files: dict[str, Any] = {f"{n}.txt": {"lines": text(3000, n).split("\n")} for n in range(4)}
    yield {"files": files}
    files["1.txt"]["lines"][3] = "another line"
    yield {"files": files}
    files["1.txt"]["lines"].append("the last")
    yield {"files": dict(reversed(files.items()))}


DEEP: dict[str, History] = {h.__name__: h for h in (deep_in_an_old_message, deep_in_a_large_entry)}


@pytest.mark.parametrize("name", CHANGES | DEEP)
def test_nothing_escapes_a_store_that_does_not_trust(bench: Bench, name: str) -> None:
    """Then every object is encoded again, and no depth hides a change."""
    assert isinstance(bench.store, SqliteStore)
    bench.store.trusting = False
    for values in (CHANGES | DEEP)[name]():
        bench.put(values)
        bench.check()


@pytest.mark.parametrize("name", DEEP)
def test_what_is_not_seen_does_no_harm(bench: Bench, name: str) -> None:
    """A change that is too deep to be noticed may be lost; no other value is affected, nor one equal to it now."""
    for n, values in enumerate(DEEP[name]()):
        fair = {f"fair {channel}": copy.deepcopy(value) for channel, value in values.items()}
        bench.desk.put(None, f"c{n}", f"c{n - 1}" if n else None, values=values | fair)
        other = bench.another() if bench.url != "memory://" else bench.desk

        found = other.get(f"c{n}").checkpoint["channel_values"]

        assert bench.bytes_of({name: found[name] for name in fair}) == bench.bytes_of(fair)


def test_a_change_between_loading_and_storing_is_not_taken_for_the_old_value(file: Bench) -> None:
    """Whether or not the change itself is seen: a fresh value that is equal to the changed one is stored as it is."""
    lease = file.start()
    file.put({"calls": [{"args": {"x": 1, "pad": "p" * 50}}]}, lease)
    file.desk.finish(lease)
    desk = file.another()
    lease = file.start(desk)
    loaded = file.must_read(lease, desk=desk)
    loaded["calls"][0]["args"]["x"] = 2
    fair = copy.deepcopy(loaded["calls"])

    desk.put(lease, "c1", "c0", values={"calls": loaded["calls"], "fair": fair})

    assert file.another().get("c1").checkpoint["channel_values"]["fair"] == fair


def test_changed_in_place_is_said_and_nothing_else(bench: Bench) -> None:
    """With the path to it. A new object in an old one's place is no change in place."""
    notes, files = [*map(note, range(5))], {"a.txt": {"lines": ["x" * 600]}, "b.txt": {"lines": ["y" * 600]}}
    lease = bench.start()
    assert bench.put({"notes": notes, "files": files}, lease) == []
    assert bench.put({"notes": [*notes], "files": {**files}}, lease) == []
    notes[3]["note"] = "changed"
    files["b.txt"] = {"lines": ["new"]}

    assert bench.put({"notes": notes, "files": files}, lease) == ["channel_values.notes[3]"]
    assert bench.put({"notes": notes, "files": files}, lease) == []

    bench.check()


# -- an act and the next -----------------------------------------------------------------------------------------------


def test_an_act_stores_what_it_was_given_when_it_was_made(file: Bench) -> None:
    """Also where it turns out, when it is performed, that somebody else has written meanwhile."""
    other = file.another()
    file.put({"notes": [note(1)]})
    file.put({"notes": [note(2)]}, desk=other)
    value = [note(3)]
    put = file.desk.putting(None, "c2", "c1", values={"n": value})
    write = file.desk.writing(None, "c2", "k", ("n", value))
    file.due["c2"] = file.bytes_of({"n": value})
    value[0]["note"] = "changed meanwhile"

    file.desk.do(put)
    file.desk.do(write)

    file.check()
    assert file.another().get("c2").writes == [("k", "n", [note(3)])]


WHILE_IT_WAITS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a list is reversed": (lambda: [note(1), note(2)], lambda value: value.reverse()),
    "a long list is sorted": (lambda: [*map(note, range(20))], lambda value: value.sort(key=lambda n: -n["note"])),
    "a list loses and gains": (lambda: [note(1), note(2)], lambda value: value.append(value.pop(0))),
    "an element is replaced": (lambda: [note(1), note(2)], lambda value: value.__setitem__(0, note(9))),
    "an element is changed": (lambda: [note([1]), note(2)], lambda value: value[0]["note"].append(2)),
    "a list grows": (lambda: [note(1)], lambda value: value.append(note(2))),
    "entries change places": (lambda: _files(), lambda value: value.update(a=value["b"], b=value["a"])),
    "an entry moves": (lambda: _files(), lambda value: value.update(a=value.pop("a"))),
    "an entry is renamed": (
        lambda: _files(),
        lambda value: value.update({"z" + next(iter(value)): value.pop(next(iter(value)))}),
    ),
    "an entry is changed": (lambda: _files(), lambda value: value["a"].update(note=True)),
    "a small dict changes": (lambda: {"a": note(1)}, lambda value: value["a"].update(note=True)),
    "words are sorted": (lambda: [f"word {n}" for n in range(20)], lambda value: value.reverse()),
}


def _files() -> dict[str, Any]:
    return {"a": note(1), "b": note(2), "pad": "x" * 600}


@pytest.mark.parametrize("lead", [0, 1], ids=["at once", "in a queue"])
@pytest.mark.parametrize("by", ["itself", "a run"])
@pytest.mark.parametrize("name", WHILE_IT_WAITS)
def test_a_value_that_is_changed_while_its_checkpoint_waits(file: Bench, name: str, by: str, lead: int) -> None:
    """The act stores what it was, and the next one what it is: neither is mistaken for the other."""
    make, change = WHILE_IT_WAITS[name]
    lease, value = file.start() if by == "a run" else None, make()
    if lead:
        file.put({"n": value}, lease)
    for _ in range(3):
        number, parent = f"c{len(file.due)}", [*file.due][-1] if file.due else None
        act = file.desk.putting(lease, number, parent, values={"n": value})
        file.due[number] = file.bytes_of({"n": value})
        change(value)
        file.desk.do(act)
        file.put({"n": value}, lease)
    file.check()
    for number in file.due:
        file.must_read(lease, number)


def test_acts_that_wait_together_are_stored_in_turn(file: Bench) -> None:
    """Each was drafted when the ones before it were not stored yet."""
    notes = [*map(note, range(3))]
    acts = []
    for n in range(20):
        notes = [*notes, note(f"new {n}")] if n % 5 else notes[1:]
        values = {"notes": notes, "files": {f"{i}": each for i, each in enumerate(notes)}}
        file.due[f"c{n}"] = file.bytes_of(values)
        acts.append(file.desk.putting(None, f"c{n}", f"c{n - 1}" if n else None, values=values))

    for future in [file.store.submit(act) for act in acts]:
        future.result(10)

    file.check()


@pytest.mark.parametrize("error", [BrokenError, PulledError])
@pytest.mark.parametrize("lost", [False, True], ids=["alone", "with others"])
def test_an_act_that_fails_leaves_nothing_behind_in_memory(
    bench: Bench, error: type[BaseException], lost: bool
) -> None:
    """Broken at any of its points, in a commit of its own or one shared: the next one stores all that it needs."""
    notes, n = [*map(note, range(3))], 0
    bench.put({"notes": notes})
    while True:
        n += 1
        new, text_ = note(f"new {n}"), text(2000, n)
        values = {"notes": [*notes, new], "files": {"a.txt": text_, "b.txt": text(600)}}
        parent = [*bench.due][-1]
        act = bench.desk.putting(None, f"lost {n}", parent, values=values)
        breaker = bench.store.fault = Breaker("put_checkpoint", n - 1, error)
        with_it = [bench.desk.writing(None, parent, f"k{n}", ("n", [new, text_]))] if lost else []
        done = [bench.store.submit(each) for each in [act, *with_it]]
        failed = done[0].exception(10)
        written = with_it and done[1].exception(10) is None
        bench.store.fault = None
        if failed is None:
            break
        assert isinstance(failed, error)
        bench.put(values)
        bench.check()
        if written:
            found = bench.another().get(parent).writes
            assert [value for task, _, value in found if task == f"k{n}"] == [[new, text_]]
    assert breaker.left >= 0
    assert n > 6


@pytest.mark.parametrize("by", ["itself", "a run"])
def test_numbers_that_were_taken_back_are_given_to_others(file: Bench, by: str) -> None:
    """A commit that failed has given no numbers: what gets them next is not mistaken for what they were meant for."""
    lease = file.start() if by == "a run" else None
    file.put({"notes": [note(1)]}, lease)
    lost = {"notes": [note(1), note("lost")]}
    file.store.fault = _at_commit
    with pytest.raises(BrokenError):
        file.desk.put(lease, "c1", "c0", values=lost)
    file.store.fault = None
    if lease:
        file.desk.finish(lease)
    lease = file.desk.start(file.desk.worker("w9"), "r9", spec=RunSpec(input=[note("asked")]))

    file.put(lost, lease)

    file.check()
    file.must_read(lease)


def _at_commit(act: str, statement: str, where: str) -> None:
    if (statement, where) == ("commit", "before"):
        raise BrokenError(act)


def test_an_act_that_is_refused_leaves_nothing_behind_in_memory(bench: Bench) -> None:
    """A checkpoint that comes too late, a result that differs from the recorded one, a class that is not allowed."""
    bench.put({"notes": [note(1)]})
    bench.put({"notes": [note(1), note(2)]})
    bench.desk.write(None, "c1", "k", ("notes", [note(3)]))
    new = note("new")

    for _ in range(2):
        with pytest.raises(DivergentStateError):
            bench.desk.put(None, "late", "c0", values={"notes": [note(1), new]})
        with pytest.raises(DivergentStateError):
            bench.desk.write(None, "c1", "k", ("notes", [new]))
        with pytest.raises(UnknownTypeError):
            bench.desk.put(None, "odd", "c1", values={"notes": [new, HandClock()]})
    bench.put({"notes": [note(1), new], "alone": new, "files": {"a": new, "pad": "x" * 600}})

    bench.check()


@pytest.mark.parametrize("same", [True, False], ids=["the same", "another"])
@pytest.mark.parametrize("kind", ["new", "new and old", "old and new", "old", "text", "files", "tiny", "small", "many"])
@pytest.mark.parametrize("who", ["itself", "another process"])
def test_a_task_that_is_recorded_again(file: Bench, kind: str, same: bool, who: str) -> None:
    """The same result is fine and another one is refused, whatever is in the store of either already."""
    old, before = [note("old"), note("older")], text(5000)
    file.put({"notes": old, "text": before, "files": {"a": before, "b": "x" * 600}})

    def results(end: str) -> Any:
        new = note(end)
        return {
            "new": [new, note("last")],
            "new and old": [new, copy.deepcopy(old[0])],
            "old and new": [copy.deepcopy(old[0]), new],
            "old": copy.deepcopy(old) if end == "one" else copy.deepcopy(old[::-1]),
            "text": before + end,
            "files": {"a": before + end, "b": "x" * 600},
            "tiny": {"a": end, "b": [1]},
            "small": {"a": end * 100, "b": [1]},
            "many": [note(n) for n in random.Random(1).sample(range(300), 300)] + [new],
        }[kind]

    file.desk.write(None, "c0", "k", ("notes", results("one")), ("text", results("one")), ("files", results("one")))
    file.put(
        {"notes": [*old, note("later")], "text": before + "later", "files": {"a": before + "later", "b": "y" * 600}}
    )
    desk = file.desk if who == "itself" else file.another()
    end = "one" if same else "two"
    act = desk.writing(None, "c0", "k", *((name, results(end)) for name in ("notes", "text", "files")))

    if same:
        desk.do(act)
    else:
        with pytest.raises(DivergentStateError):
            desk.do(act)

    found = file.another().get("c0").writes
    assert file.bytes_of([value for _, _, value in found]) == file.bytes_of([results("one")] * 3)


@pytest.mark.parametrize("how", ["broken", "refused", "never done", "waiting"])
@pytest.mark.parametrize("by", ["itself", "a run", "a run that loads"])
def test_a_change_is_seen_though_an_act_before_was_not_stored(bench: Bench, how: str, by: str) -> None:
    """What a draft has found changed in place is found again by the next one."""
    lease = bench.start() if by != "itself" else None
    values: Values = {
        "notes": [note([n]) for n in range(3)],
        "files": {"a": note([1]), "b": note([2]), "pad": "x" * 600},
    }
    bench.put(values, lease)
    values = bench.read(lease) if by == "a run that loads" else values
    for n in range(3):
        for each in (values["notes"][n], values["files"]["a"]):
            each["note"].append(n)
        parent = "c0" if how == "refused" and n else f"c{n}"
        act = bench.desk.putting(lease, f"lost {n}", parent, values=values)
        if how == "waiting":
            bench.due[f"lost {n}"] = bench.bytes_of(values)
            waiting = bench.store.submit(act)
            values["notes"][n]["note"].append("more")
            bench.due[f"c{n + 1}"] = bench.bytes_of(values)
            bench.desk.put(lease, f"c{n + 1}", f"lost {n}", values=values)
            waiting.result(10)
        else:
            bench.store.fault = Breaker("put_checkpoint", 3, BrokenError) if how == "broken" or not n else None
            if how != "never done":
                with pytest.raises(BrokenError if bench.store.fault else DivergentStateError):
                    bench.desk.do(act)
            bench.store.fault = None
            bench.put(values, lease)
        bench.check()


def test_a_strict_store_goes_on_refusing(file: Bench) -> None:
    """What was changed in place is refused under a claim, with its path, as often as it comes; a new object is not."""
    assert isinstance(file.store, SqliteStore)
    file.store.be_strict()
    lease, notes = file.start(), [note([n]) for n in range(20)]
    file.put({"notes": notes}, lease)
    notes[3]["note"].append("deep inside")

    for _ in range(3):
        with pytest.raises(FidelityError, match=r"notes\[3\]"):
            file.desk.put(lease, "c1", "c0", values={"notes": notes})
    file.put({"notes": [*notes[:3], copy.deepcopy(notes[3]), *notes[4:]]}, lease)

    file.check()


def test_what_is_found_at_the_end_of_a_run_is_stored_with_the_next_checkpoint(file: Bench) -> None:
    """However deep it was changed, in whatever channel the object is; and nothing is found a second time."""
    lease, notes = file.start(), [note([n]) for n in range(20)]
    files: Values = {"a.txt": {"lines": text(3000).split("\n")}, "b.txt": "x" * 600}
    values = {"notes": notes, "more": notes[2:5], "files": files}
    file.put(values, lease)
    assert file.store.changed_in_place(lease) == []
    notes[3]["note"].append("deep inside")
    files["a.txt"]["lines"][3] = "another line"

    found = file.store.changed_in_place(lease)

    assert {"notes[3]", "files.a.txt"} <= {*found} <= {"notes[3]", "more[1]", "files.a.txt"}
    file.put(values, lease)
    assert file.store.changed_in_place(lease) == []
    file.check()
    file.must_read(lease)
    file.must_read(lease, "c0")


# -- whose memory is true ----------------------------------------------------------------------------------------------


def test_a_checkpoint_that_another_process_has_put_anew(file: Bench) -> None:
    """Nothing may rest on what it was, though no item has been stored since."""
    other = file.another()
    file.put({"n": 1})
    other.put(None, "c0", values={"n": 2, "m": "x"})
    file.due["c0"] = file.bytes_of({"n": 2, "m": "x"})

    file.put({"n": 3})
    file.put({"n": 4}, desk=other)

    file.check()


def test_a_runs_checkpoint_that_was_put_anew_after_it(file: Bench) -> None:
    """The same from run to run: what this process knows of its own checkpoints is old."""
    other = file.another()
    for n, desk in enumerate([file.desk, other]):
        lease = file.start(desk)
        file.put({"n": n}, lease, desk)
        file.put({"n": n}, lease, desk)
        desk.finish(lease)
    other.put(None, "c0", values={"n": "other"})
    file.due["c0"] = file.bytes_of({"n": "other"})
    lease = file.start()

    file.put({"n": "again"}, lease)

    file.check()


@pytest.mark.parametrize("read", [True, False], ids=["read", "not read"])
@pytest.mark.parametrize("who", ["itself", "another process"])
@pytest.mark.parametrize("value", [1, [note(1)], {"a": note(1), "b": "x" * 600}, "text " * 100])
def test_a_thread_that_was_copied_twice(file: Bench, value: Any, who: str, read: bool) -> None:
    """From two threads that have given as many numbers: what was known of the first copy is not true of the second."""
    desk, other = file.desk, file.desk if who == "itself" else file.another()
    changed = copy.deepcopy(value)
    if type(value) is list:
        changed[0]["note"] = "other"
    for source, given in (("s1", value), ("s2", changed)):
        desk.put(None, "c0", thread_id=source, values={"n": given})
    desk.do(desk.store.copy_thread(ONE_USER, "s1", "t"))
    if read:
        desk.get("c0")
    else:
        desk.put(None, "c1", "c0", values={"n": value})
    other.do(other.store.delete_thread(ONE_USER, "t"))
    other.do(other.store.copy_thread(ONE_USER, "s2", "t"))
    file.due = {"c0": file.bytes_of({"n": changed})}

    file.put({"n": value})

    file.check()


@pytest.mark.parametrize("before", ["a request", "an early write"])
def test_a_copy_to_a_thread_that_has_content_but_no_checkpoint(file: Bench, before: str) -> None:
    """It is refused, or all of it reads; numbers of items never collide."""
    desk = file.desk
    desk.put(None, "c0", thread_id="s", values={"n": [note("of the source")]})
    file.due["c0"] = file.bytes_of({"n": [note("of the source")]})
    if before == "a request":
        desk.finish(desk.start(desk.worker(), spec=RunSpec(input=[note("asked")])))
    else:
        desk.write(None, "c1", "k", ("n", [note("early")]))

    try:
        desk.do(file.store.copy_thread(ONE_USER, "s", "t"))
    except DivergentStateError:
        file.due.clear()
        desk.put(None, "c0", values={})
        file.due["c0"] = file.bytes_of({})
    file.put({"n": [note("of the source"), note("early"), note("asked")]})

    file.check()
    if before == "a request":
        assert file.another().do(file.store.get_run(ONE_USER, "r1")).spec.input == [note("asked")]
    else:
        assert file.another().get("c1").writes == [("k", "n", [note("early")])]


def test_a_thread_that_was_deleted_begins_anew(bench: Bench) -> None:
    """Its objects stand for nothing any more."""
    values = {"notes": [note(1), note(2)], "files": {"a": text(2000), "b": "x" * 600}}
    for _ in range(3):
        bench.put(values)
        bench.put({**values, "more": [note(1)]})
        bench.check()
        bench.desk.do(bench.store.delete_thread(ONE_USER, "t"))
        bench.due.clear()


def test_what_pruning_forgets_is_stored_again(bench: Bench) -> None:
    """Content of a checkpoint that went is not there, though its object still is; what rests on it still reads."""
    one, other, long = note(1), note(2), text(5000)
    bench.put({"notes": [one], "text": long})
    bench.put({"notes": [other], "text": long + "more"})
    bench.desk.do(bench.store.prune_thread(ONE_USER, "t"))
    del bench.due["c0"]
    bench.check()
    bench.desk.put(None, "c2", "c1", values={"notes": [one, other], "text": long})
    bench.due["c2"] = bench.bytes_of({"notes": [one, other], "text": long})

    bench.check()


def test_a_write_under_a_checkpoint_that_was_moved_on_from(file: Bench) -> None:
    """What a run was told of its ancestors' writes is not taken for all that there will ever be."""
    lease = file.start()
    for n in range(5):
        file.desk.put(lease, f"c{n}", f"c{n - 1}" if n else None, values={}, versions=["log"])
        file.desk.write(lease, f"c{n}", f"k{n}", ("log", n))
    act = file.store.delta_history(ONE_USER, "t", "", "c4", ["log"], lease)
    assert [value for _, _, value in file.desk.do(act)["log"][0]] == [0, 1, 2, 3]
    file.desk.write(lease, "c1", "late", ("log", "late"))
    file.desk.put(lease, "fork", "c1", source="fork", values={}, versions=["log"])

    for claim in (lease, None):
        for name, due in (("fork", [0, 1, "late"]), ("c4", [0, 1, "late", 2, 3])):
            act = file.store.delta_history(ONE_USER, "t", "", name, ["log"], claim)
            assert [value for _, _, value in file.desk.do(act)["log"][0]] == due


# -- chains of edits ---------------------------------------------------------------------------------------------------


def edited(before: str, chance: random.Random) -> str:
    place = chance.randrange(len(before))
    return f"{before[:place]}edit {chance.random()}{before[place + 20 :]}"


@pytest.mark.parametrize("reads", [True, False], ids=["read first", "not read"])
@pytest.mark.parametrize("kind", ["text", "file", "list"])
def test_an_edited_text_costs_its_edit_whoever_edits_it(file: Bench, kind: str, reads: bool) -> None:
    """Sixty edits, a new process every seven: each comes back, and each costs a few hundred bytes."""
    chance, now = random.Random(7), text(16_000)
    desk = file.desk
    kinds: dict[str, Callable[[], Any]] = {
        "text": lambda: now,
        "file": lambda: {"a.txt": {"content": now}, "b.txt": "x" * 600},
        "list": lambda: [note(1), now],
    }
    for n in range(60):
        if n % 7 == 0:
            desk = file.another()
            if reads and file.due:
                lease = file.start(desk)
                file.must_read(lease, desk=desk)
                desk.finish(lease)
        elif n % 7 > 1 or kind != "list":
            now = edited(now, chance)
        file.put({"n": kinds[kind]()}, desk=desk)
    file.check()

    if kind != "list":
        assert file.stored < 90_000


def test_a_chain_is_no_longer_than_it_may_be(file: Bench) -> None:
    """Each item names all that it rests on: one more look into the store finds them."""
    chance, now = random.Random(7), text(5000)
    for _ in range(3 * CHAIN_MAX):
        now = edited(now, chance)
        file.put({"n": now})
        statements = _statements(file, [*file.due][-1])
        assert statements.count("get_packs") <= 2
    file.check()


def _statements(bench: Bench, name: str) -> list[str]:
    """Those that reading one checkpoint takes, by a process that knows nothing."""
    desk, found = bench.another(), list[str]()
    desk.store.fault = lambda act, statement, where: found.append(statement) if where == "before" else None
    desk.get(name)
    desk.store.close()
    return found


def test_hundreds_of_files_edited_a_little(file: Bench) -> None:
    """Each edit costs itself, by the process that has loaded them as by the one that made them."""
    chance = random.Random(3)
    files: Values = {f"{n}.txt": {"content": text(chance.randrange(5000, 20_000), n), "n": n} for n in range(200)}
    file.put({"files": files})
    first, desk, lease = file.stored, file.desk, None
    for n in range(30):
        if n % 10 == 5:
            desk = file.another()
            lease = file.start(desk)
            files = file.must_read(lease, desk=desk)["files"]
        name = f"{chance.randrange(200) if n % 2 else 17}.txt"
        files = {**files, name: {**files[name], "content": edited(files[name]["content"], chance)}}
        assert file.put({"files": files}, lease, desk) == []
        if n % 10 == 4 and lease:
            desk.finish(lease)
            lease = None
    file.check()

    assert file.stored - first < 30 * 2500


def test_a_file_that_becomes_larger_than_any_base(file: Bench) -> None:
    """And smaller again, edited on the way."""
    chance, now = random.Random(5), text(600_000)
    for n in range(6):
        now = edited(now * 2 if n < 3 else now[: len(now) // 2], chance)
        file.put({"files": {"big.txt": now, "small.txt": "x" * 600}})
    assert len(now) > 500_000

    file.check()


def test_two_equal_files_that_rest_on_another(file: Bench) -> None:
    """Both are built, though only one of them is at hand, and what they rest on is in another pack."""
    lease, before, now = file.start(), text(9000), text(9000) + "more"
    neighbour = note(1)
    file.put({"files": {"a": {"content": before}, "pad": "x" * 600}}, lease)
    values = {"a": {"content": now}, "b": {"content": now}, "pad": "x" * 600}
    file.put({"files": values, "notes": [neighbour]}, lease)
    scribble(neighbour)

    file.must_read(lease)
    file.must_read(lease)


# -- bytes -------------------------------------------------------------------------------------------------------------


def test_what_does_not_change_costs_nothing(file: Bench) -> None:
    """Megabytes, a long list and many files that stand in every checkpoint are stored once."""
    blob = random.Random(1).randbytes(5 << 20)
    files = {f"{n}.txt": text(500, n) for n in range(300)}
    messages = [*map(say, range(300))]
    file.put({"blob": blob, "entry": {"blob": blob}, "files": files, "messages": messages, "ints": [*range(5000)]})
    first = file.stored
    for n in range(8):
        file.put(
            {
                "blob": bytes(bytearray(blob)) if n % 2 else blob,
                "entry": {"blob": bytes(bytearray(blob))},
                "files": dict(files),
                "messages": [*messages] if n % 2 else copy.deepcopy(messages),
                "ints": [*range(5000)],
            }
        )

    assert first < (5 << 20) + 200_000
    assert file.stored - first < 8 * 400
    file.check()


def test_a_long_list_grows_by_what_is_new(file: Bench) -> None:
    """However long it is, and whatever gaps its numbers have."""
    chance = random.Random(2)
    notes = random.Random(1).sample([note(n, 3) for n in range(1000)], 1000)
    file.put({"notes": notes[::2]})
    file.put({"notes": notes})
    first = file.stored
    for n in range(50):
        notes = [*notes, {"n": n, "text": chance.randbytes(30).hex()}]
        file.put({"notes": notes})

    assert file.stored - first < 50 * 250
    file.check()


def test_small_packs_are_packed_anew(file: Bench) -> None:
    """When enough has gathered: a long thread has few packs, and all of it is still there."""
    notes: list[Any] = []
    for n in range(150):
        notes = [*notes, {"n": n, "text": text(2000, n)}]
        file.put({"notes": notes})
    assert isinstance(file.store, SqliteStore)
    with file.store._db.reader() as conn:
        packs = conn.execute("select count(*) as n from pack").fetchone()["n"]

    assert packs < 60
    file.check()


# -- objects that are handed out ---------------------------------------------------------------------------------------


def test_a_read_without_a_claim_shares_nothing(bench: Bench) -> None:
    """Neither with another read, nor with what was stored, nor with what the run is given."""
    lease = bench.start()
    values = {"notes": [note(1)], "files": {"a": note(1), "pad": "x" * 600}, "alone": note(1), "small": {"a": [1]}}
    bench.put(values, lease)

    given = [values, bench.read(lease), bench.read(None), bench.read(None, "c0"), bench.read(lease, "c0")]

    for one in (given[2], given[3]):
        others = {id(part) for each in given if each is not one for part in _parts(each)}
        assert not others & {id(part) for part in _parts(one)}


def _parts(value: Any) -> Iterator[Any]:
    """Of all dicts and lists within."""
    if isinstance(value, dict | list):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from _parts(part)


@pytest.mark.parametrize("before", ["stored by it", "in another process"])
def test_a_read_without_a_claim_is_not_given_to_a_run(file: Bench, before: str) -> None:
    """Whoever looks at a state may do with it as it likes: nothing of that gets into the run that comes after."""
    file.put({"notes": [note([1])], "files": {"a": note([1]), "pad": "x" * 600}, "alone": note([1])})
    desk = file.desk if before == "stored by it" else file.another()
    for found in (file.read(None, desk=desk), file.read(None, "c0", desk=desk)):
        found["notes"][0]["note"].append("mine")
        found["files"]["a"]["note"].append("mine")
        found["alone"]["note"].append("mine")
        found["notes"].append("mine")
    lease = file.start(desk)

    loaded = file.must_read(lease, desk=desk)
    file.put(loaded, lease, desk)

    file.check()


SHARED: dict[str, Callable[[], Values]] = {
    "twice in a list": lambda: (lambda one: {"n": [one, one]})(note(1)),
    "equal in a list": lambda: {"n": [note(1), note(1), note(1)]},
    "in two channels": lambda: (lambda one: {"n": [one], "m": [one]})(note(1)),
    "equal in two channels": lambda: {"n": [note(1)], "m": [note(1)]},
    "in a list and alone": lambda: (lambda one: {"n": [one], "m": one})(note(1)),
    "alone and in a list": lambda: (lambda one: {"a": one, "n": [one]})(note(1)),
    "in a list and a dict": lambda: (lambda one: {"n": [one], "m": {"a": one, "b": one, "pad": "x" * 600}})(note(1)),
    "in two dicts": lambda: {
        "n": {"a": note(1), "pad": "x" * 600},
        "m": {"a": note(1), "b": note(1), "pad": "y" * 600},
    },
    "wrapped and bare": lambda: {"n": [note(1)], "m": Overwrite([note(1)])},
    "keys and a list": lambda: {"n": {f"{n}.txt": "x" * 300 for n in range(9)}, "m": [f"{n}.txt" for n in range(9)]},
}


@pytest.mark.parametrize("who", ["itself", "another process"])
@pytest.mark.parametrize("name", SHARED)
def test_no_object_is_handed_out_twice(file: Bench, name: str, who: str) -> None:
    """Not in one reading, of values or writes: changing one does not change the other."""
    values = SHARED[name]()
    lease = file.start()
    file.put(values, lease)
    write = next(iter(values.values()))
    file.desk.write(lease, "c0", "k", ("n", write), ("m", copy.deepcopy(write)))
    desk = file.desk
    if who == "another process":
        file.desk.finish(lease)
        desk = file.another()
        lease = file.start(desk)
    for _ in range(3):
        found = desk.do(desk.store.get_checkpoint(ONE_USER, "t", "", None, lease))
        assert found is not None
        handed_out = [*found.checkpoint["channel_values"].values(), *(value for _, _, value in found.writes)]
        parts = [id(part) for each in handed_out for part in _parts(getattr(each, "value", each))]

        assert len(parts) == len(set(parts))
        assert file.bytes_of(found.checkpoint["channel_values"]) == file.due["c0"]


def scribble(element: Any) -> None:
    """Change a field or member of it to something that is like it."""
    if isinstance(element, dict):
        key = next(iter(element))
        element[key] = True if element[key] == 1 else "scribbled"
    elif isinstance(element, list):
        element.append("scribbled")
    elif isinstance(element, Slotted | Box | Note):
        element.rows = "scribbled"
    elif isinstance(element, HumanMessage | AIMessage | ToolMessage):
        element.content = "scribbled"
    else:
        element.clear()


_LEAVES = (int, bool, str)

HANDED_OUT: dict[str, Callable[[], Values]] = {
    "dicts": lambda: {"n": [note(n) for n in range(30)]},
    "messages": lambda: {"n": [*map(say, range(30))]},
    "equal ones": lambda: {"n": [note(1) for _ in range(4)]},
    "equal ones in order": lambda: {"n": [note(1), note(2), note(1), note(2)], "m": [note(2), note(1)]},
    "entries": lambda: {"n": {"a": note(1), "b": note(2), "pad": ["x" * 600]}},
    "large entries": lambda: {"n": {"a": note(1, 2000), "b": note(2, 2000)}},
    "one dict": lambda: {"n": {"a": 1, "b": "x" * 100}},
    "boxes": lambda: {"n": [Slotted(1), Box(1), Note(rows=1), Tags([1]), note(1)]},
    "all sorts": lambda: {
        "n": [OrderedDict(a=1), defaultdict(int, a=1), Counter("aab"), deque("ab"), {1}, bytearray(9)]
    },
    "deltas": lambda: {"n": _DeltaSnapshot([note(1), note(2)])},
    "names of files": lambda: {"n": _names(), "files": {name: name * 30 for name in _names()}},
    "files and names": lambda: {"files": {name: name * 30 for name in _names()}, "n": _names()},
}


def _names() -> list[str]:
    return [f"file_{n}.txt" for n in range(9)]


@pytest.mark.parametrize("who", ["itself", "another process"])
@pytest.mark.parametrize("name", HANDED_OUT)
def test_what_a_run_scribbles_on_is_not_taken_for_the_stored_value(file: Bench, name: str, who: str) -> None:
    """An element, entry or value of which a field or member was changed is built anew the next time it is asked for."""
    values = HANDED_OUT[name]()
    lease, desk = file.start(), file.desk
    file.put(values, lease)
    if who == "another process":
        file.desk.finish(lease)
        desk = file.another()
        lease = file.start(desk)
    inner: Any = getattr(values["n"], "value", values["n"])
    for place in [*inner] if isinstance(inner, dict) else range(len(inner)):
        for name_ in (None, "c0"):
            read = file.must_read(lease, name_, desk)["n"]
            given: Any = getattr(read, "value", read)
            scribble(given if type(given[place]) in _LEAVES else given[place])
            file.must_read(lease, name_, desk)
    if desk is file.desk:
        for element in [*inner.values()] if isinstance(inner, dict) else [*inner]:
            scribble(inner if type(element) in _LEAVES else element)
            file.must_read(lease, None, desk)


def test_what_was_scribbled_on_is_stored_as_it_is(file: Bench) -> None:
    """If it is given back: as a new value, with the old one left to the checkpoint that has it."""
    lease = file.start()
    file.put({"notes": [*map(note, range(20))], "files": {"a": note(1, 2000), "b": note(2)}}, lease)
    for n in range(3):
        values = file.must_read(lease)
        for place in (0, 10, 19):
            scribble(values["notes"][place])
            values["notes"][place]["n"] = n
        values["files"]["a"]["n"] = n
        file.put(values, lease)
        file.check()
        for name in file.due:
            file.must_read(lease, name)


def test_an_older_checkpoint_is_not_what_became_of_it(file: Bench) -> None:
    """Changed in place at any depth and stored: a run that goes back to the one before gets what that one was."""
    lease = file.start()
    notes, files = [note([1]), note([2])], {"a": note([1]), "b": note([2], 2000)}
    for n in range(3):
        file.put({"notes": notes, "files": files}, lease)
        file.check()
        for name in file.due:
            file.must_read(lease, name)
        notes[0]["note"].append(n)
        files["a"]["note"].append(n)


def test_the_names_of_files_in_a_list_of_their_own(file: Bench) -> None:
    """A list that says what the keys of a dict say is still another list: changing one changes the other's item not."""
    names = [f"{name}.txt" for name in ("one", "two", "three", "four", "five")]
    files = {name: name * 50 for name in names}
    lease = file.start()
    for n in range(3):
        file.put({"files": files, "names": names}, lease)
        file.check()
        names.append(f"{n}.txt")
        files[f"{n}.txt"] = f"{n}" * 50
    file.desk.finish(lease)
    desk = file.another()
    lease = file.start(desk)
    values = file.must_read(lease, desk=desk)
    values["names"].append("last.txt")
    values["files"]["last.txt"] = "last" * 50
    file.put(values, lease, desk)

    file.check()


@pytest.mark.parametrize("size", [3, 300])
def test_what_a_delta_channel_replays_is_handed_out_safely(file: Bench, size: int) -> None:
    """Seed and writes, again and again while the chain grows, for the run and for others."""
    lease = file.start()
    notes = [note(n, 5) for n in random.Random(1).sample(range(size), size)]
    seed, due = file.bytes_of(_DeltaSnapshot(notes)), list[Any]()
    for n in range(12):
        values = {"log": _DeltaSnapshot(notes)} if n % 5 == 0 else {}
        file.desk.put(lease, f"c{n}", f"c{n - 1}" if n else None, values=values, versions=["log"])
        for claim in (lease, None, lease) if n % 5 else ():
            act = file.store.delta_history(ONE_USER, "t", "", f"c{n}", ["log"], claim)
            writes, start = file.desk.do(act)["log"]
            parts = [id(part) for _, _, value in writes for part in _parts(value)]
            parts += [id(part) for part in _parts(start[0].value)]

            assert [value for _, _, value in writes] == due
            assert [*map(file.bytes_of, start)] == [seed]
            assert len(parts) == len(set(parts))
            for _, _, value in writes:
                scribble(value)
            scribble(start[0].value[n % size])
        due = [] if n % 5 == 0 else due
        file.desk.write(lease, f"c{n}", f"k{n}", ("log", note(n)))
        due = [*due, note(n)]
        if n % 5 == 4:
            notes = [copy.deepcopy(each) for each in [*notes, *due]]
            for each, number in zip(notes, random.Random(1).sample(range(size), size), strict=False):
                each.update(note(number, 5))
            seed = file.bytes_of(_DeltaSnapshot(notes))


# -- many at once ------------------------------------------------------------------------------------------------------


@dataclass
class Branch:
    """One subgraph of a run: puts and reads of its own namespace."""

    bench: Bench
    lease: Lease
    number: int
    due: dict[str, bytes] = field(default_factory=dict)

    def work(self, stop: threading.Event) -> None:
        desk, ns, n = self.bench.desk, f"branch:{self.number}", 0
        notes, common = [note(self.number)], [note("common")]
        while n < 40 and not stop.is_set():
            values = {"notes": notes, "common": common, "files": {"a": notes[-1], "b": note("common"), "c": "x" * 600}}
            desk.put(self.lease, f"c{n}", f"c{n - 1}" if n else None, ns=ns, values=values)
            self.due[f"c{n}"] = self.bench.bytes_of(values)
            found = desk.do(desk.store.get_checkpoint(ONE_USER, "t", ns, None, self.lease))
            assert found is not None
            assert self.bench.bytes_of(found.checkpoint["channel_values"]) == self.due[f"c{n}"]
            desk.write(self.lease, f"c{n}", f"k{self.number}", ("notes", [note("common")]), ns=ns)
            notes = [*found.checkpoint["channel_values"]["notes"], note(f"{self.number} {n}" if n % 2 else "common")]
            n += 1


def test_branches_of_a_run_that_work_at_once(file: Bench) -> None:
    """Several threads put and read under one claim, with content in common: each finds its own, and it is stored."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    branches, stop = [Branch(file, file.start(), number) for number in range(1)], threading.Event()
    branches += [Branch(file, branches[0].lease, number) for number in range(1, 4)]
    try:
        with ThreadPoolExecutor(len(branches)) as pool:
            futures = [pool.submit(branch.work, stop) for branch in branches]
            for future in futures:
                future.add_done_callback(lambda done: stop.set() if done.exception() else None)
            for future in futures:
                future.result(60)
    finally:
        sys.setswitchinterval(interval)

    for branch in branches:
        other = file.another()
        for name, due in branch.due.items():
            assert file.bytes_of(other.get(name, ns=f"branch:{branch.number}").checkpoint["channel_values"]) == due
