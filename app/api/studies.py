"""The study resource: a grid of what-ifs over one request, queued together and read as one table."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Body, Depends, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from app.api.examples import STUDY_EXAMPLES
from app.api.headers import Asking, IdempotencyKey, Service, Urgency
from app.api.problems import documented, existing, gone
from app.api.questions import FORMS, AnswerForm
from app.api.strict import StrictRoute
from app.api.tags import Tagged, cursor_of, next_cursor, next_page, wanted_studies
from app.exporters.report.answer_picture import study_picture
from app.jobs.access import STUDY_URGENCY, Caller
from app.jobs.findings import findings, study_table
from app.jobs.service import PlanService
from app.jobs.studies import StudyOrder, submit_study
from app.storage.listing import Wanted, labels_of
from app.storage.plans import PlanRow
from app.storage.studies import StudyRow
from app.wire import Answer, NextCursor, Study, StudyHead
from app.words import when

router = APIRouter(prefix="/v1/studies", tags=["studies"], route_class=StrictRoute)
StudyId = Annotated[str, Path(pattern=r"^study_[0-9a-f]{28}$", description="Name of the study.")]
MAX_AXES = 8


class StudyRequest(Tagged, Answer):
    """One request and what is to vary in it. The members are every combination of the axes, then every patch."""

    base: dict[str, Any] = Field(
        description="The request that all members start from: a body of POST /v1/plans.",
        examples=[{"cluster": "two-buildings", "workload": {"architecture": "llama-3.1-405b"}}],
    )
    axes: dict[str, list[Any]] = Field(
        default_factory=dict,
        max_length=MAX_AXES,
        description="JSON Pointers into the base request with the values to put there; all combinations are planned.",
        examples=[{"/workload/global_batch_sequences": [1024, 2048], "/constraints/max_gpus": [8192, 16384]}],
    )
    patches: list[dict[str, Any]] = Field(
        default_factory=list,
        max_length=10_000,
        description="JSON merge patches (RFC 7396) of the base request; each gives one plan.",
        examples=[[{"constraints": {"pipeline_may_cross_buildings": False}}]],
    )


class StudyPage(Answer):
    """Some studies, newest first."""

    items: list[StudyHead] = Field(description="Light views.")
    next_cursor: NextCursor


@router.post("", name="submit_study", status_code=202, response_model=Study,
             responses=documented(400, 408, 409, 413, 415, 422, 429, 503),
             response_description="Queued; the study will be at `Location`.",
             summary="Plan a grid of requests")  # fmt: skip
async def submit_a_study(
    body: Annotated[StudyRequest, Body(openapi_examples=STUDY_EXAMPLES)],
    service: Service,
    caller: Asking,
    key: IdempotencyKey,
    urgency: Urgency = None,
) -> Response:
    """Queue one plan per member behind usual plans, and answer 202 with the study's `Location`."""
    order = StudyOrder(body.tag, body.base, body.axes, body.patches)
    chosen = STUDY_URGENCY if urgency is None else urgency
    held = None if key is None else f"study:{key}"
    with service.holding_key(held, caller.owner):
        submit = partial(submit_study, service, order, caller=caller, urgency=chosen, key=key)
        submitted = await service.write(submit)
    service.list_responses.clear()
    row = await run_sync(found_study, service, submitted.plan_id, caller)
    headers = {"Location": f"/v1/studies/{row.id}", "Retry-After": "5"}
    if not submitted.is_new:
        headers["Idempotency-Replayed"] = "true"
    return JSONResponse(await run_sync(_study, service, row), status_code=202, headers=headers)


@router.get("", response_model=StudyPage, responses=documented(400, 503), summary="List studies, newest first",
            response_description="One page of light views.")  # fmt: skip
def list_studies(
    service: Service,
    caller: Asking,
    http: Request,
    limit: Annotated[int, Query(ge=1, le=200, description="Studies of a page.")] = 50,
    cursor: Annotated[str | None, cursor_of("study", 28)] = None,
    *,
    wanted: Annotated[Wanted, Depends(wanted_studies)],
) -> Response:
    """A page of light views; `next_cursor` leads to the next one."""
    rows = service.studies.page(limit=limit + 1, before=cursor, owner=caller.sees, wanted=wanted)
    counts = service.studies.counts_of([row.id for row in rows[:limit]])
    items = [_head(row, counts[row.id]) for row in rows[:limit]]
    more = next_cursor(rows, limit)
    return JSONResponse(
        {"items": items, "next_cursor": more}, headers=next_page("/v1/studies", http.query_params, more)
    )


@router.get("/{study_id}", response_model=Study, responses=documented(400, 404, 503), summary="Read a study",
            response_description="The table as it stands.")  # fmt: skip
def read_study(study_id: StudyId, service: Service, caller: Asking) -> Response:
    """Every member with its state and headline figures."""
    body = _study(service, found_study(service, study_id, caller))
    return JSONResponse(body, headers={} if body["state"] == "done" else {"Retry-After": "5"})


@router.get("/{study_id}/{form}", name="read_study_form",
            responses={200: {"content": {"text/csv": {}, "image/svg+xml": {}}, "description": "The study as it is."},
                       **documented(400, 404, 503)},
            response_class=Response, summary="Read a study as a table or a picture")  # fmt: skip
def read_form(study_id: StudyId, form: AnswerForm, service: Service, caller: Asking) -> Response:
    """The members as CSV; or their times over their GPUs, with bounds and frontier, as SVG."""
    body = Study.model_validate(_study(service, found_study(service, study_id, caller)))
    return Response(study_table(body) if form == "table" else study_picture(body.findings), media_type=FORMS[form])


@router.post("/{study_id}:cancel", response_model=Study, responses=documented(400, 404, 503),
             response_description="Every plan that has not ended is asked to.",
             summary="Stop what is left of a study")  # fmt: skip
async def cancel_study(study_id: StudyId, service: Service, caller: Asking) -> Response:
    """Queued plans end at once, running ones soon, each with the best it has; finished ones stay."""
    row = await run_sync(found_study, service, study_id, caller)
    await service.write(partial(service.studies.cancel, row.id))
    service.forget()
    return JSONResponse(await run_sync(_study, service, row))


@router.delete("/{study_id}", status_code=204, responses=documented(400, 404, 503), summary="Remove a study",
               response_description="Removed.")  # fmt: skip
async def delete_study(study_id: StudyId, service: Service, caller: Asking) -> Response:
    """Remove the study and all its plans; running searches are stopped and forgotten."""
    is_gone = await service.write(partial(service.studies.delete, study_id, owner=caller.sees))
    service.forget()
    if not is_gone:
        raise gone("study", study_id)
    return Response(status_code=204)


def found_study(service: PlanService, study_id: str, caller: Caller) -> StudyRow:
    """A study that the caller may see; another owner's is answered as one that does not exist."""
    return existing("study", study_id, service.studies.get(study_id, owner=caller.sees))


def _head(row: StudyRow, counts: dict[str, int]) -> dict[str, Any]:
    state = "running" if counts.get("running") else "queued" if counts.get("queued") else "done"
    if state == "queued" and set(counts) - {"queued", "refused", "deleted"}:
        state = "running"
    return {
        "id": row.id,
        "name": row.name,
        "labels": labels_of(row.labels),
        "state": state,
        "created_at": when(row.created_at),
        "counts": counts,
    }


def _study(service: PlanService, row: StudyRow) -> dict[str, Any]:
    plans = service.studies.plans_of(row.id)
    members = [_member(number, one, plans.get(number)) for number, one in enumerate(row.member_list())]
    counts = Counter(member["state"] for member in members)
    profiles = [one.get("stack_profile", "") for one in row.member_list()]
    objectives = [one.get("objective", "iteration_time") for one in row.member_list()]
    found = findings(members, profiles, objectives).model_dump(mode="json")
    return {**_head(row, counts), "members": members, "findings": found}


def _member(number: int, stored: dict[str, Any], plan: PlanRow | None) -> dict[str, Any]:
    absent = "refused" if stored["faults"] else "deleted"
    return {
        "index": number,
        "changes": stored["changes"],
        "plan_id": None if plan is None else plan.id,
        "state": absent if plan is None else plan.state,
        "stop_reason": None if plan is None else plan.stop_reason,
        "figures": None if plan is None or plan.headline is None else json.loads(plan.headline),
        "faults": stored["faults"],
    }
