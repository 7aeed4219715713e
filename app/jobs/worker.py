"""A worker: takes queued plans while it has places, and searches each in a thread that watches a child process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import sqlalchemy as sa

from app.jobs.processes import warm_up
from app.jobs.program import program
from app.jobs.search import EndState, fault_text, headline, search
from app.jobs.supervisor import Supervisor
from app.jobs.warm_up import compile_once
from app.settings import Settings
from app.storage.lease import unknown
from app.storage.outages import is_outage
from app.storage.plans import State
from app.storage.queue import MOST_URGENT, Claim, PlanQueue
from app.storage.workers import WorkerStore, new_holder

LOG = logging.getLogger("isthmus.worker")


class Worker:
    """Takes plans from the queue until it is stopped."""

    def __init__(self, settings: Settings, engine: sa.Engine) -> None:
        self._settings = settings
        self._queue = PlanQueue(engine)
        self._workers = WorkerStore(engine)
        self._holder = new_holder()
        self._supervisor = Supervisor(settings, engine, self._holder)
        self._has_entered = False
        self._stopping = threading.Event()
        self._leaving = threading.Event()
        self._changed = threading.Condition()  # of what follows
        self._running: dict[tuple[str, int], Claim] = {}
        self._failed: set[tuple[str, int]] = set()
        self._served: dict[str, int] = {}
        self._dispatcher = threading.Thread(target=self._dispatch, name="isthmus-dispatcher", daemon=True)

    def start(self, *, patiently: bool = False) -> None:
        """Begin to take plans, first of all those that an earlier run of this worker left behind.

        `patiently`: where the database does not let it, go on trying beside everything else.
        """
        warm_up()
        program()  # read now: later the files may be those of another version
        try:
            self._enter()
        except sa.exc.SQLAlchemyError as error:
            if not patiently or not is_outage(error):
                raise
            LOG.error("the worker cannot start; trying again", extra={"detail": str(error)[:200]})
        self._dispatcher.start()

    def _enter(self) -> None:
        freed = self._workers.enter(self._holder, self._settings.worker_id)
        self._has_entered = True
        if freed:
            LOG.warning("plans of an earlier run of this worker wait again", extra={"plans": freed})
        self._supervisor.start()

    def stop(self) -> None:
        """Take nothing more; let searches end for `drain_s`, then give their plans back to the queue."""
        settings = self._settings
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._running, timeout=settings.drain_s)
            self._leaving.set()
            limit_s = settings.soft_grace_s + settings.kill_grace_s + 5.0
            self._changed.wait_for(lambda: not self._running, timeout=limit_s)
        self._dispatcher.join(timeout=5.0)
        if not self._has_entered:
            return
        self._supervisor.stop()
        with suppress(sa.exc.SQLAlchemyError):
            self._workers.leave(self._holder)

    def _dispatch(self) -> None:
        """Fill the free places, again and again. After a failure this worker may hold what it does not know of."""
        settings, looked_at, is_compiled = self._settings, -1e9, False
        while not self._stopping.is_set():
            pause_s = settings.queue_poll_s
            try:
                if not self._has_entered:
                    self._enter()
                if not is_compiled:  # here, so that the service answers meanwhile
                    compile_once(settings, stop_asked=self._stopping.is_set)
                    is_compiled = True
                    continue  # or stop, if that was asked for meanwhile
                if time.monotonic() - looked_at >= settings.heartbeat_s:
                    self._return_unknown()
                    looked_at = time.monotonic()
                self._fill()
            except sa.exc.SQLAlchemyError as error:
                LOG.warning("nothing is taken without the database", extra={"detail": str(error)[:200]})
                looked_at, pause_s = -1e9, settings.heartbeat_s
            except Exception:
                LOG.exception("a defect in the dispatcher; trying again")
                looked_at, pause_s = -1e9, settings.heartbeat_s
            self._rest(pause_s)

    def _rest(self, pause_s: float) -> None:
        """Wait so long, or until there is a free place."""
        with self._changed:
            before = set(self._running)
            self._changed.wait_for(lambda: self._stopping.is_set() or before != set(self._running), timeout=pause_s)

    def _return_unknown(self) -> None:
        """Give back what this worker holds and does not search."""
        with self._changed:
            running = set(self._running)
        for plan_id, lease in unknown(self._queue.held_by(self._holder), running):
            counts = (plan_id, lease) in self._failed
            why = "its worker met a defect" if counts else "its worker had not heard of it"
            LOG.warning("a plan is given back: %s", why, extra={"plan_id": plan_id})
            self._queue.give_back(plan_id, lease, counts=counts, why=why)
            self._failed.discard((plan_id, lease))

    def _fill(self) -> None:
        """Take plans while there are places for them."""
        places = {True: self._settings.num_urgent_solves, False: self._settings.num_concurrent_solves}
        waiting: tuple[bool, bool] | None = None
        for urgent, number in places.items():
            while not self._stopping.is_set():
                with self._changed:
                    num_running = sum((one.urgency == MOST_URGENT) == urgent for one in self._running.values())
                if num_running >= number:
                    break
                waiting = waiting or self._queue.waiting()
                claim = self._claim(urgent=urgent) if waiting[not urgent] else None
                if claim is None:
                    break
                self._begin(claim)

    def _claim(self, *, urgent: bool) -> Claim | None:
        settings = self._settings
        claim = self._queue.claim(
            self._holder,
            settings.worker_id,
            urgent=urgent,
            max_per_key=settings.max_running_per_key,
            served=self._served,
        )
        if claim is not None and not urgent:
            self._served[claim.key_id] = max(self._served.values(), default=0) + 1
        return claim

    def _begin(self, claim: Claim) -> None:
        thread = threading.Thread(target=self._work, args=(claim,), name=f"isthmus-{claim.plan_id}", daemon=True)
        with self._changed:
            self._running[claim.plan_id, claim.lease] = claim
        try:
            thread.start()
        except RuntimeError:
            self._end(claim)  # no thread to be had; the plan is given back like one that was never heard of
            raise

    def _end(self, claim: Claim) -> None:
        with self._changed:
            del self._running[claim.plan_id, claim.lease]
            self._changed.notify_all()

    def _work(self, claim: Claim) -> None:
        """Search a plan and say how it ended; what cannot be said is found by `_return_unknown`, or by others."""
        try:
            self._search(claim)
        except Exception as error:
            if not is_outage(error):
                LOG.exception("a search ended by a defect", extra={"plan_id": claim.plan_id})
                self._failed.add((claim.plan_id, claim.lease))
        finally:
            self._end(claim)

    def _search(self, claim: Claim) -> None:
        queue, held = self._queue, (claim.plan_id, claim.lease)
        found: EndState | None
        if claim.attempt > self._settings.max_attempts:
            state: State = "failed" if claim.best is None else "incomplete"
            found = EndState(state, "attempts", fault=fault_text("attempts", {}))
        else:
            found = search(queue, self._settings, claim, leaving=self._leaving.is_set)
        if found is None:
            self._patiently(partial(queue.give_back, *held, counts=False, why="its worker left"))
            return
        self._patiently(
            partial(
                queue.finish,
                *held,
                found.state,
                found.reason,
                outcome=found.outcome,
                fault=found.fault,
                headline=headline(found.outcome),
            )
        )

    def _patiently(self, action: Callable[[], bool]) -> bool:
        """Repeat what the database did not answer, or had no room for, until it does.

        A worker that has to leave before raises: what it still holds is taken over by another.
        """
        while True:
            try:
                return action()
            except sa.exc.SQLAlchemyError as error:
                if not is_outage(error):
                    raise
                LOG.warning("waiting for the database", extra={"detail": str(error)[:200]})
                if self._leaving.wait(self._settings.heartbeat_s):
                    raise
