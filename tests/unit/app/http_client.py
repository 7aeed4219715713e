"""A small client of HTTP for tests: bodies as they come, one connection per request, no repetition."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from types import MappingProxyType
from typing import Any

TIMEOUT_S = 60.0


class ServiceError(Exception):
    """The service answered with a problem."""

    def __init__(self, asked: str, status: int, body: bytes) -> None:
        super().__init__(f"{asked}: {status} {body.decode(errors='replace')[:2000]}")
        self.status, self.body = status, body


class Client:
    """One service by host and port, with an API key where it wants one."""

    def __init__(self, host: str, port: int, *, api_key: str | None = None, encrypted: bool = False) -> None:
        self._host, self._port = host, port
        self._make = HTTPSConnection if encrypted else HTTPConnection
        self._always = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}

    def is_ready(self) -> bool:
        """Whether the service can take work."""
        try:
            self.get("/healthz/ready")
        except (OSError, HTTPException, ServiceError):
            return False
        return True

    def get(self, path: str) -> bytes:
        """The body of a resource."""
        with self._exchange("GET", path) as response:
            return response.read()

    def post(self, path: str, body: object, *, key: str | None = None) -> Any:
        """The answer to a JSON document; posts with the same idempotency key count once."""
        extra = {} if key is None else {"Idempotency-Key": key}
        with self._exchange("POST", path, json.dumps(body).encode(), extra) as response:
            return json.loads(response.read())

    def events(self, path: str) -> Iterator[tuple[str, bytes]]:
        """Kind and JSON text of every event until the stream ends."""
        kind = ""
        with self._exchange("GET", path) as response:
            for line in response:
                name, _, value = line.rstrip(b"\r\n").partition(b": ")
                if name == b"event":
                    kind = value.decode()
                elif name == b"data":
                    yield kind, value

    @contextmanager
    def _exchange(
        self, method: str, path: str, body: bytes | None = None, extra: Mapping[str, str] = MappingProxyType({})
    ) -> Iterator[HTTPResponse]:
        connection = self._make(self._host, self._port, timeout=TIMEOUT_S)
        try:
            headers = self._always | ({"Content-Type": "application/json"} if body is not None else {}) | dict(extra)
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise ServiceError(f"{method} {path}", response.status, response.read())
            yield response
        finally:
            connection.close()
