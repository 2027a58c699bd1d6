"""
Values of allowed classes: enums, named tuples, pydantic models, dataclasses, plain objects, subclasses of builtins.

They are rebuilt without their `__init__` and without validation, so what comes back is what was there, and a class may
have gained fields since: those get their defaults. The parts of each begin with the class's `tag`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum, Flag
from types import MemberDescriptorType
from typing import Any

from pydantic import BaseModel

from ninelives.stores.codec.values import ERROR, Code, Kind, Refused

_BASES: dict[type, Callable[[Any], Any]] = {
    str: lambda value: str.__str__(value),
    int: lambda value: int.__int__(value),
    float: lambda value: float.__float__(value),
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    BaseException: lambda value: value.args,
}
"""A builtin that may be derived from, and how to see the plain value whatever the subclass overrides."""


def tag(cls: type) -> str:
    """The name that stands for a class in stored bytes. It is looked up among the allowed ones, never imported."""
    return f"{cls.__module__}:{cls.__qualname__}"


def class_kind(cls: type) -> Kind:
    """How the values of a class are stored; of one that cannot be, a kind that refuses each value."""
    if holds_secret(cls):
        return SECRET
    if issubclass(cls, Enum):
        return _enum_kind(cls)
    if issubclass(cls, BaseModel) and cls.__setstate__ is BaseModel.__setstate__:
        return _model_kind(cls)
    base = next((base for base in _BASES if issubclass(cls, base)), object)
    if not _is_rebuilt_by_state(cls, base):
        return ERROR if base is BaseException else _CALLED
    if base is tuple and hasattr(cls, "_fields") and not cls.__dictoffset__:
        return _named_tuple_kind(cls)
    return _object_kind(cls) if base is object else _derived_kind(cls, base)


def holds_secret(cls: type) -> bool:
    """Whether the class is one of pydantic's Secret kinds, of any version of pydantic."""
    return hasattr(cls, "get_secret_value")


def _is_rebuilt_by_state(cls: type, base: type) -> bool:
    builtin = next(parent for parent in cls.__mro__ if parent.__module__ == "builtins")
    reduce_ex: Any = cls.__reduce_ex__
    return (
        cls.__reduce__ in (object.__reduce__, base.__reduce__)
        and reduce_ex is object.__reduce_ex__
        # A builtin's content needs no arguments; an object that wants some would have to be called.
        and (base is not object or not (hasattr(cls, "__getnewargs__") or hasattr(cls, "__getnewargs_ex__")))
        # Some exceptions keep more than their args, where Python cannot see it.
        and (base is not BaseException or builtin.__basicsize__ == base.__basicsize__)
    )


def _refusing(why: str) -> Kind:
    def refuse(_: Any) -> Any:
        raise Refused(why)

    return Kind(0, refuse, refuse)


SECRET = _refusing("holds a secret, and secrets are never stored. Keep it out of the state; hand it over at each call")
_CALLED = _refusing("has its own way to be rebuilt (__reduce__, __getnewargs__), which would call what the bytes name")

CLASS = Kind(Code.CLASS, lambda cls: tag(cls).encode(), bytes, raw=True)
"""A class that is itself the value. It is found again by the registry, not built."""


# -- enums, named tuples -------------------------------------------------------------------------------------------


def _enum_kind(cls: type[Enum]) -> Kind:
    name = tag(cls)
    if issubclass(cls, Flag):  # its members may be combinations, which have no name
        return Kind(Code.ENUM, lambda member: [name, member._value_], lambda parts: cls(parts[0]))
    return Kind(Code.ENUM, lambda member: [name, member._name_], lambda parts: cls.__members__[parts[0]])


def _named_tuple_kind(cls: Any) -> Kind:
    name, fields = tag(cls), cls._fields

    def build(parts: list[Any]) -> Any:
        values = {**cls._field_defaults, **parts[0]}
        if values.keys() != set(fields):
            raise ValueError(f"it was stored with the fields {', '.join(parts[0])}")
        return tuple.__new__(cls, [values[field] for field in fields])

    return Kind(Code.NAMED_TUPLE, lambda value: [name, dict(zip(fields, value, strict=True))], build)


# -- pydantic models (LangChain's messages are some) -----------------------------------------------------------------


def _model_kind(cls: type[BaseModel]) -> Kind:
    name = tag(cls)

    def parts(model: BaseModel) -> list[Any]:
        state = model.__getstate__()
        # As a sorted list: a set would cost more, and there is one in each message.
        fields_set = sorted(state["__pydantic_fields_set__"])
        return [name, state["__dict__"], fields_set, state["__pydantic_extra__"], state["__pydantic_private__"]]

    def build(parts: list[Any]) -> BaseModel:
        values, fields_set, extra, private = parts
        fields = cls.__pydantic_fields__
        for new in fields.keys() - values.keys():
            if not fields[new].is_required():
                values[new] = fields[new].get_default(call_default_factory=True, validated_data=values)
        model = cls.__new__(cls)
        model.__setstate__(
            {
                "__dict__": values,
                "__pydantic_fields_set__": set(fields_set),
                "__pydantic_extra__": extra,
                "__pydantic_private__": private,
            }
        )
        return model

    return Kind(Code.MODEL, parts, build)


# -- dataclasses, other objects, subclasses of builtins ----------------------------------------------------------------


def _object_kind(cls: type) -> Kind:
    name, state_of, put_state = tag(cls), _state_reader(cls), _state_writer(cls)

    def parts(value: Any) -> list[Any]:
        value.__reduce_ex__(2)  # raises for an object of a C extension, whose state we would not see
        return [name, state_of(value)]

    def build(parts: list[Any]) -> Any:
        value: Any = object.__new__(cls)
        put_state(value, parts[0])
        return value

    return Kind(Code.OBJECT, parts, build)


def _derived_kind(cls: type, base: Any) -> Kind:
    name, plain, state_of, put_state = tag(cls), _BASES[base], _state_reader(cls), _state_writer(cls)

    def build(parts: list[Any]) -> Any:
        value = _derived(cls, base, parts[0])
        put_state(value, parts[1])
        return value

    return Kind(Code.DERIVED, lambda value: [name, plain(value), state_of(value)], build)


def _derived(cls: type, base: Any, content: Any) -> Any:
    if base is BaseException:
        return base.__new__(cls, *content)
    if base in (list, set, dict):
        value: Any = base.__new__(cls)
        base.__init__(value, content)
        return value
    return base.__new__(cls, content)


def _state_reader(cls: type) -> Callable[[Any], Any]:
    own_getter, own_setter = is_own(cls, "__getstate__"), is_own(cls, "__setstate__")
    if own_getter or own_setter:
        return lambda value: _own_state(value, own_setter)
    names = _attribute_names(cls)
    return lambda value: {name: getattr(value, name) for name in names if hasattr(value, name)} | _dict_of(value)


def _state_writer(cls: type) -> Callable[[Any, Any], None]:
    if is_own(cls, "__setstate__"):
        return lambda value, state: None if state is None else value.__setstate__(state)
    slots = _slots(cls)
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()

    def put(value: Any, state: dict[str, Any] | None) -> None:
        new = [field for field in fields if field.name not in (state or {})]
        for name, member in {**_defaults(new), **(state or {})}.items():
            if name in slots:
                object.__setattr__(value, name, member)
            else:
                value.__dict__[name] = member

    return put


def is_own(cls: type, method: str) -> bool:
    """Whether the class's author wrote the method. The pair that dataclasses make for frozen slots adds nothing."""
    found = getattr(cls, method, None)
    inherited = (getattr(object, method, None), getattr(BaseException, method, None))
    return found not in inherited and getattr(found, "__module__", None) != dataclasses.__name__


def _own_state(value: Any, understood: bool) -> Any:
    state = value.__getstate__()
    if not understood and not isinstance(state, dict):
        raise Refused("has a __getstate__ but no __setstate__ that would understand its state")
    return state


def _attribute_names(cls: type) -> list[str]:
    """Fields first and in their order, so that equal dataclasses become equal bytes."""
    fields = [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    return list(dict.fromkeys([*fields, *_slots(cls)]))


def _slots(cls: type) -> list[str]:
    written_in_python = [parent for parent in reversed(cls.__mro__) if parent.__module__ != "builtins"]
    return [
        name
        for parent in written_in_python
        for name, member in vars(parent).items()
        if isinstance(member, MemberDescriptorType)
    ]


def _dict_of(value: Any) -> dict[str, Any]:
    return getattr(value, "__dict__", None) or {}


def _defaults(fields: list[dataclasses.Field[Any]]) -> dict[str, Any]:
    """The values of fields that the class gained since; a field without a default stays unset, as it was."""
    made = {f.name: f.default_factory() for f in fields if f.default_factory is not dataclasses.MISSING}
    return made | {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
