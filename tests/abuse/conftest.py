"""One service for all the abuse, which it has to survive without a defect in its log."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.abuse.wire import Service, started


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service; at the end its log has told of no defect."""
    with started(tmp_path_factory.mktemp("abuse")) as running:
        yield running
    lines = [json.loads(line) for line in running.log.read_text().splitlines() if line.startswith("{")]
    assert [line for line in lines if line["level"] in ("ERROR", "CRITICAL")] == []


@pytest.fixture(autouse=True)
def still_answering(service: Service) -> Iterator[None]:
    """Whatever a test did, the next client is served."""
    yield
    assert service.ask("GET", "/healthz/live", who="").status == 200


@pytest.fixture(scope="session")
def plan(service: Service) -> str:
    """The path of a plan of alice's."""
    from tests.unit.models.bad_requests import good_request

    return str(service.post("/v1/plans", good_request()).headers["location"])
