"""
The one place that knows LangGraph's insides.

Nothing else in this project uses a private name of LangGraph. `private` gathers those names; the rest is one idea a
module. What must hold: the user's graph is never changed, LangGraph is never patched, and every hook has a test over
a real graph that fails when a release moves it.
"""

from ninelives._langgraph.deltas import Frequency, must_be_whole, must_not_be_deep, replayed
from ninelives._langgraph.describe import describe_graph, fingerprint
from ninelives._langgraph.executor import RunExecutor, current_work
from ninelives._langgraph.gates import at_gate, has_gates
from ninelives._langgraph.handled import settle_handled_errors
from ninelives._langgraph.hints import schema_types
from ninelives._langgraph.messages import with_message_ids
from ninelives._langgraph.names import (
    CHECKPOINT_ID_KEY,
    CHECKPOINT_MAP_KEY,
    CHECKPOINT_NS_KEY,
    ERROR,
    ERROR_SOURCE_NODE,
    INTERRUPT,
    NULL_TASK_ID,
    RESUME,
    SENT,
    STRICT_RESUME_KEY,
    TASKS,
    input_task,
    is_input_task,
    is_interrupt_id,
    is_state_key,
)
from ninelives._langgraph.nesting import (
    TaskInfo,
    ambient_entry,
    current_task,
    inside_langgraph,
    outside_config,
    place_of,
)
from ninelives._langgraph.openings import Closing, Opening, closing, finished_work, open_calls
from ninelives._langgraph.preflight import finished_tasks, missing_parts, nodes_due, pending_interrupts
from ninelives._langgraph.prepare import plain_tool, prepared, tool_on_executor, with_saver
from ninelives._langgraph.private import DELTA_COUNTERS, DeltaSnapshot, check_version
from ninelives._langgraph.reviews import reviewed_tools
from ninelives._langgraph.subgraphs import all_graphs, subgraphs_without_saver, tools_of, untracked_channels
from ninelives._langgraph.supersteps import Supersteps, take_max_concurrency
from ninelives._langgraph.toolnodes import HOOKS_KEY, ToolHooks, tool_calls_seen
from ninelives._langgraph.watch import RECORDED, StopDriving, Watch

__all__ = [
    "CHECKPOINT_ID_KEY",
    "CHECKPOINT_MAP_KEY",
    "CHECKPOINT_NS_KEY",
    "DELTA_COUNTERS",
    "ERROR",
    "ERROR_SOURCE_NODE",
    "HOOKS_KEY",
    "INTERRUPT",
    "NULL_TASK_ID",
    "RECORDED",
    "RESUME",
    "SENT",
    "STRICT_RESUME_KEY",
    "TASKS",
    "Closing",
    "DeltaSnapshot",
    "Frequency",
    "Opening",
    "RunExecutor",
    "StopDriving",
    "Supersteps",
    "TaskInfo",
    "ToolHooks",
    "Watch",
    "all_graphs",
    "ambient_entry",
    "at_gate",
    "check_version",
    "closing",
    "current_task",
    "current_work",
    "describe_graph",
    "fingerprint",
    "finished_tasks",
    "finished_work",
    "has_gates",
    "input_task",
    "inside_langgraph",
    "is_input_task",
    "is_interrupt_id",
    "is_state_key",
    "missing_parts",
    "must_be_whole",
    "must_not_be_deep",
    "nodes_due",
    "open_calls",
    "outside_config",
    "pending_interrupts",
    "place_of",
    "plain_tool",
    "prepared",
    "replayed",
    "reviewed_tools",
    "schema_types",
    "settle_handled_errors",
    "subgraphs_without_saver",
    "take_max_concurrency",
    "tool_calls_seen",
    "tool_on_executor",
    "tools_of",
    "untracked_channels",
    "with_message_ids",
    "with_saver",
]
