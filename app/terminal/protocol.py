"""One HTTP/1.1 connection: what is not HTTP is a problem, heads and unread answers have a time, connections a limit."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from app.api.problems import problem
from app.faults import Fault
from app.settings import Settings


class Connection(H11Protocol):
    """A connection of a client that may be slow, confused or hostile."""

    settings = Settings()
    _head_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of the first request."""
        super().connection_made(transport)
        if len(self.connections) > self.settings.max_connections:
            self._refuse(_too_many(self.settings.max_connections))
        else:
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; from the first of them a head has its time, however slowly the others come."""
        try:
            super().data_received(data)
        except UnicodeDecodeError:
            self.send_400_response("the request target is not ASCII")
        if self._is_answering:
            self._stop_waiting()
        elif self._head_timer is None:
            self._wait_for_head()

    def pause_writing(self) -> None:
        """Begin to wait for the client to take what has been written; who does not would keep its place for ever."""
        super().pause_writing()
        self._answer_timer = self.loop.call_later(self.settings.answer_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client reads."""
        super().resume_writing()
        if self._answer_timer is not None:
            self._answer_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self._refuse(Fault("invalid-http", msg.rstrip("."), "", "HTTP/1.1", "Correct the client.", "the connection"))

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self.settings.head_timeout_s, self._head_is_late)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing() and not self._is_answering:
            limit_s = self.settings.head_timeout_s
            self._refuse(Fault("head-too-slow", f"no whole request head within {limit_s:g} s", "",
                               f"at most {limit_s:g} s", "Open a connection when there is a request to send.",
                               "the connection"))  # fmt: skip

    def _refuse(self, fault: Fault) -> None:
        answer = problem("*", [fault], headers={"Connection": "close"})
        response = h11.Response(
            status_code=answer.status_code, headers=answer.raw_headers, reason=STATUS_PHRASES[answer.status_code]
        )
        # A client that sends rubbish while it is being answered gets no second answer.
        with suppress(h11.LocalProtocolError):
            for event in (response, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def connections_of(settings: Settings) -> type[Connection]:
    """The class of connections with the limits of the settings."""
    return type("Connection", (Connection,), {"settings": settings})


def _too_many(limit: int) -> Fault:
    return Fault("too-many-connections", f"{limit} connections are open, which is the limit", "",
                 f"at most {limit} connections", "Close a connection, or try again later.", "the connection",
                 limit=limit)  # fmt: skip
