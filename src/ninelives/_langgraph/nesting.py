"""
Where the running code stands: inside which task of which graph.

LangGraph carries this in an ambient config (a contextvar), which it merges below every config that a call passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import RunnableConfig

from ninelives._langgraph.control import LoopControl
from ninelives._langgraph.private import (
    CONF,
    CONFIG_KEY_CHECKPOINT_MAP,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_RUNTIME,
    CONFIG_KEY_TASK_ID,
    CONFIG_KEY_THREAD_ID,
    NS_END,
    NS_SEP,
    ensure_config,
    var_child_runnable_config,
)
from ninelives._langgraph.toolnodes import PLACE_KEY
from ninelives._langgraph.watch import Watch


@dataclass(frozen=True)
class TaskInfo:
    """
    The task that the asking code runs in.

    Attributes:
        thread_id: None when the graph keeps nothing.
        checkpoint_id: of the checkpoint that the task started from, in its own namespace.
        checkpoint_ns: ends with `name:task_id`.
        path: node names, outermost first.
        task_ids: of the same tasks; "" for a `checkpointer=True` subgraph, whose namespace has none.
        stored_task_id: the innermost of them whose checkpoint is stored; `task_id` unless a `checkpointer=False`
            subgraph lies between.
        tool_call_id: of the tool call inside this task, when a `Watch` is among the callbacks.
        call_key: the same, but another one for each call of a task, should several have one id.
    """

    thread_id: str | None
    checkpoint_id: str
    checkpoint_ns: str
    task_id: str
    path: tuple[str, ...]
    task_ids: tuple[str, ...]
    stored_task_id: str
    tool_call_id: str | None
    call_key: str | None


def inside_langgraph(*configs: RunnableConfig | None) -> bool:
    """
    Whether a call with these configs is made as a node or subgraph of another running graph.

    The configs are merged as LangGraph merges them, last wins. A call that names a thread of its own is not inside,
    even when it is made in a node or tool: LangGraph drops the ambient task for it. It also drops it for a config
    that names the ambient thread explicitly and nothing else, so neither is that inside. A node that hands on its own
    `config` unchanged is inside; one that hands it on with another `thread_id` is not.
    """
    configurable: Mapping[str, Any] = ensure_config(*configs)[CONF]
    if CONFIG_KEY_TASK_ID not in configurable:
        return False
    return bool(configurable.get(CONFIG_KEY_THREAD_ID) == _ambient_thread(configurable))


def outside_config(config: RunnableConfig | None) -> RunnableConfig:
    """The same config without the keys that a running task put into it, for a run of its own inside a tool or node."""
    kept = dict((config or {}).get(CONF) or {})
    if CONFIG_KEY_TASK_ID not in kept:
        return config or {}
    own = {key: value for key, value in kept.items() if not key.startswith("__")}
    for key in (CONFIG_KEY_CHECKPOINT_NS, CONFIG_KEY_CHECKPOINT_MAP, "checkpoint_id"):
        own.pop(key, None)
    return {**(config or {}), "configurable": own}


def current_task() -> TaskInfo | None:
    """The innermost task that this code runs in, also inside tools and subgraphs; None outside a run."""
    config = var_child_runnable_config.get()
    configurable: Mapping[str, Any] = (config or {}).get(CONF) or {}
    if config is None or CONFIG_KEY_TASK_ID not in configurable:
        return None
    ns = str(configurable.get(CONFIG_KEY_CHECKPOINT_NS) or "")
    steps = _steps(ns)
    tool_call_id = _tool_call(config, ns)
    # Not from the runtime's execution_info: an error handler's still describes the task that failed, or its parent.
    return TaskInfo(
        thread_id=configurable.get(CONFIG_KEY_THREAD_ID),
        checkpoint_id=str((configurable.get(CONFIG_KEY_CHECKPOINT_MAP) or {}).get(_parent(ns), "")),
        checkpoint_ns=ns,
        task_id=str(configurable[CONFIG_KEY_TASK_ID]),
        path=tuple(name for name, _, _ in steps),
        task_ids=tuple(task_id for _, task_id, _ in steps),
        stored_task_id=_stored(steps, configurable) or str(configurable[CONFIG_KEY_TASK_ID]),
        tool_call_id=tool_call_id,
        call_key=_call_key(tool_call_id, ns, configurable.get(PLACE_KEY)),
    )


def ambient_entry(name: str) -> Any:
    """An entry of `configurable` of the task that this code runs in; None outside a run."""
    config = var_child_runnable_config.get()
    return ((config or {}).get(CONF) or {}).get(name)


def place_of(ns: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A namespace as node names and task ids, outermost first; a bare number in it only counts calls."""
    steps = _steps(ns)
    return tuple(name for name, _, _ in steps), tuple(task_id for _, task_id, _ in steps)


def _ambient_thread(configurable: Mapping[str, Any]) -> Any:
    runtime = configurable.get(CONFIG_KEY_RUNTIME)
    info = getattr(runtime, "execution_info", None)
    return info.thread_id if info else configurable.get(CONFIG_KEY_THREAD_ID)


def _parent(ns: str) -> str:
    return ns.rpartition(NS_SEP)[0]


def _steps(ns: str) -> list[tuple[str, str, str]]:
    """(node name, task id, namespace of the graph it belongs to) for each level; a bare number only counts calls."""
    steps, before = [], ""
    for part in ns.split(NS_SEP) if ns else []:
        if not part.isdigit():
            name, _, task_id = part.partition(NS_END)
            steps.append((name, task_id, before))
        before = f"{before}{NS_SEP}{part}" if before else part
    return steps


def _stored(steps: list[tuple[str, str, str]], configurable: Mapping[str, Any]) -> str:
    control = getattr(configurable.get(CONFIG_KEY_RUNTIME), "control", None)
    unsaved = control.unsaved if isinstance(control, LoopControl) else frozenset[str]()
    nearest = ""
    for _, task_id, graph_ns in steps:
        if graph_ns in unsaved:
            break
        nearest = task_id or nearest
    return nearest


def _call_key(tool_call_id: str | None, ns: str, place: tuple[str, int] | None) -> str | None:
    told_apart = tool_call_id is not None and place is not None and place[0] == ns
    return f"{tool_call_id}#{place[1]}" if told_apart and place else tool_call_id


def _tool_call(config: RunnableConfig, ns: str) -> str | None:
    callbacks = config.get("callbacks")
    if not isinstance(callbacks, BaseCallbackManager) or callbacks.parent_run_id is None:
        return None
    watch = next((handler for handler in callbacks.handlers if isinstance(handler, Watch)), None)
    return watch.tool_call_of(callbacks.parent_run_id, ns) if watch else None
