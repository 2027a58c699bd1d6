"""Who is believed alive."""

from __future__ import annotations

import pytest

from contract.desk import TTL_S, Desk
from ninelives.errors import LeaseLostError, WorkerLostError
from ninelives.model import ONE_USER


def test_a_worker_is_alive_until_its_lease_ends_by_the_stores_clock(desk: Desk) -> None:
    """The lease given out is the clock's now plus the time to live, and is what others are told."""
    worker = desk.worker(ttl_s=6)

    assert worker.expires_at == desk.clock.now + 6
    (listed,) = desk.do(desk.store.list_workers())
    assert (listed.worker_id, listed.host, listed.pid) == ("w1", "here", 1)
    assert (listed.started_at, listed.expires_at) == (desk.clock.now, worker.expires_at)


def test_renewing_moves_the_end(desk: Desk) -> None:
    """A worker that renews in time stays alive past its first end."""
    worker = desk.worker()

    for _ in range(3):
        desk.clock.advance(TTL_S - 1)
        worker = desk.renew(worker)

    assert worker.expires_at == desk.clock.now + TTL_S
    assert desk.start(worker).worker_id == "w1"


def test_a_worker_whose_lease_ended_is_never_revived(desk: Desk) -> None:
    """It can neither renew, nor start a run, nor take one over, nor answer a question."""
    late = desk.worker()
    desk.finish(desk.start(late))
    desk.clock.advance(TTL_S)

    with pytest.raises(WorkerLostError):
        desk.renew(late)
    with pytest.raises(WorkerLostError):
        desk.start(late, "r2")
    with pytest.raises(WorkerLostError):
        desk.take_over(late)
    with pytest.raises(WorkerLostError):
        desk.answer(late, {"q1": "yes"})
    (run,) = desk.do(desk.store.list_runs(ONE_USER))
    assert run.run_id == "r1"


def test_a_buried_worker_is_gone_at_once(desk: Desk) -> None:
    """What is known to be dead need not be waited for; burying it again tells that it was gone."""
    worker = desk.worker()

    assert desk.do(desk.store.bury_worker("w1"))

    assert not desk.do(desk.store.bury_worker("w1"))
    assert desk.do(desk.store.list_workers()) == []
    with pytest.raises(WorkerLostError):
        desk.renew(worker)


def test_an_expired_worker_is_still_listed(desk: Desk) -> None:
    """Its process may be paused, so it is not forgotten before somebody knows that it is dead."""
    desk.worker()
    desk.clock.advance(TTL_S + 1)

    (listed,) = desk.do(desk.store.list_workers())

    assert listed.expires_at < desk.clock.now


def test_a_worker_id_is_taken_once(desk: Desk) -> None:
    """A second registration under a known id is refused and changes nothing: it would revive the first."""
    first = desk.worker()
    desk.clock.advance(TTL_S + 1)

    with pytest.raises(WorkerLostError):
        desk.worker()

    with pytest.raises(WorkerLostError):
        desk.renew(first)


def test_a_claim_holds_only_while_its_worker_is_believed_alive(desk: Desk) -> None:
    """`holds` is stricter than the fence: before a node starts, an ended lease is enough to stop."""
    lease = desk.start(desk.worker())
    assert desk.do(desk.store.holds(lease))

    desk.clock.advance(TTL_S)

    assert not desk.do(desk.store.holds(lease))


def test_a_late_worker_may_write_until_somebody_takes_over(desk: Desk) -> None:
    """Clocks decide when a run may be taken over, never who may write."""
    lease = desk.start(desk.worker("w1"))
    desk.clock.advance(TTL_S + 1)
    desk.put(lease, "c1")

    desk.take_over(desk.worker("w2"))

    with pytest.raises(LeaseLostError):
        desk.put(lease, "c2", "c1")
    assert desk.checkpoints() == ["c1"]


def test_a_clock_set_back_ends_no_lease_early(desk: Desk) -> None:
    """A minute backwards makes leases last longer, not shorter, and a claim still holds."""
    worker = desk.worker()
    lease = desk.start(worker)

    desk.clock.advance(-60)

    assert desk.do(desk.store.holds(lease))
    desk.put(lease, "c1")
    assert desk.checkpoints() == ["c1"]
