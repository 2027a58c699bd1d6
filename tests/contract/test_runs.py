"""Runs: one at a time per thread, once per key, and never a late word from whoever lost one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from contract.desk import TTL_S, Desk
from ninelives.errors import (
    DivergentStateError,
    GraphChangedError,
    IdempotencyMismatchError,
    LeaseLostError,
    NoCheckpointFoundError,
    ThreadBusyError,
    UnfinishedRunError,
)
from ninelives.model import (
    CLOSED,
    ONE_USER,
    Effect,
    EffectState,
    InterruptState,
    Lease,
    RunSpec,
    RunStatus,
    Scope,
    Usage,
)


def run(desk: Desk, run_id: str = "r1") -> Any:
    return desk.do(desk.store.get_run(ONE_USER, run_id))


# -- admission ----------------------------------------------------------------------------------------------------


def test_an_admitted_run_is_complete_enough_for_another_process(desk: Desk) -> None:
    """The request comes back as it was made, with who has it and under which epoch."""
    spec = RunSpec(
        input={"messages": [("user", "hi")]},
        configurable={"model": "m"},
        metadata={"tag": 1},
        context={"user": 7},
        recursion_limit=9,
        interrupt_before=["a"],
        interrupt_after="*",
        withheld=("api_key",),
    )
    worker = desk.worker()

    admission = desk.admit(worker, spec=spec, key="k", request=b"digest")

    found = run(desk)
    assert admission.run == found
    assert admission.created
    assert found.spec == spec
    assert (found.status, found.driver, found.attempt, found.worker_id) == (RunStatus.RUNNING, "caller", 1, "w1")
    assert (found.chain, found.continues, found.base, found.key) == ("r1", None, None, "k")
    assert found.held
    assert not found.cut_off
    assert admission.lease is not None
    assert (admission.lease.run_id, admission.lease.epoch) == ("r1", found.epoch)


def test_an_empty_request_comes_back_empty(desk: Desk) -> None:
    """What falsy means is kept: an input of `{}`, `0` or `""` is not `None`."""
    worker = desk.worker()
    empty: list[Any] = [{}, 0, "", [], False, None]

    for n, value in enumerate(empty):
        desk.start(worker, f"r{n}", f"t{n}", spec=RunSpec(input=value))

    assert [run(desk, f"r{n}").spec.input for n in range(6)] == empty


def test_a_thread_is_made_only_where_that_was_said(desk: Desk) -> None:
    """Without leave to create, an unknown thread is refused with the ids that look like it."""
    worker = desk.worker()
    desk.finish(desk.start(worker, "r1", "user-42"))

    with pytest.raises(NoCheckpointFoundError) as missing:
        desk.start(worker, "r2", "user-43", may_create=False)

    assert missing.value.near == ("user-42",)
    assert desk.do(desk.store.find_thread(ONE_USER, "user-43")) is None
    assert desk.admit(worker, "r3", "user-43").created
    assert not desk.admit(worker, "r4", "user-42").created


def test_a_thread_belongs_to_one_graph(desk: Desk) -> None:
    """Another graph on it is an error that names both."""
    worker = desk.worker()
    desk.finish(desk.start(worker))

    with pytest.raises(GraphChangedError, match=r"'g'.*'other'"):
        desk.start(worker, "r2", graph="other")


def test_only_one_run_of_a_thread_runs(desk: Desk) -> None:
    """A second start is told who has the thread, and leaves nothing behind."""
    desk.start(desk.worker("w1"))
    second = desk.worker("w2")
    before = desk.trace()

    with pytest.raises(ThreadBusyError) as busy:
        desk.start(second, "r2")

    assert (busy.value.thread_id, busy.value.run_id, busy.value.holder) == ("t", "r1", "w1")
    assert desk.trace() == before


def test_threads_run_side_by_side(desk: Desk) -> None:
    """One worker may have many runs, on many threads."""
    worker = desk.worker()

    leases = [desk.start(worker, f"r{n}", f"t{n}") for n in range(3)]

    assert all(desk.do(desk.store.holds(lease)) for lease in leases)


def test_epochs_grow_globally(desk: Desk) -> None:
    """Each claim's epoch is above all earlier ones, whatever its thread, run or owner."""
    worker, epochs = desk.worker(), []
    for n in range(3):
        lease = desk.start(worker, f"r{n}", f"t{n}", scope=Scope(f"o{n}"))
        desk.finish(lease, RunStatus.QUEUED)
        epochs.append(lease.epoch)
    for n in range(3):
        admission = desk.do(desk.store.take_over(Scope(f"o{n}"), f"r{n}", worker))
        assert admission.lease is not None
        epochs.append(admission.lease.epoch)

    assert epochs == sorted(set(epochs))


# -- idempotency --------------------------------------------------------------------------------------------------


def test_the_same_key_gives_the_same_run(desk: Desk) -> None:
    """Sent twice, a request is one run; nothing changes, and the answer says how it stands."""
    worker = desk.worker()
    desk.finish(desk.start(worker, key="k", request=b"1"))
    before = desk.trace()

    again = desk.admit(worker, "r2", key="k", request=b"1")

    assert (again.run.run_id, again.run.status, again.lease, again.created) == ("r1", RunStatus.DONE, None, False)
    assert desk.trace() == before


def test_a_key_is_recognised_while_its_run_is_under_way(desk: Desk) -> None:
    """A client that retries too early hears of its own run, not that the thread is busy."""
    worker = desk.worker()
    desk.start(worker, key="k", request=b"1")

    again = desk.admit(worker, "r2", key="k", request=b"1")

    assert again.lease is None
    assert again.run.held


def test_the_same_key_with_another_request_is_refused(desk: Desk) -> None:
    """The error names the key and the run that has it."""
    worker = desk.worker()
    desk.finish(desk.start(worker, key="k", request=b"1"))
    before = desk.trace()

    with pytest.raises(IdempotencyMismatchError) as mismatch:
        desk.admit(worker, "r2", key="k", request=b"2")

    assert (mismatch.value.key, mismatch.value.run_id) == ("k", "r1")
    assert desk.trace() == before


def test_a_key_is_unique_per_owner_and_graph(desk: Desk) -> None:
    """Other owners and other graphs may use the same key for requests of their own."""
    worker = desk.worker()

    desk.start(worker, "r1", "t1", key="k", request=b"1")
    desk.start(worker, "r2", "t2", key="k", request=b"2", graph="other")
    desk.start(worker, "r3", "t1", key="k", request=b"3", scope=Scope("ann"))

    found = [
        desk.do(desk.store.find_run_by_key(ONE_USER, "g", "k")),
        desk.do(desk.store.find_run_by_key(ONE_USER, "other", "k")),
        desk.do(desk.store.find_run_by_key(Scope("ann"), "g", "k")),
    ]
    assert [r.run_id for r in found if r] == ["r1", "r2", "r3"]


def test_runs_without_a_key_are_all_new(desk: Desk) -> None:
    """No key, no recognition: the same request twice is two runs."""
    worker = desk.worker()
    for n in range(2):
        desk.finish(desk.start(worker, f"r{n}", request=b"1"))

    assert [r.run_id for r in desk.do(desk.store.list_runs(ONE_USER))] == ["r1", "r0"]


# -- what is unfinished ---------------------------------------------------------------------------------------------

UNFINISHED = (RunStatus.INTERRUPTED, RunStatus.FAILED, RunStatus.QUEUED, RunStatus.QUARANTINED, RunStatus.RETRYING)


@pytest.mark.parametrize("status", UNFINISHED)
def test_new_input_never_drops_an_unfinished_run(desk: Desk, status: RunStatus) -> None:
    """The caller must say what is to become of it; the error carries what it is and what it has cost."""
    worker = desk.worker()
    desk.finish(desk.start(worker), status, usage=Usage(steps=3))
    before = desk.trace()

    with pytest.raises(UnfinishedRunError) as unfinished:
        desk.start(worker, "r2")

    assert unfinished.value.unfinished.run.run_id == "r1"
    assert unfinished.value.unfinished.usage.steps == 3
    assert desk.trace() == before


@pytest.mark.parametrize("status", sorted(CLOSED))
def test_new_input_follows_a_closed_run(desk: Desk, status: RunStatus) -> None:
    """Done, cancelled, abandoned, expired: the thread takes new input without a question."""
    worker = desk.worker()
    desk.finish(desk.start(worker), status)

    assert desk.start(worker, "r2").run_id == "r2"


def test_a_cut_off_run_is_unfinished(desk: Desk) -> None:
    """Its worker is dead: it is listed as cut off, and new input must say what is to become of it."""
    desk.start(desk.worker("w1"))
    desk.clock.advance(TTL_S)
    assert run(desk).cut_off

    with pytest.raises(UnfinishedRunError):
        desk.start(desk.worker("w2"), "r2")


def test_closing_the_unfinished_run_admits_the_new_one(desk: Desk) -> None:
    """`closes` abandons it and withdraws its questions in the same transaction."""
    worker = desk.worker()
    lease = desk.start(worker)
    desk.put(lease, "c1")
    desk.ask(lease)
    desk.finish(lease, RunStatus.INTERRUPTED)

    desk.start(worker, "r2", closes="r1", replaces="r1")

    assert run(desk).status is RunStatus.ABANDONED
    assert run(desk, "r2").replaces == "r1"
    (question,) = desk.do(desk.store.list_interrupts(ONE_USER, "t", pending_only=False))
    assert question.state is InterruptState.WITHDRAWN


def test_closing_another_than_the_newest_run_is_refused(desk: Desk) -> None:
    """What the caller saw is no longer so: nothing is closed, nothing starts."""
    worker = desk.worker()
    desk.finish(desk.start(worker), RunStatus.FAILED)
    desk.finish(desk.start(worker, "r2", closes="r1"), RunStatus.FAILED)
    before = desk.trace()

    for closes in ("r1", "nobody"):
        with pytest.raises(DivergentStateError) as lost:
            desk.start(worker, "r3", closes=closes)
        assert lost.value.head == "r2"

    assert desk.trace() == before


def test_an_edit_asks_nothing_and_is_not_the_newest_run(desk: Desk) -> None:
    """A state edit claims the thread like a run, leaves the unfinished one as it is, and is not what a caller sees."""
    worker = desk.worker()
    desk.finish(desk.start(worker), RunStatus.INTERRUPTED)

    edit = desk.start(worker, "e1", driver="edit")
    with pytest.raises(ThreadBusyError):
        desk.take_over(worker)
    desk.finish(edit)

    newest = desk.do(desk.store.find_newest_run(ONE_USER, "t"))
    assert newest is not None
    assert (newest.run_id, newest.status) == ("r1", RunStatus.INTERRUPTED)


def test_a_chains_base_is_where_it_began(desk: Desk) -> None:
    """The head when a run starts; given, where the caller says so; inherited by the run that continues it."""
    worker = desk.worker()
    first = desk.start(worker)
    desk.put(first, "c1")
    desk.finish(first)
    second = desk.start(worker, "r2")
    desk.put(second, "c2", "c1")
    desk.ask(second, at="c2")
    desk.finish(second, RunStatus.INTERRUPTED)

    desk.answer(worker, {"q1": "yes"}, "r3")

    assert [run(desk, f"r{n}").base for n in (1, 2, 3)] == [None, "c1", "c1"]
    desk.clock.advance(TTL_S)
    desk.start(desk.worker("w2"), "r4", closes="r3", base="c0", take_head_as_base=False)
    assert run(desk, "r4").base == "c0"


# -- taking over ----------------------------------------------------------------------------------------------------


def test_a_live_run_is_not_taken(desk: Desk) -> None:
    """Refused with its holder; it goes on undisturbed."""
    lease = desk.start(desk.worker("w1"))
    second = desk.worker("w2")
    before = desk.trace()

    with pytest.raises(ThreadBusyError) as busy:
        desk.take_over(second)

    assert busy.value.holder == "w1"
    assert desk.trace() == before
    desk.put(lease, "c1")


@pytest.mark.parametrize("how", ["expired", "buried"])
def test_a_dead_ones_run_is_taken_under_a_new_epoch(desk: Desk, how: str) -> None:
    """Whether its lease ran out or its process is known to be dead, the next worker has it at once."""
    old = desk.start(desk.worker("w1"))
    if how == "expired":
        desk.clock.advance(TTL_S)
    else:
        desk.do(desk.store.bury_worker("w1"))

    new = desk.take_over(desk.worker("w2"))

    assert new.epoch > old.epoch
    found = run(desk)
    assert (found.worker_id, found.attempt, found.epoch, found.status) == ("w2", 2, new.epoch, RunStatus.RUNNING)
    assert desk.do(desk.store.holds(new))
    assert not desk.do(desk.store.holds(old))


def test_a_drained_run_is_taken_at_once(desk: Desk) -> None:
    """Given back at a step boundary, it belongs to nobody, though the worker that had it lives."""
    desk.finish(desk.start(desk.worker("w1")), RunStatus.QUEUED)
    assert run(desk).cut_off

    assert desk.take_over(desk.worker("w2")).worker_id == "w2"


def test_a_closed_or_superseded_run_is_not_taken(desk: Desk) -> None:
    """There is nothing to go on with, or somebody has gone on already."""
    worker = desk.worker()
    desk.finish(desk.start(worker))
    with pytest.raises(LeaseLostError):
        desk.take_over(worker, "r1")
    desk.finish(desk.start(worker, "r2"), RunStatus.FAILED)
    desk.finish(desk.start(worker, "r3", closes="r2"), RunStatus.FAILED)

    with pytest.raises(LeaseLostError):
        desk.take_over(worker, "r2")
    with pytest.raises(NoCheckpointFoundError):
        desk.take_over(worker, "nobody")


LATE: dict[str, Callable[[Desk, Lease, Effect], Any]] = {
    "checkpoint": lambda d, old, e: d.put(old, "c2", "c1"),
    "fork": lambda d, old, e: d.put(old, "c2", "c1", source="fork"),
    "nested checkpoint": lambda d, old, e: d.put(old, "s1", ns="sub:1"),
    "another thread's checkpoint": lambda d, old, e: d.put(old, "x1", thread_id="other"),
    "writes": lambda d, old, e: d.write(old, "c1", "k", ("n", 1)),
    "error": lambda d, old, e: d.write(old, "c1", "k", (-1, "__error__", "no"), withdraw=[-4]),
    "question": lambda d, old, e: d.ask(old),
    "effect intent": lambda d, old, e: d.do(d.store.open_effect(old, d.effect("e2"))),
    "effect replay": lambda d, old, e: d.do(d.store.open_effect(old, d.effect("e1"))),
    "effect result": lambda d, old, e: d.do(d.store.finish_effect(old, e, EffectState.DONE, 1)),
    "finish": lambda d, old, e: d.finish(old),
    "drain": lambda d, old, e: d.finish(old, RunStatus.QUEUED, usage=Usage(steps=1)),
}


@pytest.mark.parametrize("name", LATE)
def test_a_late_worker_leaves_no_trace(desk: Desk, name: str) -> None:
    """Whatever it tries after its run was taken over, it hears `LeaseLostError`, and the store is as it was."""
    old = desk.start(desk.worker("w1"))
    desk.put(old, "c1")
    effect = desk.do(desk.store.open_effect(old, desk.effect("e1")))
    desk.clock.advance(TTL_S)
    desk.take_over(desk.worker("w2"))
    before = desk.trace()

    with pytest.raises(LeaseLostError) as lost:
        LATE[name](desk, old, effect)

    assert (lost.value.run_id, lost.value.epoch) == ("r1", old.epoch)
    assert desk.trace() == before


@pytest.mark.parametrize("name", LATE)
def test_after_its_run_has_ended_a_claim_writes_nothing(desk: Desk, name: str) -> None:
    """A node that returns after its run was closed is as late as one that was superseded."""
    old = desk.start(desk.worker("w1"))
    desk.put(old, "c1")
    effect = desk.do(desk.store.open_effect(old, desk.effect("e1")))
    desk.finish(old)
    before = desk.trace()

    with pytest.raises(LeaseLostError):
        LATE[name](desk, old, effect)

    assert desk.trace() == before


# -- ending ---------------------------------------------------------------------------------------------------------


def test_a_finished_run_keeps_where_it_ended_and_why(desk: Desk) -> None:
    """Status, cause and its last checkpoint are recorded; the thread is free."""
    worker = desk.worker()
    lease = desk.start(worker)
    desk.put(lease, "c1")
    desk.put(lease, "c2", "c1")

    ended = desk.finish(lease, RunStatus.FAILED, cause="ValueError: no")

    assert ended == run(desk)
    assert (ended.status, ended.cause, ended.last_checkpoint) == (RunStatus.FAILED, "ValueError: no", "c2")
    assert desk.take_over(worker).run_id == "r1"


def test_closing_needs_a_run_that_nobody_holds(desk: Desk) -> None:
    """A live one is refused; a dead one is closed, its questions withdrawn, its history kept; twice is fine."""
    lease = desk.start(desk.worker())
    desk.put(lease, "c1")
    desk.ask(lease)
    with pytest.raises(ThreadBusyError):
        desk.do(desk.store.close_run(ONE_USER, "r1", RunStatus.ABANDONED, by="ann"))
    desk.clock.advance(TTL_S)

    for status in (RunStatus.ABANDONED, RunStatus.CANCELLED):
        closed = desk.do(desk.store.close_run(ONE_USER, "r1", status, by="ann"))
        assert (closed.status, closed.cause) == (RunStatus.ABANDONED, "ann")

    assert desk.do(desk.store.list_interrupts(ONE_USER, "t")) == []
    assert desk.checkpoints() == ["c1"]


def test_what_a_chain_costs_is_summed_over_its_runs_and_crashes(desk: Desk) -> None:
    """Each checkpoint and each end adds its share; takeovers and answers keep counting."""
    lease = desk.start(desk.worker("w1"))
    desk.put(lease, "c1", usage=Usage(steps=1, model_calls=1, tokens_in=10, tokens_out=5, active_s=0.5))
    desk.clock.advance(TTL_S)
    lease = desk.take_over(desk.worker("w2"))
    desk.put(lease, "c2", "c1", usage=Usage(steps=1, tool_calls=2))
    desk.ask(lease, at="c2")
    desk.finish(lease, RunStatus.INTERRUPTED, usage=Usage(active_s=0.25))
    second = desk.answer(desk.worker("w3"), {"q1": "yes"}).lease
    assert second is not None
    desk.put(second, "c3", "c2", usage=Usage(steps=1, tokens_in=1))

    assert run(desk).usage == Usage(2, 1, 10, 5, 2, 0.75)
    assert desk.do(desk.store.chain_usage(ONE_USER, "r1")) == Usage(3, 1, 11, 5, 2, 0.75)
    assert desk.do(desk.store.chain_usage(ONE_USER, "nobody")) == Usage()


def test_whether_a_run_has_begun_is_read_from_what_it_wrote(desk: Desk) -> None:
    """Only its own root checkpoints on its own thread count, and only its own command at the head."""
    null_task = "00000000-0000-0000-0000-000000000000"
    worker = desk.worker()
    first = desk.start(worker)
    desk.put(first, "c1")
    desk.write(first, "c1", null_task, ("n", 1))
    assert desk.do(desk.store.has_begun(first)) == (True, True)
    desk.finish(first)
    second = desk.start(worker, "r2")
    desk.put(second, "s1", ns="sub:1")
    desk.put(second, "x1", thread_id="other")

    assert desk.do(desk.store.has_begun(second)) == (False, False)
    desk.write(second, "c1", null_task, (1, "n", 2))
    assert desk.do(desk.store.has_begun(second)) == (False, True)
    desk.put(second, "c2", "c1")
    assert desk.do(desk.store.has_begun(second)) == (True, False)


def test_listing_runs_filters_by_thread_and_status(desk: Desk) -> None:
    """The newest first, never more than asked for."""
    worker = desk.worker()
    for n, status in enumerate([RunStatus.DONE, RunStatus.FAILED, RunStatus.DONE]):
        desk.finish(desk.start(worker, f"r{n}", f"t{n % 2}"), status)

    def ids(**filters: Any) -> list[str]:
        return [r.run_id for r in desk.do(desk.store.list_runs(ONE_USER, **filters))]

    assert ids() == ["r2", "r1", "r0"]
    assert ids(thread_id="t0") == ["r2", "r0"]
    assert ids(status=RunStatus.FAILED) == ["r1"]
    assert ids(limit=1) == ["r2"]


def test_an_edit_that_died_is_not_gone_on_with(desk: Desk) -> None:
    """Nobody waits for it: it is closed, and the thread's newest run stays what it was."""
    worker = desk.worker("w1")
    desk.finish(desk.start(worker))
    desk.start(worker, "e1", driver="edit")
    desk.clock.advance(TTL_S)

    desk.start(desk.worker("w2"), "r2")

    assert desk.do(desk.store.get_run(ONE_USER, "e1")).status is RunStatus.CANCELLED
