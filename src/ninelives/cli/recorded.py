"""
What is in the store already when a run goes on: the steps, tasks and acts that are not run again.

Looked up before the run is driven, for being shown; what really runs again is decided by the runner alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from langgraph.types import PregelTask, StateSnapshot

from ninelives import _langgraph
from ninelives.cli import render
from ninelives.cli.threads import nodes_between
from ninelives.model import NO_USAGE, EffectState, Run, StoredCheckpoint, Usage
from ninelives.protect.admission import Protection, reading_graph, ready
from ninelives.store import Act

T = TypeVar("T")

STEPS_MAX = 12
"""So many steps are read with their names: as many as there is room for on a screen, since each brings its state."""
NAMES_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class RecordedStep:
    number: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """A task of the step under way whose result is recorded. `ns` names it, and all graphs around it."""

    name: str
    ns: str
    step: int


@dataclass(frozen=True, slots=True)
class RecordedAct:
    name: str
    call_id: str | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """
    What a chain of runs has left.

    Attributes:
        steps: of the root graph, oldest first; `earlier` more came before them.
        tasks: of the step under way, in the root graph and in graphs inside it.
        inside: how many steps are recorded of the graphs in tasks that have not ended, by the task's `ns`.
        usage: what all of it has cost.
    """

    chain: str
    steps: tuple[RecordedStep, ...] = ()
    earlier: int = 0
    tasks: tuple[RecordedTask, ...] = ()
    inside: Mapping[str, int] = field(default_factory=dict)
    acts: tuple[RecordedAct, ...] = ()
    usage: Usage = NO_USAGE

    def __bool__(self) -> bool:
        return bool(self.steps or self.tasks or self.inside or self.acts)

    def __str__(self) -> str:
        steps = [name for step in self.steps for name in step.nodes]
        inside = [ns.rpartition("|")[2].partition(":")[0] for ns in self.inside]
        tasks, acts = [task.name for task in self.tasks], [act.name for act in self.acts]
        return self._in_words(_named(steps), _named(inside), _named(tasks), _named(acts))

    def in_numbers(self) -> str:
        return self._in_words("", "", "", "")

    def _in_words(self, steps: str, inside: str, tasks: str, acts: str) -> str:
        counts = (
            (len(self.steps) + self.earlier, "step", steps),
            (sum(self.inside.values()), "inner step", inside),
            (len(self.tasks), "task", tasks),
            (len(self.acts), "act", acts),
        )
        return ", ".join(f"{render.count(number, thing)}{names}" for number, thing, names in counts if number)


def recorded_record(recorded: Recorded) -> dict[str, Any]:
    return {
        "kind": "recorded",
        "steps": len(recorded.steps) + recorded.earlier,
        "inner_steps": sum(recorded.inside.values()),
        "tasks": [task.name for task in recorded.tasks],
        "acts": [act.name for act in recorded.acts],
    }


async def recorded_before(p: Protection, thread_id: str) -> Recorded | None:
    """What the unfinished run of a thread would not run again; None if nothing is unfinished, or nothing recorded."""
    try:
        return None if p.ephemeral else await _Look(p, thread_id).look()
    except Exception:
        return None  # what cannot be read is refused, with its reason, when the run is to go on


class _Look:
    def __init__(self, p: Protection, thread_id: str) -> None:
        self.p, self.thread_id = p, thread_id
        self.tasks: list[RecordedTask] = []
        self.inside: dict[str, int] = {}

    async def look(self) -> Recorded | None:
        store, scope = self.p.store, self.p.scope
        await ready(self.p)  # a run whose process has died is held until that is found out
        run = await self._do(store.find_newest_run(scope, self.thread_id))
        if run is None or run.held or not run.unfinished:
            return None
        runs = await self._do(store.list_runs(scope, thread_id=self.thread_id, limit=1000))
        chain = {one.run_id for one in runs if one.chain == run.chain}
        head = await self._checkpoint("")
        steps, earlier = await self._steps(run, chain)
        if head is not None and head.run_id in chain:
            snapshot = await reading_graph(self.p).aget_state(
                {"configurable": {"thread_id": self.thread_id}}, subgraphs=True
            )
            await self._look_at(snapshot.tasks, head, "")
        effects = await self._do(store.list_effects(scope, thread_id=self.thread_id))
        done = [one for one in effects if one.run_id in chain and one.state is EffectState.DONE]
        found = Recorded(
            chain=run.chain,
            steps=steps,
            earlier=earlier,
            tasks=tuple(self.tasks),
            inside=self.inside,
            acts=tuple(RecordedAct(one.name, one.call_id) for one in done),
            usage=await self._do(store.chain_usage(scope, run.chain)),
        )
        return found or None

    async def _steps(self, run: Run, chain: Collection[str]) -> tuple[tuple[RecordedStep, ...], int]:
        """The last steps on the way to the head that the chain has made, oldest first, and how many came before."""
        act = self.p.store.list_checkpoints(self.p.scope, thread_id=self.thread_id, ns="", limit=STEPS_MAX + 1)
        found = await self._do(act)
        known = {stored.checkpoint_id: stored for stored in found}
        steps, at = [], found[0] if found else None
        while at is not None and at.run_id in chain:
            before = known.get(at.parent_id or "")
            if nodes := nodes_between(before, at):
                steps.append(RecordedStep(at.metadata["step"], tuple(nodes)))
            at = before
        if not steps or len(found) <= STEPS_MAX:
            return tuple(reversed(steps)), 0
        # The input is a step of its own, and so is what comes of it before the first node.
        base = await self._checkpoint("", run.base) if run.base else None
        first = (base.metadata["step"] if base else -2) + 3
        return tuple(reversed(steps)), max(0, steps[-1].number - first)

    async def _look_at(self, tasks: Iterable[PregelTask], head: StoredCheckpoint, around: str) -> None:
        """The tasks of the step under way of one graph, and of the graphs in those that have not ended."""
        finished = _langgraph.finished_tasks(head.writes)
        for task in tasks:
            ns = f"{around}{task.name}:{task.id}"
            if task.id in finished:
                self.tasks.append(RecordedTask(task.name, ns, head.metadata["step"] + 1))
            elif (inner := await self._checkpoint(ns)) is not None:
                if inner.metadata["step"] > 0:  # up to 0 it is the input
                    self.inside[ns] = inner.metadata["step"]
                if isinstance(task.state, StateSnapshot):
                    await self._look_at(task.state.tasks, inner, f"{ns}|")

    async def _checkpoint(self, ns: str, checkpoint_id: str | None = None) -> StoredCheckpoint | None:
        return await self._do(self.p.store.get_checkpoint(self.p.scope, self.thread_id, ns, checkpoint_id))

    async def _do(self, act: Act[T]) -> T:
        return await self.p.store.aperform(act)


def _named(names: Iterable[str]) -> str:
    return f" ({render.short(render.counted(names), NAMES_CHARS_MAX)})"
