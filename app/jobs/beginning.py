"""Starts the worker of a service, also while its database cannot be written: the service answers meanwhile."""

from __future__ import annotations

import logging
import threading

import sqlalchemy as sa

from app.jobs.worker import Worker
from app.storage.tables import is_outage

LOG = logging.getLogger("isthmus.worker")


class Beginning:
    """The start of one worker, which may have to wait for room on a disk, and its end."""

    def __init__(self, worker: Worker, pause_s: float) -> None:
        self._worker = worker
        self._pause_s = pause_s
        self._ending = threading.Event()
        self._has_begun = False
        self._trying: threading.Thread | None = None

    def begin(self) -> None:
        """Start the worker now; where the database does not let it, go on trying beside everything else."""
        if not self._tried():
            self._trying = threading.Thread(target=self._try_on, name="isthmus-beginning", daemon=True)
            self._trying.start()

    def end(self) -> None:
        """Stop the worker, or the trying."""
        self._ending.set()
        if self._trying is not None:
            self._trying.join()
        if self._has_begun:
            self._worker.stop()

    def _try_on(self) -> None:
        while not self._ending.wait(self._pause_s) and not self._tried():
            pass

    def _tried(self) -> bool:
        try:
            self._worker.start()
        except sa.exc.SQLAlchemyError as error:
            if not is_outage(error):
                raise
            LOG.error("the worker cannot start; trying again", extra={"detail": str(error)[:200]})
            return False
        self._has_begun = True
        return True
