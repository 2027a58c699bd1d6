"""Encryption: nothing readable is stored, every change is noticed, keys can be changed, and mistakes with keys stop."""

from __future__ import annotations

import base64
import os
import pickle
import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from ninelives import effect, open_store, protect, shutdown
from ninelives.config import KEYS_VARIABLE
from ninelives.errors import EncryptionKeyError, StoreCorruptError
from ninelives.stores.codec.frames import Frames, pack
from ninelives.stores.codec.keys import SEALED_BYTES_MORE, KeyRing

OLD, NEW, OTHER = (bytes([byte]) * 16 + bytes(range(16)) for byte in (1, 2, 3))
SECRET = b"the patient's name is Miriam Holzapfel-Okonkwo"


def ring(*keys: tuple[str, bytes]) -> KeyRing:
    return KeyRing(keys or [("k1", OLD)])


def written(*keys: tuple[str, bytes]) -> str:
    """Keys as the environment has them."""
    return ",".join(f"{name}:{base64.b64encode(key).decode()}" for name, key in keys)


@pytest.fixture
def frames() -> Frames:
    """Frames of a store that has just been made, with one key."""
    made = Frames(ring())
    made.new_secret()
    return made


# -- values --------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.integers(1, 300), st.binary(max_size=300), st.booleans())
def test_sealed_comes_back(part: bytes, times: int, base: bytes, dense: bool) -> None:
    """Every value comes back as it was, and takes 33 bytes more at most."""
    frames, plain = Frames(ring()), part * times

    stored = frames.seal(plain, base=base, dense=dense)

    assert frames.open(stored, base=base) == plain
    assert len(stored) <= len(plain) + 1 + SEALED_BYTES_MORE


def test_nothing_of_a_value_can_be_read(frames: Frames) -> None:
    """No word of the plain bytes is in the stored ones, packed or not."""
    for plain in (SECRET, SECRET * 50, SECRET[:20], os.urandom(50)):
        for base in (b"", SECRET[:30]):
            stored = frames.seal(plain, base=base)

            assert not [at for at in range(len(plain) - 3) if plain[at : at + 4] in stored]


def test_equal_values_look_different(frames: Frames) -> None:
    """What is stored twice cannot be told from two different values of that size."""
    assert len({frames.seal(SECRET) for _ in range(50)}) == 50


def test_every_flipped_bit_is_refused(frames: Frames) -> None:
    """One bit anywhere, header and name of the key included, and the value does not open."""
    for plain in (b"", b"yes", SECRET, SECRET * 9):
        stored = frames.seal(plain)
        for bit in range(len(stored) * 8):
            changed = bytearray(stored)
            changed[bit // 8] ^= 1 << bit % 8

            with pytest.raises((StoreCorruptError, EncryptionKeyError)):
                frames.open(bytes(changed))


def test_every_cut_value_is_refused(frames: Frames) -> None:
    """No beginning of a value opens, and none with more behind it."""
    stored = frames.seal(SECRET)
    for other in [*(stored[:end] for end in range(len(stored))), stored + b"\0"]:
        with pytest.raises(StoreCorruptError):
            frames.open(other)


def test_plain_value_in_an_encrypted_store_is_refused(frames: Frames) -> None:
    """Who can write to the file cannot slip in a value without the key; and the other way round."""
    with pytest.raises(StoreCorruptError, match="is not encrypted"):
        frames.open(pack(SECRET))
    with pytest.raises(StoreCorruptError, match="is encrypted"):
        Frames().open(frames.seal(SECRET))


def test_the_secret_cannot_be_taken_for_a_value(frames: Frames) -> None:
    """What is kept in one place does not open in the other."""
    meta = frames.new_secret()
    assert meta is not None
    begin = 2 + meta[1]

    with pytest.raises(StoreCorruptError):
        frames.open(meta[:1] + meta[begin:])
    with pytest.raises(StoreCorruptError):
        frames.use_secret(meta[:begin] + frames.seal(os.urandom(32))[1:])


def test_threads_share_frames(frames: Frames) -> None:
    """Eight threads at once get their own values back."""
    start = threading.Barrier(8)

    def work(number: int) -> bool:
        start.wait()
        plains = [f"{number} {at} ".encode() * at for at in range(200)]
        return [frames.open(frames.seal(plain)) for plain in plains] == plains

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_forked_child_draws_nonces_of_its_own(frames: Frames) -> None:
    """Parent and child never use one nonce twice."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, b"".join(frames.seal(b"x") for _ in range(20)))
        os._exit(0)
    os.waitpid(child, 0)
    size = len(frames.seal(b"x"))
    theirs = os.read(read, 20 * size)
    os.close(read)
    os.close(write)

    both = [theirs[at : at + size] for at in range(0, len(theirs), size)] + [frames.seal(b"x") for _ in range(20)]
    assert len({stored[5:17] for stored in both}) == 40


# -- digests and the store's secret --------------------------------------------------------------------------------


def test_digests_tell_nothing_beyond_one_store() -> None:
    """Equal content has one digest within a store, another in the next one, and never the plain one."""
    one, two = Frames(ring()), Frames(ring())
    one.new_secret()
    two.new_secret()

    assert one.digest(SECRET) == one.digest(SECRET)
    assert len({one.digest(SECRET), two.digest(SECRET), Frames().digest(SECRET)}) == 3


def test_digests_stay_when_the_store_is_opened_again() -> None:
    """The secret is the store's, not the process's."""
    before, after = Frames(ring()), Frames(ring())

    after.use_secret(before.new_secret())

    assert after.digest(SECRET) == before.digest(SECRET)


def test_no_digest_before_the_secret() -> None:
    """A digest that a store could never compare with is not given."""
    with pytest.raises(RuntimeError, match="use_secret"):
        Frames(ring()).digest(SECRET)


def test_plain_store_has_no_secret() -> None:
    """Nothing is kept, and nothing asked for."""
    frames = Frames()

    assert frames.new_secret() is None
    frames.use_secret(None)
    assert frames.reseal_secret(None) is None


def test_wrong_keys_stop_a_store_before_it_begins() -> None:
    """No key, another key, another key of that name, keys for a plain store: each is refused, and says which it is."""
    meta = Frames(ring(("k1", OLD))).new_secret()

    with pytest.raises(EncryptionKeyError, match="encrypted with key 'k1', and there is no key") as missing:
        Frames().use_secret(meta)
    with pytest.raises(EncryptionKeyError, match="that key is not there"):
        Frames(ring(("k2", NEW))).use_secret(meta)
    with pytest.raises(EncryptionKeyError, match="the key of that name is another one"):
        Frames(ring(("k1", OTHER))).use_secret(meta)
    with pytest.raises(EncryptionKeyError, match="the store is not encrypted"):
        Frames(ring()).use_secret(None)
    assert missing.value.key == "k1"


def test_damaged_secret_is_corruption() -> None:
    """A flipped bit in the secret never gives another secret."""
    frames = Frames(ring())
    meta = frames.new_secret()
    assert meta is not None
    damaged = [meta[:end] for end in range(len(meta))]
    damaged += [
        meta[: bit // 8] + bytes((meta[bit // 8] ^ 1 << bit % 8,)) + meta[bit // 8 + 1 :]
        for bit in range(8 * len(meta))
    ]

    for found in damaged:
        with pytest.raises((StoreCorruptError, EncryptionKeyError)):
            Frames(ring()).use_secret(found)


# -- changing keys -------------------------------------------------------------------------------------------------


def test_rotation_changes_the_sealing_alone() -> None:
    """After it, the new key opens everything, the old one nothing; digests and packing are as they were."""
    before = Frames(ring(("k1", OLD)))
    meta, base = before.new_secret(), SECRET[:30]
    stored = [before.seal(b""), before.seal(SECRET * 20, dense=True), before.seal(SECRET, base=base)]
    during = Frames(ring(("k2", NEW), ("k1", OLD)))
    during.use_secret(meta)

    rotated = [during.reseal(value) for value in stored]
    meta = during.reseal_secret(meta)

    after = Frames(ring(("k2", NEW)))
    after.use_secret(meta)
    assert [after.open(value, base=base) for value in rotated] == [b"", SECRET * 20, SECRET]
    assert [len(value) for value in rotated] == [len(value) for value in stored]
    assert after.digest(SECRET) == before.digest(SECRET)
    for value in rotated:
        with pytest.raises(EncryptionKeyError):
            before.open(value)
    with pytest.raises(EncryptionKeyError, match="'k2'"):
        Frames(ring(("k1", OLD))).use_secret(meta)


def test_rotation_goes_on_where_it_was_cut_off() -> None:
    """What is under the current key already comes back as it is, and says so."""
    frames = Frames(ring(("k2", NEW), ("k1", OLD)))
    old, new = Frames(ring(("k1", OLD))).seal(SECRET), frames.seal(SECRET)

    assert (frames.key_id(old), frames.key_id(new)) == ("k1", "k2")
    assert frames.reseal(new) is new
    assert frames.key_id(frames.reseal(old)) == "k2"
    assert Frames().key_id(pack(SECRET)) is None


def test_value_under_a_missing_key_says_which() -> None:
    """The error tells the prints of the keys that are there and of the one that is not."""
    stored = Frames(ring(("k1", OLD))).seal(SECRET)
    wanted = stored[1:5].hex()

    with pytest.raises(EncryptionKeyError, match=rf"print {wanted}.*'k2' \(print (?!{wanted})"):
        Frames(ring(("k2", NEW))).open(stored)


def test_key_before_or_behind_is_the_same_key() -> None:
    """While a new key is rolled out, processes with either order read what the others write."""
    first, second = Frames(ring(("k1", OLD), ("k2", NEW))), Frames(ring(("k2", NEW), ("k1", OLD)))

    assert second.open(first.seal(SECRET)) == first.open(second.seal(SECRET)) == SECRET


# -- keys ----------------------------------------------------------------------------------------------------------


def test_keys_come_from_the_environment() -> None:
    """The first is the current one; spaces, lines and the URL alphabet are fine."""
    text = f" 2026-02:{base64.urlsafe_b64encode(NEW).decode()} ,\n2026-01: {base64.b64encode(OLD).decode()}"

    found = KeyRing.from_env({KEYS_VARIABLE: text})

    assert found is not None
    assert [key.name for key in found.keys] == ["2026-02", "2026-01"]
    assert found.current.name == "2026-02"
    assert Frames(found).open(Frames(ring(("any", OLD))).seal(SECRET)) == SECRET


@pytest.mark.parametrize("env", [{}, {KEYS_VARIABLE: ""}])
def test_no_keys_is_no_ring(env: dict[str, str]) -> None:
    """An empty variable counts as not set."""
    assert KeyRing.from_env(env) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (base64.b64encode(OLD).decode(), "entry 1 has no name"),
        (f"{written(('k1', OLD))},", "entry 2 has no name"),
        (f":{base64.b64encode(OLD).decode()}", "entry 1 has no name"),
        (f"a b:{base64.b64encode(OLD).decode()}", "entry 1 has no name"),
        (" ", "entry 1 has no name"),
        ("k1:???", "'k1' is not base64"),
        ("k1:" + base64.b64encode(OLD).decode()[:-1], "'k1' is not base64"),
        ("k1:", "'k1' has 0 bytes, not 32"),
        (written(("k1", OLD[:16])), "'k1' has 16 bytes, not 32"),
        (written(("k1", OLD + b"x")), "'k1' has 33 bytes, not 32"),
        (written(("k1", OLD), ("k1", NEW)), "'k1' is the name of two keys"),
        (written(("k1", OLD), ("k2", OLD)), "one key has two names"),
    ],
)
def test_what_is_no_key_is_refused_and_not_repeated(text: str, why: str) -> None:
    """The error says which entry is wrong, and nothing of any key."""
    with pytest.raises(EncryptionKeyError, match=re.escape(why)) as refused:
        KeyRing.from_env({KEYS_VARIABLE: text})

    keys = [part for part in re.split(r"[:,\s]+", text) if len(part) > 4]
    assert not [key for key in keys if key in str(refused.value)]


def test_a_ring_shows_no_key() -> None:
    """Neither printed nor pickled does a ring give its keys away."""
    shown = f"{ring()!r} {ring()} {Frames(ring()).keys} {vars(ring())} {ring().current}"

    for key in (OLD.hex(), base64.b64encode(OLD).decode(), repr(OLD)):
        assert key not in shown
    with pytest.raises(TypeError):
        pickle.dumps(ring())


# -- an encrypted store --------------------------------------------------------------------------------------------


WORDS = [b"patient's", b"Miriam", b"Holzapfel", b"Unterschrift"]
SCAN = random.Random(9).randbytes(3000)
"""Packing hides words, too, but it leaves these bytes as they are: only encryption can make them go away."""


def said(number: int) -> dict[str, Any]:
    """A secret, with a scan of its own."""
    return {"text": f"{SECRET.decode()} {number}", "Unterschrift": SCAN[number * 500 : number * 500 + 500]}


@effect
def book(note: dict[str, Any]) -> dict[str, Any]:
    """An outside act whose argument and result are secrets."""
    return said(2)


def answer(state: MessagesState) -> dict[str, Any]:
    """Says a secret, and does something with others."""
    return {"messages": [AIMessage(SECRET.decode(), additional_kwargs={**said(0), **book(said(1))})]}


def ask(state: MessagesState) -> dict[str, Any]:
    """Asks with a secret, and fails with it where the answer is no."""
    if interrupt(said(3)) == "no":
        raise ValueError(SECRET.decode())
    return {"messages": [AIMessage(SECRET.decode(), additional_kwargs=said(4))]}


def agent_of(url: str) -> Any:
    """The agent of a process that has just begun."""
    shutdown()
    graph = StateGraph(MessagesState)
    graph.add_node(answer)
    graph.add_node(ask)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "ask")
    return protect(graph.compile(), url, name="clinic")


def asked(url: str) -> Any:
    """A thread that waits for its answer, in a store that nobody has open."""
    first = HumanMessage(SECRET.decode(), additional_kwargs=said(5))
    out = agent_of(url).invoke({"messages": [first]}, thread="t", idempotency_key="once")
    shutdown()
    return out


def answered(url: str, yes: str = "yes") -> bool:
    """Answer the question as another process; whether the thread then holds what was said."""
    messages = agent_of(url).invoke(Command(resume=yes), thread="t")["messages"]
    scans = [message.additional_kwargs["Unterschrift"] for message in messages]
    return scans == [said(number)["Unterschrift"] for number in (5, 2, 4)]


def readable(folder: Path) -> list[bytes]:
    """What of the secrets can be read in any file of the folder: database, write-ahead log, locks."""
    found = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    return [part for part in [*WORDS, *(SCAN[at : at + 10] for at in range(0, len(SCAN), 10))] if part in found]


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store that is not there yet; one key is in the environment."""
    monkeypatch.setenv(KEYS_VARIABLE, written(("k1", OLD)))
    yield f"sqlite:///{tmp_path / 'clinic.db'}"
    shutdown()


def test_a_store_holds_nothing_readable(url: str, tmp_path: Path) -> None:
    """Input, messages, an effect's argument and result, question, answer: all come back, and none is in any file."""
    asked(url)

    assert readable(tmp_path) == []
    assert answered(url)
    assert readable(tmp_path) == []
    shutdown()
    assert readable(tmp_path) == []


def test_the_look_would_find_what_is_plain(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without keys the same look finds the bytes that packing leaves as they are."""
    monkeypatch.delenv(KEYS_VARIABLE)

    asked(url)

    assert len(readable(tmp_path)) > 50


def test_an_error_of_a_node_is_not_readable(url: str, tmp_path: Path) -> None:
    """What an exception says of the state is as secret as the state."""
    asked(url)
    with pytest.raises(ValueError, match="Miriam"):
        answered(url, "no")
    shutdown()

    assert readable(tmp_path) == []


def test_a_store_says_nothing_without_its_key(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the key, or with another, it does not open, and nothing is changed."""
    asked(url)

    for keys in ("", written(("k1", OTHER)), written(("k2", NEW))):
        monkeypatch.setenv(KEYS_VARIABLE, keys)
        with pytest.raises(EncryptionKeyError):
            open_store(url)

    monkeypatch.setenv(KEYS_VARIABLE, written(("k1", OLD)))
    assert answered(url)


def test_a_plain_store_stays_plain(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store made without keys does not open with some: half of it would be readable, and nobody would know."""
    monkeypatch.delenv(KEYS_VARIABLE)
    asked(url)
    monkeypatch.setenv(KEYS_VARIABLE, written(("k1", OLD)))

    with pytest.raises(EncryptionKeyError, match="not encrypted"):
        open_store(url)

    monkeypatch.delenv(KEYS_VARIABLE)
    assert answered(url)


def test_a_new_key_in_front_reads_on(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a new current key and the old one behind it, a thread goes on."""
    asked(url)
    monkeypatch.setenv(KEYS_VARIABLE, written(("k2", NEW), ("k1", OLD)))

    assert answered(url)


def test_the_same_request_is_known_again(url: str) -> None:
    """The idempotency key's request is compared, though nothing of it can be read."""
    asked(url)
    assert answered(url)

    again = asked(url)

    assert [message.type for message in again["messages"]] == ["human", "ai", "ai"]


def test_keys_that_are_none_stop_the_opening(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A variable that is no key is an error before there is a file, not a plain store."""
    monkeypatch.setenv(KEYS_VARIABLE, "none")

    with pytest.raises(EncryptionKeyError, match=KEYS_VARIABLE):
        open_store(url)

    assert not (tmp_path / "clinic.db").exists()
