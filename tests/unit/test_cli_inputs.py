"""INPUT and answers as they are typed, and the words in which values are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from ninelives.cli import render
from ninelives.cli.exits import UsageError
from ninelives.cli.inputs import answers_of, input_of
from ninelives.cli.records import usage_in_words
from ninelives.config import Price
from ninelives.model import Interrupt, InterruptState, Usage

ID = "0123456789abcdef0123456789abcdef"
OTHER = "f" * 32


class Order(TypedDict):
    item: str
    count: int


def graph(schema: type[Any] = MessagesState) -> Any:
    builder = StateGraph(schema)
    builder.add_node("only", lambda state: {})
    builder.add_edge(START, "only")
    return builder.compile()


def question(interrupt_id: str) -> Interrupt:
    return Interrupt(interrupt_id, 1, "t", "", "task", None, "checkpoint", "sure?", InterruptState.PENDING, 0.0)


def test_input_is_json_a_file_or_a_message(tmp_path: Path) -> None:
    """`{` begins JSON, `@` names a file that holds either, and all else is what the user says."""
    (tmp_path / "order.json").write_text('  {"item": "tea"}')
    (tmp_path / "words.txt").write_text("What is in here?")

    assert input_of('{"item": "tea", "count": 2}', graph(Order)) == {"item": "tea", "count": 2}
    assert input_of(f"@{tmp_path}/order.json", graph(Order)) == {"item": "tea"}
    assert input_of(f"@{tmp_path}/words.txt", graph()) == {
        "messages": [{"role": "user", "content": "What is in here?"}]
    }


@pytest.mark.parametrize(
    ("text", "schema", "said"),
    [
        ("{item: tea}", Order, "is not JSON"),
        ("@nowhere.txt", Order, "'nowhere.txt', which cannot be read"),
        ("two teas", Order, '{"item": "...", "count": "..."}'),
    ],
)
def test_input_that_cannot_be_meant_is_refused(text: str, schema: type[Any], said: str) -> None:
    """Broken JSON, a missing file, and words for a graph that takes none, which is shown what to give."""
    with pytest.raises(UsageError, match=r"INPUT|JSON") as refused:
        input_of(text, graph(schema))

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "resume"),
    [
        ("yes", {ID: "yes"}),
        ("true", {ID: True}),
        ('"42"', {ID: "42"}),
        ("null", {ID: None}),
        ('{"decisions": [{"type": "approve"}]}', {ID: {"decisions": [{"type": "approve"}]}}),
        (f"{ID}=a=b", {ID: "a=b"}),
        ("a=b", {ID: "a=b"}),
    ],
)
def test_answer_is_json_or_words_for_the_one_question(text: str, resume: Any) -> None:
    """One pending question takes a plain answer; JSON where it can be read as such."""
    assert answers_of([text], [question(ID)]).resume == resume


def test_several_answers_must_name_their_questions() -> None:
    """With two answers each says which question it is for; nothing is guessed."""
    both = [question(ID), question(OTHER)]

    assert answers_of([f"{ID}=1", f"{OTHER}=no"], both).resume == {ID: 1, OTHER: "no"}
    with pytest.raises(UsageError, match="each must name its question"):
        answers_of([f"{ID}=1", "no"], both)


def test_answer_of_a_graph_is_its_last_words_or_its_state() -> None:
    """The text of a last AI message; a state without one, or that ends with a person's words, as JSON."""
    assert render.answer_of({"messages": [HumanMessage("hi"), AIMessage("hello")]}) == "hello"
    assert render.answer_of({"total": 3}) == '{\n  "total": 3\n}'
    assert '"type": "human"' in render.answer_of({"messages": [HumanMessage("hi")]})


def test_money_is_told_where_prices_are_known() -> None:
    """No prices, no money; each model costs its own price; one without a price is named, not guessed."""
    models = {"a": (1, 1_000_000, 0), "b": (1, 0, 100_000)}
    usage = Usage(steps=2, model_calls=2, tokens_in=1_000_000, tokens_out=100_000, active_s=1.25, by_model=models)
    cheap, dear = Price(1.0, 2.0), Price(3.0, 15.0)

    assert usage_in_words(usage, {}) == "2 steps, 2 model calls, 0 tool calls, 1,100,000 tokens, 1.2 s"
    assert usage_in_words(usage, {"a": dear, "b": cheap}).endswith("1.2 s, $3.2000")
    assert usage_in_words(usage, {"a": dear}).endswith("$3.0000 + b (no price)")
    assert usage_in_words(usage, {"c": dear}).endswith("1.2 s, a (no price) + b (no price)")


def test_long_values_are_cut_on_one_line() -> None:
    """Arguments stay readable: no line breaks, no more than a line."""
    shown = render.arguments({"path": "a\nb", "body": "x" * 500})

    assert shown.startswith("path='a\\nb', body='xxx")
    assert len(shown) <= render.LINE_CHARS_MAX
