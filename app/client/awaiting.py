"""`isthmus.AsyncClient`: one service, asked by a program that goes on while it waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio
import httpx2

from app.client import calls, connection
from app.client.calls import Call
from app.client.errors import ServiceError
from app.client.events import PlanEvent
from app.wire import PlanEnvelope
from models.request import PlanRequest

Answered = TypeVar("Answered")
Asked = ParamSpec("Asked")


def _asks(
    make: Callable[Asked, Call[Answered]],
) -> Callable[Concatenate[AsyncClient, Asked], Coroutine[Any, Any, Answered]]:
    """A method that makes a call and answers it."""

    async def method(client: AsyncClient, /, *args: Asked.args, **given: Asked.kwargs) -> Answered:
        return await client.call(make(*args, **given))

    return connection.described(method, make)


class AsyncClient(AbstractAsyncContextManager["AsyncClient"]):
    """A service by its address, with an API key where it wants one. Use it in an `async with` block.

    Calls that fail in passing are made again for up to `patience_s` seconds; a submission counts once all the same.
    What has no method here goes through `call`: `await client.call(calls.moves(plan_id))`.
    """

    def __init__(
        self,
        address: str,
        *,
        api_key: str | None = None,
        patience_s: float = connection.PATIENCE_S,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx2.AsyncClient(transport=transport, **connection.options(address, api_key))
        self._service = connection.Service(str(self._http.base_url), patience_s)

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def call(self, call: Call[Answered]) -> Answered:
        """The answer to a call; ServiceError or Unreachable where there is none."""
        attempts = connection.Attempt(self._service, call)
        while True:
            try:
                return attempts.read(await self._http.request(**connection.parts(call)))
            except (httpx2.RequestError, ServiceError) as failure:
                pause_s = attempts.pause_s(failure)
            await anyio.sleep(pause_s)

    async def events(self, plan_id: str, *, after: int = 0) -> AsyncIterator[PlanEvent]:
        """Everything that happens to a plan until it has ended; a broken stream is taken up where it broke."""
        attempts = connection.Attempt(self._service, connection.following(plan_id, after))
        while True:
            try:
                async with self._http.stream(**connection.parts(attempts.call)) as response:
                    if not response.is_success:
                        await response.aread()
                    if attempts.has_ended(response):
                        return
                    async for one in httpx2.EventSource(response):
                        if not one.data:  # a sign of life, or how long to wait before coming back
                            continue
                        event = attempts.event(one)
                        yield event
                        if event.kind == "done":
                            return
                pause_s = attempts.rest_s()
            except (httpx2.RequestError, ServiceError) as failure:
                pause_s = attempts.pause_s(failure)
            await anyio.sleep(pause_s)

    async def plan(
        self,
        request: PlanRequest | Mapping[str, Any],
        *,
        name: str = "",
        key: str | None = None,
        on_event: Callable[[PlanEvent], None] = lambda _event: None,
    ) -> PlanEnvelope:
        """Queue a request, wait until its search has ended, and read the plan."""
        submitted = await self.submit(request, name=name, key=key)
        async for event in self.events(submitted.id):
            on_event(event)
        return await self.get(submitted.id)

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
