"""Processor time of a service from its start until it is ready, its worker too: `python -m benchmarks.start [ROUNDS]`.

A database of its own each time, compiled parts in place. On a calm machine the start takes as long on the clock,
because the fork server imports the solvers beside it. Exit status 1: the median of the service's own processor time is
over the limit.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.service import free_port, say, status_of, until

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
MOST_CPU_S = 2.5  # so that five seconds on the clock hold on a calm machine with half its speed


def started() -> tuple[float, float, float]:
    """Seconds on the clock, of the service's own processor time, and of its child processes' until it is ready."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        environment = {**os.environ, "ISTHMUS_DATABASE_URL": f"sqlite:///{Path(folder) / 'x.sqlite'}"}
        command = [sys.executable, "-c", "from app.cli import main; main()", "serve", "--port", str(port)]
        at = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            until(lambda: status_of(port, "/healthz/ready") == 200, pause_s=0.01)
            wall_s, own = time.perf_counter() - at, psutil.Process(process.pid)
            children = sum(sum(one.cpu_times()[:2]) for one in own.children(recursive=True))
            return wall_s, sum(own.cpu_times()[:2]), children
        finally:
            process.terminate()
            process.wait(60)


def main() -> None:
    """Print the medians and leave with 1 when a start takes too much."""
    started()  # the first of a machine compiles what is compiled once
    rows = [started() for _ in range(ROUNDS)]
    wall_s, own_s, children_s = (statistics.median(column) for column in zip(*rows, strict=True))
    load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    say(f"ready after {own_s:.2f} s of the service's processor time, limit {MOST_CPU_S} s")
    say(f"{children_s:.2f} s of its children's, {wall_s:.2f} s on the clock; {load}")
    sys.exit(own_s > MOST_CPU_S)


if __name__ == "__main__":
    main()
