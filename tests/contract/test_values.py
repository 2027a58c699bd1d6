"""What comes back is what was stored: type and value, in state, writes, questions, answers, results and requests."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from math import copysign, isnan
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Command, Interrupt, Send

from contract.desk import Desk
from ninelives.errors import UnknownTypeError
from ninelives.model import ONE_USER, EffectState, RunSpec, RunStatus


class Colour(Enum):
    RED = "red"


class Report(pydantic.BaseModel):
    title: str
    rows: tuple[int, ...] = ()


@dataclass
class Point:
    x: int
    name: str = field(init=False, default="p")


class Holder:
    @dataclass(frozen=True)
    class Nested:
        x: int


OWN = (Colour, Report, Point, Holder.Nested)

VALUES: dict[str, Any] = {
    "none": None,
    "bool": [True, False],
    "ints": [0, -1, 2**63, -(2**200)],
    "floats": [0.1, -0.0, float("inf")],
    "complex": 1 + 2j,
    "text": ["", "ä\u0000b", "\ud800 alone"],
    "bytes": [b"\x00\xff", bytearray(b"x")],
    "tuple": (1, (2, [3, ()])),
    "set": {1, 2},
    "frozenset": frozenset({"a"}),
    "dict": {"a": 1, 2: "b", (3, 4): None},
    "counter": Counter("hello"),
    "ordered": OrderedDict([("b", 1), ("a", 2)]),
    "defaultdict": defaultdict(list, {"a": [1]}),
    "deque": deque([1, 2], maxlen=3),
    "fraction": Fraction(1, 3),
    "decimal": Decimal("1.10"),
    "range": range(1, 9, 2),
    "moment": datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "day": date(2030, 1, 2),
    "span": timedelta(days=1, microseconds=3),
    "uuid": UUID(int=7),
    "path": PurePosixPath("/a/b"),
    "enum": Colour.RED,
    "model": Report(title="t", rows=(1, 2)),
    "dataclass": Point(1),
    "nested class": Holder.Nested(2),
    "messages": [
        HumanMessage("hi", id="1"),
        AIMessage("", id="2", tool_calls=[{"name": "f", "args": {"x": (1,)}, "id": "c", "type": "tool_call"}]),
        ToolMessage("done", tool_call_id="c", id="3", artifact={"rows": [1]}),
    ],
    "send": Send("node", {"k": (1, 2)}),
    "command": Command(update={"a": 1}, goto="b", resume={"x": 1}),
    "interrupt": (Interrupt(value={"q": 1}, id="i"),),
    "deep": {"a": [{"b": ({"c": [1, {"d": (2,)}]},)}]},
}


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (one == other and copysign(1, one) == copysign(1, other)) or (isnan(one) and isnan(other))
    if isinstance(one, dict):
        return (
            len(one) == len(other)
            and all(same(a, b) for a, b in zip(one.items(), other.items(), strict=True))
            and getattr(one, "default_factory", None) == getattr(other, "default_factory", None)
        )
    if isinstance(one, list | tuple | deque):
        lengths = (len(one), getattr(one, "maxlen", None)) == (len(other), getattr(other, "maxlen", None))
        return lengths and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


@pytest.fixture(autouse=True)
def _own_types(desk: Desk) -> None:
    desk.store.allow_types(*OWN)


@pytest.mark.parametrize("name", VALUES)
def test_state_comes_back_as_it_was(desk: Desk, name: str) -> None:
    """As a channel's value and as a task's write."""
    value = VALUES[name]
    desk.put(None, "c1", values={"n": value})
    desk.write(None, "c1", "k", ("n", value))

    found = desk.get("c1")

    assert same(found.checkpoint["channel_values"]["n"], value)
    assert same(found.writes[0][2], value)


def test_everything_comes_back_from_everywhere(desk: Desk) -> None:
    """In a request, a question, an answer and a result of an effect."""
    worker = desk.worker()
    lease = desk.start(worker, spec=RunSpec(input=VALUES, context=VALUES))
    desk.put(lease, "c1")
    desk.ask(lease, payload=VALUES)
    effect = desk.do(desk.store.open_effect(lease, desk.effect()))
    effect = desk.do(desk.store.finish_effect(lease, effect, EffectState.DONE, VALUES))
    desk.finish(lease, RunStatus.INTERRUPTED)
    (question,) = desk.do(desk.store.list_interrupts(ONE_USER, "t"))
    run = desk.answer(worker, {"q1": VALUES}).run
    (decision,) = desk.do(desk.store.list_decisions(ONE_USER, "t"))
    first = desk.do(desk.store.get_run(ONE_USER, "r1"))

    for found in (question.payload, decision.value, effect.result, first.spec.input, first.spec.context):
        assert same(found, VALUES)
    assert run.spec.input == {"n": 1}


def test_an_empty_list_and_a_list_of_one_are_not_the_value_itself(desk: Desk) -> None:
    """Lists are stored by element; what is no list is not made one."""
    values = {"empty": [], "one": [7], "bare": 7, "nested": [[], [[]]], "tuple": (), "text": "abc"}

    desk.put(None, "c1", values=values)

    assert same(desk.get("c1").checkpoint["channel_values"], values)


def test_the_caller_may_change_its_values_afterwards(desk: Desk) -> None:
    """An act has encoded what it was given when it was made; what comes back is nobody else's."""
    value = [{"a": 1}]
    act = desk.putting(None, "c1", values={"n": value})
    value[0]["a"] = 2

    desk.do(act)
    desk.get("c1").checkpoint["channel_values"]["n"].append("mine")

    assert desk.get("c1").checkpoint["channel_values"]["n"] == [{"a": 1}]


def test_what_a_store_may_not_load_it_refuses_to_store(desk: Desk) -> None:
    """In a request, a question, an answer, a result: with nothing written."""

    class Stranger:
        pass

    worker = desk.worker()
    lease = desk.start(worker)
    effect = desk.do(desk.store.open_effect(lease, desk.effect()))
    before = desk.trace()

    with pytest.raises(UnknownTypeError):
        desk.start(worker, "r2", "t2", spec=RunSpec(input=[Stranger()]))
    with pytest.raises(UnknownTypeError):
        desk.ask(lease, payload=Stranger())
    with pytest.raises(UnknownTypeError):
        desk.answer(worker, {"q1": Stranger()})
    with pytest.raises(UnknownTypeError):
        desk.do(desk.store.finish_effect(lease, effect, EffectState.DONE, Stranger()))

    assert desk.trace() == before


def test_equal_requests_have_equal_digests(desk: Desk) -> None:
    """What an idempotency key is compared by: value and type, not identity."""
    digest = desk.store.request_digest

    assert digest({"a": [1, (2,)], "m": HumanMessage("x", id="1")}) == digest(
        {"a": [1, (2,)], "m": HumanMessage("x", id="1")}
    )
    assert len({digest(v) for v in ({"a": [1]}, {"a": (1,)}, {"a": [1.0]}, {"a": ["1"]}, {"a": [True]})}) == 5
