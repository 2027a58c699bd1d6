"""What a graph asks and what people answer: each question once, each answer for its own question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from contract.desk import TTL_S, Desk
from ninelives.errors import IdempotencyMismatchError, InvalidDecisionError, NoCheckpointFoundError, ThreadBusyError
from ninelives.model import (
    ONE_USER,
    SYSTEM,
    Action,
    Interrupt,
    InterruptState,
    Lease,
    NewQuestion,
    RunStatus,
    Scope,
    WorkerLease,
)


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


# -- decided without a worker -------------------------------------------------------------------------------------


def test_an_answer_without_a_worker_is_a_run_that_anybody_may_take(desk: Desk) -> None:
    """It is queued, in nobody's hands; whoever has the graph claims it, and a second answer makes the next one."""
    worker, _ = asked(desk, "q1", "q2")

    first = desk.answer(None, {"q1": 1})
    second = desk.answer(None, {"q2": 2}, "r3", actor="bob")

    assert (first.lease, first.run.status, first.run.continues) == (None, RunStatus.QUEUED, "r1")
    assert (second.run.status, second.run.continues, second.run.chain) == (RunStatus.QUEUED, "r2", "r1")
    assert desk.do(desk.store.get_run(ONE_USER, "r2")).status is RunStatus.INTERRUPTED
    lease = desk.take_over(worker, "r3")
    assert desk.do(desk.store.holds(lease))


def test_an_answer_is_bound_to_what_was_shown(desk: Desk) -> None:
    """The digest is the question's, and kept with the decision; one of anything else is refused."""
    worker, _ = asked(desk, "q1", "q2")
    digests = {question.interrupt_id: question.digest for question in questions(desk)}
    before = desk.trace()
    for shown in ({"q1": digests["q2"]}, {"q1": ""}, {"q1": digests["q1"], "q2": digests["q1"]}):
        with pytest.raises(InvalidDecisionError, match="asks something else now") as refused:
            desk.answer(worker, dict.fromkeys(shown, 1), shown=shown)
        assert refused.value.pending == ("q1", "q2")
    assert desk.trace() == before

    desk.answer(worker, {"q1": 1}, shown={"q1": digests["q1"]}, note="cheap enough")

    (decision,) = desk.do(desk.store.list_decisions(ONE_USER, "t"))
    assert (decision.digest, decision.note, decision.status) == (digests["q1"], "cheap enough", "accepted")
    assert len(set(digests.values())) == 2


def test_what_the_state_has_moved_on_from_is_not_answered(desk: Desk) -> None:
    """The question is at an older checkpoint: an answer would let something else run."""
    worker, _ = asked(desk)
    edit = desk.start(worker, "e1", driver="edit")
    desk.put(edit, "c2", "c1")
    desk.finish(edit)
    before = desk.trace()

    for by in (worker, None):
        with pytest.raises(InvalidDecisionError, match="the state has moved on"):
            desk.answer(by, {"q1": 1})

    assert desk.trace() == before


@pytest.mark.parametrize("ns", ["", "sub:outer", "sub:outer|deep:inner", "sub:outer|1", "sub"])
def test_what_is_asked_is_asked_at_the_head_of_its_own_graph(desk: Desk, ns: str) -> None:
    """The root waits in one task, the graph inside in another; an edit of either moves on from the question."""
    for edited in dict.fromkeys(("", ns)):
        name = f"{ns} edited at {edited}"
        lease = desk.start(worker := desk.worker(name), name, name)
        tasks = {ns: "k", "": "outer" if ns else "k"}
        for place in tasks:
            desk.put(lease, "c1", thread_id=name, ns=place)
        question = NewQuestion("q1", "go?")
        for place, task in tasks.items():
            write = (-3, "__interrupt__", 1)
            desk.write(lease, "c1", task, write, thread_id=name, ns=place, questions=[question], kind="task_asked")
        desk.finish(lease, RunStatus.INTERRUPTED)
        assert desk.do(desk.store.list_asked(ONE_USER, name)) == ["q1"]

        edit = desk.start(worker, f"edit of {name}", name, driver="edit")
        desk.put(edit, "c2", "c1", thread_id=name, ns=edited)
        desk.finish(edit)

        assert desk.do(desk.store.list_asked(ONE_USER, name)) == []
    assert desk.do(desk.store.list_asked(ONE_USER, "nowhere")) == []


def test_questions_of_all_threads(desk: Desk) -> None:
    """Those that wait, the oldest first, of one owner or of all."""
    for n, (owner, thread_id) in enumerate([("", "t"), ("ann", "t"), ("", "u")]):
        lease = desk.start(desk.worker(f"w{n}"), f"r{n}", thread_id, scope=Scope(owner))
        desk.put(lease, "c1", thread_id=thread_id, scope=Scope(owner))
        question = NewQuestion(f"q{n}", n)
        write = ("__interrupt__", n)
        desk.write(lease, "c1", "k", write, thread_id=thread_id, scope=Scope(owner), questions=[question])
        desk.finish(lease, RunStatus.INTERRUPTED)
        desk.clock.advance(1)
    desk.answer(desk.worker("w9"), {"q0": 1}, "r9")

    def listed(scope: Scope) -> list[tuple[Any, str, Any]]:
        return [(q.owner, q.thread_id, q.payload) for q in desk.do(desk.store.list_questions(scope))]

    assert listed(ONE_USER) == [("", "u", 2)]
    assert listed(Scope("ann")) == [("ann", "t", 1)]
    assert listed(SYSTEM) == [("ann", "t", 1), ("", "u", 2)]


# -- verdicts -------------------------------------------------------------------------------------------------------

CALLS = (
    Action("call-1", "charge", {"cents": 5}, ("approve", "edit", "reject")),
    Action("call-2", "charge", {"cents": 6}, ("approve", "edit", "reject")),
    Action(None, "charge", {"cents": 7}, ("approve", "edit", "reject")),
)


def test_what_was_decided_about_tool_calls(desk: Desk) -> None:
    """By tool call id: kind, who, and the arguments that may run; a later decision about the same call counts."""
    lease = desk.start(worker := desk.worker())
    desk.put(lease, "c1")
    for name in ("q1", "q2"):
        question = NewQuestion(name, name, "batch", CALLS)
        desk.write(lease, "c1", f"k{name}", ("__interrupt__", 1), questions=[question], kind="task_asked")
    desk.finish(lease, RunStatus.INTERRUPTED)
    edited = {"type": "edit", "edited_action": {"name": "charge", "args": {"cents": 1}}}
    first = [{"type": "approve"}, {"type": "reject", "message": "no"}, {"type": "approve"}]

    second = desk.answer(worker, {"q1": {"decisions": first}}).lease
    verdicts = desk.do(desk.store.list_verdicts(ONE_USER, "t"))
    assert {key: (one.type, one.args, one.actor) for key, one in verdicts.items()} == {
        "call-1": ("approve", {"cents": 5}, "ann"),
        "call-2": ("reject", {"cents": 6}, "ann"),
    }
    assert second is not None
    desk.finish(second, RunStatus.INTERRUPTED)
    desk.answer(worker, {"q2": {"decisions": [edited, {"type": "approve"}, {"type": "approve"}]}}, "r3", actor="bob")

    verdicts = desk.do(desk.store.list_verdicts(ONE_USER, "t"))
    assert {key: (one.type, one.args, one.shown, one.actor) for key, one in verdicts.items()} == {
        "call-1": ("edit", {"cents": 1}, {"cents": 5}, "bob"),
        "call-2": ("approve", {"cents": 6}, {"cents": 6}, "bob"),
    }
    assert desk.do(desk.store.list_verdicts(ONE_USER, "nowhere")) == {}


# -- asked again ----------------------------------------------------------------------------------------------------

ERROR = (-1, "__error__", "no")
RESULT = (0, "n", 1)


def failed_on(desk: Desk, *ends: tuple[Any, ...]) -> WorkerLease:
    """A run that was answered `q1`, `q2` and so on together, and whose tasks have come to these ends."""
    ids = [f"q{n}" for n, _ in enumerate(ends, 1)]
    worker, _ = asked(desk, *ids)
    lease = desk.answer(worker, dict.fromkeys(ids, "bad")).lease
    assert lease is not None
    for interrupt_id, end in zip(ids, ends, strict=True):
        if end:
            desk.write(lease, "c1", f"task-{interrupt_id}", end)
    desk.finish(lease, RunStatus.FAILED)
    return worker


def test_a_failed_answer_is_asked_again(desk: Desk) -> None:
    """The same question under the next number; the run waits; the old answer stays readable, and counts no more."""
    worker = failed_on(desk, ERROR)
    desk.clock.advance(1)

    assert desk.do(desk.store.ask_again(ONE_USER, "t", by="bob")) == ["q1"]

    (question,) = questions(desk)
    assert (question.ask_no, question.payload, question.asked_at) == (2, {"delete": "q1"}, desk.clock.now)
    run = desk.do(desk.store.find_newest_run(ONE_USER, "t"))
    assert run is not None
    assert (run.run_id, run.status, run.cause) == ("r2", RunStatus.INTERRUPTED, "bob asks again")
    desk.answer(worker, {"q1": "good"}, "r3")
    told = desk.do(desk.store.list_decisions(ONE_USER, "t", withdrawn=True))
    assert [(one.ask_no, one.value, one.status) for one in told] == [(1, "bad", "withdrawn"), (2, "good", "accepted")]
    assert [one.value for one in desk.do(desk.store.list_decisions(ONE_USER, "t"))] == ["good"]


@pytest.mark.parametrize(
    ("ends", "again"),
    [
        ((ERROR, RESULT), ["q1"]),
        ((ERROR, ()), ["q1"]),
        ((ERROR, ERROR), ["q1", "q2"]),
        ((RESULT, ()), ["q2"]),
        (((), ()), ["q1", "q2"]),
    ],
    ids=["one failed", "one was stopped", "both failed", "one is not recorded", "none is recorded"],
)
def test_only_what_was_not_used_is_asked_again(desk: Desk, ends: Any, again: list[str]) -> None:
    """The answers of the tasks that failed; where no failure is recorded, of those that have not ended."""
    failed_on(desk, *ends)

    assert desk.do(desk.store.ask_again(ONE_USER, "t", by="bob")) == again

    assert [question.interrupt_id for question in questions(desk)] == again


@pytest.mark.parametrize("how", ["all used", "moved on", "waits", "asked again already", "done", "never asked"])
def test_where_nothing_failed_on_an_answer_nothing_is_asked_again(desk: Desk, how: str) -> None:
    """And nothing changes."""
    if how == "all used":
        failed_on(desk, RESULT)
    elif how == "moved on":
        worker = failed_on(desk, ERROR)
        edit = desk.start(worker, "e1", driver="edit")
        desk.put(edit, "c2", "c1")
        desk.finish(edit)
    elif how == "waits":
        asked(desk)
    elif how == "asked again already":
        failed_on(desk, ERROR)
        desk.do(desk.store.ask_again(ONE_USER, "t", by="bob"))
    elif how == "done":
        desk.finish(desk.start(desk.worker()))
    else:
        desk.finish(desk.start(desk.worker()), RunStatus.FAILED)
    before, pending = desk.trace(), tuple(question.interrupt_id for question in questions(desk))

    with pytest.raises(InvalidDecisionError, match="nothing to ask again") as refused:
        desk.do(desk.store.ask_again(ONE_USER, "t", by="bob"))

    assert refused.value.pending == pending
    assert desk.trace() == before


def test_what_is_being_advanced_is_not_asked_again(desk: Desk) -> None:
    """Somebody continues with the very answer: that comes first."""
    worker = failed_on(desk, ERROR)
    desk.take_over(worker, "r2")

    with pytest.raises(ThreadBusyError):
        desk.do(desk.store.ask_again(ONE_USER, "t", by="bob"))
    with pytest.raises(NoCheckpointFoundError):
        desk.do(desk.store.ask_again(ONE_USER, "nowhere", by="bob"))
