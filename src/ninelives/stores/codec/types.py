"""
Which classes may be stored and loaded.

Bytes name a class by a tag; the tag is looked up here and nowhere else, so what is stored can never make a process
import or call something that the program did not allow beforehand.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pydantic
from langchain_core import agents, documents, messages, outputs, prompt_values
from langchain_core.messages.base import TextAccessor
from langgraph import types as langgraph_types
from langgraph.store.base import Item, SearchItem

from ninelives import _langgraph
from ninelives.stores.codec.classes import CLASS, SECRET, class_kind, holds_secret, tag
from ninelives.stores.codec.fidelity import is_shared
from ninelives.stores.codec.values import ERROR, FACTORIES, KINDS, Kind, numpy_kind


class TypeRegistry:
    """
    The allowed classes, beside the plain values that are always allowed.

    May be shared by threads. Of two classes with one name the one allowed last counts: values of the other are refused
    when written, because they would come back as something else.

    Attributes:
        strict: what is written with these types is read back and compared, and refused if it is not the same.
    """

    def __init__(self, types: Iterable[type] = (), *, strict: bool = False) -> None:
        self.strict = strict
        self._changing = threading.Lock()
        self._by_class: dict[type, Kind] = {}
        self._by_tag: dict[str, type] = {}
        self.allow(*types)

    def allow(self, *types: type) -> None:
        """
        Let values of these very classes be stored and loaded; their subclasses are other classes.

        Raises:
            TypeError: one of them is no class (`list[int]`, a function).
        """
        for cls in types:
            if not isinstance(cls, type):
                raise TypeError(f"{cls!r} is not a class, so it cannot be allowed. Pass the class itself.")
        with self._changing:  # readers see the old tables or the new ones, never half of a change
            by_class, by_tag = dict(self._by_class), dict(self._by_tag)
            for cls in types:
                _add(cls, by_class, by_tag)
            self._by_class, self._by_tag = by_class, by_tag

    def copy(self) -> TypeRegistry:
        return TypeRegistry(self, strict=self.strict)

    def __or__(self, types: Iterable[type]) -> TypeRegistry:
        """A new registry with these classes (or another registry's) as well: `DEFAULT_TYPES | [Report, Row]`."""
        return TypeRegistry([*self, *types], strict=self.strict)

    def __iter__(self) -> Iterator[type]:
        return iter(self._by_class)

    def __contains__(self, cls: object) -> bool:
        return cls in self._by_class

    def kind_of(self, value: object) -> Kind | None:
        """How the value is stored; None if it may not be."""
        cls = type(value)
        return KINDS.get(cls) or self._by_class.get(cls) or self._unlisted_kind(value)

    def _unlisted_kind(self, value: object) -> Kind | None:
        if isinstance(value, type):
            return CLASS if self.find_class(tag(value)) is value else None
        if isinstance(value, BaseException):
            return ERROR
        return SECRET if holds_secret(type(value)) else numpy_kind(type(value))

    def find(self, class_tag: str) -> Kind | None:
        """How values of the allowed class are built that a tag in stored bytes stands for."""
        cls = self._by_tag.get(class_tag)
        return None if cls is None else self._by_class.get(cls)

    def find_class(self, class_tag: str) -> type | None:
        """The allowed class itself; builtins such as `int` are known, too."""
        return self._by_tag.get(class_tag) or _BUILTINS.get(class_tag)


_BUILTINS = {tag(cls): cls for cls in FACTORIES.values()}


def _add(cls: type, by_class: dict[type, Kind], by_tag: dict[str, type]) -> None:
    if cls in KINDS or cls.__module__ == "builtins":
        return  # plain values, and what must never be built by name
    namesake = by_tag.get(tag(cls))
    if namesake is not None:
        del by_class[namesake]
    kind = class_kind(cls)
    loses = _is_raised if issubclass(cls, BaseException) and kind.loses is None else kind.loses
    by_class[cls], by_tag[tag(cls)] = replace(kind, mutable=is_shared(cls), loses=loses), cls


def _is_raised(error: BaseException) -> bool:
    return error.__context__ is not None or error.__cause__ is not None


def _classes_in(module: Any, base: type) -> list[type]:
    public = (getattr(module, name) for name in module.__all__)
    return [cls for cls in public if isinstance(cls, type) and issubclass(cls, base)]


DEFAULT_TYPES = TypeRegistry(
    [
        *_classes_in(messages, messages.BaseMessage),
        *_classes_in(outputs, pydantic.BaseModel),
        TextAccessor,  # what `message.text` gives: a str of its own
        documents.Document,
        agents.AgentAction,
        agents.AgentActionMessageLog,
        agents.AgentStep,
        agents.AgentFinish,
        prompt_values.ChatPromptValue,
        prompt_values.StringPromptValue,
        langgraph_types.Send,
        langgraph_types.Command,
        langgraph_types.Interrupt,
        langgraph_types.Overwrite,
        langgraph_types.TimeoutPolicy,
        langgraph_types.StateSnapshot,
        langgraph_types.PregelTask,
        _langgraph.DeltaSnapshot,
        Item,
        SearchItem,
        pydantic.AnyUrl,
        pydantic.AnyHttpUrl,
        pydantic.HttpUrl,
        pydantic.FileUrl,
    ]
)
"""What LangChain and LangGraph themselves put into checkpoints and writes."""
