"""What tests of commands start from: settings, a service, two plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.settings import Settings
from models.outcome import Planned
from tests.unit.app import fake_solver
from tests.unit.app.http_client import Client
from tests.unit.app.programs import HOST, free_port, program, ready, sqlite
from tests.unit.app.service_fixture import settings_for


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with the made-up planner."""
    return settings_for(tmp_path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a service with the made-up planner listens."""
    port = free_port()
    with program("serve", port, sqlite(tmp_path_factory.mktemp("service")), "w"):
        ready(Client(HOST, port))
        yield f"http://{HOST}:{port}"


@pytest.fixture
def plans(tmp_path: Path) -> tuple[str, str]:
    """Two plan files: 2 s in east and west, 3 s with both ranks in the east."""
    names = []
    for name, plan in (("a", fake_solver.tiny_plan(2.0)), ("b", fake_solver.tiny_plan(3.0, ("east", "east")))):
        path = tmp_path / f"{name}.json"
        path.write_text(Planned(plan=plan, complete=True, elapsed_s=1.0).model_dump_json())
        names.append(str(path))
    return names[0], names[1]
