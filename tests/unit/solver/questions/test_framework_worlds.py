"""Questions about worlds of which the framework runs nothing: an answer that says so."""

from __future__ import annotations

from typing import Any

import pytest

from models.questions import AnyQuestion
from solver.questions.ask import ask
from tests.build_job import FIXED, job
from tests.counted import work_clock

SHARDED = {"name": "own", "sharding": ["zero1"], "sharded_optimizers": ["adam"]}  # so SGD runs in no way
WIDER = {"pointer": "/cluster/links/l0/capacity_bytes_per_s", "op": "multiply", "value": 2.0}
WORLDS = [
    {"name": "wider", "changes": [WIDER]},
    {"name": "another optimizer", "changes": [{"pointer": "/workload/optimizer/name", "value": "adam"}]},
]


@pytest.mark.parametrize(
    ("kind", "part"),
    [("what_if", {"variants": WORLDS}), ("robust", {"scenarios": WORLDS}), ("worth", {"of": ["links"]})],
)
def test_a_world_of_which_the_framework_runs_nothing_has_no_plan(kind: str, part: dict[str, Any]) -> None:
    """These raised, for there were no values left to narrow the request to."""
    request = job(
        hosts=(1, 1),
        batch=8,
        allowed={**FIXED, "pp": [2], "dp": [2]},
        workload={"optimizer": {"name": "sgd"}},
        constraints={"framework": SHARDED},
        options={"time_limit_s": 1.0, "reproducible": True},
    )
    document = {"ask": kind, "request": request.model_dump(mode="json"), "options": {"time_limit_s": 4.0}, **part}
    answer: Any = ask(AnyQuestion.model_validate(document).root, clock=work_clock())
    assert answer.outcome == "infeasible"
    if kind == "what_if":
        assert [one.status for one in answer.gains] == ["infeasible", "planned"]
