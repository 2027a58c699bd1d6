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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Protocol

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.prebuilt import ToolNode
from langgraph.types import PregelExecutableTask

from ninelives._langgraph.openings import Closing
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
    xxh3_128_hexdigest,
)
from ninelives._langgraph.watch import StopDriving

HOOKS_KEY = "__ninelives_calls"
"""Entry of `config["configurable"]` that carries a run's `ToolHooks` to the loops of all its graphs."""
PLACE_KEY = "__ninelives_place"
"""Entry that tells calls with one id apart: (namespace of the task, which of its calls)."""


class ToolHooks(Protocol):
    """What a run has to say about the tool calls in it. The `a` twins are for the event loop."""

    answers: Mapping[str, Any]
    """Accepted answers, by interrupt id."""
    closings: Sequence[Closing]
    """What the root graph is to be given before the run's input; emptied when that is under way."""

    def began(self, tasks: Mapping[str, PregelExecutableTask]) -> None:
        """These tasks of one graph are about to run."""

    def tool(self, tool: BaseTool) -> BaseTool:
        """The tool as it is to be called."""

    def refusal(self, call: Mapping[str, Any], message_id: str | None, *, to_run: bool = False) -> str | None:
        """
        Why a call may not run, as the model is to be told; None: it may.

        Args:
            message_id: of the message of a model that it stands in, where that can be told.
            to_run: it is what the tool is to be run with; else what the tool node was given, before its wrappers.
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
        proc = _hooked(task.proc, lambda node, task=task: _Task(task, hooks).node(node))  # type: ignore[misc]
        if proc is not task.proc:
            tasks[task_id] = replace(task, proc=proc)


def _hooked(runnable: Any, hook: Callable[[ToolNode], ToolNode]) -> Any:
    """The same, or a copy with what the hook makes of the tool nodes in it."""
    if isinstance(runnable, ToolNode):
        return hook(runnable)
    if isinstance(runnable, RunnableSeq):
        steps = [_hooked(step, hook) for step in runnable.steps]
        if all(new is old for new, old in zip(steps, runnable.steps, strict=True)):
            return runnable
        sequence = copy.copy(runnable)
        sequence.steps = steps
        return sequence
    if isinstance(runnable, RunnableBindingBase):
        bound = _hooked(runnable.bound, hook)
        return runnable if bound is runnable.bound else runnable.model_copy(update={"bound": bound})
    return runnable


def tool_calls_seen(task_input: Any) -> Sequence[Mapping[str, Any]]:
    """The tool calls of the last message of a model in what a task was given, each with that message's id."""
    message = _last_of_model(_messages_in(task_input, "messages"))
    return [{**call, "message_id": message.id} for call in message.tool_calls] if message else ()


def _messages_in(state: Any, key: str) -> Sequence[Any]:
    found = state
    if not isinstance(state, list):
        found = state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)
    return found if isinstance(found, list) else ()


def _last_of_model(messages: Sequence[Any], call_id: str | None = None) -> AIMessage | None:
    """The last message of a model, or the last in which this call stands."""
    for message in reversed(messages):
        if isinstance(message, AIMessage) and (
            call_id is None or any(call["id"] == call_id for call in message.tool_calls)
        ):
            return message
    return None


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
        self._messages_key = "messages"

    def node(self, node: ToolNode) -> ToolNode:
        clone: Any = copy.copy(node)
        clone._tools_by_name = {name: self._hooks.tool(tool) for name, tool in node.tools_by_name.items()}
        # What runs it are methods bound to the original; on the copy they must look into the copy.
        clone.func, clone.afunc = clone._func, clone._afunc
        self._messages_key = clone._messages_key
        parse, combine = clone._parse_input, clone._combine_tool_outputs
        run, arun = clone._run_one, clone._arun_one
        execute, aexecute = clone._execute_tool_sync, clone._execute_tool_async

        def parse_input(*args: Any) -> Any:
            found = parse(*args)
            self._calls = found[0]
            return found

        def run_one(call: Any, input_type: Any, runtime: Any) -> Any:
            own = self._own(call, runtime)
            try:
                output = self._hooks.find(self._key(call)) if self._many else None
                output = self._refused(call, runtime) if output is None else output
                if output is None:
                    output = run(call, input_type, own)
                    if self._many:
                        self._hooks.keep(self._key(call), output)
            except Exception as error:
                return self._ended(call, error, own)
            return output

        async def arun_one(call: Any, input_type: Any, runtime: Any) -> Any:
            own = self._own(call, runtime)
            try:
                output = await self._hooks.afind(self._key(call)) if self._many else None
                output = self._refused(call, runtime) if output is None else output
                if output is None:
                    output = await arun(call, input_type, own)
                    if self._many:
                        await self._hooks.akeep(self._key(call), output)
            except Exception as error:
                return self._ended(call, error, own)
            return output

        def execute_tool(request: Any, *args: Any) -> Any:
            refused = self._refused(request.tool_call, request.runtime, to_run=True)
            return execute(request, *args) if refused is None else refused

        async def aexecute_tool(request: Any, *args: Any) -> Any:
            refused = self._refused(request.tool_call, request.runtime, to_run=True)
            return await aexecute(request, *args) if refused is None else refused

        def combine_outputs(outputs: list[Any], input_type: Any) -> Any:
            self._must_all_be_done(outputs)
            return combine(outputs, input_type)

        clone._parse_input, clone._combine_tool_outputs = parse_input, combine_outputs
        clone._run_one, clone._arun_one = run_one, arun_one
        clone._execute_tool_sync, clone._execute_tool_async = execute_tool, aexecute_tool
        hooked: ToolNode = clone
        return hooked

    @property
    def _many(self) -> bool:
        """Of one call, the task's own record is enough."""
        return len(self._calls) > 1

    def _place(self, call: Any) -> int:
        return next((place for place, one in enumerate(self._calls) if one is call), 0)

    def _key(self, call: Any) -> str:
        return f"{self._id}/{self._place(call)}/{call.get('id')}"

    # -- who may not run ------------------------------------------------------------------------------------------

    def _refused(self, call: Any, runtime: Any, *, to_run: bool = False) -> ToolMessage | None:
        """What the model is told instead of a call; where it has been told something about it already, that stays."""
        messages = _messages_in(runtime.state, self._messages_key)
        message = _last_of_model(messages, call["id"])
        why = self._hooks.refusal(call, message.id if message else None, to_run=to_run)
        if why is None:
            return None
        told = next((one for one in reversed(messages) if _is_result(one, call["id"])), None)
        return told or ToolMessage(why, name=call["name"], tool_call_id=call["id"], status="error")

    # -- each for itself ------------------------------------------------------------------------------------------

    def _own(self, call: Any, runtime: Any) -> Any:
        """The call's runtime: with questions and graphs of its own where it is one of several."""
        if not self._many:
            return runtime
        conf, place = runtime.config[CONF], self._place(call)
        shared: PregelScratchpad = conf[CONFIG_KEY_SCRATCHPAD]
        answers: list[Any] = []
        while (interrupt_id := self._interrupt_id(conf, call, len(answers))) in self._hooks.answers:
            answers.append(self._hooks.answers[interrupt_id])
        send = conf[CONFIG_KEY_SEND]

        def send_output(writes: Sequence[tuple[str, Any]]) -> None:
            if kept := [write for write in writes if write[0] != RESUME]:
                send(kept)

        own = replace(
            shared,
            interrupt_counter=partial(next, count()),
            get_null_resume=_no_plain_answer,
            resume=answers,
            # The graphs that a call runs are known by their number in the task. Counted per call, since when it runs
            # again others are done, and do not count.
            subgraph_counter=partial(next, count(place, len(self._calls))),
        )
        changed = {**conf, CONFIG_KEY_SCRATCHPAD: own, CONFIG_KEY_SEND: send_output}
        if sum(one["id"] == call["id"] for one in self._calls) > 1:
            changed[PLACE_KEY] = conf[CONFIG_KEY_CHECKPOINT_NS], place
        return replace(runtime, config={**runtime.config, CONF: changed})

    def _interrupt_id(self, conf: Mapping[str, Any], call: Any, answered: int) -> str:
        """As LangGraph makes them, of the task's place and the number of answers; and of the call."""
        place = (conf[CONFIG_KEY_CHECKPOINT_NS], self._key(call), str(answered))
        return xxh3_128_hexdigest(NS_SEP.join(place).encode())

    # -- how they end ---------------------------------------------------------------------------------------------

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


def _is_result(message: Any, call_id: str) -> bool:
    return isinstance(message, ToolMessage) and message.tool_call_id == call_id
