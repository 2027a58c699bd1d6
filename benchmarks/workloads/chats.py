"""One long conversation: held by a worker, gone on with by a new process, read as it is, read whole."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from benchmarks.corpus import load_corpus
from benchmarks.graphs import Chat
from benchmarks.messages import Turn, new_bytes, turn_number, turns
from benchmarks.nosaver import NoSaver
from benchmarks.spec import Measured, Spec
from benchmarks.subjects import SUBJECTS, Graph, stored_bytes
from benchmarks.workloads.common import peak_bytes, seconds, thread

MARKS = (50, 100, 200, 500, 1000)
"""Turns at which a chat is weighed; where it ends, it is weighed too."""
WINDOW_MIN = 20


def chat(spec: Spec, folder: Path, seed: int, round: int) -> Measured:
    """A long-lived worker holds a whole conversation. Leaves the database."""
    told = list(islice(turns(load_corpus(), seed, spec.text), spec.turns))
    subject, script = SUBJECTS[spec.saver], Chat()
    took: list[float] = []
    with subject.open(folder) as session, subject.timed_puts() as puts:
        agent = session.compiled(script.builder(spec.delta))
        sizes = {0: stored_bytes(folder)}
        for number, script.turn in enumerate(told, 1):
            took.append(seconds(lambda: _ask(agent, script.turn)))
            if number in MARKS or number == spec.turns:
                sizes[number] = stored_bytes(folder)
    a_turn = len(puts) // len(took)
    marks = [number for number in sizes if number]
    return {
        "supersteps": a_turn,
        "bytes": sizes,
        "new_bytes": {mark: sum(len(new_bytes(turn)) for turn in told[:mark]) for mark in marks},
        "least_bytes": len(zstandard.compress(b"".join(map(new_bytes, told)), 19)) if spec.text == "random" else None,
        "turn_s": {mark: _typical(took, mark) for mark in marks},
        "put_s": {mark: _typical(puts, mark * a_turn, a_turn) for mark in marks},
        "total_s": sum(took),
        "peak_bytes": peak_bytes(),
    }


def turn(spec: Spec, folder: Path, seed: int, round: int) -> Measured:
    """
    A new process takes one more turn of a conversation that is there.

    The floor's process is given the state beforehand, out of stock's database: it reads nothing.
    """
    subject, script = SUBJECTS[spec.saver], Chat()
    script.turn = turn_number(load_corpus(), seed, spec.turns + round + 1, spec.text)
    start = time.perf_counter()
    with subject.open(folder) as session, subject.timed_puts() as puts:
        agent = session.compiled(script.builder(spec.delta))
        open_s = time.perf_counter() - start
        if isinstance(session.saver, NoSaver):
            _fill(session.saver, folder)
        turn_s = seconds(lambda: _ask(agent, script.turn))
    return {"supersteps": len(puts), "open_s": open_s, "turn_s": turn_s, "total_s": open_s + turn_s}


def head(spec: Spec, folder: Path, seed: int, round: int) -> Measured:
    """Leaves what `load` reads of a long conversation in stock's plain form: the last state, not all those before."""
    script = Chat()
    with SUBJECTS["nosaver"].open(folder) as floor, SUBJECTS[spec.saver].open(folder) as session:
        agent = floor.compiled(script.builder(spec.delta))
        for script.turn in islice(turns(load_corpus(), seed, spec.text), spec.turns):
            _ask(agent, script.turn)
        assert floor.saver is not None
        assert session.saver is not None
        last = floor.saver.get_tuple(thread())
        assert last is not None
        session.saver.put(_before(last), last.checkpoint, last.metadata, last.checkpoint["channel_versions"])
    return {"bytes": stored_bytes(folder)}


def load(spec: Spec, folder: Path, seed: int, round: int) -> Measured:
    """A new process reads the newest state of a conversation."""
    start = time.perf_counter()
    with SUBJECTS[spec.saver].open(folder) as session:
        agent = session.compiled(Chat().builder(spec.delta))
        open_s = time.perf_counter() - start
        state_s = seconds(lambda: _must_hold(agent.get_state(thread()).values["messages"], spec.turns * 4))
    return {"open_s": open_s, "state_s": state_s, "total_s": open_s + state_s}


def history(spec: Spec, folder: Path, seed: int, round: int) -> Measured:
    """A new process reads a conversation's whole history, and keeps all of it."""
    with SUBJECTS[spec.saver].open(folder) as session:
        agent = session.compiled(Chat().builder(spec.delta))
        before, start = peak_bytes(), time.perf_counter()
        states = list(agent.get_state_history(thread()))
        history_s = time.perf_counter() - start
    _must_hold(states, spec.turns * 5)
    return {"history_s": history_s, "peak_bytes": peak_bytes(), "peak_bytes_before": before}


def _before(last: CheckpointTuple) -> RunnableConfig:
    """Where `last` is to be put: on its thread, after nothing."""
    return {"configurable": {**last.config["configurable"], "checkpoint_id": None}}


def _must_hold(found: Sequence[Any], number: int) -> None:
    """At least so many, or what was timed was not the whole."""
    if len(found) < number:
        raise RuntimeError(f"{len(found)} were found where there are {number}")


def _ask(agent: Graph, turn: Turn) -> None:
    agent.invoke({"messages": [turn.question]}, thread(), durability="sync")


def _fill(floor: NoSaver, folder: Path) -> None:
    """With the newest checkpoint of stock's thread, and those before that its channels are rebuilt from."""
    needed = []
    with SUBJECTS["stock"].open(folder) as session:
        assert session.saver is not None
        for found in session.saver.list({"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}):
            needed.append(found)
            if "messages" in found.checkpoint["channel_values"]:
                break
    for found in reversed(needed):
        floor.adopt(found)


def _typical(seconds: list[float], end: int, each: int = 1) -> float:
    """The median of the last tenth before `end`, but of twenty turns at least. `each`: how many a turn has."""
    window = max(WINDOW_MIN * each, end // 10)
    return statistics.median(seconds[max(0, end - window) : end])
