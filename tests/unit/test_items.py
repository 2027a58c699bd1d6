"""What a value is made of in the store: nodes, the packs that items lie in, and the words that are written short."""

from __future__ import annotations

import itertools
import multiprocessing
import resource
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite

from ninelives.errors import StoreCorruptError, UnknownTypeError
from ninelives.stores.codec import DEFAULT_TYPES, encode
from ninelives.stores.codec.frames import Frames, pack
from ninelives.stores.codec.nodes import (
    WRAPPER_OF,
    Form,
    Node,
    Runs,
    read_node,
    read_varint,
    unwrapped,
    varint,
    wrapped,
    wrapper_of,
    write_node,
)
from ninelives.stores.codec.packs import CHAIN_MAX, Entry, checksum, content, read_pack, write_pack
from ninelives.stores.codec.words import WORDS, long, moment, short, spelled
from ninelives.stores.procedures.base import Procedures
from ninelives.stores.procedures.content import Contents, neighbours, ranges

FRAMES = Frames()
MEMORY_MAX = 512 << 20
"""What a child that reads a hostile node may take, over what it has."""


def numbered(numbers: Sequence[int], form: Form = Form.LIST, wrapper: int = 0) -> bytes:
    """The node that names these items."""
    return write_node(form, wrapper, Runs().add(numbers).written())


# -- numbers -------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**63), st.binary(max_size=4), st.binary(max_size=4))
def test_a_number_comes_back_from_where_it_stands(number: int, before: bytes, after: bytes) -> None:
    """Whatever stands before and after it, and it takes seven bits to a byte."""
    written = varint(number)

    assert read_varint(before + written + after, len(before)) == (number, len(before) + len(written))
    assert len(written) == max(1, (number.bit_length() + 6) // 7)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff", b"\x80" * 10, b"\xff" * 1000])
def test_a_number_that_does_not_end_is_refused(data: bytes) -> None:
    """Cut off, or longer than any that is written."""
    with pytest.raises(StoreCorruptError, match="cut off"):
        read_varint(data, 0)


# -- nodes ---------------------------------------------------------------------------------------------------------

NUMBERS = st.lists(
    st.integers(1, 2**32) | st.integers(1, 40) | st.tuples(st.integers(1, 2**32), st.integers(1, 300)).map(
        lambda run: range(run[0], run[0] + run[1])
    ),
    max_size=20,
).map(lambda parts: [number for part in parts for number in ([part] if isinstance(part, int) else part)])  # fmt: skip
"""Neighbours in runs, jumps ahead and back, and the same number more than once."""


@given(NUMBERS, st.sampled_from([0, *WRAPPER_OF.values()]))
@example([], 0)
@example([7, 7, 7], 0)
@example([3, 2, 1], 0)
@example([2**32 - 1, 1], 0)
def test_numbers_come_back_in_order(numbers: list[int], wrapper: int) -> None:
    """Any numbers in any order, with what is around the list."""
    data = numbered(numbers, Form.LIST, wrapper)
    node = read_node(data)

    assert [*node.numbers] == numbers
    assert (node.form, node.wrapper, node.far, wrapper_of(data)) == (Form.LIST, wrapper, None, wrapper)


@given(st.lists(NUMBERS, max_size=5))
def test_to_grow_is_to_be_built_at_once(parts: list[list[int]]) -> None:
    """However the numbers are added, the node is the same, and the shorter one is left as it was."""
    grown = Runs()
    for part in parts:
        before, was = grown, grown.written()
        grown = before.add(part)
        assert before.written() == was

    assert grown.written() == Runs().add(number for part in parts for number in part).written()


@pytest.mark.parametrize("first", [1, 2**31])
def test_a_list_that_only_grew_has_a_small_node(first: int) -> None:
    """Its length costs nothing, and an interruption a few bytes."""
    long_ago = Runs().add(range(first, first + 1_000_000))
    with_gaps = Runs().add(number for start in range(10) for number in range(1000 * start + 1, 1000 * start + 900))

    assert len(long_ago.written()) <= 10
    assert len(long_ago.add([first + 1_000_000]).written()) == len(long_ago.written())
    assert len(with_gaps.written()) <= 10 * 4


@given(NUMBERS, NUMBERS, st.integers(1, 2**32), st.sampled_from([0, *WRAPPER_OF.values()]))
def test_a_node_that_continues_another_is_their_list(first: list[int], more: list[int], far: int, wrapper: int) -> None:
    """The other one's numbers, then its own; what is around it is its own affair."""
    other = read_node(numbered(first, Form.LIST, 0x40))

    node = read_node(numbered([far, *more], Form.MORE, wrapper))

    assert node.far == far
    assert node.after(other) == Node(Form.LIST, wrapper, first + more)


@given(NUMBERS.filter(bool), st.sampled_from([Form.LIST, Form.DICT]), st.integers(1, 2**32))
def test_a_node_that_lies_elsewhere_is_that_one(numbers: list[int], form: Form, far: int) -> None:
    """All of it is in the item."""
    other = read_node(numbered(numbers, form, 0x80))

    node = read_node(numbered([far], Form.FAR))

    assert node.far == far
    assert node.after(other) is other


@given(st.binary(max_size=60), st.sampled_from([0, *WRAPPER_OF.values()]))
def test_a_small_value_is_in_its_node(frame: bytes, wrapper: int) -> None:
    """Byte for byte."""
    assert read_node(write_node(Form.INLINE, wrapper, frame)) == Node(Form.INLINE, wrapper, frame=frame)


def test_only_a_list_or_dict_is_taken_out_of_its_wrapper() -> None:
    """What is taken out is put back; anything else is stored with what is around it."""
    around: list[Any] = [Overwrite([1]), Overwrite({}), _DeltaSnapshot([]), _DeltaSnapshot({"a": 1})]
    for value in around:
        mark, inner = unwrapped(value)
        again = wrapped(mark, inner)
        assert (mark > 0, type(again), again.value) == (True, type(value), value.value)
    for value in (Overwrite((1,)), Overwrite(None), _DeltaSnapshot("text"), [1], None, Overwrite):
        assert unwrapped(value) == (0, value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x06",
        b"\x3f\x02\x01",
        b"\xc0",
        b"\xc2\x02\x01",
        numbered([], Form.VALUE),
        numbered([1, 2], Form.VALUE),
        numbered([], Form.FAR),
        numbered([1, 2], Form.FAR),
        numbered([], Form.DICT),
        numbered([], Form.MORE),
        b"\x02\x01\x01",
        b"\x02\x02",
        b"\x02\x80",
        numbered([*range(1, 9)])[:-1],
    ],
)
def test_no_node_of_ours_is_refused(data: bytes) -> None:
    """Another form, too few items or too many for it, an item below zero, a node that is cut off."""
    with pytest.raises(StoreCorruptError):
        read_node(data)


HOSTILE = {
    "one long run": b"\x02\x00" + varint(1 << 26),
    "several": b"\x02" + (b"\x00" + varint(1 << 23)) * 8,
    "one behind another": b"\x05\x02\x01\x00" + varint((1 << 26) - 2),
    "beyond all": b"\x03\x00" + varint(2**63),
    "far up": b"\x02" + varint(2**63) + varint(1 << 25),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_few_bytes_do_not_take_gigabytes(name: str) -> None:
    """A node of some bytes that names millions of items takes neither the memory nor the time of all of them."""
    child = multiprocessing.get_context("fork").Process(target=_read_in_child, args=(HOSTILE[name],))
    child.start()
    child.join(10)
    if child.exitcode is None:
        child.kill()
        child.join()

    assert child.exitcode == 0


def _read_in_child(data: bytes) -> None:
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_MAX, taken + MEMORY_MAX))
    outcome(read_node, data)


def outcome(read: Callable[..., Any], *given: Any) -> Any:
    """What is read, or the error that says that it is not ours; any other exception fails the test."""
    try:
        return read(*given)
    except (StoreCorruptError, UnknownTypeError) as refusal:
        return refusal


SMALL = st.lists(st.integers(0, 0x7F), max_size=20).map(bytes)
"""No number in it has a second byte."""


@given(SMALL | st.integers(0, 255).flatmap(lambda head: SMALL.map(lambda rest: bytes((head,)) + rest)))
def test_any_bytes_are_a_node_or_refused(data: bytes) -> None:
    """Nothing but our error comes out."""
    outcome(read_node, data)


@given(NUMBERS, st.data())
def test_a_damaged_node_is_a_node_or_refused(numbers: list[int], data: st.DataObject) -> None:
    """A node with a bit turned, or an end cut off."""
    written = bytearray(numbered(numbers, Form.DICT))
    place = data.draw(st.integers(0, len(written) - 1))

    outcome(read_node, bytes(written[:place]))
    written[place] ^= 1 << data.draw(st.integers(0, 5))
    outcome(read_node, bytes(written))


# -- values made of them ---------------------------------------------------------------------------------------------


def contents(items: Mapping[int, bytes]) -> Contents:
    """Items as they were read, for a program that allows the usual types."""
    found = Contents(cast(Procedures, SimpleNamespace(types=DEFAULT_TYPES)), {})
    found.entries = {number: Entry(data) for number, data in items.items()}
    return found


def frame(value: Any) -> bytes:
    return encode(value, DEFAULT_TYPES)


ITEMS = {
    1: frame("text"),
    2: frame(["a", "b"]),
    3: frame([["a"], "b"]),
    4: frame([{}, {}]),
    5: numbered([1, 2]),
    6: numbered([2, 1, 3], Form.DICT),
    7: numbered([8], Form.FAR),
    8: numbered([7], Form.FAR),
    9: numbered([9, 1], Form.MORE),
    10: write_node(Form.INLINE, 0, frame(None)),
    11: b"",
    12: b"\xff",
    13: frame(None),
    14: frame([1, 2.0]),
}
"""Of every kind: content, nodes, nodes that lead to themselves, and what is neither."""
NODES = st.builds(
    numbered,
    st.lists(st.integers(0, len(ITEMS) + 1), max_size=4),
    st.sampled_from([form for form in Form if form is not Form.INLINE]),
    st.sampled_from([0, *WRAPPER_OF.values()]),
)


@settings(max_examples=400)
@given(NODES)
@example(numbered([7], Form.FAR))
@example(numbered([9, 1], Form.MORE))
@example(numbered([6, 1], Form.MORE))
@example(numbered([3, 1, 1], Form.DICT))
@example(numbered([4, 1, 1], Form.DICT))
@example(numbered([14, 1, 1], Form.DICT))
@example(numbered([10], Form.FAR))
def test_any_node_makes_a_value_or_is_refused(data: bytes) -> None:
    """Items that are no keys, no nodes, not there, or nodes that lead in a circle: nothing but our errors comes out."""
    outcome(contents(ITEMS).join, data, set(), "channel 'n'")


@given(st.binary(max_size=30), SMALL)
def test_any_items_make_a_value_or_are_refused(item: bytes, node: bytes) -> None:
    """The same, with any bytes as the item."""
    named = [numbered([1]), numbered([1, 1], Form.DICT), numbered([1], Form.FAR), numbered([1, 1], Form.MORE)]
    for data in (node, *named):
        outcome(contents({1: item}).join, data, set(), "channel 'n'")


def test_an_item_that_occurs_twice_is_built_twice() -> None:
    """In one value and in two; so that changing one does not change the other."""
    found, used = contents({1: frame({"a": [1]}), 2: frame(["k", "l"])}), set[int]()

    values = found.join(numbered([1, 1]), used, "n"), found.join(numbered([2, 1, 1], Form.DICT), used, "m")

    assert values == ([{"a": [1]}, {"a": [1]}], {"k": {"a": [1]}, "l": {"a": [1]}})
    assert len({id(each) for value in values for each in (value.values() if type(value) is dict else value)}) == 4


def test_errors_name_channel_and_place() -> None:
    """A missing item is named by its number, one that is damaged by the path to it."""
    damaged = contents({1: frame("text"), 2: frame("text")[:-1]})

    with pytest.raises(StoreCorruptError, match=r"^channel 'n': item 9 is missing"):
        damaged.join(numbered([1, 9]), set(), "channel 'n'")
    with pytest.raises(StoreCorruptError, match=r"^channel 'n': channel 'n'\[1\] is not what was stored"):
        damaged.join(numbered([1, 2]), set(), "channel 'n'")


# -- packs -----------------------------------------------------------------------------------------------------------

ENTRIES = st.lists(
    st.none()
    | st.builds(
        Entry,
        st.binary(min_size=1, max_size=300),
        st.lists(st.integers(0, 2**32), max_size=CHAIN_MAX).map(tuple),
    ),
    max_size=12,
)


@given(ENTRIES, st.booleans())
def test_a_pack_comes_back(entries: list[Entry | None], dense: bool) -> None:
    """Items with bases and without, and numbers that were never used."""
    assert read_pack(write_pack(entries, FRAMES, dense=dense), len(entries), FRAMES) == entries


def test_a_large_pack_comes_back() -> None:
    """An item of megabytes among small ones."""
    entries = [Entry(b"small"), Entry(b"large" * (1 << 20)), None, Entry(b"x" * 127), Entry(b"x" * 128)]

    assert read_pack(write_pack(entries, FRAMES), len(entries), FRAMES) == entries


PACKS: dict[str, list[Entry | None]] = {
    "one short": [Entry(b"x")],
    "one of text": [Entry(b"a text that is packed with the dictionary " * 9)],
    "several": [Entry(b"first" * 20), None, Entry(b"second", (1,)), Entry(bytes(range(256))), Entry(b"z", (3, 2, 1))],
    "none used": [None, None],
}


@pytest.mark.parametrize("name", PACKS)
def test_any_bit_of_a_pack_that_flips_is_found(name: str) -> None:
    """Whichever it is: the pack is damaged, and never another content. (A bit that means nothing may flip.)"""
    entries = PACKS[name]
    stored = write_pack(entries, FRAMES)
    found = []
    for bit in range(len(stored) * 8):
        damaged = bytearray(stored)
        damaged[bit // 8] ^= 1 << bit % 8
        found.append(outcome(read_pack, bytes(damaged), len(entries), FRAMES))

    unharmed = [result for result in found if not isinstance(result, StoreCorruptError)]
    assert all(result == entries for result in unharmed)
    assert len(unharmed) <= 2


@pytest.mark.parametrize("name", PACKS)
def test_a_pack_that_is_cut_off_is_found(name: str) -> None:
    """Wherever; or that has not as many items as its row says."""
    entries = PACKS[name]
    stored = write_pack(entries, FRAMES)
    for end in range(len(stored)):
        with pytest.raises(StoreCorruptError):
            read_pack(stored[:end], len(entries), FRAMES)

    for items in (len(entries) + 1, len(entries) + 1000, 2**32):
        with pytest.raises(StoreCorruptError):
            read_pack(stored, items, FRAMES)


@given(st.binary(max_size=60), st.integers(0, 5))
def test_any_plain_bytes_are_a_pack_or_refused(body: bytes, items: int) -> None:
    """Even with the right checksum in front of them."""
    outcome(read_pack, FRAMES.seal(checksum(body) + body), items, FRAMES)
    outcome(read_pack, FRAMES.seal(body), items, FRAMES)


def chain(length: int) -> tuple[dict[int, Entry | None], list[bytes]]:
    """Items from 0 on, each but the first the difference from the one before; and what each is."""
    plain = [b"".join(b"line %d of the file\n" % line for line in range(100))]
    entries: dict[int, Entry | None] = {0: Entry(plain[0])}
    for number in range(1, length + 1):
        plain.append(plain[-1].replace(b"line %d " % number, b"LINE %d, changed " % number))
        bases = tuple(reversed(range(max(0, number - CHAIN_MAX), number)))
        entries[number] = Entry(pack(plain[-1], base=plain[-2]), bases)
    return entries, plain


def test_every_item_of_a_chain_comes_back() -> None:
    """Each through all that it rests on, up to the longest chain."""
    entries, plain = chain(CHAIN_MAX)

    assert [content(number, entries) for number in range(CHAIN_MAX + 1)] == plain


def test_a_chain_that_is_too_long_or_runs_in_a_circle_is_refused() -> None:
    """Reading ends, whatever the store says."""
    entries, _ = chain(CHAIN_MAX + 1)
    circle: dict[int, Entry | None] = {1: Entry(b"\x40x", (2,)), 2: Entry(b"\x40x", (1,)), 3: Entry(b"\x40x", (3,))}

    for number, found in ((CHAIN_MAX + 1, entries), (1, circle), (3, circle)):
        with pytest.raises(StoreCorruptError, match=f"item {number} rests on too many"):
            content(number, found)


@pytest.mark.parametrize("gone", range(4))
@pytest.mark.parametrize("how", ["not there", "never used"])
def test_a_missing_base_is_named(gone: int, how: str) -> None:
    """By its number, wherever in the chain it was; the item itself as well."""
    entries, _ = chain(3)
    del entries[gone]
    if how == "never used":
        entries[gone] = None

    with pytest.raises(StoreCorruptError, match=f"item {gone} is missing"):
        content(3, entries)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x42\x20", b"\x60abc", b"\xff" * 30])
def test_a_difference_that_is_none_is_refused(data: bytes) -> None:
    """Bytes that no `pack` has made."""
    with pytest.raises(StoreCorruptError):
        content(1, {0: Entry(b"base " * 10), 1: Entry(data, (0,))})


# -- which packs are read and packed anew ------------------------------------------------------------------------------


@given(st.sets(st.integers(1, 2000), max_size=60))
def test_ranges_hold_all_numbers(numbers: set[int]) -> None:
    """In order, apart from one another, and none begins or ends with a number that nobody asked for."""
    found = ranges(sorted(numbers))

    assert all(any(first <= number <= last for first, last in found) for number in numbers)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(found))
    assert {number for each in found for number in each} <= numbers


@given(st.lists(st.integers(1, 100).map(lambda n: n * n * n // 2), max_size=60))
def test_small_neighbours_are_packed_together(sizes: list[int]) -> None:
    """No large pack is packed anew, none is moved past another, and what is packed is bounded."""
    rows = [{"first": n, "bytes": size} for n, size in enumerate(sizes)]

    groups = neighbours(rows)

    for group in groups:
        places = [row["first"] for row in group]
        assert places == [*range(places[0], places[-1] + 1)]
        assert len(group) > 1
        assert all(row["bytes"] < 256 << 10 for row in group)
        assert sum(row["bytes"] for row in group) < 512 << 10
    flat = [row["first"] for group in groups for row in group]
    assert flat == sorted(set(flat))


# -- words -----------------------------------------------------------------------------------------------------------

TEXTS = st.lists(
    st.text(max_size=8) | st.sampled_from(WORDS) | st.sampled_from([w[:-1] for w in WORDS])
    | st.text(st.characters(max_codepoint=0x20), max_size=3),
    max_size=6,
).map("".join)  # fmt: skip


@settings(max_examples=500)
@given(TEXTS)
@example("\x00")
@example("\x00\x00\x01")
@example("messages\x01")
@example("".join(map(chr, range(0x40))))
@example("branch:to:tools")
@example("~__pregel_pull, model")
def test_any_text_comes_back_from_its_short_form(text: str) -> None:
    """With words of ours in it, control characters, or both."""
    assert long(short(text)) == text


@pytest.mark.parametrize("word", WORDS)
def test_a_word_takes_one_character(word: str) -> None:
    """And another one after it as well."""
    assert (len(short(word)), len(short(word + "x" + word))) == (1, 3)


def test_words_keep_their_places() -> None:
    """The table is part of what is stored: only its end may change."""
    first = "~__pregel_pull, |~__pregel_push, |branch:to:|__start__|__pregel_tasks|__interrupt__|__resume__|__error__"
    then = "__error_source_node__|__no_writes__|__return__|messages|files|todos|agent|model|tools"

    assert WORDS[:17] == tuple(f"{first}|{then}".split("|"))
    assert len(WORDS) < 0x20
    assert not any(ord(letter) < 0x20 for letter in "".join(WORDS))


@pytest.mark.parametrize("text", [chr(len(WORDS) + 1), "x\x1f"])
def test_a_word_that_is_not_in_the_table_is_refused(text: str) -> None:
    """A later release's, or damage."""
    with pytest.raises(ValueError, match=f"word {ord(text[-1])} is not known"):
        long(text)


# -- moments -----------------------------------------------------------------------------------------------------------

MOMENTS = st.datetimes(
    timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=1)), timezone(timedelta(0), "Z")])
)


@given(
    MOMENTS.map(datetime.isoformat)
    | st.builds(lambda at, end, sep: at.isoformat(sep)[:26] + end, MOMENTS, TEXTS, st.sampled_from("T _"))
    | st.builds(datetime.isoformat, MOMENTS, timespec=st.sampled_from(["hours", "seconds", "milliseconds"]))
    | TEXTS
)
@example("")
@example("2024-05-06T07:08:09.000000+00:00")
@example("2024-05-06T07:08:09Z")
@example("2024-05-06T24:00:00+00:00")
@example("20240506T070809+0000")
@example("2024-W19-1")
@example("0001-01-01T00:00:00+00:00")
@example("9999-12-31T23:59:59.999999+00:00")
@example("2024-05-06T07:08:09.1234567+00:00")
@example("2024-05-06T07:08:09-00:00")
@example("\uff12\uff10\uff12\uff14-05-06T07:08:09+00:00")
def test_any_text_comes_back_from_its_moment(text: str) -> None:
    """A moment in any spelling, or no moment at all."""
    assert spelled(moment(text)) == text


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_moment_as_langgraph_spells_it_is_a_number(at: datetime) -> None:
    """Seven bytes for thirty-two."""
    assert moment(at.isoformat()) == (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize("value", [None, True, 1.5, b"2024-05-06T07:08:09+00:00", ["x"]])
def test_what_is_no_text_is_no_moment(value: object) -> None:
    """It stays as it is."""
    assert moment(value) is value
    assert spelled(value) is value
