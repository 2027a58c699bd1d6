"""LangGraph's own suite for checkpointers, all of it; and a twin for the methods that it only knows async."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from contract.conftest import STORES
from ninelives.saver import Saver
from ninelives.stores import open_store

COUNTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}
"""Tests per capability when this was written; a newer suite may have more."""


class InOtherClothes(Saver):
    """Its async methods are its sync ones, so that the suite, which knows async only, runs the sync ones."""

    async def aget_tuple(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_tuple(*args, **kwargs)

    async def alist(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for found in self.list(*args, **kwargs):
            yield found

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        return self.put(*args, **kwargs)

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        self.put_writes(*args, **kwargs)

    async def adelete_thread(self, *args: Any, **kwargs: Any) -> None:
        self.delete_thread(*args, **kwargs)

    async def adelete_for_runs(self, *args: Any, **kwargs: Any) -> None:
        self.delete_for_runs(*args, **kwargs)

    async def acopy_thread(self, *args: Any, **kwargs: Any) -> None:
        self.copy_thread(*args, **kwargs)

    async def aprune(self, *args: Any, **kwargs: Any) -> None:
        self.prune(*args, **kwargs)


@pytest.mark.parametrize("saver", [Saver, InOtherClothes], ids=["async", "sync"])
@pytest.mark.parametrize("kind", STORES)
async def test_every_capability_is_there_and_passes(
    kind: str, saver: Callable[..., BaseCheckpointSaver[Any]], tmp_path: Path
) -> None:
    """All eight, with every test of each."""

    @checkpointer_test(name=kind)
    async def fresh() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        folder.mkdir()
        url, settings = STORES[kind](folder)
        store = open_store(url, **settings)
        yield saver(store)
        store.close()

    report = await validate(cast(Any, fresh))

    assert report.results.keys() == {c.value for c in Capability} == COUNTS.keys()
    for name, result in report.results.items():
        assert result.detected, name
        assert result.failures == []
        assert result.passed
        assert result.tests_passed >= COUNTS[name]


def test_no_method_of_a_checkpointer_is_left_to_the_base_class() -> None:
    """Each public method that the base leaves open, or does by many round trips, is our own; sync and async."""
    open_ones = {
        name
        for name, member in inspect.getmembers(BaseCheckpointSaver, inspect.isfunction)
        if not name.startswith("_") and "raise NotImplementedError" in inspect.getsource(member)
    }

    missing = {
        name for name in open_ones - {"get_next_version"} if getattr(Saver, name) is getattr(BaseCheckpointSaver, name)
    }

    assert {"put", "aput", "prune", "acopy_thread"} <= open_ones
    assert missing == set()
    assert Saver.get_delta_channel_history is not BaseCheckpointSaver.get_delta_channel_history
    assert Saver.aget_delta_channel_history is not BaseCheckpointSaver.aget_delta_channel_history
