"""Task writes: recorded once, in the order in which a superstep applies them."""

from __future__ import annotations

import pytest

from contract.desk import TTL_S, Desk
from ninelives._langgraph import input_task
from ninelives.errors import DivergentStateError
from ninelives.model import ONE_USER, Lease, RunStatus

NULL_TASK = "00000000-0000-0000-0000-000000000000"
ERROR, INTERRUPT, RESUME = -1, -3, -4


def begun(desk: Desk) -> Lease:
    lease = desk.start(desk.worker())
    desk.put(lease, "c1")
    return lease


def test_writes_come_in_the_order_of_the_superstep(desk: Desk) -> None:
    """By task path, then task id, then place, whatever the order in which tasks ended."""
    lease = begun(desk)
    desk.write(lease, "c1", "b", ("n", 5), ("m", 6), path="~2")
    desk.write(lease, "c1", "d", ("n", 4), path="~1")
    desk.write(lease, "c1", "a", ("n", 3), path="~1")
    desk.write(lease, "c1", "z", ("n", 1), ("n", 2))

    assert [value for _, _, value in desk.get("c1").writes] == [1, 2, 3, 4, 5, 6]


def test_writes_may_land_before_their_checkpoint(desk: Desk) -> None:
    """A task may end before the checkpoint that it started from has been stored."""
    lease = desk.start(desk.worker())

    desk.write(lease, "c1", "k", ("n", 1))
    desk.put(lease, "c1")

    assert desk.get("c1").writes == [("k", "n", 1)]


def test_writes_belong_to_their_namespace_and_checkpoint(desk: Desk) -> None:
    """Equal ids elsewhere are other tasks."""
    lease = begun(desk)
    desk.put(lease, "c2", "c1")
    desk.put(lease, "c1", ns="sub:1")
    desk.write(lease, "c1", "k", ("n", "root"))
    desk.write(lease, "c1", "k", ("n", "sub"), ns="sub:1")
    desk.write(lease, "c2", "k", ("n", "next"))

    assert desk.get("c1").writes == [("k", "n", "root")]
    assert desk.get("c1", ns="sub:1").writes == [("k", "n", "sub")]
    assert desk.get("c2").writes == [("k", "n", "next")]


def test_the_same_result_again_is_fine(desk: Desk) -> None:
    """A put whose answer was lost is repeated; the task is still recorded once."""
    lease = begun(desk)
    for _ in range(2):
        desk.write(lease, "c1", "k", ("n", [1, {"a": 2}]), ("m", None))

    assert desk.get("c1").writes == [("k", "n", [1, {"a": 2}]), ("k", "m", None)]


OTHERS = {
    "another value": [("n", 2), ("m", 2)],
    "another channel": [("n", 1), ("x", 2)],
    "less": [("n", 1)],
    "more": [("n", 1), ("m", 2), ("m", 3)],
    "another order": [("m", 2), ("n", 1)],
}


@pytest.mark.parametrize("how", OTHERS)
@pytest.mark.parametrize("alone", [False, True], ids=["claim", "alone"])
def test_another_result_of_a_recorded_task_is_refused(desk: Desk, how: str, alone: bool) -> None:
    """Two invocations of one task cannot both count: the first stays, the second hears of it, nothing is mixed."""
    lease = None if alone else desk.start(desk.worker())
    desk.put(lease, "c1")
    desk.write(lease, "c1", "k", ("n", 1), ("m", 2))
    before = desk.trace()

    with pytest.raises(DivergentStateError, match="'k' was recorded"):
        desk.write(lease, "c1", "k", *OTHERS[how])

    assert desk.trace() == before


def test_input_is_added_to(desk: Desk) -> None:
    """The null task's writes are put again as a whole when some are added, and may arrive out of order."""
    lease = begun(desk)

    desk.write(lease, "c1", NULL_TASK, ("n", 1), ("n", 2))
    desk.write(lease, "c1", NULL_TASK, ("n", 1))
    desk.write(lease, "c1", NULL_TASK, ("n", 1), ("n", 2), ("n", 3))

    assert [value for _, _, value in desk.get("c1").writes] == [1, 2, 3]
    with pytest.raises(DivergentStateError):
        desk.write(lease, "c1", NULL_TASK, ("n", 7))


def test_special_writes_have_one_slot_each_and_the_newest_counts(desk: Desk) -> None:
    """An error, a question, an answer replaces the task's earlier one."""
    lease = begun(desk)
    for value in ("old", "new"):
        desk.write(lease, "c1", "k", (INTERRUPT, "__interrupt__", value), (RESUME, "__resume__", [value]))

    assert sorted(desk.get("c1").writes, key=str) == [
        ("k", "__interrupt__", "new"),
        ("k", "__resume__", ["new"]),
    ]


def test_special_writes_do_not_disturb_a_result(desk: Desk) -> None:
    """The slots below 0 are not compared with what the task computed."""
    lease = begun(desk)
    desk.write(lease, "c1", "k", (RESUME, "__resume__", ["a"]))

    desk.write(lease, "c1", "k", ("n", 1))
    desk.write(lease, "c1", "k", (RESUME, "__resume__", ["b"]), (0, "n", 1))

    assert desk.get("c1").writes == [("k", "__resume__", ["b"]), ("k", "n", 1)]


def test_withdrawing_takes_the_named_slots_of_the_task_only(desk: Desk) -> None:
    """A failed task loses its answer, in the same transaction; other tasks keep theirs."""
    lease = begun(desk)
    desk.write(lease, "c1", "k", (RESUME, "__resume__", ["bad"]))
    desk.write(lease, "c1", "other", (RESUME, "__resume__", ["good"]))

    desk.write(lease, "c1", "k", (ERROR, "__error__", "no"), withdraw=[RESUME])

    assert sorted(desk.get("c1").writes, key=str) == [("k", "__error__", "no"), ("other", "__resume__", ["good"])]


def test_replacing_drops_what_another_run_left(desk: Desk) -> None:
    """Input that an abandoned run left at the head does not count for the next one; the run's own is kept."""
    worker = desk.worker()
    first = desk.start(worker)
    desk.put(first, "c1")
    desk.write(first, "c1", "input", ("n", "old"))
    desk.clock.advance(TTL_S)
    second = desk.start(desk.worker("w2"), "r2", closes="r1")

    desk.write(second, "c1", "input", ("n", "new"), replace=True)
    desk.write(second, "c1", "input", ("n", "new"), replace=True)

    assert desk.get("c1").writes == [("input", "n", "new")]


def test_a_task_without_output_is_recorded(desk: Desk) -> None:
    """`None` is a value like any other."""
    lease = begun(desk)

    desk.write(lease, "c1", "k", ("__no_writes__", None))

    assert desk.get("c1").writes == [("k", "__no_writes__", None)]


def test_many_writes_at_many_checkpoints_are_told_apart(desk: Desk) -> None:
    """A page of history gives each checkpoint its own."""
    lease = begun(desk)
    for n in range(1, 6):
        desk.put(lease, f"c{n + 1}", f"c{n}")
        desk.write(lease, f"c{n}", "k", ("n", n))

    found = {c.checkpoint_id: c.writes for c in desk.do(desk.store.list_checkpoints(ONE_USER, thread_id="t", ns=""))}

    assert found == {f"c{n}": [("k", "n", n)] for n in range(1, 6)} | {"c6": []}


def test_a_closed_run_takes_back_the_input_it_never_moved_on_from(desk: Desk) -> None:
    """An abandoned command would otherwise be applied by the next run; what tasks have recorded stays."""
    null_task = "00000000-0000-0000-0000-000000000000"
    head = "1f000000-0000-6000-8000-000000000001"
    delta_input = input_task(head)
    first = desk.start(desk.worker())
    desk.put(first, head)
    desk.write(first, head, null_task, ("n", "abandoned"))
    desk.write(first, head, delta_input, ("n", "abandoned"))
    desk.write(first, head, "k", ("n", "a task's own"))
    desk.finish(first, RunStatus.FAILED)

    desk.do(desk.store.close_run(ONE_USER, "r1", RunStatus.ABANDONED, by="ann"))

    assert desk.get(head).writes == [("k", "n", "a task's own")]
