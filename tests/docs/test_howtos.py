"""What the documents show is valid: JSON blocks against their model, code blocks by running them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from models.base import Frozen
from models.cluster import Cluster, GpuType
from models.request import PlanRequest
from models.workload import Architecture
from tests.pipelines import pipeline
from tests.unit.solver.pipeline.test_cpsat_families import feasible

ROOT = Path(__file__).resolve().parents[2]
MODELS: dict[str, type[Frozen]] = {"Architecture": Architecture, "Cluster": Cluster, "GpuType": GpuType}
JSON_BLOCK = re.compile(r"<!-- validates: (\w+) -->\n```json\n(.*?)```", re.DOTALL)
CODE_BLOCK = re.compile(r"<!-- runs -->\n```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "block"), JSON_BLOCK.findall(_text("docs/howto/add-a-gpu-or-cluster.md")))
def test_a_json_block_validates(name: str, block: str) -> None:
    assert MODELS[name].model_validate_json(block).model_dump()["source"]


def test_every_kind_of_entry_is_shown() -> None:
    assert {name for name, _ in JSON_BLOCK.findall(_text("docs/howto/add-a-gpu-or-cluster.md"))} == set(MODELS)


def test_the_request_of_the_readme_validates() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", _text("README.md"), re.DOTALL)
    assert PlanRequest.model_validate_json(block).options.time_limit_s == json.loads(block)["options"]["time_limit_s"]


@pytest.mark.parametrize(
    ("page", "function"), [("add-an-exporter.md", "stage_list"), ("add-a-constraint.md", "add_in_flight_limit")]
)
def test_the_code_of_a_howto_runs(page: str, function: str) -> None:
    (block,) = CODE_BLOCK.findall(_text(f"docs/howto/{page}"))
    scope: dict[str, Any] = {}
    exec(compile(block, page, "exec"), scope)
    assert callable(scope[function])


def test_the_schedule_that_the_howto_shows_is_one_of_ours() -> None:
    ((path, block),) = re.findall(
        r"<!-- is: (\S+) -->\n```python\n(.*?)```", _text("docs/howto/add-a-schedule.md"), re.DOTALL
    )
    assert block == _text(path)


@pytest.mark.parametrize(("second_forward", "allowed"), [(2, True), (1, False)])
def test_the_constraint_of_the_howto_means_what_it_says(second_forward: int, allowed: bool) -> None:
    """One micro-batch in flight: F0 takes 0 to 1 and B0 1 to 2, so that F1 may start at 2."""
    (block,) = CODE_BLOCK.findall(_text("docs/howto/add-a-constraint.md"))
    scope: dict[str, Any] = {}
    exec(compile(block.replace("limit = ...", "limit = 1"), "add-a-constraint.md", "exec"), scope)
    starts = {(0, 0, 0): 0, (1, 0, 0): 1, (0, 0, 1): second_forward}
    assert feasible(scope["add_in_flight_limit"], pipeline(1, 2), starts, {}) is allowed


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_relative_link_leads_somewhere(path: Path) -> None:
    targets = LINK.findall(path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []
