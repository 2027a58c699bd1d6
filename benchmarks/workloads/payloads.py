"""Large values of which little changes: the files of an agent, and a text that stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from benchmarks import graphs
from benchmarks.corpus import load_corpus
from benchmarks.messages import Teller
from benchmarks.spec import Measured, Spec
from benchmarks.subjects import SUBJECTS, Builder, used_bytes
from benchmarks.workloads.common import seconds, thread

STEPS = 100
FILES, FILE_CHARS, EDIT_CHARS = 30, 20_000, 300
CONSTANT_CHARS = 5_000_000
MADE_AT = "2026-11-30T12:00:00.000000+00:00"


def files(spec: Spec, folder: Path, seed: int, round: int) -> Measured:
    """An agent edits one of its files in each step."""
    teller = Teller(load_corpus(), seed)

    def step(state: Any) -> dict[str, Any]:
        number = state["taken"]
        path = _path(number % FILES)
        edited = _edited(state["files"][path]["content"], teller)
        told = ToolMessage(f"Updated file {path}", tool_call_id=f"toolu_{teller.hex()}", name="edit_file")
        return {"files": {path: _file(edited, number)}, "taken": number + 1, "messages": [told]}

    steps = graphs.Steps(until=1)
    builder = steps.builder(step, messages=graphs.messages(spec.delta), files=graphs.files(spec.delta))
    begin = {_path(number): _file(teller.code(FILE_CHARS, FILE_CHARS)) for number in range(FILES)}
    return _grown(spec, folder, steps, builder, {"files": begin})


def constant(spec: Spec, folder: Path, seed: int, round: int) -> Measured:
    """A large text lies in a channel of its own, and is only read."""
    teller = Teller(load_corpus(), seed)

    def step(state: Any) -> dict[str, Any]:
        answer = AIMessage(teller.prose(200, 400), **teller.from_model())
        return {"messages": [answer], "taken": state["taken"] + 1}

    steps = graphs.Steps(until=1)
    builder = steps.builder(step, messages=graphs.messages(spec.delta), document=str)
    return _grown(spec, folder, steps, builder, {"document": teller.code(CONSTANT_CHARS, CONSTANT_CHARS)})


def _grown(spec: Spec, folder: Path, steps: graphs.Steps, builder: Builder, begin: dict[str, Any]) -> Measured:
    """
    By how much a step makes the store grow, after a first one that brought the large value in.

    Without free pages: those that the first step leaves would take in all that the others write.
    """
    with SUBJECTS[spec.saver].open(folder) as session:
        agent = session.compiled(builder)
        agent.invoke({**begin, "taken": 0, "messages": [HumanMessage("Begin.")]}, thread(), durability="sync")
        before = used_bytes(folder)
        steps.until += STEPS
        more = {"messages": [HumanMessage("Go on.")]}
        total_s = seconds(lambda: agent.invoke(more, thread(), durability="sync"))
        return {"bytes_per_step": (used_bytes(folder) - before) / STEPS, "step_s": total_s / STEPS}


def _path(number: int) -> str:
    return f"/workspace/src/pkg/module_{number:02d}.py"


def _file(content: str, number: int = 0) -> dict[str, str]:
    modified_at = f"2026-11-30T12:{number // 60 % 60:02d}:{number % 60:02d}.{number * 7919 % 1_000_000:06d}+00:00"
    return {"content": content, "encoding": "utf-8", "created_at": MADE_AT, "modified_at": modified_at}


def _edited(content: str, teller: Teller) -> str:
    place = teller.random.randrange(len(content) - EDIT_CHARS)
    return content[:place] + teller.code(EDIT_CHARS - 100, EDIT_CHARS + 100) + content[place + EDIT_CHARS :]
