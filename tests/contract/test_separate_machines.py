"""What docker/compose.yaml starts, started without containers: one Postgres, one service, and two workers on networks
of their own. The link of one worker is cut in the middle of a search; the other one makes its plan.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.storage.plans import TERMINAL
from app.storage.tables import PLANS
from models.catalogue import named_entry
from tests.image.compose import COMPOSE_FILE, DOCKERFILE, compose, entry_point, image_environment
from tests.unit.app.http_client import Client
from tests.unit.app.namespaces import Island, island
from tests.unit.app.postgres import Postgres, postgres
from tests.unit.app.programs import HOST, ROOT, await_, free_port, state_of

pytestmark = pytest.mark.slow

PASSWORD = "of-this-run"
TIME_LIMIT_S = 300.0  # more than a busy machine needs for a first plan; nothing here waits for the end of it
SHORT_TIMES = {"ISTHMUS_DEAD_WORKER_S": "3", "ISTHMUS_HEARTBEAT_S": "0.3", "ISTHMUS_DRAIN_S": "0.1"}
NOT_HERE = {"PATH", "NUMBA_CACHE_DIR", "ISTHMUS_HOST", "ISTHMUS_PORT"}  # of the image: folders and a port of its own


@dataclass(frozen=True)
class Stack:
    """The running stack: a client of the service, the islands by worker, and the database."""

    client: Client
    islands: Mapping[str, Island]
    engine: sa.Engine

    def holder(self, plan_id: str) -> str | None:
        """The worker that has a plan."""
        with self.engine.connect() as connection:
            held: str | None = connection.scalar(sa.select(PLANS.c.worker_id).where(PLANS.c.id == plan_id))
        return held

    def has_workers(self, number: int) -> bool:
        """Whether so many workers have been heard of lately."""
        return f"isthmus_workers {number}.0".encode() in self.client.get("/metrics")

    def status(self, plan_id: str) -> dict[str, Any]:
        """The light view of a plan; its figures are those of the best plan so far."""
        found: dict[str, Any] = json.loads(self.client.get(f"/v1/plans/{plan_id}/status"))
        return found

    def ended(self, plan_id: str) -> dict[str, Any]:
        """The whole plan once it has ended."""
        await_(lambda: state_of(self.client, plan_id) in TERMINAL, "ended", pause_s=0.2)
        envelope: dict[str, Any] = json.loads(self.client.get(f"/v1/plans/{plan_id}"))
        return envelope


def _environment(service: str, database_at: str) -> dict[str, str]:
    """What a service of the compose file sees: the image's variables and its own, `db` being where our Postgres is."""
    declared = compose(COMPOSE_FILE.read_text(), {"POSTGRES_PASSWORD": PASSWORD})["services"][service]["environment"]
    image = image_environment(DOCKERFILE.read_text())
    ours = {name: value for name, value in image.items() if name not in NOT_HERE}
    there = {name: value.replace("@db:5432/", f"@{database_at}/") for name, value in declared.items()}
    assert database_at in there["ISTHMUS_DATABASE_URL"], "the compose file names another database host"
    return {**os.environ, **ours, **there, **SHORT_TIMES, "PYTHONPATH": str(ROOT)}


def _program(service: str) -> list[str]:
    """The entry point of the image with the command of a service, from the environment that the tests run in."""
    name, *rest = entry_point(DOCKERFILE.read_text())
    command = compose(COMPOSE_FILE.read_text(), {"POSTGRES_PASSWORD": PASSWORD})["services"][service]["command"]
    return [str(Path(sys.executable).parent / name), *rest, *command]


@contextmanager
def _started(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[None]:
    process = subprocess.Popen(command, cwd=folder, env=environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _prepared(server: Postgres) -> sa.Engine:
    """The role's password and the database that the compose file asks of Postgres's image."""
    address = server.url.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(address, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"ALTER ROLE isthmus PASSWORD '{PASSWORD}'"))
        connection.execute(sa.text("CREATE DATABASE isthmus"))
    engine.dispose()
    return sa.create_engine(address.removesuffix("postgres") + "isthmus")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """The stack with both workers alive."""
    with ExitStack() as held:
        islands = [held.enter_context(island(number)) for number in range(2)]
        server = held.enter_context(postgres(also_on=[one.near for one in islands]))
        engine = _prepared(server)
        held.callback(engine.dispose)
        service = {**_environment("service", f"{HOST}:{server.port}"), "ISTHMUS_PORT": str(port := free_port())}
        held.enter_context(_started(_program("service"), service, tmp_path))
        for one in islands:
            environment = _environment("worker", f"{one.near.ip}:{server.port}")
            held.enter_context(_started(one.command(*_program("worker")), environment, tmp_path))
        stack = Stack(Client(HOST, port), {one.name: one for one in islands}, engine)
        await_(stack.client.is_ready, "ready", pause_s=0.2)  # the first start compiles the kernels
        await_(lambda: stack.has_workers(2), "two workers", pause_s=0.2)
        yield stack


def _request() -> dict[str, Any]:
    return {**named_entry("examples", "llama-405b-two-buildings"), "options": {"time_limit_s": TIME_LIMIT_S}}


def test_the_plan_of_a_worker_that_is_cut_off_is_made_by_the_other(stack: Stack) -> None:
    plans = [stack.client.post("/v1/plans", _request())["id"] for _ in range(2)]
    await_(lambda: all(state_of(stack.client, one) == "running" for one in plans), "running")
    lost, kept = plans
    before, other = stack.holder(lost), stack.holder(kept)
    assert {before, other} == set(stack.islands), "each worker has one plan, under the host name of its container"

    stack.islands[str(before)].cut()
    stack.client.post(f"/v1/plans/{kept}:cancel", {})  # so that the worker that is left need not finish it first
    assert stack.ended(kept)["attempt"] == 1
    await_(lambda: stack.holder(lost) == other, "taken over")
    await_(lambda: stack.status(lost)["figures"], "planned anew", pause_s=0.2)
    stack.client.post(f"/v1/plans/{lost}:cancel", {})
    recovered = stack.ended(lost)
    assert (recovered["state"], recovered["attempt"]) == ("cancelled", 2)
    assert recovered["outcome"]["plan"]["verdict"]["accepted"] is True

    stack.islands[str(before)].mend()
    await_(lambda: stack.has_workers(2), "back")
    assert json.loads(stack.client.get(f"/v1/plans/{lost}")) == recovered, "what the lost worker found is not written"
    assert stack.client.get(f"/v1/plans/{lost}/events?after=0").count(b"event: done") == 1
