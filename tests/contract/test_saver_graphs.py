"""Real graphs on our saver end in the state that LangGraph's own in-memory saver gives."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypedDict

import pytest
from deepagents import create_deep_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from ninelives.saver import Saver
from ninelives.store import Store

Durability = Literal["sync", "async", "exit"]
Step = Any
CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def append(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict, total=False):
    todo: list[str]
    done: Annotated[list[str], operator.add]
    log: Annotated[list[str], DeltaChannel(append, snapshot_frequency=3)]
    answer: Any


def workshop(saver: BaseCheckpointSaver[Any]) -> Any:
    """A fan-out, a nested graph that asks, a reducer, a DeltaChannel, and a loop."""

    def plan(state: State) -> State:
        return {"log": ["planned"], "done": []}

    def work(state: State) -> State:
        (item,) = state["todo"]
        return {"done": [item.upper()], "log": [f"worked {item}"]}

    def ask(state: State) -> State:
        return {"answer": [interrupt({"ship": len(state["done"])}), len(state["log"])]}

    def ship(state: State) -> State:
        return {"log": ["shipped"], "todo": state["todo"][1:]}

    nested = StateGraph(State)
    nested.add_node("ask", ask)
    nested.add_node("note", lambda state: {"log": ["noted"]})
    nested.add_edge(START, "ask")
    nested.add_edge("ask", "note")

    graph = StateGraph(State)
    for name, node in (("plan", plan), ("work", work), ("ship", ship), ("nested", nested.compile())):
        graph.add_node(name, node)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: [Send("work", {"todo": [item]}) for item in state["todo"]])
    graph.add_edge("work", "nested")
    graph.add_edge("nested", "ship")
    graph.add_conditional_edges("ship", lambda state: "ship" if state["todo"] else END)
    return graph.compile(checkpointer=saver)


SESSION: list[Step] = [
    {"todo": ["a", "b", "c"]},
    Command(resume={"yes": True}),
    {"todo": ["d"], "log": ["again"]},
    Command(resume="no"),
]


class Scripted(BaseChatModel):
    """Says what the number of tool results so far calls for."""

    lines: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Scripted:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        turn = sum(isinstance(m, AIMessage) for m in messages)
        return ChatResult(generations=[ChatGeneration(message=self.lines[turn % len(self.lines)].model_copy())])


def call(name: str, tool_call_id: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "id": tool_call_id, "type": "tool_call"}


def publish(text: str) -> str:
    """Publish a text."""
    return f"published {text}"


def deep_agent(saver: BaseCheckpointSaver[Any]) -> Any:
    """Two tool calls side by side, a subagent, and a tool that must be approved."""
    helper = Scripted(
        lines=[
            AIMessage("", tool_calls=[call("write_file", "h1", file_path="/n.md", content="n")]),
            AIMessage("helped"),
        ]
    )
    model = Scripted(
        lines=[
            AIMessage(
                "",
                tool_calls=[
                    call("write_todos", "c1", todos=[{"content": "look", "status": "pending"}]),
                    call("task", "c2", description="help", subagent_type="helper"),
                    call("write_file", "c3", file_path="/a.md", content="hello"),
                ],
            ),
            AIMessage("", tool_calls=[call("publish", "c4", text="hello")]),
            AIMessage("all done"),
        ]
    )
    return create_deep_agent(
        model=model,
        tools=[publish],
        subagents=[{"name": "helper", "description": "helps", "system_prompt": "help", "model": helper}],
        interrupt_on={"publish": True},
        checkpointer=saver,
    )


CHAT: list[Step] = [
    {"messages": [("user", "go")]},
    Command(resume={"decisions": [{"type": "approve"}]}),
    {"messages": [("user", "once more")]},
    Command(resume={"decisions": [{"type": "reject", "message": "not twice"}]}),
]

GRAPHS: dict[str, tuple[Callable[[BaseCheckpointSaver[Any]], Any], list[Step]]] = {
    "workshop": (workshop, SESSION),
    "deep agent": (deep_agent, CHAT),
}


def drive(graph: Any, steps: list[Step], durability: Durability, *, sync: bool) -> list[Any]:
    """What each call returned, and the state after it; ids of messages aside, which are drawn by lot."""

    async def all_async() -> list[Any]:
        seen = []
        for step in steps:
            out = await graph.ainvoke(step, CONFIG, durability=durability)
            seen += [plain(out), told(await graph.aget_state(CONFIG))]
        history = [s async for s in graph.aget_state_history(CONFIG)]
        return [*seen, [told(s) for s in history]]

    if not sync:
        return asyncio.run(all_async())
    seen: list[Any] = []
    for step in steps:
        out = graph.invoke(step, CONFIG, durability=durability)
        seen += [plain(out), told(graph.get_state(CONFIG))]
    return [*seen, [told(s) for s in graph.get_state_history(CONFIG)]]


def told(state: Any) -> Any:
    interrupts = [plain(i.value) for i in state.interrupts]
    return plain(state.values), state.next, interrupts, state.metadata.get("source"), state.metadata["step"]


def plain(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        own = {"tool_calls": getattr(value, "tool_calls", None), "status": getattr(value, "status", None)}
        return type(value).__name__, value.content, own, value.tool_call_id if isinstance(value, ToolMessage) else None
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in ("__interrupt__", "created_at", "modified_at")}
    return [plain(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("sync", [True, False], ids=["invoke", "ainvoke"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("name", GRAPHS)
def test_it_ends_like_langgraphs_own(store: Store, name: str, durability: Durability, sync: bool) -> None:
    """Every output, the state after every call and the whole history are the same, in every mode of durability."""
    make, steps = GRAPHS[name]

    ours = drive(make(Saver(store)), steps, durability, sync=sync)

    assert ours == drive(make(InMemorySaver()), steps, durability, sync=sync)
    assert len(ours[-1]) >= 4


@pytest.mark.parametrize("name", GRAPHS)
def test_pruned_between_all_calls_it_ends_the_same(store: Store, name: str) -> None:
    """Retention may run whenever the thread is at rest: outputs and states do not change, only history is shorter."""
    make, steps = GRAPHS[name]
    saver = Saver(store)
    graph = make(saver)
    ours: list[Any] = []
    for step in steps:
        ours += [plain(graph.invoke(step, CONFIG)), told(graph.get_state(CONFIG))]
        saver.prune(["t"])

    assert ours == drive(make(InMemorySaver()), steps, "async", sync=True)[:-1]


@pytest.mark.parametrize("name", GRAPHS)
def test_a_copy_goes_on_like_its_source(store: Store, name: str) -> None:
    """An interrupted thread and its copy are answered alike, and end alike."""
    make, steps = GRAPHS[name]
    saver = Saver(store)
    graph = make(saver)
    graph.invoke(steps[0], CONFIG)
    saver.copy_thread("t", "copy")

    one = graph.invoke(steps[1], CONFIG)
    other = graph.invoke(steps[1], {"configurable": {"thread_id": "copy"}})

    assert plain(one) == plain(other)


def test_time_travel_branches(store: Store) -> None:
    """Going on from an older checkpoint makes a branch; the old one stays, and the new one is the head."""
    graphs = [workshop(Saver(store)), workshop(InMemorySaver())]
    seen = []
    for graph in graphs:
        graph.invoke(SESSION[0], CONFIG)
        graph.invoke(SESSION[1], CONFIG)
        (before,) = [s for s in graph.get_state_history(CONFIG) if s.next == ("work",) * 3]
        forked = graph.update_state(before.config, {"log": ["edited"]})
        graph.invoke(None, forked)
        seen.append([told(graph.get_state(CONFIG)), [told(s) for s in graph.get_state_history(CONFIG)]])

    assert seen[0] == seen[1]
    assert "edited" in seen[0][0][0]["log"]
