"""Model calls that a killed node had made are not paid for again, where the settings say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from agents import Home, config, home_in, keeper_of
from lives import die, live, live_and_die
from models import Replies
from ninelives import LeaseLostError
from ninelives.config import EffectsSettings, Settings

RECORDED = Settings(effects=EffectsSettings(model="recorded"))
PAID = Settings()


@pytest.fixture(autouse=True)
def cache() -> Iterator[None]:
    """The process's cache is given back as it was."""
    before = get_llm_cache()
    yield
    set_llm_cache(before)


def told(text: str) -> AIMessage:
    return AIMessage(text, usage_metadata={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5})


def thinking(home: Home, model: Replies, settings: Settings, fails: list[bool], *, twice: bool = False) -> Any:
    """An agent whose one node asks the model, and then fails once."""

    async def n(state: MessagesState) -> dict[str, Any]:
        said = [await model.ainvoke([HumanMessage("think")]) for _ in range(1 + twice)]
        if fails.pop():
            raise ConnectionRefusedError("after the model")
        return {"messages": said}

    graph = StateGraph(MessagesState).add_node("n", n).add_edge(START, "n").compile()
    return home.protect(graph, settings=settings)


@pytest.mark.parametrize(("settings", "paid"), [(RECORDED, 1), (PAID, 2)], ids=["recorded", "paid"])
def test_a_node_that_runs_again_pays_as_the_settings_say(home: Home, settings: Settings, paid: int) -> None:
    """Recorded: the model is asked once and says the same, its tokens counted once. By default it is asked again."""
    model, fails = Replies(replies=[told("hm")]), [False, True]
    agent = thinking(home, model, settings, fails)
    with pytest.raises(ConnectionRefusedError):
        agent.invoke({"messages": []}, thread="t")

    out = agent.continue_run("t")

    assert len(model.shown) == paid
    assert [m.content for m in out["messages"]] == ["hm"]
    assert sum(run.usage.tokens_in for run in home.runs()) == 3 * paid
    assert sum(run.usage.model_calls for run in home.runs()) == paid


def test_asking_twice_on_purpose_is_asking_twice(home: Home) -> None:
    """Two equal calls in one node are two, each said again for itself."""
    model, fails = Replies(replies=[told("hm")]), [False, True]
    agent = thinking(home, model, RECORDED, fails, twice=True)
    with pytest.raises(ConnectionRefusedError):
        agent.invoke({"messages": []}, thread="t")

    agent.continue_run("t")

    assert len(model.shown) == 2


def test_another_turn_asks_anew(home: Home) -> None:
    """What was said in one step is not said again in the next, nor on another thread."""
    model, fails = Replies(replies=[told("hm")]), [False, False, False]
    agent = thinking(home, model, RECORDED, fails)

    agent.invoke({"messages": []}, thread="t")
    agent.invoke({"messages": []}, thread="t")
    agent.invoke({"messages": []}, thread="u")

    assert len(model.shown) == 3


def test_the_cache_that_was_there_is_asked_too(home: Home) -> None:
    """Outside a run it is asked alone, and inside where nothing is recorded."""
    set_llm_cache(InMemoryCache())
    model, fails = Replies(replies=[told("hm")]), [False, False]
    agent = thinking(home, model, RECORDED, fails)

    agent.invoke({"messages": []}, thread="t")
    agent.invoke({"messages": []}, thread="u")
    model.invoke([HumanMessage("think")])

    assert len(model.shown) == 1


class Numbered(Replies):
    """Says something else each time."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        result = super()._generate(messages, *args, **kwargs)
        result.generations[0].message.content = f"answer {len(self.shown)}"
        return result


def test_equal_calls_of_two_tasks_are_each_said_again_for_themselves(home: Home) -> None:
    """Two nodes ask the same at once: neither gets the other's answer, not even when both run again."""
    model, fails = Numbered(replies=[told("hm")]), ["a", "b"]
    first: dict[str, str] = {}

    def node(name: str) -> Any:
        def ask(state: MessagesState) -> Any:
            said = model.invoke([HumanMessage("think")])
            first.setdefault(name, str(said.content))
            if name in fails:
                fails.remove(name)
                raise ConnectionRefusedError("after the model")
            return {"messages": [AIMessage(said.content, name=name)]}

        return ask

    graph = StateGraph(MessagesState).add_node("a", node("a")).add_node("b", node("b"))
    graph.add_edge(START, "a").add_edge(START, "b")
    agent = home.protect(graph.compile(), settings=RECORDED)
    with pytest.raises(ConnectionRefusedError):
        agent.invoke({"messages": []}, thread="t")

    out = agent.continue_run("t")

    assert {m.name: m.content for m in out["messages"]} == first
    assert len(model.shown) == 2


def test_a_call_that_failed_is_made_again(home: Home) -> None:
    """Nothing was said, so nothing is said again; what is said then is recorded."""
    fails, down = [False, True], [True]

    class Flaky(Replies):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if down and down.pop():
                raise ConnectionRefusedError("no line")
            return super()._generate(messages, *args, **kwargs)

    model = Flaky(replies=[told("hm")])
    agent = thinking(home, model, RECORDED, fails)
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            agent.invoke({"messages": []}, thread="t", on_unfinished="continue")

    agent.continue_run("t")

    assert len(model.shown) == 1


def test_what_is_said_again_is_streamed_as_one_message(home: Home) -> None:
    """Whoever watches tokens sees the answer, once."""
    model, fails = Replies(replies=[told("hm")]), [False, True]
    agent = thinking(home, model, RECORDED, fails)
    with pytest.raises(ConnectionRefusedError):
        agent.invoke({"messages": []}, thread="t")

    parts = list(agent.stream(None, config("t"), stream_mode="messages"))

    assert [message.content for message, _ in parts] == ["hm"]
    assert len(model.shown) == 1


def test_a_lost_lease_stops_the_run_behind_the_model(home: Home) -> None:
    """What a model said to a worker that was given up is recorded by nobody, and the node does not go on with it."""
    went_on: list[bool] = []

    class Slow(Replies):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            home.store.perform(home.store.bury_worker(keeper_of(agent).worker().worker_id))
            home.neighbour().takes(home.runs()[0])
            return super()._generate(messages, *args, **kwargs)

    model = Slow(replies=[told("hm")])

    def n(state: MessagesState) -> Any:
        try:
            model.invoke([HumanMessage("think")])
        except ConnectionError:
            return {}
        went_on.append(True)
        return {}

    graph = StateGraph(MessagesState).add_node("n", n).add_edge(START, "n").compile()
    agent = home.protect(graph, settings=RECORDED)

    with pytest.raises(LeaseLostError):
        agent.invoke({"messages": []}, thread="t")

    assert went_on == []


class Counted(Replies):
    """A model whose every call leaves a line outside."""

    outside: Any = None

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.outside.happens("asked")
        return super()._generate(messages, *args, **kwargs)


def life(folder: str) -> list[str]:
    with home_in(folder) as home:
        model = Counted(replies=[told("hm")], outside=home.outside)

        def n(state: MessagesState) -> dict[str, Any]:
            said = model.invoke([HumanMessage("think")])
            if home.outside.once("died"):
                die()
            return {"messages": [said]}

        graph = StateGraph(MessagesState).add_node("n", n).add_edge(START, "n").compile()
        agent = home.protect(graph, settings=RECORDED)
        out = agent.invoke({"messages": []}, thread="t", on_unfinished="continue")
        return [str(m.content) for m in out["messages"]]


def test_a_killed_node_does_not_pay_again(tmp_path: Path) -> None:
    """Killed right behind the model: the next process is told what it said."""
    live_and_die(life, str(tmp_path))

    assert live(life, str(tmp_path)) == ["hm"]
    with home_in(tmp_path) as home:
        assert home.outside.times("asked") == 1
