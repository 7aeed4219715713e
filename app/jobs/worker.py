"""A worker: takes queued plans from the durable queue and searches.

Owns the only use of the DBOS runtime. One worker per process, because DBOS keeps one runtime per process. What keeps
the queue whole while programs die is in `upkeep`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig

from app.jobs.processes import warm_up
from app.jobs.queue import APPLICATION, QUEUE, URGENT_QUEUE, VERSION, WORKFLOW, register_queues
from app.jobs.rehearsal import rehearse
from app.jobs.search import Attempt, fault_text, headline, search
from app.jobs.upkeep import Upkeep
from app.settings import Settings
from app.storage.attempts import AttemptStore, Requeue
from app.storage.plans import PlanStore, State
from app.storage.tables import is_outage
from app.storage.workers import WorkerStore

LOG = logging.getLogger("isthmus.worker")
_Result = TypeVar("_Result")


class Worker:
    """Takes plans from the queue until it is stopped."""

    def __init__(self, settings: Settings, engine: sa.Engine, client: DBOSClient) -> None:
        self._settings = settings
        self._engine = engine
        self._client = client
        self._plans = PlanStore(engine)
        self._attempts = AttemptStore(engine)
        self._workers = WorkerStore(engine)
        self._upkeep = Upkeep(settings, engine, client, is_running=lambda ticket: ticket in self._running)
        self._stopping = threading.Event()
        self._leaving = threading.Event()
        self._idle = threading.Condition()
        self._running: set[str] = set()
        self._supervisor = threading.Thread(target=self._supervise, name="isthmus-supervisor", daemon=True)

    def start(self) -> None:
        """Begin to take plans, first of all those that this worker held when it ended last."""
        warm_up()
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
            self._idle.wait_for(lambda: not self._running, timeout=self._settings.drain_s)
            self._leaving.set()
            limit_s = self._settings.soft_grace_s + self._settings.kill_grace_s + 5.0
            self._idle.wait_for(lambda: not self._running, timeout=limit_s)
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
        ticket = str(DBOS.workflow_id)
        with self._idle:
            self._running.add(ticket)
        try:
            if self._stopping.is_set():
                return self._hand_on(plan_id, ticket)
            return self._attempt(plan_id, ticket)
        finally:
            with self._idle:
                self._running.discard(ticket)
                self._idle.notify_all()

    def _hand_on(self, plan_id: str, ticket: str) -> str:
        self._patiently(lambda: self._attempts.hand_on(plan_id, ticket, self._requeue(plan_id)))
        return "given back"

    def _attempt(self, plan_id: str, ticket: str) -> str:
        attempt = self._patiently(lambda: self._attempts.begin(plan_id, self._settings.worker_id, ticket))
        if attempt is None:
            return "nothing to do"
        try:
            return self._search(plan_id, attempt)
        except Exception as error:
            if is_outage(error):
                raise
            # A workflow that ends by an exception is over for the queue, and its plan would seem to run for ever.
            LOG.exception("an attempt ended by a defect", extra={"plan_id": plan_id})
            requeue = self._requeue(plan_id)
            self._patiently(lambda: self._attempts.give_back(plan_id, attempt, requeue, counts=True))
            return "given back"

    def _search(self, plan_id: str, attempt: int) -> str:
        if attempt > self._settings.max_attempts:
            return self._give_up(plan_id, attempt)
        request = self._patiently(lambda: self._plans.request(plan_id))
        row = self._patiently(lambda: self._plans.get(plan_id))
        if request is None or row is None:
            return "deleted"
        found = search(
            self._attempts,
            self._settings,
            Attempt(plan_id, attempt, request, row.outcome),
            leaving=self._leaving.is_set,
        )
        if found is None:
            self._patiently(lambda: self._attempts.give_back(plan_id, attempt, self._requeue(plan_id)))
            return "given back"
        figures = headline(found.outcome)
        self._patiently(
            lambda: self._attempts.finish(
                plan_id,
                attempt,
                found.state,
                found.reason,
                outcome=found.outcome,
                fault=found.fault,
                headline=figures,
            )
        )
        return found.state

    def _give_up(self, plan_id: str, attempt: int) -> str:
        row = self._patiently(lambda: self._plans.get(plan_id))
        kept = None if row is None else row.outcome
        state: State = "failed" if kept is None else "incomplete"
        fault = fault_text("attempts", {})
        self._patiently(lambda: self._attempts.finish(plan_id, attempt, state, "attempts", outcome=None, fault=fault))
        return state

    def _requeue(self, plan_id: str) -> Requeue:
        return self._patiently(lambda: self._upkeep.requeue(plan_id))

    def _patiently(self, action: Callable[[], _Result]) -> _Result:
        """Repeat what the database did not answer, or had no room for, until it does.

        A worker that has to leave before raises: its workflow stays in the queue's hands and goes to another worker.
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

    def _supervise(self) -> None:
        while not self._stopping.wait(self._settings.heartbeat_s):
            try:
                self._upkeep.once()
            except sa.exc.SQLAlchemyError as error:
                LOG.warning("no upkeep without the database; trying again", extra={"detail": str(error)[:200]})
            except Exception:
                # A worker without heartbeats loses its plans to others; one without the rest only helps them less.
                LOG.exception("a defect in the upkeep; trying again")
