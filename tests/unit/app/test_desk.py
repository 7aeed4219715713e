"""The desk without a browser: its pages, their policy, and that everything they load is ours."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from fastapi.testclient import TestClient

from app.api.authentication import is_open
from app.exporters.report.page import STYLE_DIGEST
from app.exporters.target import SchedulerName, TrainerName
from app.main import create_app
from app.web.pages import REPORT_STATIC, STATIC
from benchmarks.accuracy import rows_of
from benchmarks.accuracy_page import DATA, page_data
from benchmarks.accuracy_runs import DATA as RUNS
from benchmarks.accuracy_runs import runs_data
from tests.unit.app.fake_solver import FINDS, INFEASIBLE
from tests.unit.app.service_fixture import running, settings_for, submit

ROOT = Path(__file__).parents[3]
DESK = STATIC / "desk"
PUBLISHED = ROOT / "tests" / "published" / "data" / "training.csv"
PAGES = ("/", "/plans", "/plans/plan_0", "/new", "/compare", "/studies", "/studies/study_0", "/accuracy")
MODULES = sorted(DESK.glob("*.js"))
HOST = re.compile(r"(?:https?:)?//([\w.-]+\.[a-z]{2,})")


@pytest.fixture(scope="module")
def client() -> TestClient:
    """The application without its database: the frames need none."""
    return TestClient(create_app(settings_for(Path("unused"))))


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_served_to_anybody_under_a_policy_of_our_own_files_alone(path: str, client: TestClient) -> None:
    answer = client.get(path)
    policy = dict(one.strip().split(" ", 1) for one in answer.headers["content-security-policy"].split(";"))
    assert answer.status_code == 200
    assert is_open(path)
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["style-src"] == f"'self' {STYLE_DIGEST}"
    assert "unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_names_no_other_host_and_runs_nothing_inline(path: str, client: TestClient) -> None:
    text = client.get(path).text
    assert HOST.findall(text) == []
    assert all("src=" in tag and body == "" for tag, body in re.findall(r"<script([^>]*)>(.*?)</script>", text, re.S))
    assert re.findall(r"\s(?:on\w+|style)=", text) == []


def test_every_asset_of_the_frame_and_every_module_is_served(client: TestClient) -> None:
    assets = re.findall(r'(?:src|href)="(/static/[^"]+)"', client.get("/").text)
    imported = {
        f"/static/desk/{name}" for one in MODULES for name in re.findall(r'from "\./([\w.]+)"', one.read_text())
    }
    assert len(assets) >= 4
    assert imported <= {f"/static/desk/{one.name}" for one in MODULES}
    for path in {*assets, *imported}:
        assert client.get(path).status_code == 200, path


@pytest.mark.parametrize("path", [*MODULES, DESK / "desk.css", REPORT_STATIC / "report.js"], ids=lambda one: one.name)
def test_no_file_of_the_desk_names_another_host_or_makes_markup_from_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(HOST.findall(text)) <= {"www.w3.org"}, "the SVG namespace is a name, not an address"
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Storage|cookie", text) == []
    assert len(text.splitlines()) <= 400


def test_the_folders_on_offer_are_those_that_the_service_makes() -> None:
    text = (DESK / "exports.js").read_text(encoding="utf-8")
    for constant, names in (("TRAINERS", get_args(TrainerName)), ("SCHEDULERS", get_args(SchedulerName))):
        offered = re.search(rf"const {constant} = {{(.*?)}};", text)
        assert offered is not None
        assert set(re.findall(r'"?([\w-]+)"?: "', offered.group(1))) == set(names)


def test_the_files_lie_in_the_packages_that_are_shipped() -> None:
    shipped = re.search(r"packages = \[([^\]]*)\]", (ROOT / "pyproject.toml").read_text())
    assert shipped is not None
    for folder in (DESK, REPORT_STATIC):
        assert f'"{folder.relative_to(ROOT).parts[0]}"' in shipped.group(1)


def test_the_figures_of_the_accuracy_page_are_those_of_the_document() -> None:
    document = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert DATA.read_text(encoding="utf-8") == page_data(document), "make accuracy writes both"
    cells = [cell for part in json.loads(page_data(document)) for table in part["tables"] for row in table["rows"]
             for cell in row]  # fmt: skip
    assert len(cells) > 200
    assert all(cell in document for cell in cells)


def test_the_runs_of_the_accuracy_page_are_those_that_were_published() -> None:
    shown = json.loads(RUNS.read_text(encoding="utf-8"))
    known = {(one["model"], one["measured_s"]) for one in shown}
    published = json.loads(runs_data(rows_of(PUBLISHED)))
    assert len(published) > 150
    assert {(one["model"], one["measured_s"]) for one in published} <= known
    assert {one["kind"] for one in shown} == {"dense", "moe"}


def test_a_list_says_which_cluster_and_what_for(tmp_path: Path) -> None:
    with running(settings_for(tmp_path)) as client:
        made = submit(client, FINDS, wait_s=20).json()
        asked = client.get(f"/v1/plans/{made['id']}/request").json()
        [row] = client.get("/v1/plans").json()["items"]
        assert (row["cluster"], row["objective"]) == (asked["cluster"]["name"], asked["objective"]["kind"])


def test_two_plans_are_compared_by_figures_choices_and_requests(tmp_path: Path) -> None:
    with running(settings_for(tmp_path)) as client:
        first, second = (
            submit(client, FINDS, wait_s=20, time_limit_s=limit_s).json()["id"] for limit_s in (20.0, 10.0)
        )
        found = client.get(f"/v1/plans/{first}/comparison", params={"other": second}).json()
        assert found["request"] == {"/options/time_limit_s": {"a": 20.0, "b": 10.0}}
        assert found["configuration"] == {}
        assert {one["change"] for one in found["figures"].values()} <= {0.0, None}
        assert found["moves"]["num_moved"] == 0
        assert found["other_id"] == second


def test_what_holds_no_plan_cannot_be_compared(tmp_path: Path) -> None:
    with running(settings_for(tmp_path)) as client:
        first, second = (submit(client, case, wait_s=20).json()["id"] for case in (FINDS, INFEASIBLE))
        answer = client.get(f"/v1/plans/{first}/comparison", params={"other": second})
        assert (answer.status_code, answer.json()["code"]) == (409, "not-finished")


def test_a_plan_in_short_has_the_figures_of_the_plan(tmp_path: Path) -> None:
    with running(settings_for(tmp_path)) as client:
        made = submit(client, FINDS, wait_s=20).json()
        plan, short = made["outcome"]["plan"], client.get(f"/v1/plans/{made['id']}/summary").json()
        assert short["metrics"] == plan["metrics"]
        assert short["time"] == plan["time"]
        assert short["routes"] == plan["placement"]["routes"]
        assert "timelines" not in short
        refused = client.get(f"/v1/plans/{submit(client, INFEASIBLE, wait_s=20).json()['id']}/summary")
        assert (refused.status_code, refused.json()["code"]) == (409, "not-finished")
        assert refused.json()["errors"][0]["remedy"] == "Ask about another plan.", "waiting would change nothing"
