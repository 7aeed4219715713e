"""A process that has imported everything and forks the programs of a soak, so that a start costs no imports.

What is forked is a process of its own with a group of its own, like one started by hand; but it never outlives the
nursery, nor the nursery the soak, however that one is stopped.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil

from app.jobs.processes import PR_SET_PDEATHSIG
from tests.soak import clock  # before whatever keeps the function that tells the time
from tests.unit.app import serve_fake
from tests.unit.app.programs import ROOT


class Program:
    """One forked program."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process = psutil.Process(pid)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        try:
            return self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.is_running:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> None:
        """Wait until it has ended; kill it after so long."""
        _, left = psutil.wait_procs([self._process], timeout=timeout_s)
        for one in left:
            one.kill()


class Nursery:
    """Starts programs by forking a process that is warm, of the code below `root`."""

    def __init__(self, log: IO[bytes], clock_file: Path, root: Path = ROOT) -> None:
        plain = ["setpriv", "--bounding-set", "-dac_override"] if os.getuid() == 0 else []  # modes of files bind it
        command = [*plain, sys.executable, "-m", "tests.soak.nursery"]
        environment = {**os.environ, clock.VARIABLE: str(clock_file), "PYTHONPATH": str(root)}
        self._process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )

    def start(self, arguments: Sequence[str]) -> Program:
        """Fork one program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(list(arguments)) + "\n")
        self._process.stdin.flush()
        return Program(int(self._process.stdout.readline()))

    def close(self) -> None:
        """End the nursery, and with it every program that has not ended before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def main() -> None:
    """Fork once for every line of arguments and say the id of the child."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is for the soak, which then ends the programs
    nursery = os.getpid()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line), nursery)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _become(arguments: list[str], nursery: int) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    # A soak that is stopped between a fork and the answer knows nothing of this program and cannot end it.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != nursery:  # which has ended meanwhile
        os._exit(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    sys.argv = ["serve_fake", *arguments]
    status = 1
    try:
        serve_fake.main()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
