"""Plans from plans and beside them: with something changed, searched on, what moved, and two plans compared."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Body, Query
from fastapi.responses import Response
from pydantic import Field

from app.api.answers import question_envelope
from app.api.examples import REPLAN_EXAMPLES, RESUME_EXAMPLES
from app.api.headers import Asking, IdempotencyKey, Service, Urgency, WaitS
from app.api.plans import PlanId, answer_of, found, plan_of, queues_a_plan
from app.api.problems import documented, existing, not_found
from app.api.strict import StrictRoute
from app.api.tags import Tagged
from app.compared import MoveReport, PlanComparison, PlanSummary
from app.documents import read_model
from app.faults import Fault, Refused, refused, retold
from app.jobs.access import Caller
from app.jobs.comparison import comparison, differences, moves_between, predicted, summary
from app.jobs.patches import merged, told_of_patch, without_places
from app.jobs.resuming import begins_with
from app.jobs.service import PlanService
from app.storage.plans import PlanRow
from app.storage.searches import KeptSearch
from app.wire import Answer, QuestionStatus
from models.base import Fraction, Frozen
from models.request import PlanRequest

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute)
# Pointers into a request begin with these, those into what else a submission holds do not.
PARTS = tuple(f"/{name}" for name in PlanRequest.model_fields)
FORBIDDEN = "/constraints/forbidden_places"
OtherId = Annotated[str, Query(pattern=r"^[A-Za-z0-9_]{1,40}$", description="Name of the plan to lay beside it.")]


class Replan(Tagged, Answer):
    """What has changed since a plan was made."""

    patch: dict[str, Any] = Field(
        default_factory=dict,
        description="JSON merge patch (RFC 7396) of the plan's request; lists are replaced as a whole.",
        examples=[{"constraints": {"max_gpus": 8192}}],
    )
    lost_places: Annotated[list[str], Field(max_length=1000)] = Field(
        default_factory=list,
        description="Places that are gone: they join constraints.forbidden_places, and links that end in them are "
        "removed.",
        examples=[["west-1"]],
    )


class Resume(Tagged, Frozen):
    """How much longer to search."""

    time_limit_s: Annotated[float, Field(gt=0, le=86_400, json_schema_extra={"unit": "s"})] | None = Field(
        None, description="Time for the new search; null: as long as the one before.", examples=[600.0]
    )
    relative_gap: Fraction | None = Field(
        None, description="Stop when (time - bound) / time is at most this; null: as before.", examples=[0.005]
    )


@router.post("/{plan_id}:replan", **queues_a_plan(404),
             response_description="The new plan is queued; it will be at `Location`.",
             summary="Plan again with something changed")  # fmt: skip
async def replan(
    plan_id: PlanId,
    body: Annotated[Replan, Body(openapi_examples=REPLAN_EXAMPLES)],
    service: Service,
    caller: Asking,
    wait_s: WaitS,
    key: IdempotencyKey,
    urgency: Urgency = None,
) -> Response:
    """A new plan from an old one's request: a lost building, another capacity; the old plan stays as it is."""
    with service.holding_key(key, caller.owner):
        text = existing("plan", plan_id, await run_sync(partial(service.plans.request, plan_id, owner=caller.sees)))
        request = await run_sync(_changed, text, body)
        submit = partial(service.submit, request, key, caller=caller, urgency=urgency, parent_id=plan_id, tag=body.tag)
        return await answer_of(service, retold(partial(_in_body, body))(submit), wait_s)


@router.get("/{plan_id}/moves", name="read_plan_moves", response_model=MoveReport,
            responses=documented(400, 404, 409, 503), summary="Read what moved against the parent",
            response_description="How many stage groups move, from where to where.")  # fmt: skip
def read_moves(plan_id: PlanId, service: Service, caller: Asking) -> MoveReport:
    """The least number of stage groups that move between a plan of `:replan` and the plan it was made from."""
    row = found(service, plan_id, caller)
    if row.parent_id is None:
        raise _no_parent(f"plan {plan_id} was not made from another plan")
    parent = service.plans.get(row.parent_id, owner=caller.sees)
    if parent is None:
        raise _no_parent(f"the plan that {plan_id} was made from has been removed")
    report = moves_between(plan_of(parent), plan_of(row))
    return MoveReport(parent_id=parent.id, **report.model_dump())


@router.get("/{plan_id}/comparison", name="read_plan_comparison", response_model=PlanComparison,
            responses=documented(400, 404, 409, 503), summary="Compare two plans",
            response_description="Figures, times, bytes, money, choices and requests of both.")  # fmt: skip
def read_comparison(plan_id: PlanId, service: Service, caller: Asking, other: OtherId) -> PlanComparison:
    """This plan (a) beside another (b): what was asked, what was chosen, what it takes, and what would move."""
    rows = found(service, plan_id, caller), found(service, other, caller)
    first, second = (plan_of(one) for one in rows)
    asked = [json.loads(service.plans.request(one.id, owner=caller.sees) or b"{}") for one in rows]
    same_job = asked[0].get("workload") == asked[1].get("workload")
    bars = predicted(first, second, same_job=same_job)
    return PlanComparison(other_id=other, request=differences(*asked), predicted=bars, **comparison(first, second))


@router.get("/{plan_id}/summary", name="read_plan_summary", response_model=PlanSummary,
            responses=documented(400, 404, 409, 503), summary="Read a plan in short",
            response_description="Figures, time by cause, error bars, loads of links, memory.")  # fmt: skip
def read_summary(plan_id: PlanId, service: Service, caller: Asking) -> PlanSummary:
    """The plan without its timelines; of a running search, its best plan so far."""
    return PlanSummary(**summary(plan_of(found(service, plan_id, caller))))


@router.get("/{plan_id}/losses", name="read_plan_losses", response_model=QuestionStatus,
            responses=documented(400, 404, 503), summary="Read what was prepared for losses of a plan",
            response_description="The newest question `what_if_lost` about the plan.")  # fmt: skip
def read_losses(plan_id: PlanId, service: Service, caller: Asking) -> Response:
    """What to do when a building, pool or link of the plan is lost: the answers that were prepared for it."""
    found(service, plan_id, caller)
    row = service.questions.newest_about(plan_id, "what_if_lost", owner=caller.sees)
    if row is None:
        raise not_found(f"nothing was prepared for losses of {plan_id!r}",
                        "Ask POST /v1/questions what_if_lost about its plan_id first.")  # fmt: skip
    return Response(question_envelope(row, now=time.time()), media_type="application/json")


@router.post("/{plan_id}:resume", **queues_a_plan(404),
             response_description="The new plan is queued; it will be at `Location`.",
             summary="Search on where a search has ended")  # fmt: skip
async def resume(
    plan_id: PlanId,
    body: Annotated[Resume, Body(openapi_examples=RESUME_EXAMPLES)],
    service: Service,
    caller: Asking,
    wait_s: WaitS,
    key: IdempotencyKey,
    urgency: Urgency = None,
) -> Response:
    """A new plan of the same request, whose search begins with the plan, the bounds and the frontier of the old one.

    It is never worse than the old plan, which stays as it is, and its `notes` say where it began. The state of a search
    is kept for a while and holds for the program version that wrote it; without it the plan alone is begun with.
    """
    with service.holding_key(key, caller.owner):
        request, kept = await run_sync(_to_go_on, service, plan_id, body, caller)
        submit = partial(service.submit, request, key, caller=caller, urgency=urgency, parent_id=plan_id, tag=body.tag,
                         begins_with=kept)  # fmt: skip
        return await answer_of(service, retold(_in_options)(submit), wait_s)


def _changed(text: bytes, body: Replan) -> PlanRequest:
    with retold(partial(_in_body, body)):
        request = read_model(PlanRequest, merged(json.loads(text), body.patch))
        return without_places(request, body.lost_places) if body.lost_places else request


def _in_body(body: Replan, fault: Fault) -> Fault:
    """A fault of the changed request, told of what the body changes."""
    if not fault.pointer.startswith(PARTS):
        return fault
    if not body.lost_places or (body.patch and not fault.pointer.startswith(FORBIDDEN)):
        return told_of_patch(fault, body.patch, "/patch")
    after = "" if fault.pointer.startswith(FORBIDDEN) else f"after the losses {fault.pointer} is refused: "
    instead = "lost_places (of the patch's constraints.forbidden_places, if it was forbidden before)"
    remedy = fault.remedy.replace("constraints.forbidden_places", instead)
    return replace(fault, pointer="/lost_places", what=after + fault.what, remedy=remedy)


def _no_parent(what: str) -> Refused:
    return refused("not-finished", what, "", "plans of :replan or :resume whose parent is still there",
                   "Compare it with any other plan: GET /v1/plans/{plan_id}/comparison?other=...",
                   where="path")  # fmt: skip


def _to_go_on(service: PlanService, plan_id: str, body: Resume, caller: Caller) -> tuple[PlanRequest, KeptSearch]:
    """The request with the new limits, and what the search begins with."""
    row = found(service, plan_id, caller)
    if not row.is_terminal:
        raise _nothing_to_resume(row, "Wait until it has ended, or cancel it first: its best plan and state are kept.")
    if row.state == "infeasible":
        raise _nothing_to_resume(row, "That there is no plan is proven; change the request with :replan.")
    document = json.loads(service.plans.request(plan_id, owner=caller.sees) or b"{}")
    given = {"time_limit_s": body.time_limit_s, "relative_gap": body.relative_gap}
    options = {**document["options"], **{name: value for name, value in given.items() if value is not None}}
    request = read_model(PlanRequest, {**document, "options": options})
    return request, begins_with(service.engine, row)


def _in_options(fault: Fault) -> Fault:
    """A fault of the options of the request at the field of the body that sets them."""
    return replace(fault, pointer=fault.pointer.removeprefix("/options"))


def _nothing_to_resume(row: PlanRow, remedy: str) -> Refused:
    allowed = "plans whose search has ended without a proof that there is none"
    return refused("not-finished", f"plan {row.id} is {row.state}", "", allowed, remedy, where="path")
