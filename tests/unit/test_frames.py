"""Frames of a plain store: what is sealed comes back, in few bytes; what is not ours is refused and costs no memory."""

from __future__ import annotations

import hashlib
import multiprocessing
import random
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ninelives.errors import StoreCorruptError
from ninelives.stores.codec import frames as frames_module
from ninelives.stores.codec.frames import BASE_BYTES_MAX, Frames, Kind, dictionary_path, pack, unpack

SEED = 20_261
SENTENCE = "the agent reads a message, asks a tool and writes what it found into its state again"
DICTIONARIES = {1: "72b2d616f5e12169f5d785dfa667bf6eb2670c876080d3e56160028de142a805"}


def prose(size: int, seed: int = SEED) -> bytes:
    """Text of so many bytes."""
    chance = random.Random(seed)
    return " ".join(chance.choices(SENTENCE.split(), k=size // 3 + 1)).encode()[:size]


def noise(size: int, seed: int = SEED) -> bytes:
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(size)


@st.composite
def values(draw: st.DrawFn) -> bytes:
    """Bytes of all sizes up to 200 kB, with repeats and without."""
    size = draw(st.one_of(st.integers(0, 100), st.integers(0, 200_000)))
    seed = draw(st.integers(0, 2**32))
    content = draw(st.sampled_from([prose(size, seed), noise(size, seed), bytes(size)]))
    return content + draw(st.binary(max_size=50))


def edited(base: bytes, at: int) -> bytes:
    """These bytes with a little put in between."""
    return base[: at % (len(base) + 1)] + b"a little more" + base[at % (len(base) + 1) :]


# -- what is sealed comes back -------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(values(), st.booleans())
def test_sealed_comes_back(plain: bytes, dense: bool) -> None:
    """Every value comes back as it was, and takes one byte more at most."""
    stored = Frames().seal(plain, dense=dense)

    assert Frames().open(stored) == plain
    assert len(stored) <= len(plain) + 1


@settings(max_examples=150, deadline=None)
@given(values(), values(), st.integers(0), st.booleans(), st.booleans())
def test_sealed_beside_a_base_comes_back(base: bytes, other: bytes, at: int, alike: bool, dense: bool) -> None:
    """With a base, like it or not, a value comes back as it was, and takes one byte more at most."""
    plain = edited(base, at) if alike else other

    stored = Frames().seal(plain, base=base, dense=dense)

    assert Frames().open(stored, base=base) == plain
    assert len(stored) <= len(plain) + 1


@pytest.mark.parametrize("size", [23, 24, 255, 256, 257, 65_791, 65_792, 320 * 1024, 320 * 1024 + 1, 3 << 20])
@pytest.mark.parametrize("dense", [False, True])
def test_sizes_where_the_layout_changes(size: int, dense: bool) -> None:
    """On both sides of each edge, and beyond zstd's window, values come back."""
    for plain in (bytes(size), prose(size)):
        stored = Frames().seal(plain, dense=dense)

        assert Frames().open(stored) == plain


@pytest.mark.parametrize("size", [BASE_BYTES_MAX - 1, BASE_BYTES_MAX, BASE_BYTES_MAX + 1])
def test_longest_base(size: int) -> None:
    """A base up to the limit makes a value small; a longer one is left aside, and the value comes back all the same."""
    base = noise(size)
    plain = edited(base, 1000)

    stored = Frames().seal(plain, base=base)

    assert Frames().open(stored, base=base) == plain
    assert (len(stored) < 20_000) == (size <= BASE_BYTES_MAX)


def test_packed_is_what_a_plain_store_seals() -> None:
    """A part of a value is packed as a plain value is."""
    for plain in (b"", prose(50), prose(5000)):
        assert pack(plain) == Frames().seal(plain)
        assert unpack(pack(plain, base=b"base " * 9), base=b"base " * 9) == plain


# -- in few bytes --------------------------------------------------------------------------------------------------


def test_little_costs_one_byte() -> None:
    """What does not compress is stored as it is, behind one byte."""
    for plain in (b"", b"x", prose(20), noise(80), noise(100_000)):
        assert Frames().seal(plain) == b"\x40" + plain


def test_text_shrinks() -> None:
    """Text takes less than half, more text less than that, and dense less still."""
    text = dictionary_path(1).with_name("frames.py").read_bytes()[:4000]

    fast, dense = Frames().seal(text), Frames().seal(text, dense=True)

    assert len(dense) < len(fast) < len(text) / 2


def test_dictionary_helps_a_short_message() -> None:
    """What every message has in common is in the dictionary: one alone shrinks to half of what zstd makes of it."""
    message = (
        b"langchain_core.messages.ai:AIMessage content additional_kwargs response_metadata finish_reason stop"
        b" usage_metadata input_tokens output_tokens total_tokens tool_calls invalid_tool_calls model_name"
    )

    assert len(Frames().seal(message)) < len(zstandard.ZstdCompressor(level=3).compress(message)) / 2


def test_edited_value_costs_its_edit() -> None:
    """Beside the value that it was made of, a value costs what is new."""
    base = noise(2000)

    assert len(Frames().seal(edited(base, 500), base=base)) < 60


# -- what is not ours ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [b"", b"\x00", b"\x01abc", b"\x80abc", b"\xc0abc", b"(\xb5/\xfd"])
def test_other_versions_are_refused(stored: bytes) -> None:
    """Bytes without our version are no value."""
    with pytest.raises(StoreCorruptError, match="no version"):
        Frames().open(stored)


def test_ways_to_pack_that_are_not_known_are_refused() -> None:
    """A value that a later release packed in its own way is not guessed at."""
    packed = bytearray(Frames().seal(prose(500)))
    for kind in range(len(Kind), 8):
        packed[0] = packed[0] & ~7 | kind

        with pytest.raises(StoreCorruptError, match="does not know"):
            Frames().open(bytes(packed))


@pytest.mark.parametrize("base", [b"", prose(700, 1), noise(700)])
def test_wrong_base_never_gives_the_value(base: bytes) -> None:
    """Without the base it was made with, a value does not come back: an error, or bytes with another digest."""
    right = noise(700, seed=7)
    stored = Frames().seal(edited(right, 300), base=right)

    assert outcome(Frames().open, stored, base) != edited(right, 300)


def test_flipped_and_cut_values_do_no_harm() -> None:
    """Any bit flipped, any end cut off: refused, or other bytes, but no other exception and no memory to speak of."""
    base = prose(300, 3)
    sealed = [pack(prose(200)), pack(prose(2000)), pack(edited(base, 100), base=base), pack(bytes(70_000))]
    for stored in sealed:
        damaged = [flipped(stored, bit) for bit in range(len(stored) * 8)]
        damaged += [stored[:end] for end in range(len(stored))]
        tracemalloc.start()

        for found in damaged:
            outcome(Frames().open, found, base)

        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= 1 + (len(stored) // 4 + 1 << 17), f"{peak} bytes for {len(stored)}"


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 63), st.binary(max_size=200), st.binary(max_size=50))
def test_any_bytes_are_opened_or_refused(header: int, payload: bytes, base: bytes) -> None:
    """Whatever follows a header of ours, nothing but our errors comes out."""
    outcome(unpack, bytes((0x40 | header,)) + payload, base)


@pytest.mark.parametrize("claims", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x40", b"\x00\x00\x00\x10"])
@pytest.mark.parametrize("code", [2, 3])
def test_claims_of_great_size_are_refused_before_memory_is_taken(claims: bytes, code: int) -> None:
    """A few bytes that claim to be gigabytes are refused by what they claim."""
    window = b"\xff" if code == 3 else b""

    with pytest.raises(StoreCorruptError, match="claims"):
        Frames().open(bytes((0x40 | code << 3 | Kind.ZSTD,)) + window + claims + noise(500))


def test_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A well-formed frame beyond the limit is refused, however small it is stored."""
    bomb = Frames().seal(bytes(1 << 20))
    monkeypatch.setattr(frames_module, "PLAIN_BYTES_MAX", (1 << 20) - 1)

    with pytest.raises(StoreCorruptError, match="claims"):
        Frames().open(bomb)

    assert Frames().open(Frames().seal(bytes(1 << 20))) == bytes(1 << 20)  # beyond the limit: stored as it is


def outcome(open_: Callable[..., bytes], stored: bytes, base: bytes) -> bytes | None:
    """What was opened; None if it was refused as it should be."""
    try:
        return open_(stored, base=base)
    except StoreCorruptError:
        return None


def flipped(stored: bytes, bit: int) -> bytes:
    changed = bytearray(stored)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


# -- what is stored stays readable ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", DICTIONARIES)
def test_dictionary_is_never_changed(number: int) -> None:
    """Stores were written with it: a better one gets a number of its own."""
    dictionary = dictionary_path(number).read_bytes()

    assert hashlib.sha256(dictionary).hexdigest() == DICTIONARIES[number]
    assert len(dictionary) <= 32 * 1024


@pytest.mark.parametrize(
    ("stored", "base", "plain"),
    [
        ("406162", "", b"ab"),
        ("433c65000000037c003aad560ca633c80a", "", b"ninelives " * 6),
        (
            "4223750000282c20206f6e0200343b946e0601",
            "6e696e656c69766573206b65657073",
            b"ninelives keeps, ninelives keeps on",
        ),
        ("51801a06005400001000000100fbff39c002020010000200100003d40000", "", bytes(400_000)),
    ],
)
def test_values_of_the_first_release_open(stored: str, base: str, plain: bytes) -> None:
    """Bytes written by the release that this layout began with."""
    assert Frames().open(bytes.fromhex(stored), base=bytes.fromhex(base)) == plain


def test_digest_is_the_same_everywhere() -> None:
    """A plain store's digests are BLAKE2b of 16 bytes."""
    assert Frames().digest(b"abc") == hashlib.blake2b(b"abc", digest_size=16).digest()


# -- threads and children ------------------------------------------------------------------------------------------


def work(frames: Frames, seed: int, start: threading.Barrier | None = None) -> bool:
    """Seal and open values of all sorts; whether all came back."""
    if start:
        start.wait()
    for size in (10, 80, 3000, 40_000, 400_000, 300):
        plain, base = prose(size, seed), prose(size // 2, seed + 1)
        for dense in (False, True):
            if frames.open(frames.seal(plain, dense=dense)) != plain:
                return False
            if frames.open(frames.seal(plain, base=base, dense=dense), base=base) != plain:
                return False
    return True


def test_threads_share_frames() -> None:
    """Eight threads at once get their own values back."""
    frames, start = Frames(), threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda seed: work(frames, seed, start), range(8)))


def test_forked_child_uses_frames_on() -> None:
    """A child forked while other threads seal and open can do so, too."""
    frames, ended = Frames(), threading.Event()
    assert work(frames, 0)

    def busy() -> None:
        while not ended.is_set():
            work(frames, 1)

    others = [threading.Thread(target=busy) for _ in range(2)]
    for other in others:
        other.start()
    try:
        codes = [_child_code(frames, seed) for seed in range(3)]
    finally:
        ended.set()
        for other in others:
            other.join()

    assert codes == [0] * 3


def _child_code(frames: Frames, seed: int) -> int | None:
    child = multiprocessing.get_context("fork").Process(target=_work_in_child, args=(frames, seed))
    child.start()
    child.join(60)
    if child.exitcode is None:
        child.kill()
    return child.exitcode


def _work_in_child(frames: Frames, seed: int) -> None:
    assert work(frames, seed)
