"""`ninelives run` and its processes: killed, stopped, asked; and the demo that `make run` shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli import EMPTY, Desk

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def kill_in(desk: Desk, step: str, *words: str) -> None:
    """Run a command and end it with SIGKILL in the middle of that step; the gate is gone afterwards."""
    desk.shut_gate()
    with desk.begin(*words) as watched:
        watched.says(f"{step} ...")
        with desk.meet_at_gate():
            watched.signal(signal.SIGKILL)
            assert watched.ends().code == -signal.SIGKILL
    desk.take_gate_away()


def test_killed_run_is_shown_and_goes_on_only_when_told_to(desk: Desk) -> None:
    """After a SIGKILL a run without a flag ends with 3 and changes nothing; `--continue` repeats no recorded step."""
    kill_in(desk, "second", "run", "agent.py:agent", EMPTY, "--thread", "t")

    asked = desk.type("run", "agent.py:agent", EMPTY, "--thread", "t")
    listed = desk.type("runs", "list", "--json")
    resumed = desk.type("run", "agent.py:agent", "--thread", "t", "--continue", "--json")

    assert asked.code == 3
    assert "cut off" in asked.talk
    assert "would run again: second" in asked.talk
    assert "1 step, 0 model calls" in asked.talk
    assert all(flag in asked.talk for flag in ("--continue", "--start-over", "--abandon"))
    assert [(run["status"], run["attempt"], run["cut_off"]) for run in listed.json] == [("running", 1, True)]
    assert resumed.code == 0
    assert '"log": ["first", "second", "third"]' in resumed.out
    assert desk.trace == ["first", "second", "second", "third"]


def test_start_over_without_input_takes_the_first_input(desk: Desk) -> None:
    """`--start-over` begins the cut-off run anew with what it was asked at first, and ends as one that was not cut."""
    kill_in(desk, "second", "run", "agent.py:agent", '{"log": ["mine"]}', "--thread", "t")

    ended = desk.type("run", "agent.py:agent", "--thread", "t", "--start-over")
    listed = desk.type("runs", "list", "--json")

    assert ended.code == 0
    assert desk.trace == ["first", "second", "first", "second", "third"]
    assert [entry.strip('", ') for entry in ended.out.splitlines()[2:-2]] == ["mine", "first", "second", "third"]
    assert [run["status"] for run in listed.json] == ["done", "abandoned"]


@pytest.mark.parametrize(("which", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_drains_at_the_step_boundary(desk: Desk, which: signal.Signals, code: int) -> None:
    """One signal lets the step end and be recorded, starts none after it, and says how to go on."""
    desk.shut_gate()
    with desk.begin("run", "agent.py:agent", EMPTY, "--thread", "t") as watched:
        watched.says("second ...")
        watched.signal(which)
        watched.says("draining: stops after this step")
        desk.open_gate()
        stopped = watched.ends()
    resumed = desk.type("run", "agent.py:agent", "--thread", "t", "--continue")

    assert stopped.code == code
    assert stopped.out == ""
    assert "ninelives run agent.py:agent --thread t --continue" in stopped.talk
    assert resumed.code == 0
    assert desk.trace == ["first", "second", "third"]


def test_second_signal_stops_at_once(desk: Desk) -> None:
    """The second Ctrl-C does not wait for a step that hangs; the step runs again, and nothing that was recorded."""
    desk.shut_gate()
    with desk.begin("run", "agent.py:agent", EMPTY, "--thread", "t") as watched:
        watched.says("second ...")
        with desk.meet_at_gate():
            watched.signal(signal.SIGINT)
            watched.says("draining")
            watched.signal(signal.SIGINT)
            stopped = watched.ends()
    desk.take_gate_away()
    resumed = desk.type("run", "agent.py:agent", "--thread", "t", "--continue")

    assert stopped.code == 130
    assert resumed.code == 0
    assert desk.trace == ["first", "second", "second", "third"]


def test_live_holder_is_named(desk: Desk) -> None:
    """A thread that a live process advances is left alone: code 6, with the process that has it."""
    desk.shut_gate()
    with desk.begin("run", "agent.py:agent", EMPTY, "--thread", "t") as watched:
        watched.says("second ...")
        refused = desk.type("run", "agent.py:agent", EMPTY, "--thread", "t")
        unnamed = desk.type("run", "agent.py:agent", "--thread", "t")
        shown = desk.type("runs", "list")
        desk.open_gate()
        ended = watched.ends()

    assert (refused.code, unnamed.code) == (6, 6)
    assert f"held by process {watched.process.pid} on" in refused.talk
    assert "running" in shown.out
    assert ended.code == 0


def test_unknown_act_is_settled_by_the_printed_command(desk: Desk) -> None:
    """An act cut off in the middle is not repeated: code 5, and a printed line that settles it, after which it ends."""
    kill_in(desk, "pay", "run", "agent.py:paying", EMPTY, "--thread", "t")

    unknown = desk.type("run", "agent.py:paying", "--thread", "t", "--continue")
    line = re.search(r"it happened: +(.+)", unknown.talk)
    assert line is not None, unknown.talk
    program, *words = shlex.split(line[1].replace("THE RESULT", "charged by hand"))
    settled = desk.type(*words)
    ended = desk.type("run", "agent.py:paying", "--thread", "t", "--continue", "--json")

    assert (program, unknown.code, settled.code) == ("ninelives", 5, 0)
    assert ended.code == 0
    assert '"log": ["first", "charged by hand", "third"]' in ended.out
    assert desk.trace == ["first", "charge", "third"]


def test_demo_repeats_nothing(tmp_path: Path) -> None:
    """What `make run` shows: two kills in the middle of real work, no recorded step repeated, one act, done once."""
    pace = {"NINELIVES_EXAMPLE_PACE_S": "0.03", "NINELIVES_EXAMPLE_MODEL": "scripted", "TMPDIR": str(tmp_path)}
    demo = subprocess.run(
        [sys.executable, ROOT / "examples" / "researcher" / "demo.py", "What is in examples/researcher?"],
        env={**os.environ, **pace},
        capture_output=True,
        text=True,
        check=False,
    )

    table = dict(re.split(r"  +", line.strip()) for line in demo.stdout.splitlines() if line)

    assert demo.returncode == 0, demo.stderr
    assert table["kills"] == "2", demo.stderr
    assert table["recorded steps repeated"] == "0"
    assert (table["outside acts done"], table["outside acts done twice"]) == ("1", "0")
    assert int(table["steps run"]) > 20
    assert list(tmp_path.iterdir()) == []
