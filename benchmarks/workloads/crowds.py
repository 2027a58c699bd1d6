"""Much at once: many threads in one process, many tasks in one superstep."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from benchmarks.corpus import load_corpus
from benchmarks.graphs import Steps, fan_out, messages
from benchmarks.messages import Teller
from benchmarks.spec import Measured, Spec
from benchmarks.subjects import SUBJECTS, Graph
from benchmarks.workloads.common import seconds, thread

THREADS, STEPS = 200, 10
WIDTH, FAN_OUTS = 100, 5


def threads(spec: Spec, folder: Path, seed: int, round: int) -> Measured:
    """Many threads on one event loop, each a few steps long."""
    said = _said(seed, THREADS * STEPS)

    async def step(state: Any) -> dict[str, Any]:
        return {"messages": [next(said)], "taken": state["taken"] + 1}

    with SUBJECTS[spec.saver].open(folder) as session:
        agent = session.compiled(Steps(STEPS).builder(step, messages=messages(spec.delta)))
        total_s = session.run(_all_threads(agent))
    return {"total_s": total_s, "steps_per_s": THREADS * STEPS / total_s}


async def _all_threads(agent: Graph) -> float:
    start = time.perf_counter()
    question = {"messages": [HumanMessage("Go on.")], "taken": 0}
    await asyncio.gather(
        *(agent.ainvoke(question, thread(f"t{number}"), durability="sync") for number in range(THREADS))
    )
    return time.perf_counter() - start


def fanout(spec: Spec, folder: Path, seed: int, round: int) -> Measured:
    """Many tasks in one superstep; the first of the runs is a rehearsal."""
    said = _said(seed, WIDTH * (FAN_OUTS + 1))
    with SUBJECTS[spec.saver].open(folder) as session:
        agent = session.compiled(fan_out(WIDTH, said))
        took = [_fan_out_s(agent, number) for number in range(FAN_OUTS + 1)]
    return {"run_s": statistics.median(took[1:]), "first_s": took[0]}


def _fan_out_s(agent: Graph, number: int) -> float:
    return seconds(lambda: agent.invoke({"results": []}, thread(f"t{number}"), durability="sync"))


def _said(seed: int, number: int) -> Iterator[BaseMessage]:
    """So many answers of a model, made beforehand."""
    teller = Teller(load_corpus(), seed)
    return iter([AIMessage(teller.prose(400, 1500), **teller.from_model()) for _ in range(number)])
