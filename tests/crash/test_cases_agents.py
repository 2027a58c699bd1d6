"""Agents of deepagents and LangChain, killed in the middle: subagents, tool calls and DeltaChannels go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.types import Command

from agents import Home, Outside, config, home_in
from lives import die, die_at, live, live_and_die
from ninelives import effect
from ninelives.effects import Done, NotDone

pytestmark = pytest.mark.crash

Script = Callable[[list[BaseMessage]], AIMessage]


class Scripted(BaseChatModel):
    """Says what follows from the messages alone."""

    script: Any
    told: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        self.told()
        return ChatResult(generations=[ChatGeneration(message=self.script(messages))])


def calls(*named: tuple[str, dict[str, Any]]) -> AIMessage:
    made = [{"name": n, "args": a, "id": f"{n}-{i}", "type": "tool_call"} for i, (n, a) in enumerate(named)]
    return AIMessage("", tool_calls=made)


def results(messages: list[BaseMessage]) -> list[str]:
    """What tools have said since the newest question."""
    newest = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
    return [str(message.content) for message in messages[newest:] if isinstance(message, ToolMessage)]


def boss(messages: list[BaseMessage]) -> AIMessage:
    """Has two helpers work at once, then pays, then is done."""
    said = results(messages)
    if not said:
        order = {"subagent_type": "helper", "description": "look things up"}
        return calls(("task", order), ("note", {"text": "began"}))
    if len(said) == 2:
        return calls(("pay", {"order": "o1"}))
    return AIMessage(f"done: {said[-1]}")


def helper(messages: list[BaseMessage]) -> AIMessage:
    said = results(messages)
    if not said:
        return calls(("look", {"what": "a"}), ("look", {"what": "b"}))
    return AIMessage(" and ".join(said))


def deep(home: Home, dying: str = "", **more: Any) -> Any:
    from deepagents import create_deep_agent

    def tells(what: str) -> Callable[[], None]:
        def tell() -> None:
            home.outside.happens(what)
            if what == dying:
                die()

        return tell

    def look(what: str) -> str:
        """Look something up."""
        tells(f"look {what}")()
        return f"saw {what}"

    def note(text: str) -> str:
        """Note something down."""
        tells("note")()
        return "noted"

    def paid(order: str) -> Any:
        return Done(f"paid {order}") if f"pay {order}" in home.outside.seen else NotDone()

    @effect(probe=paid)
    @tool
    def pay(order: str) -> str:
        """Pay."""
        tells(f"pay {order}")()
        return f"paid {order}"

    agent = create_deep_agent(
        model=Scripted(script=boss, told=tells("boss")),
        tools=[note, pay],
        subagents=[
            {
                "name": "helper",
                "description": "Looks up.",
                "system_prompt": "Look.",
                "tools": [look],
                "model": Scripted(script=helper, told=tells("helper")),
            }
        ],
        **more,
    )
    return home.protect(agent, name="deep")


def life_of_a_deep_agent(folder: str, dying: str = "", point: list[Any] | None = None) -> Any:
    with home_in(folder) as home:
        agent = deep(home, dying)
        if point:
            die_at(home.store, *point)
        out = agent.invoke({"messages": [("user", "go")]}, thread="t", idempotency_key="k")
        return spoken(out)


def spoken(out: Any) -> list[list[str]]:
    return [[message.type, str(message.content)] for message in out["messages"]]


UNDISTURBED = [
    ["human", "go"],
    ["ai", ""],
    ["tool", "saw a and saw b"],
    ["tool", "noted"],
    ["ai", ""],
    ["tool", "paid o1"],
    ["ai", "done: paid o1"],
]


def test_undisturbed(tmp_path: Path) -> None:
    """What the agent does when nobody kills it."""
    assert live(life_of_a_deep_agent, tmp_path) == UNDISTURBED
    assert sorted(Outside(tmp_path).seen) == sorted(
        ["boss", "helper", "note", "look a", "look b", "helper", "boss", "pay o1", "boss"]
    )


@pytest.mark.parametrize("dying", ["boss", "helper", "look a", "look b", "note", "pay o1"])
def test_a_deep_agent_goes_on_inside(tmp_path: Path, dying: str) -> None:
    """
    Killed in a model call, a subagent's model or tool, beside it or in a declared act: it ends as if nothing had been,
    the act has happened once, and of what is not one, only what was in flight is done again.
    """
    live_and_die(life_of_a_deep_agent, tmp_path, dying)
    before = Outside(tmp_path).seen

    assert live(life_of_a_deep_agent, tmp_path) == UNDISTURBED

    seen = Outside(tmp_path).seen
    assert seen.count("pay o1") == 1
    if dying == "pay o1":
        assert seen[len(before) :] == ["boss"]


@pytest.mark.parametrize("nth", [2, 4, 6, 8, 10])
def test_a_deep_agent_killed_behind_any_result(tmp_path: Path, nth: int) -> None:
    """Killed right after a task's result was recorded, wherever: it ends as if nothing had been; nothing is doubled."""
    live_and_die(life_of_a_deep_agent, tmp_path, "", ["put_writes", "commit", "after", nth])

    assert live(life_of_a_deep_agent, tmp_path) == UNDISTURBED
    assert Outside(tmp_path).seen.count("pay o1") == 1


@pytest.mark.parametrize(("choice", "kept"), [("start_over", False), ("abandon", True)])
def test_a_deep_agent_can_be_started_over_and_abandoned(tmp_path: Path, choice: Any, kept: bool) -> None:
    """Killed in the middle of a turn: the next turn begins before it or with what it left, well formed."""
    live(life_of_a_deep_agent, tmp_path)
    live_and_die(life_of_a_second_turn, tmp_path)

    with home_in(tmp_path) as home:
        agent = deep(home)
        out = agent.invoke({"messages": [("user", "new")]}, thread="t", on_unfinished=choice)

        words = spoken(out)
        assert (["human", "again"] in words) is kept
        assert words[: len(UNDISTURBED)] == UNDISTURBED
        assert words[-1] == ["ai", "done: paid o1"]
        open_calls = {call["id"] for m in out["messages"] if isinstance(m, AIMessage) for call in m.tool_calls}
        assert open_calls <= {m.tool_call_id for m in out["messages"] if isinstance(m, ToolMessage)}
        assert spoken(agent.get_state(config()).values) == words


def life_of_a_second_turn(folder: str) -> Any:
    with home_in(folder) as home:
        return spoken(deep(home, "look a").invoke({"messages": [("user", "again")]}, thread="t"))


def test_a_question_in_a_deep_agent_is_answered_by_another_process(tmp_path: Path) -> None:
    """An approval that LangChain's middleware asks for: asked once, survives a kill, approved and acted on once."""
    live(life_that_needs_approval, tmp_path, "", False)
    live_and_die(life_that_needs_approval, tmp_path, "pay o1", True)

    with home_in(tmp_path) as home:
        agent = deep(home, interrupt_on={"pay": True})
        assert spoken(agent.continue_run("t")) == UNDISTURBED
        assert home.outside.seen.count("pay o1") == 1
        assert len(home.questions(pending_only=False)) == 1


def life_that_needs_approval(folder: str, dying: str, answer: bool) -> Any:
    with home_in(folder) as home:
        agent = deep(home, dying, interrupt_on={"pay": True})
        if answer:
            return spoken(agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), thread="t"))
        out = agent.invoke({"messages": [("user", "go")]}, thread="t", idempotency_key="k")
        return len(out["__interrupt__"])
