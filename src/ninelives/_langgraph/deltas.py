"""
DeltaChannels: how often one is stored whole, and how many updates it is rebuilt from when a thread is loaded.

LangGraph stores such a channel whole after every so many updates, and in between only the updates; how many there have
been since is noted in each checkpoint's metadata. So what a load would replay is known before anything is read for it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sized
from typing import Any, Literal, TypeAlias

from langgraph.channels.delta import DeltaChannel

from ninelives._langgraph.private import DELTA_COUNTERS
from ninelives.errors import LackOfSnapshotFrequency

Frequency: TypeAlias = int | Literal["full"]
"""So many updates to a snapshot. "full": one at each superstep that changes the channel; no load replays any."""

ADVISED = 20


def with_frequency(channels: Mapping[str, Any], frequency: Frequency) -> dict[str, Any]:
    """The same channels, with copies of the DeltaChannels among them that have this frequency."""
    changed = {name: copy.copy(channel) for name, channel in channels.items() if isinstance(channel, DeltaChannel)}
    set_frequency(changed.values(), frequency)
    return {**channels, **changed}


def set_frequency(channels: Iterable[Any], frequency: Frequency) -> None:
    """Give the DeltaChannels among these this frequency, in place."""
    for channel in channels:
        if isinstance(channel, DeltaChannel):
            channel.snapshot_frequency = 1 if frequency == "full" else frequency


def replayed(checkpoint: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, int]:
    """By channel: from how many updates it would be rebuilt at this checkpoint; those that are held whole left out."""
    held = checkpoint.get("channel_values", {})
    counters: Mapping[str, Any] = metadata.get(DELTA_COUNTERS) or {}
    return {name: int(counted[0]) for name, counted in counters.items() if name not in held and counted[0]}


def must_not_be_deep(thread_id: str, graph_name: str, updates: Mapping[str, int], replay_max: int) -> None:
    """
    Refuse to load what would replay too much.

    Args:
        updates: as `replayed` gives them.

    Raises:
        LackOfSnapshotFrequency: a channel has more than `replay_max`; says what to set.
    """
    for channel, depth in updates.items():
        if depth > replay_max:
            raise LackOfSnapshotFrequency(
                f"thread {thread_id!r}: channel {channel!r} would be rebuilt from {depth} updates, more than [state]"
                f" replay_max = {replay_max}; nothing ran. To load it, set replay_max = {depth} in ninelives.toml. So"
                f" that it does not get there again, {_advice(graph_name, min(ADVISED, replay_max))}.",
                thread_id=thread_id,
                channel=channel,
                depth=depth,
            )


def must_be_whole(
    thread_id: str, graph_name: str, updates: Mapping[str, int], history: Mapping[str, Mapping[str, Any]]
) -> None:
    """
    Refuse a history that begins without a snapshot and holds fewer writes than there were updates.

    LangGraph would rebuild the channel from what is left, an emptier one than was stored, and go on with it.

    Args:
        updates: as `replayed` gives them for the checkpoint that the history leads to.
        history: what a saver gives for `get_delta_channel_history`.

    Raises:
        LackOfSnapshotFrequency: an older checkpoint of the chain, or its writes, are gone.
    """
    for channel, found in history.items():
        depth, writes = updates.get(channel, 0), found["writes"]
        if "seed" not in found and isinstance(writes, Sized) and len(writes) < depth:
            raise LackOfSnapshotFrequency(
                f"thread {thread_id!r}: channel {channel!r} cannot be rebuilt: it had {depth} updates since it was last"
                f" stored whole, of which the store has {len(writes)} writes and no snapshot before them; nothing ran."
                f" Begin from an older checkpoint (checkpoint_id), or restore the store. So that one checkpoint needs"
                f" fewer others, {_advice(graph_name, ADVISED)}.",
                thread_id=thread_id,
                channel=channel,
                depth=depth,
            )


def _advice(graph_name: str, frequency: int) -> str:
    key = graph_name if re.fullmatch(r"[A-Za-z0-9_-]+", graph_name) else f'"{graph_name}"'
    return f'set snapshot_frequency = {frequency}, or "full", under [state.{key}]'
