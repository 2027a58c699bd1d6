"""The floor: a checkpointer that keeps references and serialises nothing. What is left is LangGraph's own time."""

from __future__ import annotations

from collections.abc import Sequence
from random import random
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)

Place: TypeAlias = tuple[str, str, str]
"""Of a checkpoint: thread, namespace, id."""


class NoSaver(BaseCheckpointSaver[str]):
    def __init__(self) -> None:
        super().__init__()
        self._checkpoints: dict[Place, tuple[Checkpoint, CheckpointMetadata, str | None]] = {}
        self._writes: dict[Place, dict[tuple[str, int], tuple[str, str, Any]]] = {}
        self._newest: dict[tuple[str, str], str] = {}

    def adopt(self, found: CheckpointTuple) -> None:
        """Take over what another saver has loaded; the newest of a thread comes last."""
        place = _place(found.config)
        parent = get_checkpoint_id(found.parent_config) if found.parent_config else None
        self._checkpoints[place] = (found.checkpoint, found.metadata, parent)
        self._newest[place[:2]] = place[2]
        for number, write in enumerate(found.pending_writes or []):
            self._writes.setdefault(place, {})[write[0], number] = write

    def get_next_version(self, current: str | None, channel: None) -> str:
        """In stock's form, so that what stock has written can be gone on with."""
        number = int(current.split(".")[0]) if current else 0
        return f"{number + 1:032}.{random():016}"

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        place = _place(config)
        place = place if place[2] else (*place[:2], self._newest.get(place[:2], ""))
        if place not in self._checkpoints:
            return None
        checkpoint, metadata, parent = self._checkpoints[place]
        return CheckpointTuple(
            _config(place),
            {**checkpoint, "channel_values": {**checkpoint["channel_values"]}},
            metadata,
            _config((*place[:2], parent)) if parent else None,
            [*self._writes.get(place, {}).values()],
        )

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._keep(config, checkpoint, metadata)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._keep(config, checkpoint, metadata)

    def _keep(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> RunnableConfig:
        thread, ns, parent = _place(config)
        self._checkpoints[thread, ns, checkpoint["id"]] = (checkpoint, metadata, parent or None)
        self._newest[thread, ns] = checkpoint["id"]
        return _config((thread, ns, checkpoint["id"]))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        kept = self._writes.setdefault(_place(config), {})
        for number, (channel, value) in enumerate(writes):
            kept[task_id, number] = (task_id, channel, value)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)


def _place(config: RunnableConfig) -> Place:
    conf = config["configurable"]
    return conf["thread_id"], conf.get("checkpoint_ns", ""), conf.get("checkpoint_id") or ""


def _config(place: Place) -> RunnableConfig:
    thread, ns, checkpoint_id = place
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}
