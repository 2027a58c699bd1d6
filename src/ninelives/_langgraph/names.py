"""LangGraph's reserved keys and channels, under names of our own."""

from __future__ import annotations

from uuid import UUID, uuid5

from ninelives._langgraph import private

# keys of config["configurable"]
CHECKPOINTER_KEY = private.CONFIG_KEY_CHECKPOINTER
CHECKPOINT_ID_KEY = private.CONFIG_KEY_CHECKPOINT_ID
CHECKPOINT_MAP_KEY = private.CONFIG_KEY_CHECKPOINT_MAP
CHECKPOINT_NS_KEY = private.CONFIG_KEY_CHECKPOINT_NS
DURABILITY_KEY = private.CONFIG_KEY_DURABILITY
RUNNER_SUBMIT_KEY = private.CONFIG_KEY_RUNNER_SUBMIT
RUNTIME_KEY = private.CONFIG_KEY_RUNTIME
STRICT_RESUME_KEY = private.CONFIG_KEY_STRICT_RESUME
TASK_ID_KEY = private.CONFIG_KEY_TASK_ID
THREAD_ID_KEY = private.CONFIG_KEY_THREAD_ID

# channels of pending writes that are not state
ERROR = private.ERROR
ERROR_SOURCE_NODE = private.ERROR_SOURCE_NODE
INPUT = private.INPUT
INTERRUPT = private.INTERRUPT
NO_WRITES = private.NO_WRITES
RESUME = private.RESUME
TASKS = private.TASKS

# the task id of writes that are a superstep's input (Command, update_state), not a task's
NULL_TASK_ID = private.NULL_TASK_ID


# what a task's triggers hold when a Send started it
SENT = private.PUSH


def is_state_key(channel: str) -> bool:
    """Whether a channel holds state of the graph's own schema, and does not just say which node comes next."""
    return not channel.startswith(("branch:to:", "join:", "__"))


def input_task(checkpoint_id: str) -> str:
    """
    The task id under which a DeltaChannel's share of an input is stored on this checkpoint.

    LangGraph's checkpoint ids are UUIDs; under an id of another form it stores no such thing, and "" names no task.
    """
    try:
        return str(uuid5(UUID(checkpoint_id), INPUT))
    except ValueError:
        return ""


def is_input_task(checkpoint_id: str, task_id: str) -> bool:
    """Whether these writes are a DeltaChannel's share of an input."""
    return task_id == input_task(checkpoint_id)


def is_interrupt_id(text: object) -> bool:
    """Whether it has the form of an interrupt's id: 32 hexadecimal digits."""
    return isinstance(text, str) and len(text) == 32 and all(digit in "0123456789abcdef" for digit in text)
