"""Keeps the queue whole while programs die: heartbeats, and the work of those who do not show theirs.

Owns the rules of recovery. Three things can go wrong with a plan that has not ended, and each is looked for: its
holder is gone; its holder lives and does not know of it (the answer to a claim was lost); nobody holds it. Never
searches.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, WorkflowStatus

from app.jobs.queue import QUEUE, WORKFLOW, enqueue_again, plan_of
from app.settings import Settings
from app.storage.attempts import AttemptStore, Requeue
from app.storage.calibrations import CalibrationStore
from app.storage.plans import Lane, PlanStore
from app.storage.studies import StudyStore
from app.storage.workers import WorkerStore

LOG = logging.getLogger("isthmus.upkeep")
KEPT_WORKFLOWS = timedelta(hours=1)  # an ended workflow says nothing that its plan does not
FORGOTTEN_AT_ONCE = 500


class Upkeep:
    """What one worker does for all of them, once per heartbeat."""

    def __init__(
        self, settings: Settings, engine: sa.Engine, client: DBOSClient, *, is_running: Callable[[str], bool]
    ) -> None:
        self._settings = settings
        self._client = client
        self._is_running = is_running
        self._plans = PlanStore(engine)
        self._attempts = AttemptStore(engine)
        self._studies = StudyStore(engine)
        self._calibrations = CalibrationStore(engine)
        self._workers = WorkerStore(engine)
        self._beat_at: float | None = None
        self._patient_until = 0.0
        self._swept_at = time.monotonic()
        self._idle_since: dict[str, float] = {}

    def once(self) -> None:
        """Show that this worker lives, then look after what others left."""
        self._beat()
        self._take_over()
        if time.monotonic() - self._swept_at >= self._settings.dead_worker_s:
            self._swept_at = time.monotonic()
            self._rescue()
            self._clean()

    def _beat(self) -> None:
        self._workers.beat(self._settings.worker_id)
        now, silent_s = time.monotonic(), self._settings.dead_worker_s
        if self._beat_at is not None and now - self._beat_at > silent_s / 2:
            # This worker, or the database, was away: others may be late for the same reason and get time to show up.
            self._patient_until = now + silent_s
        self._beat_at = now

    def _take_over(self) -> None:
        """Queue again what is claimed by workers that are silent or gone, and what this one claimed unknowingly."""
        # In this order: who claims has shown itself before, so nobody who claims in between looks dead.
        claimed = self._client.list_workflows(status="PENDING", name=WORKFLOW, load_input=False, load_output=False)
        living = self._workers.living(self._settings.dead_worker_s) | {self._settings.worker_id}
        self._release(claimed)
        gone = sorted({str(one.executor_id) for one in claimed} - living)
        if not gone or time.monotonic() < self._patient_until:
            return
        LOG.warning("taking over the plans of silent workers", extra={"workers": gone})
        # DBOS offers no public call for this outside its hosted control plane; the row update behind it is
        # conditional, so two workers that see the same dead one do not enqueue its plans twice.
        DBOS._recover_pending_workflows(gone)  # noqa: SLF001
        self._workers.forget_silent(self._settings.dead_worker_s)

    def _release(self, claimed: Sequence[WorkflowStatus]) -> None:
        """A claim whose answer was lost on the way binds its plan to a worker that does nothing about it."""
        me, now = self._settings.worker_id, time.monotonic()
        idle = {one.workflow_id for one in claimed if one.executor_id == me and not self._is_running(one.workflow_id)}
        self._idle_since = {one: self._idle_since.get(one, now) for one in idle}
        for workflow_id, since in self._idle_since.items():
            if now - since >= self._settings.dead_worker_s:
                LOG.warning("a claim was lost on the way; queueing it again", extra={"workflow": workflow_id})
                # Nor for this; resuming by the public call would forget which of the two queues it was on.
                self._client._sys_db.reenqueue_for_recovery(workflow_id, [me], QUEUE)  # noqa: SLF001

    def _rescue(self) -> None:
        """Queue plans again that no workflow is about; it has to have been so since before the workflows were read."""
        plans = self._plans.open_plans()
        if not plans:
            return
        active = self._client.list_workflows(
            status=["ENQUEUED", "PENDING"], name=WORKFLOW, load_input=False, load_output=False
        )
        for plan_id in plans.keys() - {plan_of(one.workflow_id) for one in active}:
            if self._attempts.rescue(plan_id, plans[plan_id], self.requeue(plan_id)):
                LOG.error("a plan that nobody held is queued again", extra={"plan_id": plan_id})

    def requeue(self, plan_id: str) -> Requeue:
        """What puts a plan on its queue again, inside a transaction."""
        lane = self._plans.lane(plan_id) or Lane()
        return lambda connection: enqueue_again(self._client, connection, plan_id, lane)

    def _clean(self) -> None:
        """Remove what is too old: finished plans and studies by the retention setting, ended workflows always."""
        if self._settings.retention_s:
            oldest_at = time.time() - self._settings.retention_s
            self._plans.delete_finished_before(oldest_at)
            self._studies.delete_older_than(oldest_at)
            self._calibrations.delete_older_than(oldest_at)
        before = (datetime.now(UTC) - KEPT_WORKFLOWS).isoformat()
        ended = self._client.list_workflows(
            status=["SUCCESS", "ERROR", "CANCELLED"],
            name=WORKFLOW,
            completed_before=before,
            limit=FORGOTTEN_AT_ONCE,
            load_input=False,
            load_output=False,
        )
        if ended:
            self._client.delete_workflows([one.workflow_id for one in ended])
