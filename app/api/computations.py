"""Computations that are answered at once: validate a request, evaluate a plan, time a pipeline."""

from __future__ import annotations

import asyncio
import json
import threading
from functools import partial
from typing import Annotated

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Body, Request
from fastapi.responses import Response

from app.api.examples import EVALUATION_EXAMPLES, REQUEST_EXAMPLES, SCHEDULE_EXAMPLES
from app.api.headers import Asking, Service
from app.api.problems import documented
from app.api.strict import StrictRoute
from app.api.tags import PlanSubmission
from app.documents import canonical, digest
from app.storage.plans import PlanRow
from app.wire import Evaluation, EvaluationRequest, Validation
from models.outcome import RequestCheck
from models.schedule import PipelineProblem, PipelineSchedule

router = APIRouter(prefix="/v1", tags=["direct"], route_class=StrictRoute)
ERRORS = documented(400, 408, 413, 415, 422, 429, 500, 503)
JSON = "application/json"


@router.post("/plans:validate", response_model=Validation, responses=ERRORS, summary="Check a request, without search",
             response_description="What arithmetic says of the request.")  # fmt: skip
def validate_request(
    body: Annotated[PlanSubmission, Body(openapi_examples=REQUEST_EXAMPLES)], service: Service, caller: Asking
) -> Validation:
    """Contradictions, capacity arithmetic and the linter: what refuses the request, what looks wrong, what follows.

    `reasons` are typed, with the numbers that clash. `diagnostics` has them again as errors, then warnings (suspicious
    units, idle pools, delays that no fibre has) and notes (sizes, defaults), each with its place in the request.
    """
    checked = service.validate(service.with_profile(body.request, caller), caller)
    return Validation.of(RequestCheck.model_validate_json(checked))


@router.post("/plans:evaluate", response_model=Evaluation, responses=ERRORS, summary="Judge a plan that you made",
             response_description="The verdict, the time by replay, and ours beside it.")  # fmt: skip
def evaluate_plan(
    body: Annotated[EvaluationRequest, Body(openapi_examples=EVALUATION_EXAMPLES)], service: Service, caller: Asking
) -> Response:
    """The judge checks every rule from the request and the plan alone, and a replay times it, whoever made it.

    The time is compared with that of our latest plan for the same request, if there is one. A plan of this service is
    `outcome.plan` of `GET /v1/plans/{plan_id}`, its request `GET /v1/plans/{plan_id}/request`.
    """
    request = service.with_profile(body.request, caller)
    verdict, replayed = service.evaluate(request, body.plan, caller)
    ours = service.plans.latest_of(digest(canonical(request)), owner=caller.sees)
    stated_s = body.plan.metrics.iteration_s
    comparison = None if ours is None else json.dumps(_comparison(ours, json.loads(replayed) or stated_s)).encode()
    parts = (b'{"verdict":', verdict, b',"replayed_iteration_s":', replayed, b',"comparison":', comparison or b"null")
    return Response(b"".join((*parts, b"}")), media_type=JSON)


def _comparison(ours: PlanRow, given_s: float) -> dict[str, object]:
    figures = json.loads(ours.headline or b"{}")
    ours_s = figures["iteration_s"]
    return {
        "plan_id": ours.id,
        "iteration_s": ours_s,
        "lower_bound_s": figures["lower_bound_s"],
        "times_as_slow": given_s / ours_s if ours_s else None,
    }


@router.post("/schedules", response_model=PipelineSchedule, responses=ERRORS, summary="Time a placed pipeline",
             response_description="The schedule with its bound.")  # fmt: skip
async def schedule_pipeline(
    problem: Annotated[PipelineProblem, Body(openapi_examples=SCHEDULE_EXAMPLES)],
    service: Service,
    caller: Asking,
    http: Request,
) -> Response:
    """The best order and start of every operation of one pipeline, with its bound; ends early if the client leaves."""
    gone = threading.Event()

    async def watch_client() -> None:
        while not await http.is_disconnected():
            await anyio.sleep(service.settings.event_poll_s)
        gone.set()

    # No task group: it would wrap what is raised, and the error handlers look at the type.
    watching = asyncio.create_task(watch_client())
    try:
        answer = await run_sync(partial(service.schedule, problem, caller, stop_asked=gone.is_set))
    finally:
        watching.cancel()
    return Response(answer, media_type=JSON)
