"""Assembles the service: settings in, application out. Nothing else happens here."""

from __future__ import annotations

import importlib.metadata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from prometheus_client import CollectorRegistry

from app.api import calibrations, catalogue, direct, events, health, plans, problems, replans, studies
from app.api.admission import Admission
from app.api.calibrations import CalibrationRequest
from app.api.guard import Guard, check_openness
from app.api.observe import Observe
from app.api.shortcut import Shortcut
from app.api.traces import trace_requests
from app.jobs.children import warm_up
from app.jobs.service import PlanService
from app.jobs.worker import Worker
from app.settings import Settings
from app.telemetry import start_traces
from app.web import pages

DESCRIPTION = (
    "Plans the training of large models across data-centre buildings: placement, timing and transport, with a proof. "
    "Post one of the examples to /v1/plans, follow its events, read the plan."
)
KEY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key of `isthmus keys create`. Not needed where the service runs without authentication.",
}
ROUTERS = (
    direct.router,
    plans.router,
    replans.router,
    events.router,
    studies.router,
    calibrations.router,
    catalogue.router,
    health.router,
)


def version() -> str:
    """The installed version of this program."""
    try:
        return importlib.metadata.version("isthmus")
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; its database and worker open when it starts and close when it stops."""
    chosen = settings if settings is not None else Settings.from_environment()
    registry = CollectorRegistry()
    app = FastAPI(
        title="Isthmus",
        version="1",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would send the client wherever its Host header says
        lifespan=_lifespan(chosen, registry),
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.metrics = registry
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    pages.install(app)
    app.add_middleware(Shortcut)
    app.add_middleware(Admission, settings=chosen)
    app.add_middleware(Guard, settings=chosen)
    app.add_middleware(Observe, registry=registry)
    start_traces(chosen)
    if chosen.otel_enabled:
        trace_requests(app)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _lifespan(settings: Settings, registry: CollectorRegistry) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = await run_sync(PlanService, settings)
        check_openness(settings, service.keys)
        app.state.service = service
        registry.register(health.ServiceCollector(service))
        worker = Worker(settings, service.engine, service.client) if settings.run_worker else None
        await run_sync(worker.start if worker is not None else warm_up)
        try:
            yield
        finally:
            service.closing.set()
            if worker is not None:
                await run_sync(worker.stop)
            await run_sync(service.close)

    return lifespan


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        # One schema per document, also where a name may stand for it on the way in: generated clients want one class.
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        schema = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        definitions = schema.pop("$defs")
        # The route reads JSON or CSV by itself, so that the framework does not know the model of the former.
        rows = CalibrationRequest.model_json_schema(ref_template="#/components/schemas/{model}")
        document["components"]["schemas"].update(definitions, Problem=schema, CalibrationRequest=rows)
        document["components"]["securitySchemes"] = {"key": KEY_SCHEME}
        document["security"] = [{}, {"key": []}]
        _drop_default_errors(document)
        _parameters_are_never_null(document)
        app.openapi_schema = document
    return app.openapi_schema


def _parameters_are_never_null(document: dict[str, Any]) -> None:
    """A parameter that may be left out is left out; there is no null in a URL or a header."""
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                schema = parameter["schema"]
                kinds = [one for one in schema.pop("anyOf", ()) if one != {"type": "null"}]
                schema.update(*kinds)


def _drop_default_errors(document: dict[str, Any]) -> None:
    """Remove the framework's own error form, which no route of this application sends."""
    for path in document["paths"].values():
        for operation in path.values():
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
