"""Computations that are answered at once: validate a request, evaluate a plan, time a pipeline.

Routes only. The work is done in child processes, a few at a time.
"""

from __future__ import annotations

import threading
from typing import Annotated

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Body, Request
from fastapi.responses import Response
from pydantic import TypeAdapter

from app.api.answers import Evaluation, EvaluationRequest, Validation
from app.api.examples import REQUEST_EXAMPLES
from app.api.headers import Service
from app.api.problems import documented
from models.outcome import Reason
from models.request import PlanRequest
from models.schedule import PipelineProblem, PipelineSchedule

router = APIRouter(prefix="/v1", tags=["direct"])
REASONS = TypeAdapter(list[Reason])
ERRORS = documented(400, 408, 413, 415, 422, 500, 503)
JSON = "application/json"


@router.post("/plans:validate", response_model=Validation, responses=ERRORS, summary="Check a request, without search")
def validate_request(
    request: Annotated[PlanRequest, Body(openapi_examples=REQUEST_EXAMPLES)], service: Service
) -> Validation:
    """Contradictions and capacity arithmetic: typed reasons with the numbers that clash, or none."""
    reasons = REASONS.validate_json(service.validate(request))
    return Validation(feasible=not reasons, reasons=reasons)


@router.post("/plans:evaluate", response_model=Evaluation, responses=ERRORS, summary="Judge a plan that you made")
def evaluate_plan(body: EvaluationRequest, service: Service) -> Response:
    """The judge checks every rule from the request and the plan alone, whoever made the plan."""
    verdict = service.evaluate(body.request, body.plan)
    return Response(b'{"verdict":' + verdict + b"}", media_type=JSON)


@router.post("/schedules", response_model=PipelineSchedule, responses=ERRORS, summary="Time a placed pipeline")
async def schedule_pipeline(problem: PipelineProblem, service: Service, http: Request) -> Response:
    """The best order and start of every operation of one pipeline, with its bound; ends early if the client leaves."""
    gone = threading.Event()
    answer: list[bytes] = []

    async def watch_client() -> None:
        while not await http.is_disconnected():
            await anyio.sleep(service.settings.event_poll_s)
        gone.set()

    failure: list[Exception] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_client)
        try:
            answer.append(await run_sync(lambda: service.schedule(problem, stop_asked=gone.is_set)))
        except Exception as error:
            # Raised below: a task group would wrap it, and the error handlers look at the type.
            failure.append(error)
        tasks.cancel_scope.cancel()
    if failure:
        raise failure[0]
    return Response(answer[0], media_type=JSON)
