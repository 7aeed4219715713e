"""One service as a program of its own, with the made-up planner, for the tests of its clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.app.http_client import Client
from tests.unit.app.programs import HOST, free_port, program, ready, sqlite


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where it listens."""
    port = free_port()
    with program("serve", port, sqlite(tmp_path_factory.mktemp("client")), "w", num_concurrent_solves=2):
        ready(Client(HOST, port))
        yield f"http://{HOST}:{port}"
