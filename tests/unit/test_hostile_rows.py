"""
Rows that somebody else has written into the store: whatever they say, loading runs nothing and imports nothing (C42).

Each is refused with one of two errors, or gives data that just lies there. An audit hook of Python's own watches.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import importlib.util
import json
import pickle
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import ormsgpack
import pydantic
import pytest
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ninelives.errors import StoreCorruptError, UnknownTypeError
from ninelives.stores.codec import DEFAULT_TYPES, RawValue, RecordedError, decode
from ninelives.stores.codec.values import KINDS, VERSION, Code

# -- what the program allows ---------------------------------------------------------------------------------------

woken: list[str] = []


def wakes(what: str) -> Any:
    def wake(*args: Any, **kwargs: Any) -> Any:
        woken.append(what)

    return wake


class Trap:
    """Whatever of it is called tells so."""

    __init__ = __setattr__ = __call__ = __enter__ = __eq__ = __hash__ = wakes("a method of a plain object")
    secret = property(wakes("a getter"), wakes("a setter"))


@dataclasses.dataclass
class Order:
    number: int
    rows: list[Any]

    def __post_init__(self) -> None:
        woken.append("__post_init__")


class Form(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name", mode="before")
    @classmethod
    def look(cls, value: Any) -> Any:
        woken.append("a validator")
        return value

    def model_post_init(self, context: Any) -> None:
        woken.append("model_post_init")


class Colour(enum.Enum):
    RED = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        woken.append("_missing_")


class Point(NamedTuple):
    x: int


class Tags(list[Any]):
    def append(self, item: Any) -> None:
        woken.append("append")


class Declined(Exception):
    def __init__(self, *args: Any) -> None:
        woken.append("an exception's __init__")


TYPES = DEFAULT_TYPES | [Trap, Order, Form, Colour, Point, Tags, Declined]


def tag(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


class Evil:
    """What a pickle would do."""

    def __reduce__(self) -> Any:
        return print, ("a pickle was loaded",)


# -- the rows ------------------------------------------------------------------------------------------------------


def frame(value: Any) -> bytes:
    return VERSION + ormsgpack.packb(value)


def raw(code: int, data: bytes) -> bytes:
    return VERSION + ormsgpack.packb(ormsgpack.Ext(code, data))


def ext(code: int, *parts: Any) -> bytes:
    return raw(code, ormsgpack.packb(list(parts)))


def nested(code: int, times: int, inner: Any = None) -> bytes:
    packed = ormsgpack.packb(inner)
    for _ in range(times):
        packed = ormsgpack.packb(ormsgpack.Ext(code, b"\x91" + packed))
    return VERSION + packed


def within(code: int, *parts: Any) -> ormsgpack.Ext:
    return ormsgpack.Ext(code, ormsgpack.packb(list(parts)))


CALLS = ["os:system", "builtins:eval", "builtins:exec", "subprocess:Popen", "builtins:__import__", "os.path:join"]
LANGGRAPH: list[tuple[Any, ...]] = [
    ("os", "system", ["touch /tmp/owned"]),
    ("builtins", "eval", ["1/0"], {}),
    ("subprocess", "Popen", ["id"]),
]

ROWS: dict[str, bytes] = {
    # -- no frame of ours
    "nothing": b"",
    "only a version": VERSION,
    "another version": b"\x02" + ormsgpack.packb(1),
    "json": b'{"lc": 1}',
    "a pickle": pickle.dumps(Evil()),
    "a pickle with our version": VERSION + pickle.dumps(Evil()),
    "an old pickle": pickle.dumps(Evil(), protocol=0),
    "an old pickle with our version": VERSION + pickle.dumps(Evil(), protocol=0),
    "a row of langgraph's": JsonPlusSerializer().dumps_typed(AIMessage("a"))[1],
    "a row of langgraph's with our version": VERSION + JsonPlusSerializer().dumps_typed(AIMessage("a"))[1],
    "a row of langgraph's in json": JsonPlusSerializer().dumps_typed({"a": AIMessage("a")})[1],
    **{
        f"langgraph's ext {code} of {call[0]}.{call[1]}": raw(code, ormsgpack.packb(call))
        for code in range(8)
        for call in LANGGRAPH
    },
    # -- data that looks like a call
    "a constructor of langchain's": frame(json.loads(dumps(AIMessage("a")))),
    "a constructor of anything": frame({"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"x": "id"}}),
    "a secret of langchain's": frame({"lc": 1, "type": "secret", "id": ["HOME"]}),
    "a pickle as a value": frame(pickle.dumps(Evil())),
    "yaml": frame("!!python/object/apply:os.system ['id']"),
    "a template": frame("{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    # -- classes by name
    **{f"class {name}": raw(Code.CLASS, name.encode()) for name in [*CALLS, "", ":", "\xff", "a" * 10_000]},
    **{
        f"{code.name} of {name}": ext(code, name, *([["id"]] * 4))
        for code in (Code.ENUM, Code.NAMED_TUPLE, Code.MODEL, Code.OBJECT, Code.DERIVED)
        for name in CALLS
    },
    "an object of no class": ext(Code.OBJECT),
    "an object of a number": ext(Code.OBJECT, 5, {}),
    "an object of an object": ext(Code.OBJECT, within(Code.OBJECT, "os:system"), {}),
    "an unknown extension": raw(99, b"\x90"),
    "a negative extension": VERSION + b"\xd4\xff\x00",
    # -- allowed classes, wrong parts
    "an object made as a model": ext(Code.MODEL, tag(Trap), {}, [], None, None),
    "a model made as an object": ext(Code.OBJECT, tag(Form), {"name": 5}),
    "an object with the parts of a reduce": ext(Code.OBJECT, tag(Trap), ["os:system", ["id"]]),
    "an object with a state that is no dict": ext(Code.OBJECT, tag(Trap), 5),
    "an object with odd attributes": ext(Code.OBJECT, tag(Trap), {"__class__": 1, "secret": 2, "__dict__": {}}),
    "an object with an attribute that is no name": ext(Code.OBJECT, tag(Trap), within(Code.DICT, 1, 2)),
    "an order without rows": ext(Code.OBJECT, tag(Order), {}),
    "an order of anything": ext(Code.OBJECT, tag(Order), {"number": "x", "rows": 5, "more": []}),
    "a form that no validator has seen": ext(Code.MODEL, tag(Form), {"name": 5}, ["name"], None, None),
    "a form without a name": ext(Code.MODEL, tag(Form), {}, [], None, None),
    "a form of nothing": ext(Code.MODEL, tag(Form), 1, 2, 3, 4),
    "a form with more than there is": ext(Code.MODEL, tag(Form), {"x": 1}, ["y"], {"__class__": 1}, {"_p": 1}),
    "a form with too few parts": ext(Code.MODEL, tag(Form), {}),
    "a message of nothing": ext(Code.MODEL, tag(AIMessage), {}, [], None, None),
    "a message of anything": ext(Code.MODEL, tag(AIMessage), {"content": 5, "tool_calls": "x"}, [1], {}, {}),
    "a colour that there is not": ext(Code.ENUM, tag(Colour), "BLUE"),
    "a colour by value": ext(Code.ENUM, tag(Colour), 2),
    "a colour by a list": ext(Code.ENUM, tag(Colour), ["RED"]),
    "a point without a place": ext(Code.NAMED_TUPLE, tag(Point), {}),
    "a point in a list": ext(Code.NAMED_TUPLE, tag(Point), [1]),
    "tags of a number": ext(Code.DERIVED, tag(Tags), 5, {}),
    "tags with a class": ext(
        Code.DERIVED, tag(Tags), [1], {"__class__": ormsgpack.Ext(Code.CLASS, tag(Trap).encode())}
    ),
    "an exception of a word": ext(Code.DERIVED, tag(Declined), "word", {}),
    "an exception of a number": ext(Code.DERIVED, tag(Declined), 5, {}),
    # -- plain values, wrong parts
    **{f"{code.name} of nothing": raw(code, b"") for code in Code},
    **{f"{code.name} without parts": ext(code) for code in Code},
    **{f"{code.name} of a number": raw(code, ormsgpack.packb(5)) for code in Code},
    **{f"{code.name} of words": ext(code, "os:system", "id", "x", "y") for code in Code},
    **{f"{code.name} of dicts": ext(code, {}, {}, {}, {}) for code in Code},
    **{f"{code.name} of itself": nested(code, 2) for code in Code},
    "a dict with a list for a key": ext(Code.DICT, [1], 2),
    "a dict with half an entry": ext(Code.DICT, 1),
    "a set of lists": ext(Code.SET, [1]),
    "a key twice": VERSION + b"\x82\xa1a\x01\xa1a\x02",
    "a key twice in a dict of ours": ext(Code.DICT, 1, "a", 1, "b"),
    "a key that is a list": VERSION + b"\x81\x91\x01\x02",
    "half a character": VERSION + b"\xa1\xff",
    "a lone surrogate as text": VERSION + b"\xa3" + "\ud800".encode("utf-8", "surrogatepass"),
    "surrogates that are none": raw(Code.SURROGATES, b"\xff\xfe"),
    "a factory that is a call": ext(Code.DEFAULT_DICT, "exec", {}),
    "a factory that is a list": ext(Code.DEFAULT_DICT, ["list"], {}),
    "attributes of an ordered dict": ext(Code.ORDERED_DICT, {}, {"__class__": 1, "move_to_end": 2}),
    "attributes that are no dict": ext(Code.COUNTER, {}, [["__class__", 1]]),
    "a decimal beyond all bounds": raw(Code.DECIMAL, b"1e9999999999999999999"),
    "a fraction by zero": ext(Code.FRACTION, 1, 0),
    "a time that there is not": ext(Code.DATETIME, 0, 99, 99, 99, 99, 99, 99, 9, None),
    "a span beyond all bounds": ext(Code.TIMEDELTA, 10**12, 0, 0),
    "a zone that is a class": ext(Code.TIME, 1, 1, 1, 1, 0, within(Code.OBJECT, tag(Trap), {})),
    "a zone far away": ext(Code.TIMEZONE, within(Code.TIMEDELTA, 900, 0, 0)),
    **{
        f"zone {key!r}": raw(Code.ZONEINFO, key.encode())
        for key in (
            "../../etc/passwd",
            "/etc/passwd",
            "",
            ".",
            "Europe/../../x",
            "a\0b",
            "No/Such",
            "__init__",
            "x" * 5000,
        )
    },
    "a path with a nought": ext(Code.PATH, "PosixPath", "a\0b"),
    "a path of another kind": ext(Code.PATH, "open", "/etc/passwd"),
    "a path of another system": ext(Code.PATH, "WindowsPath", "c:\\x"),
    "an address that is none": ext(Code.IP_ADDRESS, "IPv4Address", "999.1.1.1"),
    "an address by a call": ext(Code.IP_ADDRESS, "ip_address", "1.1.1.1"),
    "a url that is none": raw(Code.URL, b"javascript"),
    "a pattern that never ends": ext(Code.PATTERN, "(a+)+$" * 50, 0),
    "a pattern of huge counts": ext(Code.PATTERN, "(((a{1,60000}){1,60000}){1,60000}){1,60000}", 0),
    "a pattern that is nested deep": ext(Code.PATTERN, "(" * 5000 + ")" * 5000, 0),
    "a pattern that prints": ext(Code.PATTERN, "a", int(re.DEBUG)),
    "a pattern with flags that there are not": ext(Code.PATTERN, "a", 2**40),
    "a pattern of bytes with flags of text": ext(Code.PATTERN, b"a", int(re.UNICODE)),
    "an array of objects": ext(Code.NDARRAY, "|O", [1], "C", b"\0" * 8),
    "an array of objects in a record": ext(Code.NDARRAY, "f8, O", [1], "C", b"\0" * 16),
    "an array without end": ext(Code.NDARRAY, "<f8", [2**40, 2**40], "C", b"\0" * 8),
    "an array of negative length": ext(Code.NDARRAY, "<f8", [-1], "C", b""),
    "an array of a call": ext(Code.NDARRAY, "__import__('os')", [1], "C", b""),
    "a number of objects": ext(Code.NUMPY_SCALAR, "|O", b"\0" * 8),
    # -- exceptions
    "an error by a call": ext(Code.ERROR, "eval", ["1/0"]),
    "an error that ends the process": ext(Code.ERROR, "SystemExit", [1]),
    "an error of another class": ext(
        Code.ERROR, "ValueError", ["x"], {"__class__": ormsgpack.Ext(Code.CLASS, tag(Declined).encode())}
    ),
    "an error with a cause": ext(Code.ERROR, "ValueError", ["x"], {"__cause__": within(Code.ERROR, "KeyError", [1])}),
    "an error with a state that is no dict": ext(Code.ERROR, "ValueError", ["x"], [1]),
    "an error with odd attributes": ext(Code.ERROR, "ValueError", ["x"], within(Code.DICT, 1, 2)),
    "an error that is wrongly called": ext(Code.ERROR, "UnicodeDecodeError", ["x"]),
    "an error that was recorded": ext(Code.ERROR, "os.system", "id", "os.system('id')"),
    "a group of anything": ext(Code.ERROR, "ExceptionGroup", ["x", [5]]),
    # -- size
    "nested lists": VERSION + b"\x91" * 100_000 + b"\x01",
    "nested dicts": VERSION + b"\x81\xa1a" * 100_000 + b"\x01",
    "nested tuples": nested(Code.TUPLE, 500),
    "nested errors": nested(Code.ERROR, 70),
    "a list without end": VERSION + b"\xdd\xff\xff\xff\xff",
    "a dict without end": VERSION + b"\xdf\xff\xff\xff\xff",
    "text without end": VERSION + b"\xdb\xff\xff\xff\xff",
    "bytes without end": VERSION + b"\xc6\xff\xff\xff\xff",
    "an extension without end": VERSION + b"\xc9\xff\xff\xff\xff\x01",
    "a number of a megabyte": raw(Code.BIG_INT, b"\x7f" * 1_000_000),
    "a range without end": ext(Code.RANGE, 0, within(Code.TUPLE), 1),
    "a deque without room": ext(Code.DEQUE, -1, []),
    "something behind the end": frame(1) + b"\x01",
    "cut off": frame([1, "abc"])[:-1],
}
PLAIN = (
    *KINDS,
    list,
    bool,
    float,
    str,
    bytes,
    type(None),
    RecordedError,
    RawValue,
    # of the allowed classes
    Trap, Order, Form, Colour, Point, Tags, Declined, BaseMessage,
)  # fmt: skip

# -- watching ------------------------------------------------------------------------------------------------------

SOON_S = 5.0
_watched: list[str] | None = None
if importlib.util.find_spec("numpy"):
    importlib.import_module("numpy")  # which else the first array would do
_STIRS = (
    "import",
    "exec",
    "compile",
    "open",
    "os.",
    "subprocess.",
    "socket.",
    "pickle.",
    "marshal.",
    "ctypes.",
    "shutil.",
)
_OWN = ("numpy", "tzdata")
"""Named by our code, not by a row: where an array or a time zone is asked for, that is where it would come from."""


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _watched is None or not event.startswith(_STIRS):
        return
    if event == "import" and str(args[0]).partition(".")[0] in _OWN:
        return
    if event == "compile" and args[0] == b"def foo(iterable=()): pass":
        return  # Python's own way to read the signature of `list`, a default factory
    if event in ("open", "os.listdir", "os.scandir") and any(at in str(args[0]) for at in ("zoneinfo", *_OWN)):
        return
    _watched.append(f"{event} {args!r}")


@pytest.fixture(scope="module", autouse=True)
def audited() -> None:
    sys.addaudithook(_audit)  # there is no way to take one back; it sleeps unless `watched` is used


@contextmanager
def watched(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing stirs within the block, nothing new is imported, nothing is printed, and it is over soon."""
    global _watched
    woken.clear()
    before, began = set(sys.modules), time.monotonic()
    stirred: list[str] = []
    _watched = stirred
    try:
        yield
    finally:
        _watched = None
    new = {name for name in set(sys.modules) - before if not name.startswith(_OWN)}
    assert (stirred, new, woken, capfd.readouterr().out) == ([], set(), [], "")
    assert time.monotonic() - began < SOON_S


def lies_there(value: Any, depth: int = 0) -> None:
    """Made of what may be loaded, and of nothing else. Asked for by class alone: a value of a Trap's must not stir."""
    assert isinstance(value, (*PLAIN, type)) or type(value).__module__ == "numpy" or isinstance(value, Exception), value
    assert not isinstance(value, type) or value.__module__ in ("builtins", __name__) or value in TYPES
    if depth < 100 and type(value) in (list, tuple, dict, set, collections.deque):
        for member in [*value.items()] if type(value) is dict else value:
            lies_there(member, depth + 1)


def loaded(row: bytes, unknown: Any = "refuse") -> Any:
    """The value, or one of the two errors as one."""
    try:
        return decode(row, TYPES, path="state", unknown=unknown)
    except (StoreCorruptError, UnknownTypeError) as refused:
        return refused


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("unknown", ["refuse", "raw"])
def test_a_hostile_row_does_nothing(row: str, unknown: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """It is refused, or it is data; for whoever goes on with it, and for whoever only looks."""
    with watched(capfd):
        value = loaded(ROWS[row], unknown)
        lies_there(value)

    assert unknown == "refuse" or not isinstance(value, UnknownTypeError)
    assert not isinstance(value, StoreCorruptError | UnknownTypeError) or "state" in str(value)


NAMED = [row for row in ROWS if any(call in row for call in CALLS) and "langgraph" not in row]


@pytest.mark.parametrize("row", NAMED)
def test_a_class_that_was_not_allowed_is_never_found(row: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Refused by its name, as it was written; as a raw value it is only the name."""
    with watched(capfd):
        refused, shown = loaded(ROWS[row]), loaded(ROWS[row], "raw")

    name = row.rpartition(" ")[2].replace(":", ".")
    assert isinstance(refused, UnknownTypeError)
    assert isinstance(shown, RawValue)
    assert refused.type_name == shown.type_name == name


@pytest.mark.parametrize("row", ["a pickle", "a row of langgraph's", "json", "another version", "nothing"])
def test_what_is_no_frame_is_refused_at_its_first_byte(row: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody's serializer is tried on what we have not written."""
    with watched(capfd):
        refused = loaded(ROWS[row])

    assert "no version that we know" in str(refused)


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/passwd", "Europe/../../x"])
def test_a_zone_is_looked_for_where_zones_are(key: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A key that is no plain name does not get as far as a file."""
    with watched(capfd):
        refused = loaded(raw(Code.ZONEINFO, key.encode()))

    assert "no key of a time zone" in str(refused)


@pytest.mark.parametrize("name", ["__class__", "__cause__", "__traceback__", "__dict__", "__suppress_context__"])
def test_an_error_gets_no_class_and_no_cause_from_a_row(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What may be set on one is what somebody may have set."""
    with watched(capfd):
        refused = loaded(ext(Code.ERROR, "ValueError", ["x"], {name: None}))
        kept = loaded(ext(Code.ERROR, "ValueError", ["x"], {"__notes__": ["see"], "code": 5}))

    assert "an attribute that no exception has" in str(refused)
    assert (kept.__notes__, kept.code) == (["see"], 5)


def test_the_watch_sees() -> None:
    """The hook itself: an import, an opened file and a woken class are seen."""
    global _watched
    stirred: list[str] = []
    _watched = stirred
    try:
        open(__file__).close()
        exec("1")
        Order(1, [])
    finally:
        _watched = None

    assert {event.partition(" ")[0] for event in stirred} >= {"open", "exec", "compile"}
    assert woken.pop() == "__post_init__"
