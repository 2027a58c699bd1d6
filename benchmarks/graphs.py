"""The graphs that are measured. Their nodes say what was prepared; what is timed is LangGraph and the saver."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, Literal, TypedDict, cast

from deepagents._messages_reducer import _messages_delta_reducer
from deepagents.middleware.filesystem import _file_data_delta_reducer, _file_data_reducer
from langchain_core.messages import BaseMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send

from benchmarks.messages import Turn
from benchmarks.subjects import Builder


class Chat:
    """An agent and its one tool. `turn` is what they say; it is set before each call."""

    turn: Turn

    def builder(self, delta: int) -> Builder:
        builder: Builder = StateGraph(_state(messages=messages(delta)))
        builder.add_node("agent", self._agent)
        builder.add_node("tools", self._tools)
        builder.add_edge(START, "agent")
        builder.add_conditional_edges("agent", _wants_tool, ["tools", END])
        builder.add_edge("tools", "agent")
        return builder

    def _agent(self, state: Any) -> dict[str, Any]:
        return {"messages": [self.turn.call if state["messages"][-1].type == "human" else self.turn.answer]}

    def _tools(self, state: Any) -> dict[str, Any]:
        return {"messages": [self.turn.result]}


class Steps:
    """One node that runs again and again, until `until` steps have been taken on the thread."""

    def __init__(self, until: int) -> None:
        self.until = until

    def builder(
        self,
        step: Callable[[Any], dict[str, Any]] | Callable[[Any], Awaitable[dict[str, Any]]],
        **channels: Any,
    ) -> Builder:
        builder: Builder = StateGraph(_state(taken=int, **channels))
        builder.add_node("step", cast(Any, step))
        builder.add_edge(START, "step")
        builder.add_conditional_edges("step", self._next, ["step", END])
        return builder

    def _next(self, state: Any) -> Literal["step", "__end__"]:
        return "step" if state["taken"] < self.until else "__end__"


def fan_out(width: int, said: Iterator[BaseMessage]) -> Builder:
    """A plan, `width` tasks of it in one superstep, and a node that they all lead to."""

    def plan(state: Any) -> dict[str, Any]:
        return {"planned": [*range(width)]}

    def spread(state: Any) -> list[Send]:
        return [Send("work", {"number": number}) for number in state["planned"]]

    def work(state: Any) -> dict[str, Any]:
        return {"results": [{"number": state["number"], "text": next(said).text}]}

    def join(state: Any) -> dict[str, Any]:
        return {}

    builder: Builder = StateGraph(_state(planned=list[int], results=Annotated[list[Any], operator.add]))
    for node in (plan, work, join):
        builder.add_node(node.__name__, cast(Any, node))
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", spread, ["work"])
    builder.add_edge("work", "join")
    return builder


def messages(delta: int) -> Any:
    """The channel of messages, plain as LangGraph has it, or as deepagents has it."""
    return _channel(list[Any], add_messages, _messages_delta_reducer, delta)


def files(delta: int) -> Any:
    """The channel of deepagents' files."""
    return _channel(dict[str, Any], _file_data_reducer, _file_data_delta_reducer, delta)


def _channel(of: Any, plain: Any, batch: Any, delta: int) -> Any:
    return Annotated[of, DeltaChannel(batch, snapshot_frequency=delta) if delta else plain]


def _wants_tool(state: Any) -> Literal["tools", "__end__"]:
    return "tools" if state["messages"][-1].tool_calls else "__end__"


def _state(**channels: Any) -> Any:
    """A state's schema, made of its channels."""
    return cast(Any, TypedDict)("State", channels)
