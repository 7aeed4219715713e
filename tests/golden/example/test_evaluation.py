"""The request and the plan that the API shows as an example: the judge accepts them, so they can be sent as they are.

When the vocabulary or the physics changes, `make golden-update` plans the example anew.
"""

from __future__ import annotations

import json
import os
from importlib import resources
from typing import Any

import pytest

from models.plan import Plan
from models.request import PlanRequest
from solver.planner import plan
from solver.verify.joint_replay import joint_replay
from solver.verify.judge import judge

FILE = resources.files("app.api") / "evaluation.json"


def _planned_anew(request: dict[str, Any]) -> str:
    """The example with a new plan, one line for each part of it."""
    outcome = plan(PlanRequest.model_validate(request))
    assert outcome.status == "planned"
    parts = (f"{json.dumps(name)}: {json.dumps(part)}" for name, part in outcome.plan.model_dump(mode="json").items())
    return f'{{"request": {json.dumps(request)},\n"plan": {{\n' + ",\n".join(parts) + "\n}}\n"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """The committed document."""
    if os.environ.get("ISTHMUS_UPDATE_GOLDEN") == "1":
        request = json.loads(FILE.read_text(encoding="utf-8"))["request"]
        with resources.as_file(FILE) as path:
            path.write_text(_planned_anew(request), encoding="utf-8")
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document


def test_the_judge_accepts_the_plan(example: dict[str, Any]) -> None:
    request, shown = PlanRequest.model_validate(example["request"]), Plan.model_validate(example["plan"])
    assert judge(request, shown).violations == (), "the physics changed? then make golden-update plans it anew"
    assert joint_replay(request, shown).iteration_s == pytest.approx(shown.metrics.iteration_s)


def test_the_example_shows_what_isthmus_is_about(example: dict[str, Any]) -> None:
    shown = Plan.model_validate(example["plan"])
    assert shown.placement.crossing != "none"
    assert shown.link_loads
    assert shown.proof.status == "optimal"
