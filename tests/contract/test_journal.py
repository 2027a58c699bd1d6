"""What single finished calls gave: kept at once under the claim, given back, and forgotten with their step."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from contract.desk import TTL_S, Desk
from ninelives.errors import LeaseLostError, UnknownTypeError
from ninelives.model import ONE_USER, Lease, RunStatus, Scope


def keep(desk: Desk, lease: Lease, key: str, output: Any = "done", kind: str = "call") -> None:
    desk.do(desk.store.keep_call(lease, key, kind, output))


def find(desk: Desk, lease: Lease, key: str) -> Any:
    return desk.do(desk.store.find_call(lease, key))


def listed(desk: Desk, *tasks: str, scope: Scope = ONE_USER, thread_id: str = "t") -> list[Any]:
    return [*desk.do(desk.store.list_calls(scope, thread_id, tasks)).values()]


@pytest.fixture
def lease(desk: Desk) -> Lease:
    lease = desk.start(desk.worker())
    desk.put(lease, "c1")
    return lease


OUTPUTS: list[Any] = [
    ToolMessage("did", tool_call_id="1", status="error", artifact={"n": (1, 2)}),
    Command(update={"note": "x", "messages": [ToolMessage("did", tool_call_id="1")]}),
    [ToolMessage("one", tool_call_id="1"), Command(goto="n", graph=Command.PARENT)],
]


@pytest.mark.parametrize("output", OUTPUTS, ids=["message", "command", "several"])
def test_what_a_call_gave_is_given_back(desk: Desk, lease: Lease, output: Any) -> None:
    """As it was, under its key; under another one there is nothing."""
    keep(desk, lease, "k/0/1", output)

    assert find(desk, lease, "k/0/1") == output
    assert find(desk, lease, "k/1/1") is None


def test_the_first_record_counts(desk: Desk, lease: Lease) -> None:
    """A second one under the same key changes nothing."""
    keep(desk, lease, "k/0/1", "first")
    keep(desk, lease, "k/0/1", "second")

    assert find(desk, lease, "k/0/1") == "first"


def test_the_next_worker_is_given_it(desk: Desk, lease: Lease) -> None:
    """Whoever takes the run over finds what the one before had recorded."""
    keep(desk, lease, "k/0/1", "first")
    desk.clock.advance(TTL_S + 1)

    later = desk.take_over(desk.worker("w2"))

    assert find(desk, later, "k/0/1") == "first"


def test_a_superseded_worker_records_nothing(desk: Desk, lease: Lease) -> None:
    """Its call may have ended; the run is somebody else's."""
    desk.clock.advance(TTL_S + 1)
    later = desk.take_over(desk.worker("w2"))

    with pytest.raises(LeaseLostError):
        keep(desk, lease, "k/0/1", "late")

    assert find(desk, later, "k/0/1") is None


def test_what_could_not_be_loaded_again_is_refused(desk: Desk, lease: Lease) -> None:
    """When it is recorded, not when it is needed."""

    class Odd:
        pass

    with pytest.raises(UnknownTypeError):
        keep(desk, lease, "k/0/1", Odd())

    assert find(desk, lease, "k/0/1") is None


def test_threads_and_owners_do_not_see_each_other(desk: Desk, lease: Lease) -> None:
    """The same key on another thread is another call."""
    other = desk.start(desk.worker("w2"), "r2", "u")
    keep(desk, lease, "k/0/1", "mine")

    assert find(desk, other, "k/0/1") is None
    assert listed(desk, "k", thread_id="u") == []
    assert listed(desk, "k", scope=Scope("ann")) == []
    assert listed(desk, "k") == ["mine"]


def test_calls_are_listed_by_their_tasks(desk: Desk, lease: Lease) -> None:
    """In the order of their keys; what models said is not among them, nor what a task of a longer name gave."""
    for key, output in (("k/1/b", "b"), ("k/0/a", "a"), ("kk/0/c", "c"), ("j/0/d", "d")):
        keep(desk, lease, key, output)
    keep(desk, lease, "k/2/m", "said", kind="model")

    assert listed(desk, "k") == ["a", "b"]
    assert sorted(listed(desk, "k", "j")) == ["a", "b", "d"]
    assert listed(desk) == []
    every = desk.do(desk.store.list_calls(ONE_USER, "t"))
    assert every == {"j/0/d": "d", "k/0/a": "a", "k/1/b": "b", "kk/0/c": "c"}


@pytest.mark.parametrize(
    ("status", "left"),
    [(RunStatus.DONE, []), (RunStatus.INTERRUPTED, ["a"]), (RunStatus.FAILED, ["a"]), (RunStatus.QUEUED, ["a"])],
)
def test_a_run_that_is_done_needs_them_no_more(desk: Desk, lease: Lease, status: RunStatus, left: list[str]) -> None:
    """One that goes on, or may, keeps them."""
    keep(desk, lease, "k/0/a", "a")

    desk.finish(lease, status)

    assert listed(desk, "k") == left


def test_what_a_recorded_step_has_used_is_forgotten(desk: Desk, lease: Lease) -> None:
    """With the next record: a run of many steps keeps no second copy of what its state has."""
    keep(desk, lease, "k/0/a", "a")
    keep(desk, lease, "k/1/b", "b")
    desk.put(lease, "inner", ns="tools:1")
    keep(desk, lease, "k/2/c", "c")
    before = listed(desk, "k")

    desk.put(lease, "c2", "c1")
    keep(desk, lease, "l/0/d", "d")

    assert before == ["a", "b", "c"]
    assert listed(desk, "k", "l") == ["d"]


def test_what_an_earlier_run_has_left_open_is_kept(desk: Desk, lease: Lease) -> None:
    """A start-over asks for it yet: it goes when a run is done."""
    keep(desk, lease, "k/0/a", "a")
    desk.finish(lease, RunStatus.FAILED)
    later = desk.start(desk.worker("w2"), "r2", closes="r1")
    desk.put(later, "c2", "c1")
    keep(desk, later, "l/0/b", "b")
    before = listed(desk, "k", "l")

    desk.finish(later)

    assert before == ["a", "b"]
    assert listed(desk, "k", "l") == []


def test_a_deleted_thread_keeps_nothing(desk: Desk, lease: Lease) -> None:
    """Content like all other."""
    keep(desk, lease, "k/0/a", "a")
    desk.finish(lease, RunStatus.FAILED)
    desk.do(desk.store.close_run(ONE_USER, "r1", RunStatus.ABANDONED, by="ann"))

    desk.do(desk.store.delete_thread(ONE_USER, "t"))

    assert find(desk, lease, "k/0/a") is None
