"""Whether this process lives (without the database), whether it can take work, and its figures for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field

from app.api.headers import Asking, Service
from app.api.problems import documented
from app.faults import Fault
from app.jobs.access import Busy
from app.jobs.service import PlanService
from app.storage.migrations import SCHEMA_VERSION
from app.storage.plans import STATES
from app.storage.tables import check_writable

router = APIRouter(tags=["operations"])
METRICS_EXAMPLE = 'isthmus_plans{state="queued"} 3.0\nisthmus_oldest_queued_seconds 12.5\nisthmus_workers 2.0\n'


class Health(BaseModel):
    """The answer of a probe."""

    status: Literal["ok"] = Field("ok", description="Always ok; anything else is a problem document.", examples=["ok"])


class ServiceCollector(Collector):
    """Figures that are read from the database when they are asked for."""

    def __init__(self, service: PlanService, owner: str | None = None) -> None:
        self._service = service
        self._owner = owner

    def collect(self) -> Iterator[Metric]:
        """The current figures; of one owner's plans, where one is named."""
        plans = GaugeMetricFamily("isthmus_plans", "Plans and questions by state.", labels=["state"])
        for state in STATES:
            plans.add_metric([state], self._service.queue_figures.count(state, owner=self._owner))
        yield plans
        oldest_at = self._service.queue_figures.oldest_queued_at(owner=self._owner)
        age_s = 0.0 if oldest_at is None else max(0.0, time.time() - oldest_at)
        yield GaugeMetricFamily(
            "isthmus_oldest_queued_seconds", "Age of the plan or question that waits longest.", value=age_s
        )
        living = self._service.workers.num_living(self._service.settings.dead_worker_s)
        yield GaugeMetricFamily("isthmus_workers", "Workers heard of lately.", value=living)


class Version(BaseModel):
    """What runs here."""

    version: str = Field(description="Version of the program.", examples=["0.1.0"])
    api: str = Field(description="Version of the paths below `/v1`.", examples=["v1"])
    schema_version: int = Field(description="Version of the database's tables.", examples=[4])


@router.get("/version", response_model=Version, summary="Read the version", response_description="What runs here.",
            name="read_version", responses=documented())  # fmt: skip
async def version(request: Request) -> Version:
    """The program's version, that of its paths and that of its database."""
    return Version(version=request.app.version, api="v1", schema_version=SCHEMA_VERSION)


@router.get("/healthz/live", name="read_liveness", response_model=Health, summary="Is this process alive?",
            response_description="It is.")  # fmt: skip
async def live() -> Health:
    """Answers as long as the process can."""
    return Health()


@router.get("/healthz/ready", name="read_readiness", response_model=Health, responses=documented(503),
            summary="Can the service take work?", response_description="It can.")  # fmt: skip
def ready(service: Service) -> Health:
    """The database answers and at least one worker has shown itself lately."""
    if service.closing.is_set():
        raise _not_ready("the service is stopping")
    if service.workers.num_living(service.settings.dead_worker_s) == 0:
        check_writable(service.engine)  # a worker that cannot write cannot show itself: that is told instead
        raise _not_ready("no worker has shown itself lately")
    return Health()


def _not_ready(what: str) -> Busy:
    fault = Fault("not-ready", what, "", "", "Start `isthmus worker`, or wait until one has started.", "the service")
    return Busy(fault, retry_after_s=5)


async def _registry(request: Request) -> CollectorRegistry:
    registry: CollectorRegistry = request.app.state.metrics
    return registry


@router.get("/metrics", name="read_metrics", response_class=PlainTextResponse, summary="Figures for Prometheus",
            responses={200: {"content": {"text/plain": {"example": METRICS_EXAMPLE}}}, **documented(503)},
            response_description="One figure per line.")  # fmt: skip
def metrics(registry: Annotated[CollectorRegistry, Depends(_registry)], service: Service, caller: Asking) -> Response:
    """Queue, workers and requests in the text format of Prometheus; a key without the scope admin sees its own plans.

    Requests are counted for all callers together, so only administrators see them.
    """
    own = CollectorRegistry()
    own.register(ServiceCollector(service, caller.sees))
    text = generate_latest(own) + (generate_latest(registry) if caller.sees is None else b"")
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})
