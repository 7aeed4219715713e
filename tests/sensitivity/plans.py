"""Small requests of every kind, planned by the real planner: what corruptions start from.

All are planned in counted work that no clock cuts short, so that the same plan comes out on every machine, also on
one that compiles kernels meanwhile.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from models.outcome import Planned
from models.plan import Plan
from models.request import PlanRequest
from solver.planner import plan as plan_request
from tests.build_job import FIXED, job

COUNTED: dict[str, Any] = {"reproducible": True, "time_limit_s": 3.0, "workers": 1, "relative_gap": 0.005}
APART = {"data_parallel_may_cross_buildings": False, "use_all_gpus": True}
LOSSY = {
    "capacity_bytes_per_s": 2e11,
    "distance_km": 60.0,
    "loss_probability": 1e-5,
    "planes": 16,
    "load_balancing": ["ecmp", "ecmp_qp_scaling", "spray"],
    "out_of_order_receivers": True,
}
SHORT = {"num_reserved_gpus": 4}  # of three replicas, no building holds half
IN_BOTH = [
    {"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": place, "num_replicas": 1} for place in ("b0", "b1")
]
EXPERTS = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 4096}


def _job(**changes: Any) -> dict[str, Any]:
    options = COUNTED | changes.pop("options", {})
    return job(options=options, **changes).model_dump(mode="json")


def _mixed_gpus() -> dict[str, Any]:
    document = _job(hosts=(2, 2), batch=32, allowed={"tp": [4], "cp": [1], "micro_batch_sequences": [1]})
    for pool, gpu in zip(document["cluster"]["pools"], ("H100-SXM-80G", "B200-SXM"), strict=True):
        pool["gpu"] = gpu
    return document


def _experts() -> dict[str, Any]:
    document = _job(hosts=(2, 2), batch=32, allowed={"tp": [2], "ep": [2, 4], "cp": [1]})
    document["workload"]["architecture"]["moe"] = EXPERTS
    return document


def _priced() -> dict[str, Any]:
    document = _job(hosts=(2, 2), allowed=FIXED, objective={"kind": "cost_per_token"})
    for pool in document["cluster"]["pools"]:
        pool["gpu"] = {**pool["gpu"], "usd_per_gpu_hour": 2.5}
    for link in document["cluster"]["links"]:
        link["usd_per_gb"] = 0.01
    return document


def _beside_gradients(capacity_bytes_per_s: float) -> dict[str, Any]:
    """A replica in each of two buildings and one in both, over a link of this capacity."""
    return _job(
        hosts=(2, 2),
        batch=48,
        allowed={**FIXED, "dp": [3]},
        pool=SHORT,
        constraints={"pins": IN_BOTH},
        link={"capacity_bytes_per_s": capacity_bytes_per_s},
    )


REQUESTS: dict[str, Any] = {
    "replicas across": lambda: _job(constraints={"pipeline_may_cross_buildings": False}, hosts=(2, 2)),
    "pipelines across": lambda: _job(constraints=APART, hosts=(2, 2), allowed={**FIXED, "dp": [4]}),
    "in turns": lambda: _job(
        hosts=(2, 2, 2, 2), allowed={**FIXED, "dp": [8]}, link={"capacity_bytes_per_s": 2e10}, constraints=APART
    ),
    "GPUs of two types": _mixed_gpus,
    "experts": _experts,
    "v": lambda: _job(hosts=(2, 2), allowed={**FIXED, "vpp": [2], "family": ["v"]}),
    "loop": lambda: _job(hosts=(2, 2), allowed={**FIXED, "vpp": [2], "family": ["loop"]}),
    "lossy planes": lambda: _job(hosts=(2, 2), allowed={**FIXED, "dp": [4]}, link=LOSSY),
    "fewest GPUs": lambda: _job(hosts=(2, 2), objective={"kind": "fewest_gpus", "target_iteration_s": 4.0}),
    "least cost": _priced,
    "fused backwards": lambda: _job(hosts=(2, 2), allowed=FIXED, constraints={"framework": "megatron-core"}),
    "messages beside gradients": lambda: _beside_gradients(1.6e12),
    "messages that wait for gradients": lambda: _beside_gradients(2e10),
}


@cache
def request_called(name: str) -> PlanRequest:
    """The request of this kind."""
    return PlanRequest.model_validate(REQUESTS[name]())


@cache
def plan_called(name: str) -> Plan:
    """What the planner answers to it."""
    outcome = plan_request(request_called(name), clock=lambda: 0.0)
    assert isinstance(outcome, Planned), outcome
    return outcome.plan
