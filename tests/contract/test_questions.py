"""What a graph asks and what people answer: each question once, each answer for its own question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from contract.desk import TTL_S, Desk
from ninelives.errors import IdempotencyMismatchError, InvalidDecisionError, NoCheckpointFoundError, ThreadBusyError
from ninelives.model import ONE_USER, Interrupt, InterruptState, Lease, RunStatus, WorkerLease


def questions(desk: Desk, *, pending_only: bool = True) -> list[Interrupt]:
    return desk.do(desk.store.list_interrupts(ONE_USER, "t", pending_only=pending_only))


def asked(desk: Desk, *ids: str) -> tuple[WorkerLease, Lease]:
    """A run that waits for answers to these."""
    worker = desk.worker()
    lease = desk.start(worker)
    desk.put(lease, "c1")
    for interrupt_id in ids or ("q1",):
        desk.ask(lease, interrupt_id, {"delete": interrupt_id}, task=f"task-{interrupt_id}")
    desk.finish(lease, RunStatus.INTERRUPTED)
    return worker, lease


def test_a_question_is_kept_with_where_it_was_asked(desk: Desk) -> None:
    """Payload, task, namespace, run and time; and the task's interrupt write beside it."""
    asked(desk)

    (question,) = questions(desk)

    assert (question.interrupt_id, question.ask_no, question.payload) == ("q1", 1, {"delete": "q1"})
    assert (question.thread_id, question.ns, question.task_id, question.checkpoint_id) == ("t", "", "task-q1", "c1")
    assert (question.run_id, question.state, question.asked_at) == ("r1", InterruptState.PENDING, desk.clock.now)
    assert desk.get("c1").writes == [("task-q1", "__interrupt__", {"delete": "q1"})]


def test_the_copy_at_the_root_is_no_second_question(desk: Desk) -> None:
    """A nested graph's interrupt is written again by the task that called it, in the parent's namespace."""
    lease = desk.start(desk.worker())
    desk.put(lease, "c1")
    desk.ask(lease, "q1", ns="sub:1", task="inner")
    desk.ask(lease, "q1", task="outer")

    (question,) = questions(desk, pending_only=False)

    assert (question.ns, question.task_id) == ("sub:1", "inner")


def test_questions_come_in_the_order_in_which_they_were_asked(desk: Desk) -> None:
    """By the store's own count: neither ids nor a clock that is set back change it."""
    lease = desk.start(desk.worker())
    desk.put(lease, "c1")
    for interrupt_id in ("q9", "q1", "q5"):
        desk.ask(lease, interrupt_id, task=interrupt_id)
        desk.clock.advance(-60)

    assert [q.interrupt_id for q in questions(desk)] == ["q9", "q1", "q5"]


def test_an_answer_and_the_run_that_goes_on_are_one_act(desk: Desk) -> None:
    """The decision is recorded with who and when; the new run continues the chain and has the thread."""
    worker, _ = asked(desk)

    admission = desk.answer(worker, {"q1": ("yes", {"n": 1})}, actor="ann")

    run = admission.run
    assert (run.run_id, run.continues, run.chain, run.status) == ("r2", "r1", "r1", RunStatus.RUNNING)
    assert admission.lease is not None
    assert desk.do(desk.store.holds(admission.lease))
    (decision,) = desk.do(desk.store.list_decisions(ONE_USER, "t"))
    assert (decision.interrupt_id, decision.ask_no, decision.value) == ("q1", 1, ("yes", {"n": 1}))
    assert (decision.actor, decision.channel, decision.run_id) == ("ann", "test", "r2")
    assert decision.decided_at == desk.clock.now
    assert questions(desk) == []
    assert [q.state for q in questions(desk, pending_only=False)] == [InterruptState.ANSWERED]


def test_answered_then_asked_again_is_the_next_ask(desk: Desk) -> None:
    """The same place may ask anew; the earlier answer does not count for it."""
    worker, _ = asked(desk)
    second = desk.answer(worker, {"q1": "yes"}).lease
    assert second is not None

    desk.ask(second, "q1", "really?", task="task-q1")
    desk.finish(second, RunStatus.INTERRUPTED)

    (question,) = questions(desk)
    assert (question.ask_no, question.payload, question.run_id) == (2, "really?", "r2")
    desk.answer(worker, {"q1": "no"}, "r3")
    decisions = desk.do(desk.store.list_decisions(ONE_USER, "t"))
    assert [(d.ask_no, d.value, d.run_id) for d in decisions] == [(1, "yes", "r2"), (2, "no", "r3")]


def test_asked_again_while_pending_is_one_question(desk: Desk) -> None:
    """A node that is run again after a crash repeats its question; it is still the first ask."""
    lease = desk.start(desk.worker("w1"))
    desk.put(lease, "c1")
    desk.ask(lease)
    desk.clock.advance(TTL_S)
    lease = desk.take_over(desk.worker("w2"))

    desk.ask(lease)

    assert [q.ask_no for q in questions(desk, pending_only=False)] == [1]


def test_some_of_several_may_be_answered(desk: Desk) -> None:
    """The others stay pending and can be answered by a later run of the chain."""
    worker, _ = asked(desk, "q1", "q2", "q3")

    second = desk.answer(worker, {"q3": 3, "q1": 1}).lease
    assert second is not None
    assert [q.interrupt_id for q in questions(desk)] == ["q2"]
    desk.finish(second, RunStatus.INTERRUPTED)
    desk.answer(worker, {"q2": 2}, "r3")

    decisions = desk.do(desk.store.list_decisions(ONE_USER, "t", chain="r1"))
    assert {d.interrupt_id: d.value for d in decisions} == {"q1": 1, "q2": 2, "q3": 3}
    assert desk.do(desk.store.list_decisions(ONE_USER, "t", chain="r2")) == []


WRONG: dict[str, Mapping[str, Any]] = {"unknown": {"q9": 1}, "none": {}, "one of two": {"q1": 1, "q9": 1}}


@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_answer_changes_nothing(desk: Desk, how: str) -> None:
    """The error lists what is pending; not even the right half of an answer counts."""
    worker, _ = asked(desk, "q1", "q2")
    before = desk.trace()

    with pytest.raises(InvalidDecisionError) as invalid:
        desk.answer(worker, WRONG[how])

    assert invalid.value.pending == ("q1", "q2")
    assert desk.trace() == before


def test_a_second_answer_is_refused(desk: Desk) -> None:
    """A double click, or two people: the first counts, for its own question only; the other is told of it."""
    worker, _ = asked(desk, "q1", "q2")
    second = desk.answer(worker, {"q1": "yes"}).lease
    assert second is not None

    for running in (True, False):
        before = desk.trace()
        with pytest.raises(InvalidDecisionError, match=r"answered by ann \(test\) with 'yes' at ") as invalid:
            desk.answer(worker, {"q1": "no"}, "r3", actor="bob")
        assert invalid.value.pending == ("q2",)
        assert invalid.value.first == ("ann", desk.clock.now)
        assert desk.trace() == before
        if running:
            with pytest.raises(ThreadBusyError):
                desk.answer(worker, {"q2": "no"}, "r3")
            desk.finish(second, RunStatus.INTERRUPTED)


def test_a_repeated_answer_under_its_key_is_the_same_run(desk: Desk) -> None:
    """A retried request gives back the run that the first one made; with another answer it is refused."""
    worker, _ = asked(desk)
    desk.answer(worker, {"q1": "yes"}, key="k", request=b"yes")
    before = desk.trace()

    again = desk.answer(worker, {"q1": "yes"}, "r3", key="k", request=b"yes")

    assert (again.run.run_id, again.lease) == ("r2", None)
    with pytest.raises(IdempotencyMismatchError):
        desk.answer(worker, {"q1": "no"}, "r3", key="k", request=b"no")
    assert desk.trace() == before


def test_nothing_to_answer(desk: Desk) -> None:
    """A thread that asks nothing, and one that is not there."""
    worker = desk.worker()
    with pytest.raises(NoCheckpointFoundError):
        desk.answer(worker, {"q1": 1})
    desk.finish(desk.start(worker))

    with pytest.raises(InvalidDecisionError, match="Nothing is pending"):
        desk.answer(worker, {"q1": 1})

    assert len(desk.do(desk.store.list_runs(ONE_USER))) == 1


@pytest.mark.parametrize("how", ["done", "abandoned"])
def test_what_is_over_asks_nothing_more(desk: Desk, how: str) -> None:
    """When a run ends well or is closed, its questions are withdrawn, and no answer is taken."""
    worker, _ = asked(desk)
    if how == "done":
        desk.finish(desk.take_over(worker))
    else:
        desk.do(desk.store.close_run(ONE_USER, "r1", RunStatus.ABANDONED, by="ann"))

    with pytest.raises(InvalidDecisionError):
        desk.answer(worker, {"q1": "yes"})
    assert [q.state for q in questions(desk, pending_only=False)] == [InterruptState.WITHDRAWN]


def test_an_answer_reaches_a_run_that_died_after_asking(desk: Desk) -> None:
    """The process may die between recording the question and ending the run: it can be answered all the same."""
    lease = desk.start(desk.worker("w1"))
    desk.put(lease, "c1")
    desk.ask(lease)
    desk.clock.advance(TTL_S)

    desk.answer(desk.worker("w2"), {"q1": "yes"})

    assert desk.do(desk.store.get_run(ONE_USER, "r1")).status is RunStatus.INTERRUPTED


def test_an_edit_of_the_state_leaves_questions_open(desk: Desk) -> None:
    """Only a run that went on from them ends them."""
    worker = desk.worker()
    lease = desk.start(worker)
    desk.put(lease, "c1")
    desk.ask(lease)
    desk.finish(lease, RunStatus.INTERRUPTED)

    edit = desk.start(worker, "e1", driver="edit")
    desk.finish(edit)

    assert [q.interrupt_id for q in desk.do(desk.store.list_interrupts(ONE_USER, "t"))] == ["q1"]
