"""Questions that nobody answers in time: by the store's clock, each outcome once, and never beside an answer."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from contract.desk import Desk
from contract.faults import Breaker, BrokenError
from ninelives.deadlines import sweep
from ninelives.errors import DivergentStateError, IdempotencyMismatchError, InvalidDecisionError, LeaseLostError
from ninelives.model import (
    ONE_USER,
    SYSTEM,
    Action,
    AtDeadline,
    Interrupt,
    InterruptState,
    Lapsed,
    Lease,
    NewQuestion,
    RunStatus,
    Scope,
)
from ninelives.stores.sqlite import SqliteStore

DAY = 86400.0
CHARGE = Action("call-1", "charge", {"cents": 5}, ("approve", "reject"))
BATCH = {"action_requests": [{"name": "charge", "args": {"cents": 5}}], "review_configs": []}


def ask(desk: Desk, lease: Lease, interrupt_id: str = "q1", thread_id: str = "t", **fields: Any) -> None:
    payload = fields.pop("payload", "go?")
    question = NewQuestion(interrupt_id, payload, **fields)
    task = f"task-{interrupt_id}"
    write = (-3, "__interrupt__", payload)
    desk.write(lease, "c1", task, write, thread_id=thread_id, questions=[question], kind="task_asked")


def waits(desk: Desk, kind: str = "fail", *, deadline_s: float = DAY, thread_id: str = "t", **fields: Any) -> str:
    """A thread that waits for an answer, for a day; gives the run's id."""
    at = AtDeadline(kind, fields.pop("text", ""), fields.pop("to", ()))  # type: ignore[arg-type]
    run_id = f"run-{thread_id}"
    lease = desk.start(desk.worker(f"w-{thread_id}"), run_id, thread_id)
    desk.put(lease, "c1", thread_id=thread_id)
    ask(desk, lease, f"q-{thread_id}", thread_id, deadline_s=deadline_s, at_deadline=at, **fields)
    desk.finish(lease, RunStatus.INTERRUPTED)
    return run_id


def reviews(desk: Desk, kind: str, *, text: str = "") -> None:
    """As `waits`, for leave to make a tool call."""
    at = AtDeadline(kind, text)  # type: ignore[arg-type]
    lease = desk.start(desk.worker("w-t"), "run-t")
    desk.put(lease, "c1")
    ask(desk, lease, "q-t", payload=BATCH, kind="batch", actions=(CHARGE,), deadline_s=DAY, at_deadline=at)
    desk.finish(lease, RunStatus.INTERRUPTED)


def swept(desk: Desk, **options: Any) -> list[Lapsed]:
    return sweep(desk.store, **options)


def questions(desk: Desk, thread_id: str = "t") -> list[Interrupt]:
    return desk.do(desk.store.list_interrupts(ONE_USER, thread_id, pending_only=False))


def kinds(desk: Desk, thread_id: str = "t") -> list[str]:
    return [event.kind for event in desk.do(desk.store.list_events(ONE_USER, thread_id))]


def statuses(desk: Desk, thread_id: str = "t") -> list[str]:
    runs = desk.do(desk.store.list_runs(ONE_USER, thread_id=thread_id))
    return [str(run.status) for run in reversed(runs)]


def test_nothing_is_due_before_its_time(desk: Desk) -> None:
    """Up to the last moment a question can be answered, and a sweep changes nothing."""
    waits(desk)
    desk.clock.advance(DAY - 0.001)
    before = desk.trace()

    assert not desk.do(desk.store.any_due())
    assert swept(desk) == []
    assert desk.trace() == before
    desk.answer(desk.worker("ann's"), {"q-t": "yes"})


@pytest.mark.parametrize(
    ("kind", "text", "decided"),
    [
        ("reject", "too late", {"decisions": [{"type": "reject", "message": "too late"}]}),
        ("reject", "", {"decisions": [{"type": "reject"}]}),
        ("approve", "", {"decisions": [{"type": "approve"}]}),
    ],
)
def test_an_outcome_is_a_decision_and_the_run_that_goes_on(desk: Desk, kind: str, text: str, decided: Any) -> None:
    """Recorded as decided by the deadline; the run is queued for whoever has the graph."""
    reviews(desk, kind, text=text)
    desk.clock.advance(DAY)

    (lapsed,) = swept(desk)

    assert (lapsed.thread_id, lapsed.interrupt_id, lapsed.what) == ("t", "q-t", kind)
    (decision,) = desk.do(desk.store.list_decisions(ONE_USER, "t"))
    assert (decision.value, decision.actor, decision.channel) == (decided, "deadline", "deadline")
    assert decision.run_id == lapsed.run_id
    assert statuses(desk) == ["interrupted", "queued"]
    run = desk.do(desk.store.get_run(ONE_USER, decision.run_id))
    assert (run.continues, run.worker_id) == ("run-t", None)
    assert swept(desk) == []


def test_a_text_answers_a_question_of_another_kind(desk: Desk) -> None:
    """`respond`: the text is the answer."""
    waits(desk, "respond", text="nobody was there")
    desk.clock.advance(DAY)

    swept(desk)

    assert [decision.value for decision in desk.do(desk.store.list_decisions(ONE_USER, "t"))] == ["nobody was there"]


@pytest.mark.parametrize("kind", ["approve", "reject", "respond"])
def test_an_outcome_that_the_question_does_not_take_fails(desk: Desk, kind: str) -> None:
    """Nothing happens that the graph has not allowed, and no value of a wrong form reaches it."""
    if kind == "respond":
        reviews(desk, kind, text="done")
    else:
        waits(desk, kind)
    desk.clock.advance(DAY)

    assert [lapsed.what for lapsed in swept(desk)] == ["fail"]

    assert statuses(desk) == ["expired"]
    assert desk.do(desk.store.list_decisions(ONE_USER, "t")) == []


def test_a_question_that_fails_expires_with_its_run(desk: Desk) -> None:
    """An event tells of it; the thread is free for new input, and no answer is taken any more."""
    waits(desk, "fail")
    desk.clock.advance(DAY)

    (lapsed,) = swept(desk)

    assert (lapsed.what, lapsed.run_id) == ("fail", "run-t")
    assert [question.state for question in questions(desk)] == [InterruptState.EXPIRED]
    assert statuses(desk) == ["expired"]
    assert kinds(desk)[-2:] == ["question_expired", "run_expired"]
    with pytest.raises(InvalidDecisionError, match="'q-t' is not pending: nobody answered in time"):
        desk.answer(desk.worker("ann's"), {"q-t": "yes"})
    assert desk.admit(desk.worker("next"), "r9").lease is not None


def test_an_answer_after_the_deadline_is_refused_though_nobody_has_swept(desk: Desk) -> None:
    """What holds is the time, not whether a process was there to look at it; nothing is changed."""
    waits(desk, "respond", text="x")
    desk.clock.advance(DAY)
    worker = desk.worker("ann's")
    before = desk.trace()

    with pytest.raises(InvalidDecisionError, match="the time to answer interrupt 'q-t' is over"):
        desk.answer(worker, {"q-t": "yes"})

    assert desk.trace() == before
    swept(desk)
    with pytest.raises(InvalidDecisionError, match="it expired, nobody answered in time, and it was answered") as late:
        desk.answer(worker, {"q-t": "yes"})
    assert late.value.first == ("deadline", desk.clock.now)


def test_escalation_asks_one_after_the_other_and_then_fails(desk: Desk) -> None:
    """Each has as long as the first one had; each time there is an event, and the question says who is asked."""
    waits(desk, "escalate", to=("ann", "the office"))
    told = []

    for _ in range(3):
        desk.clock.advance(DAY)
        (lapsed,) = swept(desk)
        (question,) = questions(desk)
        told.append((lapsed.what, question.for_whom, str(question.state)))
        assert swept(desk) == []

    assert told == [
        ("escalate", "ann", "pending"),
        ("escalate", "the office", "pending"),
        ("fail", "the office", "expired"),
    ]
    assert kinds(desk).count("question_escalated") == 2


def test_an_escalated_question_can_be_answered(desk: Desk) -> None:
    """It is the same question, with the same digest, and has a new time."""
    waits(desk, "escalate", to=("ann",))
    shown = questions(desk)[0].digest
    desk.clock.advance(DAY + 5)
    swept(desk)

    assert questions(desk)[0].deadline_at == desk.clock.now + DAY
    assert questions(desk)[0].digest == shown
    desk.clock.advance(DAY - 1)
    assert desk.answer(desk.worker("ann's"), {"q-t": "yes"}).run.status is RunStatus.RUNNING


def test_a_reminder_is_an_event_once(desk: Desk) -> None:
    """However often is looked, and however late."""
    waits(desk, "fail", remind_s=60)
    desk.clock.advance(3600)

    told = [swept(desk) for _ in range(3)]

    assert [[lapsed.what for lapsed in each] for each in told] == [["reminded"], [], []]
    assert kinds(desk).count("question_reminder") == 1
    assert questions(desk)[0].state is InterruptState.PENDING


def test_a_decided_question_is_not_reminded_of(desk: Desk) -> None:
    """Nobody is told of what needs nothing any more, nor is a deadline kept that an answer has overtaken."""
    waits(desk, "fail", remind_s=60)
    second = desk.answer(desk.worker("ann's"), {"q-t": "yes"}).lease
    assert second is not None
    desk.finish(second)
    desk.clock.advance(9 * DAY)

    assert swept(desk) == []
    assert statuses(desk) == ["interrupted", "done"]


def test_days_of_nobody_being_there_are_caught_up_on(desk: Desk) -> None:
    """The longest overdue first, each as it was said, as many as are asked for at once."""
    for number in range(5):
        waits(desk, "fail", deadline_s=DAY * (5 - number), thread_id=f"t{number}")
    desk.clock.advance(30 * DAY)

    first, rest = swept(desk, limit=2), swept(desk)

    assert [lapsed.thread_id for lapsed in first] == ["t4", "t3"]
    assert [lapsed.thread_id for lapsed in rest] == ["t2", "t1", "t0"]


def test_one_thread_can_be_swept_alone(desk: Desk) -> None:
    """A call sees to its own thread first; an owner's sweep leaves those of others alone."""
    for name in ("t1", "t2"):
        waits(desk, "fail", thread_id=name)
    desk.clock.advance(DAY)

    assert swept(desk, scope=Scope("somebody"), thread_id="t2") == []
    assert swept(desk, scope=Scope("somebody")) == []
    assert [lapsed.thread_id for lapsed in swept(desk, scope=ONE_USER, thread_id="t2")] == ["t2"]
    assert statuses(desk, "t1") == ["interrupted"]


def test_a_thread_that_is_being_advanced_waits_for_its_turn(desk: Desk) -> None:
    """Of two questions one was answered and its run goes on: the other's deadline is seen to when that has ended."""
    lease = desk.start(desk.worker("w"))
    desk.put(lease, "c1")
    for name in ("q1", "q2"):
        ask(desk, lease, name, deadline_s=DAY, at_deadline=AtDeadline("respond", "late"))
    desk.finish(lease, RunStatus.INTERRUPTED)
    worker = desk.worker("ann's")
    going = desk.answer(worker, {"q1": "yes"}).lease
    assert going is not None
    desk.clock.advance(DAY)
    worker = desk.worker("alive")  # the clock has moved past the lease of the other
    going = desk.take_over(worker, going.run_id)

    assert swept(desk) == []
    assert swept(desk, thread_id="t", scope=ONE_USER) == []
    desk.finish(going, RunStatus.INTERRUPTED)
    assert [(lapsed.interrupt_id, lapsed.what) for lapsed in swept(desk)] == [("q2", "respond")]
    chain = desk.do(desk.store.list_decisions(ONE_USER, "t", chain="r1"))
    assert {decision.interrupt_id: decision.value for decision in chain} == {"q1": "yes", "q2": "late"}


def test_several_outcomes_on_one_thread_are_one_chain(desk: Desk) -> None:
    """Each is an act of its own; the last of the runs goes on with all of them."""
    lease = desk.start(desk.worker("w"))
    desk.put(lease, "c1")
    for name in ("q1", "q2", "q3"):
        ask(desk, lease, name, deadline_s=DAY, at_deadline=AtDeadline("respond", name))
    desk.finish(lease, RunStatus.INTERRUPTED)
    desk.clock.advance(DAY)

    assert len(swept(desk)) == 3

    assert statuses(desk) == ["interrupted", "interrupted", "interrupted", "queued"]
    newest = desk.do(desk.store.find_newest_run(ONE_USER, "t"))
    assert newest is not None
    chain = desk.do(desk.store.list_decisions(ONE_USER, "t", chain=newest.chain))
    assert {decision.interrupt_id: decision.value for decision in chain} == {"q1": "q1", "q2": "q2", "q3": "q3"}


def test_a_question_that_the_state_has_moved_on_from_is_withdrawn(desk: Desk) -> None:
    """After an edit of the state nobody asks it any more, so nothing is decided about it."""
    waits(desk, "respond", text="x")
    lease = desk.start(desk.worker("editor"), "edit", driver="edit")
    desk.put(lease, "c2", "c1", source="update")
    desk.finish(lease)
    desk.clock.advance(DAY)

    assert [lapsed.what for lapsed in swept(desk)] == ["withdrawn"]

    assert [question.state for question in questions(desk)] == [InterruptState.WITHDRAWN]
    assert statuses(desk) == ["interrupted", "done"]
    assert swept(desk) == []


def test_a_question_that_is_being_asked_is_left_until_it_is(desk: Desk) -> None:
    """A nested graph's, whose process died before the root had recorded it: it is asked anew when that goes on."""
    lease = desk.start(desk.worker("w"))
    desk.put(lease, "c1")
    desk.put(lease, "c9", ns="sub:outer")
    question = NewQuestion("q1", "?", deadline_s=DAY, at_deadline=AtDeadline("respond", "x"))
    write = (-3, "__interrupt__", "?")
    desk.write(lease, "c9", "inner", write, ns="sub:outer", questions=[question], kind="task_asked")
    desk.clock.advance(DAY)

    assert swept(desk) == []
    assert [one.state for one in questions(desk)] == [InterruptState.PENDING]
    going = desk.take_over(desk.worker("next"))
    desk.write(going, "c1", "outer", write, questions=[question], kind="task_asked")
    desk.finish(going, RunStatus.INTERRUPTED)
    assert [lapsed.what for lapsed in swept(desk)] == ["respond"]


@pytest.mark.parametrize("kind", ["reject", "escalate", "fail"])
def test_an_outcome_is_all_or_nothing(desk: Desk, kind: str) -> None:
    """Broken at any point, the question is due as before, and the next sweep has it come true once."""
    if kind == "reject":
        reviews(desk, kind)
    else:
        waits(desk, kind, to=("ann",))
    desk.clock.advance(DAY)
    before, points = desk.trace(), 0
    while True:
        desk.store.fault = breaker = Breaker("lapse", points, BrokenError)
        try:
            (lapsed,) = swept(desk)
        except BrokenError:
            desk.store.fault = None
            assert desk.trace() == before, breaker.points[-1]
            points += 1
        else:
            break

    assert points > 5
    assert lapsed.what == kind
    assert swept(desk) == []


def test_of_many_sweepers_one_decides(desk: Desk) -> None:
    """They look at once; each outcome happens once, and all of them together do them all."""
    for number in range(6):
        waits(desk, "respond", text="x", thread_id=f"t{number}")
    desk.clock.advance(DAY)
    start = threading.Barrier(4)

    def sweeps() -> list[Lapsed]:
        start.wait()
        return swept(desk)

    with ThreadPoolExecutor(4) as pool:
        done = [lapsed for future in [pool.submit(sweeps) for _ in range(4)] for lapsed in future.result()]
    done += swept(desk)

    assert sorted(lapsed.thread_id for lapsed in done) == [f"t{number}" for number in range(6)]
    for number in range(6):
        assert len(desk.do(desk.store.list_decisions(ONE_USER, f"t{number}"))) == 1


# -- inputs that wait for their turn -------------------------------------------------------------------------------


def test_an_input_waits_behind_what_is_unfinished(desk: Desk) -> None:
    """Accepted under its key, in order; it starts when the chain before it is over, and new input comes behind it."""
    worker, store = desk.worker(), desk.store
    lease = desk.start(worker)
    first = desk.do(store.queue_input(ONE_USER, desk.new("r2", key="k")))
    assert desk.do(store.queue_input(ONE_USER, desk.new("r3", key="k"))) == first
    with pytest.raises(IdempotencyMismatchError):
        desk.do(store.queue_input(ONE_USER, desk.new("r3", key="k", request=b"other")))
    desk.do(store.queue_input(ONE_USER, desk.new("r4")))
    desk.finish(lease, RunStatus.INTERRUPTED)

    assert [queued.run_id for queued in desk.do(store.list_queued(ONE_USER, "t"))] == ["r2", "r4"]
    assert [queued.run_id for queued in desk.do(store.list_queued(SYSTEM))] == ["r2", "r4"]
    assert desk.do(store.list_queued(Scope("somebody"))) == []
    assert desk.do(store.start_queued(ONE_USER, "t", worker)) is None
    desk.finish(desk.take_over(worker))
    admission = desk.do(store.start_queued(ONE_USER, "t", worker))
    assert admission is not None
    assert (admission.run.run_id, admission.run.key, admission.run.spec) == ("r2", "k", first.spec)
    assert admission.lease is not None
    desk.finish(admission.lease)
    admission = desk.admit(worker, "r5")
    assert admission.run.run_id == "r4"
    assert admission.lease is not None
    desk.finish(admission.lease)
    assert desk.admit(worker, "r5").run.run_id == "r5"


def test_an_input_need_not_wait_for_nothing(desk: Desk) -> None:
    """Where nothing is unfinished it is refused: it can run."""
    desk.finish(desk.start(desk.worker()))

    with pytest.raises(DivergentStateError, match="waits for nothing"):
        desk.do(desk.store.queue_input(ONE_USER, desk.new("r2")))

    assert desk.do(desk.store.find_queued(ONE_USER, "t")) is None


@pytest.mark.parametrize("status", [RunStatus.ABANDONED, RunStatus.CANCELLED, RunStatus.EXPIRED])
def test_closing_drops_what_waits_behind_it(desk: Desk, status: RunStatus) -> None:
    """Whoever gives up on a thread's work gives up on all of it; a deadline ends only the question's own."""
    desk.finish(desk.start(desk.worker()), RunStatus.INTERRUPTED)
    desk.do(desk.store.queue_input(ONE_USER, desk.new("r2")))

    desk.do(desk.store.close_run(ONE_USER, "r1", status, by="ann"))

    left = [] if status is not RunStatus.EXPIRED else ["r2"]
    assert [queued.run_id for queued in desk.do(desk.store.list_queued(ONE_USER, "t"))] == left
    assert kinds(desk).count("input_dropped") == 1 - len(left)


def test_an_erased_thread_keeps_no_input(desk: Desk) -> None:
    """What somebody typed goes with the thread."""
    desk.finish(desk.start(desk.worker()), RunStatus.INTERRUPTED)
    desk.do(desk.store.queue_input(ONE_USER, desk.new("r2")))

    desk.do(desk.store.delete_thread(ONE_USER, "t"))

    assert desk.do(desk.store.list_queued(SYSTEM)) == []


# -- what would have been asked ------------------------------------------------------------------------------------


def test_what_would_have_been_asked_is_recorded_once(desk: Desk) -> None:
    """It waits for nothing and is no question; a late worker leaves no trace of it."""
    lease = desk.start(desk.worker("w"))
    desk.put(lease, "c1")
    question = NewQuestion("s1", BATCH, "batch", (CHARGE,))
    act = {"ns": "", "task_id": "k", "checkpoint_id": "c1"}

    for _ in range(2):
        desk.do(desk.store.note_shadow(lease, question, **act))

    assert desk.do(desk.store.list_interrupts(ONE_USER, "t")) == []
    (shadow,) = questions(desk)
    assert (shadow.state, shadow.payload, shadow.actions) == (InterruptState.SHADOW, BATCH, (CHARGE,))
    assert kinds(desk).count("would_ask") == 1
    desk.clock.advance(DAY)
    desk.take_over(desk.worker("next"))
    with pytest.raises(LeaseLostError):
        desk.do(desk.store.note_shadow(lease, NewQuestion("s2", BATCH), **act))
    assert len(questions(desk)) == 1


def test_a_question_that_cannot_be_read_does_not_stop_the_others(desk: Desk) -> None:
    """Damaged, or sealed under a key that is not here: it is left as it is, and the rest is seen to."""
    for name in ("t1", "t2", "t3"):
        waits(desk, "fail", thread_id=name)
    damage = "update interrupt set about = x'00ff' where interrupt_id = 'q-t2'"
    cast(SqliteStore, desk.store)._writer.between(lambda conn: conn.execute(damage))
    desk.clock.advance(DAY)

    assert [lapsed.thread_id for lapsed in swept(desk)] == ["t1", "t3"]
    assert statuses(desk, "t2") == ["interrupted"]
