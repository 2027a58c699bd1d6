"""What somebody types while a question is open is never lost, and never drops the question unasked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from agents import Home, Log, asks, chain, config, fan, home_in, step
from lives import die, die_at, live_and_die
from ninelives import (
    ConfigError,
    IdempotencyMismatchError,
    InvalidDecisionError,
    MissingEntryError,
    NoCheckpointFoundError,
    UnfinishedRunError,
    interrupts,
)
from ninelives.config import QuestionsSettings, Settings
from ninelives.model import ONE_USER, SYSTEM, InterruptState


def sure(state: Log) -> Any:
    return {"log": [f"sure: {interrupt('sure?')}"]}


def nodes(home: Home) -> Any:
    return chain(step("a", home.outside), sure, step("b", home.outside))


class Chat:
    """A graph of messages whose one node asks, where the last message says "ask", and echoes what it has got."""

    @staticmethod
    def graph(schema: Any = None) -> Any:
        def talk(state: MessagesState) -> Any:
            said = str(state["messages"][-1].content)
            if said.startswith("ask"):
                said = f"you said {interrupt('what?', response_schema=schema)}"
            return {"messages": [AIMessage(f"echo: {said}")]}

        graph = StateGraph(MessagesState).add_node("talk", talk)
        return graph.add_edge(START, "talk").add_edge("talk", END).compile()

    @staticmethod
    def said(out: Any) -> list[str]:
        return [str(message.content) for message in out["messages"]]


def says(*words: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(word) for word in words]}


def kinds(home: Home, thread: str = "t") -> list[str]:
    return [event.kind for event in home.store.perform(home.store.list_events(ONE_USER, thread))]


@pytest.fixture
def waiting(home: Home) -> Any:
    """An agent whose thread "t" waits for an answer."""
    agent = home.protect(nodes(home))
    agent.invoke(asks("in"), thread="t")
    return agent


# -- refuse ------------------------------------------------------------------------------------------------------


def test_plain_input_is_refused_and_names_the_question(waiting: Any, home: Home) -> None:
    """Unless told otherwise: nothing ran, the question waits as before, and the error says which it is."""
    (question,) = home.questions()

    with pytest.raises(UnfinishedRunError, match=f"waits for an answer.*{question.interrupt_id}.*sure"):
        waiting.invoke(asks("my answer"), thread="t")

    assert home.questions() == [question]
    assert home.statuses() == ["interrupted"]
    assert home.outside.seen == ["a"]


@pytest.mark.parametrize("wrong", ["anser", "ask", ""])
def test_a_misspelt_policy_is_refused(home: Home, wrong: str) -> None:
    """At construction and at the call: taken for another it would drop a question."""
    agent = home.protect(nodes(home))
    agent.invoke(asks("in"), thread="t")
    if wrong:
        with pytest.raises(ConfigError, match="on_waiting"):
            home.protect(nodes(home), on_waiting=wrong)
        with pytest.raises(ConfigError, match=r"on_waiting.*'refuse', 'answer', 'queue', 'replace'"):
            agent.invoke(asks("x"), thread="t", on_waiting=wrong)
    with pytest.raises(ConfigError, match="on_waiting"):
        home.protect(nodes(home), settings=Settings(questions=QuestionsSettings(on_input=wrong or "no")))

    assert len(home.questions()) == 1


# -- answer ------------------------------------------------------------------------------------------------------

TYPED: dict[str, Callable[[], Any]] = {
    "a message": lambda: says("blue"),
    "a dict": lambda: {"messages": [{"role": "user", "content": "blue"}]},
    "a pair": lambda: {"messages": [("user", "blue")]},
    "blocks": lambda: {"messages": [HumanMessage([{"type": "text", "text": "bl"}, {"type": "text", "text": "ue"}])]},
    "one message": lambda: {"messages": HumanMessage("blue")},
    "with a word of the system": lambda: {"messages": [SystemMessage("be kind"), HumanMessage("blue")]},
}


@pytest.mark.parametrize("how", TYPED)
def test_free_text_is_the_answer(home: Home, how: str) -> None:
    """What was typed goes to the question, once, recorded with who and how; no second run begins."""
    agent = home.protect(Chat.graph(), on_waiting="answer")
    agent.invoke(says("ask me"), thread="t")

    out = agent.invoke(TYPED[how](), thread="t", actor="ann")

    assert Chat.said(out) == ["ask me", "echo: you said blue"]
    (decision,) = home.decisions()
    assert (decision.value, decision.actor, decision.channel) == ("blue", "ann", "input")
    assert home.statuses() == ["interrupted", "done"]
    assert Chat.said(agent.invoke(says("hello"), thread="t"))[-1] == "echo: hello"


UNFIT: dict[str, Callable[[], Any]] = {
    "a picture": lambda: {"messages": [HumanMessage([{"type": "image_url", "image_url": {"url": "x"}}])]},
    "no human": lambda: {"messages": [AIMessage("blue")]},
    "nothing": lambda: {"messages": []},
    "silence": lambda: says(""),
    "a jump": lambda: Command(goto="talk"),
}


@pytest.mark.parametrize("how", UNFIT)
def test_what_is_no_text_is_no_answer(home: Home, how: str) -> None:
    """It says why, and the question waits as before."""
    agent = home.protect(Chat.graph(), on_waiting="answer")
    agent.invoke(says("ask me"), thread="t")
    before = home.questions()

    with pytest.raises(InvalidDecisionError, match="the input is no answer"):
        agent.invoke(UNFIT[how](), thread="t")

    assert home.questions() == before
    assert home.statuses() == ["interrupted"]


def test_more_than_text_is_no_answer(home: Home) -> None:
    """An input that sets other state, too, would lose that if its text were taken for an answer."""
    agent = home.protect(nodes(home), on_waiting="answer")
    agent.invoke(asks("in"), thread="t")

    with pytest.raises(InvalidDecisionError, match="the input is no answer"):
        agent.invoke({"log": ["yes"]}, thread="t")

    assert len(home.questions()) == 1


def test_the_answer_must_fit_the_schema_of_the_question(home: Home) -> None:
    """Text where a number is asked for is refused; where a text is, it is taken."""
    number = home.protect(Chat.graph({"type": "integer"}), name="number", on_waiting="answer")
    word = home.protect(Chat.graph({"enum": ["red", "blue"]}), name="word", on_waiting="answer")
    number.invoke(says("ask"), thread="n")
    word.invoke(says("ask"), thread="w")

    with pytest.raises(InvalidDecisionError, match="form that was asked for"):
        number.invoke(says("7"), thread="n")
    with pytest.raises(InvalidDecisionError, match="green"):
        word.invoke(says("green"), thread="w")

    assert len(home.questions("n")) == len(home.questions("w")) == 1
    assert Chat.said(word.invoke(says("blue"), thread="w"))[-1] == "echo: you said blue"


def test_one_text_never_answers_two_questions(home: Home) -> None:
    """With several pending nobody guesses which is meant."""

    def x(state: MessagesState) -> Any:
        return {"messages": [AIMessage(interrupt("x?"))]}

    def y(state: MessagesState) -> Any:
        return {"messages": [AIMessage(interrupt("y?"))]}

    agent = home.protect(fan(x, y, schema=MessagesState), on_waiting="answer")
    agent.invoke(says("hi"), thread="t")

    with pytest.raises(InvalidDecisionError, match="several questions"):
        agent.invoke(says("yes"), thread="t")

    assert len(home.questions()) == 2


def test_the_same_answer_under_its_key_is_one_run(home: Home) -> None:
    """A message that is delivered twice answers once; the second gets what the first has led to."""
    agent = home.protect(Chat.graph(), on_waiting="answer")
    agent.invoke(says("ask me"), thread="t")

    first = agent.invoke(says("blue"), thread="t", idempotency_key="m1")
    again = agent.invoke(says("blue"), thread="t", idempotency_key="m1")

    assert Chat.said(first) == Chat.said(again) == ["ask me", "echo: you said blue"]
    assert len(home.runs()) == 2
    with pytest.raises(IdempotencyMismatchError):
        agent.invoke(says("red"), thread="t", idempotency_key="m1")


def reviewed(home: Home, allowed: list[str], *, calls: int = 1, mode: Any = "batched") -> Any:
    """LangChain's review of tool calls, in front of a tool that counts."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langchain_core.language_models import GenericFakeChatModel

    class Model(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

    @tool
    def charge(cents: int) -> str:
        """Charge a card."""
        home.outside.happens(f"charged {cents}")
        return f"charged {cents}"

    wanted = [{"name": "charge", "args": {"cents": n}, "id": f"call-{n}", "type": "tool_call"} for n in range(calls)]
    replies = [AIMessage("", tool_calls=wanted), AIMessage("ready")]
    config: Any = {"allowed_decisions": allowed}
    review = HumanInTheLoopMiddleware({"charge": config}, interrupt_mode=mode)
    return create_agent(Model(messages=iter([*replies, *replies])), [charge], middleware=[review])


@pytest.mark.parametrize("mode", ["batched", "per_call"])
def test_text_responds_to_one_tool_call_that_allows_it(home: Home, mode: str) -> None:
    """The tool does not run; what was typed is its result, and the history stays well formed."""
    agent = home.protect(reviewed(home, ["approve", "respond"], mode=mode), on_waiting="answer")
    agent.invoke(says("pay"), thread="t")

    out = agent.invoke(says("I have paid in cash"), thread="t")

    (told,) = (message for message in out["messages"] if isinstance(message, ToolMessage))
    assert (told.content, told.tool_call_id) == ("I have paid in cash", "call-0")
    assert out["messages"][-1].content == "ready"
    assert home.outside.seen == []


@pytest.mark.parametrize(("allowed", "calls"), [(["approve", "reject"], 1), (["approve", "respond"], 2)])
def test_text_never_decides_about_tool_calls_that_take_none(home: Home, allowed: list[str], calls: int) -> None:
    """Where `respond` is not allowed, or several calls are asked about, nothing is changed."""
    agent = home.protect(reviewed(home, allowed, calls=calls), on_waiting="answer")
    agent.invoke(says("pay"), thread="t")

    with pytest.raises(InvalidDecisionError, match=r"not allowed|2 tool calls"):
        agent.invoke(says("yes, do"), thread="t")

    assert len(home.questions()) == 1
    assert home.outside.seen == []


# -- queue -------------------------------------------------------------------------------------------------------


def test_a_queued_input_runs_after_the_answer(waiting: Any, home: Home) -> None:
    """The call returns what the thread waits with; whoever answers goes on with the input, in the same call."""
    (question,) = home.questions()

    asked = waiting.invoke(asks("later"), thread="t", on_waiting="queue")

    assert [one.id for one in asked["__interrupt__"]] == [question.interrupt_id]
    assert [each.spec.input for each in waiting.queued("t")] == [asks("later")]
    assert home.outside.seen == ["a"]
    out = waiting.invoke(Command(resume="yes"), thread="t")
    assert out["log"] == ["in", "a", "sure: yes", "b", "later", "a"]
    assert out["__interrupt__"][0].value == "sure?"
    assert waiting.queued("t") == []
    assert home.statuses() == ["interrupted", "done", "interrupted"]


def test_queued_inputs_run_in_the_order_in_which_they_came(home: Home) -> None:
    """Each is a run of its own; a stream shows them all."""
    agent = home.protect(Chat.graph(), on_waiting="queue")
    agent.invoke(says("ask"), thread="t")
    for word in ("one", "two", "three"):
        agent.invoke(says(word), thread="t")

    streamed = [*agent.stream(Command(resume="x"), thread="t", stream_mode="values")]

    assert Chat.said(streamed[-1]) == [
        *("ask", "echo: you said x"),
        *("one", "echo: one", "two", "echo: two", "three", "echo: three"),
    ]
    assert home.statuses() == ["interrupted", *["done"] * 4]
    assert kinds(home).count("input_queued") == 3


def test_a_queued_input_waits_for_a_question_of_the_one_before(home: Home) -> None:
    """A queued input may ask as well; the next one waits for that answer, too."""
    agent = home.protect(Chat.graph(), on_waiting="queue")
    agent.invoke(says("ask 1"), thread="t")
    agent.invoke(says("ask 2"), thread="t")
    agent.invoke(says("end"), thread="t")

    out = agent.invoke(Command(resume="A"), thread="t")
    assert "__interrupt__" in out
    assert len(agent.queued("t")) == 1
    out = agent.invoke(Command(resume="B"), thread="t")

    assert Chat.said(out) == ["ask 1", "echo: you said A", "ask 2", "echo: you said B", "end", "echo: end"]


def test_a_queued_input_is_accepted_once_under_its_key(waiting: Any, home: Home) -> None:
    """Sent twice it waits once; another request under the key is refused; in the end the key gives its result."""
    for _ in range(2):
        waiting.invoke(asks("later"), thread="t", on_waiting="queue", idempotency_key="k")
    with pytest.raises(IdempotencyMismatchError):
        waiting.invoke(asks("other"), thread="t", on_waiting="queue", idempotency_key="k")
    with pytest.raises(IdempotencyMismatchError):
        waiting.invoke(Command(resume="yes"), thread="t", idempotency_key="k")

    assert len(waiting.queued("t")) == 1
    waiting.invoke(Command(resume="yes"), thread="t")
    waiting.invoke(Command(resume="yes"), thread="t")
    out = waiting.invoke(asks("later"), thread="t", idempotency_key="k")
    assert out["log"] == ["in", "a", "sure: yes", "b", "later", "a", "sure: yes", "b"]
    assert len(home.runs()) == 4


def test_whoever_continues_a_finished_thread_runs_what_waits(home: Home) -> None:
    """Where the chain ended in a call that could not go on, the next `continue_run` does, and new input comes after."""
    agent = home.protect(Chat.graph(), on_waiting="queue")
    secret = {"configurable": {"thread_id": "t", "token": "s"}}
    agent.invoke(says("ask"), thread="t")
    agent.invoke(says("needs a token"), secret)

    out = agent.invoke(Command(resume="x"), thread="t")
    assert Chat.said(out) == ["ask", "echo: you said x"]  # it has no token, so the input stays in the queue
    with pytest.raises(MissingEntryError, match="token"):
        agent.continue_run("t")
    out = agent.invoke(says("new"), secret)

    assert Chat.said(out)[2:] == ["needs a token", "echo: needs a token", "new", "echo: new"]
    assert agent.queued("t") == []


def test_abandoning_drops_what_waits(waiting: Any, home: Home) -> None:
    """With an event each; it is listed until then."""
    waiting.invoke(asks("later"), thread="t", on_waiting="queue")
    assert len(home.store.perform(home.store.list_queued(SYSTEM))) == 1

    waiting.abandon("t")

    assert waiting.queued("t") == []
    assert kinds(home).count("input_dropped") == 1
    assert home.statuses() == ["abandoned"]
    assert waiting.invoke(asks("again"), thread="t")["log"] == ["in", "a", "again", "a"]


def test_nothing_is_queued_on_a_thread_that_is_not_there_or_free(home: Home) -> None:
    """Queueing is for threads that wait; on any other the policy changes nothing."""
    agent = home.protect(Chat.graph(), on_waiting="queue")

    assert Chat.said(agent.invoke(says("hi"), thread="t")) == ["hi", "echo: hi"]
    with pytest.raises(NoCheckpointFoundError):
        agent.invoke(says("hi"), thread="nobody", if_missing="error")

    assert home.store.perform(home.store.list_queued(SYSTEM)) == []


def test_input_for_a_thread_whose_answer_was_decided_elsewhere(home: Home) -> None:
    """A decision that waits for a process is gone on with first; then the input runs."""
    agent = home.protect(nodes(home), on_waiting="queue")
    agent.invoke(asks("in"), thread="t")
    (question,) = home.questions()
    interrupts.decide(home.store, "t", question.interrupt_id, "yes", actor="ann")

    out = agent.invoke(asks("later"), thread="t")

    assert out["log"] == ["in", "a", "sure: yes", "b", "later", "a"]


# -- replace -----------------------------------------------------------------------------------------------------


def test_replace_closes_the_question_as_superseded(waiting: Any, home: Home) -> None:
    """The run that asked is abandoned, an event tells of it, the input runs, and the old question takes no answer."""
    (question,) = home.questions()

    out = waiting.invoke(asks("instead"), thread="t", on_waiting="replace")

    assert out["log"] == ["in", "a", "instead", "a"]
    assert home.statuses() == ["abandoned", "interrupted"]
    states = {each.interrupt_id: each.state for each in home.questions(pending_only=False)}
    assert states[question.interrupt_id] is InterruptState.SUPERSEDED
    assert "question_superseded" in kinds(home)
    with pytest.raises(InvalidDecisionError, match=r"superseded|not pending"):
        waiting.invoke(Command(resume={question.interrupt_id: "yes"}), thread="t")


def test_replace_leaves_no_tool_call_without_its_message(home: Home) -> None:
    """A model that is given this history takes it: each tool call has a tool message behind it."""
    agent = home.protect(reviewed(home, ["approve", "reject"]), on_waiting="replace")
    agent.invoke(says("pay"), thread="t")

    out = agent.invoke(says("no, wait"), thread="t")

    messages: list[AnyMessage] = out["messages"]
    for place, message in enumerate(messages):
        if isinstance(message, AIMessage) and message.tool_calls and "__interrupt__" not in out:
            told = messages[place + 1 : place + 1 + len(message.tool_calls)]
            assert [each.tool_call_id for each in told if isinstance(each, ToolMessage)] == [
                call["id"] for call in message.tool_calls
            ]
    first = next(message for message in messages if isinstance(message, AIMessage))
    assert isinstance(messages[messages.index(first) + 1], ToolMessage)
    assert home.outside.seen == []


@pytest.mark.parametrize("questions", [1, 2])
def test_replace_never_drops_a_decision_that_was_accepted(home: Home, questions: int) -> None:
    """Answered elsewhere and not yet used, whatever else is asked: the input is refused, the decision is kept."""

    def other(state: Log) -> Any:
        return {"log": [f"other: {interrupt('other?')}" if questions == 2 else "other"]}

    agent = home.protect(fan(sure, other), on_waiting="replace")
    agent.invoke(asks("in"), thread="t")
    (question,) = (each for each in home.questions() if each.payload == "sure?")
    interrupts.decide(home.store, "t", question.interrupt_id, "yes", actor="ann")

    with pytest.raises(UnfinishedRunError):
        agent.invoke(asks("instead"), thread="t")

    out = agent.continue_run("t")
    if questions == 2:
        out = agent.invoke(Command(resume="no"), thread="t")
    assert "sure: yes" in out["log"]
    assert "instead" not in out["log"]


def test_the_policy_is_a_setting_a_default_and_a_choice_per_call(home: Home) -> None:
    """`[questions] on_input` for all, `protect(on_waiting=)` for an agent, `on_waiting=` for a call."""
    settings = Settings(questions=QuestionsSettings(on_input="answer"))
    agent = home.protect(Chat.graph(), settings=settings)
    strict = home.protect(Chat.graph(), settings=settings, on_waiting="refuse")
    agent.invoke(says("ask"), thread="t")

    with pytest.raises(UnfinishedRunError):
        strict.invoke(says("blue"), thread="t")
    with pytest.raises(UnfinishedRunError):
        agent.invoke(says("blue"), thread="t", on_waiting="refuse")

    assert Chat.said(agent.invoke(says("blue"), thread="t"))[-1] == "echo: you said blue"


# -- killed in between ---------------------------------------------------------------------------------------------


def life_that_queues(folder: str) -> Any:
    with home_in(folder) as home:
        agent = home.protect(nodes(home), on_waiting="queue")
        agent.invoke(asks("in"), thread="t")
        agent.invoke(asks("later"), thread="t", idempotency_key="k")
        die()


def life_that_answers(folder: str, point: Any = None) -> Any:
    with home_in(folder) as home:
        agent = home.protect(nodes(home))
        if point:
            die_at(home.store, *point)
        return agent.invoke(Command(resume="yes"), thread="t")


POINTS = [
    ("answer", "commit", "after", 1),
    ("finish_run", "commit", "before", 1),
    ("finish_run", "commit", "after", 1),
    ("start_queued", "commit", "before", 1),
    ("start_queued", "commit", "after", 1),
    ("put_checkpoint", "commit", "after", 4),
]


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point[0]} {point[2]}")
def test_an_accepted_input_outlives_every_process(tmp_path: Path, point: Any) -> None:
    """Killed right after it was accepted, and again around the end of the chain: it runs once, and its key knows it."""
    live_and_die(life_that_queues, tmp_path)
    live_and_die(life_that_answers, tmp_path, point)

    with home_in(tmp_path) as home:
        agent = home.protect(nodes(home))
        out = agent.continue_run("t")
        if "__interrupt__" not in out:
            out = agent.continue_run("t")
        assert out["log"] == ["in", "a", "sure: yes", "b", "later", "a"]
        out = agent.invoke(Command(resume="no"), thread="t")
        assert out["log"] == ["in", "a", "sure: yes", "b", "later", "a", "sure: no", "b"]
        assert agent.invoke(asks("later"), thread="t", idempotency_key="k") == out
        assert agent.get_state(config()).values == out
        assert agent.queued("t") == []
