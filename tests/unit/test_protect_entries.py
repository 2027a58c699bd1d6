"""A call's own entries: stored by allow-list, supplied anew, or asked for by name; no secret is kept by accident."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from agents import Home, Log, asks, config
from ninelives import MissingEntryError

SECRET = "sk-hush-hush-0123456789"


class Once:
    """Fails the first time, so that the run has to be continued."""

    def __init__(self) -> None:
        self.broken = True

    def __call__(self) -> None:
        if self.broken:
            self.broken = False
            raise ConnectionRefusedError("no")


def showing(home: Home, name: str, once: Once, **options: Any) -> Any:
    """An agent whose node logs the entry of this name, after having failed once."""

    def n(state: Log, config: RunnableConfig) -> Any:
        once()
        return {"log": [str(config["configurable"].get(name))]}

    graph = StateGraph(Log).add_node("n", n).add_edge(START, "n").add_edge("n", END)
    return home.protect(graph.compile(), **options)


def kept(home: Home) -> bytes:
    """All bytes that are on the disk."""
    return b"".join(path.read_bytes() for path in sorted(home.folder.rglob("*")) if path.is_file())


def test_an_allowed_entry_is_stored_with_the_run(home: Home) -> None:
    """`keep=`: a continuing call need not bring it; one that brings another uses that."""
    agent = showing(home, "language", Once(), keep=["language"])
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), config(language="en"))

    assert home.runs()[0].spec.configurable == {"language": "en"}
    assert agent.continue_run("t") == asks("en")


def test_a_supplied_entry_is_asked_for_anew(home: Home) -> None:
    """`supply=`: a function gives it in each process and call; it is never stored."""
    keys = iter([f"{SECRET}-1", f"{SECRET}-2"])
    agent = showing(home, "api_key", Once(), supply={"api_key": lambda: next(keys)})
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t")

    assert agent.continue_run("t")["log"] == [f"{SECRET}-2"]
    assert home.runs()[0].spec.withheld == ()


def test_an_unlisted_entry_is_used_and_required_again(home: Home) -> None:
    """It reaches the node, is not stored, and a continuing call that lacks it is refused by name; nothing is lost."""
    agent = showing(home, "tenant", Once())
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), config(tenant="acme"))
    assert home.runs()[0].spec.withheld == ("tenant",)

    with pytest.raises(
        MissingEntryError, match=r"needs 'tenant'.*Pass it again, allow it with.*store = .*supply"
    ) as told:
        agent.continue_run("t")

    assert told.value.names == ("tenant",)
    assert not home.runs()[0].held
    assert agent.continue_run("t", config(tenant="acme")) == asks("acme")


@pytest.mark.parametrize("where", ["configurable", "metadata", "context", "context object", "bound"])
def test_a_secret_is_nowhere_on_the_disk(home: Home, where: str) -> None:
    """An API key passed as an entry, in whatever place, is used and is in none of the store's files."""
    seen: list[Any] = []

    def n(state: Any, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        context = runtime.context
        seen.append(
            config["configurable"].get("api_key") or (context or {}).get("api_key", None)
            if not isinstance(context, Keys)
            else context.api_key
        )
        return {"log": ["n"]}

    schema = {"context": KeysToo, "context object": Keys}.get(where)
    graph = StateGraph(Log, context_schema=schema).add_node("n", n)  # type: ignore[arg-type]
    graph.add_edge(START, "n").add_edge("n", END)
    agent = home.protect(graph.compile())
    call: dict[str, Any] = {
        "configurable": {"config": config(api_key=SECRET)},
        # LangGraph copies plain entries of `configurable` into the metadata of its own accord.
        "metadata": {"config": {**config(api_key=SECRET), "metadata": {"api_key": SECRET}}},
        "context": {"thread": "t", "context": {"api_key": SECRET}},
        "context object": {"thread": "t", "context": Keys(SECRET)},
        "bound": {"thread": "t"},
    }[where]
    if where == "bound":
        agent = agent.with_config({"configurable": {"api_key": SECRET}})

    agent.invoke(asks("in"), **call)

    assert seen == [SECRET]
    assert SECRET.encode() not in kept(home)
    assert SECRET not in str(agent.get_state(config()).metadata)


@dataclass
class Keys:
    api_key: str


class KeysToo(TypedDict):
    api_key: str


def test_the_names_of_bound_entries_are_required_too(home: Home) -> None:
    """An entry bound by `with_config` is one that a later process must bring: by binding it, or in the call."""
    agent = showing(home, "tenant", Once())
    with pytest.raises(ConnectionRefusedError):
        agent.with_config({"configurable": {"tenant": "acme"}}).invoke(asks(), thread="t")

    with pytest.raises(MissingEntryError):
        agent.continue_run("t")

    assert agent.with_config({"configurable": {"tenant": "acme"}}).continue_run("t") == asks("acme")


class Who(TypedDict, total=False):
    name: str
    token: str


def greeting(home: Home, once: Once, **options: Any) -> Any:
    def n(state: Log, runtime: Runtime[Who]) -> Any:
        once()
        return {"log": [f"{runtime.context.get('name')} {runtime.context.get('token')}"]}

    graph = StateGraph(Log, context_schema=Who).add_node("n", n).add_edge(START, "n").add_edge("n", END)
    return home.protect(graph.compile(), **options)


def test_context_entries_follow_the_same_rules(home: Home) -> None:
    """Of a `context` the allowed fields are stored, supplied ones given anew, others asked for as `context.name`."""
    agent = greeting(home, Once(), keep=["name"])
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t", context={"name": "ada", "token": SECRET})

    with pytest.raises(MissingEntryError, match=r"needs 'context\.token'"):
        agent.continue_run("t")

    assert agent.continue_run("t", context={"token": "again"}) == asks("ada again")
    assert SECRET.encode() not in kept(home)


def test_a_supplied_context_entry_need_not_be_brought(home: Home) -> None:
    """`supply=` covers fields of the context."""
    agent = greeting(home, Once(), keep=["name"], supply={"token": lambda: "supplied"})
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), thread="t", context={"name": "ada"})

    assert agent.continue_run("t") == asks("ada supplied")


def test_langgraphs_own_entries_are_no_ones_secret(home: Home) -> None:
    """`thread_id`, `checkpoint_id` and the like are not asked for again."""
    agent = showing(home, "thread_id", Once())
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), config(checkpoint_ns=""))

    assert agent.continue_run("t") == asks("t")


def test_metadata_is_kept_and_comes_back(home: Home) -> None:
    """A call's own metadata is stored with the run and reaches the nodes of whoever continues it."""
    seen: list[Any] = []
    once = Once()

    def n(state: Log, config: RunnableConfig) -> Any:
        seen.append(config["metadata"].get("ticket"))
        once()
        return {"log": ["n"]}

    graph = StateGraph(Log).add_node("n", n).add_edge(START, "n").add_edge("n", END)
    agent = home.protect(graph.compile())
    with pytest.raises(ConnectionRefusedError):
        agent.invoke(asks(), {"metadata": {"ticket": "T-1"}}, thread="t")

    agent.continue_run("t")

    assert seen == ["T-1", "T-1"]
    assert agent.get_state(config()).metadata["ticket"] == "T-1"


def test_an_answer_needs_the_entries_too(home: Home) -> None:
    """The run that goes on with an answer is of the same chain: what its first call used must be there."""
    from langgraph.types import Command, interrupt

    def n(state: Log, config: RunnableConfig) -> Any:
        return {"log": [f"{interrupt('?')} {config['configurable'].get('tenant')}"]}

    graph = StateGraph(Log).add_node("n", n).add_edge(START, "n").add_edge("n", END)
    agent = home.protect(graph.compile(), keep=["language"])
    agent.invoke(asks(), config(tenant="acme", language="en"))

    with pytest.raises(MissingEntryError, match="'tenant'"):
        agent.invoke(Command(resume="yes"), thread="t")

    assert home.decisions() == []
    assert agent.invoke(Command(resume="yes"), config(tenant="acme")) == asks("yes acme")
    assert home.runs()[-1].spec.configurable == {"language": "en"}
