"""What a worker does besides searching: show that it lives, take over from the silent, remove what is old."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

import sqlalchemy as sa

from app.jobs.webhooks import Webhooks
from app.settings import Settings
from app.storage.calibrations import CalibrationStore
from app.storage.lease import Silence
from app.storage.plans import PlanStore
from app.storage.queue import PlanQueue
from app.storage.searches import delete_kept_before
from app.storage.studies import StudyStore
from app.storage.workers import WorkerStore

LOG = logging.getLogger("isthmus.supervisor")
WEBHOOKS_S = 1.0  # how often a worker looks for webhooks to send
LEAST_LOOKS = 3  # a claim can be younger than the first heartbeat after it


class Supervisor:
    """Keeps one run of a worker alive in the database; each part has a thread, so that nothing holds up a heartbeat."""

    def __init__(self, settings: Settings, engine: sa.Engine, holder: str) -> None:
        self._settings = settings
        self._engine = engine
        self._holder = holder
        self._plans = PlanStore(engine)
        self._queue = PlanQueue(engine)
        self._studies = StudyStore(engine)
        self._calibrations = CalibrationStore(engine)
        self._workers = WorkerStore(engine)
        self._silence = Silence(max(LEAST_LOOKS, math.ceil(settings.dead_worker_s / settings.heartbeat_s)))
        self._num_beats = 0
        self._cleaned_at = time.monotonic()
        self._ended = threading.Event()
        webhooks = Webhooks(settings, engine)
        self._threads = [
            self._thread("heartbeat", self.beat, settings.heartbeat_s),
            self._thread("supervisor", self.once, settings.heartbeat_s),
            self._thread("webhooks", webhooks.once, min(WEBHOOKS_S, settings.heartbeat_s)),
        ]

    def start(self) -> None:
        """Begin, until `stop`."""
        for one in self._threads:
            one.start()

    def stop(self) -> None:
        """End the threads; one that waits for the database, or for a receiver, is left behind."""
        self._ended.set()
        for one in self._threads:
            one.join(timeout=5.0)

    def beat(self) -> None:
        """Show that this worker lives."""
        self._num_beats += 1
        self._workers.beat(self._holder, self._settings.worker_id, self._num_beats)

    def once(self) -> None:
        """Look after what others left."""
        beats = self._queue.beats()
        beats.pop(self._holder, None)
        for holder in self._silence.look(beats):
            plan_ids = self._queue.take_over(holder, beats[holder])
            if plan_ids is not None:
                LOG.warning("a worker is silent; its plans wait again", extra={"worker": holder, "plans": plan_ids})
        if time.monotonic() - self._cleaned_at >= self._settings.dead_worker_s:
            self._cleaned_at = time.monotonic()
            self._clean()

    def _clean(self) -> None:
        delete_kept_before(self._engine, time.time() - self._settings.search_retention_s)
        if self._settings.retention_s:
            oldest_at = time.time() - self._settings.retention_s
            self._plans.delete_finished_before(oldest_at)
            self._studies.delete_older_than(oldest_at)
            self._calibrations.delete_older_than(oldest_at)

    def _thread(self, name: str, action: Callable[[], None], pause_s: float) -> threading.Thread:
        def repeat() -> None:
            while not self._ended.wait(pause_s):
                try:
                    action()
                except sa.exc.SQLAlchemyError as error:
                    LOG.warning("no %s without the database; trying again", name, extra={"detail": str(error)[:200]})
                except Exception:
                    # A worker without heartbeats loses its plans to others; one without the rest helps them less.
                    LOG.exception("a defect in the %s; trying again", name)

        return threading.Thread(target=repeat, name=f"isthmus-{name}", daemon=True)
