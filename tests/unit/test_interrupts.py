"""A question is recorded once, answered once, and its answer counts for it alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt

from agents import SAFE_S, Home, Log, asks, chain, config, fan, step
from ninelives import InvalidDecisionError, NoCheckpointFoundError, ThreadBusyError, UnfinishedRunError


def asking(word: str, question: Any = None) -> Any:
    def node(state: Log) -> Any:
        return {"log": [f"{word}: {interrupt(question or word)}"]}

    node.__name__ = word
    return node


def ids(out: Any) -> dict[Any, str]:
    """Interrupt id by question."""
    return {one.value: one.id for one in out["__interrupt__"]}


# -- asking ----------------------------------------------------------------------------------------------------


def test_a_question_is_a_row_and_frees_the_thread(home: Home) -> None:
    """A run that asks ends as `interrupted`; what it asked is recorded with its payload."""
    agent = home.protect(chain(step("a"), asking("b", {"to": "ada", "amount": 3})))

    out = agent.invoke(asks("in"), thread="t")

    (question,) = home.questions()
    assert out["__interrupt__"][0].id == question.interrupt_id
    assert question.payload == {"to": "ada", "amount": 3}
    assert home.statuses() == ["interrupted"]
    assert not home.runs()[0].held


@pytest.mark.parametrize("depth", [1, 2])
def test_a_question_of_a_subgraph_is_one_question(home: Home, depth: int) -> None:
    """The copy that a nested graph writes at its root is not a second question; its answer finds its way in."""
    graph = chain(step("a", home.outside), asking("b"))
    for level in range(depth):
        graph = StateGraph(Log).add_node(f"n{level}", graph).add_edge(START, f"n{level}").add_edge(f"n{level}", END)
        graph = graph.compile()
    agent = home.protect(graph)

    agent.invoke(asks("in"), thread="t")
    (question,) = home.questions()
    out = agent.invoke(Command(resume={question.interrupt_id: "yes"}), thread="t")

    assert out["log"][-1] == "b: yes"
    assert home.outside.seen == ["a"]
    assert len(home.questions(pending_only=False)) == 1


def test_parallel_questions_are_answered_by_id(home: Home) -> None:
    """Two nodes that ask at once: two questions; each answer goes to its own; finished siblings do not run again."""
    agent = home.protect(fan(asking("x"), asking("y"), step("z", home.outside)))
    asked = ids(agent.invoke(asks(), thread="t"))

    out = agent.invoke(Command(resume={asked["y"]: "Y", asked["x"]: "X"}), thread="t")

    assert sorted(out["log"]) == ["x: X", "y: Y", "z"]
    assert home.outside.seen == ["z"]
    assert home.questions() == []


def test_some_questions_may_be_answered_first(home: Home) -> None:
    """A part of the answers: those nodes go on, the other questions stay, and what is done is not done again."""
    agent = home.protect(fan(*(asking(word) for word in "xyz")))
    asked = ids(agent.invoke(asks(), thread="t"))

    first = agent.invoke(Command(resume={asked["y"]: "Y"}), thread="t")
    second = agent.invoke(Command(resume={asked["x"]: "X"}), thread="t")
    out = agent.invoke(Command(resume="Z"), thread="t")

    assert set(ids(first)) == {"x", "z"}
    assert set(ids(second)) == {"z"}
    assert sorted(out["log"]) == ["x: X", "y: Y", "z: Z"]
    assert home.statuses() == ["interrupted", "interrupted", "interrupted", "done"]


def test_send_tasks_ask_each_for_itself(home: Home) -> None:
    """Many tasks of one node, made by `Send`, each with its own question."""

    def work(order: Any) -> Any:
        return {"log": [f"{order['i']}: {interrupt(order['i'])}"]}

    graph = StateGraph(Log).add_node("work", work)  # type: ignore[arg-type]
    graph.add_conditional_edges(START, lambda _: [Send("work", {"i": i}) for i in range(3)], ["work"])
    agent = home.protect(graph.compile())

    asked = ids(agent.invoke(asks(), thread="t"))
    out = agent.invoke(Command(resume={id_: f"answer {i}" for i, id_ in asked.items()}), thread="t")

    assert out["log"] == [f"{i}: answer {i}" for i in range(3)]


def test_a_node_that_asks_twice_gets_two_answers(home: Home) -> None:
    """The second question is another one; continuing without an answer does not hand it the first one's."""

    def twice(state: Log) -> Any:
        return {"log": [f"{interrupt('one')} and {interrupt('two')}"]}

    agent = home.protect(chain(twice))
    agent.invoke(asks(), thread="t")
    second = agent.invoke(Command(resume="1"), thread="t")

    still = agent.continue_run("t")
    out = agent.invoke(Command(resume="2"), thread="t")

    assert set(ids(second)) == set(ids(still)) == {"two"}
    assert out == asks("1 and 2")
    assert [decision.value for decision in home.decisions()] == ["1", "2"]


def test_a_loop_asks_again_and_again(home: Home) -> None:
    """The same node in a later step asks a new question: an old answer is never used for it."""

    def gate(state: Log) -> Any:
        return {"log": [interrupt(len(state["log"]))]}

    graph = StateGraph(Log).add_node("gate", gate).add_edge(START, "gate")
    graph.add_conditional_edges("gate", lambda s: END if s["log"][-1] == "stop" else "gate", ["gate", END])
    agent = home.protect(graph.compile())

    agent.invoke(asks(), thread="t")
    for word in ("go", "go on"):
        agent.invoke(Command(resume=word), thread="t")
    out = agent.invoke(Command(resume="stop"), thread="t")

    assert out == asks("go", "go on", "stop")
    assert [question.payload for question in home.questions(pending_only=False)] == [0, 1, 2]


@pytest.mark.parametrize("answer", [None, False, 0, "", {}, [], {"decisions": [{"type": "approve"}]}])
def test_any_value_is_an_answer(home: Home, answer: Any) -> None:
    """Nothing, false, empty: all are legal answers by id; and a plain one that is not None is too."""

    def node(state: Log) -> Any:
        return {"log": [repr(interrupt("?"))]}

    agent = home.protect(chain(node))
    asked = ids(agent.invoke(asks(), thread="t"))

    assert agent.invoke(Command(resume={asked["?"]: answer}), thread="t") == asks(repr(answer))


def test_an_answer_may_carry_an_update(home: Home) -> None:
    """`Command(resume=..., update=...)`: both take effect, once."""
    agent = home.protect(chain(step("a"), asking("b")))
    agent.invoke(asks("in"), thread="t")

    out = agent.invoke(Command(resume="yes", update=asks("u")), thread="t")

    assert out["log"] == ["in", "a", "u", "b: yes"]


# -- answering what is not asked -------------------------------------------------------------------------------


@pytest.fixture
def waiting(home: Home) -> Any:
    agent = home.protect(chain(step("a", home.outside), asking("b"), step("c", home.outside)))
    agent.invoke(asks("in"), thread="t")
    return agent


@pytest.mark.parametrize("unknown", ["0" * 32, "f" * 32])
def test_an_unknown_id_is_refused(home: Home, waiting: Any, unknown: str) -> None:
    """An id that matches no pending question changes nothing; the text lists those that do."""
    pending = home.questions()[0].interrupt_id

    with pytest.raises(InvalidDecisionError, match=f"'{unknown}' is not pending.*nothing was changed.*'{pending}'"):
        waiting.invoke(Command(resume={unknown: "yes"}), thread="t")

    assert home.decisions() == []
    assert len(home.questions()) == 1
    assert home.statuses() == ["interrupted"]


@pytest.mark.parametrize("empty", [Command(), Command(resume=None), Command(update={})])
def test_a_command_that_says_nothing_is_refused(home: Home, waiting: Any, empty: Any) -> None:
    """None is an answer where the question is named; a `Command` of nothing is told how, and changes nothing."""
    with pytest.raises(
        InvalidDecisionError, match=r"says nothing .*resume=\{interrupt_id: None\}.*nothing was changed"
    ):
        waiting.invoke(empty, thread="t")

    assert home.statuses() == ["interrupted"]
    assert len(home.questions()) == 1


def test_one_wrong_id_among_right_ones_changes_nothing(home: Home, waiting: Any) -> None:
    """All answers of a call are taken, or none."""
    pending = home.questions()[0].interrupt_id

    with pytest.raises(InvalidDecisionError):
        waiting.invoke(Command(resume={pending: "yes", "0" * 32: "no"}), thread="t")

    assert home.decisions() == []
    assert home.outside.seen == ["a"]


def test_a_plain_answer_is_not_guessed_among_several(home: Home) -> None:
    """With two questions pending an answer must name its id."""
    agent = home.protect(fan(asking("x"), asking("y")))
    agent.invoke(asks(), thread="t")

    with pytest.raises(InvalidDecisionError, match="several questions are pending, so an answer must name"):
        agent.invoke(Command(resume="yes"), thread="t")

    assert len(home.questions()) == 2


def test_an_answer_where_nothing_was_asked_is_refused(home: Home, waiting: Any) -> None:
    """On a finished thread, and a second time, an answer is refused: a retry never answers the next question."""
    asked = home.questions()[0].interrupt_id
    waiting.invoke(Command(resume="yes"), thread="t")

    repeated: list[Command[Any]] = [Command(resume="yes"), Command(resume={asked: "yes"})]
    for again in repeated:
        with pytest.raises(InvalidDecisionError, match=r"nothing was changed\. Nothing is pending"):
            waiting.invoke(again, thread="t")

    assert home.outside.seen == ["a", "c"]
    assert len(home.decisions()) == 1


def test_a_repeated_answer_does_not_answer_the_next_question(home: Home) -> None:
    """The id of the first question, sent again while the second one waits, is refused."""
    agent = home.protect(chain(asking("one"), asking("two")))
    first = home_id = ids(agent.invoke(asks(), thread="t"))["one"]
    agent.invoke(Command(resume={first: "yes"}), thread="t")

    with pytest.raises(InvalidDecisionError, match="is not pending"):
        agent.invoke(Command(resume={home_id: "yes"}), thread="t")

    assert [question.payload for question in home.questions()] == ["two"]


def test_an_answer_on_a_failed_thread_is_refused(home: Home) -> None:
    """A failed run asks nothing; the value is not kept for the first question that comes along."""

    def broken(state: Log) -> Any:
        raise ValueError("no")

    agent = home.protect(chain(broken))
    with pytest.raises(ValueError, match="no"):
        agent.invoke(asks(), thread="t")

    with pytest.raises(InvalidDecisionError, match="nothing was asked"):
        agent.invoke(Command(resume="yes"), thread="t")


def test_an_edit_that_moves_on_withdraws_the_question(home: Home, waiting: Any) -> None:
    """After `update_state(as_node=...)` the old question is no longer at the head: its answer is refused."""
    asked = home.questions()[0].interrupt_id
    waiting.update_state(config(), asks("by hand"), as_node="b")

    with pytest.raises(InvalidDecisionError):
        waiting.invoke(Command(resume={asked: "yes"}), thread="t")

    assert waiting.continue_run("t") == asks("in", "a", "by hand", "c")


@pytest.mark.parametrize("by_id", [True, False])
def test_of_two_answers_at_once_one_counts(home: Home, waiting: Any, by_id: bool) -> None:
    """Two threads answer the same question together: one drives the run, the other is told; the act happens once."""
    asked = home.questions()[0].interrupt_id

    def answer(word: str) -> Any:
        try:
            return waiting.invoke(Command(resume={asked: word} if by_id else word), thread="t")
        except (InvalidDecisionError, ThreadBusyError) as told:
            return told

    with ThreadPoolExecutor(2) as pool:
        outs = [*pool.map(answer, ["first", "second"])]

    (won,) = [out for out in outs if isinstance(out, dict)]
    (decision,) = home.decisions()
    assert won["log"] == ["in", "a", f"b: {decision.value}", "c"]
    assert home.outside.seen == ["a", "c"]


def test_an_answer_to_another_threads_question_is_refused(home: Home, waiting: Any) -> None:
    """Ids are of one thread; an unknown thread is named as unknown."""
    waiting.invoke(asks("in"), thread="u")
    of_t = home.questions("t")[0].interrupt_id

    with pytest.raises(InvalidDecisionError):
        waiting.invoke(Command(resume={of_t: "yes"}), thread="u")
    with pytest.raises(NoCheckpointFoundError):
        waiting.invoke(Command(resume={of_t: "yes"}), thread="v")


def test_an_answer_while_a_sibling_was_cut_off(home: Home) -> None:
    """A run that failed beside a question: continuing runs the failed part again, the question stays to be answered."""
    broken = [True]

    def shaky(state: Log) -> Any:
        home.outside.happens("shaky")
        if broken:
            raise ValueError("no")
        return {"log": ["shaky"]}

    agent = home.protect(fan(asking("x"), shaky))
    with pytest.raises(ValueError, match="no"):
        agent.invoke(asks(), thread="t")
    broken.clear()

    out = agent.invoke(None, thread="t")
    out = agent.invoke(Command(resume="X"), thread="t") if "__interrupt__" in out else out

    assert sorted(out["log"]) == ["shaky", "x: X"]


# -- answers that a node does not like -------------------------------------------------------------------------


class Picky:
    """Asks for a number; counts how often it was entered."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.lenient = False
        self.__name__ = "picky"

    def __call__(self, state: Log) -> Any:
        self._home.outside.happens("picky")
        answer = interrupt("a number?")
        return {"log": [answer if self.lenient else str(int(answer))]}


def test_a_bad_answer_fails_the_run_and_is_supplied_again(home: Home) -> None:
    """The node raises on it: the run is `failed`; continue supplies the accepted answer to the next attempt."""
    picky = Picky(home)
    agent = home.protect(chain(picky))
    agent.invoke(asks(), thread="t")

    with pytest.raises(ValueError, match="invalid literal"):
        agent.invoke(Command(resume="many"), thread="t")
    with pytest.raises(ValueError, match="invalid literal"):
        agent.continue_run("t")
    picky.lenient = True

    assert home.statuses() == ["interrupted", "failed"]
    assert agent.continue_run("t") == asks("many")


@pytest.mark.parametrize("choice", ["start_over", "abandon"])
def test_a_bad_answer_does_not_wedge_the_thread(home: Home, choice: Any) -> None:
    """Started over or abandoned, the question is asked anew, and a good answer is taken."""
    agent = home.protect(chain(Picky(home)))
    agent.invoke(asks("in"), thread="t")
    with pytest.raises(ValueError, match="invalid literal"):
        agent.invoke(Command(resume="many"), thread="t")

    with pytest.raises(UnfinishedRunError):
        agent.invoke(asks("again"), thread="t")
    asked = agent.invoke(asks("again"), thread="t", on_unfinished=choice)
    out = agent.invoke(Command(resume="7"), thread="t")

    assert set(ids(asked)) == {"a number?"}
    assert out["log"][-1] == "7"


def test_an_answer_before_a_failure_is_supplied_again(home: Home) -> None:
    """The node takes its answer, then fails on something else: it is not asked again."""
    broken = [True]

    def node(state: Log) -> Any:
        answer = interrupt("sure?")
        if broken:
            raise ConnectionRefusedError("later")
        return {"log": [answer]}

    agent = home.protect(chain(node))
    agent.invoke(asks(), thread="t")
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(Command(resume="yes"), thread="t")
    broken.clear()

    assert agent.continue_run("t") == asks("yes")
    assert len(home.questions(pending_only=False)) == 1


# -- tools -----------------------------------------------------------------------------------------------------


@tool
def delete(name: str) -> str:
    """Delete."""
    return f"deleted {name}: {interrupt(f'delete {name}?')}"


def test_tool_calls_made_as_tasks_ask_each_for_itself(home: Home) -> None:
    """One task per tool call (as agents dispatch them): each question is shown, each answer goes to its own call."""
    calls = [{"name": "delete", "args": {"name": name}, "id": name, "type": "tool_call"} for name in "ab"]

    def model(state: Any) -> Any:
        return {"messages": [AIMessage("", tool_calls=calls)]}

    graph = StateGraph(MessagesState).add_node("model", model).add_node("tools", ToolNode([delete]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda s: [Send("tools", [call]) for call in s["messages"][-1].tool_calls])
    agent = home.protect(graph.compile())

    asked = ids(agent.invoke({"messages": []}, thread="t"))
    out = agent.invoke(Command(resume={asked["delete a?"]: "yes a", asked["delete b?"]: "yes b"}), thread="t")

    results: list[AnyMessage] = out["messages"][-2:]
    assert [one.content for one in results if isinstance(one, ToolMessage)] == [
        "deleted a: yes a",
        "deleted b: yes b",
    ]


async def test_the_async_way_is_the_same(home: Home) -> None:
    """`ainvoke` and `astream` ask and take answers alike."""
    agent = home.protect(chain(step("a"), asking("b")))
    await agent.ainvoke(asks("in"), thread="t")

    chunks = [chunk async for chunk in agent.astream(Command(resume="yes"), thread="t", stream_mode="updates")]

    assert chunks == [{"b": {"log": ["b: yes"]}}]


def test_a_stream_shows_the_question(home: Home) -> None:
    """`stream` yields the interrupt as LangGraph does, and when continued without an answer yields it again."""
    agent = home.protect(chain(asking("b")))

    first = [*agent.stream(asks("in"), thread="t", stream_mode="values")]
    again = [*agent.stream(None, thread="t", stream_mode="values")]

    assert set(ids(first[-1])) == set(ids(again[-1])) == {"b"}


def test_the_decision_is_recorded_with_who_and_when(home: Home) -> None:
    """The row of an answer says what, when, how, and which run goes on with it."""
    agent = home.protect(chain(asking("b")))
    agent.invoke(asks("in"), thread="t")
    agent.invoke(Command(resume="yes"), thread="t")

    (decision,) = home.decisions()
    first, second = home.runs()
    assert (decision.value, decision.channel, decision.run_id) == ("yes", "call", second.run_id)
    assert decision.decided_at >= home.questions(pending_only=False)[0].asked_at
    assert (second.continues, second.chain) == (first.run_id, first.run_id)


def test_an_answer_waits_its_turn(home: Home) -> None:
    """With `wait_s` an answer to a thread that another answer just moved on is refused by name, not lost."""
    agent = home.protect(chain(asking("one"), asking("two")))
    asked = ids(agent.invoke(asks(), thread="t"))

    with ThreadPoolExecutor(2) as pool:
        calls = [
            pool.submit(agent.invoke, Command(resume={asked["one"]: word}), thread="t", wait_s=SAFE_S) for word in "xy"
        ]
        ended = [call.exception(SAFE_S) for call in calls]

    assert [type(one) for one in ended if one] == [InvalidDecisionError]
    assert [question.payload for question in home.questions()] == ["two"]


# -- graphs inside, by what they keep --------------------------------------------------------------------------


@pytest.mark.parametrize("saver", [None, True, False])
@pytest.mark.parametrize("called", ["as a node", "in a node"])
def test_a_graph_inside_asks_whatever_it_keeps(home: Home, saver: Any, called: str) -> None:
    """Each of its questions finds its own answer, also of a graph that keeps nothing and begins anew for it."""
    inner = chain(asking("one"), asking("two"), checkpointer=saver)

    def node(state: Log) -> Any:
        return {"log": inner.invoke(asks())["log"]}

    graph: Any = StateGraph(Log).add_node("sub", inner if called == "as a node" else node)
    agent = home.protect(graph.add_edge(START, "sub").add_edge("sub", END).compile())

    first = ids(agent.invoke(asks(), thread="t"))
    second = ids(agent.invoke(Command(resume={first["one"]: "1"}), thread="t"))
    assert set(ids(agent.continue_run("t"))) == {"two"}
    out = agent.invoke(Command(resume={second["two"]: "2"}), thread="t")

    assert out["log"] == ["one: 1", "two: 2"]
    assert [question.payload for question in home.questions(pending_only=False)] == ["one", "two"]


def test_equal_questions_of_a_graph_that_keeps_nothing(home: Home) -> None:
    """Asked in parallel, in a loop, and by two calls of it in one node: an answer is given to its own place only."""

    def again(state: Log) -> Any:
        return {"log": [f"again {interrupt('?')}"]}

    inner: Any = StateGraph(Log).add_node("x", asking("x", "?")).add_node("y", asking("y", "?")).add_node(again)
    inner.add_edge(START, "x").add_edge(START, "y").add_edge(["x", "y"], "again")
    inner.add_conditional_edges("again", lambda s: END if "again 4" in s["log"] else "again", ["again", END])
    sub = inner.compile(checkpointer=False)
    graph: Any = StateGraph(Log).add_node("sub", sub).add_node("twice", sub).add_edge(START, "sub")
    agent = home.protect(graph.add_edge("sub", "twice").add_edge("twice", END).compile())

    out = agent.invoke(asks(), thread="t")
    asked = [question.id for question in out["__interrupt__"]]
    out = agent.invoke(Command(resume=dict(zip(asked, "12", strict=True))), thread="t")
    for answer in "34":
        asked += [question.id for question in out["__interrupt__"]]
        out = agent.invoke(Command(resume=answer), thread="t")

    asked += [question.id for question in out["__interrupt__"]]
    assert len({*asked}) == len(asked) == 6
    assert {"again 3", "again 4"} < {*out["log"]}
