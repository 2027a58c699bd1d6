"""Type hints: read without raising, said in words, and walked for classes whose instances a state may hold."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ForwardRef, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from ninelives._langgraph.subgraphs import AnyGraph, all_graphs


def schema_types(graph: AnyGraph) -> set[type]:
    """
    The classes that the graph declares for its state: pydantic models, dataclasses, enums and NamedTuples.

    Looked for in the state, input, output, context and node input schemas and in the channels, of the graph and of
    every graph inside it, through generics, unions, `Annotated` and the fields of the classes found. A hint that
    cannot be read is passed over.
    """
    found: set[type] = set()
    seen: set[int] = set()
    for inner in all_graphs(graph).values():
        for hint in _declared(inner):
            _collect(hint, found, seen)
    return found


def fields_of(schema: Any) -> dict[str, Any]:
    """The fields of a schema class and their hints, `Annotated` kept; empty for what has none."""
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return {name: _with_metadata(field) for name, field in schema.model_fields.items()}
    try:
        return get_type_hints(schema, include_extras=True)
    except Exception:  # an unresolvable name spoils only its own field
        return _read_one_by_one(schema)


def in_words(hint: Any) -> str:
    """The hint as text that is the same in every process: names without modules, never a repr or an address."""
    if hint is None or hint is type(None):
        return "None"
    if isinstance(hint, str):
        return hint
    if isinstance(hint, ForwardRef):
        return hint.__forward_arg__
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = [callable_name(mark) for mark in args[1:] if callable(mark)]
        return in_words(args[0]) + "".join(f" @{mark}" for mark in marks)
    if origin in (Union, types.UnionType):
        return " | ".join(in_words(arg) for arg in args)
    if origin is not None:
        return f"{callable_name(origin)}[{', '.join(_argument(arg) for arg in args)}]"
    return callable_name(hint)


def callable_name(thing: Any) -> str:
    """A name for a function or class: without module (a script's is `__main__`) and enclosing functions."""
    if isinstance(thing, functools.partial):
        return f"partial {callable_name(thing.func)}"
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None) or type(thing).__qualname__
    return str(name).rpartition("<locals>.")[2]


def _argument(arg: Any) -> str:
    if isinstance(arg, list | tuple):  # the parameters of a Callable
        return f"[{', '.join(_argument(item) for item in arg)}]"
    if isinstance(arg, enum.Enum):
        return f"{callable_name(type(arg))}.{arg.name}"
    if isinstance(arg, str | int | bytes | bool):  # a Literal's values
        return repr(arg)
    return "..." if arg is ... else in_words(arg)


def _declared(graph: AnyGraph) -> Iterator[Any]:
    builder = getattr(graph, "builder", None)
    for name in ("state_schema", "input_schema", "output_schema", "context_schema"):
        yield getattr(builder, name, None)
    yield graph.context_schema
    yield from getattr(builder, "schemas", ())
    for node in getattr(builder, "nodes", {}).values():
        yield getattr(node, "input_schema", None)
    for channel in graph.channels.values():
        for name in ("typ", "ValueType", "UpdateType"):
            yield _attribute(channel, name)


def _attribute(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # a channel may not know its type
        return None


def _collect(hint: Any, found: set[type], seen: set[int]) -> None:
    """Depth first; `seen` holds ids of hints that stay alive with the graph, so an id is not used twice in a walk."""
    pending, alive = [hint], []
    while pending:
        hint = pending.pop()
        if hint is None or id(hint) in seen:
            continue
        seen.add(id(hint))
        alive.append(hint)
        if _is_kept(hint):
            found.add(hint)
        try:
            pending.extend(_inside(hint))
        except Exception:  # odd hints are passed over, as promised
            continue
    seen.difference_update(id(one) for one in alive if not isinstance(one, type))


def _is_kept(hint: Any) -> bool:
    if not isinstance(hint, type) or get_origin(hint) is not None:
        return False
    return (
        (issubclass(hint, BaseModel) and hint is not BaseModel)
        or dataclasses.is_dataclass(hint)
        or (issubclass(hint, enum.Enum) and hint not in (enum.Enum, enum.IntEnum, enum.StrEnum, enum.Flag))
        or (issubclass(hint, tuple) and hasattr(hint, "_fields"))
    )


def _inside(hint: Any) -> Iterable[Any]:
    origin = get_origin(hint)
    if origin is Annotated:
        return [get_args(hint)[0]]
    if origin is not None:
        return [origin, *_flat(get_args(hint))]
    if isinstance(hint, TypeVar):
        return [hint.__bound__, *hint.__constraints__]
    for name in ("__supertype__", "__value__"):  # NewType, type alias
        if not isinstance(hint, type) and hasattr(hint, name):
            return [getattr(hint, name)]
    if isinstance(hint, type) and (_is_kept(hint) or _is_typed_dict(hint)) and not issubclass(hint, enum.Enum):
        return fields_of(hint).values()
    return ()


def _is_typed_dict(hint: type) -> bool:
    return issubclass(hint, dict) and hasattr(hint, "__total__")


def _flat(args: Iterable[Any]) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, list | tuple):
            yield from _flat(arg)
        elif isinstance(arg, enum.Enum):
            yield type(arg)
        elif not isinstance(arg, str | int | bytes):
            yield arg


def _with_metadata(field: Any) -> Any:
    hint = field.annotation
    for mark in field.metadata:
        hint = Annotated[hint, mark]
    return hint


def _read_one_by_one(schema: Any) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(getattr(schema, "__mro__", (schema,))):
        names = vars(sys.modules.get(getattr(base, "__module__", ""), types.ModuleType("gone")))
        for name, hint in _own_annotations(base).items():
            hints[name] = _evaluated(hint, names)
    return hints


def _own_annotations(schema: Any) -> Mapping[str, Any]:
    try:
        return inspect.get_annotations(schema)
    except Exception:
        return {}


def _evaluated(hint: Any, names: Mapping[str, Any]) -> Any:
    text = hint.__forward_arg__ if isinstance(hint, ForwardRef) else hint
    if not isinstance(text, str):
        return hint
    try:
        return eval(text, dict(names))
    except Exception:
        return text
