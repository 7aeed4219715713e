"""One running service per test module: it starts in half a second, and its tests do not disturb each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.unit.app.service_fixture import running, settings_for


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The service with the made-up planner."""
    with running(settings_for(tmp_path_factory.mktemp("service"), num_concurrent_solves=2)) as started:
        yield started
