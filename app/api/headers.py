"""Request headers with a meaning of their own: Prefer, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Header, Request

from app.api.authentication import CALLER
from app.faults import Fault, Refused, refused
from app.jobs.access import LEAST_URGENT, Busy, Caller
from app.jobs.service import PlanService
from app.storage.queue import MOST_URGENT

_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?:$|[,;])", re.IGNORECASE)
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


async def service_of(request: Request) -> PlanService:
    """The service that this application was made for."""
    service: PlanService = request.app.state.service
    return service


Service = Annotated[PlanService, Depends(service_of)]


async def caller_of_request(request: Request) -> Caller:
    """Who asks, as authentication has found out."""
    caller: Caller = request.scope[CALLER]
    return caller


Asking = Annotated[Caller, Depends(caller_of_request)]
Urgency = Annotated[
    int | None,
    Header(
        alias="Isthmus-Priority",
        ge=MOST_URGENT,
        le=LEAST_URGENT,
        description="0 (most urgent) to 7. 1 to 7 order the plans of one key, 3 is usual and 6 that of studies; 0 goes "
        "before the plans of every key and needs the scope admin.",
        examples=[3],
    ),
]


async def wait_s(
    service: Service,
    caller: Asking,
    prefer: Annotated[
        str | None, Header(max_length=200, description="`wait=N`: answer 200 if the plan ends within N seconds.")
    ] = None,
) -> AsyncIterator[float | None]:
    """Seconds that the client prefers to wait, capped; None when it does not say, or when too many wait already."""
    found = _WAIT.search(prefer or "")
    if found is None:
        yield None
        return
    with service.waiting.place(caller) as there_is_room:
        yield min(float(found.group(1)), service.settings.max_wait_s) if there_is_room else None


WaitS = Annotated[float | None, Depends(wait_s)]


async def place_to_wait(service: Service, caller: Asking) -> AsyncIterator[None]:
    """Room for a client that stays until something happens, given back when it has left."""
    with service.waiting.place(caller) as there_is_room:
        if not there_is_room:
            fault = Fault("too-many-waiting", "as many clients wait for news as may", "",
                          f"{service.settings.max_waiting_clients} of this process, "
                          f"{service.settings.max_waiting_per_key} of one key",
                          "Close an event stream, or ask for the status now and then.", "the service")  # fmt: skip
            raise Busy(fault, retry_after_s=10)
        yield


PlaceToWait = Depends(place_to_wait)


async def idempotency_key(
    service: Service,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="Any text of 1 to 255 visible characters; the same key makes one plan.",
            json_schema_extra={"minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
        ),
    ] = None,
) -> str | None:
    """The key of a submission, checked."""
    if idempotency_key is None:
        if service.settings.require_idempotency_key:
            raise _bad_key("idempotency-key-missing", "the Idempotency-Key header is missing")
        return None
    key = idempotency_key.strip().strip('"')
    if not _KEY.fullmatch(key):
        raise _bad_key("idempotency-key-malformed", f"the key has {len(key)} characters or odd ones")
    return key


IdempotencyKey = Annotated[str | None, Depends(idempotency_key)]


def _bad_key(code: str, what: str) -> Refused:
    return refused(code, what, "", "1 to 255 visible ASCII characters", "Send a fresh random key, such as a UUID.",
                   where="header Idempotency-Key")  # fmt: skip


def matches(if_none_match: str | None, etag: str) -> bool:
    """Whether the client has this version already.

    >>> matches('"a-1", W/"b-2"', '"b-2"'), matches("*", '"x"'), matches(None, '"x"')
    (True, True, False)
    """
    if if_none_match is None:
        return False
    known = [part.strip().rpartition("W/")[2] for part in if_none_match.split(",")]
    return "*" in known or etag in known
