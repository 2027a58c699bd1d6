"""Bytes of state: what goes in comes out, or is refused with its path; bytes from a stranger do nothing."""

from __future__ import annotations

import collections
import dataclasses
import enum
import pathlib
import re
import struct
import sys
import threading
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from ipaddress import ip_address, ip_interface, ip_network
from math import copysign, isnan
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import ormsgpack
import pydantic
import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send

from ninelives.errors import StoreCorruptError, UnknownTypeError
from ninelives.stores.codec import (
    DEFAULT_TYPES,
    RecordedError,
    TypeRegistry,
    UnstorableError,
    decode,
    encode,
)
from ninelives.stores.codec.values import VERSION, Code


class Colour(enum.Enum):
    RED = (1, 0)
    CRIMSON = RED


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Level(enum.StrEnum):
    HIGH = "high"


class Point(NamedTuple):
    x: int
    y: int = 0


class PointWithNote(Point):
    """A named tuple that has attributes as well."""


@dataclasses.dataclass
class Row:
    rows: list[Any]
    made: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.made = len(self.rows)

    @cached_property
    def total(self) -> int:
        return sum(self.rows)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    name: str
    parent: Frozen | None = None


class Plain:
    __slots__ = ("__hidden", "shown")

    def __init__(self, shown: int, hidden: int) -> None:
        self.shown, self.__hidden = shown, hidden

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and repr(self) == repr(other)

    def __repr__(self) -> str:
        return f"Plain({self.shown}, {self.__hidden})"

    __hash__ = None  # type: ignore[assignment]


class WithOwnState:
    def __init__(self, url: str) -> None:
        self.url, self.connection = url, threading.Lock()

    def __getstate__(self) -> str:
        return self.url

    def __setstate__(self, state: str) -> None:
        self.url, self.connection = state, threading.Lock()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WithOwnState) and self.url == other.url

    def __repr__(self) -> str:
        return f"WithOwnState({self.url})"

    __hash__ = None  # type: ignore[assignment]


class MyDict(dict[Any, Any]):
    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("not to be asked")

    def items(self) -> Any:
        raise AssertionError("not to be asked")


class MyStr(str):
    note: str

    def __str__(self) -> str:
        return "another text"


class MyList(list[Any]):
    __slots__ = ()


class MyError(ValueError):
    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}!")
        self.code = code


class Outer:
    class Inner(pydantic.BaseModel):
        n: int


class Account(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    owner: str = "nobody"
    home: pydantic.HttpUrl | None = None
    _seen: int = pydantic.PrivateAttr(default=0)


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


class Rebuilt:
    def __reduce__(self) -> Any:
        return (Rebuilt, ())


OURS = [
    Colour, Rights, Level, Point, PointWithNote, Row, Frozen, Plain, WithOwnState, MyDict, MyStr, MyList, MyError,
    Outer.Inner, Account, Login, Rebuilt,
]  # fmt: skip
TYPES = DEFAULT_TYPES | OURS


def again(value: Any, types: TypeRegistry = TYPES) -> Any:
    return decode(encode(value, types), types)


# -- what comes back ----------------------------------------------------------------------------------------------

PLAIN: list[Any] = [
    None, True, 0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, -(2**63) - 1, 10**400, -(10**400), 1.5, float("inf"),
    "", "text", "ü→🐈", "č and Ż", "\ud800", "a\udfffb", b"", b"\x00\xff", bytearray(b"ab"), [], [[[]]], {}, (), ((),),
    {"a": 1, "b": [2, {"c": None}]}, {"b": 1, "a": 2}, {1: "int", "1": "str"}, {None: 1, (1, 2): 3, 2.5: 4, True: 5},
    {b"k": 1, frozenset({1}): 2, "\ud800": 3, 2**70: 4, Level.HIGH: 5}, {uuid.UUID(int=1): datetime(2024, 1, 1)},
    {datetime(2024, 1, 1): 1}, {1, "a", (2,)}, frozenset({frozenset(), b""}), {"deep": [({"x": {1}},)]},
    [b"bytes", [bytearray(b"not bytes")]], (bytearray(b"in a tuple"),),
    1 + 2j, Fraction(1, 3), Fraction(10**30, 7), Decimal("1.10"), Decimal("-Infinity"), range(0, 10, 3), slice(1, None),
    uuid.uuid4(), re.compile("a(b)?", re.I | re.M), re.compile(rb"\d"),
    ip_address("10.0.0.1"), ip_network("10.0.0.0/8"), ip_interface("10.0.0.1/8"), ip_address("::1%eth0"),
    ip_network("fe80::/64"), ip_interface("fe80::1/64"),
    pathlib.PurePosixPath("/a/../b"), pathlib.PureWindowsPath("C:/x"), pathlib.Path("here"), pathlib.Path(),
    date(2024, 2, 29), time(1, 2, 3, 4), time(1, tzinfo=UTC), timedelta(days=-1, microseconds=1), UTC,
    datetime.min, datetime(2024, 1, 1, tzinfo=UTC), timezone(timedelta(hours=-3, seconds=7), "odd"),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(minutes=90))), datetime(2024, 7, 1, tzinfo=ZoneInfo("Europe/Rome")),
    collections.deque([1, [2]], maxlen=5), collections.deque(), collections.OrderedDict(b=1, a=2),
    collections.Counter("abba"), collections.Counter({"not a number": "x"}), collections.defaultdict(None, a=1),
    int, dict, Outer.Inner,
]  # fmt: skip
OF_CLASSES: list[Any] = [
    Colour.RED, Rights.READ, Rights.READ | Rights.WRITE, Rights(0), Level.HIGH, Point(1), Point(1, 2),
    [Point(1), (1, 0)], Row([1, "x"]), Frozen("a", Frozen("b")), Plain(1, 2), WithOwnState("db"), MyDict(a=1),
    MyDict({1: 2}), MyStr("text"), MyList([1, [2]]), Outer.Inner(n=1), Account(),
    Account.model_validate({"owner": "me", "extra_one": [1]}), Account(home=pydantic.HttpUrl("https://a.b/c?d=e")),
]  # fmt: skip
FRAMEWORK: list[Any] = [
    HumanMessage("hi"), AIMessage("a", id="1", tool_calls=[{"name": "f", "args": {"x": (1,)}, "id": "c"}]),
    AIMessageChunk(content="part", chunk_position="last"), ToolMessage("r", tool_call_id="c", artifact=Row([1])),
    RemoveMessage(id="1"), HumanMessage([{"type": "text", "text": "x"}]), AIMessage("\ud800"), HumanMessage("x", own=1),
    Document("text", metadata={"n": 1}), AIMessage("text").text,
    Send("node", {"messages": [HumanMessage("x")]}), Send("node", 1, timeout=3.5),
    Overwrite([1]), Interrupt({"q": 1}, id="x"),
    Command(update={"a": (1, 2)}, goto=[Send("n", 1)], resume={"id": True}), _DeltaSnapshot([HumanMessage("x")]),
]  # fmt: skip


@pytest.mark.parametrize("value", [*PLAIN, *OF_CLASSES, *FRAMEWORK], ids=lambda value: type(value).__name__)
def test_what_comes_back_is_what_went_in(value: Any) -> None:
    """A value comes back equal, of the same class, and with the same contents in the same order."""
    result = again(value)

    assert type(result) is type(value)
    assert result == value
    assert repr(result) == repr(value) or isinstance(value, set | frozenset)
    assert encode(result, TYPES) == encode(value, TYPES)


def test_floats_keep_their_bits() -> None:
    """NaN and the sign of zero survive."""
    nan, zero = again([float("nan"), -0.0])

    assert isnan(nan)
    assert copysign(1, zero) == -1


def test_containers_behave_as_before() -> None:
    """Keys keep their types, a deque its limit, a defaultdict its factory."""
    value = {"d": collections.defaultdict(list, a=[1]), "q": collections.deque([1, 2], maxlen=2), "k": {1: "x"}}

    result = again(value)
    result["d"]["new"].append(1)
    result["q"].append(3)

    assert result["d"]["new"] == [1]
    assert list(result["q"]) == [2, 3]
    assert type(next(iter(result["k"]))) is int


def test_mutable_elements_are_not_shared() -> None:
    """An object that occurs twice comes back as two, so changing one leaves the other."""
    row = Row([1])

    first, second = again([row, row])
    first.rows.append(2)

    assert second.rows == [1]


def test_fold_and_named_zone_survive() -> None:
    """The second of two equal wall clock times stays the second."""
    late = datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Rome"))

    result = again(late)

    assert (result.fold, result.tzinfo, result.utcoffset()) == (1, late.tzinfo, timedelta(hours=1))


def test_a_model_keeps_what_pydantic_hides() -> None:
    """Extra, private and unset are kept, and nothing is validated on the way back."""
    account = Account.model_validate({"owner": "me", "extra_one": 1})
    account._seen = 7
    account.owner = 5  # type: ignore[assignment]

    result = again(account)

    assert result.owner == 5
    assert result._seen == 7
    assert result.model_extra == {"extra_one": 1}
    assert result.model_fields_set == {"owner", "extra_one"}


def test_every_message_class_is_allowed() -> None:
    """Whatever LangChain exports as a message class may be stored by default."""
    classes = [cls for cls in DEFAULT_TYPES if issubclass(cls, BaseMessage)]

    assert {AIMessage, AIMessageChunk, ToolMessage, RemoveMessage} < set(classes)


def test_attributes_beside_the_fields_are_kept() -> None:
    """What was set on an object later, or cached on it, comes back; so does a subclass's own attribute."""
    row, text, point = Row([1, 2]), MyStr("a"), PointWithNote(1, 2)
    assert row.total == 3
    row.later, text.note, point.note = "x", "n", "p"  # type: ignore[attr-defined]

    row, text, point = again([row, text, point])

    assert vars(row) == {"rows": [1, 2], "made": 2, "total": 3, "later": "x"}
    assert (type(text), text.note, text[:]) == (MyStr, "n", "a")
    assert (type(point), point.note, tuple(point)) == (PointWithNote, "p", (1, 2))


def test_nothing_is_initialised_again() -> None:
    """A field without init keeps its value: `__init__` and `__post_init__` do not run on loading."""
    row = Row([1])
    row.made = 99

    assert again(row).made == 99


def test_equal_values_make_equal_bytes() -> None:
    """The order in which a set or an object's attributes were filled does not show in the bytes."""
    words = [f"word {i}" for i in range(50)]
    row, same = Row([1]), Row([1])
    same.__dict__ = dict(reversed(vars(same).items()))

    assert encode(set(words), TYPES) == encode(set(reversed(words)), TYPES)
    assert encode(row, TYPES) == encode(same, TYPES)


def test_a_class_may_gain_fields_with_defaults() -> None:
    """Values stored before a deploy load after it; new fields have their defaults."""
    old_model = pydantic.create_model("Report", __module__="app", title=(str, ...))
    new_model = pydantic.create_model("Report", __module__="app", title=(str, ...), tags=(list, ["new"]))
    old_class = dataclasses.make_dataclass("Job", ["name"], namespace={"__module__": "app"}, slots=True)
    new_fields: Any = ["name", ("tags", list, dataclasses.field(default_factory=list)), ("n", int, 3)]
    new_class = dataclasses.make_dataclass("Job", new_fields, namespace={"__module__": "app"}, slots=True)
    stored = encode([old_model(title="a"), old_class("b")], TypeRegistry([old_model, old_class]))

    report, job = decode(stored, TypeRegistry([new_model, new_class]))

    assert report == new_model(title="a", tags=["new"])
    assert job == new_class("b", [], 3)


# -- exceptions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x", 1), KeyError((1, 2)), FileNotFoundError(2, "gone", "file"),
        ImportError("no", name="m", path="p"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        ExceptionGroup("several", [ValueError("a"), OSError(1, "b")]),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_builtin_exceptions_keep_their_class(error: Exception) -> None:
    """A builtin exception comes back as itself, with its arguments, attributes and notes."""
    error.add_note("seen at night")

    result = again(error)

    assert type(result) is type(error)
    assert repr(result) == repr(error)
    assert str(result) == str(error)
    assert vars(result).keys() == vars(error).keys()
    assert result.__notes__ == ["seen at night"]


def test_other_exceptions_are_recorded() -> None:
    """An exception whose class is not allowed, or whose arguments are no data, goes on printing like the original."""
    unknown = type("BrokenError", (RuntimeError,), {"__module__": "app"})("it broke")

    recorded = again(again(unknown))
    with_object = again(ValueError(object()))

    assert type(recorded) is RecordedError
    assert (recorded.type_name, str(recorded), repr(recorded)) == ("app.BrokenError", "it broke", repr(unknown))
    assert with_object.type_name == "builtins.ValueError"


def test_an_allowed_exception_keeps_its_class() -> None:
    """An allowed exception comes back as its own class without its `__init__` being called."""
    result = again(MyError("what", 5))

    assert (type(result), result.args, result.code) == (MyError, ("what!",), 5)


# -- what is refused when written -------------------------------------------------------------------------------------


class Stranger:
    """A class that nobody allowed."""


class StrangerDict(dict[Any, Any]):
    """A subclass that nobody allowed."""


def with_late_attribute() -> Row:
    row = Row([])
    row.made = {"x": Stranger()}  # type: ignore[assignment]
    return row


class StrangerSet(frozenset[Any]):
    """Another."""


REFUSED = [
    ("", Stranger(), "Stranger"),
    ("[1]", ["a", Stranger()], "Stranger"),
    (".a[0][1]", {"a": [(1, Stranger())]}, "Stranger"),
    ("['not a name']", {"not a name": Stranger()}, "Stranger"),
    ("[1][0]", {1: [Stranger()]}, "Stranger"),
    ("[0]", collections.deque([Stranger()]), "Stranger"),
    ("{...}", {1, StrangerSet()}, "StrangerSet"),
    (".artifact.rows[0]", ToolMessage("r", tool_call_id="c", artifact=Row([Stranger()])), "Stranger"),
    (".made.x", with_late_attribute(), "Stranger"),
    ("[0]", [StrangerDict()], "StrangerDict"),
    (".f", {"f": len}, "builtin_function_or_method"),
    (".c", {"c": Stranger}, "Stranger"),
    (".m", {"m": memoryview(b"x")}, "memoryview"),
    (".e", {"e": ...}, "ellipsis"),
]


@pytest.mark.parametrize(("path", "value", "name"), REFUSED, ids=lambda part: part if isinstance(part, str) else "")
def test_unknown_types_are_refused_with_their_path(path: str, value: Any, name: str) -> None:
    """What could not be loaded again is refused when it is written, with the way to it and what to do."""
    with pytest.raises(UnknownTypeError, match="allow") as caught:
        encode(value, TYPES, path="state")

    assert caught.value.path == f"state{path}"
    assert caught.value.type_name.endswith(f".{name}")


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (".password", Login(password=pydantic.SecretStr("hunter2")), "secret"),
        ("[0]", [collections.defaultdict(lambda: 1)], "default_factory"),
        ("", Rebuilt(), "__reduce__"),
    ],
    ids=["secret", "factory", "reduce"],
)
def test_some_values_are_refused_whatever_is_allowed(path: str, value: Any, why: str) -> None:
    """A secret, a factory nobody can find again, a class that wants to be called: refused, and the reason given."""
    with pytest.raises(UnstorableError, match=why) as caught:
        encode(value, TYPES)

    assert caught.value.path == path
    assert "hunter2" not in str(caught.value)


def test_a_broken_value_is_named() -> None:
    """A value whose own code fails while it is read is refused with its path, not with that code's error alone."""
    value = WithOwnState("db")
    del value.url

    with pytest.raises(UnstorableError, match=r"^state\[0\]: .*AttributeError"):
        encode([value], TYPES, path="state")


def test_cycles_and_endless_depth_are_refused() -> None:
    """A value that contains itself, by whatever way, or has no bottom is refused with a path: no RecursionError."""
    cycle: list[Any] = [1, {}]
    cycle[1]["me"] = cycle
    through_tuple: list[Any] = []
    through_tuple.append((through_tuple,))
    deep_list: Any = []
    deep_tuple: Any = ()
    for _ in range(5000):
        deep_list, deep_tuple = [deep_list], (deep_tuple,)

    for value, why in [(cycle, "itself"), (through_tuple, "itself"), (deep_list, "deep"), (deep_tuple, "deep")]:
        with pytest.raises(UnstorableError, match=why) as caught:
            encode(value, TYPES, path="state")
        assert caught.value.path.startswith("state[")


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"a": v}, lambda v: (v,), lambda v: {1: v}])
def test_what_is_written_can_be_read_however_deep(wrap: Any) -> None:
    """There is no depth at which writing succeeds and reading does not."""
    value: Any = "\ud800"
    for _ in range(300):
        try:
            frame = encode(value, TYPES)
        except UnstorableError:
            break
        assert encode(decode(frame, TYPES), TYPES) == frame
        value = wrap(value)
    else:
        pytest.fail("no limit was found")


def test_an_interrupt_from_the_keyboard_is_not_swallowed() -> None:
    """Ctrl-C while a value is read stops the program, though the encoder beneath hides what is raised."""

    class Slow:
        def __getstate__(self) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode([Slow()], TypeRegistry([Slow]))


# -- registries --------------------------------------------------------------------------------------------------------


def test_a_registry_is_extended_without_touching_its_base() -> None:
    """What one graph allows is not allowed to another."""
    base = TypeRegistry([Row])

    copied, joined = base.copy(), base | [Point]
    copied.allow(Frozen)

    assert list(base) == [Row]
    assert Frozen in copied
    assert set(joined) == {Row, Point}


def test_subclasses_are_other_classes() -> None:
    """Allowing a class allows its instances only."""
    with pytest.raises(UnknownTypeError):
        encode(PointWithNote(1), TypeRegistry([Point]))


def test_the_older_of_two_namesakes_is_refused() -> None:
    """A value whose class was replaced by another of the same name would come back as that other, so it is refused."""
    old, new = (type("Twin", (), {"__module__": "app"}) for _ in range(2))
    types = TypeRegistry([old, new])

    assert type(again(new(), types)) is new
    with pytest.raises(UnknownTypeError):
        encode(old(), types)


def test_only_classes_can_be_allowed() -> None:
    """A function or a hint is turned away when it is allowed, not when a value comes."""
    for thing in (len, list[int], "Row"):
        with pytest.raises(TypeError, match="not a class"):
            TypeRegistry().allow(thing)  # type: ignore[arg-type]


def test_allowing_while_others_encode() -> None:
    """Threads that encode are not disturbed by one that allows more classes."""
    types = TypeRegistry([Row])
    more = [type(f"More{i}", (), {"__module__": "app"}) for i in range(200)]
    failures: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(300):
                assert again(Row([1]), types) == Row([1])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for cls in more:
        types.allow(cls)
    for thread in threads:
        thread.join()

    assert failures == []
    assert set(more) < set(types)


# -- bytes from a stranger ---------------------------------------------------------------------------------------------


def tagged(code: int, parts: Any) -> bytes:
    """A frame with one extension in it, as an attacker might write it."""
    body = parts if isinstance(parts, bytes) else ormsgpack.packb(parts)
    return VERSION + ormsgpack.packb(ormsgpack.Ext(code, body))


def nested(code: int, levels: int, opening: bytes = b"") -> bytes:
    """Extensions within one another, each with `opening` before the next."""
    body = b"\x90"
    for _ in range(levels):
        body = opening + b"\xc9" + struct.pack(">Ib", len(body), code) + body
    return VERSION + body


NAMES = [
    "os:system", "posix:system", "builtins:eval", "builtins:exec", "builtins:object", "builtins:type", "builtins:str",
    "subprocess:Popen", "pickle:loads", "importlib:import_module", "this:s", "", ":", "os", "types:FunctionType",
]  # fmt: skip
CALLS = [
    tagged(code, [name, *rest])
    for code in (Code.ENUM, Code.NAMED_TUPLE, Code.MODEL, Code.OBJECT, Code.DERIVED)
    for name in NAMES
    for rest in ([], ["touch pwned"], [{"args": ["touch pwned"]}], [["touch pwned"], None])
] + [tagged(Code.CLASS, name.encode()) for name in NAMES if name != "builtins:str"]
ODD_PARTS: list[Any] = [
    [], {}, None, 1, "x", [None] * 4, [[]], [{}], ["x", {}], [1, 2, 3], ["ValueError", 5], ["x", "y"],
]  # fmt: skip
HOSTILE = [
    b"", b"\x00", b"\x02\xc0", b"\xff" * 20, VERSION, VERSION + b"\xc1", VERSION + b"\xa1\xff",
    VERSION + b"\xdd\xff\xff\xff\xff", VERSION + b"\xdf\xff\xff\xff\xff", VERSION + b"\xc6\xff\xff\xff\xffa",
    VERSION + b"\xc9\xff\xff\xff\xff\x01a", VERSION + b"\xdd\xff\xff\xff\xff" + b"\x01" * 1000,
    VERSION + b"\x81\x01\x02", VERSION + b"\x81\xc7\x00\x01\x01", VERSION + b"\x91" * 100_000,
    nested(Code.TUPLE, 500), nested(Code.TUPLE, 500, b"\x91"),
    nested(Code.SET, 3, b"\x91"), nested(99, 1), nested(-1, 1),
    tagged(Code.SET, [[]]), tagged(Code.DICT, [[], 1]), tagged(Code.DICT, [1]), tagged(Code.UUID, b"short"),
    tagged(Code.DECIMAL, b"one"), tagged(Code.FRACTION, [1, 0]), tagged(Code.RANGE, [0, 1, 0]),
    tagged(Code.DATE, [0, 0, 0]), tagged(Code.PATTERN, ["(" * 5000, 0]), tagged(Code.PATTERN, ["(", 0]),
    tagged(Code.PATH, ["System", "x"]), tagged(Code.ZONEINFO, b"../../etc/passwd"),
    tagged(Code.ZONEINFO, b"/etc/passwd"), tagged(Code.ZONEINFO, b"No/Such"), tagged(Code.DEFAULT_DICT, ["eval", {}]),
    tagged(Code.DEFAULT_DICT, [["list"], {}]),
    tagged(Code.ERROR, ["SystemExit", [1]]), tagged(Code.ERROR, ["eval", ["1"]]), tagged(Code.SURROGATES, b"\xff"),
    tagged(Code.NDARRAY, ["O", [1], "C", b"\x00" * 8]), tagged(Code.NDARRAY, ["<f8", [2**60], "C", b""]),
    *CALLS,
]  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data[:24].hex())
def test_hostile_bytes_do_nothing(data: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Bytes that no writer of ours makes give one of two errors; nothing is imported, called or created."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises((StoreCorruptError, UnknownTypeError)):
        decode(data, TYPES)

    assert "this" not in sys.modules
    assert list(tmp_path.iterdir()) == []


def test_depth_does_not_exhaust_the_stack() -> None:
    """Sixty thousand levels, in steps that are each allowed, do not bring down a process with a small stack."""
    results: list[Any] = []
    before = threading.stack_size(2 * 1024 * 1024)
    try:
        thread = threading.Thread(
            target=lambda: results.append(decode(nested(Code.TUPLE, 60, b"\x91" * 1000), TYPES)),
        )
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)

    assert len(results) == 1


@pytest.mark.parametrize("parts", ODD_PARTS, ids=repr)
@pytest.mark.parametrize("code", [code for code in Code], ids=lambda code: code.name)
def test_odd_parts_do_nothing_else(code: Code, parts: Any) -> None:
    """Every kind, given parts that do not fit it, gives a value or one of the two errors."""
    for data in (tagged(code, parts), tagged(code, b"\xff\xfe")):
        try:
            decode(data, TYPES)
        except (StoreCorruptError, UnknownTypeError):
            continue


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_allowed_classes_with_odd_parts(cls: type) -> None:
    """An allowed class, given a state that does not fit it, gives a value or one of the two errors."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    for code in (Code.ENUM, Code.NAMED_TUPLE, Code.MODEL, Code.OBJECT, Code.DERIVED):
        for parts in ODD_PARTS:
            with_name = [name, *(parts if isinstance(parts, list) else [parts])]
            try:
                decode(tagged(code, with_name), TYPES)
            except (StoreCorruptError, UnknownTypeError):
                continue


def test_damaged_frames_give_two_errors_only() -> None:
    """Cut anywhere, a frame is corrupt; with a bit turned it is another value, or one of the two errors."""
    frame = encode([*OF_CLASSES, *FRAMEWORK, {1: bytearray(b"x")}, UTC, ValueError("x")], TYPES)

    for length in range(len(frame)):
        with pytest.raises((StoreCorruptError, UnknownTypeError)):
            decode(frame[:length], TYPES)
    for position in range(len(frame)):
        changed = bytearray(frame)
        changed[position] ^= 1 << position % 8
        try:
            decode(bytes(changed), TYPES)
        except (StoreCorruptError, UnknownTypeError):
            continue


def test_reading_names_the_type_that_is_not_allowed() -> None:
    """A stored value of a class that is not allowed here is not built, and its class is named."""
    stored = encode({"rows": [Row([1])]}, TYPES)

    with pytest.raises(UnknownTypeError, match=r"^rows\.rows\[0\]: .*\.Row is not a type that may be loaded") as caught:
        decode(stored, DEFAULT_TYPES, path="rows")

    assert caught.value.type_name == f"{Row.__module__}.Row"


# -- numpy ---------------------------------------------------------------------------------------------------------


def test_numpy_arrays_and_scalars() -> None:
    """Arrays keep dtype, shape, order and can be written to; scalars stay scalars; objects are refused."""
    np = pytest.importorskip("numpy")
    arrays = [np.arange(6).reshape(2, 3), np.zeros((0, 3)), np.array(5.5), np.asfortranarray(np.eye(3))[:, :2]]
    arrays += [np.array(["a", "bc"]), np.array(["2024-01-01"], dtype="M8[D]"), np.arange(8)[::2], np.array([1], ">i2")]
    scalars = [np.float64(1.5), np.int8(-1), np.bool_(True), np.str_("x"), np.datetime64("2024-01-01", "s")]

    for array, result in zip(arrays, again(arrays), strict=True):
        assert (result.dtype, result.shape) == (array.dtype, array.shape)
        assert result.flags.fnc == array.flags.fnc
        assert (result == array).all()
        assert result.flags.writeable
    assert [(type(x), x) for x in again(scalars)] == [(type(x), x) for x in scalars]
    for refused in (np.array([object()]), np.zeros(1, dtype="i4,f8")):
        with pytest.raises(UnstorableError, match="dtype"):
            encode(refused, TYPES)


def test_numpy_is_not_imported_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program without numpy never loads it to refuse a type."""
    monkeypatch.delitem(sys.modules, "numpy", raising=False)

    with pytest.raises(UnknownTypeError):
        encode(Stranger(), TYPES)

    assert "numpy" not in sys.modules
