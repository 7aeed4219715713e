"""Starts the real service on a real SQLite file with the made-up planner; shared by the tests of `app`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from app.main import create_app
from app.settings import Settings, Solvers
from tests.unit.models.bad_requests import good_request

FAKE = "tests.unit.app.fake_solver"
FAKE_SOLVERS = Solvers(
    plan=f"{FAKE}:plan",
    ask=f"{FAKE}:ask",
    lint=f"{FAKE}:lint",
    validate_request=f"{FAKE}:check",
    judge=f"{FAKE}:judge",
    schedule=f"{FAKE}:schedule",
    warm_up=f"{FAKE}:warm_up",
)


def settings_for(folder: Path, **changes: Any) -> Settings:
    """Settings with short times, so that every stop is reached quickly."""
    values: dict[str, Any] = {
        "database_url": f"sqlite:///{folder / 'service.sqlite'}",
        "worker_id": "test-worker",
        "queue_poll_s": 0.02,
        "event_poll_s": 0.02,
        "progress_interval_s": 0.01,
        "soft_grace_s": 0.2,
        "kill_grace_s": 0.2,
        "cancel_grace_s": 0.2,
        "drain_s": 0.1,
        "child_memory_bytes": 1024**3,
        "solvers": FAKE_SOLVERS,
    }
    return Settings.model_validate({**values, **changes})


@contextmanager
def running(settings: Settings) -> Iterator[TestClient]:
    """A client of a started service; the service is stopped at the end."""
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


def request_for(case: int, time_limit_s: float = 20.0) -> dict[str, Any]:
    """A good request that makes the planner behave in the chosen way."""
    return {**good_request(), "options": {"seed": case, "time_limit_s": time_limit_s}}


def submit(client: TestClient, case: int, *, wait_s: int = 0, time_limit_s: float = 20.0) -> Any:
    """The answer to a submission."""
    headers = {"Prefer": f"wait={wait_s}"} if wait_s else {}
    return client.post("/v1/plans", json=request_for(case, time_limit_s), headers=headers)
