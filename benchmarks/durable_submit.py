"""Durable submissions per second beside a bare route that stores one row in a database of the same kind.

`python -m benchmarks.durable_submit`. Durable: a 202 is sent once SQLite has the row in its write-ahead log and has
synced that to the disk (`synchronous=FULL`), so neither a killed program nor a machine that loses power takes it back.
The bare application is FastAPI with one route in a thread pool: it stores the body it got, unread, under a new key.
Both run with the same server; rates are taken in turns and the median of their ratios counts. Exit status 1: missed.
"""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import Body, FastAPI
from fastapi.responses import Response

from app.settings import Settings
from app.terminal.protocol import connections_of
from app.terminal.serving import serve
from benchmarks.service import HOST, JSON, example, free_port, say, started

CLIENTS, ROUNDS, REQUESTS = 50, 5, 8  # of one client in one round
LEAST = 0.3
SECRETS = threading.local()


def bare(port: int, path: str) -> None:
    """One route that stores one row, durably, and nothing else."""
    app = FastAPI()

    def connection() -> sqlite3.Connection:
        if not hasattr(SECRETS, "connection"):
            made = SECRETS.connection = sqlite3.connect(path, timeout=30.0, isolation_level=None)
            for pragma in ("journal_mode=WAL", "synchronous=FULL"):
                made.execute(f"PRAGMA {pragma}")
            made.execute("CREATE TABLE IF NOT EXISTS rows (id TEXT PRIMARY KEY, body BLOB)")
        found: sqlite3.Connection = SECRETS.connection
        return found

    @app.get("/alive")
    def alive() -> Response:
        connection()
        return Response(b"{}")

    @app.post("/rows")
    def store(body: Annotated[Any, Body()]) -> Response:
        name = os.urandom(16).hex()
        connection().execute("INSERT INTO rows VALUES (?, ?)", (name, repr(body)))
        return Response(name, status_code=202)

    http = connections_of(Settings())
    uvicorn.run(app, host=HOST, port=port, log_config=None, access_log=False, server_header=False, http=http)


def rate(port: int, path: str, body: bytes) -> tuple[float, float]:
    """Submissions per second of all clients together, and the 99th percentile of their times in milliseconds."""
    times_s: list[float] = []

    def client() -> None:
        connection = HTTPConnection(HOST, port, timeout=120)
        for _ in range(REQUESTS):
            at = time.perf_counter()
            connection.request("POST", path, body=body, headers=JSON)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 202, text
            times_s.append(time.perf_counter() - at)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    at = time.perf_counter()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return CLIENTS * REQUESTS / (time.perf_counter() - at), statistics.quantiles(times_s, n=100)[98] * 1e3


def main() -> None:
    """Print both rates and leave with 1 when their ratio is too small."""
    multiprocessing.set_start_method("spawn")
    say(f"{CLIENTS} clients, {ROUNDS} rounds in turns; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        port, bare_port, body = free_port(), free_port(), example(600.0)
        settings = Settings(
            database_url=f"sqlite:///{Path(folder) / 'ours.sqlite'}",
            port=port,
            run_worker=False,
            max_queued_plans=10**6,
            log_level="WARNING",
        )
        with (
            started(serve, settings, port=port, path="/healthz/live"),
            started(bare, bare_port, str(Path(folder) / "bare.sqlite"), port=bare_port, path="/alive"),
        ):
            rate(port, "/v1/plans", body)  # the first requests of either find caches empty
            rate(bare_port, "/rows", body)
            pairs = [(rate(port, "/v1/plans", body), rate(bare_port, "/rows", body)) for _ in range(ROUNDS)]
    for name, found in (("ours", [ours for ours, _ in pairs]), ("bare", [theirs for _, theirs in pairs])):
        rates, tails_ms = zip(*found, strict=True)
        say(f"{name}: {statistics.median(rates):.0f}/s, p99 {statistics.median(tails_ms):.0f} ms")
    ratio = statistics.median(ours[0] / theirs[0] for ours, theirs in pairs)
    say(f"ratio {ratio:.2f}, wanted {LEAST}")
    sys.exit(ratio < LEAST)


if __name__ == "__main__":
    main()
