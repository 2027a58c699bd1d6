"""What a DeltaChannel replays: its ancestors' writes, back to the last value that was stored."""

from __future__ import annotations

import pytest

from contract.desk import Desk
from ninelives.errors import LackOfSnapshotFrequency
from ninelives.model import ONE_USER


def chain(desk: Desk, n: int, *, stored_at: int | None = None) -> None:
    """Checkpoints c0 … c(n-1), each but the last with one write to "log"; one of them holds the value itself."""
    for i in range(n):
        values = {"log": ["stored", i]} if i == stored_at else {}
        desk.put(None, f"c{i}", f"c{i - 1}" if i else None, values=values, versions=["log"])
        desk.write(None, f"c{i}", f"k{i}", ("log", i), ("other", -i))


def test_the_writes_of_the_ancestors_oldest_first(desk: Desk) -> None:
    """Without a stored value the chain goes back to the root; the checkpoint's own writes are its children's."""
    chain(desk, 4)

    assert desk.history("c3", "log") == ([0, 1, 2], [])
    assert desk.history("c0", "log") == ([], [])


def test_the_chain_ends_at_the_nearest_stored_value(desk: Desk) -> None:
    """The value is where replaying starts; the writes made at it are replayed on top."""
    chain(desk, 5, stored_at=2)

    assert desk.history("c4", "log") == ([2, 3], [["stored", 2]])
    assert desk.history("c2", "log") == ([0, 1], [])


def test_a_stored_none_is_a_value(desk: Desk) -> None:
    """Absent and None are not the same."""
    desk.put(None, "c1", values={"log": None})
    desk.put(None, "c2", "c1", values={}, versions=["log"])

    assert desk.history("c2", "log") == ([], [None])


def test_channels_are_walked_together_each_to_its_own_start(desk: Desk) -> None:
    """One call, several channels, different seeds."""
    chain(desk, 3, stored_at=1)

    found = desk.do(desk.store.delta_history(ONE_USER, "t", "", "c2", ["log", "other", "never"]))

    assert [v for _, _, v in found["log"][0]] == [1]
    assert [v for _, _, v in found["other"][0]] == [0, -1]
    assert found["other"][1] == []
    assert found["never"] == ([], [])


def test_within_one_checkpoint_writes_go_by_path_and_place(desk: Desk) -> None:
    """Replay applies them as the superstep did."""
    desk.put(None, "c1", values={}, versions=["log"])
    desk.write(None, "c1", "b", ("log", 3), path="~2")
    desk.write(None, "c1", "a", ("log", 1), ("log", 2), path="~1")
    desk.put(None, "c2", "c1", values={}, versions=["log"])

    assert desk.history("c2", "log")[0] == [1, 2, 3]


def test_only_the_own_branch_is_replayed(desk: Desk) -> None:
    """A fork's siblings are not its ancestors, whatever their ids or order."""
    chain(desk, 3)
    desk.put(None, "a9", "c1", source="fork", values={}, versions=["log"])
    desk.write(None, "a9", "k", ("log", "forked"))
    desk.put(None, "a1", "a9", values={}, versions=["log"])

    assert desk.history("a1", "log") == ([0, 1, "forked"], [])
    assert desk.history("c2", "log") == ([0, 1], [])


def test_a_chain_longer_than_a_page(desk: Desk) -> None:
    """However many ancestors there are, none is missed and none comes twice."""
    chain(desk, 150)

    assert desk.history("c149", "log") == (list(range(149)), [])


@pytest.mark.parametrize("n", [64, 65, 66, 67, 129, 130, 131])
def test_at_the_edge_of_a_page(desk: Desk, n: int) -> None:
    """Ancestors on both sides of where one statement ends and the next begins."""
    chain(desk, n)

    assert desk.history(f"c{n - 1}", "log") == (list(range(n - 1)), [])


def test_a_missing_ancestor_is_an_error_never_an_empty_list(desk: Desk) -> None:
    """A value that cannot be rebuilt is not passed off as an empty one."""
    desk.put(None, "c5", "gone", source="fork", values={}, versions=["log"])
    desk.put(None, "c6", "c5", values={}, versions=["log"])

    with pytest.raises(LackOfSnapshotFrequency, match=r"'gone'.*snapshot_frequency"):
        desk.history("c6", "log")
    with pytest.raises(LackOfSnapshotFrequency):
        desk.history("unknown", "log")


def test_an_unknown_thread_has_no_history(desk: Desk) -> None:
    """Nothing is not damage."""
    assert desk.history("c1", "log", "nowhere") == ([], [])
