"""Outside acts: intent before, result after, and never a blind repeat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contract.desk import TTL_S, Desk
from ninelives.errors import InvalidDecisionError, LeaseLostError, NoCheckpointFoundError
from ninelives.model import ONE_USER, Effect, EffectState, Lease, RunStatus, Scope


def opened(desk: Desk, lease: Lease, key: str = "e1", **fields: Any) -> Effect:
    return desk.do(desk.store.open_effect(lease, desk.effect(key, **fields)))


def ended(
    desk: Desk, lease: Lease, effect: Effect, state: EffectState = EffectState.DONE, result: Any = "ok"
) -> Effect:
    return desk.do(desk.store.finish_effect(lease, effect, state, result))


def settle(desk: Desk, state: EffectState, result: Any = None, key: str = "e1", scope: Scope = ONE_USER) -> Effect:
    return desk.do(desk.store.settle_effect(scope, key, state, result, by="ann", why="asked the bank"))


def known(desk: Desk, key: str = "e1") -> Effect:
    (found,) = [e for e in desk.do(desk.store.list_effects(ONE_USER)) if e.key == key]
    return found


def test_the_first_to_open_it_may_act(desk: Desk) -> None:
    """The intent is recorded with where it came from; asked again under the same claim, it is open but not fresh."""
    lease = desk.start(desk.worker())

    first, second = opened(desk, lease), opened(desk, lease)

    assert first.fresh
    assert not second.fresh
    assert (first.state, first.attempt, first.epoch, first.run_id) == (EffectState.INTENT, 1, lease.epoch, "r1")
    assert (first.key, first.name, first.thread_id, first.call_id) == ("e1", "pay", "t", "call-1")
    assert (first.args_digest, first.created_at, first.holder_alive) == (b"args", desk.clock.now, True)
    assert second == replace(first, fresh=False) == known(desk)


def test_a_recorded_result_is_replayed(desk: Desk) -> None:
    """Under the same claim, a later claim, and a later run: the result comes back, and nobody may act."""
    worker = desk.worker()
    lease = desk.start(worker)
    result = {"receipt": [1, ("a", 2.5)], "none": None}
    done = ended(desk, lease, opened(desk, lease), result=result)
    assert (done.state, done.result, done.by, done.settled_at) == (EffectState.DONE, result, "w1", desk.clock.now)

    again = [opened(desk, lease)]
    desk.finish(lease, RunStatus.QUEUED)
    again.append(opened(desk, desk.take_over(worker)))
    desk.do(desk.store.bury_worker("w1"))
    again.append(opened(desk, desk.start(desk.worker("w2"), "r2", closes="r1")))

    assert [(e.state, e.result, e.fresh, e.attempt) for e in again] == 3 * [(EffectState.DONE, result, False, 1)]


def test_a_result_of_none_is_a_result(desk: Desk) -> None:
    """A tool that returns nothing has been done all the same."""
    lease = desk.start(desk.worker())
    ended(desk, lease, opened(desk, lease), result=None)

    assert opened(desk, lease).state is EffectState.DONE


def test_an_intent_that_an_earlier_claim_left_open_is_unknown(desk: Desk) -> None:
    """Killed between asking and answer: nobody knows, so nobody acts again; it stays so for later claims too."""
    lease = desk.start(desk.worker("w1"))
    opened(desk, lease)
    desk.clock.advance(TTL_S)

    second = opened(desk, desk.take_over(desk.worker("w2")))
    desk.clock.advance(TTL_S)
    third = opened(desk, desk.take_over(desk.worker("w3")))

    assert (second.state, second.fresh) == (EffectState.UNKNOWN, False)
    assert second.why is not None
    assert (third.state, third.fresh) == (EffectState.UNKNOWN, False)


def test_a_late_worker_does_not_open_an_effect(desk: Desk) -> None:
    """Its lease has ended: though nobody has taken over yet, an act that cannot be taken back is not begun."""
    lease = desk.start(desk.worker())
    desk.clock.advance(TTL_S)
    before = desk.trace()

    with pytest.raises(LeaseLostError):
        opened(desk, lease)

    assert desk.trace() == before


def test_what_was_not_done_is_opened_again_under_the_same_key(desk: Desk) -> None:
    """The next attempt may act; its outcome is open again, whatever was said of the first."""
    lease = desk.start(desk.worker())
    ended(desk, lease, opened(desk, lease), EffectState.NOT_DONE, None)

    again = opened(desk, lease)

    assert (again.fresh, again.attempt, again.state) == (True, 2, EffectState.INTENT)
    assert (again.by, again.why, again.settled_at, again.result) == (None, None, None, None)
    with pytest.raises(InvalidDecisionError, match="may still be at it"):
        settle(desk, EffectState.NOT_DONE)


def test_settling_as_done_gives_later_callers_the_result(desk: Desk) -> None:
    """A person who found out that it happened says so, with who and why."""
    opened(desk, desk.start(desk.worker("w1")))
    desk.do(desk.store.bury_worker("w1"))

    settled = settle(desk, EffectState.DONE, {"receipt": 7})

    assert (settled.state, settled.result, settled.by, settled.why) == (
        EffectState.DONE,
        {"receipt": 7},
        "ann",
        "asked the bank",
    )
    replayed = opened(desk, desk.take_over(desk.worker("w2")))
    assert (replayed.result, replayed.fresh) == ({"receipt": 7}, False)


def test_settling_as_not_done_lets_the_next_caller_act(desk: Desk) -> None:
    """It did not happen: the same key is free for one more attempt."""
    opened(desk, desk.start(desk.worker("w1")))
    desk.do(desk.store.bury_worker("w1"))

    settle(desk, EffectState.NOT_DONE)

    again = opened(desk, desk.take_over(desk.worker("w2")))
    assert (again.fresh, again.attempt) == (True, 2)


def test_not_done_only_once_the_asker_is_known_dead(desk: Desk) -> None:
    """An expired lease is not enough: a paused process may still be at it. A buried one cannot."""
    opened(desk, desk.start(desk.worker("w1")))
    desk.clock.advance(TTL_S + 1)
    unknown = opened(desk, desk.take_over(desk.worker("w2")))
    assert unknown.holder_alive
    before = desk.trace()
    with pytest.raises(InvalidDecisionError, match="may still be at it"):
        settle(desk, EffectState.NOT_DONE)
    assert desk.trace() == before

    desk.do(desk.store.bury_worker("w1"))

    assert settle(desk, EffectState.NOT_DONE).state is EffectState.NOT_DONE


def test_not_done_once_the_call_has_passed_its_own_limit(desk: Desk) -> None:
    """A call that has ended by its own limit, and a margin, cannot happen any more, though its process may live."""
    opened(desk, desk.start(desk.worker("w1")), timeout_s=60.0)
    desk.clock.advance(64)
    unknown = opened(desk, desk.take_over(desk.worker("w2")), timeout_s=60.0)
    assert (unknown.holder_alive, unknown.over) == (True, False)
    with pytest.raises(InvalidDecisionError, match="may still be at it"):
        settle(desk, EffectState.NOT_DONE)

    desk.clock.advance(2)

    assert settle(desk, EffectState.NOT_DONE).state is EffectState.NOT_DONE


def test_an_unknown_one_may_be_settled_as_done_at_once(desk: Desk) -> None:
    """That it happened cannot be undone by a process that wakes up: it is fenced, and its own word comes too late."""
    old = desk.start(desk.worker("w1"))
    effect = opened(desk, old)
    desk.clock.advance(TTL_S + 1)
    opened(desk, desk.take_over(desk.worker("w2")))

    settle(desk, EffectState.DONE, "by hand")

    with pytest.raises(LeaseLostError):
        ended(desk, old, effect, result="late")
    assert known(desk).result == "by hand"


def test_what_is_under_way_or_known_is_not_settled(desk: Desk) -> None:
    """A live process's own word counts; and a recorded outcome is not changed by hand."""
    lease = desk.start(desk.worker())
    effect = opened(desk, lease)
    with pytest.raises(InvalidDecisionError):
        settle(desk, EffectState.DONE)
    ended(desk, lease, effect)

    for state in (EffectState.DONE, EffectState.NOT_DONE, EffectState.INTENT, EffectState.UNKNOWN):
        with pytest.raises(InvalidDecisionError):
            settle(desk, state)
    with pytest.raises(NoCheckpointFoundError):
        settle(desk, EffectState.DONE, key="nothing")
    assert known(desk).result == "ok"


def test_one_that_reported_its_own_unknown_end_may_be_settled(desk: Desk) -> None:
    """A timeout of the call itself: the process that asked lives, but has said that it is no longer at it."""
    lease = desk.start(desk.worker())
    ended(desk, lease, opened(desk, lease), EffectState.UNKNOWN, None)

    assert settle(desk, EffectState.NOT_DONE).state is EffectState.NOT_DONE


def test_keys_are_per_owner(desk: Desk) -> None:
    """Another owner's equal key is another act."""
    worker = desk.worker()
    opened(desk, desk.start(worker))

    other = opened(desk, desk.start(worker, "r2", scope=Scope("ann")))

    assert other.fresh
    assert other.owner == "ann"


def test_effects_are_listed_oldest_first_by_thread_and_state(desk: Desk) -> None:
    """What an operator sees at night: which are open, on which thread."""
    worker = desk.worker()
    one, two = desk.start(worker), desk.start(worker, "r2", "t2")
    ended(desk, one, opened(desk, one, "e1"))
    opened(desk, two, "e2")
    opened(desk, one, "e3")

    def keys(**filters: Any) -> list[str]:
        return [e.key for e in desk.do(desk.store.list_effects(ONE_USER, **filters))]

    assert keys() == ["e1", "e2", "e3"]
    assert keys(thread_id="t") == ["e1", "e3"]
    assert keys(state=EffectState.INTENT) == ["e2", "e3"]
    assert keys(thread_id="t", state=EffectState.INTENT) == ["e3"]
