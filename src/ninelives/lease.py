"""
Holding a claim: being known as alive, noticing in time when we no longer are.

A `Keeper` is this process's membership in one store: one worker row, one operating-system lock, one thread that renews
the lease whatever the event loop does (a tool that blocks the loop must not look dead). The lease is trusted from the
moment its renewal was *asked* for, less a margin, so that a slow answer cannot stretch it. A worker whose lease has
ended is never revived: it registers anew, under a new id.

Source: the trust window, as in River's leader election.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import weakref
from dataclasses import dataclass
from secrets import token_hex

from ninelives.deadlines import sweep
from ninelives.effects import acts_in_flight
from ninelives.errors import LeaseLostError, NineLivesError, StoreUnavailableError, WorkerLostError
from ninelives.model import Lease, RunStatus, WorkerLease
from ninelives.store import Store

log = logging.getLogger(__name__)

MARGIN = 0.1
"""Part of the lease's length by which we stop trusting it early."""
SWEPT_MAX = 20
"""So many overdue questions are seen to between two heartbeats."""
SWEEP_ENDS_S = 10.0
"""So long a closing keeper waits for the outcome that is being recorded."""


class Keeper:
    """
    Keeps one worker of this process alive in one store.

    Args:
        ttl_s: seconds that a renewal lasts; leave room for three missed heartbeats.
        heartbeat_s: seconds between two renewals.
    """

    def __init__(self, store: Store, *, ttl_s: float = 6.0, heartbeat_s: float = 1.5) -> None:
        self.store, self._ttl_s, self._heartbeat_s = store, ttl_s, heartbeat_s
        self._mutex = threading.Lock()
        self._worker: WorkerLease | None = None
        self._trusted_until = 0.0
        self._pid = os.getpid()
        self._stop = threading.Event()
        self._former: list[str] = []
        self._to_end: list[tuple[Lease, RunStatus, str]] = []
        self._sweeping: threading.Thread | None = None
        self._leaves = threading.Event()

    def worker(self) -> WorkerLease:
        """
        This process's worker, registered now if it was not or its lease has ended.

        Raises:
            StoreUnavailableError: it could not be registered.
        """
        self.must_serve()
        with self._mutex:
            if self._worker is None or time.monotonic() >= self._trusted_until:
                self._register()
            assert self._worker is not None
            return self._worker

    def must_serve(self) -> None:
        """
        Asked before any thread of ours is waited for: a forked child has none of them.

        Raises:
            StoreUnavailableError: this is a child of the process that opened the store.
        """
        if os.getpid() != self._pid:
            raise StoreUnavailableError(
                "this store was opened before the process forked; nothing was written. Open one in the child."
            )

    def distrust(self, worker: WorkerLease) -> None:
        """The store says that this worker is no more: the next one is registered anew."""
        with self._mutex:
            if self._worker is worker or (self._worker and self._worker.worker_id == worker.worker_id):
                self._trusted_until = 0.0

    def trusts(self, worker_id: str) -> bool:
        """Whether that worker is ours and its lease still stands, by what this process knows."""
        worker = self._worker
        return worker is not None and worker.worker_id == worker_id and time.monotonic() < self._trusted_until

    def close(self) -> None:
        """Leave: the worker is buried, its lock dropped. Runs that it still has are cut off."""
        self._leaves.set()
        self._stop.set()
        if self._sweeping is not None:
            self._sweeping.join(SWEEP_ENDS_S)
        with self._mutex:
            for worker_id in self._former:
                self._leave(worker_id)
            if self._worker is not None:
                self._leave(self._worker.worker_id)
                self._worker = None

    def end_later(self, lease: Lease, status: RunStatus, cause: str) -> None:
        """A run that nobody drives any more, but whose end could not be recorded now (a full disk): tried again."""
        with self._mutex:
            self._to_end.append((lease, status, cause))

    def _end_what_is_left(self) -> None:
        with self._mutex:
            due, self._to_end = self._to_end, []
        for lease, status, cause in due:
            try:
                self.store.perform(self.store.finish_run(lease, status, cause=cause))
            except LeaseLostError:
                log.info("run %s was taken over before its end was recorded", lease.run_id)
            except StoreUnavailableError:
                self.end_later(lease, status, cause)

    def _register(self) -> None:
        if self._worker is not None:
            self._former.append(self._worker.worker_id)
            self._worker = None
        self._leave_formers()
        worker_id = token_hex(8)
        self.store.hold_worker_lock(worker_id)
        asked = time.monotonic()
        try:
            self._worker = self.store.perform(
                self.store.register_worker(worker_id, host=socket.gethostname(), pid=os.getpid(), ttl_s=self._ttl_s)
            )
        except BaseException:
            self.store.drop_worker_lock(worker_id)
            raise
        self._trust_from(asked)
        self._leaves.clear()
        self._stop.set()
        self._stop = threading.Event()
        beat = threading.Thread(
            target=_beat, args=(weakref.ref(self), self._worker, self._stop, self._heartbeat_s), daemon=True
        )
        beat.name = "ninelives-heartbeat"
        beat.start()

    def _leave_formers(self) -> None:
        """
        Sign off those that this process was before its lease ended, once no outside act of it is in flight any more.

        Until then they count as alive: what they have begun may still happen, and must not be called "not done".
        """
        while self._former and not acts_in_flight(self.store):
            self._leave(self._former.pop())

    def _leave(self, worker_id: str) -> None:
        try:
            self.store.perform(self.store.bury_worker(worker_id))
        except StoreUnavailableError as error:
            log.info("worker %s could not sign off (%s); its lease will run out", worker_id, error)
        self.store.drop_worker_lock(worker_id)

    def _trust_from(self, asked: float) -> None:
        self._trusted_until = asked + self._ttl_s * (1 - MARGIN)

    def _renew(self, worker: WorkerLease) -> bool:
        """One heartbeat; False when the worker is no more."""
        asked = time.monotonic()
        try:
            self.store.perform(self.store.renew_worker(worker, ttl_s=self._ttl_s))
        except WorkerLostError:
            log.warning("the lease of worker %s has ended while it was away", worker.worker_id)
            self._trusted_until = 0.0
            return False
        except StoreUnavailableError as error:
            again = time.monotonic() < self._trusted_until
            then = "trying again" if again else "its lease has ended"
            log.warning("heartbeat of worker %s failed (%s); %s", worker.worker_id, error, then)
            return again
        if self._worker is worker:
            self._trust_from(asked)
        self._end_what_is_left()
        with self._mutex:
            self._leave_formers()
        return True

    def _see_to_deadlines(self) -> None:
        """Questions whose time is over; in a thread of its own, for no heartbeat may wait for what that takes."""
        if self._leaves.is_set() or (self._sweeping is not None and self._sweeping.is_alive()):
            return
        try:
            if not self.store.perform(self.store.any_due()):
                return
        except NineLivesError as error:
            log.info("not known whether a question is overdue: %s", error)
            return
        self._sweeping = threading.Thread(target=self._sweep, name="ninelives-deadlines", daemon=True)
        self._sweeping.start()

    def _sweep(self) -> None:
        try:
            sweep(self.store, limit=SWEPT_MAX, stopped=self._leaves.is_set)
        except Exception as error:  # nobody waits for it: whatever is wrong is told to whoever calls
            log.warning("overdue questions are seen to later: %s", error)


def _beat(keeper: weakref.ref[Keeper], worker: WorkerLease, stop: threading.Event, every_s: float) -> None:
    renews = True
    while not stop.wait(every_s):
        alive = keeper()
        if alive is None:
            return
        renews = renews and alive._renew(worker)
        alive._see_to_deadlines()  # also as nobody: until the next call makes it a worker again
        del alive


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease together with the keeper that keeps it: what a run is driven under."""

    lease: Lease
    keeper: Keeper

    @property
    def store(self) -> Store:
        return self.keeper.store

    def check(self) -> None:
        """
        Make sure that the run is still ours: asked before every node and tool call.

        Asks what this process knows first, then the store: after a pause of the whole machine only the store can tell.

        Raises:
            LeaseLostError: it is not, or nobody can be sure.
        """
        if self.keeper.trusts(self.lease.worker_id) and self.store.perform(self.store.holds(self.lease)):
            return
        raise LeaseLostError(self.lease.run_id, self.lease.epoch)
