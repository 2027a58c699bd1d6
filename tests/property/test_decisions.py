"""Whatever is asked and whatever is answered: a decision is refused, or the graph can go on with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.types import Interrupt as Asked

from ninelives import InvalidDecisionError, approve, edit, reject, respond
from ninelives.interrupts import DECISIONS, resolved, understood
from ninelives.model import Interrupt, InterruptState

TOOLS = {
    "wipe": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    "mail": {"type": "object", "properties": {"to": {"type": "string"}, "n": {"type": "integer"}}, "required": ["to"]},
}
ARGS = {"wipe": {"path": "a"}, "mail": {"to": "ann", "n": 1}}

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
KEYS = ("type", "decisions", "message", "edited_action", "name", "args", "action_requests", "review_configs")
MORE = ("action_name", "allowed_decisions", "tool_call_id", "tool_approval", "path", "to", "0", "1")
words = st.sampled_from([*KEYS, *MORE, *DECISIONS, *TOOLS])
anything = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
some_args = st.fixed_dictionaries({}, optional={"path": scalars, "to": scalars, "n": scalars, "pth": scalars})
choices = (
    st.just(approve())
    | st.builds(edit, some_args, st.none() | st.sampled_from(["wipe", "mail"]))
    | st.builds(reject, anything)
    | st.builds(respond, anything)
)
raw = st.fixed_dictionaries(
    {"type": st.sampled_from(DECISIONS) | anything}, optional={"message": anything}
) | st.builds(
    lambda name, args: {"type": "edit", "edited_action": {"name": name, "args": args}}, words, some_args | anything
)
said = choices | raw | anything


def calls_of(names: Sequence[str]) -> list[dict[str, Any]]:
    return [{"name": name, "args": ARGS[name], "id": str(i), "type": "tool_call"} for i, name in enumerate(names)]


def asked(payload: Any, tool_calls: Sequence[Mapping[str, Any]] = ()) -> Interrupt:
    """The question as it would be recorded."""
    new = understood(Asked(value=payload, id="q"), tool_calls)
    place = Interrupt("q", 1, "t", "", "k", None, "c", payload, InterruptState.PENDING, 0.0)
    return replace(place, kind=new.kind, actions=new.actions, schema=new.schema)


def review(names: Sequence[str], allowed: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    requests = [{"name": name, "args": ARGS[name], "description": ""} for name in names]
    configs = [{"action_name": name, "allowed_decisions": [*allowed[name]]} for name in names]
    return {"action_requests": requests, "review_configs": configs}


names = st.lists(st.sampled_from(["wipe", "mail"]), min_size=1, max_size=3)
allowed = st.fixed_dictionaries(
    {name: st.lists(st.sampled_from(DECISIONS), min_size=1, unique=True) for name in ("wipe", "mail")}
)


@given(names, allowed, st.data())
def test_what_is_accepted_about_a_turn_can_be_gone_on_with(
    names: list[str], allowed: dict[str, list[str]], data: st.DataObject
) -> None:
    """Of any shape, by id or by place: refused by name, or exactly what LangChain's middleware takes, call by call."""
    question = asked(review(names, allowed), calls_of(names))
    by_id = st.dictionaries(st.sampled_from([*map(str, range(len(names) + 1))]), said, max_size=4)
    by_place = st.fixed_dictionaries({"decisions": st.lists(said, max_size=4) | anything})
    decision = data.draw(by_id | by_place | said)

    try:
        value = resolved(question, decision, TOOLS)
    except InvalidDecisionError:
        return

    assert len(value["decisions"]) == len(names)
    for call, one in zip(calls_of(names), value["decisions"], strict=True):
        config: Any = {"allowed_decisions": allowed[call["name"]]}
        HumanInTheLoopMiddleware._process_decision(one, call, config)  # type: ignore[arg-type]
        if one["type"] == "edit":
            assert one["edited_action"]["name"] == call["name"]
            assert one["edited_action"]["args"].keys() <= TOOLS[call["name"]]["properties"].keys()  # type: ignore[attr-defined]


@given(names, st.data())
def test_the_order_in_which_calls_are_decided_says_nothing(names: list[str], data: st.DataObject) -> None:
    """A page may sort its cards as it likes."""
    question = asked(review(names, dict.fromkeys(TOOLS, DECISIONS)), calls_of(names))
    ids = [*map(str, range(len(names)))]
    decisions = {call_id: data.draw(st.sampled_from([approve(), reject("no"), respond("so")])) for call_id in ids}
    shuffled = {call_id: decisions[call_id] for call_id in data.draw(st.permutations(ids))}

    assert resolved(question, shuffled, TOOLS) == resolved(question, decisions, TOOLS)


@given(anything)
def test_any_question_can_be_asked(payload: Any) -> None:
    """However much it looks like a review: it is understood as one, or is free; and one that waits can be answered."""
    question = asked(payload)

    assert question.kind == "free" or (question.actions and all(action.allowed for action in question.actions))
    if question.kind == "free":
        assert resolved(question, payload, TOOLS) == payload


@given(names, st.lists(st.sampled_from(["wipe", "mail"]), max_size=3), st.data())
def test_a_gated_call_is_known_by_its_own_id(names: list[str], others: list[str], data: st.DataObject) -> None:
    """Among calls that are not reviewed, each action is one of the turn's calls, the same one never twice."""
    turn = calls_of(data.draw(st.permutations([*names, *others])))
    gated = [call for call in turn if call["name"] in names]
    assume(len(gated) >= 1)

    question = asked(review([call["name"] for call in gated], dict.fromkeys(TOOLS, DECISIONS)), turn)

    assert [action.tool_call_id for action in question.actions] == [call["id"] for call in gated]
