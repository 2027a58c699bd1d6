"""`ninelives inbox`: what waits for a person, decided from another terminal than the one that asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli import EMPTY, Desk, Ended
from ninelives.cli import main

REVIEWED = '''
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

CALLS = [
    {"name": "charge", "args": {"order": "7", "cents": 990}, "id": "c-1", "type": "tool_call"},
    {"name": "mail", "args": {"to": "ann"}, "id": "m-1", "type": "tool_call"},
]


class Model(BaseChatModel):
    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, *args, **kwargs):
        turn = sum(isinstance(m, AIMessage) for m in messages)
        said = AIMessage("", tool_calls=CALLS) if turn == 0 else AIMessage("settled")
        return ChatResult(generations=[ChatGeneration(message=said)])


def told(what):
    with open("trace.txt", "a") as trace:
        trace.write(what + "\\n")


def charge(order: str, cents: int) -> str:
    """Charge a card."""
    told(f"charge {order} {cents}")
    return "charged"


def mail(to: str) -> str:
    """Send a mail."""
    told(f"mail {to}")
    return "mailed"


agent = create_agent(
    Model(), [charge, mail], middleware=[HumanInTheLoopMiddleware(interrupt_on={"charge": True, "mail": True})]
)
'''


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def shop(desk: Desk) -> Desk:
    """A folder where an agent asks for leave to charge and to mail."""
    (desk.folder / "shop.py").write_text(REVIEWED)
    assert desk.type("run", "shop.py:agent", "settle it", "--thread", "t").code == 4
    return desk


def entries(desk: Desk) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = desk.type("inbox", "list", "--json").json
    return found


def question_of(desk: Desk) -> dict[str, Any]:
    (entry,) = entries(desk)
    (question,) = entry["questions"]
    return dict(question)


def must_be(ended: Ended, code: int, *said: str) -> None:
    assert ended.code == code, ended.talk
    for text in said:
        assert text in ended.talk


def test_questions_and_failures_are_one_list(desk: Desk) -> None:
    """What asks, what failed, and what was cut off; a thread that is done is not in it. Each says what comes next."""
    desk.type("run", "agent.py:agent", EMPTY, "--thread", "done")
    desk.type("run", "agent.py:asking", EMPTY, "--thread", "asks")
    desk.type("run", "agent.py:failing", EMPTY, "--thread", "fails")
    desk.shut_gate()
    with desk.begin("run", "agent.py:paying", EMPTY, "--thread", "cut", "--plain") as life, desk.meet_at_gate():
        life.process.kill()
        life.process.wait()

    found = {entry["run"]["thread_id"]: entry for entry in entries(desk)}

    assert {name: entry["state"] for name, entry in found.items()} == {
        "asks": "waits for an answer",
        "fails": "failed",
        "cut": "cut off",
    }
    assert found["fails"]["will_run"] == ["broken"]
    assert found["cut"]["will_run"] == ["pay"]
    assert [act["name"] for act in found["cut"]["unknown"]] == ["charge"]
    assert found["asks"]["questions"][0]["payload"] == {"question": "sure?"}
    told = desk.type("inbox", "list")
    assert "ValueError" in told.out
    shown = desk.type("inbox", "show", "cut")
    assert "charge" in shown.out


def test_an_approval_from_another_terminal(shop: Desk) -> None:
    """The waiting `ninelives run` takes it up and goes on; the decision says who, and nothing runs twice."""
    with shop.begin("run", "shop.py:agent", "--thread", "t", "--continue", "--wait", "60", "--plain") as waiting:
        waiting.says("waiting for an answer")
        asked = question_of(shop)

        told = shop.type("inbox", "approve", asked["interrupt_id"][:8], "--all", "--as", "ann", "--note", "a regular")
        ended = waiting.ends()

    must_be(told, 0, "is ready to go on")
    assert ended.code == 0, ended.talk
    assert "settled" in ended.out
    assert sorted(shop.trace) == ["charge 7 990", "mail ann"]
    again = shop.type("inbox", "approve", asked["interrupt_id"], "--all", "--as", "bob")
    must_be(again, 8, "was answered by ann (inbox)", "nothing was changed")
    assert len(shop.trace) == 2


def test_each_call_is_decided_by_its_id(shop: Desk) -> None:
    """One edited, one rejected, and gone on with right there."""
    asked = question_of(shop)
    assert [action["tool_call_id"] for action in asked["actions"]] == ["c-1", "m-1"]
    unclear = shop.type("inbox", "approve", asked["interrupt_id"])
    must_be(unclear, 2, "it asks about 2 tool calls", "--all")
    wrong = shop.type(
        "inbox", "decide", asked["interrupt_id"], "--approve", "m-1", "--edit", 'c-1={"order": "7", "cents": "ten"}'
    )
    must_be(wrong, 8, "is not of type 'integer'", "nothing was changed")

    decided = ["--reject", "m-1=not yet", "--edit", 'c-1={"order": "7", "cents": 10}']
    ended = shop.type("inbox", "decide", asked["interrupt_id"], *decided, "--go-on", "--graph", "shop.py:agent")

    assert ended.code == 0, ended.talk
    assert shop.trace == ["charge 7 10"]
    assert entries(shop) == []


def test_a_free_question_is_answered(desk: Desk) -> None:
    """With JSON or text; the thread goes on when somebody continues it."""
    desk.type("run", "agent.py:asking", EMPTY, "--thread", "t")
    asked = question_of(desk)

    must_be(desk.type("inbox", "respond", asked["interrupt_id"][:6], '{"yes": true}'), 0)
    ended = desk.type("inbox", "continue", "t", "--graph", "agent.py:asking")

    assert ended.code == 0, ended.talk
    assert "said {'yes': True}" in ended.out


def test_what_was_decided_is_ready_to_go_on(shop: Desk) -> None:
    """Without --go-on a decision says how to go on; the graph is found by its name in langgraph.json."""
    (shop.folder / "langgraph.json").write_text('{"graphs": {"agent": "./shop.py:agent"}}')
    asked = question_of(shop)

    told = shop.type("inbox", "approve", asked["interrupt_id"], "--all", "--as", "ann", "--shown", asked["digest"])

    must_be(told, 0, "ninelives inbox continue t")
    (entry,) = entries(shop)
    assert (entry["state"], entry["questions"], entry["will_run"]) == ("ready to go on", [], ["HumanInTheLoop" + MORE])
    must_be(shop.type("inbox", "continue", "t"), 0)
    assert sorted(shop.trace) == ["charge 7 990", "mail ann"]


def test_who_begins_to_wait_after_the_answer_goes_on_with_it(shop: Desk) -> None:
    """It came while nobody was looking; without --wait it is said how the thread stands, and nothing runs."""
    shop.type("inbox", "approve", question_of(shop)["interrupt_id"], "--all")

    looked = shop.type("run", "shop.py:agent", "--thread", "t")
    waited = shop.type("run", "shop.py:agent", "--thread", "t", "--wait", "60")

    must_be(looked, 3, "ready to go on,")
    must_be(waited, 0)
    assert sorted(shop.trace) == ["charge 7 990", "mail ann"]


MORE = "Middleware.after_model"


def test_of_two_people_at_once_one_decides(shop: Desk) -> None:
    """One approves and one rejects, each in a terminal; a third waits, and goes on with what was first."""
    asked = question_of(shop)["interrupt_id"]
    with (
        shop.begin("run", "shop.py:agent", "--thread", "t", "--wait", "60", "--plain") as waiting,
        shop.begin("inbox", "approve", asked, "--all", "--as", "ann") as ann,
        shop.begin("inbox", "reject", asked, "--all", "--as", "bob", "--message", "no") as bob,
    ):
        told = {"ann": ann.ends(), "bob": bob.ends()}
        ended = waiting.ends()

    first, second = sorted(told, key=lambda name: told[name].code)
    assert [told[first].code, told[second].code] == [0, 8], told
    assert f"was answered by {first} (inbox)" in told[second].talk
    assert ended.code == 0, ended.talk
    done = (shop.folder / "trace.txt").exists() and sorted(shop.trace)
    assert done == (["charge 7 990", "mail ann"] if first == "ann" else False)


def test_what_cannot_be_gone_on_with_here_is_not_decided(shop: Desk) -> None:
    """A graph that is not there, another one's thread, something else than was shown: the question waits as before."""
    before = question_of(shop)
    asked = before["interrupt_id"]

    must_be(shop.type("inbox", "approve", asked, "--all", "--go-on", "--graph", "shp.py:agent"), 9, "no file")
    must_be(shop.type("inbox", "approve", asked, "--all", "--shown", "0" * 64), 8, "asks something else now")
    must_be(shop.type("inbox", "edit", asked, "--args", "{}"), 2, "decide each")
    must_be(shop.type("inbox", "continue", "t", "--owner", "ann"), 7)

    assert question_of(shop) == before


def test_an_act_of_which_nobody_knows_stays_until_somebody_does(desk: Desk) -> None:
    """Given up, its run is; that does not say whether the charge was made."""
    desk.shut_gate()
    with desk.begin("run", "agent.py:paying", EMPTY, "--thread", "t", "--plain") as life, desk.meet_at_gate():
        life.process.kill()
        life.process.wait()

    must_be(desk.type("inbox", "abandon", "t"), 0)
    (entry,) = entries(desk)
    key = entry["unknown"][0]["key"]
    assert (entry["state"], entry["run"]["status"], entry["will_run"]) == ("outcome unknown", "abandoned", [])
    assert "did it happen: charge" in desk.type("inbox", "list").out
    must_be(desk.type("effects", "settle", key, "--done", "--why", "the books say so"), 0)

    assert entries(desk) == []


def test_days_later_by_the_clock(desk: Desk) -> None:
    """A question without a deadline waits; one whose time is over is not asked any more, and the list says so."""
    desk.type("run", "agent.py:asking", EMPTY, "--thread", "patient")
    desk.type("run", "agent.py:bounded", EMPTY, "--thread", "bounded")
    soon = {entry["run"]["thread_id"]: entry["questions"][0] for entry in entries(desk)}
    desk.ahead_s = 9 * 86_400

    late = desk.type("inbox", "respond", soon["bounded"]["interrupt_id"], "yes", "--as", "ann")
    found = {entry["run"]["thread_id"]: entry["state"] for entry in entries(desk)}
    answered = desk.type(
        "inbox", "respond", soon["patient"]["interrupt_id"], "yes", "--go-on", "--graph", "agent.py:asking"
    )

    must_be(late, 8, "is not pending")
    assert soon["bounded"]["deadline_at"] is not None
    assert soon["patient"]["deadline_at"] is None
    assert found == {"patient": "waits for an answer", "bounded": "expired"}
    must_be(answered, 0)
    assert "said 'yes'" in answered.out
    must_be(desk.type("inbox", "abandon", "bounded"), 0)
    assert entries(desk) == []


WRONG = [
    (("approve", ""), 8, "is not pending"),
    (("approve", "nothing"), 8, "'nothing' is not pending"),
    (("show", "nothing"), 7, "waits for nobody"),
    (("edit", "{id}", "--args", "[1]"), 2, "are a JSON object"),
    (("edit", "{id}", "--args", "{"), 2, "no JSON"),
    (("approve", "{id}"), 8, "says nothing to a question that asks for no tool call"),
    (("decide", "{id}"), 2, "nothing was decided"),
    (("decide", "{id}", "--approve", "a", "--reject", "a"), 2, "two decisions about 'a'"),
    (("abandon", "nowhere"), 7, "is not known"),
    (("ask-again", "t"), 8, "nothing to ask again"),
]


def test_what_cannot_be_decided_changes_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is told why, by the exit code too, and the question waits as before."""
    desk.type("run", "agent.py:asking", EMPTY, "--thread", "t")
    before = question_of(desk)
    monkeypatch.chdir(desk.folder)

    for words, code, said in WRONG:
        ended = main(["inbox", *(word.replace("{id}", before["interrupt_id"]) for word in words)])
        must_be(Ended(ended, *capsys.readouterr()), code, said)

    assert question_of(desk) == before


def test_what_has_failed_is_continued_started_over_or_given_up(desk: Desk) -> None:
    """From the inbox, with the graph where it is needed."""
    desk.type("run", "agent.py:failing", EMPTY, "--thread", "t")
    must_be(desk.type("inbox", "continue", "t", "--graph", "agent.py:failing"), 1, "this node is broken")
    must_be(desk.type("inbox", "start-over", "t", "--graph", "agent.py:failing"), 1, "this node is broken")
    assert desk.trace == ["first", "first"]

    must_be(desk.type("inbox", "abandon", "t", "--as", "ann"), 0, "stays for reading")

    assert entries(desk) == []
    must_be(desk.type("inbox", "abandon", "t"), 2, "nothing is unfinished")


def test_an_empty_inbox_says_so(desk: Desk) -> None:
    """With a store, and with none."""
    assert "there is no store" in desk.type("inbox", "list").talk
    desk.type("run", "agent.py:agent", EMPTY, "--thread", "t")

    ended = desk.type("inbox", "list")

    must_be(ended, 0, "nothing waits for anybody")
