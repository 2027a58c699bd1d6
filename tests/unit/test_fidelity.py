"""What comes back is what was stored; or the difference is told when it is written, or refused; never found later."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import logging
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Interrupt, Send

from agents import Home, config, home_in
from ninelives import ConfigError, FidelityError, UnknownTypeError
from ninelives.config import Settings, StateSettings
from ninelives.errors import StoreCorruptError
from ninelives.stores.codec import (
    DEFAULT_TYPES,
    Change,
    RawValue,
    RecordedError,
    TypeRegistry,
    decode,
    difference,
    encode,
    fidelity,
)


class Refund(Exception):
    """A class that nobody allowed."""


class Declined(Exception):
    """A class that is allowed."""


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: Any
    y: Any = 0


@dataclasses.dataclass
class Box:
    content: Any
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Stone:
    content: Any


class Form(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    name: str = ""
    _draft: Any = pydantic.PrivateAttr(default=None)


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left: Any) -> None:
        self.left = left


class Tags(list[Any]):
    label = ""


ALLOWED = [Declined, Colour, Point, Box, Stone, Form, Slotted, Tags]
TYPES = DEFAULT_TYPES | ALLOWED


def strict() -> TypeRegistry:
    return TypeRegistry(TYPES, strict=True)


@pytest.fixture(autouse=True)
def nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fidelity, "_told", set())


# -- comparing -----------------------------------------------------------------------------------------------------


def with_attribute(value: Any, **attributes: Any) -> Any:
    for name, attribute in attributes.items():
        setattr(value, name, attribute)
    return value


def drafted(draft: Any) -> Form:
    form = Form(name="a")
    form._draft = draft
    return form


def caused(cause: BaseException | None) -> ValueError:
    error = ValueError("a")
    error.__cause__ = cause
    return error


DIFFERENT: list[tuple[Any, Any, str, str, str]] = [
    (1, True, "", "int", "bool"),
    (1, 2, "", "int", "another int"),
    (1.0, -1.0, "", "float", "another float"),
    (0.0, -0.0, "", "float", "another float"),
    (float("nan"), 1.0, "", "float", "another float"),
    (complex(1, 2), complex(1, 3), ".imag", "float", "another float"),
    (Decimal("1.0"), Decimal("1.00"), "", "decimal.Decimal", "another Decimal"),
    ("a", b"a", "", "str", "bytes"),
    ([1, (2,)], [1, [2]], "[1]", "tuple", "list"),
    ([1], [1, 2], "", "list of 1", "one of 2"),
    ({"a": {"b-c": 1}}, {"a": {"b-c": 2}}, ".a['b-c']", "int", "another int"),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ".a", "str", "another str"),
    ({1: "x"}, {True: "x"}, "[1]", "int", "bool"),
    ({"a": 1}, {}, "", "dict of 1", "one of 0"),
    ({1, 2}, {1}, "", "set of 2", "one of 1"),
    ({1}, {1.0}, "{...}", "int", "float"),
    (collections.OrderedDict(a=1), {"a": 1}, "", "collections.OrderedDict", "dict"),
    (collections.defaultdict(list), collections.defaultdict(set), ".default_factory", "type", "another type"),
    (collections.deque([1], 3), collections.deque([1]), ".maxlen", "int", "None"),
    (with_attribute(collections.Counter(), note=1), collections.Counter(), ".note", "int", "nothing"),
    (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1), "", "datetime.datetime", "another datetime"),
    (timezone(timedelta(0), "X"), UTC, "", "datetime.timezone", "another timezone"),
    (timedelta(1), timedelta(2), "", "datetime.timedelta", "another timedelta"),
    (re.compile("a"), re.compile("a", re.I), "", "re.Pattern", "another Pattern"),
    (Path("a"), Path("b"), "", "pathlib.PosixPath", "another PosixPath"),
    (uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe), uuid.UUID(int=1), ".is_safe", "uuid.SafeUUID", "another SafeUUID"),
    (Colour.RED, Colour.BLUE, "", "Colour", "another Colour"),
    (int, str, "", "type", "another type"),
    (Point(1, [2]), Point(1, [3]), "[1][0]", "int", "another int"),
    (Box(1, "a"), Box(1, "b"), ".note", "str", "another str"),
    (Slotted(1), with_attribute(Slotted(1), right=2), ".right", "nothing", "int"),
    (with_attribute(Tags([1]), label="a"), Tags([1]), ".label", "str", "another str"),
    (Form(name="a"), Form(name="b"), ".name", "str", "another str"),
    (Form(), Form(name=""), ".__pydantic_fields_set__", "set of 0", "one of 1"),
    (drafted(1), drafted(2), ".__pydantic_private__._draft", "int", "another int"),
    (ValueError("a"), ValueError("b"), ".args[0]", "str", "another str"),
    (ValueError("a"), KeyError("a"), "", "ValueError", "KeyError"),
    (with_attribute(ValueError("a"), code=1), ValueError("a"), ".code", "int", "nothing"),
    (caused(KeyError("b")), caused(None), ".__cause__", "KeyError", "None"),
    (AIMessage("a", id="1"), AIMessage("a", id="2"), ".id", "str", "another str"),
    (Send("a", [1]), Send("a", [2]), ".arg[0]", "int", "another int"),
]


@pytest.mark.parametrize(("before", "after", "path", "was", "becomes"), DIFFERENT, ids=lambda value: None)
def test_every_difference_is_seen(before: Any, after: Any, path: str, was: str, becomes: str) -> None:
    """Type, value and attribute, at any depth; told by path and in words, without the value."""
    (found, *_) = difference([{"deep": before}], [{"deep": after}], "state")

    assert (found.path, found.after) == (f"state[0].deep{path}", becomes)
    assert found.before.endswith(was)
    assert not list(difference(before, before))


def test_nan_is_nan_and_a_traceback_is_nobodys() -> None:
    """What nobody could want back in another way is no difference."""
    try:
        raise ValueError("a")
    except ValueError as caught:
        raised = caught

    assert not list(
        difference([float("nan"), complex("nan"), Decimal("sNaN")], [float("nan"), complex("nan"), Decimal("sNaN")])
    )
    assert not list(difference(raised, ValueError("a")))
    assert not list(difference({"a", "b"}, {"b", "a"}))


@pytest.mark.parametrize("make", [lambda: Box(1), lambda: {1}, lambda: Tags(), lambda: Form(), lambda: bytearray(b"x")])
def test_an_object_that_is_held_twice_is_seen(make: Callable[[], Any]) -> None:
    """One object in two places comes back as two; whoever changes one would have changed both."""
    one = make()

    (found,) = difference({"a": one, "b": [one]}, {"a": make(), "b": [make()]})

    assert (found.path, found.after) == (".b[0]", "one of its own")


@pytest.mark.parametrize("one", [[1], {"a": 1}, (1, [2]), Stone(1), AIMessage("a"), Colour.RED, Send("a", 1), Point(1)])
def test_an_object_that_nobody_changes_may_be_held_twice(one: Any) -> None:
    """What cannot be changed, what LangGraph itself holds twice, and LangChain's messages are not told."""
    assert not list(difference([one, one], [copy.deepcopy(one), copy.deepcopy(one)]))


keys = st.text(max_size=3) | st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), st.text(max_size=2))
scalars = (
    keys | st.floats() | st.binary(max_size=4) | st.decimals() | st.datetimes() | st.uuids() | st.timedeltas()
    | st.fractions() | st.sampled_from([*Colour]) | st.binary(max_size=3).map(bytearray)
)  # fmt: skip


def holding(inside: Any) -> Any:
    several = st.lists(inside, max_size=3)
    dicts = st.dictionaries(keys, inside, max_size=3)
    return (
        several | dicts | several.map(tuple) | several.map(Tags) | several.map(collections.deque)
        | dicts.map(collections.OrderedDict) | st.frozensets(keys, max_size=3) | st.sets(keys, max_size=3)
        | inside.map(Box) | inside.map(Stone) | inside.map(Point) | inside.map(Slotted) | inside.map(drafted)
        | st.text(max_size=2).map(Declined)
        | st.dictionaries(st.text(max_size=2), inside).map(lambda more: AIMessage("a", additional_kwargs=more))
    )  # fmt: skip


values = st.recursive(scalars, holding, max_leaves=8)


@given(values)
def test_nothing_differs_that_comes_back(value: Any) -> None:
    """Whatever can be stored comes back without a difference, and is taken by the strictest look."""
    assert not list(difference(value, decode(encode(value, strict()), TYPES)))


@given(values, values)
def test_two_values_differ_where_their_bytes_do(one: Any, other: Any) -> None:
    """The comparison knows nothing of the codec, and agrees with it."""
    assert (not list(difference(one, other))) == (encode(one, TYPES) == encode(other, TYPES))


def test_what_is_too_deep_to_be_compared_is_refused() -> None:
    """Under `strict` nothing goes unlooked at; else it is stored, and what it loses stays untold."""
    deep: Any = held_twice()
    for _ in range(240):
        deep = [deep]

    def with_little_stack(left: int) -> None:
        if left:
            return with_little_stack(left - 1)
        assert decode(encode(deep, TYPES), TYPES)
        with pytest.raises(UnknownTypeError, match="too deep to be compared"):
            encode(deep, strict())

    with_little_stack(300)


# -- what is kept although Python hides it ---------------------------------------------------------------------------


def missing_name() -> NameError:
    try:
        nowhere  # type: ignore[name-defined]  # noqa: B018
    except NameError as error:
        return error
    raise AssertionError


KEPT: list[Any] = [
    with_attribute(collections.OrderedDict(a=1), note=[1]),
    with_attribute(collections.Counter("ab"), note="x"),
    uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe),
    uuid.UUID(int=5, is_safe=uuid.SafeUUID.unsafe),
    uuid.UUID(int=5),
    missing_name(),
    with_attribute(ValueError("a"), __notes__=["see"], code=5),
    ExceptionGroup("several", [ValueError(1), KeyError("x")]),
    Box(1, "not compared"),
    drafted([1]),
    Form.model_validate({"name": "a", "more": (1, 2)}),
    with_attribute(Tags([1]), label="mine"),
    Declined("no"),
]


@pytest.mark.parametrize("value", KEPT, ids=lambda value: type(value).__name__)
def test_what_is_easily_forgotten_is_kept(value: Any) -> None:
    """Attributes beside the content, private ones, notes: they come back, also under the strictest look."""
    assert not list(difference(value, decode(encode(value, strict()), TYPES)))


# -- telling -------------------------------------------------------------------------------------------------------


def raised_from(outer: Exception) -> Exception:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise outer from inner
    except Exception as error:
        return error


def in_context(outer: Exception) -> Exception:
    try:
        try:
            raise KeyError("inner")
        except KeyError:
            raise outer  # noqa: B904
    except Exception as error:
        return error


def held_twice() -> Any:
    one = Box(1)
    return {"a": one, "b": one}


def missing_attribute() -> AttributeError:
    try:
        return (1).nothing  # type: ignore[attr-defined, no-any-return]
    except AttributeError as error:
        return error


LOSSY: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "class": (lambda: Refund("x"), "", "test_fidelity.Refund", "RecordedError"),
    "no Exception": (lambda: SystemExit(1), "", "SystemExit", "RecordedError"),
    "cause": (lambda: raised_from(ValueError("x")), ".__cause__", "KeyError", "None"),
    "context": (lambda: in_context(ValueError("x")), ".__context__", "KeyError", "None"),
    "cause of an allowed one": (lambda: raised_from(Declined("x")), ".__cause__", "KeyError", "None"),
    "in a group": (lambda: ExceptionGroup("g", [Refund("x")]), "", "test_fidelity.Refund", "RecordedError"),
    "whose attribute": (missing_attribute, ".obj", "int", "None"),
    "held twice": (held_twice, ".b", "test_fidelity.Box that is held twice", "one of its own"),
}


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str, str]]]:
    caplog.set_level(logging.WARNING, logger="ninelives")

    def read() -> list[tuple[str, str, str]]:
        return [(r.__dict__["path"], r.__dict__["before"], r.__dict__["after"]) for r in caplog.records]

    return read


@pytest.mark.parametrize("lossy", LOSSY)
def test_what_is_lost_is_told_when_it_is_written(lossy: str, told: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The log names the path, what it is, and what comes back; the value itself is not in it."""
    make, path, was, becomes = LOSSY[lossy]

    frame = encode({"box": [make()]}, TYPES, path="state")

    ((where, before, after),) = told()
    assert where.startswith(f"state.box[0]{path}")
    assert before.endswith(was)
    assert after.endswith(becomes)
    assert "FidelityWarning" in caplog.text
    assert len(list(difference({"box": [make()]}, decode(frame, TYPES)))) > 0


@pytest.mark.parametrize("lossy", LOSSY)
def test_what_is_lost_is_refused_where_that_was_asked_for(lossy: str, told: Any) -> None:
    """Under `strict` it is an error with the same facts, and nothing is told beside it."""
    make, path, was, becomes = LOSSY[lossy]

    with pytest.raises(
        FidelityError, match=r"would come back as .* nothing was written\. .*fidelity = \"report\""
    ) as no:
        encode({"box": [make()]}, strict(), path="state")

    assert no.value.path.startswith(f"state.box[0]{path}")
    assert no.value.before.endswith(was)
    assert no.value.after.endswith(becomes)
    assert told() == []


def test_a_change_is_told_once(told: Any) -> None:
    """At another index, under another key, of another task, it is the same one; in another place it is not."""
    for path in ("channel.a[1]", "channel.a[22]", "channel.a['x y']", "channel.b[1]"):
        encode(Refund("x"), TYPES, path=path)
    for _ in range(2):
        encode(Refund("x"), TYPES, path=f"writes of task {uuid.uuid4()}, number 3")

    assert [path.partition("[")[0].partition(" task")[0] for path, _, _ in told()] == [
        "channel.a",
        "channel.b",
        "writes of",
    ]


def test_what_loses_nothing_is_not_told(told: Any) -> None:
    """Neither are messages, nor a list that is held twice, nor what was recorded before."""
    shared = [1]
    values = [AIMessage("a"), [shared, shared], RecordedError("a.B", "b", "B('b')"), ValueError("x"), *KEPT]

    for value in values:
        encode(value, TYPES)

    assert told() == []


def test_a_record_of_a_failure_may_lose_what_it_likes(told: Any) -> None:
    """It is there to be read; that it cannot be built again must not be a second failure."""
    encode(raised_from(Refund("x")), strict(), quiet=True)
    encode(raised_from(Refund("x")), TYPES, quiet=True)

    assert told() == []


def test_the_words_of_a_change() -> None:
    """One line that a person can read."""
    assert str(Change("messages[3]", "a.B", "RecordedError")) == "messages[3]: a.B comes back as RecordedError"


# -- a graph ---------------------------------------------------------------------------------------------------------


class State(TypedDict, total=False):
    errors: Annotated[list[Exception], lambda left, right: [*left, *right]]
    last: Any


def graph_of(node: Callable[[Any], Any], schema: Any = State) -> Any:
    builder: Any = StateGraph(schema)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile()


STRICT = Settings(state=StateSettings(fidelity="strict"))


@pytest.mark.parametrize("how", [{"fidelity": "strict"}, {"settings": STRICT}])
def test_a_strict_graph_stores_nothing_that_would_change(home: Home, how: Any) -> None:
    """The node's result is refused before anything of it is written, and the run has failed."""
    agent = home.protect(graph_of(lambda state: {"errors": [Refund("x")]}), **how)

    with pytest.raises(FidelityError, match="Refund would come back as"):
        agent.invoke({}, thread="t")

    assert home.statuses() == ["failed"]
    assert agent.get_state(config()).values.get("errors", []) == []


def test_an_argument_goes_before_the_setting(home: Home, told: Any) -> None:
    """`fidelity="report"` stores it, and says so."""
    agent = home.protect(graph_of(lambda state: {"errors": [Refund("x")]}), settings=STRICT, fidelity="report")

    agent.invoke({}, thread="t")

    assert isinstance(agent.get_state(config()).values["errors"][0], RecordedError)
    assert {before.rpartition(".")[2] for _, before, _ in told()} == {"Refund"}


def test_only_two_ways_are_known(home: Home) -> None:
    """A mistyped one is refused when the graph is protected."""
    with pytest.raises(ConfigError, match=r"fidelity='lax' .* 'report', 'strict'"):
        home.protect(graph_of(lambda state: {}), fidelity="lax")


def test_a_failing_node_fails_with_its_own_error_under_strict(home: Home) -> None:
    """Its failure is recorded although its class and cause do not come back, and the run can be continued."""
    failing = [True]

    def node(state: State) -> Any:
        if failing.pop() if failing else False:
            raise Refund("x") from KeyError("y")
        return {"last": "done"}

    agent = home.protect(graph_of(node), fidelity="strict")
    with pytest.raises(Refund):
        agent.invoke({}, thread="t")

    assert agent.continue_run("t")["last"] == "done"


def test_what_langgraph_itself_stores_is_strictly_the_same(home: Home) -> None:
    """Commands, Sends, questions and answers come back as they were."""

    def node(state: State) -> Any:
        return {"last": [Send("a", {"x": Box([1])}), Command(update={"a": 1}), Interrupt(value={"q": 1}, id="0" * 32)]}

    agent = home.protect(graph_of(node), fidelity="strict", allow=[Box])

    out = agent.invoke({}, thread="t")

    assert not list(difference(out, agent.get_state(config()).values))


# -- C39: a class that is gone -----------------------------------------------------------------------------------------


GONE: dict[str, tuple[Any, str]] = {
    "in a list": ([1, Box(1)], "[1]"),
    "in a dict": ({"a": {"b c": Box(1)}}, ".a['b c']"),
    "in a dict with odd keys": ({(1, 2): Box(1)}, "[(1, 2)]"),
    "in a tuple": ((1, (2, Box(1))), "[1][1]"),
    "in a set": ({Stone(1)}, "{...}"),
    "in a model": (Form.model_validate({"name": "a", "more": [Box(1)]}), ".more[0]"),
    "in a dataclass": (Stone({"x": Box(1)}), ".content.x"),
    "in a message": (AIMessage("a", additional_kwargs={"x": Box(1)}), ".additional_kwargs.x"),
    "in a deque": (collections.deque([Box(1)]), "[0]"),
    "a class": ({"a": [Box]}, ".a[0]"),
    "an enum": ([Colour.RED], "[0]"),
    "a named tuple": ([Point(1)], "[0]"),
}


@pytest.mark.parametrize("where", GONE)
def test_a_class_that_is_gone_is_refused_with_its_path(where: str) -> None:
    """Not allowed, moved, renamed, not installed: never a dict, never None, and one knows where to look."""
    value, path = GONE[where]
    stays = [cls for cls in (Form, Stone) if type(value) is cls]

    with pytest.raises(UnknownTypeError) as refused:
        decode(encode(value, TYPES), DEFAULT_TYPES | stays, path="channel 'x'")

    assert refused.value.path == f"channel 'x'{path}"
    assert refused.value.type_name.rpartition(".")[2] in ("Box", "Stone", "Colour", "Point")
    assert "allow=[" in str(refused.value)


def test_a_reading_tool_may_ask_for_what_is_left() -> None:
    """Then a `RawValue` stands where the value was, with the parts, and all else is there."""
    frame = encode({"good": 1, "gone": [Box(Point(1, 2)), Box], "key": {Stone(1): 2}}, TYPES)

    shown = decode(frame, DEFAULT_TYPES, unknown="raw")

    box, cls = shown["gone"]
    (stone,) = shown["key"]
    assert shown["good"] == 1
    assert (box.type_name.rpartition(".")[2], box.parts[0]["note"]) == ("Box", "")
    assert box.parts[0]["content"] == RawValue(f"{__name__}.Point", [{"x": 1, "y": 2}])
    assert cls == RawValue(f"{__name__}.Box", [])
    assert stone.parts == [{"content": 1}]


def test_a_class_that_no_longer_fits_can_be_shown_too() -> None:
    """As when fields without a default came to it."""
    frame = encode([Point(1)], TYPES)

    class Now(NamedTuple):
        z: int

    Now.__module__, Now.__qualname__ = Point.__module__, Point.__qualname__

    assert decode(frame, DEFAULT_TYPES | [Now], unknown="raw")[0].parts == [{"x": 1, "y": 0}]
    with pytest.raises(UnknownTypeError, match=r"\[0\]: .*Point does not fit"):
        decode(frame, DEFAULT_TYPES | [Now])


def test_damage_is_damage_also_for_a_reading_tool() -> None:
    """`raw` is for classes that are gone, not for bytes that are."""
    with pytest.raises(StoreCorruptError):
        decode(encode([1, 2], TYPES)[:-1], TYPES, unknown="raw")


def test_a_raw_value_cannot_be_stored() -> None:
    """Nobody goes on with half a value by mistake."""
    with pytest.raises(UnknownTypeError, match="RawValue"):
        encode([RawValue("a.B", [])], TYPES)


def test_a_thread_with_a_class_that_is_gone_is_not_gone_on_with(tmp_path: Path) -> None:
    """After a deploy without the class, a call and a look are refused by name; nothing is lost."""
    with home_in(tmp_path) as home:
        home.protect(graph_of(lambda state: {"last": {"box": [Box(1)]}}), allow=[Box]).invoke({}, thread="t")

    with home_in(tmp_path) as home:
        deployed = home.protect(graph_of(lambda state: {"last": None}))
        calls: list[Callable[[], Any]] = [
            lambda: deployed.get_state(config()),
            lambda: deployed.invoke({}, thread="t"),
        ]
        for call in calls:
            with pytest.raises(UnknownTypeError, match=r"'last'\.box\[0\]: .*Box is not a type that may be loaded"):
                call()

    with home_in(tmp_path) as home:
        rolled_back = home.protect(graph_of(lambda state: {"last": None}), allow=[Box])
        assert rolled_back.get_state(config()).values["last"] == {"box": [Box(1)]}


# -- C40: allowing some does not demote others -------------------------------------------------------------------------


class Typed(TypedDict, total=False):
    form: Form
    last: Any


def test_allowing_a_class_takes_nothing_from_those_of_the_schema(home: Home) -> None:
    """The schema's classes are allowed by themselves; `allow=` only adds."""
    node = lambda state: {"form": Form(name="a"), "last": Stone(1)}  # noqa: E731
    agent = home.protect(graph_of(node, Typed), allow=[Stone])

    agent.invoke({}, thread="t")

    values = agent.get_state(config()).values
    assert (type(values["form"]), type(values["last"])) == (Form, Stone)


def test_an_unlisted_class_is_refused_when_it_is_written(home: Home) -> None:
    """With the path to it, and with how to allow it; nothing is stored in another form."""
    agent = home.protect(graph_of(lambda state: {"last": {"deep": [Box(1)]}}, Typed), allow=[Stone])

    with pytest.raises(UnknownTypeError, match=r"\.deep\[0\]: .*Box is not a type that may be stored.*allow=\[Box\]"):
        agent.invoke({}, thread="t")

    assert home.statuses() == ["failed"]
