"""`isthmus.Client`: one service, asked by a program that waits for its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx2

from app.client import calls, connection
from app.client.calls import Call
from app.client.errors import ServiceError
from app.client.events import PlanEvent
from app.wire import PlanEnvelope
from models.request import PlanRequest

Answered = TypeVar("Answered")
Asked = ParamSpec("Asked")


def _asks(make: Callable[Asked, Call[Answered]]) -> Callable[Concatenate[Client, Asked], Answered]:
    """A method that makes a call and answers it."""

    def method(client: Client, /, *args: Asked.args, **given: Asked.kwargs) -> Answered:
        return client.call(make(*args, **given))

    return connection.described(method, make)


class Client(AbstractContextManager["Client"]):
    """A service by its address, with an API key where it wants one. Use it in a `with` block.

    Calls that fail in passing are made again for up to `patience_s` seconds; a submission counts once all the same.
    What has no method here goes through `call`: `client.call(calls.moves(plan_id))`.
    """

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        patience_s: float = connection.PATIENCE_S,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._http = httpx2.Client(transport=transport, **connection.options(address, api_key))
        self._service = connection.Service(str(self._http.base_url), patience_s)

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._http.close()

    def call(self, call: Call[Answered]) -> Answered:
        """The answer to a call; ServiceError or Unreachable where there is none."""
        attempts = connection.Attempt(self._service, call)
        while True:
            try:
                return attempts.read(self._http.request(**connection.parts(call)))
            except (httpx2.RequestError, ServiceError) as failure:
                pause_s = attempts.pause_s(failure)
            time.sleep(pause_s)

    def events(self, plan_id: str, *, after: int = 0) -> Iterator[PlanEvent]:
        """Everything that happens to a plan until it has ended; a broken stream is taken up where it broke."""
        attempts = connection.Attempt(self._service, connection.following(plan_id, after))
        while True:
            try:
                with self._http.stream(**connection.parts(attempts.call)) as response:
                    if not response.is_success:
                        response.read()
                    if attempts.has_ended(response):
                        return
                    for one in httpx2.EventSource(response):
                        if not one.data:  # a sign of life, or how long to wait before coming back
                            continue
                        event = attempts.event(one)
                        yield event
                        if event.kind == "done":
                            return
                pause_s = attempts.rest_s()
            except (httpx2.RequestError, ServiceError) as failure:
                pause_s = attempts.pause_s(failure)
            time.sleep(pause_s)

    def plan(
        self,
        request: PlanRequest | Mapping[str, Any],
        *,
        name: str = "",
        key: str | None = None,
        on_event: Callable[[PlanEvent], None] = lambda _event: None,
    ) -> PlanEnvelope:
        """Queue a request, wait until its search has ended, and read the plan."""
        submitted = self.submit(request, name=name, key=key)
        for event in self.events(submitted.id):
            on_event(event)
        return self.get(submitted.id)

    submit = _asks(calls.submit)
    get = _asks(calls.plan)
    status = _asks(calls.status)
    cancel = _asks(calls.cancel)
    replan = _asks(calls.replan)
    resume = _asks(calls.resume)
    export = _asks(calls.export)
    validate = _asks(calls.validate)
    schedule = _asks(calls.schedule)
    catalogue = _asks(calls.catalogue)
