"""All of an act or nothing: whatever breaks, wherever, the store is as it was and goes on working."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from contract.desk import TTL_S, Desk
from contract.faults import Breaker, BrokenError, Gate, PulledError
from ninelives.errors import StoreUnavailableError
from ninelives.model import ONE_USER, EffectState, Lease, NewQuestion, RunStatus, Usage, WorkerLease
from ninelives.store import Act


class Scene:
    """A worker with a run that has begun; what the acts need that are to be broken."""

    def __init__(self, desk: Desk) -> None:
        self.worker: WorkerLease = desk.worker()
        self.lease: Lease = desk.start(self.worker)
        desk.put(self.lease, "c1")
        desk.write(self.lease, "c1", "k0", (-4, "__resume__", ["a"]))
        desk.do(desk.store.open_effect(self.lease, desk.effect("known")))
        other = desk.start(self.worker, "asked", "asking")
        desk.put(other, "c1", thread_id="asking")
        desk.write(
            other,
            "c1",
            "k",
            (-3, "__interrupt__", 1),
            thread_id="asking",
            questions=[NewQuestion("q1", "?"), NewQuestion("q2", "?")],
        )
        desk.finish(other, RunStatus.INTERRUPTED)


ACTS: dict[str, Callable[[Desk, Scene], Act[Any]]] = {
    "start_run": lambda d, s: d.store.start_run(ONE_USER, d.new("r2", "asking", key="k", closes="asked"), s.worker),
    "start_run on a new thread": lambda d, s: d.store.start_run(ONE_USER, d.new("r2", "fresh"), s.worker),
    "answer": lambda d, s: d.store.answer(
        ONE_USER, "asking", {"q1": 1, "q2": 2}, d.new("r2"), s.worker, actor="ann", channel="test"
    ),
    "put_checkpoint": lambda d, s: d.putting(s.lease, "c2", "c1", values={"n": [1, "new"]}, usage=Usage(steps=1)),
    "put_checkpoint alone": lambda d, s: d.putting(None, "c1", thread_id="fresh"),
    "put_writes": lambda d, s: d.writing(
        s.lease,
        "c1",
        "k0",
        (-3, "__interrupt__", "new"),
        ("n", "new"),
        withdraw=[-4],
        replace=True,
        questions=[NewQuestion("q1", "?"), NewQuestion("q2", "?")],
    ),
    "open_effect": lambda d, s: d.store.open_effect(s.lease, d.effect("e1")),
    "settle_effect": lambda d, s: d.store.settle_effect(ONE_USER, "known", EffectState.DONE, 1, by="ann", why="saw it"),
    "keep_call": lambda d, s: d.store.keep_call(s.lease, "k/0/1", "call", "did"),
    "finish_run": lambda d, s: d.store.finish_run(s.lease, RunStatus.DONE, usage=Usage(steps=1)),
    "close_run": lambda d, s: d.store.close_run(ONE_USER, "asked", RunStatus.ABANDONED, by="ann"),
    "ask_again": lambda d, s: d.store.ask_again(ONE_USER, "asking", by="ann"),
    "take_over": lambda d, s: d.store.take_over(ONE_USER, "asked", s.worker),
    "delete_thread": lambda d, s: d.store.delete_thread(ONE_USER, "asking"),
    "copy_thread": lambda d, s: d.store.copy_thread(ONE_USER, "asking", "fresh"),
    "prune_thread": lambda d, s: d.store.prune_thread(ONE_USER, "old"),
    "register_worker": lambda d, s: d.store.register_worker("w2", host="h", pid=1, ttl_s=6),
}


def prepared(desk: Desk, name: str) -> Scene:
    scene = Scene(desk)
    if name == "prune_thread":
        desk.put(None, "c1", thread_id="old", values={"n": ["gone"]})
        desk.put(None, "c2", "c1", thread_id="old")
    if name == "ask_again":
        answers, new = {"q1": 1, "q2": 2}, desk.new("r2")
        act = desk.store.answer(ONE_USER, "asking", answers, new, scene.worker, actor="ann", channel="test")
        answered = desk.do(act).lease
        assert answered is not None
        desk.write(answered, "c1", "k", (-1, "__error__", "no"), thread_id="asking")
        desk.finish(answered, RunStatus.FAILED)
    if name == "settle_effect":
        desk.do(desk.store.bury_worker(scene.worker.worker_id))
    return scene


@pytest.mark.parametrize("name", ACTS)
def test_whatever_breaks_nothing_of_the_act_is_there(desk: Desk, name: str) -> None:
    """
    Broken before or after each of its statements and before its commit, an act leaves the store as it was; not broken
    any more, it does all that it should.
    """
    scene = prepared(desk, name)
    before = desk.trace()
    error = BrokenError if desk.sync else PulledError

    for n in range(200):
        act = ACTS[name](desk, scene)
        desk.store.fault = breaker = Breaker(act.name, n, error)
        try:
            desk.do(act)
        except error:
            desk.store.fault = None
            assert desk.trace() == before, breaker.points[-1]
        else:
            break

    assert n == len(breaker.points) > 2
    assert breaker.points[-1] == ("commit", "before")
    desk.store.fault = None
    assert desk.trace() != before


# -- neighbours -----------------------------------------------------------------------------------------------------


def crowd(desk: Desk, *names: str) -> list[Future[None]]:
    return [desk.store.submit(desk.putting(None, "c1", thread_id=name)) for name in names]


@pytest.mark.parametrize("error", [BrokenError, PulledError])
def test_one_that_breaks_takes_nobody_with_it(desk: Desk, error: type[BaseException]) -> None:
    """Of acts that were handed over together only the broken one is taken back, at whichever statement."""
    scene = Scene(desk)
    steps = len(steps_of(desk, scene))

    for n in range(steps):
        gate = Gate(desk.store, Breaker("open_effect", n, error))
        first = crowd(desk, f"a{n}", f"b{n}")
        broken = desk.store.submit(desk.store.open_effect(scene.lease, desk.effect("e1")))
        last = crowd(desk, f"c{n}")
        gate.open()

        with pytest.raises(error):
            broken.result(10)
        assert [f.result(10) for f in [*first, *last]] == [[], [], []]
        desk.store.fault = None
        assert [desk.checkpoints(f"{name}{n}") for name in "abc"] == [["c1"], ["c1"], ["c1"]]
        assert [e.key for e in desk.do(desk.store.list_effects(ONE_USER))] == ["known", "rehearsal"]


def steps_of(desk: Desk, scene: Scene) -> list[tuple[str, str]]:
    """The points of opening an effect, without the commit."""
    desk.store.fault = breaker = Breaker("open_effect", 1000, BrokenError)
    desk.do(desk.store.open_effect(scene.lease, desk.effect("rehearsal")))
    desk.store.fault = None
    return [point for point in breaker.points if point[0] != "commit"]


def test_a_refused_one_takes_back_only_itself(desk: Desk) -> None:
    """A late worker's write between two good ones."""
    old = desk.start(desk.worker("w1"))
    desk.clock.advance(TTL_S)
    desk.take_over(desk.worker("w2"))
    gate = Gate(desk.store)
    first = crowd(desk, "a")
    late = desk.store.submit(desk.putting(old, "c1"))
    last = crowd(desk, "b")

    gate.open()

    assert type(late.exception(10)).__name__ == "LeaseLostError"
    assert [f.result(10) for f in [*first, *last]] == [[], []]
    assert (desk.checkpoints("a"), desk.checkpoints(), desk.checkpoints("b")) == (["c1"], [], ["c1"])


def test_acts_are_done_in_the_order_in_which_they_were_handed_over(desk: Desk) -> None:
    """A superstep's checkpoint follows its writes, whoever waits for which."""
    gate = Gate(desk.store)
    futures = [desk.store.submit(desk.putting(None, f"c{n}", f"c{n - 1}" if n else None)) for n in range(200)]

    gate.open()

    assert [f.result(10) for f in futures] == [[]] * 200
    assert desk.do(desk.store.list_checkpoints(ONE_USER, thread_id="t", ns="", limit=1))[0].checkpoint_id == "c199"
    events = desk.do(desk.store.list_events(ONE_USER, "t"))
    assert [e.seq for e in events] == list(range(1, 202))


def test_a_commit_that_fails_is_told_to_all_and_leaves_nothing(desk: Desk) -> None:
    """Before the commit nothing is durable, so nobody is told that it is."""

    def fail(act: str, statement: str, where: str) -> None:
        if (act, statement, where) == ("copy_thread", "commit", "before"):
            raise BrokenError

    desk.put(None, "c1")
    gate = Gate(desk.store, fail)
    copy = desk.store.submit(desk.store.copy_thread(ONE_USER, "t", "copy"))

    gate.open()

    assert isinstance(copy.exception(10), BrokenError)
    desk.store.fault = None
    assert desk.checkpoints("copy") == []
    desk.put(None, "c1", thread_id="copy")


# -- those who wait ---------------------------------------------------------------------------------------------------


def test_a_cancelled_wait_does_not_undo_what_was_handed_over(desk: Desk) -> None:
    """The caller is gone, the act is done, and the store goes on."""

    async def impatient() -> None:
        gate = Gate(desk.store)
        waiting = asyncio.ensure_future(desk.store.aperform(desk.putting(None, "c1")))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open()

    asyncio.run(impatient())
    desk.worker()  # acts are done in order: once this one is, so is the other

    assert desk.checkpoints() == ["c1"]


def test_what_was_handed_over_cannot_be_called_back(desk: Desk) -> None:
    """Cancelling its future is refused: it would only hide what has happened."""
    gate = Gate(desk.store)
    (future,) = crowd(desk, "t")

    assert not future.cancel()

    gate.open()
    assert future.result(10) == []
    assert desk.checkpoints() == ["c1"]


def test_closing_finishes_what_was_handed_over(desk: Desk) -> None:
    """Every act that waits gets its answer; later ones are refused; closing twice is fine."""
    gate = Gate(desk.store)
    futures = crowd(desk, *(f"t{n}" for n in range(100)))
    closing = threading.Thread(target=desk.store.close)
    closing.start()

    gate.open()
    closing.join(10)

    assert [f.result(0) for f in futures] == [[]] * 100
    desk.store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        desk.put(None, "c1")
    with pytest.raises(StoreUnavailableError, match="closed"):
        desk.checkpoints()


def test_an_act_runs_once(desk: Desk) -> None:
    """Performed a second time it is an error, not a silent nothing."""
    act = desk.store.register_worker("w1", host="h", pid=1, ttl_s=6)
    desk.do(act)

    with pytest.raises(RuntimeError, match="run already"):
        desk.do(act)


def test_many_threads_may_use_one_store(desk: Desk) -> None:
    """Readers and writers at once: each sees whole acts only, and nothing is lost."""
    errors: list[BaseException] = []

    def advance(name: str) -> None:
        try:
            for n in range(20):
                values = {"a": n, "b": n}
                desk.store.perform(
                    desk.putting(None, f"c{n}", f"c{n - 1}" if n else None, thread_id=name, values=values)
                )
                head = desk.store.perform(desk.store.get_checkpoint(ONE_USER, name, "", None))
                assert head is not None
                assert head.checkpoint["channel_values"] == values
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=advance, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert errors == []
    assert [t.checkpoints for t in desk.do(desk.store.list_threads(ONE_USER))] == [20] * 8
