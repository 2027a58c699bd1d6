"""The harness finds what is wrong: with LangGraph's own saver, and with ninelives broken on purpose."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import Found

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]

STOCK = "crash.stock:STOCK"


@pytest.mark.parametrize(
    ("workload", "sample"), [("CHAIN", "70"), ("FANOUT", "68"), ("TOOLNODE", "32"), ("AGENT", "40")]
)
def test_killed_at_the_same_points_the_stock_saver_does_more_again(chaos: Chaos, workload: str, sample: str) -> None:
    """
    Both savers, the same graph, the same points, in one run; the stock one under durability="sync".

    It sends acts out a second time, and where many calls are in flight it runs more of what had returned again; ours
    sends none, and runs nothing recorded again.
    """
    ours = chaos(workload, "--sample", sample, "--against", STOCK)
    stock = ours.control

    assert not ours.breaches, ours.told
    assert _points(ours) == _points(stock)
    assert ours.counts["recorded_again"] == ours.counts["doubled"] == 0
    assert stock.counts["doubled"] > 0
    assert stock.breaches["acts_once"] > 0
    if workload in ("FANOUT", "TOOLNODE"):  # else few units are in flight at a time, under either saver
        assert _done_again(stock) > _done_again(ours)


def _points(found: Found) -> list[list[str]]:
    return sorted(verdict["points"] for verdict in found.report["verdicts"])


def _done_again(found: Found) -> int:
    """Units that had returned, recorded or not, and ran again, and acts that went out again."""
    return found.counts["ran_again"] + found.counts["doubled"]


def test_the_stock_saver_loses_steps_to_a_clock_set_back(chaos: Chaos) -> None:
    """It takes the newest id for the newest checkpoint: what the second process does is never seen again."""
    found = chaos("CHAIN", "--no-keep", subject="crash.stock:STOCK_SET_BACK")

    assert found.breaches["same_end"] > 0


@pytest.mark.parametrize("workload", ["LITTLE", "TOOLNODE"])
def test_a_store_without_a_fence_is_found_out(chaos: Chaos, workload: str) -> None:
    """When late writers are not refused, they leave a trace, and begin what they may not."""
    options = ("--mode", "stops", "--share", "0", "--sample", "40", "--jobs", "6", "--no-keep")
    found = chaos(workload, *options, subject="crash.subjects:UNFENCED")

    assert found.breaches["no_trace"] > 0
    assert found.breaches["refused_late"] > 0


def test_starting_over_is_found_out(chaos: Chaos) -> None:
    """A program that starts from scratch after each kill runs again what was recorded, and steps behind others."""
    found = chaos("LITTLE", "--share", "0", "--no-keep", subject="crash.subjects:STARTS_OVER")

    assert found.breaches["recorded_once"] > 0
    assert found.breaches["never_back"] > 0


def test_acting_without_leave_is_found_out(chaos: Chaos) -> None:
    """Killed before anybody has answered, the next process of this subject does what it was to ask for."""
    found = chaos("BARE_ASKING", "--share", "0", "--sample", "40", "--no-keep", subject="crash.subjects:EAGER")

    assert found.breaches["approved_first"] > 0


SHOP = "crash.shops:SMALL_SHOP"


def test_the_stock_saver_takes_an_answer_for_another_question(chaos: Chaos) -> None:
    """
    Whoever handed in an approval died, so it is handed in again; by then something else is asked.

    A mail goes out that nobody was shown, and a charge is made twice.
    """
    stock = chaos(SHOP, "--mode", "talks", "--share", "0", "--no-keep", subject=STOCK)

    assert stock.breaches["as_decided"] > 0
    assert stock.counts["doubled"] > 0


@pytest.mark.parametrize("mode", ["clicks", "rivals"])
def test_the_stock_saver_takes_both_of_two_answers(chaos: Chaos, mode: str) -> None:
    """A double click charges twice; who rejects has it charged nonetheless. Nobody is told."""
    stock = chaos(SHOP, "--mode", mode, "--cases", "12", "--no-keep", subject=STOCK)

    assert stock.breaches["never_twice"] > 0
    assert stock.breaches["as_decided"] > 0
    assert stock.breaches["one_decided"] > 0


def test_a_review_that_does_not_listen_is_found_out(chaos: Chaos) -> None:
    """Without anything behind it, what was rejected is done."""
    stock = chaos("crash.shops:DEAF", "--sample", "6", "--no-keep", subject=STOCK)

    assert stock.breaches["as_decided"] == stock.tried
