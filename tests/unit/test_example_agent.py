"""The example under examples/researcher, run without a kill: what it promises a reader before any crash."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

AGENT = Path(__file__).parents[2] / "examples" / "researcher" / "agent.py"

FILES = {
    "intro.md": "# Intro\n\none two three\n\n## More\n",
    "tea.txt": "water leaves patience",
    "shop.py": "class Shop:\n    pass\n\n\ndef sell() -> None:\n    pass\n",
    "broken.py": "def (:\n",
    "empty.txt": "",
    "deep/inner.txt": "a b c d",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of six files as the current one, a fresh outbox in it, no pauses and no real model."""
    for name, text in FILES.items():
        (tmp_path / "shelf" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "shelf" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NINELIVES_EXAMPLE_OUTBOX", str(tmp_path / "outbox.jsonl"))
    monkeypatch.setenv("NINELIVES_EXAMPLE_PACE_S", "0")
    monkeypatch.setenv("NINELIVES_EXAMPLE_MODEL", "scripted")
    return tmp_path


@pytest.fixture
def example(folder: Path) -> ModuleType:
    """The example as the command line loads it: by its path."""
    spec = importlib.util.spec_from_file_location("example_agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ask(example: ModuleType, question: str, thread: str = "t") -> list[BaseMessage]:
    """Run the agent to its end on an in-memory saver; its messages."""
    graph = example.agent.copy({"checkpointer": InMemorySaver()})
    state = graph.invoke({"messages": [("user", question)]}, {"configurable": {"thread_id": thread}})
    messages: list[BaseMessage] = state["messages"]
    return messages


def outbox(folder: Path) -> list[dict[str, Any]]:
    """What was published, oldest first."""
    return [json.loads(line) for line in (folder / "outbox.jsonl").read_text().splitlines()]


def steps(example: ModuleType, question: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """The checkpoints of a run, subgraphs included, as (namespace, what the debug stream says of a task)."""
    graph = example.agent.copy({"checkpointer": InMemorySaver()})
    config = {"configurable": {"thread_id": "t"}}
    for space, told in graph.stream(
        {"messages": [("user", question)]}, config, stream_mode="debug", subgraphs=True, durability="sync"
    ):
        if told["type"] == "task":
            yield space, told


def test_report_is_published_once_with_the_right_counts(example: ModuleType, folder: Path) -> None:
    """One line in the outbox, and in it the true number of words of every file."""
    messages = ask(example, "What is in shelf?")

    [published] = outbox(folder)
    assert published["title"] == "What is in shelf"
    for name, text in FILES.items():
        assert f"- shelf/{name}: {len(text.split())} words" in published["body"]
    total = sum(len(text.split()) for text in FILES.values())
    assert f"{len(FILES)} files, {total} words." in published["body"]
    assert "number 1 in outbox.jsonl" in str(messages[-1].text)


def test_outline_names_what_a_file_holds(example: ModuleType, folder: Path) -> None:
    """Python by its definitions, Markdown by its headings, the rest by a first line, what is broken by nothing."""
    ask(example, "What is in shelf?")

    body = outbox(folder)[0]["body"]
    assert "- shelf/shop.py: Shop, sell" in body
    assert "- shelf/intro.md: Intro, More" in body
    assert "- shelf/tea.txt: water leaves patience" in body
    assert "- shelf/broken.py: nothing by name" in body


def test_files_are_read_in_parallel_inside_a_subagent(example: ModuleType) -> None:
    """The subagent has steps of its own, and in some of them all the files are worked on at once."""
    told = list(steps(example, "What is in shelf?"))

    tasks_at_once = Counter((space, task["step"]) for space, task in told if space)
    assert max(tasks_at_once.values()) == len(FILES)
    assert all(space[0].startswith("tools:") for space, _ in tasks_at_once)


def test_a_run_is_long_enough_to_be_killed_in_the_middle(example: ModuleType) -> None:
    """About twenty supersteps: enough points to be killed at, few enough to watch."""
    told = list(steps(example, "What is in shelf?"))

    assert 12 <= len({(space, task["step"]) for space, task in told}) <= 22


def test_two_runs_say_the_same(example: ModuleType, folder: Path) -> None:
    """What the model says, ids included, follows from the history: a run can be compared with one that was killed."""
    first = ask(example, "What is in shelf?", "a")
    (folder / "outbox.jsonl").unlink()

    second = ask(example, "What is in shelf?", "b")

    said = [[(m.id, m.text, m.tool_calls) for m in run if isinstance(m, AIMessage)] for run in (first, second)]
    ids = [call["id"] for _, _, calls in said[0] for call in calls]
    assert said[0] == said[1]
    assert len(ids) == len(set(ids)) > 0


def test_a_second_question_on_the_thread_gets_its_own_report(example: ModuleType, folder: Path) -> None:
    """The script goes by the newest question, so a thread can be asked again."""
    graph = example.agent.copy({"checkpointer": InMemorySaver()})
    config = {"configurable": {"thread_id": "t"}}

    graph.invoke({"messages": [("user", "What is in shelf?")]}, config)
    state = graph.invoke({"messages": [("user", "And in shelf/deep?")]}, config)

    assert [line["title"] for line in outbox(folder)] == ["What is in shelf", "What is in shelf/deep"]
    assert sorted(state["files"]) == ["/report-1.md", "/report-2.md"]


def test_folder_that_is_not_there_is_said_and_nothing_published(example: ModuleType, folder: Path) -> None:
    """A wrong name ends in an answer, not in an outside act."""
    messages = ask(example, "What is in the folder nowhere?")

    assert "no text files in 'nowhere'" in str(messages[-1].text)
    assert not (folder / "outbox.jsonl").exists()


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("What is in src/ninelives?", "src/ninelives"),
        ("Tell me about 'my docs'", "my docs"),
        ("Summarise the docs folder.", "docs"),
        ("Look at the folder tests, please", "tests"),
        ("What is in src?", "src"),
        ("What is in this folder?", "."),
        ("Read .", "."),
        ("Hello", "."),
    ],
)
def test_folder_is_taken_from_the_question(example: ModuleType, question: str, named: str) -> None:
    """Any usual way of naming a folder is understood; none named means the current one."""
    assert example.sys.modules["scripted"].folder_in(question) == named
