"""Load of one process: reading a plan, its status and a list, and submitting, each against a bare FastAPI route.

`python -m benchmarks.service [ROUNDS]`. The bare application answers the same bytes from the same server class with the
same settings; beside a submission it writes the body as one row into an SQLite file with the settings of ours, and
answers when it is on the disk (write-ahead log, synchronous=FULL). Rates are taken in turns, so that other work on the
machine hits both, and the median of their ratios counts. Ours is a service without a worker. Exit status 1: a ratio is
missed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa
import uvicorn
from anyio.to_thread import run_sync
from fastapi import FastAPI, Request
from fastapi.responses import Response

from app.settings import Settings
from app.storage.tables import create_engine
from app.terminal.protocol import connections_of
from app.terminal.serving import serve
from models.catalogue import named_entry

HOST = "127.0.0.1"
CONCURRENCY = 50
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 6
REQUESTS = 40  # of one connection in one round
EXAMPLE = "llama-8b-single-building"
LEAST = {"plan": 0.9, "status": 0.7, "list": 0.5, "304": 0.9, "submit": 0.3}
MOST_SUBMIT_MS = 50.0
NUM_QUEUED = 200
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Rate:
    """Requests per second on the wall, and processor seconds of the server per request."""

    per_s: float
    cpu_s: float


def bare(port: int, bodies: dict[str, bytes], database: str) -> None:
    """The least that FastAPI can do: the same bytes, an empty 304, a POST that reads its body, one that stores it."""
    app = FastAPI()
    engine = create_engine(database)
    rows = sa.Table(
        "rows", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("body", sa.LargeBinary)
    )
    rows.metadata.create_all(engine)

    @app.get("/same/{name}")
    async def same(name: str) -> Response:
        return Response(bodies[name], media_type="application/json")

    def store(body: bytes) -> None:
        with engine.begin() as connection:
            connection.execute(sa.insert(rows).values(body=body))

    @app.post("/row")
    async def row(request: Request) -> Response:
        await run_sync(store, await request.body())
        return Response(status_code=202)

    @app.get("/unchanged")
    async def unchanged() -> Response:
        return Response(status_code=304)

    @app.post("/submit")
    async def submit(request: Request) -> Response:
        return Response(str(len(await request.body())), status_code=202)

    http = connections_of(Settings())
    uvicorn.run(app, host=HOST, port=port, log_config=None, access_log=False, server_header=False, http=http)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(target: Any, *arguments: Any, port: int, path: str) -> Iterator[int]:
    """The process id of a running server; it is stopped at the end."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    try:
        until(lambda: status_of(port, path) == 200)
        assert process.pid is not None
        yield process.pid
    finally:
        process.terminate()
        process.join(60)


def until(condition: Any, limit_s: float = 300.0, *, pause_s: float = 0.1) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a server of this benchmark did not get ready")
        time.sleep(pause_s)


def status_of(port: int, path: str) -> int:
    """The status of a GET, or 0 when nobody answers."""
    try:
        return ask(HTTPConnection(HOST, port, timeout=120), "GET", path)[0]
    except OSError:
        return 0


def ask(
    connection: HTTPConnection, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    """Status and body of one exchange."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body, headers={**(JSON if body else {}), **named})
    answer = connection.getresponse()
    return answer.status, answer.read()


def load(port: int, pid: int, request: bytes, status: int) -> Rate:
    """The rate of one request over `CONCURRENCY` connections that stay open."""
    server = psutil.Process(pid)
    before = server.cpu_times()
    threads = [threading.Thread(target=repeat, args=(port, request, status)) for _ in range(CONCURRENCY)]
    at = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, after = time.perf_counter() - at, server.cpu_times()
    number = CONCURRENCY * REQUESTS
    return Rate(number / seconds, (after.user + after.system - before.user - before.system) / number)


def repeat(port: int, request: bytes, status: int) -> None:
    """One connection's share: the same bytes out, whole answers in."""
    with socket.create_connection((HOST, port), timeout=120) as connection:
        for _ in range(REQUESTS):
            connection.sendall(request)
            head, _, body = connection.recv(1 << 20).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d" % status), head
            length = next(
                (int(line[16:]) for line in head.split(b"\r\n") if line[:16].lower() == b"content-length: "), 0
            )
            missing = (0 if status == 304 else length) - len(body)
            while missing > 0:
                missing -= len(connection.recv(1 << 20))


def text_of(path: str, *lines: str) -> bytes:
    """A GET as bytes."""
    return "\r\n".join([f"GET {path} HTTP/1.1", f"Host: {HOST}", *lines, "", ""]).encode()


def compare(name: str, ours: tuple[int, int, bytes], theirs: tuple[int, int, bytes], status: int) -> float:
    """Our rate over the bare one on the wall, the median of rounds taken in turns; prints it by processor time too."""
    pairs = [(load(*ours, status), load(*theirs, status)) for _ in range(ROUNDS)]
    cpu = statistics.median(their.cpu_s / our.cpu_s for our, their in pairs)
    wall = statistics.median(our.per_s / their.per_s for our, their in pairs)
    best = max(our.per_s for our, _ in pairs)
    micro_s = statistics.median(our.cpu_s for our, _ in pairs) * 1e6
    say(f"{name}: ratio {cpu:.2f} by processor time, {wall:.2f} on the wall; ours {micro_s:.0f} us, best {best:.0f}/s")
    return wall


def submit_p99_ms(port: int, path: str, body: bytes, number: int = 200) -> tuple[float, list[str]]:
    """99th percentile of the time of a submission over one connection, and what was made."""
    connection, times_s, made = HTTPConnection(HOST, port, timeout=120), [], []
    for _ in range(number):
        at = time.perf_counter()
        status, answer = ask(connection, "POST", path, body)
        times_s.append(time.perf_counter() - at)
        assert status == 202, answer
        made.append(answer.decode())
    return statistics.quantiles(times_s, n=100)[98] * 1e3, made


def say(line: str) -> None:
    """One line of the report, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Print every ratio and leave with 1 when one is missed."""
    say(f"tool: sockets of the standard library, {CONCURRENCY} connections kept open, {ROUNDS} rounds in turns; "
          f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        port, bare_port = free_port(), free_port()
        database = f"sqlite:///{Path(folder) / 'bench.sqlite'}"
        settings = Settings(
            database_url=database,
            port=port,
            num_concurrent_solves=2,
            log_level="WARNING",
            drain_s=0.0,
            max_queued_plans=100_000,
            soft_grace_s=120.0,
        )
        with started(serve, settings, port=port, path="/healthz/ready"):
            plan, body = finished_plan(port)
        # The worker is left out from here on: what it does in the same process is no part of an answer.
        settings = settings.changed({"run_worker": False})
        with started(serve, settings, port=port, path="/healthz/live") as pid:
            for _ in range(50):
                ask(HTTPConnection(HOST, port, timeout=120), "POST", "/v1/plans", example(600.0))
            paths = {"plan": f"/v1/plans/{plan}", "status": f"/v1/plans/{plan}/status", "list": "/v1/plans?limit=50"}
            bodies = {
                name: ask(HTTPConnection(HOST, port, timeout=120), "GET", path)[1] for name, path in paths.items()
            }
            rows = f"sqlite:///{Path(folder) / 'bare.sqlite'}"
            with started(bare, bare_port, bodies, rows, port=bare_port, path="/same/plan") as bare_pid:
                say(f"a finished plan of {len(body):,} bytes, 51 plans")
                sides = ((port, pid), (bare_port, bare_pid))
                ratios = {name: ratio_of(name, sides, path) for name, path in paths.items()}
                ratios["304"] = unchanged(port, pid, bare_port, bare_pid, paths["plan"])
                stored = (post_of("/v1/plans", example(600.0)), post_of("/row", example(600.0)))
                ratios["submit"] = compare("a durable submission", (*sides[0], stored[0]), (*sides[1], stored[1]), 202)
                over_ms = submissions(port, bare_port)
    missed = [name for name, ratio in ratios.items() if ratio < LEAST[name]]
    say(f"wanted: {LEAST}, {MOST_SUBMIT_MS:g} ms; missed: {missed}")
    sys.exit(bool(missed) or over_ms > MOST_SUBMIT_MS)


def ratio_of(name: str, sides: tuple[tuple[int, int], tuple[int, int]], path: str) -> float:
    """Our rate of a GET over that of the bare route with the same bytes."""
    ours, theirs = sides
    return compare(f"GET {name}", (*ours, text_of(path)), (*theirs, text_of(f"/same/{name}")), 200)


def unchanged(port: int, pid: int, bare_port: int, bare_pid: int, path: str) -> float:
    """The same for a plan that the client has already."""
    connection = HTTPConnection(HOST, port, timeout=120)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    tag = str(answer.headers["ETag"])
    return compare("the plan with If-None-Match (304)", (port, pid, text_of(path, f"If-None-Match: {tag}")),
                   (bare_port, bare_pid, text_of("/unchanged")), 304)  # fmt: skip


def post_of(path: str, body: bytes) -> bytes:
    """A POST as bytes."""
    lines = (f"POST {path} HTTP/1.1", f"Host: {HOST}", "Content-Type: application/json", f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def example(time_limit_s: float) -> bytes:
    """The body of a submission."""
    return json.dumps({**named_entry("examples", EXAMPLE), "options": {"time_limit_s": time_limit_s}}).encode()


def finished_plan(port: int) -> tuple[str, bytes]:
    """The name of a plan that has ended, and its bytes."""
    status, answer = ask(HTTPConnection(HOST, port, timeout=120), "POST", "/v1/plans", example(5.0))
    assert status == 202, answer
    plan = str(json.loads(answer)["id"])
    path = f"/v1/plans/{plan}"
    until(lambda: json.loads(ask(HTTPConnection(HOST, port, timeout=120), "GET", path)[1])["finished_at"])
    body = ask(HTTPConnection(HOST, port, timeout=120), "GET", path)[1]
    assert json.loads(body)["outcome"]["status"] == "planned", body
    return plan, body


def submissions(port: int, bare_port: int) -> float:
    """Milliseconds by which the 99th percentile of submissions exceeds that of a bare POST, under a full queue."""
    body = example(600.0)
    bare_ms, _ = submit_p99_ms(bare_port, "/submit", body)
    submit_p99_ms(port, "/v1/plans", body, NUM_QUEUED)
    ours_ms, _ = submit_p99_ms(port, "/v1/plans", body)
    metrics = ask(HTTPConnection(HOST, port, timeout=120), "GET", "/metrics")[1].decode()
    states = ", ".join(
        line
        for line in metrics.splitlines()
        if line.startswith(('isthmus_plans{state="queued', 'isthmus_plans{state="running'))
    )
    say(f"submit: p99 {ours_ms:.1f} ms, an idle bare POST {bare_ms:.1f} ms; {states}")
    return ours_ms - bare_ms


if __name__ == "__main__":
    main()
