"""
A call's own entries in `configurable` and `context`: stored, supplied anew, or refused by name, never just dropped.

An entry on the allow-list is stored with the run. One that a function supplies is asked for in each process. Any other
is used for this call, and only its name is stored: a later call that goes on with the run must bring it again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel

from ninelives.errors import MissingEntryError
from ninelives.model import RunSpec

_LANGGRAPHS_OWN = frozenset({"thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map"})
_CONTEXT = "context."

Supply = Mapping[str, Callable[[], Any]]


def own_entries(config: RunnableConfig | None) -> dict[str, Any]:
    """The caller's entries of `configurable`: not LangGraph's, not ours."""
    configurable = (config or {}).get("configurable") or {}
    return {k: v for k, v in configurable.items() if k not in _LANGGRAPHS_OWN and not k.startswith("__")}


def context_entries(context: Any) -> dict[str, Any]:
    """A context by the names of its fields, whatever it is an object of."""
    if context is None:
        return {}
    if isinstance(context, Mapping):
        return dict(context)
    if isinstance(context, BaseModel):
        return {name: getattr(context, name) for name in type(context).model_fields}
    if dataclasses.is_dataclass(context):
        return {f.name: getattr(context, f.name) for f in dataclasses.fields(context)}
    return dict(vars(context))


def stored(config: RunnableConfig | None, context: Any, keep: frozenset[str], supply: Supply) -> dict[str, Any]:
    """The parts of a `RunSpec` that tell of entries: what is kept, and the names of what is not."""
    own, of_context = own_entries(config), context_entries(context)
    withheld = [name for name in own if name not in keep and name not in supply]
    withheld += [_CONTEXT + name for name in of_context if name not in keep and name not in supply]
    metadata = (config or {}).get("metadata") or {}
    return {
        "configurable": {name: value for name, value in own.items() if name in keep},
        "context": {name: value for name, value in of_context.items() if name in keep} or None,
        "metadata": {name: value for name, value in metadata.items() if name not in own or name in keep},
        "withheld": tuple(sorted(withheld)),
    }


def restored(
    spec: RunSpec,
    config: RunnableConfig | None,
    context: Any,
    supply: Supply,
    fields: Collection[str] = (),
) -> tuple[RunnableConfig, Any]:
    """
    Config and context for driving a run of this spec: what was stored, what is supplied, what this call brings.

    Args:
        fields: of the graph's context schema; what is supplied under such a name goes there, all else to the config.

    Raises:
        MissingEntryError: the first call used an entry that nobody brings now.
    """
    must_be_complete(spec, config, context)
    supplied = {name: function() for name, function in supply.items()}
    for_config = {name: value for name, value in supplied.items() if name not in fields}
    for_context = {name: value for name, value in supplied.items() if name in fields}
    rest = dict((config or {}).get("configurable") or {})
    merged: RunnableConfig = {**(config or {}), "configurable": {**for_config, **spec.configurable, **rest}}
    if context is not None and not isinstance(context, Mapping):
        return merged, context  # an object of the graph's own class, complete in itself
    return merged, {**for_context, **(spec.context or {}), **(context or {})} or context


def context_fields(schema: Any) -> frozenset[str]:
    """The names that a graph's context has; none without a schema."""
    return frozenset() if schema is None else frozenset(getattr(schema, "__annotations__", {}))


def must_be_complete(spec: RunSpec, config: RunnableConfig | None, context: Any) -> None:
    """
    Raises:
        MissingEntryError: the first call used an entry that nobody brings now.
    """
    own, of_context = own_entries(config), context_entries(context)
    missing = [name for name in spec.withheld if not _brought(name, own, of_context)]
    if missing:
        raise MissingEntryError(missing)


def inherited(spec: RunSpec, before: RunSpec) -> RunSpec:
    """The spec of a run that goes on with an answer: what the run that asked was told of entries holds for it too."""
    return dataclasses.replace(
        spec,
        configurable={**before.configurable, **spec.configurable},
        metadata={**before.metadata, **spec.metadata},
        context={**(before.context or {}), **(spec.context or {})} or None,
        withheld=tuple(sorted({*before.withheld, *spec.withheld})),
        recursion_limit=before.recursion_limit if spec.recursion_limit is None else spec.recursion_limit,
    )


def _brought(name: str, own: Mapping[str, Any], of_context: Mapping[str, Any]) -> bool:
    return name.removeprefix(_CONTEXT) in of_context if name.startswith(_CONTEXT) else name in own
