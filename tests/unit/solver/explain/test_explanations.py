"""Alternatives that really differ, with reasons that add up; and what distance costs."""

from __future__ import annotations

from typing import Any

import pytest

from models.outcome import Planned
from models.plan import Alternative, Plan
from models.schedule import PipelineProblem, PipelineRank, PipelineStage
from solver.evaluation.scheduling import or_same_order, portfolio_timing
from solver.planner import plan
from tests.build_job import FIXED, job

OPTIONS = {"reproducible": True, "relative_gap": 0.0, "time_limit_s": 12.0}
FREE: dict[str, Any] = {**FIXED, "pp": [2, 4, 8], "dp": [4, 8, 16], "vpp": [1, 2]}


def planned(**changes: Any) -> Plan:
    outcome = plan(job(**{"allowed": FREE, "options": OPTIONS, **changes}))
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


@pytest.fixture(scope="module")
def far() -> Plan:
    return planned(link={"latency_s": 0.005, "capacity_bytes_per_s": 4e10})


def traits(one: Alternative) -> tuple[object, ...]:
    return (one.crossing, one.family, one.sharding, one.degrees.tp, one.degrees.pp, one.degrees.dp)


def test_alternatives_are_second_and_differ(far: Plan) -> None:
    assert 1 <= len(far.alternatives) <= 5
    kinds = [traits(one) for one in far.alternatives]
    assert len(set(kinds)) == len(kinds)
    assert [one.iteration_s for one in far.alternatives] == sorted(one.iteration_s for one in far.alternatives)
    for one in far.alternatives:
        assert one.slower_by == pytest.approx(one.iteration_s / far.metrics.iteration_s - 1.0)
        assert one.slower_by > -1e-9


def test_why_second_accounts_for_the_difference(far: Plan) -> None:
    for one in far.alternatives:
        parts = [float(part.split()[-2]) for part in one.why_second.split(", ")]
        difference = one.iteration_s - far.metrics.iteration_s
        assert sum(parts) == pytest.approx(difference, abs=0.05 * max(map(abs, parts)))
        assert parts == sorted(parts, reverse=True)


def test_convergence_ends_with_the_plan(far: Plan) -> None:
    assert far.convergence[-1].incumbent_s == far.metrics.iteration_s
    bounds = [one.lower_bound_s for one in far.convergence if one.lower_bound_s is not None]
    assert bounds[-1] == pytest.approx(far.proof.lower_bound_s)


def test_distance_costs_what_one_building_saves(far: Plan) -> None:
    assert far.one_building_s is not None
    assert far.one_building_s < 0.99 * far.metrics.iteration_s
    single = planned(hosts=(8,), allowed={**FREE, **_same(far)})
    quick = pytest.approx(far.one_building_s, rel=0.05)  # of the same configuration, with quick schedules
    assert single.metrics.iteration_s == quick


def _same(found: Plan) -> dict[str, Any]:
    degrees = found.configuration.degrees
    return {
        "pp": [degrees.pp],
        "dp": [degrees.dp],
        "vpp": [degrees.vpp],
        "family": [found.configuration.family],
        "sharding": [found.configuration.sharding],
    }


def test_without_distance_nothing_is_lost() -> None:
    near = planned(hosts=(8,))
    assert near.one_building_s == near.metrics.iteration_s


def test_exchanges_that_take_turns_on_a_link_keep_the_schedulers_order() -> None:
    """Another evaluation's order says nothing of them; taking it over once ended the whole search."""
    stage = PipelineStage(forward_s=1.0, input_grad_s=1.0, weight_grad_s=1.0, gradient_sync_s=1.0)
    shared = stage.model_copy(update={"gradient_sync_link": "exchange"})
    problem = PipelineProblem(num_microbatches=2, ranks=(PipelineRank(),) * 2, stages=(shared,) * 2)
    timing = portfolio_timing(problem, None)
    assert timing is not None
    assert or_same_order((timing,), lambda _: timing)(problem) is timing
