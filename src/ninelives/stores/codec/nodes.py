"""
How items make a value: a node is a form and the numbers of items, in as few bytes as they take.

An item is one piece of content (an element of a list, an entry of a dict, a large value), stored once per thread under
a number. Numbers are given in order, so a list that grew by appending is one run of numbers and its node stays small
however long the list is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from langgraph.types import Overwrite

from ninelives import _langgraph
from ninelives.errors import StoreCorruptError


class Form(IntEnum):
    """The first byte of a node, without its wrapper."""

    INLINE = 0
    """The frame itself follows."""
    VALUE = 1
    """One item."""
    LIST = 2
    """An item per element."""
    DICT = 3
    """An item that lists the keys, then an item per entry."""
    FAR = 4
    """An item whose content is the node: this one would be too long."""
    MORE = 5
    """A list that continues another node, which is an item: its number, then those that were added."""


WRAPPERS: dict[int, type] = {0x40: Overwrite, 0x80: _langgraph.DeltaSnapshot}
"""What may be around a list or dict; added to the form."""
WRAPPER_OF = {cls: mark for mark, cls in WRAPPERS.items()}
_FORM = 0x3F
_OVERWRITE = Overwrite(None).type


@dataclass(frozen=True, slots=True)
class Node:
    """
    A node, read.

    Attributes:
        numbers: of the items, in order; for `DICT` the first is of the list of keys, for `MORE` of the other node.
        frame: of an `INLINE` value.
    """

    form: Form
    wrapper: int = 0
    numbers: Sequence[int] = ()
    frame: bytes = b""

    @property
    def far(self) -> int | None:
        """The item that is a node itself."""
        return self.numbers[0] if self.form in (Form.FAR, Form.MORE) else None

    def after(self, other: Node) -> Node:
        """This node with the one that is an item put in its place."""
        if self.form is Form.FAR:
            return other
        return Node(Form.LIST, self.wrapper, [*other.numbers, *self.numbers[1:]])


@dataclass(slots=True)
class Runs:
    """Numbers as runs of neighbours, which grow at their end: `(how far from the last run's end, how many)` each."""

    done: bytes = b""
    first: int = 0
    count: int = 0
    end: int = 0
    """One above the last number of the run before."""

    def add(self, numbers: Iterable[int]) -> Runs:
        """These runs and more numbers; this object is left as it is."""
        done, first, count, end = self.done, self.first, self.count, self.end
        more = bytearray()
        for number in numbers:
            if count and number == first + count:
                count += 1
                continue
            if count:
                more += _run(first - end, count)
                end = first + count
            first, count = number, 1
        return Runs(done + more, first, count, end)

    def written(self) -> bytes:
        return self.done + (_run(self.first - self.end, self.count) if self.count else b"")


def write_node(form: Form, wrapper: int, rest: bytes) -> bytes:
    return bytes((form | wrapper,)) + rest


def read_node(data: bytes) -> Node:
    """
    Raises:
        StoreCorruptError: no node of ours.
    """
    if not data or (data[0] & _FORM) > Form.MORE or (data[0] & ~_FORM) not in (0, *WRAPPERS):
        raise StoreCorruptError(f"a node of {len(data)} bytes that begins with {data[:1]!r} is not what was stored.")
    form, wrapper = Form(data[0] & _FORM), data[0] & ~_FORM
    if form is Form.INLINE:
        return Node(form, wrapper, frame=data[1:])
    numbers = _numbers(data)
    if len(numbers) != 1 if form in (Form.VALUE, Form.FAR) else form in (Form.DICT, Form.MORE) and not numbers:
        raise StoreCorruptError(f"a node for {form.name} with {len(numbers)} items is not what was stored.")
    return Node(form, wrapper, numbers)


_NUMBERS_MAX = 1 << 21


def _numbers(data: bytes) -> list[int]:
    """A long history has a hundred thousand runs: small varints, nearly all, are read here and now."""
    numbers: list[int] = []
    place, end, size = 1, 0, len(data)
    while place < size:
        step = data[place]
        place += 1
        if step >= 0x80:
            step, place = read_varint(data, place - 1)
        count = data[place] if place < size else 0x80
        place += 1
        if count >= 0x80:
            count, place = read_varint(data, place - 1)
        first = end + (step >> 1 if step & 1 == 0 else -(step >> 1) - 1)
        end = first + count
        if first < 0 or len(numbers) + count > _NUMBERS_MAX:
            raise StoreCorruptError("a node names items that cannot be.")
        if count == 1:
            numbers.append(first)
        else:
            numbers.extend(range(first, end))
    return numbers


def _run(step: int, count: int) -> bytes:
    return varint(step * 2 if step >= 0 else -step * 2 - 1) + varint(count)


# -- numbers of any size ------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """Seven bits to a byte, the lowest first; the high bit says that more follow (LEB128)."""
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes | memoryview, place: int) -> tuple[int, int]:
    """`(number, place after it)`."""
    number = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise StoreCorruptError("a number is cut off.")


def wrapper_of(data: bytes) -> int:
    """Of a node that is not read further."""
    return data[0] & ~_FORM


def unwrapped(value: Any) -> tuple[int, Any]:
    """`(wrapper, what is in it)`; only exact classes with a list or dict inside count."""
    mark = WRAPPER_OF.get(type(value), 0)
    if mark and type(value.value) in (list, dict) and getattr(value, "type", _OVERWRITE) == _OVERWRITE:
        return mark, value.value
    return 0, value


def wrapped(wrapper: int, value: Any) -> Any:
    return WRAPPERS[wrapper](value) if wrapper else value
