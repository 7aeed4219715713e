"""A plan that a question brings is what is known of its request: it is not searched again, nor is it forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from models.least import Frontier, Sizing
from models.outcome import NotFound, Planned
from models.plan import Plan
from models.questions import Robust, WhatIf
from models.request import PlanRequest
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.searches import SearchRuns
from tests.build_request import build_request
from tests.counted import work_clock

FAR = {"name": "far", "changes": [{"pointer": "/cluster/links/*/latency_s", "value": 0.05}]}
FEW = {"tp": [4], "pp": [2], "vpp": [1], "micro_batch_sequences": [1], "sharding": ["zero1"], "recompute": ["none"]}


@pytest.fixture(scope="module")
def stored() -> tuple[PlanRequest, Plan]:
    """A request that leaves the software profile open, as most do, and its plan."""
    request = build_request(constraints={"allowed": FEW}, options={"time_limit_s": 3.0, "workers": 1})
    outcome = plan(request, clock=work_clock())
    assert isinstance(outcome, Planned)
    return request, outcome.plan


def _robust(parts: dict[str, Any]) -> float | None:
    return ask(Robust.model_validate({**parts, "scenarios": [FAR]})).figures[0].best_s


def _what_if(parts: dict[str, Any]) -> float | None:
    return ask(WhatIf.model_validate({**parts, "variants": [FAR]})).value


@pytest.mark.parametrize("time_limit_s", [3.0, 7.0])
@pytest.mark.parametrize("ask", [_robust, _what_if])
def test_a_stored_plan_is_known_without_a_search(
    ask: Callable[[dict[str, Any]], float | None],
    time_limit_s: float,
    stored: tuple[PlanRequest, Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where its search had another time than the request gives."""
    request, before = stored
    options = request.options.model_copy(update={"time_limit_s": time_limit_s})
    request = request.model_copy(update={"options": options})
    nothing = NotFound(lower_bound_s=0.0, detail="no search in this test", elapsed_s=0.0)
    monkeypatch.setattr(SearchRuns, "searched", lambda *_, **__: nothing)
    found_s = ask({"request": request, "plan": before, "options": {"time_limit_s": 2.0}})
    assert found_s is not None
    assert found_s <= before.metrics.iteration_s


def test_a_plan_with_the_fewest_gpus_is_not_known_to_be_the_fastest() -> None:
    """Neither its time nor its bound is that of a plan that was sought for its time."""
    target = {"kind": "fewest_gpus", "target_iteration_s": 1e3}
    request = build_request(constraints={"allowed": FEW}, options={"time_limit_s": 3.0, "workers": 1}, objective=target)
    outcome = plan(request, clock=work_clock())
    assert isinstance(outcome, Planned)
    fewest = outcome.plan.metrics.num_gpus
    parts = {"request": request, "plan": outcome.plan, "options": {"time_limit_s": 8.0}}
    (found,) = ask(Frontier.model_validate({**parts, "against": ["gpus"]})).frontiers
    assert max(point.num_gpus for point in found.points) > fewest
    longest = {"iteration_s": outcome.plan.metrics.iteration_s}
    least = ask(Sizing.model_validate({**parts, "target": longest, "of": ["gpus"]}))
    assert least.fastest_lower_bound_s is not None
    assert least.fastest_lower_bound_s <= found.points[0].iteration_s
