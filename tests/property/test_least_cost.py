"""On random fleets of several prices: the least cost is no more than that on the GPUs of one type alone."""

from __future__ import annotations

import random
from itertools import cycle
from typing import Any

import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.configurations.enumerate import enumerate_space
from solver.context import Context
from solver.evaluation.by_type import typed_placements
from solver.evaluation.candidate import configuration_of
from solver.planner import plan

SLACK = 1.02  # counted work is short, so of what costs nearly the same the dearer one may be found
PRICES = (0.0, 0.4, 1.0, 2.5, 6.0)
MODEL: dict[str, Any] = {
    "name": "m", "num_layers": 8, "hidden_size": 2048, "ffn_hidden_size": 5632, "vocab_size": 32000,
    "attention": {"kind": "gqa", "num_heads": 16, "num_kv_heads": 8, "head_dim": 128},
}  # fmt: skip


def gpu(name: str, draws: random.Random) -> dict[str, Any]:
    """A type of some speed and price."""
    return {
        "name": name,
        "bf16_flops_per_s": draws.choice((3e14, 1e15, 1e15, 2e15)),
        "memory_bytes": 8e10,
        "memory_bytes_per_s": 3e12,
        "scale_up_bytes_per_s": 4e11,
        "scale_up_domain_gpus": 8,
        "usd_per_gpu_hour": draws.choice(PRICES),
    }


def fleet(seed: int) -> dict[str, Any]:
    """Two or three GPU types in two buildings, of which the first listed is now the cheap one and now the dear one."""
    draws = random.Random(seed)
    gpus = [gpu(f"g{number}", draws) for number in range(draws.choice((2, 2, 3)))]
    if not any(one["usd_per_gpu_hour"] for one in gpus):
        gpus[0]["usd_per_gpu_hour"] = 1.0
    pools = [
        {"id": f"p{number}", "place": place, "gpu": one, "num_hosts": draws.choice((1, 2, 4)), "nic_bytes_per_s": 5e10}
        for number, (place, one) in enumerate(zip(cycle("ab"), gpus, strict=False))
    ]
    return {
        "workload": {"architecture": MODEL, "sequence_length": 2048, "global_batch_sequences": 64},
        "cluster": {
            "name": "c",
            "places": [{"id": name, "level": "building"} for name in "ab"],
            "pools": pools,
            "links": [{"id": "l", "from_place": "a", "to_place": "b", "capacity_bytes_per_s": 1e11, "latency_s": 1e-3}],
        },
        "objective": {"kind": "cost_per_token"},
        "options": {"time_limit_s": 3.0, "workers": 1, "reproducible": True, "relative_gap": 0.0},
    }


def cheapest(document: dict[str, Any]) -> Plan:
    outcome = plan(PlanRequest.model_validate(document), clock=lambda: 0.0)
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


def usd(found: Plan) -> float:
    cost = found.metrics.usd_per_million_tokens
    assert cost is not None
    return cost


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 24))])
def test_no_gpu_type_alone_is_cheaper_than_the_plan(seed: int) -> None:
    document = fleet(seed)
    found = cheapest(document)
    for pool in document["cluster"]["pools"]:
        if not pool["gpu"]["usd_per_gpu_hour"]:
            assert usd(found) == 0
            continue
        alone = {**document, "cluster": {**document["cluster"], "pools": [pool]}}
        assert usd(found) <= SLACK * usd(cheapest(alone)), pool["id"]


def test_the_cheap_type_holds_as_many_ranks_as_it_has_room_for() -> None:
    document = fleet(0)
    dear, cheap = gpu("dear", random.Random(0)), gpu("cheap", random.Random(0))
    dear |= {"bf16_flops_per_s": 1e15, "usd_per_gpu_hour": 3.0}
    cheap |= {"bf16_flops_per_s": 3e14, "usd_per_gpu_hour": 0.5}
    pools = [{"id": one["name"], "place": place, "gpu": one, "num_hosts": 2, "nic_bytes_per_s": 5e10}
             for one, place in ((dear, "a"), (cheap, "b"))]  # fmt: skip
    allowed = {"tp": [1], "cp": [1], "pp": [3], "dp": [8], "vpp": [1], "layer_split": ["by_gpu_type"]}
    changed = {"cluster": {**document["cluster"], "pools": pools}, "constraints": {"allowed": allowed}}
    context = Context.of(PlanRequest.model_validate(document | changed))
    space = enumerate_space(context.request)
    found = [
        candidate.gpus_of_pool
        for row in range(len(space))
        for candidate in typed_placements(context, configuration_of(context, space, row))
    ]
    index = {pool.id: number for number, pool in enumerate(context.pools)}
    assert {index["dear"]: 8, index["cheap"]: 16} in found
