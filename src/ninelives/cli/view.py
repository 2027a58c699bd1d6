"""
What is seen of a run on a terminal, as a picture: the state of it, and how it is drawn into a width and a height.

Knows no terminal and no clock. The picture never grows beyond the height it is given, and what is kept for it does not
grow with the run. All text from models, tools and graphs is plain text here, never markup, and steers nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal
from uuid import UUID

from rich.cells import cell_len
from rich.text import Text

from ninelives.cli import render
from ninelives.cli.progress import Doing, Ending, heading
from ninelives.cli.recorded import Recorded, RecordedAct
from ninelives.cli.records import money_in_words
from ninelives.config import Price
from ninelives.model import Started, Usage

KEPT_MAX = 100
"""So many steps, and so many rows within one, are kept; no screen shows more."""
COLUMN_CELLS_MIN, FULL_COLUMN_CELLS_MIN = 36, 52
"""Tasks of one step stand side by side where each has so much room; the latter, if something is seen within them."""
GAP = "  "
INDENT = 6
"""Of what happens in a step: under the name, right of the step's number and mark."""
REPLAYED = "recorded before, not run again"

State = Literal["running", "replayed"] | Ending

MARKS: dict[State, tuple[str, str]] = {
    "running": ("●", "cyan"),
    "done": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "asks": ("?", "yellow"),
    "stopped": ("■", "yellow"),
    "replayed": ("↺", "blue"),
}
"""A sign and a style for each state."""


# -- the state -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """
    A task or a tool call, with what happens within.

    `shown`: False for a task that is one tool call, and seen as that call alone. `forgotten` rows within have ended and
    are not kept.
    """

    name: str
    key: str = ""
    args: str = ""
    shown: bool = True
    state: State = "running"
    began: float = 0.0
    ended: float = 0.0
    said: str = ""
    attempt: int = 1
    tokens_in: int = 0
    tokens_out: int = 0
    within: list[Row] = field(default_factory=list)
    forgotten: int = 0

    def add(self, row: Row) -> bool:
        """A row within, if it is a new one: another attempt of a task takes the place of the one before."""
        for place, known in enumerate(self.within):
            if row.key and known.key == row.key:
                row.attempt = known.attempt + 1
                self.within[place] = row
                return False
        self.within.append(row)
        if len(self.within) > KEPT_MAX:
            self._forget_one()
        return True

    def _forget_one(self) -> None:
        for place, known in enumerate(self.within):
            if known.state != "running":
                del self.within[place]
                self.forgotten += 1
                return


@dataclass(slots=True)
class Step:
    """A superstep of the root graph: its tasks are rows in `tasks`, which has no line of its own."""

    number: int
    tasks: Row
    names: Counter[str] = field(default_factory=Counter)
    """How many tasks it has of each node."""

    def add(self, row: Row) -> None:
        self.names[row.name] += self.tasks.add(row)

    @property
    def state(self) -> State:
        states = {row.state for row in self.tasks.within}
        order: tuple[State, ...] = ("running", "failed", "asks", "stopped", "done", "replayed")
        return next(state for state in order if state in states)


@dataclass(slots=True)
class View:
    """
    All that is seen of a run. Changed by what a `Teller` is told; `render` draws it.

    `forgotten`: how many steps came before those that are kept.
    """

    prices: Mapping[str, Price] = field(default_factory=dict)
    title: str = ""
    began: float = 0.0
    closed: bool = False
    usage: Usage = field(default_factory=Usage)
    recorded: Recorded | None = None
    steps: deque[Step] = field(default_factory=deque)
    forgotten: int = 0
    _rows: dict[UUID, Row] = field(default_factory=dict)

    def admitted(self, started: Started, recorded: Recorded | None, at: float) -> None:
        self.title, self.recorded = _clean(heading(started)), recorded
        self.began = self.began or at
        if recorded is None:
            return
        self.usage += recorded.usage
        self.forgotten += recorded.earlier
        for step in recorded.steps:
            for node in step.nodes:
                self._step(step.number).add(_replayed(node))
        for task in recorded.tasks:
            if "|" not in task.ns:
                self._step(task.step).add(_replayed(task.name, task.ns))

    def begins(self, doing: Doing) -> None:
        row = Row(
            name=_clean(doing.name),
            key=doing.ns if doing.kind == "step" else "",
            args=f"({_clean(doing.args)})" if doing.kind == "tool" else "",
            shown=doing.shown,
            began=doing.at,
        )
        self._rows[doing.id] = row
        under = self._rows.get(doing.under) if doing.under else None
        if under is not None:
            under.add(row)
        elif doing.kind == "step" and doing.depth == 0:
            self._step(doing.number).add(row)
        elif self.steps:
            self.steps[-1].tasks.add(row)
        if self.recorded is not None:
            if doing.kind == "tool" and any(_is_of(act, doing) for act in self.recorded.acts):
                row.said = f"act {REPLAYED}"
            if doing.shown and (doing.kind == "step" or (under is not None and not under.shown)):
                self._replay(row, doing.ns, self.recorded)

    def ends(self, doing: Doing, how: Ending, said: str, at: float) -> None:
        row = self._rows.pop(doing.id, None)
        if row is not None:
            row.state, row.ended = how, at
            if said and (how == "failed" or not row.said):
                row.said = _clean(said if how == "failed" else f"-> {said}")

    def model_answered(self, under: UUID | None, usage: Usage) -> None:
        self.usage += usage
        row = self._rows.get(under) if under else None
        if row is not None:
            row.tokens_in += usage.tokens_in
            row.tokens_out += usage.tokens_out

    def close(self, at: float) -> None:
        """Nothing runs any more: what has not ended was stopped."""
        for row in self._rows.values():
            row.state, row.ended = "stopped", at
        self._rows.clear()
        self.closed = True

    def _step(self, number: int) -> Step:
        if not self.steps or self.steps[-1].number != number:
            self.steps.append(Step(number, Row("")))
            if len(self.steps) > KEPT_MAX:
                self.steps.popleft()
                self.forgotten += 1
        return self.steps[-1]

    def _replay(self, row: Row, ns: str, recorded: Recorded) -> None:
        """What is recorded of a task that is gone into again, on the row that it is seen as."""
        if steps := recorded.inside.get(ns):
            row.add(_replayed(render.count(steps, "step")))
        for task in recorded.tasks:
            if task.ns.rpartition("|")[0] == ns:
                row.add(_replayed(task.name, task.ns))


def _replayed(name: str, key: str = "") -> Row:
    return Row(_clean(name), key, state="replayed", said=REPLAYED)


def _is_of(act: RecordedAct, doing: Doing) -> bool:
    return act.call_id is not None and act.call_id == doing.call_id


def _clean(text: str) -> str:
    return render.short(render.printable(text), render.LINE_CHARS_MAX)


# -- the picture -----------------------------------------------------------------------------------------------


def render_view(view: View, width: int, height: int, now: float) -> list[Text]:
    """
    The picture: at most `height` lines, none wider than `width`.

    The last steps count most: what does not fit is left out from the top, and how much it was is said.
    """
    above: list[Text] = []
    below = [] if view.closed else [_cut(Text(_footer(view, now), "dim"), width)]
    if height >= 6:
        above.append(_cut(Text(view.title, "bold"), width))
        if view.recorded is not None:
            above.append(_cut(Text(f"↺ {REPLAYED}: {_clean(str(view.recorded))}", "blue"), width))
    body = _body(view, width, height - len(above) - len(below), now)
    return [*above, *body, *below][-max(0, height) :] if height > 0 else []


def _footer(view: View, now: float) -> str:
    usage = view.usage
    parts = [
        f"{usage.tokens_in:,} tokens in, {usage.tokens_out:,} out",
        _clean(money_in_words(usage, view.prices)),
        render.count(usage.model_calls, "model call"),
        _took(now - view.began, running=True),
    ]
    return " · ".join(filter(None, parts))


def _body(view: View, width: int, room: int, now: float) -> list[Text]:
    """Steps from the newest back for as long as there is room: in detail, or as one line, and the rest as a number."""
    blocks: list[list[Text]] = []
    left, earlier = room, len(view.steps) + view.forgotten
    for step in reversed(view.steps):
        own = left - (earlier > 1)
        if own < 1:
            break
        block = _fitted(step, width, own, now) if not blocks else _fitted_or_head(step, width, own, now)
        blocks.append(block)
        left, earlier = left - len(block), earlier - 1
    if earlier and left > 0:
        blocks.append([_cut(Text(f"… {render.count(earlier, 'earlier step')}", "dim"), width)])
    return [line for block in reversed(blocks) for line in block]


def _fitted_or_head(step: Step, width: int, room: int, now: float) -> list[Text]:
    for detail in (2, 1):
        lines = list(islice(_step(step, width, now, room, detail=detail), room + 1))
        if len(lines) <= room:
            return lines
    return lines[:1]


def _fitted(step: Step, width: int, room: int, now: float) -> list[Text]:
    """The newest step in as much detail as there is room for; what still runs is left out last."""
    for detail in (2, 1, 0):
        lines = list(islice(_step(step, width, now, room, detail=detail), room + 1))
        if len(lines) <= room:
            return lines
    return [*lines[: room - 1], _cut(Text(" " * INDENT + "… and more", "dim"), width)] if room > 1 else lines[:1]


def _step(step: Step, width: int, now: float, room: int, *, detail: int) -> Iterator[Text]:
    """
    The lines of a step.

    `detail`: 2 all; 1 without what is within rows that have ended; 0 without the rows that have ended.
    """
    lead = f"{step.number:>3} "
    tasks, forgotten = step.tasks.within, step.tasks.forgotten
    if len(tasks) == 1 and not forgotten:
        row = _seen(tasks[0])
        yield _line(row, lead, width, now)
        yield from _within(row, INDENT, width, now, detail=detail)
        return
    yield _head(step, lead, width, now)
    kept = tasks if detail else [row for row in tasks if row.state == "running"]
    if left_out := len(tasks) - len(kept) + forgotten:
        yield _cut(Text(f"{' ' * INDENT}… {left_out} more ended", "dim"), width)
    yield from _side_by_side(kept, width, now, room, detail=detail)


def _head(step: Step, lead: str, width: int, now: float) -> Text:
    """A line for a step of several tasks."""
    tasks, state = step.tasks.within, step.state
    live = [row for row in tasks if row.state != "replayed"]
    head = Row(
        name=render.counted(step.names.elements()),
        state=state,
        began=min((row.began for row in live), default=0.0),
        ended=max((row.ended for row in live), default=0.0),
        said=REPLAYED if state == "replayed" else "",
    )
    return _line(head, lead, width, now)


def _side_by_side(rows: Sequence[Row], width: int, now: float, room: int, *, detail: int) -> Iterator[Text]:
    """Each task in a column, as many beside each other as there is room for."""
    inner = width - INDENT
    full = any(_seen(row).within and (detail == 2 or row.state == "running") for row in rows)
    cells_min = FULL_COLUMN_CELLS_MIN if full else COLUMN_CELLS_MIN
    columns = max(1, min(len(rows), (inner + len(GAP)) // (cells_min + len(GAP))))
    cells = max(1, (inner - len(GAP) * (columns - 1)) // columns)
    for start in range(0, len(rows), columns):
        blocks = [
            list(islice(_block(row, cells, now, detail=detail), room + 1)) for row in rows[start : start + columns]
        ]
        for number in range(max(map(len, blocks))):
            line = Text(" " * INDENT)
            for place, block in enumerate(blocks):
                part = block[number] if number < len(block) else Text()
                part.truncate(cells, overflow="ellipsis", pad=place < len(blocks) - 1)
                line.append_text(Text(GAP) if place else Text()).append_text(part)
            yield _cut(line, width)


def _block(row: Row, width: int, now: float, *, detail: int) -> Iterator[Text]:
    row = _seen(row)
    yield _line(row, "", width, now)
    yield from _within(row, 2, width, now, detail=detail)


def _within(row: Row, indent: int, width: int, now: float, *, detail: int) -> Iterator[Text]:
    """What happens in a row, indented, and so on within; what still runs is seen at any detail."""
    if detail < 2 and row.state != "running":
        return
    kept = row.within if detail else [one for one in row.within if one.state == "running"]
    if left_out := len(row.within) - len(kept) + row.forgotten:
        yield _cut(Text(f"{' ' * indent}… {left_out} more ended", "dim"), width)
    for one in map(_seen, kept):
        yield _line(one, " " * indent, width, now)
        yield from _within(one, indent + 2, width, now, detail=detail)


def _seen(row: Row) -> Row:
    """A task that is one tool call is seen as the call."""
    return row.within[-1] if not row.shown and row.within else row


# -- a line ----------------------------------------------------------------------------------------------------


def _line(row: Row, lead: str, width: int, now: float) -> Text:
    """Mark, name and arguments, how long it took, what came of it; long parts are cut so that each is still seen."""
    mark, style = MARKS[row.state]
    took = _took((now if row.state == "running" else row.ended) - row.began, running=row.state == "running")
    took = f"  {took}" if took and row.state != "replayed" else ""
    said = f"  {said}" if (said := " · ".join(_remarks(row))) else ""
    line = Text.assemble((lead, "dim"), (mark, style), " ")
    room = max(1, width - line.cell_len - cell_len(took))
    label = Text.assemble((row.name, "blue" if row.state == "replayed" else ""), (row.args, "dim"))
    label.truncate(max(room // 2, room - cell_len(said)), overflow="ellipsis")
    line.append_text(label).append(took, "dim").append(said, style if row.state == "failed" else "dim")
    return _cut(line, width)


def _remarks(row: Row) -> Iterable[str]:
    if row.attempt > 1:
        yield f"attempt {row.attempt}"
    if row.tokens_in or row.tokens_out:
        yield f"{row.tokens_in:,} tokens in, {row.tokens_out:,} out"
    if row.state == "asks":
        yield "asks"
    if row.said:
        yield row.said


def _took(seconds: float, *, running: bool) -> str:
    """`0.4 s`, `12 s` while it goes on, `2 min 05 s`; nothing for what took no time to speak of."""
    if seconds >= 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02} s"
    if running:
        return f"{int(seconds)} s" if seconds >= 1 else ""
    return f"{seconds:.1f} s" if seconds >= 0.05 else ""


def _cut(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(max(1, width), overflow="ellipsis")
    return line
