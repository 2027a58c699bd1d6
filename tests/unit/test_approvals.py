"""Which tool calls ask for leave, and who gives it, is a setting: nothing acts that nobody has allowed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from agents import Home, home_in
from lives import die_at, live, live_and_die
from ninelives import ConfigError, InvalidDecisionError, NineLivesError, effect
from ninelives.config import ApprovalsSettings, Settings, ToolApproval
from ninelives.interrupts import Choice, approve, edit, reject, respond
from ninelives.model import ONE_USER, Event, InterruptState

PAY: Any = {"messages": [HumanMessage("pay")]}
RULES = f"{__name__}:"


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def calls(*wanted: tuple[str, int]) -> AIMessage:
    """A turn of a model that wants these tools called."""
    made = [
        {"name": name, "args": {"cents": cents}, "id": f"call-{place}", "type": "tool_call"}
        for place, (name, cents) in enumerate(wanted)
    ]
    return AIMessage("", tool_calls=made)


def tools(home: Home) -> list[Any]:
    @tool
    def charge(cents: int) -> str:
        """Charge a card."""
        home.outside.happens(f"charge {cents}")
        return f"charged {cents}"

    @tool
    async def mail(cents: int) -> str:
        """Send a mail."""
        home.outside.happens(f"mail {cents}")
        return f"mailed {cents}"

    return [charge, mail]


def bare(home: Home, *turns: AIMessage) -> Any:
    """No review in it: a model, and a bare ToolNode that runs all calls of a turn as one task."""
    replies = iter([*turns, AIMessage("ready")])

    def model(state: MessagesState) -> Any:
        return {"messages": [next(replies)]}

    def more(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "tools" if isinstance(last, AIMessage) and last.tool_calls else END

    graph = StateGraph(MessagesState).add_node("model", model).add_node("tools", ToolNode(tools(home)))
    graph.add_edge(START, "model").add_conditional_edges("model", more, ["tools", END]).add_edge("tools", "model")
    return graph.compile()


def agent_of(home: Home, *turns: AIMessage, **middleware: Any) -> Any:
    """LangChain's agent, without a review or with one."""
    inside = [HumanInTheLoopMiddleware(**middleware)] if middleware else []
    return create_agent(Model(messages=iter([*turns, AIMessage("ready")])), tools(home), middleware=inside)


def settings(tools: Mapping[str, Any] | None = None, **more: Any) -> Settings:
    return Settings(approvals=ApprovalsSettings(tools=tools or {}, **more))


def told(out: Any) -> list[tuple[str, str]]:
    """What the model was told of each call: by call, status and text."""
    messages: list[AnyMessage] = out["messages"]
    return [(message.status, str(message.content)) for message in messages if isinstance(message, ToolMessage)]


def events(home: Home, kind: str) -> list[Event]:
    return [one for one in home.store.perform(home.store.list_events(ONE_USER, "t")) if one.kind == kind]


GRAPHS = {"a bare tool node": bare, "an agent": agent_of}


# -- ask ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("name", ["charge", "mail"])
def test_a_tool_that_nobody_gates_asks_before_it_runs(home: Home, kind: str, name: str) -> None:
    """Sync or async, the graph unchanged: the question shows the exact call, and only the answer lets it run, once."""
    agent = home.protect(GRAPHS[kind](home, calls((name, 5))), settings=settings({name: "ask"}))

    out = agent.invoke(PAY, thread="t")

    (question,) = home.questions()
    assert [one.id for one in out["__interrupt__"]] == [question.interrupt_id]
    (action,) = question.actions
    assert (question.kind, action.tool_call_id, action.name, action.args) == ("call", "call-0", name, {"cents": 5})
    assert home.outside.seen == []
    out = agent.invoke(Command(resume=approve()), thread="t")
    assert home.outside.seen == [f"{name} 5"]
    assert out["messages"][-1].content == "ready"


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize(
    ("decision", "acts", "status", "text"),
    [
        (edit({"cents": 3}), ["charge 3"], "success", "charged 3"),
        (reject("too much"), [], "error", "too much"),
        (reject(), [], "error", "not executed"),
        (respond("paid in cash"), [], "success", "paid in cash"),
    ],
    ids=["edit", "reject with a reason", "reject", "respond"],
)
def test_each_decision_does_what_it_says(
    home: Home, kind: str, decision: Choice, acts: list[str], status: str, text: str
) -> None:
    """The model is told the truth: what ran, that nothing did and why, or what a person said instead."""
    agent = home.protect(GRAPHS[kind](home, calls(("charge", 5))), settings=settings({"charge": "ask"}))
    agent.invoke(PAY, thread="t")

    out = agent.invoke(Command(resume=decision), thread="t")

    assert home.outside.seen == acts
    ((was, said),) = told(out)
    assert (was, text in said) == (status, True)


def test_an_edit_must_fit_the_tool(home: Home) -> None:
    """Checked against the tool's own schema before it is accepted."""
    agent = home.protect(bare(home, calls(("charge", 5))), settings=settings({"charge": "ask"}))
    agent.invoke(PAY, thread="t")

    for wrong in ({"cents": "many"}, {"sense": 5}):
        with pytest.raises(InvalidDecisionError):
            agent.invoke(Command(resume=edit(wrong)), thread="t")

    assert len(home.questions()) == 1


@pytest.mark.parametrize("kind", GRAPHS)
def test_several_calls_of_a_turn_are_asked_about_one_by_one(home: Home, kind: str) -> None:
    """Each has a question of its own; an answer lets its own call run, once, and no other."""
    turn = calls(("charge", 1), ("charge", 2), ("mail", 3))
    agent = home.protect(GRAPHS[kind](home, turn), settings=settings({"charge": "ask"}))
    agent.invoke(PAY, thread="t")
    by_call = {question.actions[0].tool_call_id: question.interrupt_id for question in home.questions()}

    assert [*by_call] == ["call-0", "call-1"]
    assert home.outside.seen == ["mail 3"]
    agent.invoke(Command(resume={by_call["call-1"]: approve()}), thread="t")
    assert home.outside.seen == ["mail 3", "charge 2"]
    out = agent.invoke(Command(resume={by_call["call-0"]: reject("no")}), thread="t")

    assert home.outside.seen == ["mail 3", "charge 2"]
    assert [status for status, _ in told(out)] == ["error", "success", "success"]


def test_a_tool_of_a_subagent_asks_as_well(home: Home) -> None:
    """An agent that is called in a tool of another, with no review anywhere."""
    inner = agent_of(home, calls(("charge", 5)))

    @tool
    def delegate(cents: int) -> str:
        """Have another agent do it."""
        return str(inner.invoke(PAY)["messages"][-1].content)

    outer = create_agent(Model(messages=iter([calls(("delegate", 1)), AIMessage("all done")])), [delegate])
    agent = home.protect(outer, settings=settings({"charge": "ask"}))

    agent.invoke(PAY, thread="t")

    (question,) = home.questions()
    assert question.actions[0].name == "charge"
    assert home.outside.seen == []
    out = agent.invoke(Command(resume=approve()), thread="t")
    assert out["messages"][-1].content == "all done"
    assert home.outside.seen == ["charge 5"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize("decision", [approve(), edit({"cents": 3})], ids=["approve", "edit"])
def test_a_call_that_the_graph_has_reviewed_is_not_asked_about_again(home: Home, mode: str, decision: Choice) -> None:
    """One act, one question, whoever asks it."""
    graph = agent_of(home, calls(("charge", 5)), interrupt_on={"charge": True}, interrupt_mode=mode)
    agent = home.protect(graph, settings=settings({"charge": "ask"}))
    agent.invoke(PAY, thread="t")

    out = agent.invoke(Command(resume=decision), thread="t")

    assert "__interrupt__" not in out
    assert len(home.questions(pending_only=False)) == 1
    assert home.outside.seen == [f"charge {decision.value['cents'] if decision.value else 5}"]


def test_a_review_of_an_earlier_call_is_no_leave_for_a_later_one(home: Home) -> None:
    """Fakes and some providers give the same call id again: what was approved before does not count for it."""
    graph = agent_of(home, calls(("charge", 5)), AIMessage("ready"), calls(("charge", 5)), interrupt_on={"mail": True})
    agent = home.protect(graph, settings=settings({"charge": "ask"}))
    agent.invoke(PAY, thread="t")
    agent.invoke(Command(resume=approve()), thread="t")

    out = agent.invoke(PAY, thread="t")

    assert "__interrupt__" in out
    assert home.outside.seen == ["charge 5"]


def test_a_tool_with_a_question_of_its_own_asks_both(home: Home) -> None:
    """First for leave, then its own; neither gets the other's answer, however often the step runs again."""

    @tool
    def charge(cents: int) -> str:
        """Charge a card."""
        card = interrupt("which card?")
        home.outside.happens(f"charge {cents} {card}")
        return f"charged {card}"

    graph = create_agent(Model(messages=iter([calls(("charge", 5)), AIMessage("ready")])), [charge])
    agent = home.protect(graph, settings=settings({"charge": "ask"}))

    out = agent.invoke(PAY, thread="t")
    assert out["__interrupt__"][0].value["type"] == "tool_approval"
    out = agent.invoke(Command(resume=approve()), thread="t")
    assert out["__interrupt__"][0].value == "which card?"
    out = agent.invoke(Command(resume="visa"), thread="t")

    assert told(out) == [("success", "charged visa")]
    assert home.outside.seen == ["charge 5 visa"]


def test_an_answer_to_another_question_is_no_leave(home: Home) -> None:
    """Told to ask while the tool itself waits for an answer: that answer lets nothing run; it stops, and says why."""

    @tool
    def charge(cents: int) -> str:
        """Charge a card."""
        home.outside.happens(f"charge {interrupt('which card?')}")
        return "charged"

    def graph() -> Any:
        return create_agent(Model(messages=iter([calls(("charge", 5)), AIMessage("ready")])), [charge])

    home.protect(graph()).invoke(PAY, thread="t")
    strict = home.protect(graph(), settings=settings({"charge": "ask"}))

    with pytest.raises(NineLivesError, match="now asks for leave"):
        strict.invoke(Command(resume="visa"), thread="t")

    assert home.outside.seen == []


def test_an_effect_is_asked_for_before_its_intent(home: Home) -> None:
    """A call that waits for leave is no act yet: nothing is unknown when it is rejected."""

    @tool
    def charge(cents: int) -> str:
        """Charge a card."""
        home.outside.happens(f"charge {cents}")
        return "charged"

    graph = create_agent(Model(messages=iter([calls(("charge", 5)), AIMessage("ready")])), [effect(charge)])
    agent = home.protect(graph, settings=settings({"charge": "ask"}))

    agent.invoke(PAY, thread="t")
    assert home.effects() == []
    agent.invoke(Command(resume=approve()), thread="t")

    assert [act.state for act in home.effects()] == ["done"]
    assert home.outside.seen == ["charge 5"]


# -- rules ---------------------------------------------------------------------------------------------------------


def small(name: str, args: Mapping[str, Any]) -> Any:
    return approve() if args["cents"] < 10 else reject("ask your boss") if args["cents"] > 100 else None


def fails(name: str, args: Mapping[str, Any]) -> Any:
    raise ConnectionError("no rule book")


def unfit(name: str, args: Mapping[str, Any]) -> Any:
    return edit({"dollars": 5})


def halves(name: str, args: Mapping[str, Any]) -> Any:
    return edit({"cents": args["cents"] // 2})


async def waits(name: str, args: Mapping[str, Any]) -> Any:
    return approve()


ASKERS: dict[str, Any] = {
    "nobody": {},
    "a batch": {"interrupt_on": {"charge": True}},
    "per call": {"interrupt_on": {"charge": True}, "interrupt_mode": "per_call"},
}


@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_a_rule_decides_and_the_run_goes_on(home: Home, asker: str, way: str) -> None:
    """In the same call, whoever asks; recorded as decided by that rule before anything acts."""
    graph = agent_of(home, calls(("charge", 5)), calls(("charge", 500)), **ASKERS[asker])
    agent = home.protect(graph, settings=settings({"charge": {"auto": RULES + "small"}}))

    if way == "invoke":
        out = agent.invoke(PAY, thread="t")
    else:
        out = [*agent.stream(PAY, thread="t", stream_mode="values")][-1]

    assert home.outside.seen == ["charge 5"]
    assert [status for status, _ in told(out)] == ["success", "error"]
    assert "ask your boss" in told(out)[1][1]
    assert {(each.actor, each.channel) for each in home.decisions()} == {(f"rule:{RULES}small", "rule")}
    assert home.statuses() == ["interrupted", "interrupted", "done"]


@pytest.mark.parametrize("rule", ["small", "fails", "unfit"])
def test_where_a_rule_says_nothing_a_person_is_asked(home: Home, rule: str) -> None:
    """Also where it fails, or decides what does not fit."""
    agent = home.protect(agent_of(home, calls(("charge", 50))), settings=settings({"charge": {"auto": RULES + rule}}))

    out = agent.invoke(PAY, thread="t")

    assert "__interrupt__" in out
    assert home.outside.seen == []
    agent.invoke(Command(resume=approve()), thread="t", actor="ann")
    assert [each.actor for each in home.decisions()] == ["ann"]
    assert home.outside.seen == ["charge 50"]


def test_a_question_about_several_calls_goes_to_a_person_unless_rules_decide_all(home: Home) -> None:
    """Half a decision is none: the person decides about each."""
    graph = agent_of(home, calls(("charge", 5), ("mail", 1)), interrupt_on={"charge": True, "mail": True})
    agent = home.protect(graph, settings=settings({"charge": {"auto": RULES + "small"}}))

    agent.invoke(PAY, thread="t")

    assert home.outside.seen == []
    agent.invoke(Command(resume={"call-0": approve(), "call-1": reject()}), thread="t")
    assert home.outside.seen == ["charge 5"]


def test_a_rule_may_edit(home: Home) -> None:
    """What it made of the call runs, and the model is told."""
    agent = home.protect(bare(home, calls(("charge", 50))), settings=settings({"charge": {"auto": RULES + "halves"}}))

    out = agent.invoke(PAY, thread="t")

    assert home.outside.seen == ["charge 25"]
    assert "'cents': 25" in told(out)[0][1]


# -- shadow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GRAPHS)
def test_shadow_records_what_would_have_been_asked_and_lets_it_run(home: Home, kind: str) -> None:
    """So a team can see what asking would mean before it switches it on."""
    graph = GRAPHS[kind](home, calls(("charge", 5), ("mail", 1)))
    agent = home.protect(graph, settings=settings({"charge": "shadow", "mail": "shadow"}))

    out = agent.invoke(PAY, thread="t")

    assert "__interrupt__" not in out
    assert sorted(home.outside.seen) == ["charge 5", "mail 1"]
    shadows = {each.interrupt_id: each for each in home.questions(pending_only=False)}
    assert {each.ref for each in events(home, "would_ask")} == shadows.keys()
    assert {each.state for each in shadows.values()} == {InterruptState.SHADOW}
    assert sorted((each.actions[0].name, each.actions[0].args["cents"]) for each in shadows.values()) == [
        ("charge", 5),
        ("mail", 1),
    ]
    assert home.questions() == []


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_shadow_of_a_call_that_the_graph_asks_about(home: Home, mode: str) -> None:
    """It is let through, recorded as only watched."""
    graph = agent_of(home, calls(("charge", 5)), interrupt_on={"charge": True}, interrupt_mode=mode)
    agent = home.protect(graph, settings=settings({"charge": "shadow"}))

    out = agent.invoke(PAY, thread="t")

    assert "__interrupt__" not in out
    assert home.outside.seen == ["charge 5"]
    assert [(each.actor, each.channel) for each in home.decisions()] == [("rule:shadow", "shadow")]
    assert len(events(home, "would_ask")) == 1


# -- auto_approve --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asker", ASKERS)
@pytest.mark.parametrize("how", ["setting", "argument"])
def test_a_script_may_approve_all(home: Home, asker: str, how: str) -> None:
    """One setting, or one argument; recorded as decided by it."""
    graph = agent_of(home, calls(("charge", 500)), **ASKERS[asker])
    named = {"charge": "ask"}
    agent = (
        home.protect(graph, settings=settings(named, auto_approve=True))
        if how == "setting"
        else home.protect(graph, settings=settings(named), auto_approve=True)
    )

    out = agent.invoke(PAY, thread="t")

    assert out["messages"][-1].content == "ready"
    assert home.outside.seen == ["charge 500"]
    assert [(each.actor, each.channel) for each in home.decisions()] == [("rule:auto_approve", "rule")]


def test_other_questions_still_wait_for_a_person(home: Home) -> None:
    """`auto_approve` is about tool calls; it invents no answers."""

    def ask(state: MessagesState) -> Any:
        return {"messages": [AIMessage(interrupt("what colour?"))]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile()
    agent = home.protect(graph, auto_approve=True)

    assert "__interrupt__" in agent.invoke(PAY, thread="t")
    assert home.decisions() == []


def test_a_rule_goes_before_auto_approve_and_an_argument_before_the_settings(home: Home) -> None:
    """What a rule rejects is not approved by the way; and what the call site says counts."""
    graph = agent_of(home, calls(("charge", 500)))
    agent = home.protect(graph, settings=settings({"charge": {"auto": RULES + "small"}}, auto_approve=True), name="one")
    agent.invoke(PAY, thread="t")
    strict = home.protect(
        agent_of(home, calls(("charge", 5))),
        settings=settings({"charge": "ask"}, auto_approve=True),
        auto_approve=False,
        name="two",
    )

    assert "__interrupt__" in strict.invoke(PAY, thread="u")
    assert home.outside.seen == []


# -- mistakes are found when the agent is made ---------------------------------------------------------------------

WRONG: dict[str, Any] = {
    "a misspelt policy": {"charge": "aks"},
    "none": {"charge": {}},
    "two policies": {"charge": {"policy": "shadow", "auto": RULES + "small"}},
    "a misspelt key": {"charge": {"polcy": "ask"}},
    "no rule there": {"charge": {"auto": RULES + "smal"}},
    "no module there": {"charge": {"auto": "no_such_module:rule"}},
    "a rule that waits": {"charge": {"auto": RULES + "waits"}},
    "no rule at all": {"charge": {"auto": RULES + "WRONG"}},
    "no such outcome": {"charge": {"policy": "ask", "deadline_s": 5, "at_deadline": "aprove"}},
    "nothing to say": {"charge": {"policy": "ask", "deadline_s": 5, "at_deadline": "respond"}},
    "nobody to ask": {"charge": {"policy": "ask", "deadline_s": 5, "at_deadline": "escalate"}},
    "a tool that is spelt otherwise": {"chagre": "ask"},
}


@pytest.mark.parametrize("how", WRONG)
def test_a_mistake_stops_the_start(home: Home, how: str) -> None:
    """A gate that is quietly off is worse than none: refused before anything runs."""
    with pytest.raises(ConfigError):
        home.protect(bare(home, calls(("charge", 5))), settings=settings(WRONG[how]))

    assert home.outside.seen == []


def test_a_tool_of_another_graph_is_no_mistake(home: Home) -> None:
    """One file of settings is for all graphs of a project."""
    others = {"translate": "ask", "emails": "ask", "mails": "ask", "mail": "graph"}
    agent = home.protect(bare(home, calls(("mail", 1))), settings=settings(others))

    agent.invoke(PAY, thread="t")

    assert home.outside.seen == ["mail 1"]


def test_the_file_says_the_same(tmp_path: Path) -> None:
    """Policies as words, rules by name, and tables for more."""
    file = tmp_path / "ninelives.toml"
    file.write_text(
        """
        [approvals]
        auto_approve = false
        tools = { read = "shadow", mail = { auto = "rules:small" } }
        """
    )
    assert Settings.load(file, {}).approvals.tools == {
        "read": ToolApproval("shadow"),
        "mail": ToolApproval(auto="rules:small"),
    }
    file.write_text('[approvals.tools.charge]\npolicy = "ask"\ndeadline_s = 60\nat_deadline = "reject"\n')
    assert Settings.load(file, {}).approvals.tools["charge"] == ToolApproval(
        "ask", deadline_s=60.0, at_deadline="reject"
    )


# -- killed in between ---------------------------------------------------------------------------------------------


def life(folder: str, point: Any, again: str = "") -> Any:
    """Dies at a point of the store; without one it goes on, its model being told what came of the call."""
    asked: dict[str, Any] = {"thread": "t", "idempotency_key": "k"}
    with home_in(folder) as home:
        turns = [] if point is None else [calls(("charge", 5))]
        agent = home.protect(bare(home, *turns), settings=settings({"charge": {"auto": RULES + "small"}}))
        if point is None:
            return told(agent.continue_run("t") if again == "continue" else agent.invoke(PAY, **asked))
        die_at(home.store, *point)
        agent.invoke(PAY, **asked)


POINTS = [
    ("finish_run", "commit", "after", 1),
    ("answer", "commit", "before", 1),
    ("answer", "commit", "after", 1),
    ("put_writes", "commit", "before", 4),
]


@pytest.mark.crash
@pytest.mark.parametrize("again", ["continue", "send again"])
@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point[0]} {point[2]}")
def test_a_decision_by_rule_outlives_the_process(tmp_path: Path, point: Any, again: str) -> None:
    """Killed between asking and deciding, or after: going on decides once, and the act happens."""
    live_and_die(life, tmp_path, point)

    assert [tuple(each) for each in live(life, tmp_path, None, again)] == [("success", "charged 5")]
    with home_in(tmp_path) as home:
        assert len(home.decisions()) == 1
        assert set(home.outside.seen) == {"charge 5"}
