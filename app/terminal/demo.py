"""The demo: a service on a free loopback port, one real job posted over HTTP, its plan shown, everything stopped."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from app.client import calls
from app.client.blocking import Client
from app.client.errors import ClientError
from app.documents import canonical
from app.terminal.exits import EXIT_OF_STATUS, ExitCode, Failed
from app.terminal.progress import ProgressLine
from app.terminal.screen import Screen
from app.terminal.summary import print_outcome
from models.outcome import Outcome

EXAMPLE = "llama-405b-two-buildings"
FOLDER = Path("var/demo")
START_S = 120.0
TIME_LIMIT_S = 18.0  # even a search that has to be killed then ends within 30 s
HOST = "127.0.0.1"


def run_demo(screen: Screen) -> ExitCode:
    """Plan the example over HTTP; the plan and its trace stay in `var/demo`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    console = screen.out
    with _service(console) as client:
        body = client.catalogue("examples", EXAMPLE)
        body["options"] = {**body.get("options", {}), "time_limit_s": TIME_LIMIT_S}
        started = time.monotonic()
        submitted = client.submit(body)
        console.print(f"posted {EXAMPLE} to http://{HOST} as {submitted.id}")
        with ProgressLine(console) as line:
            for event in client.events(submitted.id):
                line.take(event.kind, json.dumps(dict(event.data)).encode())
        envelope = client.get(submitted.id)
        elapsed_s = time.monotonic() - started
        if envelope.outcome is None:
            raise Failed(f"the search ended as {envelope.state}: {envelope.fault}")
        return _show(client, envelope.id, envelope.outcome, screen, elapsed_s)


def _show(client: Client, plan_id: str, outcome: Outcome, screen: Screen, elapsed_s: float) -> ExitCode:
    console = screen.out
    screen.show(outcome, lambda out: print_outcome(out, outcome))
    if outcome.status == "planned":
        (FOLDER / "plan.json").write_bytes(canonical(outcome))
        (FOLDER / "trace.json").write_bytes(client.export(plan_id, "chrome-trace"))
        console.print(f"Written: {FOLDER / 'plan.json'}, {FOLDER / 'trace.json'} (open it in Perfetto).")
    console.print(f"Planning over HTTP, from the post to the plan: {elapsed_s:.1f} s.")
    return EXIT_OF_STATUS[outcome.status]


@contextmanager
def _service(console: Console) -> Iterator[Client]:
    port = _free_port()
    database = f"sqlite:///{FOLDER / 'isthmus.sqlite'}"
    log_path = FOLDER / "service.log"
    command = [sys.executable, "-m", "app.cli", "serve", "--host", HOST, "--port", str(port), "--database", database]
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        address = f"http://{HOST}:{port}"
        _await_ready(address, process, log_path)
        console.print(f"service ready on {address} with {database}")
        with Client(address) as client:
            yield client
    finally:
        process.terminate()
        try:
            process.wait(timeout=30.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        console.print("service stopped")


def _await_ready(address: str, process: subprocess.Popen[bytes], log_path: Path) -> None:
    deadline = time.monotonic() + START_S
    while not _is_ready(address):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"the service did not start; the end of {log_path}:\n{log_path.read_text()[-2000:]}")
        time.sleep(0.1)


def _is_ready(address: str) -> bool:
    try:
        with Client(address, patience_s=0.0) as client:
            client.call(calls.ready())
    except ClientError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port
