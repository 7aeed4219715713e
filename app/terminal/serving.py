"""Runs the service and the worker as long-living programs, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import threading
import time
from types import FrameType

import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI

from app.api.authentication import check_openness
from app.jobs.processes import limit_memory
from app.jobs.service import PlanService
from app.jobs.worker import Worker
from app.logs import configure
from app.main import create_app
from app.settings import InvalidSetting, Settings
from app.storage.keys import KeyStore
from app.storage.migrations import create_tables
from app.storage.outages import FULL, outage_of
from app.storage.tables import create_engine
from app.storage.workers import WorkerStore
from app.telemetry import start_traces
from app.terminal.exits import Failed
from app.terminal.protocol import connections_of

LOG = logging.getLogger("isthmus.serve")
CLOSE_CONNECTIONS_S = 5
END_S = 5.0


class _Server(uvicorn.Server):
    """A server that large bodies and open event streams hold up as little as can be."""

    def __init__(self, app: FastAPI, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, and have the collector pass over what is there by now: a look at it all stops everybody for 0.1 s."""
        try:
            await super().startup(sockets)
        except SystemExit:  # the log has told why; its code has another meaning among ours
            if self.lifespan.should_exit:
                raise Failed("the service could not start") from None
            raise InvalidSetting(f"ISTHMUS_HOST={self.config.host!r}, ISTHMUS_PORT={self.config.port}: nobody can "
                                 "listen there") from None  # fmt: skip
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Tell the event streams, which would hold it up otherwise, then do what uvicorn does."""
        service = getattr(self._app.state, "service", None)
        if service is not None:
            service.closing.set()
        super().handle_exit(sig, frame)


def serve(settings: Settings) -> None:
    """The HTTP service, with a worker in it unless the settings say otherwise."""
    configure(settings.log_level)
    limit_memory(settings.memory_bytes)
    while not _can_start(settings):
        time.sleep(settings.heartbeat_s)
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        http=connections_of(settings),
        server_header=False,
        timeout_graceful_shutdown=CLOSE_CONNECTIONS_S,
    )
    _Server(app, config).run()
    _end_for_certain()


def _can_start(settings: Settings) -> bool:
    """Raise what keeps the service from starting: the server itself would only log a traceback and leave.

    False: the disk is full, which somebody is going to change.
    """
    engine = create_engine(settings.database_url)
    try:
        create_tables(engine)
        check_openness(settings, KeyStore(engine))
    except sa.exc.OperationalError as error:
        if outage_of(error) is not FULL:
            raise
        LOG.error("waiting for room on the disk", extra={"detail": str(error)[:200]})
        return False
    finally:
        engine.dispose()
    return True


def work(settings: Settings) -> None:
    """A worker without HTTP."""
    configure(settings.log_level)
    limit_memory(settings.memory_bytes)
    start_traces(settings)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    service = PlanService(settings)
    worker = Worker(settings, service.engine)
    worker.start()
    stop.wait()
    worker.stop()
    service.close()
    _end_for_certain()


def has_shown_itself(settings: Settings) -> bool:
    """Whether the worker of this name has written its heartbeat lately."""
    engine = create_engine(settings.database_url)
    try:
        return WorkerStore(engine).num_living(settings.dead_worker_s, name=settings.worker_id) > 0
    finally:
        engine.dispose()


def _end_for_certain() -> None:
    """A thread that waits for a database that is gone would keep this process from ending for ever.

    What such a thread would still have written, another worker finds again: it takes the plan over.
    """
    last_resort = threading.Timer(END_S, os._exit, (0,))
    last_resort.daemon = True
    last_resort.start()
