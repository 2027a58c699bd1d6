"""Acts under a business key, asked for by several tasks, killed at every act."""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]


def test_an_act_with_a_business_key_happens_once_for_all_who_ask(chaos: Chaos) -> None:
    """Two tasks at once and one after them ask for the same order; killed anywhere, it is charged once."""
    found = chaos("KEYED", "--share", share(0.2), "--every", "open_effect")

    assert not found.breaches, found.told
    assert len(found.missed) <= found.tried // 10  # which of the tasks is first is not ours to say
    assert found.counts["unknown"] > 0, "no kill came between the asking and the answer of the mail"
