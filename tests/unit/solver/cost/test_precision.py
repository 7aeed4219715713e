"""Training in 32 bits: weights, activations, messages and their times are twice those of 16 bits; others are not."""

from __future__ import annotations

from typing import Any

import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.bounds.work import speed_of_light_s
from solver.configurations.enumerate import enumerate_space
from solver.cost.compute import GpuRates, peak_flops_per_s
from solver.planner import plan
from solver.verify.judge import judge
from tests.build_job import FIXED, context_of, job

ALLOWED = {**FIXED, "dp": [8], "sharding": ["zero1"]}
ACROSS = {"data_parallel_may_cross_buildings": False, "use_all_gpus": True}
STATE = {"optimizer": {"state_bytes_per_parameter": 8.0}}


def request(precision: str, **how: Any) -> PlanRequest:
    options = {"reproducible": True, "time_limit_s": 8.0, "workers": 1}
    workload = {"precision": precision, **STATE}
    return job(allowed=ALLOWED, workload=workload, constraints=ACROSS, **{"options": options, **how})


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    found = {}
    for precision in ("fp32", "bf16", "fp8"):
        outcome = plan(request(precision))
        assert isinstance(outcome, Planned), outcome
        assert judge(request(precision), outcome.plan).violations == ()
        found[precision] = outcome.plan
    return found


def test_messages_between_stages_have_the_width_of_training(plans: dict[str, Plan]) -> None:
    sizes = {
        name: {one.message_bytes for one in found.transport if one.dimension == "pp"} for name, found in plans.items()
    }
    tokens = 4096
    assert sizes["bf16"] == sizes["fp8"] == {2.0 * tokens * 4096 / 2}
    assert sizes["fp32"] == {4.0 * tokens * 4096 / 2}
    assert plans["fp32"].metrics.cross_building_bytes == pytest.approx(2 * plans["bf16"].metrics.cross_building_bytes)


def test_weights_and_activations_are_twice_as_large_and_gradients_are_as_stated(plans: dict[str, Plan]) -> None:
    wide, narrow = plans["fp32"].memory[0], plans["bf16"].memory[0]
    domains = [plans[name].configuration.shard_group_replicas for name in ("fp32", "bf16")]
    assert wide.weights_bytes == 2 * narrow.weights_bytes
    assert wide.gradients_bytes == narrow.gradients_bytes
    assert wide.optimizer_bytes * domains[0] == narrow.optimizer_bytes * domains[1]
    assert wide.activations_bytes == pytest.approx(2 * narrow.activations_bytes, rel=0.05)


def test_products_run_at_the_stated_peak_or_half_the_16_bit_one(plans: dict[str, Plan]) -> None:
    gpu = request("fp32").cluster.pools[0].gpu
    assert peak_flops_per_s(gpu, "fp32") == gpu.bf16_flops_per_s / 2
    assert peak_flops_per_s(gpu.model_copy(update={"fp32_flops_per_s": 1e14}), "fp32") == 1e14
    assert plans["fp32"].proof.speed_of_light_s == pytest.approx(2 * plans["bf16"].proof.speed_of_light_s)
    assert plans["fp32"].metrics.iteration_s > 1.3 * plans["bf16"].metrics.iteration_s


def test_the_bound_and_the_times_take_one_rate_where_a_gpu_lacks_the_unit_of_a_precision() -> None:
    """The linter refuses such a request; without it the bound, at the rate of 16 bits, would be above the plan."""
    gpu, contexts = request("fp4").cluster.pools[0].gpu, [context_of(request(name)) for name in ("fp4", "fp8")]
    assert gpu.fp4_flops_per_s is None
    assert peak_flops_per_s(gpu, "fp4") == gpu.fp8_flops_per_s
    assert len({speed_of_light_s(one) for one in contexts}) == 1
    rates = [GpuRates.of(gpu, one.stack, one.job.precision).gemm_flops_per_s for one in contexts]
    assert rates[0] == rates[1] < peak_flops_per_s(gpu, "fp4")


def test_gathered_weights_are_twice_as_large_under_zero1(plans: dict[str, Plan]) -> None:
    gathered = {name: [one.message_bytes for one in found.transport if one.collective == "all_gather" and
                       one.dimension == "dp"] for name, found in plans.items()}  # fmt: skip
    assert gathered["fp32"] == [2 * size for size in gathered["bf16"]]
    assert gathered["bf16"]


def test_fewer_configurations_fit_in_32_bits() -> None:
    def fits(precision: str) -> int:
        context = context_of(job(hosts=(1,), allowed={}, workload={"precision": precision}))
        return len(enumerate_space(context.request))

    assert fits("fp32") == fits("bf16")
