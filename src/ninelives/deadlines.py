"""
Questions that nobody has answered in time.

A question may carry a deadline and what becomes of it then: an answer that is given in nobody's name, the next one to
be asked, or the end of its run. No service is needed for it. Whatever process is alive sweeps now and then, and the
next one that starts catches up on what was due while none was; what was due is decided as had been said, however late.
A person and a sweep, or two sweeps, never both decide: the store lets the first one through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from ninelives.errors import InvalidDecisionError, NineLivesError, StoreUnavailableError, SuspendTimeoutError
from ninelives.interrupts import Choice, resolved
from ninelives.model import SYSTEM, AtDeadline, Interrupt, InterruptState, Lapsed, Scope
from ninelives.store import Store

log = logging.getLogger(__name__)

SWEPT_MAX = 100
"""So many outcomes in one sweep, unless the caller says otherwise."""
PAGE = 50


def sweep(
    store: Store,
    scope: Scope = SYSTEM,
    *,
    thread_id: str | None = None,
    limit: int = SWEPT_MAX,
    stopped: Callable[[], bool] = lambda: False,
) -> list[Lapsed]:
    """
    Have what is due come true: reminders, and the outcomes of questions whose time is over. The longest overdue first.

    Args:
        thread_id: of one thread only (of the scope's owner).
        limit: so many outcomes, and as many reminders.
        stopped: asked between two outcomes; True: that is enough.

    Returns:
        What was done. What another process did meanwhile is not in it.

    Raises:
        StoreUnavailableError: what was done by then stays done.
    """
    if not store.perform(store.any_due()):
        return []
    done = store.perform(store.remind_due(scope, limit=limit)) if thread_id is None else []
    left, skipped = limit, 0
    while left > 0:
        page = store.perform(store.list_due(scope, thread_id=thread_id, limit=PAGE, skip=skipped))
        for question in page[:left]:
            if stopped():
                return done
            lapsed = None if question is None else _lapse(store, question)
            if lapsed is None:
                skipped += 1
            else:
                done.append(lapsed)
                left -= 1
        if len(page) < PAGE:
            break
    return done


def _lapse(store: Store, question: Interrupt) -> Lapsed | None:
    """The outcome of one question; None: it was not to be had now, and one question must not stop the others."""
    what, value = outcome_of(question)
    try:
        lapsed = store.perform(store.lapse(question, what, value, str(uuid4())))
    except StoreUnavailableError:
        raise
    except NineLivesError as error:
        log.info("question %s of thread %s is overdue: %s", question.interrupt_id, question.thread_id, error)
        return None
    if lapsed is not None:
        log.info("question %s of thread %s was overdue: %s", question.interrupt_id, question.thread_id, lapsed.what)
    return lapsed


def outcome_of(question: Interrupt) -> tuple[str, Any]:
    """
    What becomes of a question at its deadline, and what is decided then.

    An outcome that the question does not take (to approve what may only be rejected, to say something where a number is
    asked for) is none: it fails then, for nothing may happen that nobody allowed.
    """
    at = question.at_deadline or AtDeadline("fail")
    if at.kind == "fail" or at.kind == "escalate":
        return ("escalate" if at.kind == "escalate" and at.to else "fail"), None
    choice = Choice(at.kind, None if at.kind == "approve" else at.text)
    try:
        return at.kind, resolved(question, _for_all(question, choice), {})
    except InvalidDecisionError as error:
        log.warning("at its deadline: %s It fails instead.", error)
        return "fail", None


def _for_all(question: Interrupt, choice: Choice) -> Any:
    """The same about each of its tool calls, those included whose id nobody knows."""
    if question.kind != "batch":
        return choice
    said = {"type": choice.type} if choice.value is None else {"type": choice.type, "message": choice.value}
    return {"decisions": [said] * len(question.actions)}


def expired(questions: Sequence[Interrupt]) -> SuspendTimeoutError | None:
    """The error about the question that a thread's run has expired with, of all its questions."""
    found = [question for question in questions if question.state is InterruptState.EXPIRED]
    if not found:
        return None
    of_run = [question for question in found if question.run_id == found[-1].run_id]
    question = min(of_run, key=lambda one: (one.deadline_at is None, one.deadline_at))
    return SuspendTimeoutError(question.thread_id, question.interrupt_id, question.deadline_at)
