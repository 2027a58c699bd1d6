"""Bytes of state, with random values and random damage."""

from __future__ import annotations

import collections
import dataclasses
import struct
from datetime import timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from ninelives.errors import StoreCorruptError, UnknownTypeError
from ninelives.stores.codec import DEFAULT_TYPES, decode, encode
from ninelives.stores.codec.encoding import _encode_fast, _Walk
from ninelives.stores.codec.values import VERSION


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Box:
    content: Any
    label: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Crate:
    content: Any


class Tags(list[Any]):
    """A subclass of a builtin."""


TYPES = DEFAULT_TYPES | [Pair, Box, Crate, Tags]

any_text = st.text(st.characters(exclude_categories=()), max_size=12)
zones = st.none() | st.timedeltas(timedelta(hours=-20), timedelta(hours=20)).map(timezone)
keys = (
    any_text | st.integers() | st.none() | st.booleans() | st.binary(max_size=8) | st.uuids()
    | st.floats(allow_nan=False) | st.dates() | st.tuples(st.integers(), any_text)
    | st.frozensets(st.integers(), max_size=3)
)  # fmt: skip
scalars = (
    keys | st.floats() | st.complex_numbers() | st.decimals() | st.fractions() | st.times(timezones=zones)
    | st.datetimes(timezones=zones) | st.timedeltas() | st.ip_addresses() | st.binary(max_size=8).map(bytearray)
    | st.builds(range, st.integers(), st.integers(), st.integers(1)) | st.slices(9)
)  # fmt: skip


def containers(inside: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inside, max_size=4)
    dicts = st.dictionaries(keys, inside, max_size=4)
    text = st.text(max_size=8)
    return (
        several | dicts | st.dictionaries(text, inside, max_size=4) | several.map(tuple) | several.map(Tags)
        | st.sets(keys, max_size=4) | several.map(lambda items: collections.deque(items, maxlen=len(items) + 1))
        | dicts.map(collections.OrderedDict) | dicts.map(lambda items: collections.defaultdict(list, items))
        | st.builds(Pair, inside, inside) | st.builds(Box, inside, any_text) | st.builds(Crate, inside)
        | st.builds(AIMessage, any_text, response_metadata=st.dictionaries(text, inside, max_size=2))
        | st.builds(ToolMessage, text, tool_call_id=text, artifact=inside) | st.builds(HumanMessage, text, id=text)
    )  # fmt: skip


values = st.recursive(scalars, containers, max_leaves=12)


def same(left: Any, right: Any) -> bool:
    """Equal in type and value all the way down; NaN equals NaN, 0.0 does not equal -0.0, nor 1.0 in Decimal 1.00."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("d", left) == struct.pack("d", right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, dict):
        return len(left) == len(right) and all(map(same, _flat(left), _flat(right)))
    if isinstance(left, list | tuple | collections.deque):
        return len(left) == len(right) and all(map(same, left, right))
    if dataclasses.is_dataclass(left):
        return all(same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left))
    if isinstance(left, AIMessage | ToolMessage | HumanMessage):
        return same(vars(left), vars(right)) and left.model_fields_set == right.model_fields_set
    return str(left) == str(right) if isinstance(left, Decimal) else bool(left == right)


def _flat(items: dict[Any, Any]) -> list[Any]:
    return [part for pair in items.items() for part in pair]


@given(values)
def test_what_comes_back_is_what_went_in(value: Any) -> None:
    """Any value comes back the same, and makes the same bytes again."""
    frame = encode(value, TYPES)

    result = decode(frame, TYPES)

    assert same(result, value)
    assert encode(result, TYPES) == frame


@given(values)
def test_both_ways_write_the_same_bytes(value: Any) -> None:
    """Where the fast way succeeds, the walk in Python agrees with it to the bit."""
    fast = _encode_fast(value, TYPES)

    assert fast is None or fast == _Walk(TYPES).encode(value, "")


@given(st.binary(max_size=200), st.binary(max_size=60))
def test_random_bytes_give_a_value_or_two_errors(raw: bytes, parts: bytes) -> None:
    """No bytes, alone or as the parts of each kind, raise anything but the two errors."""
    frames = [raw, VERSION + raw, *(VERSION + struct.pack("BBB", 0xC7, len(parts), code) + parts for code in range(80))]
    for frame in frames:
        _read(frame)


@given(values, st.data())
def test_damage_gives_a_value_or_two_errors(value: Any, data: st.DataObject) -> None:
    """A frame with some bytes overwritten, dropped or doubled raises nothing but the two errors."""
    frame = encode(value, TYPES)
    start = data.draw(st.integers(0, len(frame)))
    end = data.draw(st.integers(start, len(frame)))
    patch = data.draw(st.binary(max_size=8) | st.just(frame[start:end] * 2))

    _read(frame[:start] + patch + frame[end:])


def _read(frame: bytes) -> None:
    try:
        decode(frame, TYPES)
    except (StoreCorruptError, UnknownTypeError):
        return
