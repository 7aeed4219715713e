"""The same service on a real Postgres: two workers share one queue, and a killed one loses nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.terminal.client import Client
from tests.unit.app import fake_solver
from tests.unit.app.programs import HOST, await_, free_port, program, ready, searching, state_of
from tests.unit.app.service_fixture import request_for

pytestmark = pytest.mark.slow
NOBODY = 65534


def _tool(name: str) -> str:
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(installed[-1]) if installed else shutil.which(name)
    if found is None:
        pytest.fail(f"Postgres is not installed, no {name}: run make postgres")
    return found


def _run(*command: str) -> None:
    """Run a tool of Postgres, which refuses to be root."""
    user = NOBODY if os.getuid() == 0 else None
    subprocess.run(command, check=True, user=user, group=user, extra_groups=[] if user else None,
                   stdout=subprocess.DEVNULL, cwd="/")  # fmt: skip


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Postgres that lives as long as this module's tests."""
    pytest.importorskip("psycopg")
    initdb, pg_ctl = _tool("initdb"), _tool("pg_ctl")
    folder = tmp_path_factory.mktemp("postgres")
    for one in (folder, folder.parent, folder.parent.parent):
        one.chmod(0o755)
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    data, port = str(folder / "data"), free_port()
    _run(initdb, "-D", data, "-U", "isthmus", "-A", "trust")
    listen = f"-p {port} -k {folder} -c listen_addresses={HOST} -c fsync=off"
    _run(pg_ctl, "-D", data, "-o", listen, "-l", str(folder / "log"), "-w", "start")
    yield f"postgresql://isthmus@{HOST}:{port}/postgres"
    _run(pg_ctl, "-D", data, "-m", "immediate", "-w", "stop")


def test_two_workers_share_the_queue_and_no_plan_is_lost_or_made_twice(database: str) -> None:
    client = Client(HOST, port := free_port())
    with program("api", port, database, "api"), program("work", 0, database, "mortal") as mortal:
        ready(client)
        held = client.post("/v1/plans", request_for(fake_solver.UNTIL_STOPPED))["id"]
        await_(lambda: searching(client, held), "searching")
        with program("work", 0, database, "heir"):
            others = [client.post("/v1/plans", request_for(fake_solver.FINDS))["id"] for _ in range(20)]
            mortal.kill()
            mortal.wait()
            await_(lambda: b'"attempt":2' in client.get(f"/v1/plans/{held}"), "taken over")
            client.post(f"/v1/plans/{held}:cancel", {})
            await_(lambda: state_of(client, held) == "cancelled", "cancelled")
            await_(lambda: all(state_of(client, one) == "succeeded" for one in others), "succeeded")
            for one in others:
                assert client.get(f"/v1/plans/{one}/events?after=0").count(b"event: done") == 1
