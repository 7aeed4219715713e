"""The demo: a service on a free loopback port, one real job posted over HTTP, its plan shown, everything stopped.

Owns that story. Uses the service only through its public interface.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from app.documents import read_plan
from app.jobs.child import OUTCOME
from app.terminal.client import Client
from app.terminal.progress import ProgressLine
from app.terminal.summary import print_outcome
from app.terminal.work import EXIT_OF_STATUS, ExitCode

EXAMPLE = "llama-405b-two-buildings"
FOLDER = Path("var/demo")
START_S = 120.0
TIME_LIMIT_S = 18.0  # even a search that has to be killed then ends within 30 s
HOST = "127.0.0.1"


class DemoFailed(Exception):
    """The demo could not go on; the message says where to look."""


def run_demo(console: Console, solver_options: list[str]) -> ExitCode:
    """Plan the example over HTTP; the plan and its trace stay in `var/demo`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with _service(console, solver_options) as client:
        body = json.loads(client.get(f"/v1/examples/{EXAMPLE}"))
        body["options"] = {**body.get("options", {}), "time_limit_s": TIME_LIMIT_S}
        started = time.monotonic()
        submitted = client.post("/v1/plans", body)
        base = f"/v1/plans/{submitted['id']}"
        console.print(f"posted {EXAMPLE} to http://{HOST} as {submitted['id']}", highlight=False)
        envelope = _follow(client, base, console)
        elapsed_s = time.monotonic() - started
        if envelope["outcome"] is None:
            raise DemoFailed(f"the search ended as {envelope['state']}: {envelope['fault']}")
        return _show(client, base, envelope, console, elapsed_s)


def _follow(client: Client, base: str, console: Console) -> Any:
    with ProgressLine(console) as line:
        for kind, text in client.events(f"{base}/events"):
            line.take(kind, text)
    return json.loads(client.get(base))


def _show(client: Client, base: str, envelope: Any, console: Console, elapsed_s: float) -> ExitCode:
    outcome = OUTCOME.validate_python(envelope["outcome"])
    print_outcome(console, outcome)
    if outcome.status == "planned":
        text = json.dumps(envelope["outcome"]).encode()
        read_plan(text)
        (FOLDER / "plan.json").write_bytes(text)
        (FOLDER / "trace.json").write_bytes(client.get(f"{base}/artifacts/chrome-trace"))
        console.print(f"Written: {FOLDER / 'plan.json'}, {FOLDER / 'trace.json'} (open it in Perfetto).")
    console.print(f"Planning over HTTP, from the post to the plan: {elapsed_s:.1f} s.")
    return EXIT_OF_STATUS[outcome.status]


@contextmanager
def _service(console: Console, solver_options: list[str]) -> Iterator[Client]:
    port = _free_port()
    database = f"sqlite:///{FOLDER / 'isthmus.sqlite'}"
    log_path = FOLDER / "service.log"
    command = [sys.executable, "-m", "app.cli", "serve", "--host", HOST, "--port", str(port), "--database", database]
    with log_path.open("wb") as log:
        process = subprocess.Popen([*command, *solver_options], stdout=log, stderr=log)
    try:
        client = Client(HOST, port)
        _await_ready(client, process, log_path)
        console.print(f"service ready on http://{HOST}:{port} with {database}", highlight=False)
        yield client
    finally:
        process.terminate()
        try:
            process.wait(timeout=30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        console.print("service stopped")


def _await_ready(client: Client, process: subprocess.Popen[bytes], log_path: Path) -> None:
    deadline = time.monotonic() + START_S
    while not client.is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise DemoFailed(f"the service did not start; the end of {log_path}:\n{log_path.read_text()[-2000:]}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port
