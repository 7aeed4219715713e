"""Bounds that once were above a plan: full recomputation, measured layers, odd stacks, light ranks, rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models.outcome import Infeasible, Planned
from models.request import PlanRequest
from solver.bounds.least_traffic import least_crossing_bytes
from solver.bounds.lightest import heaviest_stage_s
from solver.bounds.relaxation import refined_bound_s
from solver.bounds.screening import screening_bounds
from solver.bounds.work import lower_bounds, memory_needs
from solver.configurations.enumerate import BY_GPU_TYPE, Space, enumerate_space
from solver.configurations.framework import within_framework
from solver.configurations.pricing import Shares, StageCosts
from solver.configurations.stages import pool_stages
from solver.context import Context
from solver.evaluation.by_type import typed_placements
from solver.evaluation.candidate import configuration_of
from solver.evaluation.evaluate import Evaluation, evaluate
from solver.evaluation.places import placements
from solver.evaluation.report import evaluation_cross_building_bytes
from solver.evaluation.scheduling import portfolio_timing
from solver.explain.infeasible import memory_reasons
from solver.planner import plan, validate
from solver.verify.judge import judge
from tests.build_job import ARCHITECTURE, context_of, job
from tests.laws.requests import random_request

SLACK = 1 + 1e-9
MEASURED: dict[str, Any] = {
    "layer_kind": "dense",
    "gpu": "H100-SXM-80G",
    "micro_batch_sequences": 1,
    "tp": 2,
    "forward_s": 3e-4,
    "input_grad_s": 3e-4,
    "weight_grad_s": 3e-4,
    "activation_bytes": 3e8,
    "weight_grad_context_bytes": 1e8,
}
EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 14336}
FIXED: dict[str, Any] = {"tp": [2], "cp": [1], "pp": [4], "vpp": [1], "micro_batch_sequences": [1]}
ALONE: dict[str, Any] = {**FIXED, "pp": [1], "ep": [1], "sharding": ["zero1"], "recompute": ["none"]}
WIDE = {**ARCHITECTURE, "num_layers": 1, "hidden_size": 8192, "vocab_size": 512_000}


def constants(**values: float) -> dict[str, Any]:
    return {"name": "odd", **{name: {"value": value, "origin": "guessed"} for name, value in values.items()}}


def evaluations(context: Context, one: Space) -> list[Evaluation]:
    """Evaluations of the only configuration of a space."""
    configuration = configuration_of(context, one, 0)
    by_type = one.layer_split[0] == BY_GPU_TYPE
    found = (
        typed_placements(context, configuration)
        if by_type
        else placements(context, configuration, ("replicas_whole", "ranks_whole"))
    )
    timed = [evaluate(context, one, lambda problem: portfolio_timing(problem, ("zb_h1", "greedy"))) for one in found]
    return [one for one in timed if one is not None]


FASTER_THAN_FLOPS: dict[str, PlanRequest] = {
    "full recomputation repeats no logits": job(
        hosts=(1,),
        allowed={**ALONE, "recompute": ["full"]},
        workload={"architecture": WIDE},
        options={"stack_profile": constants(gemm_half_size=1.0, elementwise_traffic=0.1)},
    ),
    "layers measured faster than the stack": job(hosts=(1,), allowed=ALONE, workload={"layer_profiles": [MEASURED]}),
    "experts faster than dense products": job(
        hosts=(1,),
        allowed=ALONE,
        workload={"architecture": {**ARCHITECTURE, "num_layers": 4, "moe": EXPERTS}},
        options={"stack_profile": constants(expert_gemm_share=9.0, host_moe_layer_s=0.0, gemm_half_size=1.0)},
    ),
}


@pytest.mark.parametrize("name", FASTER_THAN_FLOPS)
def test_no_early_bound_counts_work_of_its_own(name: str) -> None:
    context = context_of(FASTER_THAN_FLOPS[name])
    space, num_timed = enumerate_space(context.request), 0
    early_s, priced_s = screening_bounds(context, space).bound_s, lower_bounds(context, space).iteration_s
    for row in range(len(space)):
        for found in evaluations(context, space.take(np.array([row]))):
            num_timed += 1
            assert max(early_s[row], priced_s[row]) <= found.iteration_s * SLACK
    assert num_timed


def two_types(**request: Any) -> PlanRequest:
    """Two hosts of H100s and one of A100s in a building, and one of A100s in another: half of the GPUs of each type."""
    made = job(hosts=(2, 1), **request)
    fast, far = (pool.model_dump() for pool in made.cluster.pools)
    slow = {**far, "gpu": "A100-SXM-80G"}
    pools = [fast, {**slow, "id": "near", "place": fast["place"]}, slow]
    cluster = made.cluster.model_dump() | {"pools": pools}
    return PlanRequest.model_validate(made.model_dump() | {"cluster": cluster})


@pytest.mark.parametrize("split", ["even", "by_gpu_type"])
def test_a_light_rank_exchanges_few_bytes(split: str) -> None:
    """A rank may have fewer layers than an even share: on a slow type, and beside logits that take long."""
    long = {**MEASURED, "layer_kind": "logits", "tp": 8, "forward_s": 8e-3, "input_grad_s": 8e-3, "weight_grad_s": 8e-3}
    profiles = [{**long, "gpu": gpu} for gpu in ("H100-SXM-80G", "A100-SXM-80G")] if split == "even" else []
    allowed = {**ALONE, "tp": [8], "pp": [2], "dp": [2], "layer_split": [split]}
    workload = {"sequence_length": 8192, "global_batch_sequences": 128, "layer_profiles": profiles}
    context = context_of(two_types(allowed=allowed, workload=workload))
    space = enumerate_space(context.request)
    least = least_crossing_bytes(context, space)
    sent = [
        (row, evaluation_cross_building_bytes(context, found))
        for row in range(len(space))
        for found in evaluations(context, space.take(np.array([row])))
    ]
    assert sent
    assert all(0 < least[row] <= size * SLACK for row, size in sent)


def test_layers_that_keep_nothing_fit_on_slower_ranks() -> None:
    nothing = {**MEASURED, "activation_bytes": 0.0, "weight_grad_context_bytes": 0.0}
    profiles = [{**nothing, "gpu": gpu} for gpu in ("H100-SXM-80G", "A100-SXM-80G")]
    allowed = {**FIXED, "dp": [4], "layer_split": ["even"], "recompute": ["none"]}
    context = context_of(two_types(allowed=allowed, workload={"layer_profiles": profiles}))
    one = enumerate_space(context.request).take(np.array([0]))
    quickest_s = min(found.iteration_s for found in evaluations(context, one))
    assert refined_bound_s(context, [configuration_of(context, one, 0)], 4.0 * quickest_s) <= quickest_s * SLACK


def test_exchanges_may_start_as_early_as_the_heaviest_stage_lets_them() -> None:
    """The ends may be rounded down both, and the stages between them are then the heaviest."""
    slow = {**MEASURED, "layer_kind": "embedding", "forward_s": 7e-4, "input_grad_s": 1e-6, "weight_grad_s": 7e-4}
    layers = {**ARCHITECTURE, "num_layers": 11}
    context = context_of(
        job(allowed={"tp": [2], "cp": [1]}, workload={"architecture": layers, "layer_profiles": [slow]})
    )
    space = enumerate_space(context.request)
    _, first = np.unique(space.columns.pp * 10 + space.columns.vpp, return_index=True)
    some, pool = space.take(first), context.pools[0]
    price = StageCosts(context, next(iter(context.gpu_classes.values())), some.columns)
    heaviest_s = heaviest_stage_s(price, Shares.of(price, some.family))
    for row in range(len(some)):
        stages = pool_stages(context, pool, configuration_of(context, some, row))
        assert float(stages.cost.total_s.max()) <= heaviest_s[row] * SLACK


def test_memory_is_too_small_only_where_no_configuration_fits() -> None:
    """Long sequences fit with much context parallelism alone, which splits no state; the space has very many rows."""
    context = context_of(job(hosts=(16,), batch=8, allowed={"vpp": [1]}, workload={"sequence_length": 131_072}))
    space = enumerate_space(context.request)
    fits = lower_bounds(context, space).fits
    assert 0 < fits.sum() < len(space)
    hidden = np.flatnonzero(~fits)
    assert memory_reasons(context, space.take(hidden))
    assert not memory_reasons(context, space.take(np.append(np.repeat(hidden, 20), np.flatnonzero(fits)[0])))


def test_a_target_that_a_plan_just_reaches_is_reached() -> None:
    fixed = {**FIXED, "pp": [1], "recompute": ["none"]}
    free = plan(job(hosts=(1,), allowed=fixed, batch=8))
    assert isinstance(free, Planned)
    seconds = free.plan.metrics.iteration_s
    aims = {"kind": "fewest_gpus", "target_iteration_s": seconds}
    assert isinstance(plan(job(hosts=(1,), allowed=fixed, batch=8, objective=aims)), Planned)
    aims = {"kind": "fewest_gpus", "target_iteration_s": 0.3 * seconds}
    missed = plan(job(hosts=(1,), allowed=fixed, batch=8, objective=aims))
    assert isinstance(missed, Infeasible)
    assert missed.reasons[0].code == "target-out-of-reach"
    assert not validate(job(hosts=(1,), allowed=fixed, batch=8, objective=aims))


def test_mixed_types_without_any_configuration_are_no_crash() -> None:
    request = two_types(allowed={"tp": [1], "pp": [3], "dp": [64]})
    assert not len(enumerate_space(request))


def test_layers_measured_faster_than_the_peak_are_planned_and_said_to_be() -> None:
    quick = {**MEASURED, **{name: MEASURED[name] / 20 for name in ("forward_s", "input_grad_s", "weight_grad_s")}}
    request = job(hosts=(1,), allowed=ALONE, workload={"layer_profiles": [quick]})
    outcome = plan(request)
    assert isinstance(outcome, Planned), outcome
    assert judge(request, outcome.plan).accepted
    assert outcome.plan.metrics.model_flops_utilisation > 1
    assert any("faster than the peak" in note for note in outcome.plan.notes)


@pytest.mark.parametrize("number", [*range(1108, 1116), 1201])
def test_memory_alone_is_that_of_the_bounds_whatever_network_the_gpus_are_behind(number: int) -> None:
    """Of one GPU type behind several kinds of network the first splits the layers (request 1111 said too small)."""
    context = context_of(within_framework(PlanRequest.model_validate(random_request(f"9201/{number}"))))
    space = enumerate_space(context.request)
    space = space.take(np.arange(min(len(space), 4000)))
    bounds = lower_bounds(context, space)
    fits, need_bytes = memory_needs(context, space)
    assert np.array_equal(fits, bounds.fits)
    assert need_bytes == pytest.approx(bounds.least_memory_bytes)
