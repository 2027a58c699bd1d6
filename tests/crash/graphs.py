"""
The four graphs that are killed everywhere: a chain of ten, a fan-out of eight, a deep agent, a bare tool node.

Their reducers append and add, so that whatever is applied twice shows in the end state.
"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from ninelives.chaos.workload import Workload, World
from ninelives.effects import Done, NotDone


class Log(TypedDict):
    log: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]


EMPTY: Any = {"log": [], "total": 0}


def charging(world: World, step: str) -> Any:
    """A declared act with a probe: `charge(order)` charges it, and says how it is called."""

    def ask(order: str) -> Done[str] | NotDone:
        arrival = world.happened(f"charge {order}")
        return Done(arrival.result) if arrival else NotDone()

    def charge(order: str) -> str:
        return world.act(f"charge {order}", step, f"charged {order}")

    return world.declare(charge, probe=ask)


# -- ten steps, two of which act outside -----------------------------------------------------------------------------


def build_chain(world: World) -> Any:
    graph = StateGraph(Log)
    previous = START
    for number in range(1, 11):
        name = f"s{number}"
        graph.add_node(name, _link(world, name, f"{number:02d}", acts=number in (3, 7)))
        graph.add_edge(previous, name)
        previous = name
    graph.add_edge(previous, END)
    return graph.compile()


def _link(world: World, name: str, step: str, *, acts: bool) -> Any:
    charge = charging(world, step)

    def link(state: Log) -> Any:
        with world.unit(f"node:{name}", step):
            return {"log": [charge(name) if acts else name], "total": 1}

    return link


CHAIN = Workload("chain", build_chain, EMPTY)


# -- eight at once, each acting outside ---------------------------------------------------------------------------------


def build_fanout(world: World) -> Any:
    charge = charging(world, "02")

    def plan(state: Log) -> Any:
        with world.unit("node:plan", "01"):
            return {"log": ["plan"]}

    def work(order: dict[str, int]) -> Any:
        with world.unit(f"node:work {order['i']}", "02"):
            return {"log": [charge(f"w{order['i']}")], "total": 1}

    def join(state: Log) -> Any:
        with world.unit("node:join", "03"):
            return {"log": ["join"]}

    graph = StateGraph(Log)
    for node in (plan, work, join):
        graph.add_node(node.__name__, node)  # type: ignore[type-var]
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda _: [Send("work", {"i": i}) for i in range(8)], ["work"])
    graph.add_edge("work", "join")
    graph.add_edge("join", END)
    return graph.compile()


FANOUT = Workload("fanout", build_fanout, EMPTY)
