"""The commands, carried out in this process: what each prints where, and with which code it ends."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import EMPTY, Desk, Ended
from ninelives.cli import main
from ninelives.protect import shutdown

Type = Callable[..., Ended]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A current folder with an agent; what was opened and imported there is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield Desk(tmp_path)
    sys.modules.pop("agent", None)
    shutdown()


@pytest.fixture
def type_(desk: Desk, capsys: pytest.CaptureFixture[str]) -> Type:
    def carry_out(*words: str) -> Ended:
        code = main(words)
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return carry_out


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """From now on a person sits there and types these lines."""
    keyboard = io.StringIO("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(keyboard, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", keyboard)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


# -- run ---------------------------------------------------------------------------------------------------------


def test_run_tells_steps_and_gives_the_answer(type_: Type) -> None:
    """Steps go to stderr as they happen, the answer alone to stdout."""
    ended = type_("run", "agent.py:agent", EMPTY, "--thread", "t")

    assert ended.code == 0
    assert ended.json == {"log": ["first", "second", "third"]}
    assert [line for line in ended.talk.splitlines() if line.startswith(("first", "second", "third"))] == [
        *("first ...", "first: done"),
        *("second ...", "second: done"),
        *("third ...", "third: done"),
    ]
    assert "thread t (new), run " in ended.talk
    assert "done: 3 steps, 0 model calls" in ended.talk


def test_run_as_json_is_one_object_a_line(type_: Type) -> None:
    """With --json a script learns the run, each step's beginning and end, and the result."""
    ended = type_("run", "agent.py:agent", EMPTY, "--thread", "t", "--json")

    told = [json.loads(line) for line in ended.out.splitlines()]

    assert [line["kind"] for line in told] == ["run", *["step"] * 6, "result"]
    assert [(line["name"], line["state"]) for line in told[1:3]] == [("first", "started"), ("first", "done")]
    assert told[-1]["output"] == {"log": ["first", "second", "third"]}
    assert told[-1]["run"]["status"] == "done"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "agent.py:agent", EMPTY), "--thread user_42"),
        (("run", "agent.py:agent", EMPTY, "--thread", "t", "--continue", "--abandon"), "choose one of them"),
        (("run", "agent.py:agent", EMPTY, "--thread", "t", "--answer", "yes"), "leave INPUT out"),
        (("run", "agent.py:agent", "--bogus"), "See: ninelives run --help"),
        (("run",), "GRAPH"),
        (("runs", "list", "--status", "dead"), "There are: queued, running"),
    ],
)
def test_wrong_command_lines_are_told_apart(type_: Type, words: tuple[str, ...], said: str) -> None:
    """A command line that cannot be meant ends with 2, says what to type, and makes nothing."""
    ended = type_(*words)

    assert (ended.code, ended.out) == (2, "")
    assert said in ended.talk
    assert not Path("ninelives.db").exists()


def test_unknown_thread_is_not_made_by_going_on(type_: Type) -> None:
    """Without INPUT, an unknown thread is an error that names the one that was meant."""
    type_("run", "agent.py:agent", EMPTY, "--thread", "user_42")

    without_flag = type_("run", "agent.py:agent", "--thread", "user_24")
    going_on = type_("run", "agent.py:agent", "--thread", "user_24", "--continue")

    assert (without_flag.code, going_on.code) == (7, 7)
    assert "Did you mean 'user_42'?" in without_flag.talk
    assert "Did you mean 'user_42'?" in going_on.talk


def test_finished_thread_needs_an_input(type_: Type) -> None:
    """Nothing unfinished and no INPUT: said so; with --continue the recorded answer, and nothing runs."""
    first = type_("run", "agent.py:agent", EMPTY, "--thread", "t")

    bare = type_("run", "agent.py:agent", "--thread", "t")
    going_on = type_("run", "agent.py:agent", "--thread", "t", "--continue")

    assert bare.code == 2
    assert "nothing is unfinished" in bare.talk
    assert (going_on.code, going_on.out) == (0, first.out)
    assert "nothing had to run" in going_on.talk


def test_new_thread_is_named_when_it_has_its_id(type_: Type) -> None:
    """`--thread new` makes an id, and what is said afterwards uses it."""
    ended = type_("run", "agent.py:asking", EMPTY, "--thread", "new", "--json")

    told = [json.loads(line) for line in ended.out.splitlines()]

    assert ended.code == 4
    assert f"--thread {told[0]['thread_id']} --answer VALUE" in ended.talk


def test_same_key_gives_the_recorded_answer(type_: Type) -> None:
    """The same --idempotency-key and INPUT runs once; another INPUT under it is refused."""
    words = ("run", "agent.py:agent", EMPTY, "--thread", "t", "--idempotency-key", "k")

    first, again = type_(*words), type_(*words)
    other = type_("run", "agent.py:agent", '{"log": ["x"]}', *words[3:])

    assert (again.code, again.out) == (0, first.out)
    assert other.code == 8
    assert "Use a new key" in other.talk


def test_question_is_asked_and_answered(type_: Type) -> None:
    """A question ends the run with 4; new input meanwhile is refused with 3; the answer goes on, and counts once."""
    asked = type_("run", "agent.py:asking", EMPTY, "--thread", "t")
    again = type_("run", "agent.py:asking", EMPTY, "--thread", "t")
    answered = type_("run", "agent.py:asking", "--thread", "t", "--answer", "yes")
    late = type_("run", "agent.py:asking", "--thread", "t", "--answer", "no")
    runs = type_("runs", "list")

    assert (asked.code, asked.out) == (4, "")
    assert "sure?" in asked.talk
    assert "ninelives run agent.py:asking --thread t --answer VALUE" in asked.talk
    assert (again.code, again.out) == (3, "")
    assert "waits for an answer" in again.talk
    assert answered.code == 0
    assert answered.json["log"][1] == "said 'yes'"
    assert late.code == 8
    assert [line.split()[3] for line in runs.out.splitlines()[1:]] == ["done", "answered"]


def test_failed_node_is_shown_by_its_line(type_: Type) -> None:
    """An error of the graph ends with 1 and the user's own line; the next run says what failed, with its cause."""
    failed = type_("run", "agent.py:failing", EMPTY, "--thread", "t")
    again = type_("run", "agent.py:failing", EMPTY, "--thread", "t")

    assert failed.code == 1
    assert 'in broken\n    raise ValueError("this node is broken")' in failed.talk
    assert "Traceback" not in failed.talk
    assert again.code == 3
    assert "failed (ValueError('this node is broken'))" in again.talk
    assert "would run again: broken" in again.talk


def test_debug_adds_the_traceback(type_: Type) -> None:
    """--debug shows the traceback, of the graph's errors and of ours."""
    assert "Traceback" in type_("run", "agent.py:failing", EMPTY, "--thread", "t", "--debug").talk
    assert "Traceback" in type_("run", "nowhere.py:agent", EMPTY, "--thread", "t", "--debug").talk


def test_abandoned_run_frees_the_thread(type_: Type) -> None:
    """--abandon closes what is unfinished and runs nothing; with an INPUT it then runs that."""
    words = ("run", "agent.py:failing", "--thread", "t")
    type_(*words[:2], EMPTY, *words[2:])

    abandoned = type_(*words, "--abandon")
    nothing_left = type_(*words, "--abandon")
    after = type_(*words[:2], EMPTY, *words[2:])
    with_input = type_(*words[:2], EMPTY, *words[2:], "--abandon")

    assert (abandoned.code, abandoned.out) == (0, "")
    assert "abandoned run" in abandoned.talk
    assert nothing_left.code == 2
    assert (after.code, with_input.code) == (1, 1)
    statuses = [run["status"] for run in type_("runs", "list", "--json").json]
    assert statuses == ["failed", "abandoned", "abandoned"]


def test_person_at_the_terminal_is_asked(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal the choice is asked for; Enter leaves all as it is, a letter is enough to choose."""
    type_("run", "agent.py:failing", EMPTY, "--thread", "t")
    at_a_terminal(monkeypatch, "", "a")

    left = type_("run", "agent.py:failing", "--thread", "t")
    listed = type_("runs", "list", "--json")
    abandoned = type_("run", "agent.py:failing", "--thread", "t")

    assert left.code == 3
    assert [run["status"] for run in listed.json] == ["failed"]
    assert abandoned.code == 0
    assert [run["status"] for run in type_("runs", "list", "--json").json] == ["abandoned"]


def test_person_at_the_terminal_may_answer(type_: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting thread asks its question at the terminal and goes on with what is typed."""
    type_("run", "agent.py:asking", EMPTY, "--thread", "t")
    at_a_terminal(monkeypatch, "of course")

    ended = type_("run", "agent.py:asking", "--thread", "t")

    assert ended.code == 0
    assert ended.json["log"][1] == "said 'of course'"


def test_other_graph_on_the_thread_is_refused(type_: Type) -> None:
    """A thread belongs to its graph; the message names both."""
    type_("run", "agent.py:agent", EMPTY, "--thread", "t")

    ended = type_("run", "agent.py:failing", EMPTY, "--thread", "t")

    assert ended.code == 9
    assert "belongs to graph 'agent', not 'failing'" in ended.talk


# -- listings ----------------------------------------------------------------------------------------------------


def test_looking_makes_no_store(type_: Type) -> None:
    """Where there is no store, listings are empty and say so, things are not found, and no file is made."""
    assert (type_("threads", "list", "--json").json, type_("runs", "list", "--json").json) == ([], [])
    assert "there is no store at sqlite:///ninelives.db yet" in type_("threads", "list").talk
    assert [type_("threads", "show", "t").code, type_("threads", "history", "t").code] == [7, 7]
    assert type_("runs", "show", "r").code == 7
    assert sorted(path.name for path in Path().iterdir()) == ["agent.py"]


def test_store_is_found_by_flag_then_variable_then_file(
    type_: Type, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--store wins over NINELIVES_STORE, which wins over ninelives.toml, which wins over the default."""
    sources = ["by_flag", "by_variable", "by_file"]
    for name in sources:
        type_("run", "agent.py:agent", EMPTY, "--thread", name, "--store", f"sqlite:///{name}.db")
    (desk.folder / "ninelives.toml").write_text('store = "sqlite:///by_file.db"\n')

    by_file = type_("threads", "list", "--json").json
    monkeypatch.setenv("NINELIVES_STORE", "sqlite:///by_variable.db")
    by_variable = type_("threads", "list", "--json").json
    by_flag = type_("threads", "list", "--store", "sqlite:///by_flag.db", "--json").json

    assert [found[0]["thread_id"] for found in (by_flag, by_variable, by_file)] == sources


def test_threads_list_and_show(type_: Type) -> None:
    """A list has a line for each thread with how it stands; show adds runs, questions and what is in the state."""
    type_("run", "agent.py:agent", EMPTY, "--thread", "a")
    type_("run", "agent.py:asking", EMPTY, "--thread", "b")

    listed = type_("threads", "list")
    shown = type_("threads", "show", "b")
    record = type_("threads", "show", "b", "--json").json

    assert [line.split()[0] for line in listed.out.splitlines()] == ["THREAD", "b", "a"]
    assert "waits for an answer" in listed.out
    assert "sure?" in shown.out
    assert (record["state"], record["head"]["keys"]) == ("waits for an answer", ["log"])
    assert [run["status"] for run in record["runs"]] == ["interrupted"]
    assert record["questions"][0]["payload"] == {"question": "sure?"}
    assert record["bytes"] > 0
    assert record["updated_at"].endswith("Z")


def test_thread_show_counts_messages_and_effects(type_: Type) -> None:
    """The agent that `init` writes: four messages in its state, one act done."""
    Path("agent.py").unlink()
    type_("init")
    type_("run", "agent.py:agent", "Ada", "--thread", "t")

    record = type_("threads", "show", "t", "--json").json

    assert record["head"]["messages"] == 4
    assert [(effect["name"], effect["state"]) for effect in record["effects"]] == [("send_letter", "done")]


def test_history_says_what_ran_and_marks_branches(type_: Type) -> None:
    """Each checkpoint names its step and the nodes that made it; a start-over leaves a fork and an ended branch."""
    type_("run", "agent.py:failing", EMPTY, "--thread", "t")
    type_("run", "agent.py:failing", "--thread", "t", "--start-over")

    rows = type_("threads", "history", "t", "--json").json
    text = type_("threads", "history", "t")
    short = type_("threads", "history", "t", "--limit", "1", "--json").json

    assert [(row["step"], row["source"], row["nodes"]) for row in rows[:2]] == [
        (1, "loop", ["first"]),
        (0, "loop", []),
    ]
    assert rows[0]["branch"] == "head"
    assert [row["branch"] for row in rows].count("end of a branch") == 1
    assert "first" in text.out
    assert short == rows[:1]


def test_runs_show_tells_cause_cost_and_events(type_: Type) -> None:
    """A run tells how it ended, what it cost and what happened, in order."""
    type_("run", "agent.py:failing", EMPTY, "--thread", "t")
    run_id = type_("runs", "list", "--json").json[0]["run_id"]

    shown = type_("runs", "show", run_id)
    record = type_("runs", "show", run_id, "--json").json

    assert "ValueError('this node is broken')" in shown.out
    assert record["status"] == "failed"
    assert record["usage"]["steps"] == 2
    assert record["held_by"] is None
    kinds = [event["kind"] for event in record["events"]]
    assert (kinds[0], kinds[-1]) == ("run_started", "run_failed")
    assert type_("runs", "show", "nothing").code == 7


OWN_TYPES = """
from dataclasses import dataclass
from typing import TypedDict
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt


@dataclass
class Order:
    item: str


class State(TypedDict):
    order: Order


builder = StateGraph(State)
builder.add_node("ask", lambda state: {"order": interrupt(Order("tea"))})
builder.add_edge(START, "ask")
agent = builder.compile()
"""


def test_graphs_own_types_do_not_hide_a_thread(type_: Type) -> None:
    """A question that can only be read with the graph at hand still has its thread listed, and that is said."""
    Path("agent.py").write_text(OWN_TYPES)
    type_("run", "agent.py:agent", "{}", "--thread", "t")

    listed, shown = type_("threads", "list"), type_("threads", "show", "t")

    assert "waits" in listed.out
    assert shown.code == 0
    assert "cannot be read without the graph's own types" in shown.talk


# -- init --------------------------------------------------------------------------------------------------------


def test_init_writes_once_and_what_it_writes_runs(type_: Type) -> None:
    """Settings and an agent are written, never over anything; the command that it names works, and acts once."""
    Path("agent.py").unlink()

    first, again = type_("init"), type_("init")
    run = type_("run", "agent.py:agent", "Ada", "--thread", "demo")

    assert (first.code, first.out.split()) == (0, ["ninelives.toml", "agent.py"])
    assert 'ninelives run agent.py:agent "Ada" --thread demo' in first.talk
    assert again.code == 9
    assert "is there already" in again.talk
    assert (run.code, run.out) == (0, "A letter to Ada went out.\n")
    assert "  tool send_letter(name='Ada') ..." in run.talk
    assert len(Path("outbox.txt").read_text().splitlines()) == 1


def test_init_leaves_half_done_folders_alone(type_: Type) -> None:
    """With an agent.py already there, nothing at all is written."""
    ended = type_("init")

    assert ended.code == 9
    assert not Path("ninelives.toml").exists()


# -- help --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("run",), ("threads", "list"), ("runs", "show")])
def test_help_names_variable_and_default(type_: Type, words: tuple[Any, ...]) -> None:
    """Help says which variable sets the store, and what it is without."""
    text = " ".join(type_(*words, "--help").out.replace("│", " ").split())

    assert "[env: NINELIVES_STORE] [default: store in ninelives.toml, sqlite:///ninelives.db]" in text
