"""Measured runs become a profile that later requests name by id or bring along; too few or odd rows are refused."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.unit.app import fake_solver
from tests.unit.app.service_fixture import request_for

ROWS = Path(__file__).parents[2] / "published" / "data" / "training.csv"
CSV = {"Content-Type": "text/csv"}


@pytest.fixture(scope="module")
def fitted(client: TestClient) -> dict[str, Any]:
    """A calibration of published rows of one software, with one constant freed so that it is quick."""
    table = csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines())
    rows = [row for row in table if row["family"] == "zero_bubble"][:16]
    answer = client.post("/v1/calibrations", json={"name": "ours", "constants": ["gemm_efficiency"], "rows": rows})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/calibrations/{answer.json()['id']}"
    body: dict[str, Any] = answer.json()
    return body


def test_the_fit_says_how_good_it_is(fitted: dict[str, Any]) -> None:
    assert set(fitted["fitted"]) == {"gemm_efficiency"}
    assert 0 < fitted["fit_mean_abs_pct"] <= fitted["cross_validated_mean_abs_pct"] * 1.5
    assert fitted["profile"]["gemm_efficiency"]["origin"] == "fitted"


def test_a_request_may_name_it_or_bring_it(client: TestClient, fitted: dict[str, Any]) -> None:
    for profile in (fitted["id"], fitted["profile"]):
        body = request_for(fake_solver.FINDS)
        body["options"] = {**body["options"], "stack_profile": profile}
        answer = client.post("/v1/plans", json=body)
        assert answer.status_code == 202, answer.text
        kept = client.get(answer.headers["location"] + "/request").json()
        assert kept["options"]["stack_profile"]["name"] == "ours"


def test_an_unknown_calibration_is_named(client: TestClient) -> None:
    body = request_for(fake_solver.FINDS)
    body["options"] = {**body["options"], "stack_profile": "cal_" + "0" * 32}
    answer = client.post("/v1/plans", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown-name")
    assert answer.json()["errors"][0]["pointer"] == "/options/stack_profile"


def test_calibrations_are_listed_and_removed(client: TestClient, fitted: dict[str, Any]) -> None:
    path = f"/v1/calibrations/{fitted['id']}"
    assert client.get(path).json() == fitted
    assert fitted in client.get("/v1/calibrations").json()["items"]
    assert client.get("/v1/calibrations?cursor=x").status_code == 400
    assert [client.delete(path).status_code, client.delete(path).status_code] == [204, 404]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"gpu,tp\nA100-80G,8\n", "missing-field"),
        (b"gpu,tp\nA100-80G,8,9\n", "invalid-request"),
        (b"\xff\xfe\x00", "invalid-request"),
        (b"gpu,tp,gpu\nA100-80G,8,H100\n", "invalid-request"),
        (b"gpu\n", "bad-length"),
        (b"", "bad-length"),
    ],
)
def test_rows_that_are_none_are_refused(client: TestClient, body: bytes, code: str) -> None:
    answer = client.post("/v1/calibrations", content=body, headers=CSV)
    assert answer.status_code == 422, answer.text
    assert answer.json()["code"] in (code, "too-few-rows")


def test_csv_is_accepted_nowhere_else(client: TestClient) -> None:
    assert client.post("/v1/plans", content=b"a,b\n", headers=CSV).status_code == 415
