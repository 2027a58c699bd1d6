"""
The example that charges and mails, before the kill harness; and all that people decide when others hand it in.

Each process ends with what the graph asks. Another one hands the answer in, with the graph or without it, and may die
on the way, as any of them may; whoever comes next is handed the same answer again.
"""

from __future__ import annotations

import pytest

from crash.conftest import Chaos
from crash.harness import Found, share

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("crash")]

SHOP = "crash.shops:SHOP"
LATER = "crash.subjects:DAYS_LATER"
WORKLOADS = ["REVIEWED", "REVIEWED_EACH", "BARE_ASKING"]
ELSEWHERE = pytest.mark.parametrize("elsewhere", [True, False], ids=["another terminal", "the same program"])

TWICE = [
    ("REVIEWED", True),
    ("REVIEWED_EACH", False),
    ("BARE_ASKING", False),
    ("crash.shops:SMALL_SHOP", True),
    ("crash.shops:SMALL_SHOP", False),
]


def where(elsewhere: bool) -> list[str]:
    return ["--elsewhere"] if elsewhere else []


def must_be_sound(found: Found, *, missed: int = 0) -> None:
    """Missed: of parallel calls the n-th among equals is another one's in each run, and may lack a statement."""
    assert not found.breaches, found.told
    assert len(found.missed) <= missed
    assert found.counts["doubled"] == 0
    assert found.counts["kills"] == found.tried - len(found.missed)


@ELSEWHERE
def test_each_charge_and_mail_arrives_once_at_real_sinks(chaos: Chaos, elsewhere: bool) -> None:
    """
    The agent, its tools and its sinks as they are under examples/shop, the answers days later by the clock.

    Killed at any act of the store, and between any two words that it says to the payment service or the mailbox, or is
    told by them: each act arrives once, after it was approved; where nobody knows, that is said and settled.
    """
    options = ("--share", share(0), "--every", "answer", "--every", "wire:smtp", "--every", "wire:http")
    found = chaos(SHOP, "--mode", "talks", *where(elsewhere), *options, "--sample", "30", subject=LATER)

    must_be_sound(found)


@pytest.mark.parametrize("sent", ["wire:smtp#5.exit", "wire:http#1.exit"], ids=["mail", "charge"])
def test_an_act_that_was_cut_off_in_the_middle_of_its_words(chaos: Chaos, sent: str) -> None:
    """The mail, of which nobody can be asked, is reported unknown; the charge is asked about, and nobody is woken."""
    life = "5/" if "smtp" in sent else "3/"
    found = chaos(SHOP, "--mode", "talks", "--elsewhere", "--at", f"{life}{sent}", subject=LATER)

    must_be_sound(found)
    assert found.counts["unknown"] == ("smtp" in sent)


@ELSEWHERE
@pytest.mark.parametrize("workload", WORKLOADS)
def test_an_answer_that_is_handed_in_again_counts_once(chaos: Chaos, workload: str, elsewhere: bool) -> None:
    """Whoever hands it in dies, and it is handed in again: it is used once, and never for another question."""
    options = ("--share", share(0), "--every", "answer", "--sample", "18")
    found = chaos(workload, "--mode", "talks", *where(elsewhere), *options)

    must_be_sound(found, missed=1 if workload == "REVIEWED_EACH" else 0)


@pytest.mark.parametrize(("workload", "elsewhere"), TWICE)
@pytest.mark.parametrize("mode", ["clicks", "rivals"])
def test_of_two_who_answer_one_is_taken(chaos: Chaos, mode: str, workload: str, elsewhere: bool) -> None:
    """A double click, or one who approves while another rejects: what was taken is done, and both know of it."""
    found = chaos(workload, "--mode", mode, *where(elsewhere), "--cases", "6")

    assert not found.breaches, found.told
    assert found.counts["refused"] >= found.tried


def test_a_graph_that_does_what_was_rejected_is_kept_from_it(chaos: Chaos) -> None:
    """A review that does not listen to its answers: what was rejected, or approved otherwise, does not get out."""
    found = chaos("crash.shops:DEAF", "--share", "0", "--sample", "12")

    must_be_sound(found)
