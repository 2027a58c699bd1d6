"""A deep agent with a subagent and parallel tools, killed at every act and around every unit."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


def test_an_agent_killed_at_any_act_ends_as_if_it_had_not_been(chaos: Chaos) -> None:
    """
    Killed at the ends of every act, around every model, tool and outside call, and at a sample of the statements.

    Its mail has no probe: cut off, the run stops as unknown, and goes on once somebody has said what happened.
    """
    found = chaos("AGENT", "--share", share(0.1))

    assert not found.breaches, found.told
    assert not found.missed
    # Which of two calls that end at once brings the content that both have is a matter of their order.
    assert [point for point in found.report["unstable"] if ".add_pack." not in point] == []
    assert found.counts["unknown"] > 0, "no kill came between the asking and the answer of the mail"
