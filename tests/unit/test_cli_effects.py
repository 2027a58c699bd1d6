"""`ninelives effects`: what nobody is sure of is listed, and settled with who and why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import EMPTY, Desk, Ended
from ninelives.cli import main
from ninelives.protect import shutdown

Type = Callable[..., Ended]

BANK = """
from dataclasses import dataclass
from typing import TypedDict

from langgraph.graph import START, StateGraph

from agent import chain, first
from ninelives import effect


@dataclass
class Receipt:
    number: int


@effect
def wire():
    raise ConnectionError("the line is dead")


@effect
def book():
    return Receipt(7)


def pay(state):
    return {"log": [str(wire())]}


class Kept(TypedDict):
    receipt: Receipt


def keep(state):
    return {"receipt": book()}


wiring = chain(first, pay).compile()
keeping = StateGraph(Kept).add_node("keep", keep).add_edge(START, "keep").compile()
"""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A current folder with agents; what was opened and imported there is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "bank.py").write_text(BANK)
    yield Desk(tmp_path)
    for name in ("agent", "bank"):
        sys.modules.pop(name, None)
    shutdown()


@pytest.fixture
def type_(desk: Desk, capsys: pytest.CaptureFixture[str]) -> Type:
    def carry_out(*words: str) -> Ended:
        code = main(words)
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return carry_out


@pytest.fixture
def unknown(type_: Type) -> dict[str, Any]:
    """An act of thread "t" that raised: nobody knows whether it happened."""
    type_("run", "bank.py:wiring", EMPTY, "--thread", "t")
    (act,) = type_("effects", "list", "--json").json
    return dict(act)


def test_what_is_open_is_listed(type_: Type, unknown: dict[str, Any]) -> None:
    """The act, how it stands, on which thread and why; as JSON all that is known of it."""
    listed = type_("effects", "list")

    head, row = listed.out.splitlines()
    assert head.split() == ["KEY", "ACT", "STATE", "THREAD", "SINCE", "WHY", "RESULT"]
    assert row.split()[:4] == [unknown["key"], "wire", "unknown", "t"]
    assert "the call raised ConnectionError('the line is dead')" in row
    assert {name: unknown[name] for name in ("state", "standing", "thread_id", "node", "result", "inherits")} == {
        "state": "unknown",
        "standing": "unknown",
        "thread_id": "t",
        "node": "pay",
        "result": None,
        "inherits": None,
    }


def test_what_is_known_is_listed_when_asked_for(type_: Type) -> None:
    """An act that is done is no work for anybody, so it takes --all or --state to see it."""
    type_("run", "agent.py:paying", EMPTY, "--thread", "t")

    assert (type_("effects", "list").out, type_("effects", "list").talk) == ("", "no act is open\n")
    for words in (("--all",), ("--state", "done"), ("--all", "--thread", "t")):
        (act,) = type_("effects", "list", "--json", *words).json
        assert (act["name"], act["standing"], act["result"]) == ("charge", "done", "charged")
    assert type_("effects", "list", "--state", "not_done", "--json").json == []


def test_a_result_of_the_graphs_own_types_does_not_hide_the_list(type_: Type) -> None:
    """The graph is not imported to list: what only it can read is said to be so."""
    type_("run", "bank.py:keeping", "{}", "--thread", "t")
    sys.modules.pop("bank")
    shutdown()

    listed, (act,) = type_("effects", "list", "--all"), type_("effects", "list", "--all", "--json").json

    assert listed.out.splitlines()[1].endswith("not readable here")
    assert (act["result"], "Receipt" in act["unreadable"]) == (None, True)
    assert "not readable here" in type_("threads", "show", "t").out


def test_settled_as_done_the_run_goes_on_with_the_result(type_: Type, unknown: dict[str, Any]) -> None:
    """Recorded with who and why; what to type next is said, and the act is not done again."""
    key = unknown["key"]
    words = ("--done", "--result", '{"receipt": 7}', "--why", "it is on the statement", "--by", "carol", "--json")

    settled = type_("effects", "settle", key, *words)
    ended = type_("run", "bank.py:wiring", "--thread", "t", "--continue")

    assert settled.code == 0
    record = settled.json
    assert (record["state"], record["result"], record["by"]) == ("done", {"receipt": 7}, "carol")
    assert record["why"] == "it is on the statement"
    assert settled.talk == (
        "act 'wire' of thread t is recorded as done\n"
        "then go on, with GRAPH for 'wiring':  ninelives run GRAPH --thread t --continue\n"
    )
    assert ended.json == {"log": ["first", "{'receipt': 7}"]}


def test_settled_as_not_done_it_is_done_again(type_: Type, unknown: dict[str, Any], monkeypatch: Any) -> None:
    """The beginning of the key will do; who is logged in has found out; the run performs it anew."""
    monkeypatch.setattr("getpass.getuser", lambda: "dan")

    settled = type_("effects", "settle", unknown["key"][:8], "--not-done", "--why", "asked the bank")
    again = type_("run", "bank.py:wiring", "--thread", "t", "--continue")
    (act,) = type_("effects", "list", "--json").json

    assert (settled.code, settled.out, again.code) == (0, "", 1)
    assert (act["state"], act["attempt"]) == ("unknown", 2)


def test_text_is_a_result_as_it_is(type_: Type, unknown: dict[str, Any]) -> None:
    """What is no JSON is taken as text, like an answer."""
    type_("effects", "settle", unknown["key"], "--done", "--result", "wired by hand", "--why", "looked")

    (act,) = type_("effects", "list", "--all", "--json").json
    assert act["result"] == "wired by hand"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--why", "looked"), 2, "Say --done or --not-done"),
        (("--done", "--not-done", "--why", "looked"), 2, "Say --done or --not-done"),
        (("--not-done", "--result", "1", "--why", "looked"), 2, "leave it out with --not-done"),
        (("--done", "--why", " "), 2, "--why is empty"),
        (("--done",), 2, "why"),
    ],
)
def test_a_wrong_settlement_changes_nothing(
    type_: Type, unknown: dict[str, Any], words: tuple[str, ...], code: int, said: str
) -> None:
    """Both, neither, no reason: the command line is wrong, and the act stays unknown."""
    refused = type_("effects", "settle", unknown["key"], *words)

    assert (refused.code, refused.out) == (code, "")
    assert said in refused.talk
    assert type_("effects", "list", "--json").json == [unknown]


def test_an_empty_key_is_no_key(type_: Type, unknown: dict[str, Any]) -> None:
    """As a script gives it whose variable is not set: it begins every key, and settles nothing."""
    empty = type_("effects", "settle", "", "--done", "--why", "looked")

    assert empty.code == 7
    assert "is not known here" in empty.talk
    assert type_("effects", "list", "--json").json == [unknown]


def test_an_unknown_key_names_near_ones(type_: Type, unknown: dict[str, Any]) -> None:
    """A key that was mistyped, one of another owner, and the beginning of several are refused."""
    type_("run", "bank.py:wiring", EMPTY, "--thread", "u")
    key = unknown["key"]

    mistyped = type_("effects", "settle", key[:-1] + "!", "--done", "--why", "looked")
    other = type_("effects", "settle", key, "--done", "--why", "looked", "--owner", "ada")
    several = type_("effects", "settle", "nl-", "--done", "--why", "looked")

    assert [ended.code for ended in (mistyped, other, several)] == [7, 7, 7]
    assert f"Did you mean '{key}'" in mistyped.talk
    assert "is not known here" in other.talk
    assert "is the beginning of several keys" in several.talk
    assert type_("effects", "list", "--thread", "tt").code == 7


def test_what_is_known_is_not_settled_again(type_: Type, unknown: dict[str, Any]) -> None:
    """The second one is told how it was settled, and nothing changes."""
    type_("effects", "settle", unknown["key"], "--done", "--why", "looked")

    second = type_("effects", "settle", unknown["key"], "--not-done", "--why", "guessed")

    assert second.code == 8
    assert "is known: done" in second.talk


def test_without_a_store_nothing_is_open(type_: Type) -> None:
    """Listing makes no file; there is nothing to settle."""
    listed = type_("effects", "list", "--json")
    settled = type_("effects", "settle", "nl-1", "--done", "--why", "looked")

    assert (listed.json, settled.code) == ([], 7)
    assert not Path("ninelives.db").exists()


def test_what_is_under_way_is_not_settled(desk: Desk) -> None:
    """While its process lives an act is under way; killed, it was cut off, and can be settled either way."""
    desk.shut_gate()
    with desk.begin("run", "agent.py:paying", EMPTY, "--thread", "t", "--plain") as life, desk.meet_at_gate():
        (act,) = desk.type("effects", "list", "--json").json
        refused = desk.type("effects", "settle", act["key"], "--not-done", "--why", "guessed")
        life.process.kill()
        life.process.wait()
    desk.take_gate_away()
    (cut,) = desk.type("effects", "list", "--json").json
    settled = desk.type("effects", "settle", act["key"], "--not-done", "--why", "it was killed")
    ended = desk.type("run", "agent.py:paying", "--thread", "t", "--continue")

    assert (act["state"], act["standing"], cut["standing"]) == ("intent", "under way", "cut off")
    assert refused.code == 8
    assert "may still be at it" in refused.talk
    assert (settled.code, ended.code) == (0, 0)
    assert desk.trace == ["first", "charge", "charge", "third"]
