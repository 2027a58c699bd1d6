"""
Plain values that MessagePack cannot carry: what each is taken apart into, and how it is put together again.

A `Kind` is found by the exact class when writing and by its code when reading. Codes are part of what is stored: a new
one gets a new number, and no number is ever used for something else.
"""

from __future__ import annotations

import builtins
import importlib
import ipaddress
import pathlib
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

from pydantic_core import Url

from ninelives.errors import NineLivesError, UnknownTypeError

VERSION = b"\x01"
"""The first byte of a frame."""

TAGS_DEEP_MAX = 64
"""How many extensions may lie within one another."""


class Refused(Exception):
    """This value cannot be stored; the text says why, to be read after its type's name. Leaves us with a path added."""


class UnstorableError(UnknownTypeError):
    """A value that nobody can allow: a secret, a cycle, state that Python cannot see, an array where numpy is not."""

    def __init__(self, path: str, type_name: str, why: str) -> None:
        self.path, self.type_name = path, type_name
        NineLivesError.__init__(self, f"{path or 'the value'}: {type_name} {why}.")


@dataclass(frozen=True, slots=True)
class Kind:
    """
    How values of one kind become parts and come back.

    `parts` gives `bytes` that are stored as they are when `raw`, else a list whose members are encoded in turn.
    `build` gets the same back; what it raises means that the bytes are not ours.

    `mutable`: it matters that one object is held in two places, of which two will come back. `loses`: whether a value
    may come back changed, which is then looked at closely; None for a kind that loses nothing.
    """

    code: int
    parts: Callable[[Any], Any]
    build: Callable[[Any], Any]
    raw: bool = False
    mutable: bool = False
    loses: Callable[[Any], bool] | None = None


class Code(IntEnum):
    """The number that a stored value carries in front."""

    TUPLE, DICT, SET, FROZENSET, BIG_INT, SURROGATES, BYTEARRAY = range(1, 8)
    COMPLEX, FRACTION, DECIMAL, RANGE, SLICE, UUID, PATH, PATTERN, IP_ADDRESS = range(8, 17)
    DATETIME, DATE, TIME, TIMEDELTA, TIMEZONE, ZONEINFO = range(17, 23)
    DEQUE, ORDERED_DICT, DEFAULT_DICT, COUNTER = range(23, 27)
    ERROR, NDARRAY, NUMPY_SCALAR, URL = range(27, 31)
    # Of the next ones the parts begin with the name of an allowed class: see classes.py.
    CLASS, ENUM, NAMED_TUPLE, MODEL, OBJECT, DERIVED = range(64, 70)


BY_CLASS = (Code.ENUM, Code.NAMED_TUPLE, Code.MODEL, Code.OBJECT, Code.DERIVED)
"""Those whose parts begin with the name of a class, which `build` is not given."""


def full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


# -- text, numbers -----------------------------------------------------------------------------------------------


def _int_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _int_from(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _pairs(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


# -- time ----------------------------------------------------------------------------------------------------------


def _clock_parts(value: datetime | time) -> list[Any]:
    return [value.hour, value.minute, value.second, value.microsecond, value.fold, value.tzinfo]


def _datetime_parts(value: datetime) -> list[Any]:
    return [value.year, value.month, value.day, *_clock_parts(value)]


def _datetime(parts: list[Any]) -> datetime:
    *moment, fold, zone = parts
    return datetime(*moment).replace(fold=fold, tzinfo=_zone(zone))


def _time(parts: list[Any]) -> time:
    *moment, fold, zone = parts
    return time(*moment).replace(fold=fold, tzinfo=_zone(zone))


def _zone(zone: Any) -> tzinfo | None:
    # A time zone of another making (from a registered class) would be called when two times are compared.
    if zone is not None and type(zone) not in (timezone, ZoneInfo):
        raise ValueError(f"{type(zone).__name__} is no time zone")
    return zone  # type: ignore[no-any-return]


def _timezone_parts(value: timezone) -> list[Any]:
    offset = value.utcoffset(None)
    name = value.tzname(None)
    return [offset] if timezone(offset).tzname(None) == name else [offset, name]


def _uuid_bytes(value: UUID) -> bytes:
    """16 bytes, and one more where the system said whether it was made safely."""
    safe = value.is_safe.value
    return value.bytes if safe is None else value.bytes + safe.to_bytes(1, "big", signed=True)


def _uuid(raw: bytes) -> UUID:
    safe = int.from_bytes(raw[16:], "big", signed=True) if raw[16:] else None
    return UUID(bytes=raw[:16], is_safe=SafeUUID(safe))


def _zone_key(value: ZoneInfo) -> bytes:
    if value.key is None:
        raise Refused("has no key, so it could not be found again")
    return value.key.encode()


def _zone_by_key(raw: bytes) -> ZoneInfo:
    # ZoneInfo looks a key up in its data package, too; a key that is no plain name must not get that far.
    if not re.fullmatch(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", key := raw.decode()):
        raise ValueError("no key of a time zone")
    return ZoneInfo(key)


# -- small tables --------------------------------------------------------------------------------------------------

_PATHS: dict[str, Callable[[str], Any]] = {
    cls.__name__: cls
    for cls in (pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.PosixPath, pathlib.WindowsPath)
}
_ADDRESSES: dict[str, Callable[[str], Any]] = {
    cls.__name__: cls
    for cls in (
        ipaddress.IPv4Address, ipaddress.IPv4Interface, ipaddress.IPv4Network,
        ipaddress.IPv6Address, ipaddress.IPv6Interface, ipaddress.IPv6Network,
    )
}  # fmt: skip
FACTORIES: dict[str, type] = {
    cls.__name__: cls for cls in (list, dict, set, frozenset, tuple, int, float, complex, bool, str, bytes)
}
_ERRORS: dict[str, type[Exception]] = {
    name: cls
    for name, cls in vars(builtins).items()
    if isinstance(cls, type) and issubclass(cls, Exception) and cls.__name__ == name
}


def _named_text(value: Any) -> list[str]:
    return [type(value).__name__, str(value)]


# -- containers ----------------------------------------------------------------------------------------------------


def _default_dict_parts(value: defaultdict[Any, Any]) -> list[Any]:
    factory: Any = value.default_factory
    if factory is None:
        return [None, dict(value)]
    name = getattr(factory, "__name__", "")
    if FACTORIES.get(name) is not factory:
        raise Refused(f"has a default_factory that could not be found again; these could: {', '.join(FACTORIES)}")
    return [name, dict(value)]


def _default_dict(parts: list[Any]) -> defaultdict[Any, Any]:
    name, items = parts
    return defaultdict(None if name is None else FACTORIES[name], items)


def _counter(parts: list[Any]) -> Any:
    counter: Counter[Any] = Counter()
    dict.update(counter, parts[0])  # Counter's own update() adds, and would want numbers
    return _with_attributes(counter, parts[1:])


def _ordered_dict(parts: list[Any]) -> Any:
    return _with_attributes(OrderedDict(parts[0]), parts[1:])


def _pattern(parts: list[Any]) -> re.Pattern[Any]:
    text, flags = parts
    return re.compile(text, flags & ~re.DEBUG)  # DEBUG prints while it compiles


def _ordered_parts(value: OrderedDict[Any, Any] | Counter[Any]) -> list[Any]:
    """Both may carry attributes beside their entries."""
    attributes = vars(value)
    return [dict(value), attributes] if attributes else [dict(value)]


def _with_attributes(value: Any, more: list[Any]) -> Any:
    for name, attribute in more[0].items() if more else ():
        value.__dict__[name] = attribute
    return value


# -- exceptions ----------------------------------------------------------------------------------------------------


class RecordedError(Exception):
    """
    What is left of an exception whose class may not be built from stored bytes: it prints like the original.

    Its cause, context and traceback are not kept, nor are those of any other stored exception.
    """

    def __init__(self, type_name: str, text: str, printed: str) -> None:
        super().__init__(type_name, text, printed)
        self.type_name, self._text, self._printed = type_name, text, printed

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._printed


def _error_parts(error: BaseException) -> list[Any]:
    if type(error) is RecordedError:
        return list(error.args)
    if _ERRORS.get(type(error).__name__) is type(error):
        _, args, *more = tuple(error.__reduce__())
        state = [_with_name(error, dict(more[0] or {}) if more else {})]
        if is_data(args) and is_data(state):
            return [type(error).__name__, args, *(state if state[0] else more)]
    return [full_name(type(error)), _text_of(str, error), _text_of(repr, error)]


def _with_name(error: BaseException, state: dict[str, Any]) -> dict[str, Any]:
    """What was looked for and not found, which Python before 3.12 leaves out."""
    if isinstance(error, AttributeError | NameError) and error.name is not None:
        return {**state, "name": error.name}
    return state


def _error(parts: list[Any]) -> Exception:
    name, args, *more = parts
    if isinstance(args, str):
        return RecordedError(name, args, *more)
    error = _ERRORS[name](*args)
    if more and more[0]:
        if any(type(key) is not str or (key.startswith("__") and key != "__notes__") for key in more[0]):
            raise ValueError("an attribute that no exception has")  # such as __class__, which could be set
        error.__setstate__(more[0])
    return error


def _text_of(show: Callable[[object], str], error: BaseException) -> str:
    try:
        return show(error)
    except Exception:  # an exception's own __str__ may be broken, which must not hide that it was raised
        return object.__repr__(error)


_SCALARS = (type(None), bool, int, float, str, bytes)


def is_data(value: object, depth: int = 4) -> bool:
    """Whether the value is built of plain scalars, containers and exceptions only, at most `depth` levels of them."""
    if type(value) in _SCALARS:
        return True
    if type(value) is dict:
        members: Any = [*value.keys(), *value.values()]
    elif type(value) in (list, tuple):
        members = value
    else:
        return isinstance(value, BaseException) and depth > 0
    return depth > 0 and all(is_data(member, depth - 1) for member in members)


# -- numpy, if the program uses it -----------------------------------------------------------------------------------


def numpy_kind(cls: type) -> Kind | None:
    """The kind of a numpy class. numpy is not imported for this: who holds an array has done so."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    if cls is numpy.ndarray:
        return _NDARRAY
    return _NUMPY_SCALAR if issubclass(cls, numpy.generic) else None


def _dtype_name(dtype: Any) -> str:
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        raise Refused(f"of dtype {dtype} cannot be stored: its elements are not plain numbers, text or moments")
    return str(dtype.str)


def _array_parts(array: Any) -> list[Any]:
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    parts = [_dtype_name(array.dtype), list(array.shape), order, array.tobytes(order=order)]
    return parts if array.flags.writeable else [*parts, False]


def _array(parts: list[Any]) -> Any:
    name, shape, order, data, *writeable = parts
    numpy: Any = importlib.import_module("numpy")
    dtype = numpy.dtype(name)
    _dtype_name(dtype)
    # A bytearray, because an array over bytes would be read-only.
    array = numpy.ndarray(tuple(shape), dtype, buffer=bytearray(data), order=order)
    if array.nbytes != len(data):
        raise ValueError("the array's shape does not fit its bytes")
    array.flags.writeable = not writeable
    return array


def _numpy_scalar_parts(value: Any) -> list[Any]:
    return [_dtype_name(value.dtype), value.tobytes()]


def _numpy_scalar(parts: list[Any]) -> Any:
    return _array([parts[0], [], "C", parts[1]])[()]


# -- the table -------------------------------------------------------------------------------------------------------

_NDARRAY = Kind(Code.NDARRAY, _array_parts, _array, mutable=True, loses=lambda array: bool(array.dtype.metadata))
_NUMPY_SCALAR = Kind(Code.NUMPY_SCALAR, _numpy_scalar_parts, _numpy_scalar)
ERROR = Kind(Code.ERROR, _error_parts, _error, loses=lambda error: type(error) is not RecordedError)
SURROGATES = Kind(
    Code.SURROGATES,
    lambda value: value.encode("utf-8", "surrogatepass"),
    lambda raw: raw.decode("utf-8", "surrogatepass"),
    raw=True,
)
_PATH = Kind(Code.PATH, _named_text, lambda parts: _PATHS[parts[0]](parts[1]))
_IP_ADDRESS = Kind(Code.IP_ADDRESS, _named_text, lambda parts: _ADDRESSES[parts[0]](parts[1]))

KINDS: dict[type, Kind] = {
    tuple: Kind(Code.TUPLE, list, tuple),
    dict: Kind(Code.DICT, lambda value: [part for pair in value.items() for part in pair], _pairs),
    set: Kind(Code.SET, list, set, mutable=True),
    frozenset: Kind(Code.FROZENSET, list, frozenset),
    int: Kind(Code.BIG_INT, _int_bytes, _int_from, raw=True),
    bytearray: Kind(Code.BYTEARRAY, bytes, bytearray, raw=True, mutable=True),
    complex: Kind(Code.COMPLEX, lambda value: [value.real, value.imag], lambda parts: complex(*parts)),
    Fraction: Kind(Code.FRACTION, lambda value: [value.numerator, value.denominator], lambda parts: Fraction(*parts)),
    Decimal: Kind(Code.DECIMAL, lambda value: str(value).encode(), lambda raw: Decimal(raw.decode()), raw=True),
    range: Kind(Code.RANGE, lambda value: [value.start, value.stop, value.step], lambda parts: range(*parts)),
    slice: Kind(Code.SLICE, lambda value: [value.start, value.stop, value.step], lambda parts: slice(*parts)),
    UUID: Kind(Code.UUID, _uuid_bytes, _uuid, raw=True),
    Url: Kind(Code.URL, lambda value: str(value).encode(), lambda raw: Url(raw.decode()), raw=True),
    re.Pattern: Kind(
        Code.PATTERN,
        lambda value: [value.pattern, value.flags],
        _pattern,
        loses=lambda value: bool(value.flags & re.DEBUG),
    ),
    datetime: Kind(Code.DATETIME, _datetime_parts, _datetime),
    date: Kind(Code.DATE, lambda value: [value.year, value.month, value.day], lambda parts: date(*parts)),
    time: Kind(Code.TIME, _clock_parts, _time),
    timedelta: Kind(
        Code.TIMEDELTA,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: timedelta(*parts),
    ),
    timezone: Kind(Code.TIMEZONE, _timezone_parts, lambda parts: timezone(*parts)),
    ZoneInfo: Kind(Code.ZONEINFO, _zone_key, _zone_by_key, raw=True),
    deque: Kind(
        Code.DEQUE,
        lambda value: [value.maxlen, list(value)],
        lambda parts: deque(parts[1], parts[0]),
        mutable=True,
    ),
    OrderedDict: Kind(Code.ORDERED_DICT, _ordered_parts, _ordered_dict, mutable=True),
    defaultdict: Kind(Code.DEFAULT_DICT, _default_dict_parts, _default_dict, mutable=True),
    Counter: Kind(Code.COUNTER, _ordered_parts, _counter, mutable=True),
    **{cls: _PATH for cls in _PATHS.values() if isinstance(cls, type)},
    **{cls: _IP_ADDRESS for cls in _ADDRESSES.values() if isinstance(cls, type)},
}
KINDS_BY_CODE: dict[int, Kind] = {
    kind.code: kind for kind in (*KINDS.values(), SURROGATES, ERROR, _NDARRAY, _NUMPY_SCALAR)
}
