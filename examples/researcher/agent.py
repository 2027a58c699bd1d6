"""
An agent that reads a folder and publishes a report about it: the agent to try a `kill -9` on.

    ninelives run examples/researcher/agent.py:agent "What is in src/ninelives?" --thread demo

It plans, has a subagent read all files at once, writes the report down and publishes it. Everything can be done again
at no harm but one act: `publish_report` adds a line to the outbox, and a line must never be there twice.
It needs no key; with the key of a model's maker in the environment it uses that model.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepagents import SubAgent, create_deep_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.language_models.chat_models import BaseChatModel

from ninelives import effect, idempotency_key
from ninelives.effects import Done, NotDone

# This file is loaded by its path, which does not put its folder on Python's own path.
sys.path.append(str(Path(__file__).parent))
from scripted import NOTHING, Script, ScriptedModel, pause, reader, researcher

FILES_MAX = 12
"""So many files are read at most: a look into a folder, not a survey of a disk."""

MODELS = {
    "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-6",
    "OPENAI_API_KEY": "openai:gpt-5.5",
    "GOOGLE_API_KEY": "google_genai:gemini-2.5-flash",
}
"""The model used when a key is set, unless `NINELIVES_EXAMPLE_MODEL` names another."""


# -- what the agent can do -------------------------------------------------------------------------------------


def list_files(folder: str) -> str:
    """List the text files under a folder, one path a line, in order; the first twelve if there are more."""
    pause()
    found = [str(path) for path in _text_files(Path(folder))]
    return "\n".join(found[:FILES_MAX]) or f"{NOTHING}: there are no text files in {folder!r}."


def count_words(path: str) -> str:
    """Count the words of one file."""
    pause()
    return f"{path}: {len(_text(path).split())} words"


def outline(path: str) -> str:
    """Say what is in one file: what a Python file defines, the headings of a Markdown file, else the first line."""
    pause()
    text = _text(path)
    named = {".py": _definitions, ".md": _headings}.get(Path(path).suffix, _first_line)(text)
    return f"{path}: {', '.join(named) or 'nothing by name'}"


def already_published(title: str, body: str) -> Done[str] | NotDone:
    """Look whether the act that bears this call's key is in the outbox: what to ask when a kill cut it off."""
    key = idempotency_key()
    for number, line in enumerate(_outbox_lines(), start=1):
        if line.get("key") == key:
            return Done(_published(title, number))
    return NotDone()


@effect(probe=already_published)
def publish_report(title: str, body: str) -> str:
    """Publish a report: add it to the outbox. Others read the outbox, so this cannot be taken back."""
    pause()
    line = json.dumps({"key": idempotency_key(), "title": title, "body": body}) + "\n"
    _append(line.encode())
    pause()
    return _published(title, sum(1 for _ in _outbox_lines()))


# -- the agent -------------------------------------------------------------------------------------------------


def model_for(script: Script) -> BaseChatModel:
    """A real model if its key is set and `NINELIVES_EXAMPLE_MODEL` is not `scripted`, else the script."""
    wanted = os.environ.get("NINELIVES_EXAMPLE_MODEL", "")
    keyed = next((model for key, model in MODELS.items() if os.environ.get(key)), "")
    if wanted == "scripted" or not keyed:
        return ScriptedModel(script=script)
    model: BaseChatModel = init_chat_model(wanted or keyed)
    return model


READER: SubAgent = {
    "name": "reader",
    "description": "Reads the files of a folder: how many words, and what is in each.",
    "system_prompt": "List the files of the folder you are given. Then count the words of all files in parallel, then"
    " outline all files in parallel. Answer with one line for each file and the total number of words.",
    "tools": [list_files, count_words, outline],
    "model": model_for(reader),
}

agent = create_deep_agent(
    model=model_for(researcher),
    name="researcher",
    system_prompt="Make a plan with write_todos. Have the subagent `reader` read the folder in question ('.' if none is"
    " named). Write what it found to /report-1.md. Then publish the report, once. Then answer.",
    tools=[publish_report],
    subagents=[READER],
    middleware=[TodoListMiddleware()],
)


# -- files -----------------------------------------------------------------------------------------------------


def _text_files(folder: Path) -> Iterator[Path]:
    """All files under a folder that hold text, by path; hidden and cache folders are left alone."""
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for name in sorted(names):
            path = Path(where, name)
            if not name.startswith(".") and path.is_file() and b"\0" not in path.read_bytes()[:1024]:
                yield path


def _text(path: str) -> str:
    """What a file holds; empty if it went away since it was listed."""
    return Path(path).read_text("utf-8", errors="replace") if Path(path).is_file() else ""


def _definitions(text: str) -> list[str]:
    try:
        nodes = ast.parse(text).body
    except SyntaxError:
        return []
    return [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]


def _headings(text: str) -> list[str]:
    return [line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#")]


def _first_line(text: str) -> list[str]:
    return text.strip().splitlines()[:1]


# -- the outbox ------------------------------------------------------------------------------------------------


def _outbox() -> Path:
    return Path(os.environ.get("NINELIVES_EXAMPLE_OUTBOX", "outbox.jsonl"))


def _outbox_lines() -> Iterator[dict[str, Any]]:
    """What was published, oldest first. A line that a power cut tore counts as not there."""
    for line in _outbox().read_text("utf-8").splitlines() if _outbox().exists() else []:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _append(line: bytes) -> None:
    """Add a line in one write and wait until the disk has it, so that a kill leaves all of it or nothing."""
    before = _outbox().read_bytes()[-1:] if _outbox().exists() else b""
    to = os.open(_outbox(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(to, line if before in (b"", b"\n") else b"\n" + line)
        os.fsync(to)
    finally:
        os.close(to)


def _published(title: str, number: int) -> str:
    return f"Published {title!r} as number {number} in {_outbox().name}."
