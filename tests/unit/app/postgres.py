"""A real Postgres server for tests: it can be stopped, killed with everything below it, and started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import IPv4Interface
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from tests.unit.app.programs import HOST, free_port

NOBODY = 65534


class NoPostgres(Exception):
    """The server is not installed."""


def tool(name: str) -> str:
    """Where a program of Postgres is installed, the newest of several."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(installed[-1]) if installed else shutil.which(name)
    if found is None:
        raise NoPostgres(f"Postgres is not installed, no {name}: run make postgres")
    return found


def _run(*command: str, check: bool = True) -> int:
    """Run a tool of Postgres, which refuses to be root."""
    user = NOBODY if os.getuid() == 0 else None
    done = subprocess.run(command, check=check, user=user, group=user, extra_groups=[] if user else None,
                          stdout=subprocess.DEVNULL, stderr=None if check else subprocess.DEVNULL,
                          cwd="/")  # fmt: skip
    return done.returncode


def _runs(process: psutil.Process) -> bool:
    """Whether it is more than an entry that nobody has collected."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Postgres:
    """One server with a folder and a port of its own.

    Programs of this machine come in by name alone; those of the networks in `also_on`, where it listens too, need the
    password of their role.
    """

    def __init__(self, folder: Path, also_on: Sequence[IPv4Interface] = ()) -> None:
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        self._data, self._folder, self.port = folder / "data", folder, free_port()
        self.url = f"postgresql://isthmus@{HOST}:{self.port}/postgres"
        self._addresses = ",".join((HOST, *(str(one.ip) for one in also_on)))
        _run(tool("initdb"), "-D", str(self._data), "-U", "isthmus", "-A", "trust")
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.writelines(f"host all all {one.network} scram-sha-256\n" for one in also_on)
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers; what is left of a killed one may need a moment to go."""
        options = f"-p {self.port} -k {self._folder} -c listen_addresses={self._addresses} -c fsync=off"
        command = (tool("pg_ctl"), "-D", str(self._data), "-o", options, "-l", str(self._folder / "log"), "-w")
        if _run(tool("pg_ctl"), "-D", str(self._data), "status", check=False) == 0:
            return
        for _ in range(30):
            if _run(*command, "start", check=False) == 0:
                return
            time.sleep(0.5)
        raise AssertionError("Postgres does not start:\n" + (self._folder / "log").read_text()[-2000:])

    def stop(self, mode: str = "immediate") -> None:
        """End it as an administrator does."""
        _run(tool("pg_ctl"), "-D", str(self._data), "-m", mode, "-w", "stop", check=False)

    def kill(self) -> None:
        """SIGKILL to the server and to every session of it at once.

        Where nobody collects the dead, their number stays taken and the server believes in the file that names it.
        """
        named = self._data / "postmaster.pid"
        server = psutil.Process(int(named.read_text().split()[0]))
        killed = [server, *server.children(recursive=True)]
        for one in killed:
            with suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGKILL)
        while any(map(_runs, killed)):
            time.sleep(0.01)
        named.unlink(missing_ok=True)


@contextmanager
def postgres(also_on: Sequence[IPv4Interface] = ()) -> Iterator[Postgres]:
    """A running server that is gone at the end.

    In a folder of its own: those of pytest are closed to other users, again with every session that begins.
    """
    with TemporaryDirectory(prefix="isthmus-postgres-") as folder:
        server = Postgres(Path(folder), also_on)
        try:
            yield server
        finally:
            server.stop()
