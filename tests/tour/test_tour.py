"""
Five short stories, to be read first: what is promised, and how a program that uses it looks.

Each story kills a real process (`die` is `kill -9`) and starts the same program again. The helpers are in `lives.py`
(processes) and `agents.py` (a store in a folder, small graphs, a file that stands for the outside world).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.types import Command, interrupt

from agents import Home, Log, Outside, asks, chain, home_in, step
from lives import Gate, begin, die, live, live_and_die
from ninelives import NoCheckpointFoundError, ThreadBusyError, UnfinishedRunError, effect
from ninelives.effects import Done, NotDone

pytestmark = pytest.mark.crash


# -- 1. A recorded step never runs again -----------------------------------------------------------------------


def program_of_three_steps(folder: str) -> Any:
    with home_in(folder) as home:
        agent = home.protect(
            chain(
                step("read", home.outside),
                step("think", home.outside, then=lambda: die_the_first_time(home)),
                step("write", home.outside),
            )
        )
        return agent.invoke(asks("question"), thread="t", idempotency_key="request-1")


def die_the_first_time(home: Home) -> None:
    if home.outside.once("killed"):
        die()


def test_started_again_it_goes_on(tmp_path: Path) -> None:
    """A program killed in its second step and started again does not read a second time."""
    live_and_die(program_of_three_steps, tmp_path)

    result = live(program_of_three_steps, tmp_path)

    assert result == asks("question", "read", "think", "write")
    assert Outside(tmp_path).seen == ["read", "think", "killed", "think", "write"]


# -- 2. An outside act happens once ----------------------------------------------------------------------------


def program_that_pays(folder: str) -> Any:
    with home_in(folder) as home:

        def was_it_paid(order: str) -> Any:
            return Done("receipt") if f"payment for {order}" in home.outside.seen else NotDone()

        @effect(probe=was_it_paid)
        def pay(order: str) -> str:
            home.outside.happens(f"payment for {order}")
            die_the_first_time(home)
            return "receipt"

        def shop(state: Log) -> Any:
            return {"log": [pay("order 7")]}

        return home.protect(chain(shop)).invoke(asks(), thread="t", idempotency_key="request-1")


def test_a_payment_is_made_once(tmp_path: Path) -> None:
    """Killed after the money had gone and before anybody knew: the probe finds it, and it is not paid twice."""
    live_and_die(program_that_pays, tmp_path)

    assert live(program_that_pays, tmp_path) == asks("receipt")
    assert Outside(tmp_path).times("payment for order 7") == 1


# -- 3. A question waits, and its answer counts once -----------------------------------------------------------


def deletes_if_told(home: Home) -> Any:
    def delete(state: Log) -> Any:
        answer = interrupt("delete everything?")
        die_the_first_time(home)
        return {"log": [f"deleted: {answer}"]}

    return home.protect(chain(delete))


def program_that_asks(folder: str) -> Any:
    with home_in(folder) as home:
        out = deletes_if_told(home).invoke(asks(), thread="t")
        return [question.value for question in out["__interrupt__"]]


def program_that_answers(folder: str) -> Any:
    with home_in(folder) as home:
        return deletes_if_told(home).invoke(Command(resume="yes"), thread="t")


def test_an_answer_is_not_lost_and_not_asked_for_again(tmp_path: Path) -> None:
    """One process asks and ends; another takes the answer and is killed while acting on it; a third one goes on."""
    assert live(program_that_asks, tmp_path) == ["delete everything?"]
    live_and_die(program_that_answers, tmp_path)

    with home_in(tmp_path) as home:
        assert deletes_if_told(home).continue_run("t") == asks("deleted: yes")


# -- 4. One writer per thread ----------------------------------------------------------------------------------


def program_that_takes_its_time(folder: str) -> Any:
    with home_in(folder) as home:

        def work() -> None:
            Gate(folder, "at work").open()
            Gate(folder, "go on").wait()

        return home.protect(chain(step("work", home.outside, then=work))).invoke(asks("first"), thread="t")


def test_two_processes_do_not_mix_on_one_thread(tmp_path: Path) -> None:
    """While one process advances a thread, another is told so; afterwards it may, and nothing is lost."""
    at_work, go_on = Gate(tmp_path, "at work"), Gate(tmp_path, "go on")
    first = begin(program_that_takes_its_time, tmp_path)
    at_work.wait()

    with home_in(tmp_path) as home:
        agent = home.protect(chain(step("work", home.outside)))
        with pytest.raises(ThreadBusyError):
            agent.invoke(asks("second"), thread="t")
        go_on.open()
        first.end()

        assert agent.invoke(asks("second"), thread="t") == asks("first", "work", "second", "work")


# -- 5. Nothing begins anew in silence -------------------------------------------------------------------------


def test_nothing_is_dropped_or_begun_anew_in_silence(tmp_path: Path) -> None:
    """A mistyped thread is an error that names the right one; new input on an unfinished thread is a question."""
    live_and_die(program_of_three_steps, tmp_path)

    with home_in(tmp_path) as home:
        agent = home.protect(chain(*(step(word, home.outside) for word in ("read", "think", "write"))))
        with pytest.raises(NoCheckpointFoundError):
            agent.continue_run("tt")
        with pytest.raises(UnfinishedRunError) as told:
            agent.invoke(asks("something else"), thread="t")
        assert "think would run again" in str(told.value)

        assert agent.invoke(asks("something else"), thread="t", on_unfinished="start_over") == asks(
            "something else", "read", "think", "write"
        )
