"""A worker: takes queued plans from the durable queue, searches, and takes over what dead workers held.

Owns the only use of the DBOS runtime. One worker per process, because DBOS keeps one runtime per process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig

from app.jobs.queue import APPLICATION, QUEUE, URGENT_QUEUE, VERSION, WORKFLOW, enqueue_plan, register_queues
from app.jobs.rehearsal import rehearse
from app.jobs.search import fault_text, headline, search
from app.settings import Settings
from app.storage.plans import Lane, PlanStore, State
from app.storage.studies import StudyStore
from app.storage.workers import WorkerStore

LOG = logging.getLogger("isthmus.worker")


class Worker:
    """Takes plans from the queue until it is stopped."""

    def __init__(self, settings: Settings, engine: sa.Engine, client: DBOSClient) -> None:
        self._settings = settings
        self._engine = engine
        self._client = client
        self._plans = PlanStore(engine)
        self._studies = StudyStore(engine)
        self._workers = WorkerStore(engine)
        self._stopping = threading.Event()
        self._leaving = threading.Event()
        self._idle = threading.Condition()
        self._num_running = 0
        self._supervisor = threading.Thread(target=self._supervise, name="isthmus-supervisor", daemon=True)

    def start(self) -> None:
        """Begin to take plans, first of all those that this worker held when it ended last."""
        rehearse(self._settings)
        self._workers.beat(self._settings.worker_id)
        # Before the launch: a queue that is registered later is noticed only by the next look, a second on.
        register_queues(self._client, self._settings)
        self._runtime = DBOS(config=self._config())

        @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=1000)  # type: ignore[untyped-decorator,unused-ignore]
        def search_plan(plan_id: str) -> str:
            return self._run(plan_id)

        DBOS.listen_queues([URGENT_QUEUE, QUEUE])
        DBOS.launch()
        self._supervisor.start()

    def stop(self) -> None:
        """Take nothing more; let searches end for `drain_s`, then give their plans back to the queue."""
        self._stopping.set()
        # The threads that take from the queue end first: what they took from here on would only go back.
        for event in self._runtime.background_thread_stop_events:
            event.set()
        with self._idle:
            self._idle.wait_for(lambda: self._num_running == 0, timeout=self._settings.drain_s)
            self._leaving.set()
            limit_s = self._settings.soft_grace_s + self._settings.kill_grace_s + 5.0
            self._idle.wait_for(lambda: self._num_running == 0, timeout=limit_s)
        self._supervisor.join(timeout=10.0)
        with suppress(sa.exc.SQLAlchemyError):
            self._workers.leave(self._settings.worker_id)
        DBOS.destroy(destroy_registry=True)

    def _config(self) -> DBOSConfig:
        return DBOSConfig(
            name=APPLICATION,
            system_database_url=self._settings.database_url,
            system_database_engine=self._engine,
            application_version=VERSION,
            executor_id=self._settings.worker_id,
            log_level="WARNING",
            enable_otlp=False,
            notification_listener_polling_interval_sec=1.0,
        )

    def _run(self, plan_id: str) -> str:
        """The workflow: it may run again after a crash, so it starts by taking the plan for a new attempt."""
        with self._idle:
            self._num_running += 1
        try:
            return self._attempt(plan_id)
        except Exception:
            # A workflow that ends by an exception is over for the queue, and its plan would seem to run for ever.
            LOG.exception("an attempt ended by a defect, or without a database", extra={"plan_id": plan_id})
            return self._after_defect(plan_id)
        finally:
            with self._idle:
                self._num_running -= 1
                self._idle.notify_all()

    def _attempt(self, plan_id: str) -> str:
        if self._stopping.is_set():
            enqueue = self._enqueue_again(plan_id)
            with self._engine.begin() as connection:
                enqueue(connection)
            return "given back"
        attempt = self._plans.begin(plan_id, self._settings.worker_id)
        if attempt is None:
            return "nothing to do"
        if attempt > self._settings.max_attempts:
            return self._give_up(plan_id, attempt)
        verdict = search(self._plans, self._settings, plan_id, attempt, leaving=self._leaving.is_set)
        if verdict is None:
            self._plans.give_back(plan_id, attempt, self._enqueue_again(plan_id))
            return "given back"
        self._plans.finish(
            plan_id,
            attempt,
            verdict.state,
            verdict.reason,
            outcome=verdict.outcome,
            fault=verdict.fault,
            headline=headline(verdict.outcome),
        )
        return verdict.state

    def _after_defect(self, plan_id: str) -> str:
        """Queue the plan again as soon as the database answers; the attempt counts, so that this ends."""
        while True:
            try:
                row = self._plans.get(plan_id, with_outcome=False)
                if row is not None:
                    self._plans.give_back(plan_id, row.attempt, self._enqueue_again(plan_id), counts=True)
                return "given back"
            except sa.exc.SQLAlchemyError:
                if self._stopping.wait(self._settings.heartbeat_s):
                    raise

    def _enqueue_again(self, plan_id: str) -> Callable[[sa.Connection], None]:
        lane = self._plans.lane(plan_id) or Lane()
        return lambda connection: enqueue_plan(self._client, connection, plan_id, lane, again=True)

    def _give_up(self, plan_id: str, attempt: int) -> str:
        row = self._plans.get(plan_id)
        kept = None if row is None else row.outcome
        state: State = "failed" if kept is None else "incomplete"
        self._plans.finish(plan_id, attempt, state, "attempts", outcome=None, fault=fault_text("attempts", {}))
        return state

    def _supervise(self) -> None:
        while not self._stopping.wait(self._settings.heartbeat_s):
            try:
                self._workers.beat(self._settings.worker_id)
                self._take_over()
                if self._settings.retention_s:
                    oldest_at = time.time() - self._settings.retention_s
                    self._plans.delete_finished_before(oldest_at)
                    self._studies.delete_older_than(oldest_at)
            except sa.exc.SQLAlchemyError:
                LOG.exception("the database did not answer; trying again")

    def _take_over(self) -> None:
        dead = [name for name in self._workers.dead(self._settings.dead_worker_s) if name != self._settings.worker_id]
        if not dead:
            return
        LOG.warning("taking over the plans of silent workers", extra={"workers": dead})
        # DBOS offers no public call for this outside its hosted control plane; the row update behind it is
        # conditional, so two workers that see the same dead one do not enqueue its plans twice.
        DBOS._recover_pending_workflows(dead)  # noqa: SLF001
        for name in dead:
            self._workers.leave(name)
