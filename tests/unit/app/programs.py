"""Starts the service and workers as programs of their own, so that tests can kill them; and ways to look at them."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil

from tests.unit.app.http_client import Client

ROOT = Path(__file__).parents[3]
HOST = "127.0.0.1"
LOOKS = 1500
MOST_LOOKS = 20 * LOOKS
WORK_S = 30.0  # of processor: a service starts in 3 s of it and plans an example in 5; 1500 answers take it up to 10


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def started(
    role: str, port: int, database: str, worker_id: str, *, stderr: IO[bytes] | None = None, **changes: Any
) -> subprocess.Popen[bytes]:
    """The same for callers who end it themselves; `changes` are settings that differ from the usual short times."""
    command = [sys.executable, "-m", "tests.unit.app.serve_fake", role, str(port), database, worker_id]
    return subprocess.Popen([*command, json.dumps(changes)], cwd=ROOT, stderr=stderr)


@contextmanager
def program(role: str, port: int, database: str, worker_id: str, **changes: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A running service (serve), service without worker (api) or worker (work); stopped at the end."""
    process = started(role, port, database, worker_id, **changes)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=20)


def await_(condition: Any, what: str, *, pause_s: float = 0.02) -> Any:
    """The value of a condition once it is true.

    Fails after 1500 looks, half a minute with the usual pause; on a busy machine only once the programs that were
    started here have had `WORK_S` of processor, or after 20 times as many looks.
    """
    begun_s = _work_s()
    for number in range(1, MOST_LOOKS + 1):
        value = condition()
        if value:
            return value
        if number % LOOKS == 0 and _work_s() - begun_s >= WORK_S:
            break
        time.sleep(pause_s)
    raise AssertionError(f"never {what}")


def _work_s() -> float:
    """Seconds of processor that the living programs below this one have had."""
    spent_s = 0.0
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            spent_s += times.user + times.system
    return spent_s


def ready(client: Client) -> None:
    """Wait until the service can take work."""
    await_(client.is_ready, "ready")


def state_of(client: Client, plan_id: str) -> str:
    """The state of a plan."""
    state: str = json.loads(client.get(f"/v1/plans/{plan_id}/status"))["state"]
    return state


def searching(client: Client, plan_id: str) -> bool:
    """Whether a plan runs and has an incumbent."""
    return b"incumbent" in client.get(f"/v1/plans/{plan_id}/status") and state_of(client, plan_id) == "running"


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Every process below one."""
    return psutil.Process(process.pid).children(recursive=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """An SQLite file in the middle of somebody else's transaction that writes."""
    with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def sqlite(folder: Path) -> str:
    """The URL of a database file."""
    return f"sqlite:///{folder / 'crash.sqlite'}"
