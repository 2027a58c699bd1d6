"""
What of a value does not come back as it was: found when it is written, told once, or refused.

Two looks. Encoding itself notices the few kinds that are known to lose something, at no cost for all others; that is
what is reported. Under `fidelity="strict"` each value is decoded again and compared with what went in, type by type and
member by member, by a comparison that knows nothing of the codec.

Not looked at, since nobody means them: the order of a set, where an exception was raised (its traceback), the layout
of an array, and whether two lists or dicts of one value are one object, since LangGraph hands one to several places (a
tool call, to the state and to a Send). That an object of another mutable class is held twice is told.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import reprlib
import struct
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import date, time, timezone
from decimal import Decimal
from enum import Enum
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from ninelives.errors import FidelityError
from ninelives.stores.codec.classes import is_own
from ninelives.stores.codec.values import UnstorableError

log = logging.getLogger(__name__)

TOLD_MAX = 1000
"""So many different changes are told by a process; a program with more of them has been told enough."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One thing that does not come back as it was. In words; never with the value itself, which may be private."""

    path: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path or 'the value'}: {self.before} comes back as {self.after}"


# -- telling -----------------------------------------------------------------------------------------------------

_told: set[tuple[str, str, str]] = set()
_telling = threading.Lock()


def tell(changes: Iterable[Change]) -> None:
    """
    Log each change that this process has not told yet; a change at another index, key or task is the same one.

    By the log, not by `warnings`: a warning may be turned into an exception, and a run must not fail for a report.
    """
    for change in changes:
        known = (_pattern(change.path), change.before, change.after)
        with _telling:
            if known in _told or len(_told) >= TOLD_MAX:
                continue
            _told.add(known)
        facts = {"path": change.path, "before": change.before, "after": change.after}
        log.warning(
            'FidelityWarning: %s. Keep it out of the state, or refuse it with [state] fidelity = "strict".',
            change,
            extra=facts,
        )


def must_be_equal(before: object, after: object, path: str) -> None:
    """
    Raises:
        FidelityError: for the first thing that is not the same.
        UnstorableError: too deep to be compared.
    """
    try:
        change = next(difference(before, after, path), None)
    except RecursionError:
        raise UnstorableError(path, name_of(type(before)), "is nested too deep to be compared") from None
    if change is not None:
        raise FidelityError(change.path, change.before, change.after)


def _pattern(path: str) -> str:
    return re.sub(r"\[[^\]]*\]|[0-9a-f-]{32,36}|\d+", "…", path)


# -- comparing -----------------------------------------------------------------------------------------------------


def difference(before: object, after: object, path: str = "") -> Iterator[Change]:
    """
    What differs between two values, in the order of the first: types exactly, floats by their bits, dicts in order.

    A NaN equals a NaN. Objects are compared by their attributes, or by the state that a `__getstate__` of theirs gives.
    """
    return _Comparison().of(before, after, path)


def is_shared(cls: type) -> bool:
    """Whether it matters that one object of the class is held in two places: a mutable one, of the user's making."""
    if cls in (list, dict) or cls.__module__.partition(".")[0] in ("langchain_core", "langgraph"):
        return False
    if issubclass(cls, list | dict | set | bytearray | deque):
        return True
    if cls.__module__ in sys.stdlib_module_names or issubclass(cls, _FIXED):
        return False
    if issubclass(cls, BaseModel):
        return not cls.model_config.get("frozen")
    params = getattr(cls, "__dataclass_params__", None)
    return params is None or not params.frozen


def step(key: Any) -> str:
    """How a path goes on to a member of a dict."""
    return f".{key}" if type(key) is str and key.isidentifier() else f"[{reprlib.repr(key)}]"


_FIXED = (str, int, float, bytes, complex, tuple, frozenset, BaseException, Enum, type)
_BARE = (type(None), bool, int, str, bytes)


class _Comparison:
    def __init__(self) -> None:
        self._met: dict[int, tuple[object, object]] = {}
        """By id: an object met on the left (held, so that no other gets its id), and its counterpart."""

    def of(self, before: Any, after: Any, path: str) -> Iterator[Change]:
        cls = type(before)
        if cls is not type(after):
            yield Change(path, name_of(cls), name_of(type(after)))
        elif cls in _BARE:
            if before != after:
                yield _another(cls, path)
        elif id(before) in self._met:
            if is_shared(cls) and self._met[id(before)][1] is not after:
                yield Change(path, f"a {name_of(cls)} that is held twice", "one of its own")
        else:
            self._met[id(before)] = (before, after)
            yield from self._inside(before, after, path)

    def _inside(self, before: Any, after: Any, path: str) -> Iterator[Change]:
        if isinstance(before, type | Enum):
            if id(before) != id(after):
                yield _another(type(before), path)
        elif type(before).__module__ == "numpy":
            yield from self._each(_numpy_facts(before), _numpy_facts(after), path)
        else:
            facts, its_facts = _attributes(before), _attributes(after)
            compare = next((compare for base, compare in self._BY_BASE if isinstance(before, base)), None)
            if compare is not None:
                yield from compare(self, before, after, path)
            elif not facts and type(before).__eq__ is not _SAME and before != after:
                yield _another(type(before), path)
            for key in {**facts, **its_facts}:
                one, other = _attribute(before, facts, key), _attribute(after, its_facts, key)
                yield from self.of(one, other, path + step(key))

    def _each(self, before: dict[Any, Any], after: dict[Any, Any], path: str) -> Iterator[Change]:
        for key in [*before, *(key for key in after if key not in before)]:
            yield from self.of(before.get(key, _NOTHING), after.get(key, _NOTHING), path + step(key))

    def _floats(self, before: float, after: float, path: str) -> Iterator[Change]:
        if float.__ne__(before, before) != float.__ne__(after, after) or (
            float.__eq__(before, before) and struct.pack("d", before) != struct.pack("d", after)
        ):
            yield _another(type(before), path)

    def _complex(self, before: complex, after: complex, path: str) -> Iterator[Change]:
        yield from self._each(
            {"real": before.real, "imag": before.imag}, {"real": after.real, "imag": after.imag}, path
        )

    def _texts(self, before: Any, after: Any, path: str) -> Iterator[Change]:
        """What prints in full: decimals, moments and subclasses of str, int and bytes."""
        base = next(base for base in (str, int, bytes, object) if isinstance(before, base))
        if base.__repr__(before) != base.__repr__(after) if base is not object else repr(before) != repr(after):
            yield _another(type(before), path)
        for zone in ("tzinfo", "fold"):
            if hasattr(before, zone):
                yield from self.of(getattr(before, zone), getattr(after, zone), f"{path}.{zone}")

    def _sequences(self, before: Any, after: Any, path: str) -> Iterator[Change]:
        base = next(base for base in (list, tuple, deque) if isinstance(before, base))
        left, right = [*base.__iter__(before)], [*base.__iter__(after)]
        if len(left) != len(right):
            yield Change(path, f"{name_of(base)} of {len(left)}", f"one of {len(right)}")
        for i, (one, other) in enumerate(zip(left, right, strict=False)):
            yield from self.of(one, other, f"{path}[{i}]")
        if base is deque:
            yield from self.of(before.maxlen, after.maxlen, f"{path}.maxlen")

    def _dicts(self, before: dict[Any, Any], after: dict[Any, Any], path: str) -> Iterator[Change]:
        left, right = [*dict.items(before)], [*dict.items(after)]
        if len(left) != len(right):
            yield Change(path, f"dict of {len(left)}", f"one of {len(right)}")
        for (key, one), (its_key, other) in zip(left, right, strict=False):
            changed = [*self.of(key, its_key, path + step(key))]
            yield from changed or self.of(one, other, path + step(key))
        if isinstance(before, defaultdict):
            factory = getattr(after, "default_factory", None)
            yield from self.of(before.default_factory, factory, f"{path}.default_factory")

    def _sets(self, before: Any, after: Any, path: str) -> Iterator[Change]:
        base = set if isinstance(before, set) else frozenset
        known = {member: member for member in base.__iter__(after)}
        if len(known) != len(before):
            yield Change(path, f"{name_of(base)} of {len(before)}", f"one of {len(known)}")
        for member in base.__iter__(before):
            # A NaN is found by no equality, and there is nothing in it that could differ.
            if member == member:
                yield from self.of(member, known.get(member, _NOTHING), path + "{...}")

    def _errors(self, before: BaseException, after: BaseException, path: str) -> Iterator[Change]:
        yield from self.of(before.args, after.args, f"{path}.args")
        yield from self._each(_error_facts(before), _error_facts(after), path)
        yield from self.of(before.__cause__, after.__cause__, f"{path}.__cause__")
        if before.__cause__ is None:
            yield from self.of(before.__context__, after.__context__, f"{path}.__context__")

    _BY_BASE: tuple[tuple[Any, Callable[[_Comparison, Any, Any, str], Iterator[Change]]], ...] = (
        (float, _floats),
        (complex, _complex),
        ((str, int, bytes, bytearray, Decimal, date, time, timezone), _texts),
        ((list, tuple, deque), _sequences),
        (dict, _dicts),
        ((set, frozenset), _sets),
        (BaseException, _errors),
    )
    """`date` is the base of `datetime`. The first that fits."""


_SAME: Any = object.__eq__


class _Nothing:
    """An attribute that is not set."""


_NOTHING = _Nothing()


def _another(cls: type, path: str) -> Change:
    return Change(path, name_of(cls), f"another {cls.__qualname__}")


def name_of(cls: type) -> str:
    if cls in (_Nothing, type(None)):
        return "None" if cls is type(None) else "nothing"
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _attributes(value: Any) -> dict[str, Any]:
    """By name. What a standard class keeps beside its value is a cache; what is set on a dict or an error is not."""
    cls = type(value)
    if cls.__module__ in sys.stdlib_module_names:
        may_carry = isinstance(value, dict | BaseException) and hasattr(value, "__dict__")
        return dict(vars(value)) if may_carry else _own_facts(value)
    if is_own(cls, "__getstate__") and not isinstance(value, BaseModel | BaseException):
        return {"__getstate__()": value.__getstate__()}
    slots = {name for parent in cls.__mro__ for name, kind in vars(parent).items() if _is_slot(parent, kind)}
    found = {name: getattr(value, name) for name in sorted(slots) if hasattr(value, name)}
    return found | dict(getattr(value, "__dict__", None) or {})


def _attribute(value: Any, facts: dict[str, Any], name: str) -> Any:
    """One that a value has not itself may be its class's."""
    return facts[name] if name in facts else getattr(value, str(name), _NOTHING)


def _own_facts(value: Any) -> dict[str, Any]:
    return {"hex": value.hex, "is_safe": value.is_safe} if isinstance(value, UUID) else {}


def _is_slot(cls: type, kind: object) -> bool:
    return isinstance(kind, MemberDescriptorType) and cls.__module__ not in sys.stdlib_module_names


def _error_facts(error: BaseException) -> dict[str, Any]:
    """What else Python keeps of an exception; not where it was raised."""
    kept = {name for parent in type(error).__mro__ for name, kind in vars(parent).items() if isinstance(kind, _IN_C)}
    return {name: getattr(error, name) for name in sorted(kept - {"args"}) if name[0] != "_" and hasattr(error, name)}


_IN_C = (MemberDescriptorType, GetSetDescriptorType)


def _numpy_facts(array: Any) -> dict[str, Any]:
    return {
        "dtype": array.dtype.str,
        "metadata": dict(array.dtype.metadata or {}),
        "shape": array.shape,
        "writeable": array.flags.writeable,
        "bytes": array.tobytes(),
    }
