"""The service with the real planner: an example goes in over HTTP, a judged plan and its exports come out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.documents import read_plan
from app.settings import Solvers
from app.storage.queue import PlanQueue
from app.storage.tables import create_engine
from models.catalogue import named_entry
from tests.counted import BUSY_S, COUNTED
from tests.unit.app.http_client import Client
from tests.unit.app.importers.test_huggingface_newer import PUBLISHED
from tests.unit.app.programs import HOST, await_, free_port, program, ready, sqlite, state_of
from tests.unit.app.service_fixture import running, settings_for

ROOT = Path(__file__).parents[2]
PATIENT: dict[str, Any] = {
    "soft_grace_s": BUSY_S,
    "kill_grace_s": BUSY_S,
    "child_memory_bytes": 4 * 1024**3,
    "solvers": Solvers(**COUNTED).model_dump(),
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The service with the real planner, whose seconds are counted, so that a busy machine decides nothing."""
    with running(settings_for(tmp_path_factory.mktemp("real"), **PATIENT)) as started:
        yield started


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """The smallest example, with little time."""
    body: dict[str, Any] = dict(named_entry("examples", "llama-8b-single-building"))
    body["options"] = {**body.get("options", {}), "time_limit_s": 5.0}
    return body


@pytest.fixture(scope="module")
def plan(client: TestClient, example: dict[str, Any]) -> dict[str, Any]:
    """The envelope of the planned example."""
    return ended(client, example)


def ended(client: TestClient, body: dict[str, Any]) -> dict[str, Any]:
    """The envelope of a submitted plan once its search has ended."""
    answer = client.post("/v1/plans", json=body)
    assert answer.status_code == 202
    link = answer.json()["links"]["self"]
    envelope: dict[str, Any] = await_(
        lambda: found if (found := client.get(link).json())["finished_at"] else None, "ended", pause_s=0.1
    )
    return envelope


def test_the_example_ends_with_a_judged_plan(plan: dict[str, Any]) -> None:
    assert plan["state"] == "succeeded", plan["fault"]
    assert plan["outcome"]["status"] == "planned"
    assert plan["outcome"]["plan"]["verdict"]["accepted"] is True
    assert 0 < plan["outcome"]["plan"]["proof"]["lower_bound_s"] <= plan["outcome"]["plan"]["metrics"]["iteration_s"]


def test_the_judge_accepts_the_plan_when_it_comes_back(
    client: TestClient, plan: dict[str, Any], example: dict[str, Any]
) -> None:
    body = {"request": example, "plan": plan["outcome"]["plan"]}
    assert client.post("/v1/plans:evaluate", json=body).json()["verdict"]["accepted"] is True


def test_the_judge_objects_to_a_plan_of_another_request(
    client: TestClient, plan: dict[str, Any], example: dict[str, Any]
) -> None:
    other = {**example, "workload": {**example["workload"], "global_batch_sequences": 7}}
    answer = client.post("/v1/plans:evaluate", json={"request": other, "plan": plan["outcome"]["plan"]})
    assert answer.json()["verdict"]["accepted"] is False


@pytest.mark.parametrize("kind", ["chrome-trace", "rank-map-csv", "megatron-args", "torch-schedule-csv"])
def test_the_plan_is_exported(client: TestClient, plan: dict[str, Any], kind: str) -> None:
    assert client.get(f"{plan['links']['self']}/artifacts/{kind}").status_code == 200


def test_an_imported_model_is_planned_and_exported_as_its_configuration_states(
    client: TestClient, example: dict[str, Any]
) -> None:
    """gpt-oss-20b: windows, sinks, a clipped activation, biases of experts; and a gain that Megatron lacks."""
    config = PUBLISHED["gpt-oss-20b"][0] | {"swiglu_alpha": 1.5}
    body = {"kind": "huggingface", "files": [{"name": "config.json", "text": json.dumps(config)}]}
    imported = client.post("/v1/imports", json=body).json()
    assert any("absent, taken as transformers does for gpt_oss" in note for note in imported["notes"])
    request = {**example, "workload": {**example["workload"], "architecture": imported["architecture"]}}
    request["constraints"] = {"framework": "megatron-core"}
    envelope = ended(client, request)
    assert envelope["outcome"]["status"] == "planned", envelope
    artifact = client.get(f"{envelope['links']['self']}/artifacts/megatron-args")
    assert artifact.status_code == 200, artifact.text
    for argument in ("--softmax-type learnable", "--window-size 127,0", "--quick-geglu", "--glu-linear-offset 1",
                     "--activation-func-clamp-value 7", "--no-yarn-correction-range-round-to-int"):  # fmt: skip
        assert argument in artifact.text.splitlines()
    assert "--disable-bias-linear" not in artifact.text
    assert "# not expressed: the activation's sigmoid has the gain 1.5: Megatron-Core lacks it" in artifact.text


def test_a_plan_without_host_names_gives_no_host_file(client: TestClient, plan: dict[str, Any]) -> None:
    answer = client.get(f"{plan['links']['self']}/artifacts/slurm-hostfile")
    assert answer.status_code == 422
    assert "`hosts`" in answer.json()["errors"][0]["remedy"]


def test_impossible_memory_is_an_outcome_with_reasons(client: TestClient, example: dict[str, Any]) -> None:
    allowed = {"tp": [1], "pp": [1], "cp": [1], "sharding": ["ddp"]}
    body = {**example, "constraints": {"allowed": allowed}}
    body["workload"] = {**example["workload"], "architecture": "llama-3.1-405b"}
    envelope = ended(client, body)
    assert envelope["outcome"]["status"] == "infeasible"
    assert envelope["outcome"]["reasons"][0]["remedies"]


def test_a_pipeline_is_timed_to_its_proven_optimum(client: TestClient) -> None:
    stage = {"forward_s": 1.0, "input_grad_s": 1.0, "weight_grad_s": 1.0}
    problem = {"num_microbatches": 4, "ranks": [{}, {}], "stages": [stage, stage], "options": {"time_limit_s": 60}}
    answer = client.post("/v1/schedules", json=problem).json()
    assert (answer["status"], answer["makespan_s"]) == ("optimal", 13.0)


@pytest.mark.slow
def test_the_demo_plans_over_http_and_leaves_its_files(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "app.cli", "demo"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_plan((tmp_path / "var/demo/plan.json").read_bytes()).verdict.accepted
    assert json.loads((tmp_path / "var/demo/trace.json").read_text())["traceEvents"]
    assert "service stopped" in done.stdout


def test_a_search_goes_on_after_the_service_was_killed(tmp_path: Path) -> None:
    """Never worse in plan or bound, and the plan says where it began."""
    far = {**named_entry("examples", "llama-405b-two-buildings"), "options": {"time_limit_s": 5.0, "workers": 1}}
    found: list[dict[str, Any]] = []
    client = Client(HOST, port := free_port())
    for number in range(2):
        with program("serve", port, sqlite(tmp_path), "one", **PATIENT) as service:
            ready(client)
            path = "/v1/plans" if not number else f"/v1/plans/{found[0]['id']}:resume"
            body = far if not number else {"time_limit_s": 3.0}
            plan_id = client.post(path, body)["id"]
            await_(lambda plan_id=plan_id: state_of(client, plan_id) == "succeeded", "planned", pause_s=0.1)
            found.append(json.loads(client.get(f"/v1/plans/{plan_id}")))
            service.kill()
            service.wait()
    first, second = (one["outcome"]["plan"] for one in found)
    assert second["metrics"]["iteration_s"] <= first["metrics"]["iteration_s"]
    assert second["proof"]["lower_bound_s"] >= min(first["proof"]["lower_bound_s"], second["metrics"]["iteration_s"])
    assert second["notes"][0].startswith("this search goes on where an earlier one had ended")
    assert second["proof"]["num_explored"] >= first["proof"]["num_explored"]


@pytest.mark.slow
def test_a_search_that_was_killed_in_the_middle_goes_on_with_what_it_had_kept(tmp_path: Path) -> None:
    far = {**named_entry("examples", "llama-405b-two-buildings"), "options": {"time_limit_s": 30.0, "workers": 1}}
    client = Client(HOST, port := free_port())
    with program("serve", port, sqlite(tmp_path), "one", **PATIENT) as service:
        ready(client)
        plan_id = client.post("/v1/plans", far)["id"]
        queue = PlanQueue(create_engine(sqlite(tmp_path)))
        await_(lambda: queue.kept(plan_id), "kept", pause_s=0.1)
        service.kill()
        service.wait()
    with program("serve", port, sqlite(tmp_path), "one", **PATIENT):
        ready(client)
        await_(lambda: state_of(client, plan_id) == "succeeded", "planned", pause_s=0.1)
        envelope = json.loads(client.get(f"/v1/plans/{plan_id}"))
    assert envelope["attempt"] == 2
    assert envelope["outcome"]["plan"]["notes"][0].startswith("this search goes on where an earlier one had ended")
