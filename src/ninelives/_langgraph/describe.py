"""
What a graph is made of, as plain data, and a short name for it.

Two processes that build the same graph get the same fingerprint: only names, types and structure go in; no ids,
addresses, prose or the code of functions, so a changed prompt or a fixed bug keeps it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from langgraph.channels.base import BaseChannel

from ninelives._langgraph.hints import callable_name, fields_of, in_words
from ninelives._langgraph.private import PregelNode
from ninelives._langgraph.subgraphs import AnyGraph, direct_subgraphs, tools_of


def fingerprint(graph: AnyGraph, description: dict[str, Any] | None = None) -> str:
    """32 hex digits over the canonical JSON of `describe_graph`, which is made anew unless it is given."""
    text = json.dumps(description or describe_graph(graph), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def describe_graph(graph: AnyGraph) -> dict[str, Any]:
    """
    The graph as JSON-able data: nodes, edges, channels, interrupts, schemas, tools and nested graphs.

    A graph that contains itself is described once; inside, it is only said to be `{"outer": levels up}`.
    """
    return _described(graph, ())


def _described(graph: AnyGraph, outer: tuple[AnyGraph, ...]) -> dict[str, Any]:
    for levels, known in enumerate(reversed(outer), start=1):
        if known is graph:
            return {"outer": levels}
    inner = {name: _described(sub, (*outer, graph)) for name, sub in direct_subgraphs(graph).items()}
    return {
        "nodes": {name: _node(node) for name, node in graph.nodes.items()},
        "edges": _edges(graph),
        "channels": {name: _channel(channel) for name, channel in graph.channels.items()},
        "interrupt_before": _names(graph.interrupt_before_nodes),
        "interrupt_after": _names(graph.interrupt_after_nodes),
        "schemas": _schemas(graph),
        "subgraphs": inner,
        "saver": "own" if graph.checkpointer is True else "none" if graph.checkpointer is False else "lent",
    }


def _node(node: PregelNode) -> dict[str, Any]:
    return {
        "triggers": sorted(node.triggers),
        "reads": [node.channels] if isinstance(node.channels, str) else sorted(node.channels),
        "error_handler": node.error_handler_node,
        "tools": {name: _arguments(tool) for name, tool in tools_of(node.bound).items()},
    }


def _edges(graph: AnyGraph) -> dict[str, Any]:
    """A StateGraph knows its edges; any other graph is told by its triggers alone."""
    builder: Any = getattr(graph, "builder", None)
    if builder is None:
        return {}
    return {
        "plain": sorted([start, end] for start, end in builder.edges),
        "joins": sorted([*sorted(starts), end] for starts, end in builder.waiting_edges),
        "branches": {
            start: {name: sorted(set((branch.ends or {}).values())) for name, branch in branches.items()}
            for start, branches in builder.branches.items()
        },
    }


def _channel(channel: Any) -> dict[str, Any]:
    if not isinstance(channel, BaseChannel):  # a managed value
        return {"kind": callable_name(channel)}
    reducer = getattr(channel, "reducer", None) or getattr(channel, "operator", None)
    return {
        "kind": type(channel).__qualname__,
        "type": in_words(getattr(channel, "typ", None)),
        "reducer": callable_name(reducer) if reducer is not None else None,
    }


def _schemas(graph: AnyGraph) -> dict[str, Any]:
    builder = getattr(graph, "builder", None)
    named = {name: getattr(builder, f"{name}_schema", None) for name in ("state", "input", "output", "context")}
    named["context"] = named["context"] or graph.context_schema
    return {
        name: {field: in_words(hint) for field, hint in fields_of(schema).items()}
        for name, schema in named.items()
        if schema is not None
    }


def _names(nodes: Any) -> Any:
    return nodes if isinstance(nodes, str) else sorted(nodes or ())


def _arguments(tool: Any) -> Any:
    """The JSON schema of what a model may pass, without its prose."""
    try:
        schema = tool.tool_call_schema
        return _plain(schema if isinstance(schema, dict) else schema.model_json_schema())
    except Exception:  # a schema that is no JSON (a callable among its types): its names must do
        return sorted(tool.args)


def _plain(schema: Any, *, names: bool = False) -> Any:
    """`names`: the keys of this dict are the user's (properties, definitions), so "title" among them is not prose."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema if isinstance(schema, str | int | float | bool | None) else callable_name(schema)
    return {
        str(key): _plain(value, names=not names and key in ("properties", "$defs", "definitions"))
        for key, value in schema.items()
        if names or key not in ("title", "description")
    }
