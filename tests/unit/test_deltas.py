"""
Channels of messages and DeltaChannels: ids that stay, snapshots as often as was set, and no load from half a chain.

What a killed process leaves behind is looked at by the next one: the lives are processes of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from sqlite3 import connect
from typing import Annotated, Any, TypedDict

import pytest
from deepagents._messages_reducer import _messages_delta_reducer as deepagents_own
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.errors import NodeError
from langgraph.graph import START, StateGraph, add_messages
from langgraph.graph.message import _messages_delta_reducer
from langgraph.types import Command, Overwrite, Send, StateUpdate

from agents import Home, config, home_in
from lives import HANGS_S, die, die_at, live, live_and_die
from ninelives import LackOfSnapshotFrequency
from ninelives.config import GraphStateSettings, Settings, StateSettings
from ninelives.model import ONE_USER, StoredCheckpoint
from ninelives.saver import Saver

# -- ids: what may be written, and to what -------------------------------------------------------------------------


def newest(left: list[Any], right: Any) -> list[Any]:
    """A reducer of the user's own around LangGraph's."""
    return [] if right == "clear" else list(add_messages(left, right))[-50:]


langgraph_reducer: Any = _messages_delta_reducer
deepagents_reducer: Any = deepagents_own
REDUCED: dict[str, Any] = {
    "add": add_messages,
    "newest": newest,
    "delta": DeltaChannel(langgraph_reducer),
    "deep": DeltaChannel(deepagents_reducer),
}
KINDS: dict[str, Callable[[], Any]] = {
    "word": lambda: "hi",
    "pair": lambda: ("ai", "hi"),
    "dict": lambda: {"role": "ai", "content": "hi"},
    "message": lambda: AIMessage("hi"),
    "words": lambda: ["hi", "ho"],
    "pairs": lambda: [("ai", "hi"), ("ai", "ho")],
    "dicts": lambda: [{"role": "ai", "content": "hi"}, {"type": "ai", "content": "ho", "id": ""}],
    "messages": lambda: [AIMessage("hi"), AIMessage("ho")],
    "chunks": lambda: [AIMessageChunk(content="hi")],
    "removed": lambda: [AIMessage("hi"), AIMessage("ho", id="ho"), RemoveMessage(id="ho")],
    "over_pairs": lambda: Overwrite([("ai", "hi"), AIMessage("ho")]),
    "over_dicts": lambda: {"__overwrite__": [{"role": "ai", "content": "hi"}, "ho"]},
}
# A word alone may mean something else to a reducer of the user's own.
CHANNELS = [f"{reduced}_{kind}" for reduced in REDUCED for kind in KINDS if (reduced, kind) != ("newest", "word")]
# LangGraph's `add_messages` refuses to remove what it does not know yet.
CHANNELS = [name for name in CHANNELS if not name.endswith("removed") or name.startswith(("delta", "deep"))]

Talk: Any = TypedDict(  # type: ignore[misc]
    "Talk", {name: Annotated[list[AnyMessage], REDUCED[name.partition("_")[0]]] for name in CHANNELS}, total=False
)


def all_kinds() -> dict[str, Any]:
    return {name: KINDS[name.partition("_")[2]]() for name in CHANNELS}


def ids(values: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: [getattr(message, "id", None) for message in values.get(name, [])] for name in CHANNELS}


async def stuck(state: Any) -> None:
    """A node that its process dies in, so that the step has no checkpoint yet."""
    await asyncio.sleep(HANGS_S)


def graph_of(speak: Any, beside: Any = lambda state: {}) -> Any:
    builder = StateGraph(Talk)
    builder.add_node("speak", speak)
    builder.add_node("beside", beside)
    builder.add_edge(START, "speak")
    builder.add_edge(START, "beside")
    return builder.compile()


def loaded(home: Home, agent: Any, thread: str = "t") -> list[dict[str, list[Any]]]:
    """The ids as two readers see them."""
    again = home.protect(agent.__dict__["_ninelives"].plan.graph)
    return [ids(graph.get_state(config(thread)).values) for graph in (agent, again)]


def written_ids(writes: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    return {channel: [message.id for message in kept(value)] for channel, value in writes if channel in CHANNELS}


def kept(value: Any) -> list[BaseMessage]:
    value = value.value if isinstance(value, Overwrite) else value
    messages = value if isinstance(value, list) else [value]
    assert all(isinstance(message, BaseMessage) for message in messages), value
    gone = {message.id for message in messages if isinstance(message, RemoveMessage)}
    return [message for message in messages if message.id not in gone]


def writes_of(home: Home) -> list[tuple[str, Any]]:
    """Of the steps that no checkpoint has ended yet."""
    heads = home.store.perform(home.store.list_heads(ONE_USER, "t"))
    return [(channel, value) for head in heads for _, channel, value in head.writes]


SPEAKS: dict[str, Any] = {"node": lambda state: all_kinds(), "command": lambda state: Command(update=all_kinds())}


def life_of_talk(folder: str, how: str) -> Any:
    with home_in(folder) as home:
        agent = home.protect(graph_of(SPEAKS[how], stuck))
        die_at(home.store, "put_writes", "commit", "after", 2)
        agent.invoke({}, thread="t")


@pytest.mark.crash
@pytest.mark.parametrize("how", SPEAKS)
def test_a_message_has_the_id_it_was_recorded_with(tmp_path: Path, how: str) -> None:
    """Killed after a write is recorded and before the next checkpoint, every message comes back with the same id."""
    live_and_die(life_of_talk, tmp_path, how)

    with home_in(tmp_path) as home:
        written = written_ids(writes_of(home))
        agent = home.protect(graph_of(SPEAKS[how]))
        out = ids(agent.continue_run("t"))
        first, second = loaded(home, agent)

    assert sorted(written) == sorted(CHANNELS)
    assert {name: found for name, found in out.items() if found != written[name] or not all(found)} == {}
    assert out == first == second


def life_of_asker(folder: str, as_command: bool) -> Any:
    with home_in(folder) as home:
        agent = home.protect(graph_of(lambda state: {}))
        if as_command:
            agent.invoke({}, thread="t")
        die_at(home.store, "start_run", "commit", "after", 1)
        agent.invoke(Command(update=all_kinds()) if as_command else all_kinds(), thread="t")


@pytest.mark.crash
@pytest.mark.parametrize("as_command", [False, True])
def test_an_input_has_the_ids_it_was_accepted_with(tmp_path: Path, as_command: bool) -> None:
    """A request is stored with the ids of its messages, whoever carries it out."""
    live_and_die(life_of_asker, tmp_path, as_command)

    with home_in(tmp_path) as home:
        given = home.runs()[-1].spec.input
        accepted = written_ids((given.update if as_command else given).items())
        agent = home.protect(graph_of(lambda state: {}))
        out = ids(agent.continue_run("t"))
        first, second = loaded(home, agent)

    assert {name: found for name, found in out.items() if found != accepted[name] or not all(found)} == {}
    assert out == first == second


@pytest.mark.parametrize("how", [*SPEAKS, "input"])
def test_a_message_has_one_id_in_a_life_without_a_kill(home: Home, how: str) -> None:
    """What the caller is given is what is loaded, and nothing lacks an id."""
    agent = home.protect(graph_of(SPEAKS.get(how, lambda state: {})))

    out = ids(agent.invoke(all_kinds() if how == "input" else {}, thread="t"))

    assert [name for name, found in out.items() if not found or not all(found)] == []
    assert loaded(home, agent) == [out, out]


def test_an_edit_gives_ids(home: Home) -> None:
    """`update_state` and `bulk_update_state` give ids that every reader sees."""
    agent = home.protect(graph_of(lambda state: {}))
    agent.invoke({}, thread="one")
    agent.invoke({}, thread="many")

    agent.update_state(config("one"), all_kinds(), as_node="speak")
    agent.bulk_update_state(config("many"), [[StateUpdate(all_kinds(), as_node="speak")]])

    for thread in ("one", "many"):
        first, second = loaded(home, agent, thread)
        assert [name for name, found in first.items() if not found or not all(found)] == []
        assert first == second


def test_what_the_caller_passed_is_left_as_it_was(home: Home) -> None:
    """An input's own messages and lists are not touched."""
    agent = home.protect(graph_of(lambda state: {}))
    mine = AIMessage("hi")
    given: Any = {"add_messages": [mine], "deep_pairs": [("ai", "hi")]}

    agent.invoke(given, thread="t")

    assert mine.id is None
    assert given == {"add_messages": [mine], "deep_pairs": [("ai", "hi")]}


def test_a_word_alone_keeps_the_meaning_that_a_reducer_gives_it(home: Home) -> None:
    """A reducer that only calls `add_messages` is handed a lone string as it is."""

    def speak(state: Any) -> Any:
        return {"newest_words": "clear"} if state["newest_words"] else {"newest_words": ["hi"]}

    agent = home.protect(graph_of(speak))
    agent.invoke({"newest_words": ["first"]}, thread="t")

    assert agent.get_state(config()).values["newest_words"] == []


def test_what_is_no_message_fails_where_it_always_has(home: Home) -> None:
    """What cannot be made a message is left to the reducer, whose error the caller gets."""
    agent = home.protect(graph_of(lambda state: {"add_word": [{"no": "message"}]}))

    with pytest.raises(Exception, match="MESSAGE_COERCION_FAILURE"):
        agent.invoke({}, thread="t")


# -- ids: other places that write ---------------------------------------------------------------------------------


class Chat(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]


def chat(*nodes: tuple[str, Any, Any], **compiled: Any) -> Any:
    """A graph of (name, node, error handler), all at once."""
    builder: Any = StateGraph(Chat)
    for name, node, handler in nodes:
        builder.add_node(name, node, error_handler=handler)
        builder.add_edge(START, name)
    return builder.compile(**compiled)


def says(state: Any) -> Any:
    return {"messages": [("ai", "hi")]}


def calls(beside: Any = lambda state: {}) -> Any:
    """A node that calls a graph, which LangGraph does not list."""
    graphs = {"inner": chat(("say", says, None), ("beside", beside, None))}

    async def call(state: Any) -> Any:
        return await graphs["in" + "ner"].ainvoke({"messages": []})

    return chat(("call", call, None))


def fails(beside: Any = lambda state: {}) -> Any:
    """A node that fails, and its error handler."""

    def failing(state: Any) -> Any:
        raise ValueError("no")

    def handler(state: Any, error: NodeError) -> Any:
        return says(state)

    return chat(("failing", failing, handler), ("beside", beside, None))


CHATS: dict[str, Any] = {"a graph that is called": calls, "an error handler": fails}


def life_of_chat(folder: str, who: str) -> Any:
    with home_in(folder) as home:
        agent = home.protect(CHATS[who](stuck))
        die_at(home.store, "put_writes", "commit", "after", 3)
        agent.invoke({}, thread="t")


@pytest.mark.crash
@pytest.mark.parametrize("who", CHATS)
def test_whoever_writes_gives_ids(tmp_path: Path, who: str) -> None:
    """Also in a nested graph that LangGraph does not list, and from an error handler, a recorded message keeps it."""
    live_and_die(life_of_chat, tmp_path, who)

    with home_in(tmp_path) as home:
        (recorded,) = [value[0].id for channel, value in writes_of(home) if channel == "messages" and value]
        out = home.protect(CHATS[who]()).continue_run("t")

    assert [message.id for message in out["messages"]] == [recorded]


def sent_chat(home: Home | None = None) -> Any:
    def send(state: Chat) -> Any:
        said = AIMessage("hi")
        return Command(goto=[Send("echo", {"messages": [said]}), Send("echo", {"messages": [said]})])

    def echo(state: Chat) -> Any:
        if home and home.outside.once("death"):
            die()
        return {"messages": state["messages"]}

    builder = StateGraph(Chat)
    builder.add_node("send", send, destinations=("echo",))
    builder.add_node("echo", echo)
    builder.add_edge(START, "send")
    return builder.compile()


def life_of_sent(folder: str) -> Any:
    with home_in(folder) as home:
        return home.protect(sent_chat(home)).invoke({}, thread="t")


@pytest.mark.crash
def test_one_message_sent_to_two_nodes_stays_one(tmp_path: Path) -> None:
    """Both write it on, and it is the same message: also when it was loaded in between, as two objects."""
    live_and_die(life_of_sent, tmp_path)

    with home_in(tmp_path) as home:
        out = home.protect(sent_chat()).continue_run("t")

    assert [message.content for message in out["messages"]] == ["hi"]


# -- snapshots ---------------------------------------------------------------------------------------------------


def joined(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *(word for write in writes for word in write)]


class Notes(TypedDict, total=False):
    notes: Annotated[list[str], DeltaChannel(joined, snapshot_frequency=50)]


def notes_of(steps: int, *, inner: Any = None, called: Any = None, **compiled: Any) -> Any:
    builder = StateGraph(Notes)
    names = [f"n{i}" for i in range(steps)]
    for name in names:
        builder.add_node(name, called or inner or (lambda state, name=name: {"notes": [name]}))
    for start, end in zip([START, *names], names, strict=False):
        builder.add_edge(start, end)
    return builder.compile(**compiled)


def kept_as(frequency: Any, graph: str = "agent", **more: Any) -> Settings:
    return Settings(state=StateSettings(graphs={graph: GraphStateSettings(frequency)}, **more))


def checkpoints(home: Home, ns: str = "", thread: str = "t") -> list[StoredCheckpoint]:
    """Oldest first; `ns` is how the namespace begins."""
    found = home.store.perform(home.store.list_checkpoints(ONE_USER, thread_id=thread, ns=None))[::-1]
    return [each for each in found if each.ns == ns or (ns and each.ns.startswith(ns))]


def snapshots(found: Sequence[StoredCheckpoint]) -> list[bool]:
    return ["notes" in each.checkpoint["channel_values"] for each in found]


def replayed(home: Home, each: StoredCheckpoint) -> int:
    act = home.store.delta_history(ONE_USER, each.thread_id, each.ns, each.checkpoint_id, ["notes"])
    return len(home.store.perform(act)["notes"][0])


def test_a_snapshot_comes_as_often_as_was_set(home: Home) -> None:
    """Every second update is stored whole, whatever the channel says; the caller's own graph is not changed."""
    graph = notes_of(5)
    agent = home.protect(graph, settings=kept_as(2))

    out = agent.invoke({"notes": ["in"]}, thread="t")

    assert snapshots(checkpoints(home)) == [False, False, True, False, True, False, True]
    assert graph.channels["notes"].snapshot_frequency == 50
    assert agent.get_state(config()).values == out == {"notes": ["in", "n0", "n1", "n2", "n3", "n4"]}


def test_full_means_that_nothing_is_replayed(home: Home) -> None:
    """Each checkpoint that changes the channel holds it whole, so none is loaded by replaying updates."""
    agent = home.protect(notes_of(4), settings=kept_as("full"))

    agent.invoke({"notes": ["in"]}, thread="t")
    agent.invoke({"notes": ["again"]}, thread="t")
    agent.update_state(config(), {"notes": ["edited"]}, as_node="n3")

    found = [each for each in checkpoints(home) if "notes" in each.checkpoint["channel_versions"]]
    held = [each for each, whole in zip(found, snapshots(found), strict=True) if not whole]
    assert [replayed(home, each) for each in held] == [0] * len(held)
    assert snapshots(found)[-1]
    assert len(agent.get_state(config()).values["notes"]) == 11


def test_other_graphs_keep_their_own(home: Home) -> None:
    """A table is for the graph whose name it has."""
    home.protect(notes_of(5), settings=kept_as(2, graph="another")).invoke({"notes": ["in"]}, thread="t")

    assert not any(snapshots(checkpoints(home))[2:])


@pytest.mark.parametrize("how", ["node", "called", "held"])
def test_graphs_inside_are_kept_as_the_one_around_them(home: Home, how: str) -> None:
    """Also one that a function calls, or finds in a dict, where LangGraph sees none."""
    inner = notes_of(4, name="inner")
    found = {"inner": inner}

    async def call(state: Any) -> Any:
        graph = inner if how == "called" else found["in" + "ner"]
        return {"notes": (await graph.ainvoke({"notes": ["deep"]}))["notes"]}

    outer = notes_of(1, inner=inner) if how == "node" else notes_of(1, called=call)
    home.protect(outer, settings=kept_as(2)).invoke({"notes": ["in"]}, thread="t")

    assert snapshots(checkpoints(home, "n0:")) == [False, False, True, False, True, False]
    assert inner.channels["notes"].snapshot_frequency == 50


@pytest.mark.parametrize(("before", "after"), [(50, "full"), ("full", 50), (2, 3)])
def test_a_thread_goes_on_with_another_frequency(home: Home, before: Any, after: Any) -> None:
    """What was stored with one frequency is loaded and gone on with under another."""
    first = home.protect(notes_of(3), settings=kept_as(before)).invoke({"notes": ["in"]}, thread="t")
    agent = home.protect(notes_of(3), settings=kept_as(after))

    assert agent.get_state(config()).values == first
    second = agent.invoke({"notes": ["again"]}, thread="t")
    assert second["notes"] == [*first["notes"], "again", "n0", "n1", "n2"]
    assert agent.get_state(config()).values == second


# -- no load from half a chain, nor from too long a one --------------------------------------------------------------


def deep(home: Home, *, replay_max: int, frequency: Any = None, steps: int = 6) -> Any:
    return home.protect(notes_of(steps), settings=kept_as(frequency, replay_max=replay_max))


def test_a_chain_that_is_too_long_is_not_loaded(home: Home) -> None:
    """A call is refused before it runs anything, and so is a look at the state; the text says what to set."""
    deep(home, replay_max=100).invoke({"notes": ["in"]}, thread="t")
    agent = deep(home, replay_max=5)

    with pytest.raises(LackOfSnapshotFrequency) as refused:
        agent.invoke({"notes": ["again"]}, thread="t")
    with pytest.raises(LackOfSnapshotFrequency):
        agent.get_state(config())

    assert (refused.value.thread_id, refused.value.channel, refused.value.depth) == ("t", "notes", 7)
    for said in ("'notes'", "7 updates", "replay_max = 7", "snapshot_frequency = 5", '"full"', "[state.agent]"):
        assert said in str(refused.value)
    assert home.statuses() == ["done", "failed"]


def test_what_the_error_says_helps(home: Home) -> None:
    """With the higher limit the thread loads; with the frequency its next update is stored whole."""
    deep(home, replay_max=100).invoke({"notes": ["in"]}, thread="t")

    out = deep(home, replay_max=7, frequency=5).invoke({"notes": ["again"]}, thread="t")

    assert len(out["notes"]) == 14
    assert deep(home, replay_max=5).get_state(config()).values == out


def test_a_chain_inside_counts_too(home: Home) -> None:
    """A subgraph with a memory of its own is refused when it is loaded."""
    inner = notes_of(6, checkpointer=True, name="inner")
    outer = notes_of(1, inner=inner)
    home.protect(outer).invoke({"notes": ["in"]}, thread="t")

    with pytest.raises(LackOfSnapshotFrequency, match="'notes'"):
        home.protect(outer, settings=kept_as(None, replay_max=3)).invoke({"notes": ["again"]}, thread="t")


def test_a_channel_that_few_supersteps_touch_is_not_deep(home: Home) -> None:
    """What counts is the updates that are replayed, not the checkpoints between them."""
    builder = StateGraph(Notes)
    for i in range(8):
        builder.add_node(f"n{i}", lambda state: {})
        builder.add_edge(f"n{i - 1}" if i else START, f"n{i}")
    agent = home.protect(builder.compile(), settings=kept_as(None, replay_max=1))

    agent.invoke({"notes": ["in"]}, thread="t")

    assert agent.get_state(config()).values == {"notes": ["in"]}


@pytest.mark.parametrize("call", ["invoke", "get_state"])
def test_a_chain_with_a_hole_is_not_loaded(home: Home, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Where updates are gone, and no snapshot is there in their place, there is no emptier state, but an error."""
    agent = home.protect(notes_of(6))
    agent.invoke({"notes": ["in"]}, thread="t")
    with_a_hole(monkeypatch, seed=False)

    with pytest.raises(LackOfSnapshotFrequency) as refused:
        agent.get_state(config()) if call == "get_state" else agent.invoke({"notes": ["again"]}, thread="t")

    for said in ("'notes'", "7 updates", "6 writes", "checkpoint_id", "snapshot_frequency = 20", "[state.agent]"):
        assert said in str(refused.value)


def test_a_chain_that_was_shortened_by_a_snapshot_is_loaded(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may put a snapshot where there were updates: what is before it is not missed."""
    agent = home.protect(notes_of(6))
    agent.invoke({"notes": ["in"]}, thread="t")
    with_a_hole(monkeypatch, seed=True)

    assert agent.get_state(config()).values["notes"][0] == "a snapshot"


def with_a_hole(monkeypatch: pytest.MonkeyPatch, *, seed: bool) -> None:
    def holed(history: Any) -> Any:
        begins = {"seed": ["a snapshot"]} if seed else {}
        return {name: {"writes": found["writes"][1:], **begins} for name, found in history.items()}

    told, atold = Saver.get_delta_channel_history, Saver.aget_delta_channel_history

    async def aholed(self: Saver, **asked: Any) -> Any:
        return holed(await atold(self, **asked))

    monkeypatch.setattr(Saver, "get_delta_channel_history", lambda self, **asked: holed(told(self, **asked)))
    monkeypatch.setattr(Saver, "aget_delta_channel_history", aholed)


def life_of_notes(folder: str, frequency: Any, nth: int | None) -> Any:
    with home_in(folder) as home:
        agent = home.protect(notes_of(6), settings=kept_as(frequency))
        if nth:
            die_at(home.store, "put_checkpoint", "commit", "after", nth)
            return agent.invoke({"notes": ["in"]}, thread="t")
        return agent.continue_run("t")


@pytest.mark.crash
@pytest.mark.parametrize("frequency", [None, 2, "full"])
@pytest.mark.parametrize("nth", [2, 5])
def test_killed_anywhere_no_chain_is_taken_for_broken(tmp_path: Path, frequency: Any, nth: int) -> None:
    """The checks let pass whatever a killed process leaves."""
    live_and_die(life_of_notes, tmp_path, frequency, nth)

    assert len(live(life_of_notes, tmp_path, frequency, None)["notes"]) == 7


# -- entries that a task edits ------------------------------------------------------------------------------------


def merged(files: dict[str, str], writes: Sequence[dict[str, str]]) -> dict[str, str]:
    for write in writes:
        files = {**files, **write}
    return files


class Folder(TypedDict):
    files: Annotated[dict[str, str], DeltaChannel(merged, dict, snapshot_frequency=1000)]


def editing(home: Home) -> Any:
    """An agent that changes a line of its file in each turn."""

    def edit(state: Folder) -> dict[str, Any]:
        lines = state["files"]["notes.txt"].splitlines()
        lines[len(lines) // 2] = f"changed when {len(lines)} lines were there, {token_hex(8)}"
        return {"files": {"notes.txt": "\n".join([*lines, token_hex(8)])}}

    builder = StateGraph(Folder)
    builder.add_node("edit", edit)
    builder.add_edge(START, "edit")
    return home.protect(builder.compile(), name="editor")


def content_bytes(home: Home) -> int:
    with connect(home.folder / "agents.db") as db:
        return int(db.execute("select sum(length(frame)) from pack").fetchone()[0])


@pytest.mark.parametrize("again", [False, True], ids=["in one process", "in a new one each turn"])
def test_an_edited_entry_costs_its_edit_between_snapshots_too(tmp_path: Path, again: bool) -> None:
    """No checkpoint holds a DeltaChannel between its snapshots; what a task writes is kept by what it wrote before."""
    begun = {"files": {"notes.txt": "\n".join(token_hex(16) for _ in range(600))}}
    with home_in(tmp_path) as home:
        agent = editing(home)
        agent.invoke(begun, config("t"))
        before = content_bytes(home)
        for _ in range(0 if again else 20):
            agent.invoke({"files": {}}, config("t"))
    for _ in range(20 if again else 0):
        with home_in(tmp_path) as home:
            editing(home).invoke({"files": {}}, config("t"))
    with home_in(tmp_path) as home:
        assert len(editing(home).get_state(config("t")).values["files"]["notes.txt"].splitlines()) == 621
        assert content_bytes(home) - before < 20 * 500
