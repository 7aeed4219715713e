"""The fastest GPUs may have the least memory: more of them take no plan away that has some layers elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.configurations.enumerate import BY_GPU_TYPE, enumerate_space
from solver.planner import plan
from tests.build_job import job

ALLOWED: dict[str, Any] = {
    "tp": [8],
    "cp": [1],
    "pp": [2],
    "vpp": [1],
    "dp": [1],
    "micro_batch_sequences": [1],
    "sharding": ["zero1"],
}


def with_fast_hosts(number: int, memory_bytes: float) -> PlanRequest:
    """So many hosts with little memory and one with much, all in one building."""
    document = job(hosts=(number, 1), batch=16, allowed=ALLOWED, constraints={"memory_headroom_fraction": 0.0},
                   options={"time_limit_s": 4.0, "reproducible": True}).model_dump(mode="json")  # fmt: skip
    hardware = document["cluster"]
    hardware |= {"places": hardware["places"][:1], "links": []}
    for pool in hardware["pools"]:
        pool["place"] = hardware["places"][0]["id"]
    usual = hardware["pools"][0]["gpu"]
    hardware["pools"][0]["gpu"] = {**usual, "name": "small", "memory_bytes": memory_bytes}
    hardware["pools"][1]["gpu"] = {**usual, "name": "large", "memory_bytes": 1.9e11, "bf16_flops_per_s": 9.8e14}
    return PlanRequest.model_validate(document)


def planned(request: PlanRequest) -> Plan:
    outcome = plan(request)
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


@pytest.mark.parametrize("memory_bytes", [4.4e9, 5.6e9])
def test_another_fast_host_does_not_make_a_plan_slower(memory_bytes: float) -> None:
    """With 4.4 GB half of the layers fit in no way, with 5.6 GB only with all activations recomputed."""
    one, two = (planned(with_fast_hosts(number, memory_bytes)) for number in (1, 2))
    assert one.configuration.layer_split == "by_gpu_type"
    assert two.metrics.iteration_s <= one.metrics.iteration_s * (1.0 + 1e-9)


def test_where_the_fastest_have_most_memory_what_fits_on_them_is_split_evenly() -> None:
    for memory_bytes, is_split in ((1e11, True), (2e11, False)):
        space = enumerate_space(with_fast_hosts(2, memory_bytes))
        assert bool((space.layer_split == BY_GPU_TYPE).any()) is is_split
