"""Every export of a whole-host plan and of one that shares hosts. A change here must be explained in its commit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.exporters.registry import EXPORTERS, ArtifactKind
from app.faults import Refused
from models.plan import Plan
from models.request import PlanRequest
from tests.build_exports import whole_host_plan, whole_host_request
from tests.build_plan import build_plan
from tests.build_request import build_request

FILES = Path(__file__).parent / "files"
OTHERS = {"report-html"}  # has tests of its own
PLANS = ("dp-out", "shared-hosts")


def _plan(name: str) -> tuple[Plan, PlanRequest]:
    if name == "dp-out":
        return whole_host_plan("dp_out"), whole_host_request()
    request = build_request()
    return build_plan(request), request


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("kind", sorted(set(EXPORTERS) - OTHERS))
def test_the_export_is_the_golden_one(name: str, kind: ArtifactKind) -> None:
    exporter = EXPORTERS[kind]
    try:
        written = exporter.export(*_plan(name))
    except Refused as why:
        written = f"refused: {why}\n"
    path = FILES / f"{name}-{kind}.{exporter.suffix.rpartition('.')[2]}"
    if os.environ.get("ISTHMUS_UPDATE_GOLDEN") == "1":
        path.write_text(written, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == written


def test_no_golden_is_left_over() -> None:
    kinds = set(EXPORTERS) - OTHERS
    assert {path.stem for path in FILES.iterdir()} == {f"{name}-{kind}" for name in PLANS for kind in kinds}
