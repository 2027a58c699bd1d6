"""
Questions of a graph that keeps nothing (`checkpointer=False`): it begins anew whenever it is gone on with.

LangGraph names its tasks by the random id of a checkpoint that is never stored, so that an answer by id would never
find the question again. Here a task is named by its place: the graph it is in, the superstep, and the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid5

from ninelives._langgraph.private import (
    CONF,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_SCRATCHPAD,
    NS_END,
    NS_SEP,
    PregelLoop,
    PregelScratchpad,
    interrupt_id_of,
)

PLACES = UUID("5b1cf8b0-6f0c-4d1a-9d57-1f5e3f1f6a52")


def name_by_place(loop: PregelLoop, answers: Mapping[str, Any]) -> None:
    """
    Give the tasks that are about to run names that the next attempt gives them again, and what was answered there.

    Args:
        answers: accepted answers, by interrupt id.
    """
    for task in loop.tasks.values():
        conf = task.config[CONF] if task.config else None
        if conf is None or CONFIG_KEY_CHECKPOINT_NS not in conf:
            continue
        outer = str(conf[CONFIG_KEY_CHECKPOINT_NS]).rpartition(NS_SEP)[0]
        place = uuid5(PLACES, repr((outer, loop.step, task.name, task.path[:3])))
        ns = conf[CONFIG_KEY_CHECKPOINT_NS] = f"{outer}{NS_SEP}{task.name}{NS_END}{place}"
        given: list[Any] = []
        while (interrupt_id := interrupt_id_of(ns, len(given))) in answers:
            given.append(answers[interrupt_id])
        if given:
            shared: PregelScratchpad = conf[CONFIG_KEY_SCRATCHPAD]
            conf[CONFIG_KEY_SCRATCHPAD] = replace(shared, resume=given)
