"""The plan resource: submit, list, read, cancel, delete."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response

from app.api.answers import envelope, etag, status
from app.api.examples import PLAN_CONTENT, REQUEST_EXAMPLES
from app.api.headers import Asking, IdempotencyKey, Service, Urgency, WaitS, matches
from app.api.problems import documented, existing, gone
from app.api.shortcut import together
from app.api.strict import StrictRoute
from app.api.tags import PlanSubmission, cursor_of, next_cursor, next_page, wanted_plans
from app.documents import read_plan
from app.faults import Refused, refused
from app.jobs.access import Caller
from app.jobs.response_cache import CachedResponse
from app.jobs.service import PlanService
from app.jobs.submission import Submitted
from app.storage.listing import Wanted
from app.storage.plans import PlanRow
from app.wire import PlanEnvelope, PlanPage, PlanStatus
from models.plan import Plan
from models.request import PlanRequest

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute)
PlanId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_]{1,40}$", description="Name of the plan.")]
IfNoneMatch = Annotated[str | None, Header(description="Entity tags that the client has.")]
IfMatch = Annotated[str | None, Header(description="Remove the plan only as it is under one of these entity tags.")]
JSON = "application/json"
AGAIN = {"Retry-After": "1"}  # for a status that will change
RAW_AGAIN = ((b"retry-after", b"1"),)


def queues_a_plan(*more: int) -> dict[str, Any]:
    """What a route declares that queues a plan; `more` are statuses that not all of them answer."""
    whole = {"model": PlanEnvelope, "description": "Ended within the time of `Prefer: wait`: the whole plan.",
             "content": PLAN_CONTENT}  # fmt: skip
    responses = {200: whole, **documented(400, 408, 409, 413, 415, 422, 429, 503, *more)}
    return {"status_code": 202, "response_model": PlanStatus, "responses": responses}


@router.post(
    "", **queues_a_plan(), response_description="Queued; the plan will be at `Location`.", summary="Ask for a plan"
)
async def submit_plan(
    body: Annotated[PlanSubmission, Body(openapi_examples=REQUEST_EXAMPLES)],
    service: Service,
    caller: Asking,
    wait_s: WaitS,
    key: IdempotencyKey,
    urgency: Urgency = None,
) -> Response:
    """Queue the request and answer 202 with its `Location`; with `Prefer: wait=N`, 200 if it ends in time."""
    with service.holding_key(key, caller.owner):
        submit = partial(service.submit, body.request, key, caller=caller, urgency=urgency, tag=body.tag)
        return await answer_of(service, submit, wait_s)


async def answer_of(service: PlanService, submit: Callable[[], Submitted], wait_s: float | None) -> Response:
    """The answer to a submission: 202, or 200 with the whole plan when it ends in the time that the client waits."""

    def submit_and_look() -> tuple[Submitted, PlanRow | None, bytes]:
        submitted = submit()
        row = submitted.row
        if row is not None:
            return submitted, row, _compact(status(row, queue_position=submitted.queue_position, now=time.time()))
        row = service.plans.get(submitted.plan_id)
        return submitted, row, b"" if row is None else _compact(_status(service, row))

    submitted, row, body = await service.write(submit_and_look)
    service.list_responses.clear()
    if wait_s:
        row = await _ended(service, submitted.plan_id, wait_s)
        body = b"" if row is None else await run_sync(lambda: _compact(_status(service, row)))
    if row is None:
        raise gone("plan", submitted.plan_id)
    headers = {"Location": f"/v1/plans/{row.id}"}
    if wait_s is not None:
        headers["Preference-Applied"] = f"wait={wait_s:g}"
    if not submitted.is_new:
        headers["Idempotency-Replayed"] = "true"
    if row.is_terminal and wait_s is not None:
        return Response(envelope(row), media_type=JSON, headers={**headers, "ETag": etag(row.id, row.revision)})
    # A status has no tag: the plan's names the whole plan, and packed answers are kept by their tags.
    return Response(body, status_code=202, headers={**headers, "Retry-After": "1"}, media_type=JSON)


@router.get("", response_model=PlanPage, responses=documented(400, 503), summary="List plans, newest first",
            response_description="One page of light views.")  # fmt: skip
async def list_plans(
    service: Service,
    caller: Asking,
    http: Request,
    wanted: Annotated[Wanted, Depends(wanted_plans)],
    limit: Annotated[int, Query(ge=1, le=200, description="Plans of a page.")] = 50,
    cursor: Annotated[str | None, cursor_of("plan", 32)] = None,
) -> Response:
    """A page of light views; `next_cursor` leads to the next one."""
    lists = service.list_responses
    num_changes = lists.num_changes
    question = ("plans", service, caller.sees, wanted, limit, cursor)
    look = partial(run_sync, partial(_page, service, caller.sees, wanted, limit, cursor))
    text, more = await together(question, look)
    link = next_page("/v1/plans", http.query_params, more)
    if num_changes == lists.num_changes:
        headers = tuple((name.lower().encode(), value.encode()) for name, value in link.items())
        lists.put((caller.sees, http.scope["query_string"]), CachedResponse(caller.sees or "", "", text, headers))
    return Response(text, headers=link, media_type=JSON)


def _page(
    service: PlanService, owner: str | None, wanted: Wanted, limit: int, cursor: str | None
) -> tuple[bytes, str | None]:
    """One page as it is sent, and where the next one begins."""
    rows = service.plans.page(limit=limit + 1, before=cursor, owner=owner, wanted=wanted)
    positions = service.queue_figures.positions(rows[:limit])
    now = time.time()
    items = [status(row, queue_position=positions.get(row.id), now=now) for row in rows[:limit]]
    more = next_cursor(rows, limit)
    return _compact({"items": items, "next_cursor": more}), more


@router.get("/{plan_id}", name="read_plan", response_model=PlanEnvelope,
            responses={200: {"content": PLAN_CONTENT},
                       304: {"description": "The plan is still what `If-None-Match` names."},
                       **documented(400, 404, 503)},
            response_description="The whole plan, as far as it is.", summary="Read a plan")  # fmt: skip
async def read_plan_envelope(
    plan_id: PlanId, service: Service, caller: Asking, if_none_match: IfNoneMatch = None
) -> Response:
    """Everything about a plan, its outcome included."""
    if if_none_match is not None and service.responses.known(plan_id, caller.sees) is None:
        revision = await run_sync(partial(service.plans.revision, plan_id, owner=caller.sees))
        if revision is not None and matches(if_none_match, etag(plan_id, revision)):
            return Response(status_code=304, headers={"ETag": etag(plan_id, revision)})
    cached = await together(("plan", plan_id, caller.sees), lambda: _looked_up(service, plan_id, caller))
    if if_none_match is not None and matches(if_none_match, cached.etag):
        return Response(status_code=304, headers={"ETag": cached.etag})
    return Response(cached.body, media_type=JSON, headers={"ETag": cached.etag})


async def _looked_up(service: PlanService, plan_id: str, caller: Caller) -> CachedResponse:
    """The plan as the database has it now; one that is known and has not changed is not read again."""
    known = service.responses.known(plan_id, caller.sees)
    if known is not None:
        revision = await run_sync(partial(service.plans.revision, plan_id, owner=caller.sees))
        if revision is not None and etag(plan_id, revision) == known.etag:
            service.responses.renew(plan_id, known.etag)
            return known
        service.responses.forget(plan_id)
    row = await run_sync(found, service, plan_id, caller)
    cached = CachedResponse(row.owner, etag(row.id, row.revision), envelope(row))
    if row.is_terminal:
        service.responses.put(plan_id, cached)
    return cached


@router.get(
    "/{plan_id}/status",
    name="read_plan_status",
    response_model=PlanStatus,
    responses=documented(400, 404, 503),
    response_description="State and headline figures.",
    summary="Read the light status of a plan",
)
async def read_status(plan_id: PlanId, service: Service, caller: Asking) -> Response:
    """State, incumbent, bound, gap and queue position, without the plan itself."""
    cached = await together(("status", plan_id, caller.sees), lambda: _status_looked_up(service, plan_id, caller))
    return Response(cached.body, media_type=JSON, headers=AGAIN if cached.headers else None)


async def _status_looked_up(service: PlanService, plan_id: str, caller: Caller) -> CachedResponse:
    def look() -> CachedResponse:
        row = found(service, plan_id, caller, with_outcome=False)
        return CachedResponse(row.owner, "", _compact(_status(service, row)), () if row.is_terminal else RAW_AGAIN)

    cached = await run_sync(look)
    service.status_responses.put(plan_id, cached)
    return cached


@router.get("/{plan_id}/request", response_model=PlanRequest, responses=documented(400, 404, 503),
            response_description="The request with everything filled in.",
            summary="Read the request of a plan")  # fmt: skip
def read_plan_request(plan_id: PlanId, service: Service, caller: Asking) -> Response:
    """The request as it was understood: catalogue names filled in, defaults stated."""
    text = existing("plan", plan_id, service.plans.request(plan_id, owner=caller.sees))
    return Response(text, media_type=JSON)


@router.post("/{plan_id}:cancel", status_code=202, response_model=PlanStatus,
             responses={200: {"model": PlanStatus, "description": "The search has ended."},
                        **documented(400, 404, 503)},
             response_description="The search has been asked to stop, and ends soon.",
             summary="Stop a search and keep its best plan")  # fmt: skip
async def cancel_plan(plan_id: PlanId, service: Service, caller: Asking, wait_s: WaitS) -> Response:
    """A queued plan ends at once, a running one soon; a finished one stays as it is."""
    row = await service.write(partial(service.plans.cancel, plan_id, owner=caller.sees))
    service.forget(plan_id)
    if row is not None and wait_s:
        row = await _ended(service, plan_id, wait_s)
    row = existing("plan", plan_id, row)
    body = await run_sync(_status, service, row)
    return JSONResponse(body, status_code=200 if row.is_terminal else 202)


@router.delete("/{plan_id}", status_code=204, responses=documented(400, 404, 412, 503), summary="Remove a plan",
               response_description="Removed.")  # fmt: skip
async def delete_plan(plan_id: PlanId, service: Service, caller: Asking, if_match: IfMatch = None) -> Response:
    """Remove the plan, its request and its events; a running search is stopped and forgotten."""
    revision = None
    if if_match is not None and if_match.strip() != "*":
        revision = await run_sync(partial(service.plans.revision, plan_id, owner=caller.sees))
        if revision is None:
            raise gone("plan", plan_id)
        if etag(plan_id, revision) not in (one.strip() for one in if_match.split(",")):  # weak tags never match
            raise _changed()
    is_gone = await service.write(partial(service.plans.delete, plan_id, owner=caller.sees, revision=revision))
    service.forget(plan_id)
    if not is_gone:
        raise gone("plan", plan_id) if revision is None else _changed()
    return Response(status_code=204)


def _changed() -> Refused:
    return refused("precondition-failed", "the plan has changed", "", "the strong ETag that it has now, or *",
                   "Read it again with Accept-Encoding: identity, then decide.", where="header If-Match")  # fmt: skip


def found(service: PlanService, plan_id: str, caller: Caller, *, with_outcome: bool = True) -> PlanRow:
    """A plan that the caller may see; another owner's is answered as one that does not exist."""
    return existing("plan", plan_id, service.plans.get(plan_id, with_outcome=with_outcome, owner=caller.sees))


def plan_of(row: PlanRow) -> Plan:
    """The plan that a search has found, refused as long as there is none."""
    if row.outcome is None or json.loads(row.outcome)["status"] != "planned":
        remedy = "Ask about another plan." if row.is_terminal else "Wait until the search has found a plan."
        raise refused("not-finished", f"plan {row.id} ({row.state}) holds no plan", "",
                      "plans whose outcome is planned", remedy, where="path")  # fmt: skip
    return read_plan(row.outcome)


def _compact(document: dict[str, object]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _status(service: PlanService, row: PlanRow) -> dict[str, object]:
    return status(row, queue_position=service.queue_figures.position(row), now=time.time())


async def _ended(service: PlanService, plan_id: str, wait_s: float) -> PlanRow | None:
    """The plan once it has ended, or as it is after `wait_s`."""
    deadline = anyio.current_time() + wait_s
    while True:
        row = await run_sync(service.plans.get, plan_id)
        left_s = deadline - anyio.current_time()
        if row is None or row.is_terminal or left_s <= 0 or service.closing.is_set():
            return row
        await anyio.sleep(min(service.settings.event_poll_s, left_s))
