"""What a watcher is told: each change once, numbered without gaps, and only if it happened."""

from __future__ import annotations

from contract.desk import TTL_S, Desk
from ninelives.model import ONE_USER, EffectState, Event, RunStatus


def events(desk: Desk, thread_id: str = "t", **bounds: int) -> list[Event]:
    return desk.do(desk.store.list_events(ONE_USER, thread_id, **bounds))


def test_every_change_leaves_one_event(desk: Desk) -> None:
    """From admission to the end, in order, numbered from 1 without gaps."""
    worker = desk.worker()
    lease = desk.start(worker)
    desk.put(lease, "c1")
    desk.write(lease, "c1", "k", ("n", 1))
    effect = desk.do(desk.store.open_effect(lease, desk.effect()))
    desk.do(desk.store.finish_effect(lease, effect, EffectState.DONE, 1))
    desk.ask(lease, task="k2")
    desk.finish(lease, RunStatus.INTERRUPTED)
    second = desk.answer(worker, {"q1": "yes"}).lease
    assert second is not None
    desk.finish(second)

    told = events(desk)

    assert [(e.kind, e.run_id, e.ref) for e in told] == [
        ("thread_created", None, None),
        ("run_started", "r1", "r1"),
        ("checkpoint", "r1", "c1"),
        ("task_done", "r1", "k"),
        ("effect_intent", "r1", "e1"),
        ("effect_done", "r1", "e1"),
        ("question", "r1", "q1"),
        ("task_asked", "r1", "k2"),
        ("run_interrupted", "r1", None),
        ("run_started", "r2", "r2"),
        ("decision", "r2", "q1"),
        ("run_done", "r2", None),
    ]
    assert [e.seq for e in told] == list(range(1, len(told) + 1))
    assert {e.at for e in told} == {desk.clock.now}


def test_a_takeover_tells_which_events_it_supersedes(desk: Desk) -> None:
    """Events carry their attempt, so a watcher can drop what the dead one had half said."""
    lease = desk.start(desk.worker("w1"))
    desk.put(lease, "c1")
    desk.clock.advance(TTL_S)
    lease = desk.take_over(desk.worker("w2"))
    desk.put(lease, "c2", "c1")

    told = [(e.kind, e.attempt) for e in events(desk)][1:]

    assert told == [
        ("run_started", 1),
        ("checkpoint", 1),
        ("run_cut_off", 1),
        ("run_taken_over", 2),
        ("checkpoint", 2),
    ]


def test_threads_are_numbered_each_on_its_own(desk: Desk) -> None:
    """One thread's traffic makes no gaps in another's."""
    for n in range(3):
        for name in ("a", "b"):
            desk.put(None, f"c{n}", f"c{n - 1}" if n else None, thread_id=name)

    assert [e.seq for e in events(desk, "a")] == [1, 2, 3, 4]
    assert [e.seq for e in events(desk, "b")] == [1, 2, 3, 4]


def test_reading_goes_on_after_a_number(desk: Desk) -> None:
    """A watcher that comes back with the last number it saw gets the rest, in portions."""
    for n in range(5):
        desk.put(None, f"c{n}", f"c{n - 1}" if n else None)

    assert [e.ref for e in events(desk, after=4)] == ["c3", "c4"]
    assert [e.ref for e in events(desk, after=2, limit=2)] == ["c1", "c2"]
    assert events(desk, after=99) == []
    assert events(desk, "nowhere") == []


def test_the_order_of_events_is_no_clocks(desk: Desk) -> None:
    """Set back a minute between two changes, the clock changes their times, not their numbers."""
    desk.put(None, "c1")
    desk.clock.advance(-60)
    desk.put(None, "c2", "c1")

    assert [e.ref for e in events(desk)[1:]] == ["c1", "c2"]


def test_a_graph_is_noted_once(desk: Desk) -> None:
    """What it looked like under a fingerprint can be read by any process, ever after."""
    for _ in range(2):
        desk.do(desk.store.note_graph("fp1", "g", {"nodes": ["a", "b"], "edges": [("a", "b")]}))

    assert desk.do(desk.store.find_graph("fp1")) == {"nodes": ["a", "b"], "edges": [("a", "b")]}
    assert desk.do(desk.store.find_graph("fp2")) is None
