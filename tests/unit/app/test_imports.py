"""Topologies and models of other tools come in over HTTP as on the command line, and faults keep their lines."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.api.examples import IMPORT_EXAMPLES
from app.api.imports import Kind
from app.importers.registry import KINDS, import_cluster
from models.cluster import Cluster
from models.workload import Architecture
from tests.unit.app.fake_solver import FINDS
from tests.unit.app.importers import samples
from tests.unit.app.service_fixture import request_for


def _sent(client: TestClient, **body: Any) -> Any:
    return client.post("/v1/imports", json=body)


def _file(name: str, text: str) -> dict[str, str]:
    return {"name": name, "text": text}


@pytest.mark.parametrize(
    ("kind", "text", "overlay"),
    [
        ("slurm-yaml", samples.SLURM_YAML, samples.OVERLAY),
        ("slurm-conf", samples.SLURM_CONF, samples.OVERLAY),
        ("topograph", samples.TOPOGRAPH, samples.OVERLAY),
        ("kueue", samples.KUEUE_TOPOLOGY + samples.KUEUE_NODES, samples.KUEUE_OVERLAY),
        ("links-csv", samples.LINKS, samples.LINKS_OVERLAY),
    ],
)
def test_a_topology_is_the_cluster_that_the_command_line_makes(
    client: TestClient, kind: str, text: str, overlay: str
) -> None:
    answer = _sent(client, kind=kind, files=[_file("given", text)], overlay=_file("overlay.yaml", overlay))
    assert answer.status_code == 200, answer.text
    made = import_cluster(kind, [("given", text.encode())], ("overlay.yaml", overlay.encode())).cluster
    assert Cluster.model_validate(answer.json()["cluster"]) == made
    assert f"{made.num_free_gpus:,} GPUs to plan with" in answer.json()["notes"][-1]


def test_what_came_in_may_stand_in_a_request(client: TestClient) -> None:
    cluster, model = (client.post("/v1/imports", json=one.get("value")).json() for one in IMPORT_EXAMPLES.values())
    Architecture.model_validate(model["architecture"])
    body = request_for(FINDS) | {"cluster": cluster["cluster"]}
    body["workload"]["architecture"] = model["architecture"]
    assert client.post("/v1/plans:validate", json=body).status_code == 200


def test_a_fault_says_file_line_and_column(client: TestClient) -> None:
    wrong = "levels:\n  - {level: tier-0, place: hall}\n"
    answer = _sent(client, kind="slurm-yaml", files=[_file("topology.yaml", samples.SLURM_YAML)],
                   overlay=_file("overlay.yaml", wrong))  # fmt: skip
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["where"].startswith("overlay.yaml:2:")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"kind": "carrier-pigeon", "files": [_file("a", "b")]}, "not-an-option"),
        ({"kind": "slurm-yaml", "files": [_file("a", samples.SLURM_YAML)]}, "missing-field"),
        ({"kind": "huggingface", "files": [_file("a", "{}"), _file("b", "{}")]}, "bad-length"),
        ({"kind": "huggingface", "files": [_file("a", "{}")], "overlay": _file("o", "")}, "contradiction"),
        ({"kind": "kueue", "files": [_file("a", "!!python/object/apply:os.system [id]")]}, "invalid-request"),
    ],
)
def test_what_cannot_be_read_is_refused(client: TestClient, body: dict[str, Any], code: str) -> None:
    answer = client.post("/v1/imports", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_every_kind_of_the_registry_is_on_offer() -> None:
    assert set(Kind.__args__) == set(KINDS)  # type: ignore[attr-defined]
