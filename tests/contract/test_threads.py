"""Threads: finding, listing, copying, forgetting; and that no owner sees another's."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from contract.desk import TTL_S, Desk
from ninelives.errors import DivergentStateError, NineLivesError, NoCheckpointFoundError, ThreadBusyError
from ninelives.model import ONE_USER, SYSTEM, EffectState, PrunePlan, RunStatus, Scope, WorkerLease
from ninelives.stores.procedures.keys import TABLES
from ninelives.stores.sqlite import SqliteStore

ANN, BOB = Scope("ann"), Scope("bob")


def find(desk: Desk, thread_id: str = "t", scope: Scope = ONE_USER) -> Any:
    return desk.do(desk.store.find_thread(scope, thread_id))


def test_an_unknown_thread_is_none_and_its_near_ids_are_told(desk: Desk) -> None:
    """A typing error gets the ids that were probably meant, the nearest first, at most three."""
    worker = desk.worker()
    for n, name in enumerate(["user-42", "user-43", "user-44", "user-45", "invoice"]):
        desk.start(worker, f"r{n}", name)

    assert find(desk, "user_42") is None
    near = desk.do(desk.store.near_threads(ONE_USER, "user_42"))

    assert near[0] == "user-42"
    assert len(near) == 3
    assert "invoice" not in near


def test_a_thread_that_a_saver_made_is_taken_by_the_first_named_graph(desk: Desk) -> None:
    """A checkpointer used alone knows no graph's name; the first run that has one gives it to the thread."""
    desk.put(None, "c1")
    assert find(desk).graph == ""

    desk.start(desk.worker(), may_create=False)

    assert find(desk).graph == "g"


def test_listing_gives_sizes_and_the_last_changed_first(desk: Desk) -> None:
    """Counts and bytes are of what is stored; a thread that was written to comes up."""
    for name in ("a", "b", "c"):
        desk.put(None, "c1", thread_id=name, values={"n": "x" * 100})
        desk.clock.advance(1)
    desk.put(None, "c2", "c1", thread_id="a", values={"n": "x" * 100})

    threads = desk.do(desk.store.list_threads(ONE_USER))

    assert [t.thread_id for t in threads] == ["a", "c", "b"]
    assert [t.checkpoints for t in threads] == [2, 1, 1]
    assert threads[1].bytes > 100
    assert threads[0].bytes < 2 * threads[1].bytes, "equal content is stored once"
    assert [t.thread_id for t in desk.do(desk.store.list_threads(ONE_USER, limit=1, offset=1))] == ["c"]


def test_the_size_of_a_thread_is_all_that_is_stored_of_it(desk: Desk) -> None:
    """Items, checkpoints, task results, requests, results of effects, questions and answers, each as it lies there."""
    filled(desk)
    desk.put(None, "c1", thread_id="u", values={"n": Random(1).randbytes(3000)})

    def stored(conn: Any) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for table, columns in TABLES_OF_A_THREAD.items():
            for row in conn.execute(f"select * from {table}"):
                thread_no = row["pack_no"] >> 32 if table == "pack" else row["thread_no"]
                sizes[thread_no] = sizes.get(thread_no, 0) + sum(len(row[column] or b"") for column in columns)
        return sizes

    sizes = cast(SqliteStore, desk.store)._writer.between(stored)

    listed = desk.do(desk.store.list_threads(ONE_USER))
    weighed = [desk.do(desk.store.weigh_thread(ONE_USER, name)) for name in ("u", "t")]
    assert {thread.thread_no: thread.bytes for thread in listed} == sizes
    assert weighed == listed
    assert desk.do(desk.store.weigh_thread(ONE_USER, "nowhere")) is None


TABLES_OF_A_THREAD = {
    table.page.removeprefix("sealed_"): table.sealed for table in TABLES if table.what not in ("graphs", "schedules")
}


# -- erasing ------------------------------------------------------------------------------------------------------


def filled(desk: Desk) -> None:
    """Thread "t" with one of everything, and no run on it."""
    worker = desk.worker()
    lease = desk.start(worker, key="order-1", request=b"1")
    desk.put(lease, "c1", values={"n": ["secret"]})
    desk.write(lease, "c1", "k", ("n", "secret"))
    desk.ask(lease, task="k2")
    effect = desk.do(desk.store.open_effect(lease, desk.effect("place")))
    desk.do(desk.store.finish_effect(lease, effect, EffectState.DONE, "secret"))
    effect = desk.do(desk.store.open_effect(lease, desk.effect("own:order-1")))
    desk.do(desk.store.finish_effect(lease, effect, EffectState.DONE, "secret"))
    desk.finish(lease, RunStatus.INTERRUPTED)
    second = desk.answer(worker, {"q1": "secret"}, "r2").lease
    assert second is not None
    desk.finish(second)


def test_an_erased_thread_leaves_no_content(desk: Desk) -> None:
    """Checkpoints, writes, content, questions, answers and results are gone; that it was erased is remembered."""
    filled(desk)

    desk.do(desk.store.delete_thread(ONE_USER, "t"))

    assert find(desk).state == "erased"
    assert desk.do(desk.store.list_threads(SYSTEM)) == []
    assert desk.checkpoints() == []
    assert desk.do(desk.store.list_interrupts(ONE_USER, "t", pending_only=False)) == []
    assert desk.do(desk.store.list_decisions(ONE_USER, "t")) == []
    (event,) = desk.do(desk.store.list_events(ONE_USER, "t"))
    assert event.kind == "thread_erased"
    runs = desk.do(desk.store.list_runs(ONE_USER))
    assert [(r.run_id, r.spec.input) for r in runs] == [("r1", None)]
    (effect,) = desk.do(desk.store.list_effects(ONE_USER))
    assert (effect.key, effect.state, effect.result) == ("own:order-1", EffectState.UNKNOWN, None)


def test_a_watcher_hears_of_the_erasure(desk: Desk) -> None:
    """Event numbers go on, so a watcher that has seen all before it misses nothing."""
    filled(desk)
    last = desk.do(desk.store.list_events(ONE_USER, "t"))[-1].seq

    desk.do(desk.store.delete_thread(ONE_USER, "t"))

    (event,) = desk.do(desk.store.list_events(ONE_USER, "t", after=last))
    assert (event.kind, event.seq) == ("thread_erased", last + 1)


def test_an_erased_thread_is_never_made_anew_by_a_run(desk: Desk) -> None:
    """A run that may create threads is refused and told why; nothing changes."""
    filled(desk)
    desk.do(desk.store.delete_thread(ONE_USER, "t"))
    worker = desk.worker("w2")
    before = desk.trace()

    with pytest.raises(NoCheckpointFoundError, match="erased"):
        desk.start(worker, "r3")

    assert desk.trace() == before
    assert find(desk).state == "erased"


def test_a_key_outlives_its_thread(desk: Desk) -> None:
    """The same request sent again after the erasure is recognised: it does not run a second time."""
    filled(desk)
    desk.do(desk.store.delete_thread(ONE_USER, "t"))

    again = desk.admit(desk.worker("w2"), "r9", key="order-1", request=b"1")

    assert again.lease is None
    assert again.run.run_id == "r1"


def test_a_thread_under_way_is_not_erased(desk: Desk) -> None:
    """A live run holds it; a dead one's thread may go, and the late process can write no more."""
    lease = desk.start(desk.worker())
    desk.put(lease, "c1")
    with pytest.raises(ThreadBusyError) as busy:
        desk.do(desk.store.delete_thread(ONE_USER, "t"))
    assert busy.value.run_id == "r1"
    assert desk.checkpoints() == ["c1"]

    desk.clock.advance(TTL_S + 1)
    desk.do(desk.store.delete_thread(ONE_USER, "t"))

    with pytest.raises(NineLivesError):
        desk.put(lease, "c2", "c1")
    assert desk.checkpoints() == []


def test_erasing_what_is_not_there_does_nothing(desk: Desk) -> None:
    """An unknown thread stays unknown."""
    desk.do(desk.store.delete_thread(ONE_USER, "t"))

    assert find(desk) is None


# -- copying ------------------------------------------------------------------------------------------------------


def test_a_copy_is_complete_and_independent(desk: Desk) -> None:
    """Every checkpoint, write and value of every namespace is there; neither thread notices the other afterwards."""
    desk.put(None, "c1", values={"n": [1, 2, 3]})
    desk.write(None, "c1", "k", ("n", [4]))
    desk.put(None, "c2", "c1", values={"n": [1, 2, 3, 4]})
    desk.put(None, "s1", ns="sub:1", values={"n": "inner"})

    desk.do(desk.store.copy_thread(ONE_USER, "t", "copy"))
    desk.put(None, "c3", "c2", thread_id="copy")
    desk.do(desk.store.delete_thread(ONE_USER, "t"))

    assert desk.checkpoints("copy") == ["c3", "c2", "c1"]
    assert desk.checkpoints("copy", ns="sub:1") == ["s1"]
    first = desk.get("c1", "copy")
    assert first.checkpoint["channel_values"] == {"n": [1, 2, 3]}
    assert first.writes == [("k", "n", [4])]
    assert desk.get("c2", "copy").parent_id == "c1"


def test_the_source_of_a_copy_stays_as_it_was(desk: Desk) -> None:
    """Copying and going on with the copy leaves the source's head where it was; both branches can be extended."""
    desk.put(None, "c1")
    desk.do(desk.store.copy_thread(ONE_USER, "t", "copy"))

    desk.put(None, "x2", "c1", thread_id="copy")
    desk.put(None, "c2", "c1")

    assert desk.checkpoints() == ["c2", "c1"]
    assert desk.checkpoints("copy") == ["x2", "c1"]


def test_runs_effects_questions_and_events_stay_behind(desk: Desk) -> None:
    """A copy has no open questions of its own and repeats nothing."""
    filled(desk)

    desk.do(desk.store.copy_thread(ONE_USER, "t", "copy"))

    assert desk.do(desk.store.list_runs(ONE_USER, thread_id="copy")) == []
    assert desk.do(desk.store.list_effects(ONE_USER, thread_id="copy")) == []
    assert desk.do(desk.store.list_interrupts(ONE_USER, "copy", pending_only=False)) == []
    events = [e.kind for e in desk.do(desk.store.list_events(ONE_USER, "copy"))]
    assert [kind for kind in events if kind != "checkpoint"] == ["thread_created", "thread_copied"]
    assert events.count("checkpoint") == len(desk.checkpoints("copy"))


def test_a_copy_never_mixes_with_what_the_target_has(desk: Desk) -> None:
    """A target with checkpoints is refused; so is an unknown source."""
    desk.put(None, "c1")
    desk.put(None, "x1", thread_id="full")
    before = desk.trace()

    with pytest.raises(DivergentStateError):
        desk.do(desk.store.copy_thread(ONE_USER, "t", "full"))
    with pytest.raises(NoCheckpointFoundError):
        desk.do(desk.store.copy_thread(ONE_USER, "nowhere", "new"))

    assert desk.trace() == before


# -- owners -------------------------------------------------------------------------------------------------------


def test_two_owners_may_use_one_id(desk: Desk) -> None:
    """A thread is (owner, id): each sees its own state only."""
    desk.put(None, "a1", scope=ANN, values={"n": "ann's"})
    desk.put(None, "b1", scope=BOB, values={"n": "bob's"})

    ann, bob = desk.head(scope=ANN), desk.head(scope=BOB)

    assert ann is not None
    assert bob is not None
    assert ann.checkpoint["channel_values"] == {"n": "ann's"}
    assert bob.checkpoint["channel_values"] == {"n": "bob's"}


READS: dict[str, Callable[[Desk], Any]] = {
    "find_thread": lambda d: d.do(d.store.find_thread(BOB, "t")) is None,
    "weigh_thread": lambda d: d.do(d.store.weigh_thread(BOB, "t")) is None,
    "plan_pruning": lambda d: d.do(d.store.plan_pruning(BOB, "t")) == PrunePlan(),
    "near_threads": lambda d: d.do(d.store.near_threads(BOB, "t")) == [],
    "list_threads": lambda d: d.do(d.store.list_threads(BOB)) == [],
    "get_checkpoint": lambda d: d.head(scope=BOB) is None,
    "list_checkpoints": lambda d: d.checkpoints(scope=BOB) == [],
    "list_all": lambda d: d.do(d.store.list_checkpoints(BOB, thread_id=None, ns=None)) == [],
    "delta": lambda d: d.do(d.store.delta_history(BOB, "t", "", "c1", ["n"])) == {"n": ([], [])},
    "list_runs": lambda d: d.do(d.store.list_runs(BOB)) == [],
    "find_newest_run": lambda d: d.do(d.store.find_newest_run(BOB, "t")) is None,
    "find_run_by_key": lambda d: d.do(d.store.find_run_by_key(BOB, "g", "k")) is None,
    "chain_usage": lambda d: not d.do(d.store.chain_usage(BOB, "r1")),
    "list_interrupts": lambda d: d.do(d.store.list_interrupts(BOB, "t", pending_only=False)) == [],
    "list_decisions": lambda d: d.do(d.store.list_decisions(BOB, "t")) == [],
    "list_effects": lambda d: d.do(d.store.list_effects(BOB)) == [],
    "list_events": lambda d: d.do(d.store.list_events(BOB, "t")) == [],
    "delete_thread": lambda d: d.do(d.store.delete_thread(BOB, "t")) is None,
    "prune_thread": lambda d: d.do(d.store.prune_thread(BOB, "t")) == 0,
    "delete_for_runs": lambda d: d.do(d.store.delete_for_runs(BOB, ["r1"])) == 0,
}
REFUSED: dict[str, Callable[[Desk, WorkerLease], Any]] = {
    "get_run": lambda d, w: d.do(d.store.get_run(BOB, "r1")),
    "close_run": lambda d, w: d.do(d.store.close_run(BOB, "r1", RunStatus.ABANDONED, by="bob")),
    "take_over": lambda d, w: d.do(d.store.take_over(BOB, "r1", w)),
    "answer": lambda d, w: d.do(d.store.answer(BOB, "t", {"q1": 1}, d.new("r2"), w, actor="bob", channel="x")),
    "settle_effect": lambda d, w: d.do(d.store.settle_effect(BOB, "e1", EffectState.DONE, 1, by="bob", why="?")),
    "copy_thread": lambda d, w: d.do(d.store.copy_thread(BOB, "t", "mine")),
    "start_run": lambda d, w: d.start(w, "r2", scope=BOB, may_create=False),
}


def anns(desk: Desk) -> None:
    lease = desk.start(desk.worker(), key="k", scope=ANN)
    desk.put(lease, "c1", scope=ANN, metadata={"run_id": "r1"})
    desk.put(lease, "c2", "c1", scope=ANN, metadata={"run_id": "r1"})
    desk.ask(lease)
    desk.do(desk.store.open_effect(lease, desk.effect()))
    desk.finish(lease, RunStatus.INTERRUPTED)


@pytest.mark.parametrize("name", READS)
def test_nothing_of_another_owner_is_seen_or_touched(desk: Desk, name: str) -> None:
    """Every read answers as if the other's thread were not there, and housekeeping passes it by."""
    anns(desk)
    before = desk.trace()

    assert READS[name](desk)

    assert desk.trace() == before


@pytest.mark.parametrize("name", REFUSED)
def test_acts_on_anothers_rows_are_refused(desk: Desk, name: str) -> None:
    """To name another's run, thread or effect is to name something unknown."""
    anns(desk)
    worker = desk.worker("w2")
    before = desk.trace()

    with pytest.raises(NoCheckpointFoundError):
        REFUSED[name](desk, worker)

    assert desk.trace() == before


def test_the_system_sees_all(desk: Desk) -> None:
    """The scope without an owner lists everybody's threads, runs and checkpoints."""
    desk.put(None, "a1", scope=ANN)
    desk.put(None, "b1", scope=BOB)

    assert {t.owner for t in desk.do(desk.store.list_threads(SYSTEM))} == {"ann", "bob"}
    found = desk.do(desk.store.list_checkpoints(SYSTEM, thread_id=None, ns=None))
    assert [c.checkpoint_id for c in found] == ["b1", "a1"]
