"""A client that a kept generator makes from openapi.json talks to a running service: submit, poll, fetch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.unit.app import fake_solver
from tests.unit.app.http_client import Client
from tests.unit.app.programs import HOST, ROOT, free_port, program, ready, sqlite
from tests.unit.app.service_fixture import request_for

TOOLS = ROOT / ".venv-tools" / "bin"
CALLS = """
import json, sys, time
from isthmus_client import Client
from isthmus_client.api.plans import cancel_plan, list_plans, read_plan, read_plan_status, submit_plan
from isthmus_client.models import PlanRequest, PlanStatus, Problem

client = Client(base_url=sys.argv[1])
request = PlanRequest.from_dict(json.loads(sys.argv[2]))
submitted = submit_plan.sync(client=client, body=request, idempotency_key="generated-1")
assert isinstance(submitted, PlanStatus), submitted
for _ in range(600):
    status = read_plan_status.sync(submitted.id, client=client)
    if status.state not in ("queued", "running"):
        break
    time.sleep(0.1)
envelope = read_plan.sync(submitted.id, client=client)
assert envelope.state == "succeeded", envelope.state
assert envelope.outcome.plan.metrics.iteration_s == 2.0
assert submitted.id in [one.id for one in list_plans.sync(client=client, limit=10).items]
absent = read_plan_status.sync("plan_" + "0" * 32, client=client)
assert isinstance(absent, Problem) and absent.status == 404 and absent.errors[0].code == "not-found", absent
print(envelope.id)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the generated package in it."""
    folder = tmp_path_factory.mktemp("generated")
    config = folder / "config.yaml"
    config.write_text("package_name_override: isthmus_client\nproject_name_override: client\npost_hooks: []\n")
    command = [str(TOOLS / "openapi-python-client"), "generate", "--path", str(ROOT / "openapi.json"), "--meta", "none",
               "--config", str(config), "--output-path", str(folder / "isthmus_client")]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    warnings = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("WARNING", "Unable"))]
    assert warnings == ["WARNING parsing POST /v1/calibrations within calibrations."], "it knows no text/csv"
    return folder


def test_the_generated_client_submits_polls_and_fetches(package: Path, tmp_path: Path) -> None:
    port = free_port()
    with program("serve", port, sqlite(tmp_path), "generated"):
        ready(Client(HOST, port))
        command = [
            str(TOOLS / "python"),
            "-c",
            CALLS,
            f"http://{HOST}:{port}",
            json.dumps(request_for(fake_solver.FINDS)),
        ]
        done = subprocess.run(command, cwd=package, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("plan_")
