"""A plan of any number of stages and micro-batches for the report: two buildings, pipeline across, all fields set.

Its figures are made up. It is no plan that a judge would accept: the report shows documents and judges nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from models.plan import Plan
from models.request import PlanRequest
from models.schedule import PipelineProblem
from tests.build_schedule import one_f_one_b

EAST, WEST = "east", "west"


def build_report_request(*, east: str = EAST, west: str = WEST, link: str = "east-west") -> PlanRequest:
    """A request with two buildings and one link."""
    gpu = "H100-SXM-80G"
    return PlanRequest.model_validate(
        {
            "workload": {"architecture": "llama-3.1-8b", "sequence_length": 8192, "global_batch_sequences": 2048},
            "cluster": {
                "name": f"{east} and {west}",
                "places": [
                    {"id": "campus", "level": "region"},
                    {"id": east, "level": "building", "parent": "campus"},
                    {"id": west, "level": "building", "parent": "campus"},
                ],
                "pools": [
                    {"id": f"{name}-pool", "place": name, "gpu": gpu, "num_hosts": 128, "nic_bytes_per_s": 5e10}
                    for name in (east, west)
                ],
                "links": [{"id": link, "from_place": east, "to_place": west, "capacity_bytes_per_s": 1e13}],
            },
        }
    )


def build_report_plan(
    *,
    num_ranks: int = 4,
    num_microbatches: int = 6,
    east: str = EAST,
    west: str = WEST,
    link: str = "east-west",
    words: str = "words",
    **changes: Any,
) -> Plan:
    """The plan; names and `words` go where a plan has text of others, `changes` replace its parts."""
    places = [east] * (num_ranks - num_ranks // 2) + [west] * (num_ranks // 2)
    timeline = _timeline(places, num_microbatches, link)
    makespan_s = timeline["schedule"]["makespan_s"]
    time = _time(makespan_s)
    document = {
        "configuration": {
            "degrees": {"tp": 8, "pp": num_ranks, "dp": 4},
            "micro_batch_sequences": 1,
            "num_microbatches": num_microbatches,
            "sharding": "zero1",
            "shard_group_replicas": 4,
            "recompute": "selective",
            "layers_per_stage": [2] * num_ranks,
        },
        "placement": _placement(places),
        "timelines": [timeline],
        "exchanges": [_exchange(stage, makespan_s) for stage in range(num_ranks)],
        "transport": [_choice(words)],
        "link_loads": [_load(link, reverse=False), _load(link, reverse=True)],
        "memory": [_memory(rank) for rank in range(num_ranks)],
        "time": time,
        "metrics": _metrics(time["total_s"], 32 * num_ranks),
        "proof": _proof(time["total_s"], words),
        "baselines": [
            _baseline(time["total_s"], words),
            {"name": "other rule", "assumptions": words, "reason": "fits nowhere"},
        ],
        "alternatives": [_alternative(time["total_s"], words)],
        "convergence": [
            {"elapsed_s": 0.5, "lower_bound_s": 0.5 * time["total_s"]},
            {"elapsed_s": 1.5, "incumbent_s": 1.3 * time["total_s"], "lower_bound_s": 0.8 * time["total_s"]},
            {"elapsed_s": 4.0, "incumbent_s": time["total_s"], "lower_bound_s": 0.9 * time["total_s"]},
        ],
        "one_building_s": 0.96 * time["total_s"],
        "assumptions": [
            {"what": words, "origin": "guessed", "source": words},
            {"what": "peaks of the GPUs", "origin": "request"},
        ],
        "warnings": [words],
        "verdict": {"accepted": True, "rules_checked": ["pool-capacity"]},
        "stack_profile": "megatron-2024",
    }  # fmt: skip
    return Plan.model_validate(document | changes)


def _timeline(places: list[str], num_microbatches: int, link: str) -> dict[str, Any]:
    hops = [
        {"from_stage": stage, "to_stage": stage + 1, "latency_s": 0.002 if here != there else 0.0,
         "transfer_s": 0.004 if here != there else 0.0, "link": link if here != there else None}
        for stage, (here, there) in enumerate(pairwise(places))
    ]  # fmt: skip
    problem = PipelineProblem.model_validate(
        {
            "num_microbatches": num_microbatches,
            "ranks": [{"activation_budget_bytes": 4e9 * (len(places) + 1)}] * len(places),
            "stages": [
                {
                    "forward_s": 0.010,
                    "input_grad_s": 0.012,
                    "weight_grad_s": 0.008,
                    "activation_bytes": 3e9,
                    "weight_grad_context_bytes": 1e9,
                }
            ]
            * len(places),
            "hops": hops,
        }
    )
    schedule = one_f_one_b(problem)
    return {"route": "r0", "problem": problem.model_dump(), "schedule": schedule.model_dump()}


def _placement(places: list[str]) -> dict[str, Any]:
    pools = [f"{place}-pool"[:120] for place in places]
    route = {"id": "r0", "places": places, "pools": pools, "num_replicas": 4, "first_replica": 0}
    ranges = [
        {"first_rank": 32 * rank, "num_ranks": 32, "pipeline_rank": rank, "route": "r0", "pool": pool,
         "first_gpu": 32 * rank}
        for rank, pool in enumerate(pools)
    ]  # fmt: skip
    return {"routes": [route], "rank_map": ranges, "crossing": "pp_out"}


def _exchange(stage: int, makespan_s: float) -> dict[str, Any]:
    return {
        "stage": stage,
        "last_weight_grad_end_s": makespan_s,
        "overlap_s": 0.001,
        "start_s": makespan_s - 0.001,
        "private_s": 0.004,
        "shared_s": 0.0,
        "end_s": makespan_s + 0.003,
    }


def _time(makespan_s: float) -> dict[str, float]:
    parts = {
        "compute_s": 0.8 * makespan_s,
        "tensor_parallel_s": 0.05 * makespan_s,
        "context_parallel_s": 0.0,
        "expert_parallel_s": 0.0,
        "bubble_s": 0.1 * makespan_s,
        "pipeline_s": 0.05 * makespan_s,
        "data_parallel_s": 0.003,
        "optimizer_s": 0.01,
    }
    return parts | {"total_s": sum(parts.values())}


def _metrics(iteration_s: float, num_gpus: int) -> dict[str, Any]:
    tokens_per_s = 2048 * 8192 / iteration_s
    return {
        "iteration_s": iteration_s,
        "tokens_per_s": tokens_per_s,
        "tokens_per_s_per_gpu": tokens_per_s / num_gpus,
        "model_flops_utilisation": 0.4321,
        "num_gpus": num_gpus,
        "usd_per_million_tokens": 0.0987,
        "cross_building_bytes": 3.21e11,
    }


def _proof(iteration_s: float, words: str) -> dict[str, Any]:
    return {
        "lower_bound_s": 0.9 * iteration_s,
        "relative_gap": 0.1,
        "status": "feasible",
        "speed_of_light_s": 0.5 * iteration_s,
        "num_configurations": 1234,
        "num_pruned": 1200,
        "num_explored": 34,
        "proven": words,
    }


def _memory(rank: int) -> dict[str, Any]:
    return {
        "pipeline_rank": rank,
        "route": "r0",
        "weights_bytes": 6e9,
        "gradients_bytes": 1.2e10,
        "optimizer_bytes": 3e9,
        "activations_bytes": 2e10 - 1e8 * rank,
        "buffers_bytes": 1.5e9,
        "framework_bytes": 1e9,
        "limit_bytes": 7.52e10,
    }


def _load(link: str, *, reverse: bool) -> dict[str, Any]:
    flows = [{"cause": "dp", "bytes_per_iteration": 1.1e11}, {"cause": "pp", "bytes_per_iteration": 2.1e11}]
    return {
        "link": link,
        "reverse": reverse,
        "usable_bytes_per_s": 1e13,
        "flows": flows,
        "mean_utilisation": 0.034,
        "peak_utilisation": 0.93,
        "headroom_bytes_per_s": 7e11,
        "bottleneck": ["pp"],
        "price_s_per_gb": 6.25e-4,
    }


def _choice(words: str) -> dict[str, Any]:
    return {
        "dimension": "pp",
        "collective": "send_recv",
        "tier": "cross_building",
        "num_ranks": 2,
        "message_bytes": 3.3e7,
        "algorithm": "direct",
        "chunk_bytes": 1048576.0,
        "num_queue_pairs": 16,
        "num_outstanding": 8,
        "load_balancing": "spray",
        "reliability": "selective_repeat",
        "expected_s": 0.004,
        "effective_bytes_per_s": 4.2e10,
        "reason": words,
    }


def _baseline(iteration_s: float, words: str) -> dict[str, Any]:
    name = f"rule of {words}"[:120]
    return {"name": name, "assumptions": words, "iteration_s": 1.25 * iteration_s, "speed_up": 1.25}


def _alternative(iteration_s: float, words: str) -> dict[str, Any]:
    return {
        "degrees": {"tp": 8, "pp": 2, "dp": 8},
        "sharding": "zero1",
        "recompute": "none",
        "family": "one_way",
        "crossing": "dp_out",
        "iteration_s": 1.04 * iteration_s,
        "slower_by": 0.04,
        "why_second": words,
    }
