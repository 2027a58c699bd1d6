"""A run that asks twice, and the program that answers, killed at every act."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


def test_a_run_that_asks_killed_at_any_act_is_answered_once(chaos: Chaos) -> None:
    """
    Killed while it asks, while it is being answered, and while it goes on with the answer.

    A node asks between two acts, a declared tool asks before it acts. Each process would answer in its own words: the
    words that were accepted first are those that count, and who has been answered asks nobody again.
    """
    found = chaos("ASKING", "--share", share(0), "--every", "answer")

    points = {point for verdict in found.report["verdicts"] for point in verdict["points"]}
    assert not found.breaches, found.told
    assert not found.missed
    assert not found.report["unstable"]
    assert {f"answer#{n}.commit.{where}" for n in (1, 2) for where in ("before", "after")} <= points
    assert found.counts["answers_again"] > 0, "no kill came between an answer and its commit"
    assert found.counts["unknown"] > 0, "no kill came between the asking and the answer of the mail"


def test_two_kills_of_a_run_that_asks_cost_no_more_than_one(chaos: Chaos) -> None:
    """Whoever goes on, with the question or with the answer, is killed too."""
    found = chaos("ASKING", "--mode", "pairs", "--cases", "24")

    assert not found.breaches, found.told
    assert len(found.missed) <= 2
