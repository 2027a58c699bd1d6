"""Checkpoints: compare-and-set on the head, branches, and an order that no clock has a say in."""

from __future__ import annotations

import pytest

from contract.desk import TTL_S, Desk
from ninelives.errors import DivergentStateError, NoCheckpointFoundError, ThreadBusyError, UnknownTypeError
from ninelives.model import ONE_USER


def test_a_checkpoint_comes_back_as_it_was_put(desk: Desk) -> None:
    """Values, versions, metadata, parent, who made it under which graph, and when."""
    lease = desk.start(desk.worker())
    values = {"messages": [("user", "hi"), {"k": [1, None]}], "branch:to:x": None, "n": 1.5}
    desk.put(lease, "c1", values=values, metadata={"run_id": "r1", "step": -1})
    desk.put(lease, "c2", "c1", values={})

    first, second = desk.get("c1"), desk.get("c2")

    assert first.checkpoint["channel_values"] == values
    assert first.checkpoint["channel_versions"] == dict.fromkeys(values, 1)
    assert first.checkpoint["updated_channels"] is None
    assert first.metadata == {"source": "loop", "step": -1, "parents": {}, "run_id": "r1"}
    assert (first.thread_id, first.ns, first.checkpoint_id, first.parent_id) == ("t", "", "c1", None)
    assert (first.run_id, first.graph_fp, first.created_at) == ("r1", "fp", desk.clock.now)
    assert (second.parent_id, second.checkpoint["channel_values"]) == ("c1", {})
    assert second.seq > first.seq


def test_what_is_not_there_is_none(desk: Desk) -> None:
    """No thread, no checkpoint, no namespace."""
    assert desk.head("nowhere") is None
    desk.put(None, "c1")
    assert desk.do(desk.store.get_checkpoint(ONE_USER, "t", "", "c9")) is None
    assert desk.head(ns="sub:1") is None


def test_order_is_the_stores_own(desk: Desk) -> None:
    """Ids that sort backwards and a clock that is set back a minute change nothing: the last put is the newest."""
    lease = desk.start(desk.worker())
    parent = None
    for checkpoint_id in ("c9", "c5", "c1"):
        desk.put(lease, checkpoint_id, parent)
        parent = checkpoint_id
        desk.clock.advance(-60)

    head = desk.head()

    assert head is not None
    assert head.checkpoint_id == "c1"
    assert desk.checkpoints() == ["c1", "c5", "c9"]
    newest_run = desk.do(desk.store.find_newest_run(ONE_USER, "t"))
    assert newest_run is not None


def test_pages_go_by_the_stores_order(desk: Desk) -> None:
    """`before` names a checkpoint, `below_seq` a place, `limit` a number; together the nearest bound counts."""
    parent = None
    for checkpoint_id in ("c9", "c5", "c1", "c3"):
        desk.put(None, checkpoint_id, parent)
        parent = checkpoint_id
    seq = desk.get("c5").seq

    def ids(**bounds: object) -> list[str]:
        act = desk.store.list_checkpoints(ONE_USER, thread_id="t", ns="", **bounds)  # type: ignore[arg-type]
        return [c.checkpoint_id for c in desk.do(act)]

    assert ids(limit=2) == ["c3", "c1"]
    assert ids(before="c1") == ["c5", "c9"]
    assert ids(before="c3", below_seq=seq) == ["c9"]
    assert ids(checkpoint_id="c5") == ["c5"]
    assert ids(before="unknown") == []


def test_before_may_name_a_checkpoint_of_another_namespace(desk: Desk) -> None:
    """Time travel asks a subgraph's history with the root's checkpoint as its bound."""
    desk.put(None, "c1")
    desk.put(None, "s1", ns="sub:1")
    desk.put(None, "c2", "c1")
    desk.put(None, "s2", "s1", ns="sub:1")

    found = desk.do(desk.store.list_checkpoints(ONE_USER, thread_id="t", ns="sub:1", before="c2"))

    assert [c.checkpoint_id for c in found] == ["s1"]


def test_of_two_siblings_the_second_loses(desk: Desk) -> None:
    """Two supersteps from one parent cannot both be the next: the loser is told the head, and leaves nothing."""
    desk.put(None, "c1")
    desk.put(None, "c2", "c1")
    before = desk.trace()

    with pytest.raises(DivergentStateError) as lost:
        desk.put(None, "x2", "c1")

    assert lost.value.head == "c2"
    assert desk.trace() == before
    desk.put(None, "c3", "c2")


def test_an_unknown_parent_is_no_tip(desk: Desk) -> None:
    """A superstep cannot go on from what was never stored."""
    with pytest.raises(DivergentStateError) as lost:
        desk.put(None, "c2", "c1")

    assert lost.value.head is None
    assert desk.do(desk.store.find_thread(ONE_USER, "t")) is None


@pytest.mark.parametrize("source", ["input", "update", "fork"])
def test_input_update_and_fork_open_branches(desk: Desk, source: str) -> None:
    """They may start at any checkpoint; both branches can then be extended, and the newest is the head."""
    desk.put(None, "c1")
    desk.put(None, "c2", "c1")

    desk.put(None, "b1", "c1", source=source)
    desk.put(None, "b2", "b1")
    desk.put(None, "c3", "c2")

    assert desk.checkpoints() == ["c3", "b2", "b1", "c2", "c1"]
    with pytest.raises(DivergentStateError):
        desk.put(None, "x", "c2")


@pytest.mark.parametrize("source", ["input", "update", "fork"])
def test_at_a_tip_they_continue_its_branch(desk: Desk, source: str) -> None:
    """No second branch where there is nothing to branch from: the old tip can be extended once only."""
    desk.put(None, "c1")

    desk.put(None, "c2", "c1", source=source)

    with pytest.raises(DivergentStateError):
        desk.put(None, "x2", "c1")


def test_a_put_without_a_parent_opens_a_root(desk: Desk) -> None:
    """A second root is a branch of its own; the first can still be extended."""
    desk.put(None, "c1")

    desk.put(None, "b1")
    desk.put(None, "c2", "c1")
    desk.put(None, "b2", "b1")

    assert desk.checkpoints() == ["b2", "c2", "b1", "c1"]


def test_namespaces_have_heads_of_their_own(desk: Desk) -> None:
    """Ids may even be equal across namespaces."""
    desk.put(None, "c1")
    desk.put(None, "c1", ns="sub:1")
    desk.put(None, "c2", "c1", ns="sub:1")
    desk.put(None, "c2", "c1")

    assert desk.checkpoints() == ["c2", "c1"]
    assert desk.checkpoints(ns="sub:1") == ["c2", "c1"]
    assert len(desk.checkpoints(ns=None)) == 4


def test_a_saver_used_alone_may_not_write_under_a_live_run(desk: Desk) -> None:
    """Without a claim it waits its turn; once the run has ended, or its process is dead, it may."""
    desk.start(desk.worker())
    before = desk.trace()

    with pytest.raises(ThreadBusyError):
        desk.put(None, "c1")
    with pytest.raises(ThreadBusyError):
        desk.write(None, "c1", "k", ("n", 1))
    assert desk.trace() == before

    desk.clock.advance(TTL_S)
    desk.put(None, "c1")
    assert desk.checkpoints() == ["c1"]


def test_a_saver_used_alone_may_put_an_id_again(desk: Desk) -> None:
    """The second put replaces the first one's content and keeps its place."""
    desk.put(None, "c1", values={"n": 1})
    desk.put(None, "c2", "c1", values={"n": 2})

    desk.put(None, "c1", values={"n": 3})

    assert desk.checkpoints() == ["c2", "c1"]
    assert desk.get("c1").checkpoint["channel_values"] == {"n": 3}


def test_a_saver_used_alone_begins_an_erased_thread_anew(desk: Desk) -> None:
    """LangGraph's checkpointers know no erased threads; nothing of the old one comes back."""
    desk.put(None, "c1", values={"n": ["old"]})
    desk.do(desk.store.delete_thread(ONE_USER, "t"))

    desk.put(None, "d1", values={"n": "new"})

    assert desk.checkpoints() == ["d1"]
    thread = desk.do(desk.store.find_thread(ONE_USER, "t"))
    assert thread is not None
    assert thread.state == "open"


def test_a_claim_is_for_one_thread(desk: Desk) -> None:
    """A node that calls a graph on a thread of its own writes there, never into the run's thread."""
    lease = desk.start(desk.worker())
    desk.put(lease, "c1")

    desk.put(lease, "x1", thread_id="other")
    desk.write(lease, "x1", "k", ("n", 1), thread_id="other")

    assert desk.checkpoints() == ["c1"]
    assert desk.checkpoints("other") == ["x1"]
    assert desk.get("x1", "other").writes == [("k", "n", 1)]


def test_a_claim_does_not_open_threads_that_others_hold(desk: Desk) -> None:
    """On another thread a nested graph is a guest: a live run there keeps it out."""
    worker = desk.worker()
    lease = desk.start(worker)
    desk.start(worker, "r2", "other")

    with pytest.raises(ThreadBusyError):
        desk.put(lease, "x1", thread_id="other")

    assert desk.checkpoints("other") == []


def test_a_value_that_could_not_be_loaded_again_is_refused(desk: Desk) -> None:
    """The error names the channel and the way to the value; nothing is stored."""

    class Stranger:
        pass

    desk.put(None, "c1")
    before = desk.trace()

    with pytest.raises(UnknownTypeError, match=r"channel_values\.n\[1\]") as unknown:
        desk.put(None, "c2", "c1", values={"n": [1, Stranger()]})
    with pytest.raises(UnknownTypeError, match=r"channel_values\."):
        desk.write(None, "c1", "k", ("n", Stranger()))

    assert "Stranger" in unknown.value.type_name
    assert desk.trace() == before


def test_content_is_stored_once_per_thread(desk: Desk) -> None:
    """A hundred supersteps over one list cost the elements that are new, not the list."""
    message = "x" * 1000
    parent: str | None = None
    values: list[str] = []
    for n in range(20):
        values = [*values, f"{n}{message}"]
        desk.put(None, f"c{n}", parent, values={"messages": values})
        parent = f"c{n}"

    (thread,) = desk.do(desk.store.list_threads(ONE_USER))

    assert thread.checkpoints == 20
    assert thread.bytes < 3 * 20 * 1000
    assert desk.get("c19").checkpoint["channel_values"] == {"messages": values}


def test_near_threads_come_with_the_refusal(desk: Desk) -> None:
    """Naming a run or thread that is not there says what was probably meant."""
    desk.put(None, "c1", thread_id="user-1")

    with pytest.raises(NoCheckpointFoundError, match="'user-1'"):
        desk.do(desk.store.copy_thread(ONE_USER, "user-2", "new"))
