"""
A node failed, its error handler dealt with it, and then the superstep was cut off: the handler must not run again.

On a resume LangGraph sees the failure but does not look for the handler's recorded result, and starts the handler
anew. Given to the failed task instead, that result is applied as any finished task's is: at the same place in the
order of writes, since a handler's path begins with its task's. What is stored stays as it is; this is done at load.
"""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Iterable, Mapping
from typing import Any

from ninelives._langgraph.private import (
    CONTROL_WRITES,
    ERROR,
    ERROR_SOURCE_NODE,
    NS_END,
    NS_SEP,
    PUSH,
    read_task_statuses,
    uuid5_str,
    xxhash_str,
)
from ninelives._langgraph.subgraphs import AnyGraph, all_graphs

Write = tuple[str, str, Any]


def settle_handled_errors(
    graph: AnyGraph,
    checkpoint: Mapping[str, Any],
    metadata: Mapping[str, Any],
    checkpoint_ns: str,
    pending_writes: Iterable[Write],
) -> list[Write]:
    """
    The pending writes, with the recorded result of each finished error handler given to the task that failed.

    Args:
        graph: the root graph; handlers are looked up in it and in all graphs inside it.
        checkpoint: the head that is being loaded.
        metadata: its metadata; `step` is needed.
        checkpoint_ns: its namespace, "" for the root graph.
        pending_writes: (task id, channel, value), in the saver's order.

    Returns:
        The writes in the same order. Unchanged where no handler has finished: a handler that failed, asked or was cut
        off runs again.
    """
    writes = list(pending_writes)
    failed = {task_id: str(node) for task_id, channel, node in writes if channel == ERROR_SOURCE_NODE}
    if not failed:
        return writes
    finished = {task_id for task_id, status in read_task_statuses(writes).items() if status.finished}
    handlers = _handlers(graph)
    owner = {
        handler_id: task_id
        for task_id, node in failed.items()
        for handler in handlers.get(node, ())
        if (handler_id := _handler_id(checkpoint, metadata, checkpoint_ns, task_id, node, handler)) in finished
    }
    return [
        (owner.get(task_id, task_id), channel, value)
        for task_id, channel, value in writes
        if not _is_superseded(task_id, channel, owner)
    ]


def _is_superseded(task_id: str, channel: str, owner: Mapping[str, str]) -> bool:
    if task_id in owner:  # the handler's own interrupts and answers concern nobody any more
        return channel in CONTROL_WRITES
    return task_id in owner.values() and channel in (ERROR, ERROR_SOURCE_NODE)


def _handlers(graph: AnyGraph) -> dict[str, set[str]]:
    """Every pair known anywhere: the handler's task id is a hash over both names, so a wrong pair matches nothing."""
    pairs: dict[str, set[str]] = {}
    for inner in all_graphs(graph).values():
        for name, node in inner.nodes.items():
            if node.error_handler_node:
                pairs.setdefault(name, set()).add(node.error_handler_node)
    return pairs


def _handler_id(
    checkpoint: Mapping[str, Any], metadata: Mapping[str, Any], ns: str, task_id: str, node: str, handler: str
) -> str:
    """As `prepare_node_error_handler_task` makes it."""
    make = xxhash_str if checkpoint["v"] > 1 else uuid5_str
    graph_ns = f"{ns}{NS_SEP}{node}" if ns else node
    return make(
        unhexlify(checkpoint["id"].replace("-", "")),
        f"{graph_ns}{NS_END}{task_id}{NS_SEP}{handler}",
        str(metadata["step"] + 1),
        handler,
        PUSH,
        "node_error_handler",
        task_id,
    )
