"""What both clients do around a call: options, repetitions, reading of an answer. No redirection is followed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from inspect import Parameter, Signature, signature
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit

import httpx2

from app.client.calls import Call, is_word
from app.client.errors import ServiceError, Unreachable
from app.client.events import PlanEvent
from app.settings import is_loopback

Answered = TypeVar("Answered")
ANSWER_S = 75.0  # longer than `Prefer: wait` and than the pause between two signs of life on an event stream
CONNECT_S = 10.0
PATIENCE_S = 60.0  # a service that is restarted is back within this
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0
LAST_EVENT = "Last-Event-ID"  # the header by which a stream of events is taken up (HTML standard, 9.2)
PASSING = frozenset((429, 502, 503, 504))  # what a service or a proxy says that is busy, starting or away
# What reading an answer raises that is none: text that is no JSON, or JSON of another shape.
_UNREADABLE = (ValueError, TypeError, KeyError, RecursionError)


Method = TypeVar("Method", bound=Callable[..., object])


def described(method: Method, make: Callable[..., object]) -> Method:
    """The method with the parameters and the words of the call that it makes."""
    own = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *signature(make).parameters.values()]
    method.__doc__, method.__signature__ = make.__doc__, Signature(own)  # type: ignore[attr-defined]
    return method


def options(address: str, api_key: str | None) -> dict[str, Any]:
    """Options of an httpx2 client; ValueError for what is no address of a service, or no API key."""
    try:
        url = urlsplit(address)
        is_address = url.port is None or url.port > 0
        is_too_long = url.query or url.fragment or url.path.rstrip("/").endswith("/v1")  # which is of the calls
    except ValueError:
        is_address = False
    if not is_address or url.scheme not in ("http", "https") or not url.hostname or is_too_long:
        raise ValueError(
            f"{address!r} is no address of a service: write http://HOST:PORT or https://HOST:PORT, "
            "with the path below which a proxy shows it"
        )
    if api_key is not None and not is_word(api_key):
        raise ValueError("the API key is no word in ASCII: write what isthmus keys create printed")
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    return {
        "base_url": address,
        "headers": headers,
        "timeout": httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
        "trust_env": not is_loopback(url.hostname),  # a proxy of the environment cannot reach this machine's own
    }


def parts(call: Call[Any]) -> dict[str, Any]:
    """The arguments of a request."""
    headers = dict(call.headers)
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    return {"method": call.method, "url": call.path, "content": call.body, "headers": headers, "params": call.params}


def following(plan_id: str, after: int) -> Call[bytes]:
    """The event stream of a plan after the event of that number."""
    headers = {"Accept": "text/event-stream", **({LAST_EVENT: str(after)} if after else {})}
    return Call("GET", f"/v1/plans/{quote(plan_id, safe='')}/events", bytes, headers=headers)


@dataclass
class Service:
    """One address, how long a call to it may take with all its repetitions, and whether it has ever answered."""

    address: str
    patience_s: float = PATIENCE_S
    has_answered: bool = False


@dataclass
class Attempt(Generic[Answered]):
    """One call with its repetitions."""

    service: Service
    call: Call[Answered]
    number: int = 0
    begun_s: float = field(default_factory=time.monotonic)
    opened_s: float | None = None  # when an event stream was opened, or told the last event
    has_told: bool = False  # whether this stream has told an event

    def read(self, response: httpx2.Response) -> Answered:
        """The answer; raises the problem that the service states, and what is no answer to this call."""
        self._check(response)
        try:
            return self.call.read(response.content)
        except _UNREADABLE as error:
            raise self._unread(response.status_code, response.content, error) from None

    def event(self, one: httpx2.ServerSentEvent) -> PlanEvent:
        """An event of the stream, behind which the next attempt begins, with patience anew; raises what is none."""
        try:
            event = PlanEvent.of(one)
        except _UNREADABLE as error:
            raise self._unread(httpx2.codes.OK, one.data.encode(), error) from None
        self.call = replace(self.call, headers={**self.call.headers, LAST_EVENT: str(event.number)})
        self.begun_s = self.opened_s = time.monotonic()
        self.number, self.has_told = 0, True
        return event

    def rest_s(self) -> float:
        """Seconds until a stream that ended before the plan is opened again; one that told nothing has failed."""
        if not self.has_told:
            return self.pause_s(httpx2.RemoteProtocolError("the stream of events ended before the plan"))
        self.has_told = False
        return FIRST_PAUSE_S

    def has_ended(self, response: httpx2.Response) -> bool:
        """Whether an event stream has nothing more to tell; raises the problem that the service states."""
        self._check(response)
        self.opened_s = time.monotonic()
        return response.status_code == httpx2.codes.NO_CONTENT

    def pause_s(self, failure: Exception) -> float:
        """Seconds until the call is made again; raises a failure that is final.

        A stream may be quiet for long: where it held longer than any pause, patience begins when it broke.
        """
        if self.opened_s is not None and time.monotonic() - self.opened_s > LONGEST_PAUSE_S:
            self.begun_s, self.number = time.monotonic(), 0
        self.opened_s = None
        backoff_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self.number) * random.uniform(0.5, 1.0)
        asked_s = failure.retry_after_s if isinstance(failure, ServiceError) else 0.0
        pause_s: float = max(asked_s, backoff_s)
        if self._is_passing(failure) and time.monotonic() - self.begun_s + pause_s <= self.service.patience_s:
            self.number += 1
            return pause_s
        if isinstance(failure, ServiceError):
            raise failure
        raise Unreachable(self.service.address, str(failure) or type(failure).__name__) from failure

    def _is_passing(self, failure: Exception) -> bool:
        """Whether the same call may succeed later. An address that has never answered is taken for a wrong one."""
        if isinstance(failure, ServiceError):
            return failure.status in PASSING or failure.code == "idempotency-key-in-use"
        return self.service.has_answered and (self.call.repeatable or isinstance(failure, httpx2.ConnectError))

    def _unread(self, status: int, body: bytes, error: Exception) -> ServiceError:
        return ServiceError(self.call.asked, status, body, unread=str(error).partition("\n")[0])

    def _check(self, response: httpx2.Response) -> None:
        self.service.has_answered = True
        if not response.is_success:
            raise ServiceError(self.call.asked, response.status_code, response.content,
                               retry_after_s=_seconds(response.headers))  # fmt: skip


def _seconds(headers: Mapping[str, str]) -> float:
    """What Retry-After asks for; 0 where it is absent or a date."""
    told = headers.get("Retry-After", "")
    return float(told) if told.isascii() and told.isdigit() else 0.0
