"""Assembles the service: settings in, application out. Nothing else happens here."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from app.api import (
    calibrations,
    catalogue,
    computations,
    events,
    exports,
    health,
    imports,
    plans,
    problems,
    questions,
    replans,
    studies,
    webhooks,
)
from app.api.authentication import Authentication, check_openness
from app.api.body_limits import BodyLimits
from app.api.codings import Compress
from app.api.heads import Heads
from app.api.observe import Observe
from app.api.openapi import describe
from app.api.prefix import Prefix
from app.api.shortcut import Shortcut
from app.api.strict import LARGE_AT_ONCE
from app.jobs.processes import warm_up
from app.jobs.service import PlanService
from app.jobs.warm_up import compile_once
from app.jobs.worker import Worker
from app.settings import Settings
from app.telemetry import start_traces
from app.web import pages

ROUTERS = (
    computations.router,
    plans.router,
    exports.router,
    replans.router,
    events.router,
    webhooks.router,
    studies.router,
    questions.router,
    calibrations.router,
    imports.router,
    catalogue.router,
    health.router,
)
UNTRACED = "healthz/.*,metrics"


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; its database and worker open when it starts and close when it stops."""
    chosen = settings if settings is not None else Settings.from_environment()
    registry = CollectorRegistry()
    app = FastAPI(
        title="Isthmus",
        version=version("isthmus"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would send the client wherever its Host header says
        lifespan=_lifespan(chosen),
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.metrics = registry
    app.state.prefix = chosen.path_prefix
    app.state.large_readers = CapacityLimiter(LARGE_AT_ONCE)
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    pages.install(app)
    app.add_middleware(Shortcut)
    app.add_middleware(Compress)
    app.add_middleware(BodyLimits, settings=chosen)
    app.add_middleware(Authentication, settings=chosen)
    app.add_middleware(Heads)
    app.add_middleware(Observe, registry=registry)
    if chosen.path_prefix:
        app.add_middleware(Prefix, prefix=chosen.path_prefix)
    start_traces(chosen)
    if chosen.otel_enabled:
        _trace_requests(app)
    describe(app)
    return app


def _trace_requests(app: FastAPI) -> None:
    """One span per request, but for those of monitors. Where spans go is set up in `app.telemetry`."""
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    FastAPIInstrumentor.instrument_app(app, excluded_urls=UNTRACED)


def _lifespan(settings: Settings) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = await run_sync(PlanService, settings)
        check_openness(settings, service.keys)
        app.state.service = service
        await run_sync(app.state.description.prepare_routes)
        app.state.description.begin(service.closing)
        worker = Worker(settings, service.engine) if settings.run_worker else None
        if worker is not None:
            await run_sync(partial(worker.start, patiently=True))
        else:  # direct computations search, too; a worker compiles for itself
            await run_sync(warm_up)
            compiling = partial(compile_once, settings, stop_asked=service.closing.is_set)
            threading.Thread(target=compiling, name="isthmus-compiling", daemon=True).start()
        try:
            yield
        finally:
            service.closing.set()
            if worker is not None:
                await run_sync(worker.stop)
            await run_sync(service.close)

    return lifespan
