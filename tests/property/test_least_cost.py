"""On random fleets of several prices: the least cost is no more than that on the GPUs of one type alone."""

from __future__ import annotations

import random
from itertools import cycle
from typing import Any

import pytest

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
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
