"""Questions about a world of full links or stopped GPUs: no plan states times so long, which is an answer."""

from __future__ import annotations

from typing import Any

import pytest

from models.questions import AnyQuestion
from solver.questions.ask import ask
from tests.counted import work_clock

REQUEST: dict[str, Any] = {
    "workload": {"architecture": "llama-3.1-8b", "sequence_length": 4096, "global_batch_sequences": 64},
    "cluster": {
        "name": "two",
        "places": [{"id": "a", "level": "building"}, {"id": "b", "level": "building"}],
        "pools": [
            {"id": f"p-{place}", "place": place, "gpu": "H100-SXM-80G", "num_hosts": 1, "nic_bytes_per_s": 5e10}
            for place in ("a", "b")
        ],
        "links": [{"id": "ab", "from_place": "a", "to_place": "b", "capacity_bytes_per_s": 1e10}],
    },
    "constraints": {"allowed": {"pp": [2], "tp": [8]}},
    "options": {"time_limit_s": 2.0},
}
STOPPED = [
    {"pointer": f"/cluster/pools/*/gpu/{name}", "value": 1e6} for name in ("bf16_flops_per_s", "memory_bytes_per_s")
]
FILLED = [{"pointer": "/cluster/links/ab/background_bytes_per_s", "value": 1e10 - 1.0}]  # 1 B/s is left


@pytest.mark.parametrize(
    "part",
    [
        {"ask": "what_if", "variants": [{"name": "full", "changes": FILLED}]},
        {"ask": "robust", "scenarios": [{"name": "full", "changes": FILLED}]},
        {"ask": "what_now", "changes": FILLED},
        {"ask": "robust", "scenarios": [{"name": "full", "changes": STOPPED}]},
    ],
    ids=("what_if", "robust", "what_now", "robust-stopped"),
)
def test_a_world_too_slow_for_any_plan_is_no_error(part: dict[str, Any]) -> None:
    question = AnyQuestion.model_validate({"request": REQUEST, **part, "options": {"time_limit_s": 3.0}}).root
    answer: Any = ask(question, clock=work_clock())
    world = {"what_if": lambda: answer.gains[0].status, "what_now": lambda: answer.outcome,
             "robust": lambda: next(one.status for one in answer.figures if one.name == "full")}  # fmt: skip
    assert world[part["ask"]]() == "infeasible"
