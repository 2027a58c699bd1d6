"""`ninelives reseal`: a whole store under its new key, by one command."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import ninelives.cli.keys as keys
from cli import Ended
from ninelives import protect, shutdown
from ninelives.cli import main
from ninelives.config import KEYS_VARIABLE
from ninelives.lease import Keeper
from ninelives.model import SYSTEM, Bookmark, Resealed
from ninelives.store import Steps, act
from ninelives.stores import open_store
from ninelives.stores.codec.keys import KeyRing

Type = Callable[..., Ended]
URL = "sqlite:///clinic.db"
OLD, NEW = os.urandom(32), os.urandom(32)
PRINT = KeyRing([("old", OLD)]).current.print


def written(**named: bytes) -> str:
    return ",".join(f"{name}:{base64.b64encode(key).decode()}" for name, key in named.items())


@pytest.fixture
def type_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Type]:
    """Types commands in a folder of its own, at its store, with these keys in the environment."""

    def carry_out(*words: str, **named: bytes) -> Ended:
        shutdown()
        monkeypatch.setenv(KEYS_VARIABLE, written(**named))
        capsys.readouterr()
        code = main([*words, "--store", URL])
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(KEYS_VARIABLE, written(old=OLD))
    yield carry_out
    shutdown()


def agent() -> Any:
    """Of a process that has just begun."""
    shutdown()

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("ai", f"heard {interrupt('what is it?')}")]}

    builder = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
    return protect(builder.compile(), URL, name="clinic")


def asked(thread: str = "t") -> None:
    agent().invoke({"messages": [HumanMessage("Miriam is allergic to nuts")]}, thread=thread)
    shutdown()


def listed() -> list[Any]:
    """All runs, with their requests."""
    store = open_store(URL)
    runs = store.perform(store.list_runs(SYSTEM))
    store.close()
    return runs


def test_one_command_and_the_old_key_can_go(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting thread is answered by a process that has the new key only, and no file holds the old one's print."""
    asked()
    before = listed()

    ended = type_("reseal", "--json", new=NEW, old=OLD)

    told = ended.json
    assert ended.code == 0
    assert "all is under key 'new'; no older key is needed to read it" in ended.talk
    assert (told["key"], told["walks"], told["written_anew"]) == ("new", 2, True)
    assert told["values"].keys() == told["resealed"].keys() >= {"items", "checkpoints", "runs", "questions", "secret"}
    assert told["resealed"] == told["values"]
    monkeypatch.setenv(KEYS_VARIABLE, written(new=NEW))
    assert listed() == before
    assert agent().invoke(Command(resume="nuts"), thread="t")["messages"][-1].content == "heard nuts"
    shutdown()
    files = [path.read_bytes() for path in Path().rglob("*") if path.is_file()]
    assert not any(PRINT in content for content in files)


def test_a_table_says_how_much(type_: Type) -> None:
    """A line for each kind; the second time nothing but the secret is under an older key."""
    asked()

    first, second = type_("reseal", new=NEW, old=OLD), type_("reseal", new=NEW, old=OLD)

    lines = [line.split() for line in first.out.splitlines()]
    assert lines[0] == ["WHAT", "VALUES", "RESEALED"]
    assert ["questions", "2", "2"] in lines  # what is asked, and what it is about
    assert ["questions", "2", "0"] in [line.split() for line in second.out.splitlines()]


def test_wrong_keys_are_told_and_change_nothing(type_: Type) -> None:
    """No key, the new key without the old one, a plain store: each says what to do, with the code of a wrong setup."""
    asked()
    before = Path("clinic.db").read_bytes()

    none, alone = type_("reseal"), type_("reseal", new=NEW)

    assert (none.code, alone.code) == (9, 9)
    assert "encrypted with key 'old', and there is no key" in none.talk
    assert "that key is not there" in alone.talk
    assert Path("clinic.db").read_bytes() == before


def test_a_plain_store_says_so(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """With keys it does not open, without there is nothing to do; a store that is not there is not made."""
    assert type_("reseal", new=NEW).code == 7
    assert not Path("clinic.db").exists()
    monkeypatch.delenv(KEYS_VARIABLE)
    asked()

    assert "the store is not encrypted" in type_("reseal", new=NEW).talk
    without = type_("reseal")

    assert without.code == 9
    assert "begin a new store with a key" in without.talk


def test_beside_a_live_process_the_file_is_left_for_later(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """All values are done and the old key can go; what may be left between them is said, with the code for later."""
    asked()
    monkeypatch.setenv(KEYS_VARIABLE, written(new=NEW, old=OLD))
    store = open_store(URL)
    keeper = Keeper(store)
    keeper.worker()

    ended = type_("reseal", "--json", new=NEW, old=OLD)

    assert ended.code == 6
    assert ended.json["written_anew"] is False
    assert "work in the store" in ended.talk
    assert "Type this again when nothing runs" in ended.talk
    keeper.close()
    store.close()
    assert type_("reseal", new=NEW).code == 0


def test_who_keeps_writing_under_an_old_key_is_told_of(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not go on for ever: another process must be given its keys in the right order."""

    @act
    def never_ends(self: object, after: Bookmark | None = None) -> Steps[Resealed]:
        yield from ()
        walk = after.walk if after else 1
        return Resealed("new", "secret", 0, 0, walk, Bookmark(walk + 1))

    asked()
    monkeypatch.setattr("ninelives.stores.sqlite.SqliteStore.reseal", never_ends)

    ended = type_("reseal", new=NEW, old=OLD)

    assert ended.code == 9
    assert "another key in front than 'new'" in ended.talk


def test_what_takes_long_is_told_now_and_then(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line says in which walk, at what, and how much."""
    asked()
    monkeypatch.setattr(keys, "TELL_EVERY_S", -1)

    ended = type_("reseal", new=NEW, old=OLD)

    lines = re.findall(r"walk (\d), runs: 1 looked at; (\d+) values resealed so far", ended.talk)
    assert [walk for walk, _ in lines] == ["1", "2"]
    assert 1 < int(lines[0][1]) < int(lines[1][1])


def test_stopped_by_hand_it_goes_on_where_it_was(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C leaves what was done, and a store that opens with both keys."""
    asked()
    reseal = keys._resealed

    def stopped(store: Any) -> Any:
        store.perform(store.reseal())
        raise KeyboardInterrupt

    monkeypatch.setattr(keys, "_resealed", stopped)
    first = type_("reseal", new=NEW, old=OLD)
    monkeypatch.setattr(keys, "_resealed", reseal)
    second = type_("reseal", "--json", new=NEW, old=OLD)

    assert first.code == 130
    assert "Type it again to go on" in first.talk
    assert second.json["resealed"]["items"] == 0
    assert second.json["resealed"]["runs"] == 1
    assert type_("threads", "list", new=NEW).code == 0
