"""Outside acts: intent before, result after, and never a blind repeat."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contract.desk import TTL_S, Desk
from ninelives.effects import DEADLINE_MARGIN_S
from ninelives.errors import InvalidDecisionError, LeaseLostError, NoCheckpointFoundError
from ninelives.model import ONE_USER, Effect, EffectState, Lease, RunSpec, RunStatus, Scope, WorkerLease


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
    desk.clock.advance(60 + DEADLINE_MARGIN_S - 0.01)
    unknown = opened(desk, desk.take_over(desk.worker("w2")), timeout_s=60.0)
    assert (unknown.holder_alive, unknown.overdue, unknown.over) == (True, False, False)
    with pytest.raises(InvalidDecisionError, match="may still be at it"):
        settle(desk, EffectState.NOT_DONE)

    desk.clock.advance(0.02)

    assert known(desk).over
    assert settle(desk, EffectState.NOT_DONE).state is EffectState.NOT_DONE


def test_without_a_limit_of_its_own_no_time_is_long_enough(desk: Desk) -> None:
    """A stopped process may wake up after a year."""
    opened(desk, desk.start(desk.worker("w1")))
    desk.clock.advance(366 * 86400)

    assert not known(desk).over
    with pytest.raises(InvalidDecisionError, match="may still be at it"):
        settle(desk, EffectState.NOT_DONE)


def test_each_attempt_has_a_limit_of_its_own(desk: Desk) -> None:
    """The deadline is counted from the intent of the attempt, not from that of the first one."""
    lease = desk.start(desk.worker())
    first = opened(desk, lease, timeout_s=2.0)
    ended(desk, lease, first, EffectState.NOT_DONE, None)
    desk.clock.advance(3)

    again = opened(desk, lease, timeout_s=2.0)

    assert (first.deadline_at, again.deadline_at) == (desk.clock.now - 1, desk.clock.now + 2)


def test_one_that_was_cut_off_is_not_over_at_once(desk: Desk) -> None:
    """Who leaves a call before its end does not know: it counts as over when its time is, by the margin."""
    lease = desk.start(desk.worker(ttl_s=600))
    effect = opened(desk, lease, timeout_s=30.0)
    desk.clock.advance(30)
    cut = desk.do(desk.store.finish_effect(lease, effect, EffectState.UNKNOWN, None, why="late", cut_off=True))
    assert (cut.state, cut.why, cut.by, cut.over) == (EffectState.UNKNOWN, "late", None, False)
    with pytest.raises(InvalidDecisionError, match="may still be at it"):
        settle(desk, EffectState.NOT_DONE)

    desk.clock.advance(DEADLINE_MARGIN_S + 0.01)

    assert settle(desk, EffectState.NOT_DONE).state is EffectState.NOT_DONE


@pytest.mark.parametrize("again", [False, True])
def test_who_comes_back_after_its_time_changes_nothing_that_was_settled(desk: Desk, again: bool) -> None:
    """It broke its word to end within its limit: what a person recorded stays, and so does the attempt after it."""
    lease = desk.start(desk.worker(ttl_s=600))
    effect = opened(desk, lease, timeout_s=1.0)
    desk.clock.advance(1 + DEADLINE_MARGIN_S + 0.01)
    settle(desk, EffectState.NOT_DONE if again else EffectState.DONE, "by hand")
    before = opened(desk, lease, timeout_s=1.0) if again else known(desk)

    late = ended(desk, lease, effect, result="late")

    assert late == replace(before, fresh=False) == known(desk)


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


# -- on another branch -------------------------------------------------------------------------------------------


def thread_with_an_act(desk: Desk, state: EffectState | None) -> tuple[Lease, Effect]:
    """Checkpoints c1 (of a run that is done) and c2, and an act of the run "r1" after it, which was then closed."""
    worker = desk.worker()
    first = desk.start(worker, "r0")
    desk.put(first, "c1")
    desk.finish(first)
    lease = desk.start(worker, "r1")
    desk.put(lease, "c2", "c1")
    effect = opened(desk, lease, "old", timeout_s=50.0)
    if state is not None:
        effect = ended(desk, lease, effect, state, {"receipt": 7} if state is EffectState.DONE else None)
    desk.finish(lease, RunStatus.FAILED)
    return lease, effect


def begun_anew(
    desk: Desk, run_id: str, base: str | None = "c1", *, closes: str | None = None, worker: WorkerLease | None = None
) -> Lease:
    """A run that starts over what it closes, or forks where there is nothing to be closed."""
    spec = RunSpec(input={"n": 2}, from_base=True)
    fields: dict[str, Any] = {"closes": closes, "replaces": closes, "base": base, "take_head_as_base": False}
    return desk.start(worker or desk.worker("w2"), run_id, spec=spec, **fields)


def test_a_start_over_takes_over_what_was_done(desk: Desk) -> None:
    """Under a new key, the same act at the same place: its result counts on the new branch, and nobody may act."""
    _, old = thread_with_an_act(desk, EffectState.DONE)

    here = opened(desk, begun_anew(desk, "r2", closes="r1"), "new")

    assert (here.state, here.fresh, here.result, here.inherits) == (EffectState.DONE, False, {"receipt": 7}, "old")
    assert (here.run_id, here.attempt, here.by) == ("r2", 0, old.by)
    assert [e.kind for e in desk.do(desk.store.list_events(ONE_USER, "t"))][-1] == "effect_inherited"


def test_a_start_over_from_nothing_takes_over_too(desk: Desk) -> None:
    """The run that it replaces was the thread's first."""
    lease = desk.start(desk.worker(), "r1")
    ended(desk, lease, opened(desk, lease, "old"))
    desk.finish(lease, RunStatus.FAILED)

    assert opened(desk, begun_anew(desk, "r2", None, closes="r1"), "new").inherits == "old"


@pytest.mark.parametrize(("base", "inherits"), [("c1", "old"), ("c2", "old"), ("c3", None)])
def test_a_fork_takes_over_what_came_after_its_checkpoint(desk: Desk, base: str, inherits: str | None) -> None:
    """What is before the checkpoint belongs to its own history: the same call again is another act."""
    worker = desk.worker()
    lease = desk.start(worker, "r1")
    desk.put(lease, "c1")
    desk.put(lease, "c2", "c1")
    ended(desk, lease, opened(desk, lease, "old"))
    desk.put(lease, "c3", "c2")
    desk.finish(lease)

    here = opened(desk, begun_anew(desk, "r2", base), "new")

    assert (here.inherits, here.fresh) == (inherits, inherits is None)


@pytest.mark.parametrize("named", [True, False])
def test_a_branch_made_by_an_edit_begins_where_it_was_edited(desk: Desk, named: bool) -> None:
    """A state edit of an older checkpoint is a fork of that one, whether its own checkpoint is named or is the head."""
    thread_with_an_act(desk, EffectState.DONE)
    desk.do(desk.store.close_run(ONE_USER, "r1", RunStatus.ABANDONED, by="ann"))
    worker = desk.worker("w2")
    edit = desk.start(worker, "edit", driver="edit")
    desk.put(edit, "c1-edited", "c1", source="update")
    desk.finish(edit)

    lease = begun_anew(desk, "r2", "c1-edited", worker=worker) if named else desk.start(worker, "r2")

    assert opened(desk, lease, "new").inherits == "old"


def test_an_edit_of_the_newest_state_is_no_fork(desk: Desk) -> None:
    """Whoever goes on from an edited head makes a new act, as in any later turn."""
    thread_with_an_act(desk, EffectState.DONE)
    desk.do(desk.store.close_run(ONE_USER, "r1", RunStatus.ABANDONED, by="ann"))
    worker = desk.worker("w2")
    edit = desk.start(worker, "edit", driver="edit")
    desk.put(edit, "c2-edited", "c2", source="update")
    desk.finish(edit)

    assert opened(desk, desk.start(worker, "r2"), "new").fresh


@pytest.mark.parametrize("how", ["another turn", "another lineage", "live"])
def test_what_is_no_fork_of_it_acts(desk: Desk, how: str) -> None:
    """A new request after the old one was given up, another place or other arguments, or `on_fork="live"`."""
    thread_with_an_act(desk, EffectState.DONE)
    fields: dict[str, Any] = {"another lineage": {"lineage": "other"}, "live": {"on_fork": "live"}}.get(how, {})
    lease = (
        desk.start(desk.worker("w2"), "r2", closes="r1")
        if how == "another turn"
        else begun_anew(desk, "r2", closes="r1")
    )

    assert opened(desk, lease, "new", **fields).fresh


def test_a_run_that_continues_a_fork_is_of_it(desk: Desk) -> None:
    """Killed or asked in between, the chain of runs that began anew still takes over."""
    thread_with_an_act(desk, EffectState.DONE)
    forked = begun_anew(desk, "r2", closes="r1")
    desk.put(forked, "d2", "c1", source="input")
    desk.ask(forked, at="d2")
    desk.finish(forked, RunStatus.INTERRUPTED)
    lease = desk.answer(desk.worker("w3"), {"q1": "yes"}, "r3").lease
    assert lease is not None

    assert opened(desk, lease, "new").inherits == "old"


def test_each_act_is_taken_over_once(desk: Desk) -> None:
    """Two rounds of a loop acted; the new branch is given the first, then the second, then acts for itself."""
    thread_with_an_act(desk, EffectState.DONE)
    lease = desk.take_over(desk.worker("w1 again"), "r1")
    ended(desk, lease, opened(desk, lease, "old 2"), result="second")
    desk.finish(lease, RunStatus.FAILED)
    forked = begun_anew(desk, "r2", closes="r1")

    rounds = [opened(desk, forked, f"new {n}") for n in range(3)]

    assert [one.inherits for one in rounds] == ["old", "old 2", None]
    assert [one.fresh for one in rounds] == [False, False, True]
    assert [opened(desk, forked, f"new {n}").inherits for n in range(3)] == ["old", "old 2", None]


def test_a_fork_of_a_fork_finds_them_all(desk: Desk) -> None:
    """A third attempt is given what the first did and what the second added, each once."""
    thread_with_an_act(desk, EffectState.DONE)
    second = begun_anew(desk, "r2", closes="r1")
    opened(desk, second, "new")
    ended(desk, second, opened(desk, second, "added"), result="added")
    desk.finish(second, RunStatus.FAILED)

    third = begun_anew(desk, "r3", closes="r2", worker=desk.worker("w3"))

    assert [opened(desk, third, f"third {n}").inherits for n in range(3)] == ["old", "added", None]


@pytest.mark.parametrize("state", [None, EffectState.UNKNOWN])
def test_what_is_unknown_there_is_unknown_here(desk: Desk, state: EffectState | None) -> None:
    """Whether its process was killed or told so itself: nobody acts, and its receiver knows it by the old key."""
    thread_with_an_act(desk, state)

    here = opened(desk, begun_anew(desk, "r2", closes="r1"), "new")

    assert (here.state, here.fresh, here.inherits, here.sent_as) == (EffectState.UNKNOWN, False, "old", "old")
    assert here.over is (state is EffectState.UNKNOWN)
    assert (here.deadline_at, known(desk, "old").state) == (known(desk, "old").deadline_at, EffectState.UNKNOWN)


@pytest.mark.parametrize("which", ["old", "new"])
def test_settled_on_one_branch_it_is_settled_on_all(desk: Desk, which: str) -> None:
    """There is one act outside, so a person says once what became of it."""
    thread_with_an_act(desk, EffectState.UNKNOWN)
    forked = begun_anew(desk, "r2", closes="r1")
    opened(desk, forked, "new")

    settle(desk, EffectState.DONE, "by hand", key=which)

    assert [(known(desk, key).state, known(desk, key).result) for key in ("old", "new")] == 2 * [
        (EffectState.DONE, "by hand")
    ]
    assert opened(desk, forked, "new").result == "by hand"


def test_not_done_there_it_is_done_here_under_the_key_that_was_sent(desk: Desk) -> None:
    """All attempts of one act have one key, so that a receiver who got the first one ignores the second."""
    thread_with_an_act(desk, EffectState.UNKNOWN)
    forked = begun_anew(desk, "r2", closes="r1")
    opened(desk, forked, "new")
    settle(desk, EffectState.NOT_DONE, key="new")

    here = opened(desk, forked, "new")
    done = ended(desk, forked, here)

    assert (here.fresh, here.attempt, here.sent_as) == (True, 1, "old")
    assert (done.state, known(desk, "old").state) == (EffectState.DONE, EffectState.NOT_DONE)
    desk.finish(forked, RunStatus.FAILED)
    third = begun_anew(desk, "r3", closes="r2", worker=desk.worker("w3"))
    assert [opened(desk, third, f"third {n}").inherits for n in range(2)] == ["new", None]


def test_what_was_not_done_there_is_an_act_of_its_own_here(desk: Desk) -> None:
    """Nothing is taken over of it, and it hides nothing that was done later."""
    thread_with_an_act(desk, EffectState.NOT_DONE)
    second = begun_anew(desk, "r2", closes="r1")
    here = opened(desk, second, "new")
    assert (here.fresh, here.inherits, here.sent_as) == (True, None, "new")
    ended(desk, second, here)
    desk.finish(second, RunStatus.FAILED)

    third = begun_anew(desk, "r3", closes="r2", worker=desk.worker("w3"))

    assert opened(desk, third, "third").inherits == "new"


@pytest.mark.parametrize("counts", [True, False])
def test_a_person_may_be_asked_whether_it_counts(desk: Desk, counts: bool) -> None:
    """`on_fork="ask"`: unknown here until somebody says; done anew, it is another act with a key of its own."""
    thread_with_an_act(desk, EffectState.DONE)
    forked = begun_anew(desk, "r2", closes="r1")
    asked = opened(desk, forked, "new", on_fork="ask")
    assert (asked.state, asked.inherits, asked.over) == (EffectState.UNKNOWN, "old", True)
    assert asked.why == "on another branch it is done"

    settle(desk, EffectState.DONE if counts else EffectState.NOT_DONE, "here", key="new")

    here = opened(desk, forked, "new", on_fork="ask")
    assert (here.fresh, here.sent_as) == (not counts, "new")
    assert known(desk, "old").result == {"receipt": 7}
