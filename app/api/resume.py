"""A search that has ended goes on as a new plan: "give it ten more minutes"."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Body
from fastapi.responses import Response
from pydantic import Field

from app.api.examples import RESUME_EXAMPLES
from app.api.headers import Asking, IdempotencyKey, Service, Urgency, WaitS
from app.api.plans import PlanId, answer_of, found, queues_a_plan
from app.api.strict import StrictRoute
from app.api.tags import Tagged
from app.documents import read_model
from app.faults import Fault, Refused, refused, retold
from app.jobs.access import Caller
from app.jobs.resuming import begins_with
from app.jobs.service import PlanService
from app.storage.plans import PlanRow
from app.storage.searches import KeptSearch
from models.base import Fraction, Frozen
from models.request import PlanRequest

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute)


class Resume(Tagged, Frozen):
    """How much longer to search."""

    time_limit_s: Annotated[float, Field(gt=0, le=86_400, json_schema_extra={"unit": "s"})] | None = Field(
        None, description="Time for the new search; null: as long as the one before.", examples=[600.0]
    )
    relative_gap: Fraction | None = Field(
        None, description="Stop when (time - bound) / time is at most this; null: as before.", examples=[0.005]
    )


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
        return await answer_of(service, retold(_in_body)(submit), wait_s)


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


def _in_body(fault: Fault) -> Fault:
    """A fault of the options of the request at the field of the body that sets them."""
    return replace(fault, pointer=fault.pointer.removeprefix("/options"))


def _nothing_to_resume(row: PlanRow, remedy: str) -> Refused:
    allowed = "plans whose search has ended without a proof that there is none"
    return refused("not-finished", f"plan {row.id} is {row.state}", "", allowed, remedy, where="path")
