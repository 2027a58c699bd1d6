"""Values that a node changes in place, which LangGraph allows: stored as they are, told, and never taken for others."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from ninelives import FidelityError, MutatedStateWarning, open_store, protect
from ninelives.model import ONE_USER

LONG = "a text that is worth an item of its own " * 20


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    files: dict[str, Any]
    turn: int


Edit = Callable[[State], None]


def asked(text: str = LONG, **fields: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id="human")], "files": {}, "turn": 0, **fields}


def first_step(state: State) -> dict[str, Any]:
    call = {"name": "search", "args": {"query": {"words": ["a", "b"]}}, "id": "call"}
    return {
        "messages": [AIMessage(LONG, id="ai", tool_calls=[call], additional_kwargs={"seen": {"by": "nobody"}})],
        "files": {"a.txt": {"content": LONG, "lines": [LONG, LONG]}, "b.txt": {"content": LONG}},
    }


def graph_that(edit: Edit) -> Any:
    """Its second node changes what the first has made, and returns none of it."""

    def change(state: State) -> dict[str, Any]:
        edit(state)
        return {"turn": state["turn"] + 1}

    graph = StateGraph(State)
    graph.add_node("first", first_step)
    graph.add_node("change", change)
    graph.add_node("last", lambda state: {"turn": state["turn"] + 1})
    graph.add_edge(START, "first")
    graph.add_edge("first", "change")
    graph.add_edge("change", "last")
    graph.add_edge("last", END)
    return graph.compile()


def message_field(state: State) -> None:
    state["messages"][1].content = "changed"


def tool_argument(state: State) -> None:
    state["messages"][1].tool_calls[0]["args"]["query"]["words"].append("c")


def nested_dict(state: State) -> None:
    state["messages"][1].additional_kwargs["seen"]["by"] = "everybody"


def first_message(state: State) -> None:
    state["messages"][0].content = "changed"


def file_entry(state: State) -> None:
    state["files"]["a.txt"]["content"] = "changed"


def line_of_a_file(state: State) -> None:
    state["files"]["a.txt"]["lines"][1] = "changed"


def file_added(state: State) -> None:
    state["files"]["c.txt"] = {"content": LONG}


EDITS = (message_field, tool_argument, nested_dict, first_message, file_entry, line_of_a_file, file_added)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'state.db'}"


def stored(agent: Any) -> Any:
    """What another process would find."""
    return agent.get_state({"configurable": {"thread_id": "t"}}).values


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_a_change_in_place_is_stored(edit: Edit, url: str) -> None:
    """The newest checkpoint holds what the graph works with, whatever a node did to it behind LangGraph's back."""
    agent = protect(graph_that(edit), url, name="editor")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MutatedStateWarning)
        out = agent.invoke(asked(), thread="t")

    found = stored(agent)
    assert found["messages"] == out["messages"]
    assert found["files"] == out["files"]
    unchanged: Any = {"messages": [HumanMessage(LONG, id="human")], "turn": 0}
    made = first_step(unchanged)
    assert (found["messages"], found["files"]) != ([*unchanged["messages"], *made["messages"]], made["files"])


@pytest.mark.parametrize("edit", [message_field, tool_argument, nested_dict, file_entry], ids=lambda e: e.__name__)
def test_a_change_in_place_is_told(edit: Edit, url: str) -> None:
    """With the thread and the path."""
    agent = protect(graph_that(edit), url, name="editor")

    with pytest.warns(MutatedStateWarning, match=r"thread 't': .*(messages\[1\]|files\.a\.txt) was changed in place"):
        agent.invoke(asked(), thread="t")


def test_what_changes_nothing_is_not_told(url: str) -> None:
    """Ids that a reducer stamps on messages, and values that nodes return, are no changes in place."""
    agent = protect(graph_that(lambda state: None), url, name="editor")

    with warnings.catch_warnings():
        warnings.simplefilter("error", MutatedStateWarning)
        for n in range(3):
            agent.invoke({"messages": [("user", f"{LONG} {n}"), AIMessage(LONG)], "files": {}, "turn": 0}, thread="t")


def test_a_deep_change_of_an_old_element_is_found_when_the_run_ends(url: str) -> None:
    """Too old to be encoded with each step, and unchanged by its fields: the last checkpoint is put again."""

    def deep_in_an_old_one(state: State) -> None:
        state["messages"][2].additional_kwargs["notes"]["deep"].append("changed")

    agent = protect(graph_that(deep_in_an_old_one), url, name="editor")
    many = [HumanMessage(f"{n}", id=f"m{n}", additional_kwargs={"notes": {"deep": [n]}}) for n in range(40)]

    with pytest.warns(MutatedStateWarning, match=r"messages\[2\]"):
        agent.invoke({"messages": many, "files": {}, "turn": 0}, thread="t")

    assert stored(agent)["messages"][2].additional_kwargs == {"notes": {"deep": [2, "changed"]}}
    history = [*agent.get_state_history({"configurable": {"thread_id": "t"}})]
    assert history[0].next == ()
    assert len({state.config["configurable"]["checkpoint_id"] for state in history}) == len(history)


def test_strictness_refuses_a_change_in_place(url: str) -> None:
    """The run fails at the step that made it; what was stored before is as it was."""
    agent = protect(graph_that(message_field), url, name="editor", fidelity="strict")

    with pytest.raises(FidelityError, match=r"messages\[1\]: the value, changed in place"):
        agent.invoke(asked(), thread="t")

    assert stored(agent)["messages"][1].content == LONG


def test_what_a_caller_does_to_its_answer_is_its_own(url: str) -> None:
    """The next run begins with what was stored, though this process still holds the objects that it has given out."""
    agent = protect(graph_that(lambda state: None), url, name="editor")
    out = agent.invoke(asked(), thread="t")
    expected = copy.deepcopy(out["messages"])

    out["messages"][0].content = "for display only"
    out["messages"][1].tool_calls = []
    out["files"]["a.txt"]["content"] = "for display only"
    again = agent.invoke({"messages": [HumanMessage("next", id="next")]}, thread="t")

    assert again["messages"][:2] == expected
    assert stored(agent)["messages"][:2] == expected
    assert stored(agent)["files"]["a.txt"]["content"] == LONG


def test_who_reads_without_running_gets_objects_of_its_own(url: str) -> None:
    """Two readers, and a reader beside a run, never hold the same message."""
    agent = protect(graph_that(lambda state: None), url, name="editor")
    agent.invoke(asked(), thread="t")
    with_store = open_store(url)
    reads = [with_store.perform(with_store.get_checkpoint(ONE_USER, "t", "", None)) for _ in range(2)]

    one, other = (read.checkpoint["channel_values"]["messages"] for read in reads if read is not None)
    with_store.close()

    assert one == other == stored(agent)["messages"]
    assert not {*map(id, one)} & {*map(id, other)}
