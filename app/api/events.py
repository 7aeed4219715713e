"""The event stream of a plan: server-sent events, numbered as they are stored, so any process can go on with it."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

import anyio
import sqlalchemy as sa
from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Query
from fastapi.responses import Response, StreamingResponse

from app.api.headers import Asking, PlaceToWait, Service
from app.api.plans import PlanId, found
from app.api.problems import documented
from app.api.strict import StrictRoute
from app.jobs.service import PlanService
from app.storage.outages import is_outage
from app.words import when

LOG = logging.getLogger("isthmus.api")
router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute)
KEEP_ALIVE_S = 15.0
LAST_EVENT = 10**12 - 1
MEDIA_TYPE = "text/event-stream"
STREAM = (
    "Events of four kinds: `state` (with a `reason` when a plan waits again), `progress`, `incumbent` (a better plan "
    "is stored) and, at last, `done`."
)
# Before OpenAPI 3.2 the schema of an event stream is that of one event, its fields as text.
EVENT_SCHEMA = {
    "type": "object",
    "description": "One event.",
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]{1,12}$", "description": "Number of the event; give it to go on."},
        "event": {
            "type": "string",
            "enum": ["state", "progress", "incumbent", "done"],
            "description": "What it tells.",
        },
        "data": {"type": "string", "contentMediaType": "application/json", "description": "A JSON object."},
    },
    "required": ["id", "event", "data"],
}

EXAMPLE = {
    "id": "4",
    "event": "incumbent",
    "data": '{"at":"2026-01-01T00:00:12.500Z","iteration_s":6.45,"lower_bound_s":6.1,"relative_gap":0.05}',
}


@router.get("/{plan_id}/events", response_class=StreamingResponse,
            dependencies=[PlaceToWait],
            responses={200: {"description": STREAM,
                             "content": {MEDIA_TYPE: {"schema": EVENT_SCHEMA, "example": EXAMPLE}}},
                       204: {"description": "The plan has ended and every event was delivered."},
                       **documented(400, 404, 429, 503)},
            summary="Follow a search")  # fmt: skip
async def follow_plan(
    plan_id: PlanId,
    service: Service,
    caller: Asking,
    last_event_id: Annotated[
        str | None, Header(pattern=r"^[0-9]{1,12}$", description="Number of the last event that was received.")
    ] = None,
    after: Annotated[int, Query(ge=0, le=LAST_EVENT, description="The same, for clients that cannot set headers.")] = 0,
) -> Response:
    """Every event after the last one received, then new ones as they happen, until `done`."""
    start = int(last_event_id) if last_event_id is not None else after
    row = await run_sync(partial(found, service, plan_id, caller, with_outcome=False))
    if row.is_terminal and start >= row.num_events:
        return Response(status_code=204)
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(service, plan_id, start), media_type=MEDIA_TYPE, headers=headers)


async def _events(service: PlanService, plan_id: str, start: int) -> AsyncIterator[str]:
    """The stream; without the database it ends, and its reader comes back for the rest."""
    try:
        async for text in _news(service, plan_id, start):
            yield text
    except sa.exc.SQLAlchemyError as error:
        if not is_outage(error):
            raise
        LOG.error("an event stream ends: the database does not answer", extra={"detail": str(error)[:500]})


async def _news(service: PlanService, plan_id: str, start: int) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    sent, quiet_since = start, anyio.current_time()
    while not service.closing.is_set():
        rows = await run_sync(partial(service.plans.events, plan_id, after=sent))
        for sequence, kind, at, data in rows:
            yield as_text(sequence, kind, at, data)
            sent, quiet_since = sequence, anyio.current_time()
            if kind == "done":
                return
        if not rows and await run_sync(service.plans.revision, plan_id) is None:
            return
        if anyio.current_time() - quiet_since > KEEP_ALIVE_S:
            yield ": still searching\n\n"
            quiet_since = anyio.current_time()
        await anyio.sleep(service.settings.event_poll_s)


def as_text(sequence: int, kind: str, at: float, data: bytes) -> str:
    """One event on the wire.

    >>> as_text(3, "state", 0.0, b'{"state":"queued"}').splitlines()[:2]
    ['id: 3', 'event: state']
    """
    body = json.dumps({"at": when(at), **json.loads(data)}, separators=(",", ":"))
    return f"id: {sequence}\nevent: {kind}\ndata: {body}\n\n"
