"""
Every tool call of a run goes by us, in whatever graph: the root's, a subgraph's, that of a subagent called by a tool.

A `ToolNode` that got several calls in one task runs them as one: LangGraph gives them one counter of questions between
them, so the second call takes the first one's answer; it repeats all of them when one has to be repeated; and it leaves
those behind that are still at work when one asks or fails. Here each call has questions of its own, each finished one
is recorded by itself, and all are waited for.

The tool node that runs is a copy, made for the one task right before it begins; the user's is never changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Protocol

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.prebuilt import ToolNode
from langgraph.types import PregelExecutableTask

from ninelives._langgraph.private import (
    CONF,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_SCRATCHPAD,
    CONFIG_KEY_SEND,
    NS_SEP,
    RESUME,
    PregelScratchpad,
    RunnableSeq,
    interrupt_id_of,
    var_child_runnable_config,
    xxh3_128_hexdigest,
)
from ninelives._langgraph.watch import StopDriving

HOOKS_KEY = "__ninelives_calls"
"""Entry of `config["configurable"]` that carries a run's `ToolHooks` to the loops of all its graphs."""


class ToolHooks(Protocol):
    """What a run has to say about the tool calls in it. The `a` twins are for the event loop."""

    answers: Mapping[str, Any]
    """Accepted answers, by interrupt id."""

    def began(self, tasks: Mapping[str, PregelExecutableTask]) -> None:
        """These tasks of one graph are about to run."""

    def tool(self, tool: BaseTool) -> BaseTool:
        """The tool as it is to be called."""

    def refusal(self, call: Mapping[str, Any]) -> str | None:
        """Why a call may not run, as the model is to be told; None: it may."""

    def asks(self, call: Mapping[str, Any]) -> Mapping[str, Any] | str | None:
        """
        Asked inside the call, so that it may `interrupt()`: the arguments to run it with, or what the model is told
        instead; None: as it is.
        """

    def moved(self, before: str, now: str) -> None:
        """An interrupt was given another id."""

    def find(self, key: str) -> Any:
        """The output of a call that was recorded under this key; None if none was."""

    async def afind(self, key: str) -> Any: ...

    def keep(self, key: str, output: Any) -> None:
        """Record the output of a finished call."""

    async def akeep(self, key: str, output: Any) -> None: ...


def hook_tools(tasks: dict[str, PregelExecutableTask], hooks: ToolHooks) -> None:
    """Have the tool calls of these tasks, which are about to run, go by the hooks."""
    for task_id, task in tasks.items():
        if isinstance(task.proc, ToolNode):
            tasks[task_id] = replace(task, proc=_Task(task, hooks).node(task.proc))
        elif isinstance(task.proc, RunnableSeq) and isinstance(task.proc.steps[0], ToolNode):
            sequence = copy.copy(task.proc)
            sequence.steps = [_Task(task, hooks).node(task.proc.steps[0]), *task.proc.steps[1:]]
            tasks[task_id] = replace(task, proc=sequence)


def tool_calls_seen(task_input: Any) -> Sequence[Mapping[str, Any]]:
    """The tool calls of the last message of a model in what a task was given."""
    messages = task_input
    if not isinstance(task_input, list):
        messages = task_input.get("messages") if isinstance(task_input, dict) else getattr(task_input, "messages", None)
    for message in reversed(messages if isinstance(messages, list) else []):
        if isinstance(message, AIMessage):
            return message.tool_calls
    return ()


@dataclass(slots=True)
class _Asked:
    """A call that asks, in the place of its output until all have come to an end."""

    error: GraphInterrupt


@dataclass(slots=True)
class _Failed:
    """A call that failed, likewise."""

    error: Exception


class _Task:
    """The tool calls of one task."""

    def __init__(self, task: PregelExecutableTask, hooks: ToolHooks) -> None:
        self._id, self._hooks = task.id, hooks
        self._calls: list[Any] = []

    def node(self, node: ToolNode) -> ToolNode:
        clone: Any = copy.copy(node)
        clone._tools_by_name = {name: self._hooks.tool(tool) for name, tool in node.tools_by_name.items()}
        clone.func, clone.afunc = clone._func, clone._afunc
        parse, run, arun, combine = clone._parse_input, clone._run_one, clone._arun_one, clone._combine_tool_outputs

        def parse_input(*args: Any) -> Any:
            found = parse(*args)
            self._calls = found[0]
            return found

        def run_one(call: Any, input_type: Any, runtime: Any) -> Any:
            key = self._key(call)
            if (output := self._before(call, self._hooks.find(key) if self._many else None)) is not None:
                return output
            own = self._own(call, runtime)
            token = var_child_runnable_config.set(own.config)
            try:
                asked = self._hooks.asks(call)
                output = self._told(call, asked) if isinstance(asked, str) else run(_with(call, asked), input_type, own)
            except Exception as error:
                return self._ended(call, error, own)
            finally:
                with suppress(ValueError):
                    var_child_runnable_config.reset(token)
            if self._many:
                self._hooks.keep(key, output)
            return output

        async def arun_one(call: Any, input_type: Any, runtime: Any) -> Any:
            key = self._key(call)
            if (output := self._before(call, await self._hooks.afind(key) if self._many else None)) is not None:
                return output
            own = self._own(call, runtime)
            token = var_child_runnable_config.set(own.config)
            try:
                asked = self._hooks.asks(call)
                if isinstance(asked, str):
                    output = self._told(call, asked)
                else:
                    output = await arun(_with(call, asked), input_type, own)
            except Exception as error:
                return self._ended(call, error, own)
            finally:
                with suppress(ValueError):
                    var_child_runnable_config.reset(token)
            if self._many:
                await self._hooks.akeep(key, output)
            return output

        def combine_outputs(outputs: list[Any], input_type: Any) -> Any:
            self._must_all_be_done(outputs)
            return combine(outputs, input_type)

        clone._parse_input, clone._run_one, clone._arun_one = parse_input, run_one, arun_one
        clone._combine_tool_outputs = combine_outputs
        hooked: ToolNode = clone
        return hooked

    @property
    def _many(self) -> bool:
        """Of one call, the task's own record is enough."""
        return len(self._calls) > 1

    def _key(self, call: Any) -> str:
        place = next((i for i, one in enumerate(self._calls) if one is call), 0)
        return f"{self._id}/{place}/{call.get('id')}"

    def _before(self, call: Any, recorded: Any) -> Any:
        if recorded is not None:
            return recorded
        refusal = self._hooks.refusal(call)
        return None if refusal is None else self._told(call, refusal, status="error")

    def _told(self, call: Any, text: str, status: Any = "success") -> ToolMessage:
        return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status=status)

    def _own(self, call: Any, runtime: Any) -> Any:
        """The call's runtime, with questions of its own where it is one of several."""
        if not self._many:
            return runtime
        conf = runtime.config[CONF]
        shared: PregelScratchpad = conf[CONFIG_KEY_SCRATCHPAD]
        answers: list[Any] = []
        while (interrupt_id := self._interrupt_id(conf, call, len(answers))) in self._hooks.answers:
            answers.append(self._hooks.answers[interrupt_id])
        send = conf[CONFIG_KEY_SEND]

        def send_output(writes: Sequence[tuple[str, Any]]) -> None:
            if kept := [write for write in writes if write[0] != RESUME]:
                send(kept)

        asked = count()
        own = replace(shared, interrupt_counter=partial(next, asked), get_null_resume=_no_plain_answer, resume=answers)
        changed = {**conf, CONFIG_KEY_SCRATCHPAD: own, CONFIG_KEY_SEND: send_output}
        return replace(runtime, config={**runtime.config, CONF: changed})

    def _interrupt_id(self, conf: Mapping[str, Any], call: Any, answered: int) -> str:
        """As LangGraph makes them, of the task's place and the number of answers; and of the call."""
        place = (conf[CONFIG_KEY_CHECKPOINT_NS], self._key(call), str(answered))
        return xxh3_128_hexdigest(NS_SEP.join(place).encode())

    def _ended(self, call: Any, error: Exception, runtime: Any) -> Any:
        if not self._many:
            raise error
        if isinstance(error, GraphInterrupt):
            return _Asked(GraphInterrupt([self._renamed(call, one, runtime.config[CONF]) for one in error.args[0]]))
        return _Failed(error)

    def _renamed(self, call: Any, asked: Any, conf: Mapping[str, Any]) -> Any:
        """The call's own question under an id of its own; one that a graph inside it asks keeps its id."""
        answered = len(conf[CONFIG_KEY_SCRATCHPAD].resume)
        if asked.id != interrupt_id_of(conf[CONFIG_KEY_CHECKPOINT_NS], answered):
            return asked
        renamed = copy.copy(asked)
        renamed.id = self._interrupt_id(conf, call, answered)
        self._hooks.moved(asked.id, renamed.id)
        return renamed

    def _must_all_be_done(self, outputs: Sequence[Any]) -> None:
        """
        Raises: the first stop of ours, else the first failure, else one interrupt with all that was asked.
        """
        failed = [output.error for output in outputs if isinstance(output, _Failed)]
        for wanted in (StopDriving, GraphBubbleUp, Exception):
            for error in failed:
                if isinstance(error, wanted):
                    raise error
        if asked := [one for output in outputs if isinstance(output, _Asked) for one in output.error.args[0]]:
            raise GraphInterrupt(tuple(asked))


def _no_plain_answer(consume: bool = False) -> None:
    """A plain answer would go to whichever call asks first."""


def _with(call: Any, args: Mapping[str, Any] | None) -> Any:
    return call if args is None else {**call, "args": dict(args)}
