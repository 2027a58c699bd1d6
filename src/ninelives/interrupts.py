"""
What the graph asks, and what people decide.

A question is one `interrupt()`. Three kinds are told apart by what they show: LangChain's review of a turn ("batch":
several tool calls at once), its review of one call ("call"), and anything else ("free"). A decision is checked against
its question before it is recorded: which of them, by whom, allowed for this tool, with arguments that the tool takes.
What fits is turned into the value that the graph expects; what does not is `InvalidDecisionError`, and changes nothing.
So no answer can wedge a thread.

The tool calls of a batch are named by their ids, never by their place in the list: a page that sorts its cards must not
approve the wrong one.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import uuid4

from jsonschema import SchemaError
from jsonschema.validators import validator_for
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt as Asked
from langgraph.types import interrupt

from ninelives import _langgraph
from ninelives.effects import Terms, current_journal
from ninelives.errors import InvalidDecisionError, NoCheckpointFoundError, UnknownTypeError
from ninelives.model import Action, AtDeadline, DecisionType, Interrupt, NewQuestion, NewRun, Run, RunSpec, Scope
from ninelives.store import Store

Tools: TypeAlias = Mapping[str, Any]
"""Of each tool of a graph, the JSON schema of its arguments."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What somebody decides about one tool call, or answers to a question; made by the functions below."""

    type: DecisionType
    value: Any = None
    name: str | None = None


def approve() -> Choice:
    """The call runs as it was shown."""
    return Choice("approve")


def edit(args: Mapping[str, Any], name: str | None = None) -> Choice:
    """The call runs with these arguments instead; they are checked against the tool's own schema."""
    return Choice("edit", dict(args), name)


def reject(message: str = "") -> Choice:
    """The call does not run; the model is told so, with the reason."""
    return Choice("reject", message)


def respond(value: Any) -> Choice:
    """The call does not run, and this text is its result; or the answer to a question of another kind: any value."""
    return Choice("respond", value)


def ask(
    question: Any,
    *,
    schema: Mapping[str, Any] | None = None,
    deadline_s: float | None = None,
    at_deadline: str = "fail",
    text: str = "",
    to: Sequence[str] = (),
    remind_s: float | None = None,
) -> Any:
    """
    LangGraph's `interrupt`, with what an answer must look like and what becomes of the question without one.

    Args:
        question: what people are shown.
        schema: JSON schema that an answer is checked against before it is accepted.
        deadline_s: seconds from now, by the store's clock.
        at_deadline: "reject", "approve", "respond" (with `text`), "escalate" (to the actors in `to`) or "fail".
        remind_s: seconds until watchers are reminded, once.

    Raises:
        ValueError: no such outcome.
    """
    if at_deadline not in OUTCOMES:
        raise ValueError(f"at_deadline={at_deadline!r} is none of {', '.join(OUTCOMES)}")
    try:
        return interrupt(question, response_schema=dict(schema) if schema else None)
    except GraphInterrupt as asked:
        book = current_journal()
        if book is not None and (deadline_s is not None or remind_s is not None):
            at = AtDeadline(at_deadline, text, tuple(to))  # type: ignore[arg-type]  # looked at above
            book.terms[asked.args[0][0].id] = Terms(deadline_s, at if deadline_s is not None else None, remind_s)
        raise


OUTCOMES = ("reject", "approve", "respond", "escalate", "fail")
DECISIONS = ("approve", "edit", "reject", "respond")

# -- what is asked -------------------------------------------------------------------------------------------------


def understood(asked: Asked, tool_calls: Sequence[Mapping[str, Any]] = ()) -> NewQuestion:
    """
    A question as it is recorded.

    Args:
        tool_calls: those of the message that the asking node has looked at, in order.
    """
    value, schema = asked.value, asked.response_schema if isinstance(asked.response_schema, dict) else None
    if _is_batch(value):
        return NewQuestion(asked.id, value, "batch", tuple(_actions(value, tool_calls)))
    if _is_call(value):
        allowed = tuple(_allowed_by(schema)) or DECISIONS
        about = str(value.get("description") or "")
        action = Action(value["tool_call_id"], value["name"], value["args"], allowed, about)
        return NewQuestion(asked.id, value, "call", (action,), schema)
    return NewQuestion(asked.id, value, schema=schema)


def _is_batch(value: Any) -> bool:
    """What only looks like a review, and names no decision that could be made, is a question like any other."""
    if not isinstance(value, dict):
        return False
    requests, configs = value.get("action_requests"), value.get("review_configs")
    if not (isinstance(requests, list) and requests and isinstance(configs, list)):
        return False
    if not all(isinstance(config, dict) for config in configs) or not all(map(_is_action, requests)):
        return False
    allowed = _allowed(configs)
    return all(allowed.get(request["name"]) for request in requests)


def _is_call(value: Any) -> bool:
    return _is_action(value) and value.get("type") == "tool_approval" and isinstance(value.get("tool_call_id"), str)


def _is_action(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("args"), dict)


def _allowed(configs: Iterable[Mapping[str, Any]]) -> dict[Any, tuple[str, ...]]:
    """Decisions by tool, as a review allows them."""
    found = {}
    for config in configs:
        said = config.get("allowed_decisions")
        kinds = said if isinstance(said, list | tuple) else ()
        found[str(config.get("action_name"))] = tuple(kind for kind in kinds if kind in DECISIONS)
    return found


def _actions(value: Mapping[str, Any], tool_calls: Sequence[Mapping[str, Any]]) -> Iterable[Action]:
    """The gated calls are some of the turn's, in order; each is the next one of its name and arguments."""
    allowed = _allowed(value["review_configs"])
    left = [*tool_calls]
    for request in value["action_requests"]:
        wanted = (request["name"], request["args"])
        place = next((i for i, call in enumerate(left) if (call["name"], call["args"]) == wanted), None)
        call_id = message_id = None
        if place is not None:
            call_id, message_id = left[place].get("id"), left[place].get("message_id")
            left = left[place + 1 :]
        about = str(request.get("description") or "")
        yield Action(call_id, request["name"], request["args"], allowed[request["name"]], about, message_id)


def _allowed_by(schema: Mapping[str, Any] | None) -> Iterable[str]:
    """The kinds of decisions that the schema of a review of one call takes."""
    if schema is None:
        return
    branches = [*schema.get("oneOf", ()), *schema.get("anyOf", ()), schema]
    for branch in branches:
        found = _resolved(schema, branch).get("properties", {}).get("type", {})
        for kind in DECISIONS:
            if found.get("const") == kind or found.get("enum") == [kind]:
                yield kind


def _resolved(schema: Mapping[str, Any], branch: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(branch.get("$ref", "")).rpartition("/")[2]
    found: Mapping[str, Any] = schema.get("$defs", {}).get(name, branch)
    return found


def tools_of(description: Mapping[str, Any] | None) -> dict[str, Any]:
    """The tools of a graph and of all graphs inside it, by the description that is kept of it (`find_graph`)."""
    return GraphTools(description or {})


class GraphTools(dict[str, Any]):
    """
    The tools of a graph and of all graphs inside it; under `anyOf` where several have a tool of one name.

    Args:
        description: see `_langgraph.describe_graph`.
    """

    def __init__(self, *descriptions: Mapping[str, Any]) -> None:
        found: dict[str, list[Any]] = {}
        waiting = [*descriptions]
        for graph in waiting:
            for name, schema in _own_tools(graph):
                if schema not in (known := found.setdefault(name, [])):
                    known.append(schema)
            waiting += graph.get("subgraphs", {}).values()
        super().__init__({name: each[0] if len(each) == 1 else {"anyOf": each} for name, each in found.items()})
        self._descriptions = descriptions

    def at(self, ns: str) -> GraphTools:
        """Of the graphs that may be the one in this namespace, so that a tool is not taken for its namesake."""
        here = self._descriptions
        for node in _langgraph.place_of(ns)[0]:
            inside = [each for graph in here for each in graph.get("subgraphs", {}).items()]
            here = tuple(graph for name, graph in inside if node in (name, name.rpartition("/")[0]))
        return GraphTools(*({**graph, "subgraphs": {}} for graph in here)) if here else self


def _own_tools(graph: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for node in graph.get("nodes", {}).values():
        yield from node.get("tools", {}).items()


# -- what is decided -----------------------------------------------------------------------------------------------


def resolved(question: Interrupt, decision: Any, tools: Tools, pending: Sequence[str] = ()) -> Any:
    """
    The value that the graph expects, of a decision that fits its question.

    Args:
        decision: a `Choice`; for several tool calls a dict of them by tool call id; for a question of another kind
            `respond(value)` or the value itself. Or what LangChain's middleware itself takes.
        pending: all questions that wait, for the error.

    Raises:
        InvalidDecisionError: it does not fit; says why.
    """

    def refuse(why: str) -> InvalidDecisionError:
        return InvalidDecisionError(f"interrupt {question.interrupt_id!r}: {why}", pending or [question.interrupt_id])

    if isinstance(tools, GraphTools):
        tools = tools.at(question.ns)
    try:
        if question.kind == "batch":
            return {"decisions": _batch(question.actions, decision, tools)}
        if question.kind == "call":
            return _one(question.actions[0], decision, tools)
        return _free(question, decision)
    except _Unfit as unfit:
        raise refuse(str(unfit)) from None


class _Unfit(Exception):
    """Why a decision does not fit."""


def _batch(actions: Sequence[Action], decision: Any, tools: Tools) -> list[dict[str, Any]]:
    if isinstance(decision, Mapping) and decision.keys() == {"decisions"} and isinstance(decision["decisions"], list):
        said = decision["decisions"]
        if len(said) != len(actions):
            raise _Unfit(f"{len(said)} decision(s) for {len(actions)} tool call(s)")
    elif isinstance(decision, Choice) or (isinstance(decision, Mapping) and "type" in decision):
        if len(actions) != 1:
            raise _Unfit(f"it asks about {len(actions)} tool calls: decide each, by its id: {_ids(actions)}")
        said = [decision]
    elif isinstance(decision, Mapping):
        known = [action.tool_call_id for action in actions]
        unknown = [call_id for call_id in decision if call_id not in known]
        missing = [call_id for call_id in known if call_id not in decision]
        if unknown or missing or len({*known}) < len(known):
            what = f"{unknown[0]!r} is none of its tool calls" if unknown else f"{missing or known} is not decided"
            raise _Unfit(f"{what}: it asks about {_ids(actions)}")
        said = [decision[call_id] for call_id in known]
    else:
        raise _Unfit(f"{decision!r} decides nothing about its tool calls: {_ids(actions)}")
    return [_one(action, each, tools) for action, each in zip(actions, said, strict=True)]


def _ids(actions: Sequence[Action]) -> str:
    return ", ".join(f"{action.tool_call_id!r} ({action.name})" for action in actions)


def _one(action: Action, decision: Any, tools: Tools) -> dict[str, Any]:
    choice = decision if isinstance(decision, Choice) else _choice(action, decision)
    if choice.type not in action.allowed:
        raise _Unfit(f"{choice.type!r} is not allowed for {action.name!r}, only {', '.join(action.allowed)}")
    if choice.type == "approve":
        return {"type": "approve"}
    if choice.type == "edit":
        name = choice.name or action.name
        if name != action.name:
            raise _Unfit(f"an edit cannot make {name!r} of a call of {action.name!r}")
        _must_fit_tool(action, choice.value, tools)
        return {"type": "edit", "edited_action": {"name": name, "args": choice.value}}
    if not isinstance(choice.value, str):
        raise _Unfit(f"the message of {choice.type!r} must be a text, not {type(choice.value).__name__}")
    if choice.type == "reject" and not choice.value:
        return {"type": "reject"}
    return {"type": choice.type, "message": choice.value}


def _choice(action: Action, decision: Any) -> Choice:
    """LangChain's own form of a decision."""
    kind = decision.get("type") if isinstance(decision, Mapping) else None
    if kind not in DECISIONS:
        raise _Unfit(f"{decision!r} is no decision about {action.name!r}: approve, edit, reject or respond")
    if kind == "edit":
        edited = decision.get("edited_action")
        if not isinstance(edited, Mapping) or not isinstance(edited.get("args"), Mapping):
            raise _Unfit(f"an edit of {action.name!r} needs edited_action with name and args")
        return edit(edited["args"], edited.get("name"))
    return Choice(kind, decision.get("message", ""))


def _must_fit_tool(action: Action, args: Mapping[str, Any], tools: Tools) -> None:
    """Of several tools of that name it is one that takes the call as it was made, as far as can be told."""
    schema = tools.get(action.name)
    several = schema.get("anyOf", [schema]) if isinstance(schema, Mapping) else [schema]
    several = [one for one in several if _unfit(action.name, action.args, one) is None] or several
    unfit = [_unfit(action.name, args, one) for one in several]
    if all(unfit) and unfit[0]:
        raise unfit[0]


def _unfit(name: str, args: Mapping[str, Any], schema: Any) -> _Unfit | None:
    try:
        _must_fit_one(name, args, schema)
    except _Unfit as unfit:
        return unfit
    return None


def _must_fit_one(name: str, args: Mapping[str, Any], schema: Any) -> None:
    """`schema`: where it cannot be told as JSON, only the arguments' names."""
    if isinstance(schema, list):
        schema = {"properties": {known: {} for known in schema}}
    if not isinstance(schema, Mapping):
        return
    known = schema.get("properties", {})
    if known and not schema.get("additionalProperties"):
        for given in args:
            if given not in known:
                near = difflib.get_close_matches(given, known, n=1)
                hint = f" (did you mean {near[0]!r}?)" if near else f"; it takes {', '.join(map(repr, known))}"
                raise _Unfit(f"{name!r} has no argument {given!r}{hint}")
    _must_fit(args, schema, f"the arguments do not fit {name!r}")


def _must_fit(value: Any, schema: Mapping[str, Any], what: str) -> None:
    try:
        validator = validator_for(schema)(schema)
        errors = sorted(validator.iter_errors(value), key=lambda error: [*map(str, error.path)])
    except SchemaError:
        return  # the graph's own mistake: nothing could ever fit
    if errors:
        place = "".join(f"[{step!r}]" for step in errors[0].path)
        raise _Unfit(f"{what}: {place + ': ' if place else ''}{errors[0].message}")


def _free(question: Interrupt, decision: Any) -> Any:
    value = decision
    if isinstance(decision, Choice):
        if decision.type != "respond":
            raise _Unfit(f"{decision.type!r} says nothing to a question that asks for no tool call; respond(…) does")
        value = decision.value
    if question.schema is not None:
        _must_fit(value, question.schema, "the answer does not have the form that was asked for")
    return value


# -- without the graph ---------------------------------------------------------------------------------------------


def decide(
    store: Store,
    thread_id: str,
    interrupt_id: str,
    decision: Any,
    *,
    actor: str,
    channel: str = "call",
    owner: str = "",
    note: str | None = None,
    shown: str | None = None,
    key: str | None = None,
) -> Run:
    """
    Record a decision, from any process, with or without the graph. The run that goes on with it is queued, for whoever
    has the graph and asks (`continue_run`, `wait_for_answers`, `ninelives run --continue`).

    Args:
        decision: as for `resolved`.
        shown: the question's digest as whoever decides had it before them; refused if something else is asked now.
        key: idempotency key: the same decision again gives the same run.

    Raises:
        InvalidDecisionError: it fits no pending question; says what is pending, and who was first.
        NoCheckpointFoundError: no such thread.
    """
    scope = Scope(owner)
    questions = store.perform(store.list_interrupts(scope, thread_id))
    pending = [each.interrupt_id for each in questions]
    question = next((each for each in questions if each.interrupt_id == interrupt_id), None)
    asking = store.perform(store.find_newest_run(scope, thread_id))
    if asking is None:
        raise NoCheckpointFoundError(thread_id, near=store.perform(store.near_threads(scope, thread_id)))
    value = None
    if question is not None:
        tools = tools_on(store, scope, thread_id)
        value = resolved(question, decision, tools, pending)
    new = NewRun(
        run_id=str(uuid4()),
        thread_id=thread_id,
        graph=asking.graph,
        spec=going_on(asking.spec),
        request=store.request_digest({"graph": asking.graph, "answer": [interrupt_id, _plain(decision)]}),
        key=key,
    )
    seen = {} if shown is None else {interrupt_id: shown}
    act = store.answer(
        scope, thread_id, {interrupt_id: value}, new, None, actor=actor, channel=channel, shown=seen, note=note
    )
    return store.perform(act).run


def _plain(decision: Any) -> Any:
    """A decision as what every store can keep."""
    if isinstance(decision, Choice):
        return {"choice": decision.type, "value": decision.value, "name": decision.name}
    if isinstance(decision, Mapping):
        return {key: _plain(value) for key, value in decision.items()}
    return decision


def tools_on(store: Store, scope: Scope, thread_id: str) -> Tools:
    """The tools of the graph that made the thread's head."""
    try:
        head = store.perform(store.get_checkpoint(scope, thread_id, "", None))
    except UnknownTypeError:
        return {}  # what is in the state is not for this process, and says nothing about the tools
    description = store.perform(store.find_graph(head.graph_fp)) if head and head.graph_fp else None
    return tools_of(description)


def going_on(spec: RunSpec) -> RunSpec:
    """The request of a run that goes on with an answer: what the run that asked was told of entries holds for it."""
    return replace(spec, input=None, from_base=False, interrupt_before=None, interrupt_after=None)
