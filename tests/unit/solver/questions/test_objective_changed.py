"""Changes of the objective in questions that are about time, as the objective of the request is: it is not looked at.

Where it was, the proof of the fewest GPUs stood as a bound of the time.
"""

from __future__ import annotations

import time
from typing import Any

from models.outcome import Planned
from models.questions import AnyQuestion
from solver.planner import plan
from solver.questions.ask import ask
from tests.build_request import build_request

FEWEST = {"pointer": "/objective", "value": {"kind": "fewest_gpus", "target_iteration_s": 100.0}}
ALLOWED = {"tp": [4], "pp": [2], "vpp": [1], "micro_batch_sequences": [1], "sharding": ["zero1"], "recompute": ["none"]}
REQUEST = build_request(constraints={"allowed": ALLOWED}, options={"time_limit_s": 2.0, "workers": 1})


def _asked(**question: Any) -> Any:
    document = {"request": REQUEST.model_dump(mode="json"), "options": {"time_limit_s": 5.0}, **question}
    return ask(AnyQuestion.model_validate(document).root, clock=time.process_time)


def _fastest_s() -> float:
    found = plan(REQUEST, clock=time.process_time)
    assert isinstance(found, Planned)
    return found.plan.metrics.iteration_s


def test_a_scenario_is_bounded_by_its_fastest_plan() -> None:
    answer = _asked(ask="robust", scenarios=[{"name": "cheap", "changes": [FEWEST]}])
    assert answer.figures[1].lower_bound_s <= _fastest_s() * (1.0 + 1e-9)
    assert answer.lower_bound_s <= _fastest_s() * (1.0 + 1e-9)


def test_a_replan_is_bounded_by_its_fastest_plan() -> None:
    answer = _asked(ask="what_now", changes=[FEWEST], options={"time_limit_s": 10.0})
    assert answer.lower_bound_s <= _fastest_s() * (1.0 + 1e-9)
    assert min(one.iteration_s for one in answer.points) <= 1.01 * _fastest_s()
