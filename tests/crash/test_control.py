"""The harness finds what is wrong: with LangGraph's own saver, and with ninelives broken on purpose."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]

STOCK = "crash.stock:STOCK"


@pytest.mark.parametrize("workload", ["CHAIN", "FANOUT", "AGENT", "TOOLNODE"])
def test_the_stock_saver_repeats_units_and_doubles_acts(chaos: Chaos, workload: str) -> None:
    """Under durability="sync": what had returned runs again, and its act goes out a second time."""
    found = chaos(workload, "--no-keep", subject=STOCK)

    assert found.counts["returned_again"] > 0
    assert found.counts["doubled"] > 0
    assert found.breaches["acts_once"] > 0


def test_the_stock_saver_loses_steps_to_a_clock_set_back(chaos: Chaos) -> None:
    """It takes the newest id for the newest checkpoint: what the second process does is never seen again."""
    found = chaos("CHAIN", "--no-keep", subject="crash.stock:STOCK_SET_BACK")

    assert found.breaches["same_end"] > 0


def test_a_store_without_a_fence_is_found_out(chaos: Chaos) -> None:
    """When late writers are not refused, they leave a trace, and begin what they may not."""
    options = ("--mode", "stops", "--share", "0", "--jobs", "6", "--no-keep")
    found = chaos("LITTLE", *options, subject="crash.subjects:UNFENCED")

    assert found.breaches["no_trace"] > 0
    assert found.breaches["refused_late"] > 0


def test_starting_over_is_found_out(chaos: Chaos) -> None:
    """A program that starts from scratch after each kill runs again what was recorded, and steps behind others."""
    found = chaos("LITTLE", "--share", "0", "--no-keep", subject="crash.subjects:STARTS_OVER")

    assert found.breaches["recorded_once"] > 0
    assert found.breaches["never_back"] > 0
