"""The drawings of the report as frozen SVG: a change of looks is looked at before it is committed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app.exporters.report.buildings import building_map
from app.exporters.report.comparison import comparison_bars
from app.exporters.report.convergence import curves
from app.exporters.report.gantt import panel
from app.exporters.report.geography import connections, mapped, nodes
from app.exporters.report.memory_bars import memory_bars
from app.exporters.report.scene import Scene
from app.exporters.report.timings import timings
from app.exporters.report.waterfall import waterfall
from app.exporters.report.windows import Window
from tests.build_report import build_report_plan, build_report_request

FOLDER = Path(__file__).parent
DRAWINGS: dict[str, Callable[[Scene], str]] = {
    "gantt": lambda scene: panel("gantt", timings(scene)[0], Window("Fill", 0.0, 0.2), scene),
    "buildings": lambda scene: building_map(mapped(nodes(scene)), connections(scene)),
    "waterfall": lambda scene: waterfall(scene.plan),
    "memory": lambda scene: memory_bars(scene.plan.memory),
    "convergence": lambda scene: curves(scene.plan.convergence),
    "comparison": lambda scene: comparison_bars("bars", "Times", [("plan", scene.plan.time.total_s), ("other", 2.0)]),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_is_the_frozen_one(name: str) -> None:
    svg = DRAWINGS[name](Scene(build_report_plan(), build_report_request())).replace("><", ">\n<") + "\n"
    frozen = FOLDER / f"{name}.svg"
    if os.environ.get("ISTHMUS_UPDATE_GOLDEN") == "1":
        frozen.write_text(svg, encoding="utf-8")
    assert svg == frozen.read_text(encoding="utf-8")
