"""Sends grown bodies to a running service and asks meanwhile whether it lives: `python -m tests.bodies --seeds 300`.

Prints, for the worst body of each kind: processor seconds of the service, growth of its memory, and the longest time
that a probe of /healthz/live took, on the clock and in processor time of the service meanwhile: the latter is what a
probe waits for on a machine with a core to spare, however busy this one is. Their times without bodies come first.
Exit status 1: a body cost more than a second or 200 MiB, or a probe 100 ms of processor time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

import psutil

from tests.bodies.costs import MIB
from tests.bodies.growing import Body, everywhere, grown, largest
from tests.unit.app.programs import HOST, ROOT, await_, free_port

MOST_CPU_S, MOST_BYTES, MOST_PROBE_S = 1.0, 200 * MIB, 0.1
JSON = {"Content-Type": "application/json"}


@dataclass
class Probes:
    """Asks for /healthz/live again and again on one connection."""

    port: int
    pid: int
    worst_s: float = 0.0
    worst_cpu_s: float = 0.0
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Ask until it is over."""
        connection = HTTPConnection(HOST, self.port, timeout=120)
        while not self.is_over.wait(0.005):
            began_s, began_cpu_s = time.perf_counter(), on_cpu_s(self.pid)
            connection.request("GET", "/healthz/live")
            connection.getresponse().read()
            self.worst_s = max(self.worst_s, time.perf_counter() - began_s)
            self.worst_cpu_s = max(self.worst_cpu_s, on_cpu_s(self.pid) - began_cpu_s)


def on_cpu_s(pid: int) -> float:
    """Seconds that the threads of a process have run, to the nanosecond (`psutil` counts hundredths of a second)."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended
            found += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return found / 1e9


@dataclass(frozen=True)
class Row:
    """What one body did to the service."""

    body: Body
    status: int
    cpu_s: float
    peak_bytes: int
    probe_s: float
    probe_cpu_s: float


@contextmanager
def service() -> Iterator[tuple[int, psutil.Process]]:
    """The port and the process of a service without a worker."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        environment = {**os.environ, "ISTHMUS_DATABASE_URL": f"sqlite:///{Path(folder) / 'x.sqlite'}",
                       "PYTHONPATH": str(ROOT), "ISTHMUS_MAX_QUEUED_PLANS": "100000"}  # fmt: skip
        command = [sys.executable, "-m", "app.cli", "serve", "--no-worker", "--port", str(port)]
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)
        try:
            await_(lambda: _is_live(port), "live")
            time.sleep(3.0)  # the OpenAPI document is being made
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(timeout=60)


def _is_live(port: int) -> bool:
    try:
        connection = HTTPConnection(HOST, port, timeout=5)
        connection.request("GET", "/healthz/live")
        return connection.getresponse().status == 200
    except OSError:
        return False


def tried(body: Body, port: int, process: psutil.Process) -> Row:
    """The cost of one body."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")  # forget the peak of memory
    held, cpu = process.memory_info().rss, process.cpu_times()
    probes = Probes(port, process.pid)
    thread = threading.Thread(target=probes.run)
    thread.start()
    connection = HTTPConnection(HOST, port, timeout=300)
    connection.request("POST", body.door.path, body=body.data, headers=JSON)
    status = connection.getresponse().status
    connection.close()
    probes.is_over.set()
    thread.join()
    after = process.cpu_times()
    spent_s = after.user + after.system - cpu.user - cpu.system
    return Row(body, status, spent_s, _peak_bytes(process.pid) - held, probes.worst_s, probes.worst_cpu_s)


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> int:
    """Try every body and print the worst."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    seeds = parser.parse_args().seeds
    with service() as (port, process):
        calm = Probes(port, process.pid)
        thread = threading.Thread(target=calm.run)
        thread.start()
        time.sleep(3.0)
        calm.is_over.set()
        thread.join()
        slowest_ms, cpu_ms = calm.worst_s * 1e3, calm.worst_cpu_s * 1e3
        print(f"without bodies the slowest probe took {slowest_ms:.0f} ms, {cpu_ms:.0f} ms of processor time")  # noqa: T201
        rows = [tried(largest(*one), port, process) for one in everywhere()]
        rows += [tried(grown(seed), port, process) for seed in range(seeds)]
        assert process.is_running()
    for name, unit, scale in (("cpu_s", "s", 1.0), ("peak_bytes", "MiB", MIB), ("probe_s", "ms", 1e-3),
                              ("probe_cpu_s", "ms", 1e-3)):  # fmt: skip
        print(f"worst by {name}:")  # noqa: T201
        for row in sorted(rows, key=lambda row: -getattr(row, name))[:5]:
            print(f"  {getattr(row, name) / scale:8.2f} {unit}  {row.status}  {row.body.how}")  # noqa: T201
    print(f"{len(rows)} bodies, {sum(row.status >= 500 for row in rows)} server errors")  # noqa: T201
    too_much = [row for row in rows if row.cpu_s > MOST_CPU_S or row.peak_bytes > MOST_BYTES]
    return (
        1
        if too_much or any(row.probe_cpu_s > MOST_PROBE_S for row in rows) or any(r.status >= 500 for r in rows)
        else 0
    )


if __name__ == "__main__":
    raise SystemExit(main())
