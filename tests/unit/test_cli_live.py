"""The live view of `ninelives run`: as a picture of given events, and as a person sees it on a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from uuid import UUID, uuid4

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from cli import EMPTY, HANGS_S, Desk
from ninelives._langgraph import finished_tasks
from ninelives.cli import render
from ninelives.cli.progress import Doing, Ending
from ninelives.cli.recorded import Recorded, RecordedAct, RecordedStep, RecordedTask
from ninelives.cli.view import KEPT_MAX, View, render_view
from ninelives.config import Price
from ninelives.model import ONE_USER, Started, Usage
from ninelives.stores import open_store

HOSTILE = "\x1b[2J\x1b]0;stolen\x07\x9b31m[bold red]x[/bold red]\r\n\u202eevil\ud800"


# -- the picture -------------------------------------------------------------------------------------------------


class Story:
    """Things that happen to a view, and what is seen of it then; a second passes with each."""

    def __init__(self, recorded: Recorded | None = None, **prices: Price) -> None:
        self.now = 0.0
        self.view = View(prices)
        self.view.admitted(Started("t", "run-1", created=recorded is None), recorded, self.now)
        self._doings: dict[UUID, Doing] = {}

    def step(
        self, name: str, number: int = 1, *, task: str = "", under: UUID | None = None, shown: bool = True
    ) -> UUID:
        """A task begins; `task` tells it from others of that name, and is the same for another attempt of it."""
        ns = f"{self._doings[under].ns}|{name}:{task}" if under else f"{name}:{task or number}"
        return self._begin(Doing(uuid4(), under, "step", name, ns, number, ns.count("|"), shown, at=self._tick()))

    def tool(self, name: str, args: str, under: UUID, call_id: str | None = None) -> UUID:
        ns = self._doings[under].ns
        return self._begin(
            Doing(uuid4(), under, "tool", name, ns, args=args, depth=1, call_id=call_id, at=self._tick())
        )

    def end(self, which: UUID, how: Ending = "done", said: str = "") -> None:
        self.view.ends(self._doings[which], how, said, self._tick())

    def model(self, under: UUID, tokens_in: int, tokens_out: int, model: str = "m") -> None:
        by_model = {model: (1, tokens_in, tokens_out)} if model else {}
        self.view.model_answered(under, Usage(0, 1, tokens_in, tokens_out, by_model=by_model))

    def seen(self, width: int = 80, height: int = 24) -> list[str]:
        return [line.plain for line in render_view(self.view, width, height, self.now)]

    def _begin(self, doing: Doing) -> UUID:
        self._doings[doing.id] = doing
        self.view.begins(doing)
        return doing.id

    def _tick(self) -> float:
        self.now += 1
        return self.now


def test_a_step_is_seen_with_its_number_its_state_and_what_it_does() -> None:
    """A step has a number, a mark and how long it took; its tool calls stand below it, with their answers."""
    story = Story()
    story.end(story.step("plan", 1))
    act = story.step("act", 2)
    story.end(story.tool("look", "place='here'", act), said="nothing")
    story.tool("dig", "depth=3", act)

    assert story.seen() == [
        "thread t (new), run run-1",
        "  1 ✓ plan  1.0 s",
        "  2 ● act  3 s",
        "      ✓ look(place='here')  1.0 s  -> nothing",
        "      ● dig(depth=3)",
        "0 tokens in, 0 out · 0 model calls · 6 s",
    ]


def test_tasks_of_one_step_stand_side_by_side_where_there_is_room() -> None:
    """Two columns in a usual terminal, one in a narrow one; a task that failed says why."""
    story = Story()
    left = story.step("left", task="a")
    story.step("right", task="b")
    story.end(left, "failed", "ValueError('no')")

    assert story.seen(80)[1:-1] == [
        "  1 ● left, right  2 s",
        "      ✗ left  2.0 s  ValueError('no')       ● right  1 s",
    ]
    assert story.seen(40)[2:-1] == ["      ✗ left  2.0 s  ValueError('no')", "      ● right  1 s"]


def test_what_a_subagent_does_is_indented_under_the_call_that_it_is() -> None:
    """A step that is one tool call is seen as that call, with the subagent's own steps and calls within."""
    story = Story()
    sent = story.step("tools", 4, shown=False)
    task = story.tool("task", "to='reader'", sent)
    inner = story.step("tools", 2, task="x", under=task, shown=False)
    story.tool("read", "path='a'", inner)

    assert story.seen()[1:-1] == ["  4 ● task(to='reader')  2 s", "      ● read(path='a')"]


def test_what_was_recorded_is_seen_as_not_run_again() -> None:
    """Steps, tasks, what is in a subgraph and acts that were found in the store are marked, and never as running."""
    recorded = Recorded(
        chain="c",
        steps=(RecordedStep(40, ("plan",)),),
        earlier=39,
        tasks=(RecordedTask("left", "left:1", 41), RecordedTask("dig", "right:41|dig:2", 3)),
        inside={"right:41": 2},
        acts=(RecordedAct("pay", "call-1"),),
        usage=Usage(model_calls=2, tokens_in=100, tokens_out=50, by_model={"m": (2, 100, 50)}),
    )
    story = Story(recorded, m=Price(1000.0, 2000.0))
    right = story.step("right", 41)
    story.tool("pay", "cents=5", right, call_id="call-1")

    assert story.seen(100) == [
        "thread t, run run-1",
        "↺ recorded before, not run again: 40 steps (plan), 2 inner steps (right), 2 tasks (left, dig), 1 act (pay)"[
            :99
        ]
        + "…",
        "… 39 earlier steps",
        " 40 ↺ plan  recorded before, not run again",
        " 41 ● left, right  1 s",
        "      ↺ left  recorded before, not run again",
        "      ● right  1 s",
        "        ↺ 2 steps  recorded before, not run again",
        "        ↺ dig  recorded before, not run again",
        "        ● pay(cents=5)  act recorded before, not run again",
        "100 tokens in, 50 out · $0.2000 · 2 model calls · 2 s",
    ]


def test_the_last_steps_stay_and_the_number_of_the_others_is_said() -> None:
    """A long run does not grow beyond the screen."""
    story = Story()
    for number in range(1, 51):
        story.end(story.step("walk", number))

    seen = story.seen(height=16)

    assert len(seen) == 16
    assert seen[1] == "… 37 earlier steps"
    assert [line.split()[0] for line in seen[2:-1]] == [str(number) for number in range(38, 51)]


def test_what_still_runs_is_left_out_last() -> None:
    """Of a step with more tasks than lines, those that have ended are counted, and those that run are seen."""
    story = Story()
    tasks = [story.step("work", task=str(number)) for number in range(30)]
    for task in tasks[:27]:
        story.end(task)

    seen = story.seen(width=40, height=8)

    assert seen[1].startswith("  1 ● work x30")
    assert seen[2] == "      … 27 more ended"
    assert [line.split()[1] for line in seen[3:-1]] == ["work"] * 3


def test_a_picture_of_more_that_runs_than_fits_says_so() -> None:
    """Not even the running tasks push the picture beyond its height."""
    story = Story()
    for number in range(30):
        story.step("work", task=str(number))

    seen = story.seen(width=40, height=8)

    assert len(seen) == 8
    assert seen[-2] == "      … and more"


def test_what_is_kept_does_not_grow_with_the_run() -> None:
    """Ten thousand tool calls and steps later the view holds a screenful, and still counts right."""
    story = Story()
    first = story.step("first", 1)
    for number in range(1000):
        story.end(story.tool("look", str(number), first))
    for number in range(2, 1000):
        story.end(story.step("walk", number))

    assert len(story.view.steps) == KEPT_MAX
    assert f"… {999 - 18} earlier steps" in story.seen(height=21)
    assert len(story.view.steps[0].tasks.within) == 1


def test_another_attempt_takes_the_place_of_the_one_before() -> None:
    """A task that is tried again is one row, which counts its attempts."""
    story = Story()
    story.end(story.step("call", 3), "failed", "TimeoutError()")
    story.step("call", 3)

    assert story.seen()[1:-1] == ["  3 ● call  attempt 2"]


def test_tokens_are_seen_at_their_step_and_money_only_at_known_prices() -> None:
    """Each step shows its own tokens; a model without a price is named, and nothing is guessed."""
    story = Story(dear=Price(10.0, 100.0))
    step = story.step("think")
    story.model(step, 1000, 100, "dear")

    assert story.seen()[1] == "  1 ● think  1,000 tokens in, 100 out"
    assert story.seen()[-1] == "1,000 tokens in, 100 out · $0.0200 · 1 model call · 1 s"

    story.model(step, 500, 0, "odd")
    story.model(step, 500, 0, "")

    assert "$0.0200 + odd (no price) + a model without a name (no price)" in story.seen(120)[-1]


def test_a_model_of_a_view_without_prices_costs_nothing() -> None:
    """Without prices only tokens are shown."""
    story = Story()
    story.model(story.step("think"), 1000, 100)

    assert "$" not in story.seen()[-1]


def test_what_had_not_ended_was_stopped() -> None:
    """The last picture of a run that was stopped shows nothing as running, and has no line that counts."""
    story = Story()
    story.tool("dig", "depth=3", story.step("act"))

    story.view.close(story.now)

    assert story.seen()[1:] == ["  1 ■ act  1.0 s", "      ■ dig(depth=3)"]


def test_hostile_text_is_shown_and_does_nothing() -> None:
    """Whatever a model writes into names, arguments, results or its own name: no control character, no markup."""
    story = Story(m=Price(1.0, 1.0))
    step = story.step(HOSTILE)
    story.model(step, 1, 1, HOSTILE)
    story.end(story.tool(HOSTILE, HOSTILE, step), said=HOSTILE)
    story.end(story.tool("t", "", step), "failed", HOSTILE)

    seen = "\n".join(story.seen(400))

    assert all(char.isprintable() or char == "\n" for char in seen)
    assert r"\x1b[2J\x1b]0;stolen\x07\x9b31m[bold red]x[/bold red]" in seen


TEXTS = st.text(max_size=60) | st.sampled_from([HOSTILE, "日本語" * 20, "👩‍👩‍👧" * 9, "x" * 200])
EVENTS = st.lists(
    st.tuples(st.sampled_from(["step", "task", "inner", "tool", "done", "failed", "model"]), TEXTS), max_size=80
)


@given(EVENTS, st.integers(1, 150), st.integers(0, 50))
def test_every_picture_fits(events: list[tuple[str, str]], width: int, height: int) -> None:
    """Whatever has happened, into whatever it is drawn: never more lines, never a wider one, nothing that steers."""
    story, number, running = Story(m=Price(1.0, 1.0)), 1, list[UUID]()
    for what, text in events:
        if what == "step":
            number += 1
        if what in ("step", "task") or not running:
            running.append(story.step(text, number, task=str(len(running))))
        elif what == "inner":
            running.append(story.step(text, 1, under=running[-1], task=text))
        elif what == "tool":
            running.append(story.tool(text, text, running[-1]))
        elif what == "model":
            story.model(running[-1], 10, 10, text)
        else:
            story.end(running.pop(), "failed" if what == "failed" else "done", text)

    seen = story.seen(width, height)

    assert len(seen) <= height
    assert all(cell_len(line) <= width for line in seen)
    assert all(line == render.printable(line) and "\n" not in line for line in seen)


# -- on a terminal -----------------------------------------------------------------------------------------------

SHOWN = f'''
import logging
import sys
from agent import State, chain, told, wait_at_gate
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from ninelives import effect

logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
HOSTILE = {HOSTILE!r}


class Talker(BaseChatModel):
    @property
    def _llm_type(self):
        return "talker"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        usage = {{"input_tokens": 1200, "output_tokens": 300, "total_tokens": 1500}}
        said = AIMessage("ok", usage_metadata=usage, response_metadata={{"model_name": "talker-1"}})
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def look(place: str) -> str:
    """Look."""
    return f"nothing in {{place}}"


@effect
def post(letter):
    told(f"post {{letter}}")
    return "posted"


def think(state):
    told("think")
    Talker().invoke("hello")
    return {{"log": ["think"]}}


def left(state):
    told("left")
    return {{"log": [look.invoke({{"place": "here"}})]}}


def dig(state):
    told("dig")
    return {{"log": ["dig"]}}


def fill(state):
    told("fill")
    post("a")
    wait_at_gate()
    return {{"log": ["fill"]}}


def end(state):
    return {{"log": ["end"]}}


def says(state):
    print("printed by a node")
    logging.warning("logged by a node")
    wait_at_gate()
    return {{"log": ["said"]}}


def attack(state):
    look.invoke({{"place": HOSTILE}})
    return {{"log": [HOSTILE]}}


def walk(state):
    return {{"log": ["walked"]}}


builder = StateGraph(State)
builder.add_node(think)
builder.add_node(left)
builder.add_node("right", chain(dig, fill).compile())
builder.add_node(end)
builder.add_edge(START, "think")
builder.add_edge("think", "left")
builder.add_edge("think", "right")
builder.add_edge(["left", "right"], "end")
agent = builder.compile()
saying = chain(says).compile()
attacking = chain(attack).compile()

walking = StateGraph(State)
walking.add_node(walk)
walking.add_edge(START, "walk")
walking.add_conditional_edges("walk", lambda state: "walk" if len(state["log"]) < 60 else "__end__")
walking = walking.compile()
'''

AT_TERMINAL = [
    sys.executable,
    "-c",
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);from ninelives.cli import main; sys.exit(main())",
]
"""The command as a shell starts it: its terminal is the one that controls it."""


class Terminal:
    """A command at a terminal of its own, and what can be seen there."""

    def __init__(
        self, folder: Path, words: Sequence[str], columns: int, lines: int, out: IO[str] | None, env: Mapping[str, str]
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=1000)
        self._stream = pyte.ByteStream(self.screen)
        self.sent = b""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._end = ours
        self.process = subprocess.Popen(
            [*AT_TERMINAL, "run", *words],
            cwd=folder,
            env=_environment(env),
            stdin=theirs,
            stdout=out or theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)

    def shows(self, pattern: str) -> None:
        """Wait until that is seen."""
        while not re.search(pattern, self.text):
            assert self._read(), f"it ended without showing {pattern!r}:\n{self.all}"

    def types(self, text: str) -> None:
        os.write(self._end, text.encode())

    def ends(self) -> int:
        while self._read():
            pass
        return self.process.wait(HANGS_S)

    @property
    def text(self) -> str:
        """What is seen now."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    @property
    def all(self) -> str:
        """And what can be scrolled back to."""
        past = ("".join(line[at].data for at in range(self.screen.columns)) for line in self.screen.history.top)
        return "\n".join([*(line.rstrip() for line in past), self.text])

    def _read(self) -> bool:
        ready, _, _ = select.select([self._end], [], [], HANGS_S)
        assert ready, f"nothing came for {HANGS_S} s; there is:\n{self.all}"
        try:
            came = os.read(self._end, 65536)
        except OSError:  # how Linux says that nobody has the other end any more
            return False
        self.sent += came
        self._stream.feed(came)
        return bool(came)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    ours = ("NINELIVES_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "TERM": "xterm-256color", "PYTHONUTF8": "1", **more}


class Seat:
    """A desk with a terminal on it."""

    def __init__(self, folder: Path) -> None:
        self.desk = Desk(folder)
        (folder / "shown.py").write_text(SHOWN)

    def run(
        self, graph: str, *words: str, columns: int = 130, lines: int = 30, out: IO[str] | None = None, **env: Any
    ) -> Terminal:
        return Terminal(self.desk.folder, (f"shown.py:{graph}", *words, "--thread", "t"), columns, lines, out, env)

    @contextmanager
    def at_gate(self, graph: str, shown: str) -> Iterator[Terminal]:
        """A run that waits at the gate and shows so."""
        self.desk.shut_gate()
        with self.run(graph, EMPTY) as terminal:
            terminal.shows(shown)
            yield terminal

    def kill(self) -> Terminal:
        """A run that was killed in step `fill` of a subgraph, when what its neighbour `left` did was in the store."""
        with self.at_gate("agent", "● fill") as terminal, self.desk.meet_at_gate():
            self._until_recorded()
            terminal.process.send_signal(signal.SIGKILL)
            terminal.ends()
        return terminal

    def _until_recorded(self) -> None:
        store = open_store(f"sqlite:///{self.desk.folder}/ninelives.db")
        with closing(store):
            head = None
            while head is None or not finished_tasks(head.writes):
                head = store.perform(store.get_checkpoint(ONE_USER, "t", "", None))


@pytest.fixture
def seat(tmp_path: Path) -> Seat:
    return Seat(tmp_path)


def test_a_run_is_seen_to_its_end(seat: Seat) -> None:
    """Steps, tasks side by side, subgraphs, tools, tokens and cost; then the answer, each once."""
    (seat.desk.folder / "ninelives.toml").write_text('[prices."talker-1"]\ninput = 3.0\noutput = 15.0\n')

    with seat.run("agent", EMPTY) as terminal:
        code = terminal.ends()

    lines = terminal.all.splitlines()
    assert code == 0
    assert lines[0].startswith("thread t (new), run ")
    assert re.match(r"  1 ✓ think(  [\d.]+ s)?  1,200 tokens in, 300 out$", lines[1])
    assert re.match(r"  2 ✓ left, right", lines[2])
    assert re.match(r"      ✓ left .* ✓ right", lines[3])
    assert re.match(r"        ✓ look\(place='here'\) .*-> nothing in here +✓ dig", lines[4])
    assert re.match(r" +✓ fill", lines[5])
    assert re.match(r"  3 ✓ end", lines[6])
    assert re.match(r"done: 6 steps, 1 model call, 1 tool call, 1,500 tokens, [\d.]+ s, \$0.0081$", lines[7])
    assert json.loads("".join(lines[8:]))["log"][-1] == "end"


@pytest.mark.crash
def test_a_killed_run_leaves_the_terminal_clean_and_goes_on_seen(seat: Seat) -> None:
    """After SIGKILL the cursor is there, on a line of its own; going on shows what is not run again, and counts it."""
    killed = seat.kill()
    seat.desk.take_gate_away()
    with seat.run("agent", "--continue") as terminal:
        code = terminal.ends()

    assert not killed.screen.cursor.hidden
    assert killed.screen.cursor.x == 0
    assert not killed.screen.display[killed.screen.cursor.y].strip()
    assert code == 0
    assert "  1 ↺ think  recorded before, not run again" in terminal.all
    assert re.search(r"^      ↺ left  recorded before, not run again +✓ right", terminal.all, re.MULTILINE)
    assert re.search(r"^ +↺ 1 step  recorded before, not run again\n +✓ fill", terminal.all, re.MULTILINE)
    assert "not run again: 1 step (think), 1 inner step (right), 1 task (left), 1 act (post)" in terminal.all
    assert "not run again: 1 step, 1 inner step, 1 task, 1 act\n" in terminal.all
    assert sorted(seat.desk.trace) == ["dig", "fill", "fill", "left", "post a", "think"]


def test_ctrl_c_drains_and_leaves_the_terminal_clean(seat: Seat) -> None:
    """What Ctrl-C does is said above the picture; at the end nothing runs in it, and it is said how to go on."""
    with seat.at_gate("agent", "● fill") as terminal:
        terminal.types("\x03")
        terminal.shows("draining: stops after this step")
        seat.desk.open_gate()
        code = terminal.ends()

    assert code == 130
    assert "●" not in terminal.all
    assert terminal.all.count("thread t (new)") == 1
    assert "ninelives run shown.py:agent --thread t --continue" in terminal.all
    assert "so far: 5 steps, 1 model call" in terminal.all
    assert not terminal.screen.cursor.hidden
    assert terminal.screen.cursor.x == 0


def test_second_ctrl_c_stops_at_once_and_leaves_the_terminal_clean(seat: Seat) -> None:
    """The step that hangs is shown as stopped."""
    with seat.at_gate("agent", "● fill") as terminal, seat.desk.meet_at_gate():
        terminal.types("\x03")
        terminal.shows("draining")
        terminal.types("\x03")
        code = terminal.ends()

    assert code == 130
    assert "■ fill" in terminal.all
    assert "stopped. Go on with: ninelives run shown.py:agent --thread t --continue" in terminal.all
    assert (terminal.screen.cursor.hidden, terminal.screen.cursor.x) == (False, 0)


def test_what_the_graph_prints_and_logs_stands_above(seat: Seat) -> None:
    """A node's own lines are kept, once each and above the picture, also those of a log that holds the stream."""
    with seat.at_gate("saying", r"● says(.|\n)* · 1 s") as terminal:
        seat.desk.open_gate()
        code = terminal.ends()

    lines = terminal.all.splitlines()
    assert code == 0
    assert lines[:3] == ["printed by a node", "WARNING:root:logged by a node", lines[2]]
    assert lines[2].startswith("thread t (new)")
    assert terminal.all.count("thread t (new)") == 1


def test_data_alone_goes_to_a_pipe(seat: Seat) -> None:
    """With stdout in a pipe the picture is on the terminal, and the answer, as it is, in the pipe alone."""
    answer = seat.desk.folder / "answer.json"

    with answer.open("w") as out, seat.run("attacking", EMPTY, out=out) as terminal:
        code = terminal.ends()

    assert code == 0
    assert "  1 ✓ attack" in terminal.all
    assert "evil" not in terminal.all.rpartition("done: ")[2]
    assert answer.read_text().startswith('{\n  "log": [\n    "\\u001b[2J')
    assert "\u202eevil" in answer.read_text()


def test_hostile_text_does_nothing_to_a_terminal(seat: Seat) -> None:
    """A tool's arguments and answer full of control sequences: seen as text, nothing cleared, no title changed."""
    with seat.run("attacking", EMPTY, columns=400) as terminal:
        code = terminal.ends()

    assert code == 0
    assert terminal.screen.title == ""
    assert terminal.all.count("thread t (new)") == 1
    assert r"-> nothing in \x1b[2J\x1b]0;stolen\x07\x9b31m[bold red]" in terminal.all
    assert b"\x1b]0" not in terminal.sent
    assert not any(steering.encode() in terminal.sent for steering in ("\x9b", "\u202e"))


@pytest.mark.parametrize(("columns", "lines"), [(80, 12), (40, 12), (40, 5)])
def test_a_long_run_stays_within_a_small_screen(seat: Seat, columns: int, lines: int) -> None:
    """Sixty steps on a few lines: the last ones, how many came before, and nothing of it scrolled away."""
    with seat.run("walking", EMPTY, columns=columns, lines=lines) as terminal:
        code = terminal.ends()

    assert code == 0
    assert re.search(r"^… \d+ earlier steps$", terminal.all, re.MULTILINE)
    assert re.search(r"^ 60 ✓ walk", terminal.all, re.MULTILINE)
    assert len(re.findall(r"^ +\d+ ✓ walk", terminal.all, re.MULTILINE)) < lines
    assert terminal.all.count("thread t (new)") == (1 if lines > 6 else 0)


@pytest.mark.parametrize(
    ("words", "env"), [(("--plain",), {}), ((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"}), (("--json",), {})]
)
def test_who_wants_lines_gets_lines(seat: Seat, words: tuple[str, ...], env: dict[str, Any]) -> None:
    """--plain, NO_COLOR, a dumb terminal, --json: lines as for a file, and not one control sequence."""
    with seat.run("agent", EMPTY, *words, **env) as terminal:
        code = terminal.ends()

    assert code == 0
    assert "\nthink ...\n" in terminal.all
    assert b"\x1b" not in terminal.sent


@pytest.mark.crash
def test_lines_say_what_is_not_run_again(seat: Seat) -> None:
    """Without a terminal the same is said in lines; with --json it is an object of its own."""
    seat.kill()
    with seat.desk.begin("run", "shown.py:agent", "--thread", "t", "--continue") as again:
        said = again.says("recorded before, not run again")
        again.says("fill ...")
        again.signal(signal.SIGKILL)
        again.ends()
    seat.desk.take_gate_away()
    ended = seat.desk.type("run", "shown.py:agent", "--thread", "t", "--continue", "--json")

    told = [json.loads(line) for line in ended.out.splitlines()]
    assert said.rstrip().endswith("1 step (think), 1 inner step (right), 1 task (left), 1 act (post)")
    assert told[1] == {"kind": "recorded", "steps": 1, "inner_steps": 1, "tasks": ["left"], "acts": ["post"]}
    assert "; not run again: 1 step, 1 inner step, 1 task, 1 act\n" in ended.talk
