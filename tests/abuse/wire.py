"""A running service as its program starts it, and a client that sends exactly the bytes that it is given."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.api.problems import ISSUE_TYPES
from app.storage.keys import KeyStore, NewKey
from app.storage.migrations import create_tables
from app.storage.tables import create_engine
from tests.unit.app.http_client import Client
from tests.unit.app.programs import HOST, ROOT, await_, free_port

BODY_TIMEOUT_S = 1.0
PATIENCE_S = 60.0  # of the client; the first child process of a service may take long on a busy machine
MAX_BODY_BYTES = 200_000
MAX_WAITING_PER_KEY = 3
MAX_WAITING = 5
SETTINGS = {
    "ISTHMUS_BODY_TIMEOUT_S": str(BODY_TIMEOUT_S),
    "ISTHMUS_HEAD_TIMEOUT_S": "1.5",
    "ISTHMUS_ANSWER_TIMEOUT_S": "1",
    "ISTHMUS_MAX_BODY_BYTES": str(MAX_BODY_BYTES),
    "ISTHMUS_MAX_WAITING_PER_KEY": str(MAX_WAITING_PER_KEY),
    "ISTHMUS_MAX_WAITING_CLIENTS": str(MAX_WAITING),
    "ISTHMUS_MAX_CONNECTIONS": "60",
    "ISTHMUS_RUN_WORKER": "false",
    "ISTHMUS_MAX_SUBMISSIONS_PER_MINUTE": "100000",
}
PROBLEM_FIELDS = {"type", "title", "status", "detail", "instance", "code", "errors"}


@dataclass(frozen=True)
class Answer:
    """What came back over the socket."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of a problem, after checking that it keeps every promise of the error format."""
        assert self.headers["content-type"] == "application/problem+json", (self.status, self.headers)
        document = json.loads(self.body)
        assert set(document) == PROBLEM_FIELDS
        assert document["status"] == self.status
        codes = [document["code"], *(one["code"] for one in document["errors"])]
        assert set(codes) <= set(ISSUE_TYPES), codes
        return str(codes[0])

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and code of a problem."""
        return self.status, self.code

    def json(self) -> Any:
        """The document."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Service:
    """One running service: its port, its log, a key of every kind."""

    port: int
    log: Path
    tokens: dict[str, str] = field(default_factory=dict)

    def raw(self, data: bytes, *, timeout_s: float = PATIENCE_S) -> Answer:
        """The answer to bytes; whole, because the request asks for the connection to be closed, or breaks it."""
        with socket.create_connection((HOST, self.port), timeout=timeout_s) as connection:
            connection.sendall(data)
            return read_answer(connection)

    def ask(
        self, method: str, target: str, *headers: tuple[str, str], body: bytes | None = None, who: str = "alice"
    ) -> Answer:
        """The answer to a request whose parts go over the wire as they are given."""
        lines = [f"{method} {target} HTTP/1.1"]
        names = {name.lower() for name, _ in headers}
        if "host" not in names:
            lines.append("Host: isthmus")
        if who:
            lines.append(f"Authorization: Bearer {self.tokens[who]}")
        if body is not None and not {"content-length", "transfer-encoding"} & names:
            lines.append(f"Content-Length: {len(body)}")
        if body is not None and "content-type" not in names:
            lines.append("Content-Type: application/json")
        lines += [f"{name}: {value}" for name, value in headers]
        head = "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")
        return self.raw(head + (body or b""))

    def post(self, target: str, document: Any, *headers: tuple[str, str], who: str = "alice") -> Answer:
        """The answer to a JSON document."""
        return self.ask("POST", target, *headers, body=json.dumps(document).encode(), who=who)

    @contextmanager
    def opened(self, target: str, who: str = "alice") -> Iterator[socket.socket]:
        """A connection on which a GET has been sent, its answer unread."""
        with socket.create_connection((HOST, self.port), timeout=PATIENCE_S) as connection:
            token = self.tokens[who]
            connection.sendall(
                f"GET {target} HTTP/1.1\r\nHost: isthmus\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            yield connection


def read_answer(connection: socket.socket) -> Answer:
    """Everything until the end of the connection, as an answer."""
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        assert received, "the connection was reset without an answer"
    return parsed(received)


def parsed(received: bytes) -> Answer:
    """The last answer in what came over a connection."""
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return Answer(int(first.split(" ")[1]), headers, body)


@contextmanager
def started(folder: Path) -> Iterator[Service]:
    """`isthmus serve` with small limits and a key for everybody who comes to it."""
    port, log = free_port(), folder / "log"
    database = f"sqlite:///{folder / 'abuse.sqlite'}"
    environment = {**os.environ, **SETTINGS, "ISTHMUS_DATABASE_URL": database, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "app.cli", "serve", "--port", str(port)]
    tokens = make_keys(database)
    with log.open("wb") as errors:
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=errors)
        try:
            client = Client(HOST, port)
            await_(lambda: is_live(client), "live")
            yield Service(port, log, tokens)
            assert process.poll() is None, "the service has ended"
        finally:
            process.terminate()
            process.wait(timeout=30)


def make_keys(database: str) -> dict[str, str]:
    """A token for everybody who comes to the service."""
    engine = create_engine(database)
    create_tables(engine)
    store = KeyStore(engine)
    scopes = {"alice": {"read", "submit"}, "mallory": {"read", "submit"}, "reader": {"read"}, "sender": {"submit"}}
    tokens = {who: store.create(NewKey(who, frozenset(names)))[1] for who, names in scopes.items()}
    engine.dispose()
    return tokens


def is_live(client: Client) -> bool:
    """Whether the process answers."""
    try:
        return client.get("/healthz/live") == b'{"status":"ok"}'
    except OSError:
        return False
