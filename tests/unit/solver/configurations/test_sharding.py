"""Which kinds of sharding the space has, over which replicas and in how many copies."""

from __future__ import annotations

import pytest

from models.outcome import Planned
from solver.configurations.enumerate import enumerate_space
from solver.cost.columns import DDP, FSDP, HSDP, ZERO1
from solver.planner import plan
from tests.build_job import FIXED, job
from tests.counted import work_clock


def test_fsdp_of_one_replica_shards_over_context_parallel_ranks() -> None:
    """Those hold an equal part of the weights each, which zero1 keeps whole: what fits and how long it takes differ."""
    allowed = {**FIXED, "tp": [1], "cp": [1, 2], "dp": [1, 2], "sharding": ["zero1", "fsdp"]}
    one = enumerate_space(job(hosts=(8,), allowed=allowed)).columns
    sharded = one.sharding == FSDP
    found = set(zip(one.cp[sharded].tolist(), one.dp[sharded].tolist(), strict=True))
    assert found == {(1, 2), (2, 1), (2, 2)}


@pytest.mark.parametrize("others", [[], ["ddp"], ["zero1"]])
def test_hsdp_without_fsdp_has_any_number_of_copies(others: list[str]) -> None:
    """Where nothing that keeps less is allowed, a request is infeasible only if no number of copies helps."""
    allowed = {**FIXED, "tp": [1], "dp": [1, 3, 9], "sharding": [*others, "hsdp"]}
    one = enumerate_space(job(hosts=(16,), batch=9, allowed=allowed)).columns
    hsdp = one.sharding == HSDP
    alone = set() if "zero1" in others else {(1, 1)}
    assert set(zip(one.dp[hsdp].tolist(), one.shard_group[hsdp].tolist(), strict=True)) == {
        (3, 1),
        (9, 1),
        (9, 3),
        *alone,
    }


def test_one_replica_over_context_parallel_ranks_is_sharded_in_every_way_that_is_allowed() -> None:
    allowed = {**FIXED, "tp": [1], "cp": [2], "dp": [1]}
    for names, found in (
        (["ddp", "hsdp"], {DDP, HSDP}),
        (["fsdp", "hsdp"], {FSDP}),
        (["zero1", "hsdp"], {ZERO1, HSDP}),
    ):
        space = enumerate_space(job(hosts=(8,), allowed={**allowed, "sharding": names}))
        assert set(space.columns.sharding.tolist()) == found, names


def test_a_framework_without_zero1_may_shard_over_single_replicas() -> None:
    """Nothing is gathered over replicas then, which takes longest on narrow cards: a plan by hand beat the bound."""
    allowed = {**FIXED, "tp": [4], "pp": [8]}
    times = {}
    for names in (None, ["hsdp"]):
        chosen = allowed if names is None else {**allowed, "sharding": names}
        narrow = {"pool": {"nic_bytes_per_s": 2e9}, "link": {"capacity_bytes_per_s": 2e10}}
        asked = job(allowed=chosen, **narrow, constraints={"framework": "torchtitan"}, options={"time_limit_s": 4.0})
        outcome = plan(asked, clock=work_clock())
        assert isinstance(outcome, Planned)
        times[names is None] = outcome.plan.metrics.iteration_s
        if names is None:
            used, bound_s = outcome.plan.configuration, outcome.plan.proof.lower_bound_s
    assert (used.sharding, used.shard_group_replicas) == ("hsdp", 1)
    assert bound_s <= times[True] <= times[False] * (1.0 + 1e-9)
