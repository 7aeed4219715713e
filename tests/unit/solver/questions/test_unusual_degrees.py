"""Answers where only degrees that a search leaves out of its usual ones have a plan, or the fastest one.

One layer of 6 heads on hosts of 6 GPUs in two buildings: left open, tensor parallelism is 1 or 2. With 9.1 GiB a GPU
only 3 and 6 ranks have room; with more, 6 are the fastest.
"""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

from models.outcome import Planned
from models.questions import AnyQuestion
from models.request import PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.configurations.unusual import covering
from solver.planner import plan
from solver.questions.ask import ask
from solver.questions.robust_bounds import RobustBounds
from solver.search.warm_start import WarmStart
from tests.build_request import ARCHITECTURE, GPU, link, pool

TIGHT_BYTES, ROOMY_BYTES = 9.8e9, 2.2e10
CLOSE = 1e-9
LINK = "/cluster/links/l/capacity_bytes_per_s"


def _request(memory_bytes: float, batch: int = 12, **constraints: Any) -> dict[str, Any]:
    gpu = {**GPU, "scale_up_domain_gpus": 6, "memory_bytes": memory_bytes}
    heads = {"kind": "gqa", "num_heads": 6, "num_kv_heads": 6, "head_dim": 128}
    model = {**ARCHITECTURE, "num_layers": 1, "attention": heads, "ffn_hidden_size": 49152}
    pools = [pool(name, 2, gpu=gpu, gpus_per_host=6, nic_bytes_per_s=5e10) for name in ("a", "b")]
    places = [{"id": name, "level": "building"} for name in ("a", "b")]
    wire = link("l", "a", "b", capacity_bytes_per_s=5e9, latency_s=1e-3)
    return {
        "workload": {"architecture": model, "sequence_length": 4096, "global_batch_sequences": batch},
        "cluster": {"name": "two", "places": places, "pools": pools, "links": [wire]},
        "constraints": {"allowed": {"sharding": ["ddp"], "recompute": ["none"]}, **constraints},
        "options": {"time_limit_s": 3.0, "reproducible": True, "workers": 1},
    }


def _plan_of(document: dict[str, Any], begin_with: WarmStart | None = None) -> Planned:
    request = PlanRequest.model_validate(document)
    found = plan(request, clock=lambda: 0.0, begin_with=begin_with or WarmStart())
    assert isinstance(found, Planned)
    return found


def _asked(document: dict[str, Any], **question: Any) -> Any:
    asked = {"request": document, "options": {"time_limit_s": 8.0}, **question}
    return ask(AnyQuestion.model_validate(asked).root, clock=time.process_time)


def _with_objective(document: dict[str, Any], kind: str, target_s: float) -> dict[str, Any]:
    return {**document, "objective": {"kind": kind, "target_iteration_s": target_s}}


def test_a_search_that_begins_with_an_unusual_plan_proves_what_one_without_it_does() -> None:
    first, fewest = _plan_of(_request(TIGHT_BYTES)), _with_objective(_request(TIGHT_BYTES), "fewest_gpus", 3.0)
    assert first.plan.configuration.degrees.tp not in enumerate_space(PlanRequest.model_validate(fewest)).columns.tp
    warm, cold = _plan_of(fewest, WarmStart(first.plan)), _plan_of(fewest)
    assert cold.plan.metrics.num_gpus == 3
    assert warm.plan.metrics.num_gpus == 3


def test_the_least_is_no_more_than_a_plan_with_unusual_degrees_takes() -> None:
    tight = _plan_of(_request(TIGHT_BYTES))
    gpus = _asked(_request(TIGHT_BYTES), ask="least", target={"iteration_s": 3.0}, of=["gpus"]).least[0]
    assert (gpus.lower_bound, gpus.value) == (3.0, 3.0)
    memory = _asked(_request(ROOMY_BYTES), ask="least", target={"iteration_s": 3.0}, of=["memory"]).least[0]
    assert tight.plan.metrics.iteration_s <= 3.0
    assert memory.lower_bound * 2**30 <= TIGHT_BYTES
    assert memory.value * 2**30 <= TIGHT_BYTES * 1.02


def test_a_target_that_only_unusual_degrees_reach_is_reached() -> None:
    tight = _plan_of(_request(TIGHT_BYTES)).plan.metrics.iteration_s
    usual = _plan_of(_request(ROOMY_BYTES)).plan
    target_s = (tight + usual.proof.lower_bound_s) / 2.0
    assert tight < target_s < usual.proof.lower_bound_s
    reached = _asked(_request(ROOMY_BYTES), ask="least", target={"iteration_s": target_s}, of=["gpus"])
    assert _plan_of(_with_objective(_request(ROOMY_BYTES), "fewest_gpus", target_s)).plan.metrics.num_gpus > 0
    assert reached.outcome == "planned"
    assert reached.fastest.iteration_s <= target_s


def test_no_point_of_a_frontier_is_below_its_bound() -> None:
    answer = _asked(_request(TIGHT_BYTES), ask="frontier", against=["money"], max_points=3)
    points = answer.frontiers[0].points
    assert len(points) > 1
    for point in points:
        assert point.lower_bound is None or point.lower_bound <= point.usd_per_million_tokens * (1.0 + CLOSE)


def test_a_request_covers_the_degrees_of_a_plan_that_it_leaves_open() -> None:
    found, request = (
        _plan_of(_request(TIGHT_BYTES)).plan.configuration,
        PlanRequest.model_validate(_request(TIGHT_BYTES)),
    )
    whole = covering(request, found)
    assert found.degrees.tp in enumerate_space(whole).columns.tp
    assert covering(whole, found) is whole
    usual = found.model_copy(update={"degrees": found.degrees.model_copy(update={"tp": 2}), "micro_batch_sequences": 1})
    assert covering(request, usual) is request
    stated = request.with_constraints(allowed=request.constraints.allowed.model_copy(update={"tp": (1, 2)}))
    assert covering(stated, usual) is stated


def test_bounds_over_several_worlds_and_of_moves_cover_an_unusual_plan() -> None:
    """Where no usual degree has a plan, nothing is proven by there being none among them."""
    scenarios = [{"name": "narrow", "changes": [{"pointer": LINK, "op": "multiply", "value": 0.25}]}]
    seen: list[float] = []
    least_s = RobustBounds.least_s

    def note(bounds: RobustBounds) -> float:
        seen.append(least_s.fget(bounds))  # type: ignore[attr-defined]
        return seen[-1]

    with patch.object(RobustBounds, "least_s", property(note)):
        answer = _asked(_request(TIGHT_BYTES), ask="robust", scenarios=scenarios)
    assert seen
    assert max(seen) <= answer.value_s * 1.2
    lost = _asked(_request(TIGHT_BYTES), ask="what_now", lost=["l"])
    for point in lost.points:
        assert point.lower_bound_s < point.iteration_s
