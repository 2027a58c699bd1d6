"""
What is run: a graph, one request to it, and the outside world that it acts on.

The units of a workload (nodes, tools, model calls, outside acts) report themselves to the `World`; that is how the
harness knows what has begun, what has returned, and what ran again. Each has a name of its own within the workload, and
a *step* that orders them: `"02"` comes before `"03"`, and `"02.01"` (inside the subgraph that step 02 runs) before
`"02.02"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from langchain_core.messages import BaseMessage
from langgraph.pregel import Pregel
from langgraph.types import interrupt

from ninelives import _langgraph
from ninelives.chaos.faults import Faults, around
from ninelives.chaos.history import Recorder, read_events

T = TypeVar("T")


class Declare(Protocol):
    """How a subject marks a function or tool as an outside act, with or without a probe, or a business key."""

    def __call__(
        self, act: T, *, probe: Callable[..., Any] | None = None, key: Callable[..., str] | None = None
    ) -> T: ...


@dataclass(frozen=True, slots=True)
class Arrival:
    """An act as it arrived outside: `act` is what was done, `key` under which idempotency key."""

    act: str
    key: str | None
    result: Any


class Outside:
    """
    The outside world: it remembers each arrival, even if the caller dies the next moment.

    Attributes:
        path: its books; a process that takes acts itself writes them down there.
    """

    def __init__(self, path: Path, life: int) -> None:
        self.path, self._recorder = path, Recorder(path, life, synced=True)

    def arrive(self, act: str, key: str | None, result: Any, *, declared: bool = True) -> None:
        call = _place()["call"]
        self._recorder.write("arrived", act=act, key=key, result=result, declared=declared, call=call)

    def arrivals(self) -> list[Arrival]:
        return [Arrival(event["act"], event["key"], event["result"]) for event in read_events(self.path)]


@dataclass(slots=True)
class World:
    """
    What the units of a workload see of the harness.

    Attributes:
        declare: marks an outside act, in the way of the subject that is put to the test.
        key: the idempotency key of the act that is being performed, if the subject gives one.
    """

    faults: Faults
    outside: Outside
    declare: Declare
    key: Callable[[], str | None] = field(default=lambda: None)

    @contextmanager
    def unit(self, what: str, step: str) -> Iterator[None]:
        """
        A unit of work.

        Args:
            what: `kind:name`, such as `node:plan` or `tool:search c1`; the same unit has the same one in every process.
            step: where it stands in the order of the workload.
        """
        with around(self.faults, what, step=step, **_place()):
            yield

    def act(self, name: str, step: str, result: T) -> T:
        """Act on the outside world; a unit of its own. To be called within a declared act."""
        with self.going_out(name, step) as key:
            self.outside.arrive(name, key, result)
        return result

    @contextmanager
    def going_out(self, name: str, step: str) -> Iterator[str | None]:
        """A declared act goes out meanwhile; gives its idempotency key. To be called within it."""
        key = self.key()
        with around(self.faults, f"act:{name}", step=step, key=key, **_place()):
            yield key

    def call(self, name: str, step: str, result: T) -> T:
        """Act on the outside world without having declared it: it arrives as often as its unit runs."""
        with around(self.faults, f"act:{name}", step=step, **_place()):
            self.outside.arrive(name, None, result, declared=False)
        return result

    def ask(self, question: str) -> Any:
        """Ask whoever runs the graph; gives the answer, of which the history is told too."""
        answer = interrupt(question)
        self.faults.recorder.write("told", question=question, value=answer)
        return answer

    def happened(self, name: str) -> Arrival | None:
        """What a probe asks: the arrival of this act, if there was one."""
        return next((arrival for arrival in self.outside.arrivals() if arrival.act == name), None)


@dataclass(frozen=True, slots=True)
class Workload:
    """
    Attributes:
        build: makes the graph, compiled without a checkpointer.
        input: of the one request.
        asynchronous: driven through `ainvoke`, not `invoke`.
        answer: what the program answers to everything that the graph asks, given the number of its process: so that it
            shows whose answer counted.
        decide: or what it answers to each question, given what is shown. With neither nothing is answered.
        around: what must be up outside while it is tried, such as a process that acts arrive at.
    """

    name: str
    build: Callable[[World], Pregel[Any, Any, Any, Any]]
    input: Any
    asynchronous: bool = False
    answer: Callable[[int], Any] | None = None
    decide: Callable[[Any], Any] | None = None
    around: Callable[[], AbstractContextManager[Any]] = nullcontext

    @property
    def answers(self) -> bool:
        return self.answer is not None or self.decide is not None

    def answer_to(self, shown: Any, life: int) -> Any:
        if self.decide is not None:
            return self.decide(shown)
        assert self.answer is not None
        return self.answer(life)

    def unanswered(self) -> Workload:
        """The same, whose program answers nothing: others do."""
        return replace(self, answer=None, decide=None)


def normalised(value: Any) -> Any:
    """A state as JSON, without the ids that are random by design."""
    if isinstance(value, BaseMessage):
        return _message(value)
    if isinstance(value, Mapping):
        return {str(key): normalised(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [normalised(entry) for entry in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _message(message: BaseMessage) -> dict[str, Any]:
    calls = [[call["id"], call["name"], call["args"]] for call in getattr(message, "tool_calls", [])]
    told = {"type": message.type, "content": message.content, "name": message.name, "calls": calls}
    answers = {name: getattr(message, name) for name in ("tool_call_id", "status") if hasattr(message, name)}
    return normalised({**told, **answers})  # type: ignore[no-any-return]


def _place() -> dict[str, str | None]:
    """The ids of the task that this code runs in, and of the tool call, if it runs in one."""
    task = _langgraph.current_task()
    return {"task": task.stored_task_id if task else None, "call": task.tool_call_id if task else None}
