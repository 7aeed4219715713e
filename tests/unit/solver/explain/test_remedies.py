"""What is offered against an infeasible request helps, and what would not help is not offered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from models.request import PlanRequest
from solver.planner import validate
from tests.build_job import ARCHITECTURE, FIXED, job

LARGE = {"architecture": "llama-3.1-405b"}
MIDDLE = {"architecture": "llama-3.1-70b"}
BIASED = {
    **ARCHITECTURE,
    "moe": {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 1408, "num_shared_experts": 1},
    "definition": {"linear_bias": True},
}
MEGATRON = {"framework": "megatron-core"}
LONG = {"sequence_length": 1_000_002, "global_batch_sequences": 1}
HALF = {"memory_headroom_fraction": 0.5}


def remedies(request: PlanRequest) -> tuple[str, ...]:
    (found,) = validate(request)
    assert found.remedies
    return found.remedies


def applied(request: PlanRequest, remedy: str) -> PlanRequest | None:
    """The request with a remedy that a program can read applied to it."""
    document: dict[str, Any] = request.model_dump(mode="json")
    constraints, words = document["constraints"], remedy.split()
    if remedy.startswith("set constraints."):
        *way, last = words[1].split(".")[1:]
        (constraints[way[0]] if way else constraints)[last] = json.loads(words[-1])
    elif remedy.startswith("leave all of constraints.allowed"):
        constraints["allowed"], constraints["max_gpus"] = {}, None
    elif remedy.startswith("lower constraints.memory_headroom_fraction"):
        constraints["memory_headroom_fraction"] = float(words[-1])
    elif remedy.startswith("use ") and "times as many" in remedy:
        constraints["max_gpus"] = None
        for pool in document["cluster"]["pools"]:
            pool["num_hosts"] *= int(words[1])
    elif remedy.startswith("use GPUs with"):
        for pool in document["cluster"]["pools"]:
            pool["gpu"]["memory_bytes"] = float(words[3]) * 2**30
    elif remedy.startswith("set global_batch_sequences to ") and words[-1].isdigit():
        document["workload"]["global_batch_sequences"] = int(words[-1])
    elif remedy.startswith("allow ") and words[1] in constraints["allowed"]:
        value: Any = int(words[2]) if words[2].isdigit() else words[2]
        constraints["allowed"][words[1]] = [*constraints["allowed"][words[1]], value]
    else:
        return None
    return PlanRequest.model_validate(document)


@pytest.mark.parametrize(
    "request_",
    [
        job(workload=LARGE),
        job(workload=LARGE, allowed={}),
        job(workload=MIDDLE, allowed=FIXED, hosts=(1, 1)),
        job(workload=MIDDLE, allowed=FIXED, constraints={"memory_headroom_fraction": 0.6}, hosts=(2, 2)),
        job(workload=MIDDLE, allowed={"recompute": ["none"], "sharding": ["zero1"]}, hosts=(1, 1), constraints=HALF),
        job(allowed={"pp": [16], "tp": [8], "dp": [1]}, hosts=(8, 8), constraints={"max_gpus": 64}),
        job(allowed={"tp": [4], "cp": [8]}, workload={"sequence_length": 4100}),
        job(allowed={"tp": [8], "cp": [1]}, workload={"sequence_length": 5001}, constraints=MEGATRON),
        job(allowed={}, hosts=(1,), workload=LONG, constraints=MEGATRON),
        job(allowed={}, batch=1_048_573),
        job(allowed={"dp": [3], "pp": [8]}, batch=900_021),
    ],
)
def test_every_remedy_that_is_offered_helps(request_: PlanRequest) -> None:
    for remedy in remedies(request_):
        changed = applied(request_, remedy)
        if changed is not None:
            assert validate(changed) == (), remedy


@pytest.mark.parametrize(
    ("request_", "limit"),
    [
        (
            job(allowed={"tp": [8], "cp": [1]}, workload={"sequence_length": 5001}, constraints=MEGATRON),
            "; sequences of 5001 tokens over 8 tensor-parallel and 1 context-parallel ranks: megatron-core splits",
        ),
        (job(allowed={}, hosts=(1,), workload=LONG, constraints=MEGATRON), "megatron-core splits them evenly"),
        (
            job(allowed={"tp": [8]}, workload={"architecture": {**ARCHITECTURE, "ffn_hidden_size": 14332}},
                constraints=MEGATRON),
            "megatron-core splits feed-forward blocks evenly, 14332 wide over tp 8",
        ),
        (
            job(allowed={}, workload={"optimizer": {"name": "muon"}, "precision": "fp16"}, constraints=MEGATRON),
            "megatron-core has muon in bf16 and fp32, not in fp16",
        ),
        (
            job(allowed={}, workload={"architecture": BIASED}, constraints=MEGATRON),
            "megatron-core has no shared experts with biases",
        ),
        (
            job(allowed={"sharding": ["zero1"]}, workload={"optimizer": {"name": "sgd"}}, constraints=MEGATRON),
            "does not shard the state of sgd",
        ),
        (
            job(allowed={"pp": [4]}, workload={"architecture": {**ARCHITECTURE, "tied_embeddings": True}},
                constraints={"framework": "torchtitan"}),
            "ties embeddings on one rank",
        ),
    ],
)  # fmt: skip
def test_a_limit_of_the_framework_is_named(request_: PlanRequest, limit: str) -> None:
    (found,) = validate(request_)
    assert limit in found.detail
    assert any("framework" in remedy for remedy in found.remedies)


@pytest.mark.parametrize("sizes", [(4, 4), (1, 2, 5), (3, 5)])
def test_alike_pools_are_to_be_stated_as_one_where_a_stage_group_needs_both(sizes: tuple[int, ...]) -> None:
    """A group of 64 GPUs, on 64 GPUs of one place."""
    whole = job(hosts=(8,), allowed={"tp": [8], "cp": [8]}, workload={"sequence_length": 1_048_576})
    assert validate(whole) == ()
    pool = whole.cluster.pools[0]
    pools = tuple(
        pool.model_copy(update={"id": f"p{number}", "num_hosts": count}) for number, count in enumerate(sizes)
    )
    names = ", ".join(one.id for one in pools)
    assert f"state the pools {names} as one" in remedies(whole.with_cluster(pools=pools))
    faster = (pools[0].model_copy(update={"nic_bytes_per_s": 1e11}), *pools[1:])
    assert not any(names in remedy for remedy in remedies(whole.with_cluster(pools=faster)))


def test_headroom_is_not_blamed_where_the_memory_itself_is_too_small() -> None:
    offered = remedies(job(workload=LARGE, allowed=FIXED, constraints={"memory_headroom_fraction": 0.1}))
    assert not any("headroom" in one for one in offered)


@pytest.mark.parametrize(("limit", "workload", "least"), [(2, {"architecture": "llama-3.1-8b"}, 3), (8, MIDDLE, 20)])
def test_a_limit_is_to_be_raised_before_gpus_are_bought(limit: int, workload: dict[str, Any], least: int) -> None:
    def limited(most: int) -> PlanRequest:
        return job(allowed={}, workload=workload, hosts=(8, 8), constraints={"max_gpus": most})

    offered = remedies(limited(limit))
    assert f"set constraints.max_gpus to {least}" in offered
    assert not any("as many GPUs" in one for one in offered)
    assert validate(limited(least - 1)) != ()
    assert validate(limited(least)) == ()


def test_gpus_are_bought_together_with_a_higher_limit_where_all_there_are_may_be_used() -> None:
    offered = remedies(job(allowed={}, workload=LARGE, hosts=(8,), constraints={"max_gpus": 64}))
    assert "use 2 times as many GPUs and set constraints.max_gpus to null" in offered


def test_nothing_is_to_be_allowed_where_nothing_was_restricted() -> None:
    offered = remedies(job(workload=LARGE, allowed={}, hosts=(1,)))
    assert not any("allow" in one for one in offered), offered


@pytest.mark.parametrize(
    ("batch", "allowed", "pointer", "better"),
    [
        (64, {"dp": [3]}, "dp", 63),
        (64, {"dp": [8], "micro_batch_sequences": [3]}, "dp", 72),
        (64, {"micro_batch_sequences": [5, 6]}, "micro_batch_sequences", 65),
        (61, {"dp": [2, 4]}, "dp", 60),
    ],
)
def test_a_batch_that_does_not_divide_is_refused_with_one_that_does(
    batch: int, allowed: dict[str, Any], pointer: str, better: int
) -> None:
    """Alone or together: frameworks start with whole micro-batches, as many for every replica."""
    whole = {**FIXED, **allowed}
    (reason,) = validate(job(batch=batch, allowed=whole))
    assert (reason.code, reason.pointer) == ("degrees-do-not-divide", f"/constraints/allowed/{pointer}")
    assert "Megatron-Core" in reason.detail
    assert reason.remedies[1].endswith(f": {better}")
    assert validate(job(batch=better, allowed=whole)) == ()


@pytest.mark.parametrize(
    ("batch", "workload", "allowed", "least", "better"),
    [
        (1_048_573, {}, {}, 3 * 1_048_573, 1_048_572),  # a prime: one replica of micro-batches of one
        (700_001, {}, {"pp": [8]}, 3 * 8 * 700_001, 700_000),
        # One stage is short enough, and lacks memory where its state is not sharded over cp.
        (300_007, MIDDLE, {"sharding": ["zero1"]}, 3 * 2 * 300_007, 300_006),
    ],
)
def test_pipelines_too_long_to_be_timed_are_a_limit_of_the_program(
    batch: int, workload: dict[str, Any], allowed: dict[str, Any], least: int, better: int
) -> None:
    """Everything divides, with one replica; what does not fit is a schedule of more than a million operations."""
    request = job(allowed=allowed, batch=batch, workload=workload)
    (reason,) = validate(request)
    assert (reason.code, reason.pointer) == ("too-many-operations", "/workload/global_batch_sequences")
    assert f" {least:,} operations" in reason.detail
    assert "1,000,000: a limit of the program" in reason.detail
    assert reason.remedies[0] == f"set global_batch_sequences to {better}"
    assert validate(job(allowed=allowed, batch=better, workload=workload)) == ()


def test_memory_is_blamed_where_it_is_too_small_for_a_pipeline_of_any_length() -> None:
    (reason,) = validate(job(allowed={}, batch=1_048_573, workload=LARGE, hosts=(1,)))
    assert reason.code == "memory-too-small"
