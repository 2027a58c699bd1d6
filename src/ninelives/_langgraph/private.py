"""
Every private name of LangGraph that we build on, in one place.

A release that moves one of them fails here, by name, before anything is written; the other modules of this package
import private names from here only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from ninelives.errors import UnsupportedVersionError

VERSIONS_TESTED = ("1.2.24",)

try:
    from langchain_core.runnables.config import var_child_runnable_config
    from langgraph._internal._config import ensure_config
    from langgraph._internal._constants import (
        CONF,
        CONFIG_KEY_CALL,
        CONFIG_KEY_CHECKPOINT_ID,
        CONFIG_KEY_CHECKPOINT_MAP,
        CONFIG_KEY_CHECKPOINT_NS,
        CONFIG_KEY_CHECKPOINTER,
        CONFIG_KEY_DURABILITY,
        CONFIG_KEY_RUNNER_SUBMIT,
        CONFIG_KEY_RUNTIME,
        CONFIG_KEY_SCRATCHPAD,
        CONFIG_KEY_SEND,
        CONFIG_KEY_STRICT_RESUME,
        CONFIG_KEY_TASK_ID,
        CONFIG_KEY_THREAD_ID,
        ERROR,
        ERROR_SOURCE_NODE,
        INPUT,
        INTERRUPT,
        NO_WRITES,
        NS_END,
        NS_SEP,
        NULL_TASK_ID,
        PUSH,
        RESUME,
        TASKS,
    )
    from langgraph._internal._runnable import RunnableCallable, RunnableSeq
    from langgraph._internal._scratchpad import PregelScratchpad
    from langgraph.channels.binop import _get_overwrite as get_overwrite
    from langgraph.checkpoint.serde.types import _DeltaSnapshot as DeltaSnapshot
    from langgraph.prebuilt import ToolNode
    from langgraph.pregel._algo import _uuid5_str as uuid5_str
    from langgraph.pregel._algo import _xxhash_str as xxhash_str
    from langgraph.pregel._executor import AsyncBackgroundExecutor, BackgroundExecutor
    from langgraph.pregel._loop import PregelLoop
    from langgraph.pregel._messages import ensure_message_ids
    from langgraph.pregel._read import DEFAULT_BOUND, PregelNode
    from langgraph.pregel._runner import FuturesDict, PregelRunner
    from langgraph.pregel._task_status import CONTROL_WRITES, read_task_statuses
    from langgraph.pregel._utils import _is_executor_backed_afunc as is_executor_backed
    from langgraph.pregel._utils import get_function_nonlocals
    from langgraph.types import _interrupt_id as interrupt_id_of
    from xxhash import xxh3_128_hexdigest
except ImportError as error:
    raise UnsupportedVersionError(
        f"langgraph {version('langgraph')} lacks something that we build on ({error}); nothing ran."
        f" Install one of the tested versions: {', '.join(VERSIONS_TESTED)}."
    ) from error

DELTA_COUNTERS = "counters_since_delta_snapshot"
"""Entry of a checkpoint's metadata: DeltaChannels that have changed since they were last stored whole."""

__all__ = [
    "CONF",
    "CONFIG_KEY_CALL",
    "CONFIG_KEY_CHECKPOINTER",
    "CONFIG_KEY_CHECKPOINT_ID",
    "CONFIG_KEY_CHECKPOINT_MAP",
    "CONFIG_KEY_CHECKPOINT_NS",
    "CONFIG_KEY_DURABILITY",
    "CONFIG_KEY_RUNNER_SUBMIT",
    "CONFIG_KEY_RUNTIME",
    "CONFIG_KEY_SCRATCHPAD",
    "CONFIG_KEY_SEND",
    "CONFIG_KEY_STRICT_RESUME",
    "CONFIG_KEY_TASK_ID",
    "CONFIG_KEY_THREAD_ID",
    "CONTROL_WRITES",
    "DEFAULT_BOUND",
    "DELTA_COUNTERS",
    "ERROR",
    "ERROR_SOURCE_NODE",
    "INPUT",
    "INTERRUPT",
    "NO_WRITES",
    "NS_END",
    "NS_SEP",
    "NULL_TASK_ID",
    "PUSH",
    "RESUME",
    "TASKS",
    "VERSIONS_TESTED",
    "AsyncBackgroundExecutor",
    "BackgroundExecutor",
    "DeltaSnapshot",
    "FuturesDict",
    "PregelLoop",
    "PregelNode",
    "PregelRunner",
    "PregelScratchpad",
    "RunnableCallable",
    "RunnableSeq",
    "check_version",
    "ensure_config",
    "ensure_message_ids",
    "get_function_nonlocals",
    "get_overwrite",
    "interrupt_id_of",
    "is_executor_backed",
    "read_task_statuses",
    "uuid5_str",
    "var_child_runnable_config",
    "xxh3_128_hexdigest",
    "xxhash_str",
]

# Not imported by name but used on objects: methods, and attributes that a class declares.
_USED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (PregelLoop, ("tick", "put_writes", "submit", "checkpointer", "config", "control", "specs", "channels", "tasks")),
    (PregelLoop, ("is_nested",)),
    (PregelRunner, ("atick", "tick", "commit", "_should_route_to_error_handler")),
    (FuturesDict, ("callback", "on_done")),
    (AsyncBackgroundExecutor, ("submit", "done")),
    (BackgroundExecutor, ("submit", "done")),
    (ToolNode, ("_func", "_afunc", "tools_by_name", "_parse_input", "_run_one", "_arun_one", "_combine_tool_outputs")),
    (ToolNode, ("_execute_tool_sync", "_execute_tool_async")),
    (PregelNode, ("bound", "subgraphs", "error_handler_node", "copy")),
)
_warned = False


def check_version(
    installed: Callable[[str], str] = version, used: tuple[tuple[Any, tuple[str, ...]], ...] = _USED
) -> None:
    """
    See that the installed LangGraph is one that we know.

    Warns once per process when the version was never tested.

    Args:
        installed: tells the version of a distribution.
        used: classes and the names that we use on them.

    Raises:
        UnsupportedVersionError: a private name is gone; the text names it. Install a tested version.
    """
    found = installed("langgraph")
    missing = [f"{owner.__name__}.{name}" for owner, names in used for name in names if not _declares(owner, name)]
    if missing:
        raise UnsupportedVersionError(
            f"langgraph {found} lacks {', '.join(missing)}; nothing ran."
            f" Install one of the tested versions: {', '.join(VERSIONS_TESTED)}."
        )
    if found not in VERSIONS_TESTED:
        _warn_once(found)


def _declares(owner: Any, name: str) -> bool:
    return hasattr(owner, name) or any(name in vars(base).get("__annotations__", {}) for base in owner.__mro__)


def _warn_once(found: str) -> None:
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"langgraph {found} was never tested with ninelives (tested: {', '.join(VERSIONS_TESTED)}).", stacklevel=3
    )
