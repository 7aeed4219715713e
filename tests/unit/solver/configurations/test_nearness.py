"""Layers are shared out by GPU type where the best type alone has its ranks further apart, and where none is best."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.outcome import Planned
from models.request import PlanRequest
from solver.configurations.enumerate import BY_GPU_TYPE, enumerate_space
from solver.configurations.nearness import fits_as_near, fits_uncrossed, ranks_by_type
from solver.network.places import usable_pools
from solver.planner import plan
from tests.build_job import job
from tests.counted import work_clock

FAST, SLOW = "B200-SXM", "H100-SXM-80G"
Json = dict[str, Any]
MEASURED = {
    "layer_kind": "dense",
    "gpu": SLOW,
    "micro_batch_sequences": 1,
    "tp": 8,
    "forward_s": 1e-3,
    "input_grad_s": 1e-3,
    "weight_grad_s": 1e-3,
    "activation_bytes": 1e7,
}
Hosts = list[tuple[int, int]]  # of every building, fast ones and slow ones


PIN = {"pins": [{"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": "b1"}]}
INSIDE = {"pipeline_may_cross_buildings": False}


def request_of(hosts: Hosts, constraints: dict[str, Any] | None = None, **more: Any) -> PlanRequest:
    """Buildings with so many hosts of each type, one for every stage group."""
    allowed = {"tp": [8], "cp": [1], "vpp": [1], "micro_batch_sequences": [1], "recompute": ["none"], **more}
    document = job(hosts=(1,) * len(hosts), batch=8, allowed=allowed, constraints=constraints or {},
                   options={"time_limit_s": 2.0}).model_dump(mode="json")  # fmt: skip
    cluster, pool = document["cluster"], document["cluster"]["pools"][0]
    cluster["pools"] = [
        pool | {"id": f"{gpu}-{number}", "place": f"b{number}", "gpu": gpu, "num_hosts": count}
        for number, own in enumerate(hosts)
        for gpu, count in zip((FAST, SLOW), own, strict=True)
        if count
    ]
    return PlanRequest.model_validate(document)


def shared_out(request: PlanRequest) -> set[tuple[int, int]]:
    """Ranks and replicas of the configurations with layers by GPU type."""
    space = enumerate_space(request)
    rows = np.flatnonzero(space.layer_split == BY_GPU_TYPE)
    return set(zip(space.columns.pp[rows].tolist(), space.columns.dp[rows].tolist(), strict=True))


def test_ranks_in_one_building_of_two_types_are_nearer_than_on_the_fastest_in_two() -> None:
    assert (2, 1) in shared_out(request_of([(1, 1), (1, 0)]))
    assert (2, 1) not in shared_out(request_of([(2, 1), (1, 0)]))
    assert (2, 1) not in shared_out(request_of([(1, 0), (1, 0), (0, 2)])), "the slow ones are a type alone"


def test_a_building_without_room_for_whole_ranks_of_two_types_is_no_reason() -> None:
    assert (2, 2) in shared_out(request_of([(2, 2), (2, 0)]))
    assert (2, 2) not in shared_out(request_of([(1, 3), (3, 0)])), "a rank has both replicas on one type"


def test_what_pins_keep_off_the_fastest_type_is_not_left_to_the_even_split() -> None:
    hosts = [(2, 0), (0, 2)]
    assert (2, 1) not in shared_out(request_of(hosts))
    assert (2, 1) in shared_out(request_of(hosts, PIN))


def test_what_fits_on_the_fastest_type_only_across_buildings_is_not_either() -> None:
    hosts = [(3, 1), (1, 3)]
    assert (2, 2) not in shared_out(request_of(hosts))
    assert (2, 2) in shared_out(request_of(hosts, INSIDE))
    assert (2, 1) not in shared_out(request_of(hosts, INSIDE)), "one replica is inside a building on the fastest"


@pytest.mark.parametrize(
    ("constraints", "hosts", "dp"), [(PIN, [(2, 0), (0, 2)], 1), (INSIDE, [(3, 1), (1, 3)], 2)], ids=["pin", "inside"]
)
def test_such_pipelines_are_placed_with_their_layers_shared_out(
    constraints: dict[str, Any], hosts: Hosts, dp: int
) -> None:
    times = {}
    for split in (["even"], ["by_gpu_type"], ["even", "by_gpu_type"]):
        found = plan(request_of(hosts, constraints, pp=[2], dp=[dp], layer_split=split), clock=work_clock())
        assert isinstance(found, Planned), split
        times[tuple(split)] = found.plan.metrics.iteration_s
    even_s, typed_s, open_s = times.values()
    assert open_s == pytest.approx(typed_s)
    assert typed_s < 0.95 * even_s


@pytest.mark.parametrize(("ranks_cross", "replicas_cross"), list(itertools.product((False, True), repeat=2)))
@given(st.lists(st.integers(0, 6), min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 3))
@settings(deadline=None, max_examples=60)
def test_against_every_way_to_put_stage_groups_into_buildings(
    ranks_cross: bool, replicas_cross: bool, fast: list[int], pp: int, dp: int
) -> None:
    """A stage group is one host; of every (rank, replica) the building."""
    request = request_of([(own, 1) for own in fast])
    pools = [pool for pool in usable_pools(request) if pool.gpu.name == FAST]
    if not pools:
        return
    groups = list(itertools.product(range(pp), range(dp)))
    together = [(rank if ranks_cross else 0, replica if replicas_cross else 0) for rank, replica in groups]
    sizes = list(Counter(together).values())
    fits = any(
        all(sum(size for size, at in zip(sizes, chosen, strict=True) if at == b) <= own for b, own in enumerate(fast))
        for chosen in itertools.product(range(len(fast)), repeat=len(sizes))
    )
    rows = {name: np.array([value]) for name, value in (("tp", 8), ("cp", 1), ("pp", pp), ("dp", dp))}
    found = fits_uncrossed(request.cluster, pools, rows, ranks_may_cross=ranks_cross, replicas_may_cross=replicas_cross)
    assert bool(found[0]) == fits


def one_building(job_changes: Json, slow_changes: Json, constraints: Json) -> PlanRequest:
    """Two fast hosts and a slow one in a building, whose type and job have other figures."""
    document = request_of([(2, 1)]).model_dump(mode="json")
    document["workload"] |= job_changes
    document["constraints"] |= constraints
    document["cluster"]["pools"][1]["gpu"] |= slow_changes
    return PlanRequest.model_validate(document)


@pytest.mark.parametrize(
    ("job_changes", "slow_changes", "constraints", "asked"),
    [
        ({}, {}, {}, False),
        ({}, {"fp8_flops_per_s": 2e16}, {}, False),
        ({"precision": "fp8"}, {}, {}, False),
        ({"precision": "fp8"}, {"fp8_flops_per_s": 2e16}, {}, True),
        ({}, {"memory_bytes_per_s": 2e13}, {}, True),
        ({}, {"memory_bytes": 3e11}, {}, True),
        ({"layer_profiles": [MEASURED]}, {}, {}, True),
        ({}, {}, {"pins": [{"first_pipeline_rank": 0, "last_pipeline_rank": 0, "place": "b0"}]}, True),
    ],
)
def test_only_what_is_best_in_everything_leaves_layers_by_type_out(
    job_changes: Json, slow_changes: Json, constraints: Json, *, asked: bool
) -> None:
    """A type that was fastest in BF16 alone kept a plan from being looked for that takes a quarter less in FP8."""
    assert ((2, 1) in shared_out(one_building(job_changes, slow_changes, constraints))) == asked


def two_alike(job_changes: Json, other: Json, **more: Any) -> PlanRequest:
    """A host each of two types, in one building, that are alike but for this."""
    document = request_of([(1, 1)], pp=[2], dp=[1], **more).model_dump(mode="json")
    document["workload"] |= job_changes
    pools = document["cluster"]["pools"]
    fast = {**pools[1]["gpu"], "fp8_flops_per_s": 2e15}
    pools[0]["gpu"], pools[1]["gpu"] = fast, {**fast, **other, "name": "other"}
    return PlanRequest.model_validate(document)


@pytest.mark.parametrize(
    ("job_changes", "other", "apart"),
    [
        ({"precision": "fp8"}, {"fp8_flops_per_s": 1e15}, True),
        ({"precision": "fp8"}, {"bf16_flops_per_s": 2e14}, True),
        ({"precision": "fp32"}, {"fp32_flops_per_s": 1e14}, True),
        ({}, {"memory_bytes": 6e10}, True),
        ({}, {"memory_bytes_per_s": 1e12}, True),
        ({}, {"scale_up_bytes_per_s": 1e11}, True),
        ({}, {"scale_up_full_mesh": True}, True),
        ({}, {"num_multiprocessors": 20}, True),
        ({"layer_profiles": [MEASURED]}, {}, True),
        ({}, {}, False),
        ({}, {"fp8_flops_per_s": 1e15, "fp32_flops_per_s": 1e14}, False),
        ({}, {"usd_per_gpu_hour": 9.0, "best_gemm_fraction": 0.5, "board_power_w": 100.0}, False),
    ],
)
def test_types_differ_in_whatever_their_times_and_memory_follow_from(
    job_changes: Json, other: Json, *, apart: bool
) -> None:
    """Search and judge agree on it: a plan with layers by type is found where types differ, and nowhere else."""
    request = two_alike(job_changes, other, layer_split=["by_gpu_type"])
    assert bool(shared_out(request)) == apart
    assert isinstance(plan(request, clock=work_clock()), Planned) == apart


def test_types_alike_in_bf16_share_out_layers_by_their_fp8() -> None:
    """An even split, the only one that was looked at, is slower by more than a tenth."""
    times = {}
    for split in ("even", "by_gpu_type"):
        request = two_alike({"precision": "fp8"}, {"fp8_flops_per_s": 4e14}, layer_split=["even", split])
        found = plan(request, clock=work_clock())
        assert isinstance(found, Planned)
        times[split] = found.plan.metrics.iteration_s
    assert times["by_gpu_type"] < times["even"] * 0.9


def inside_one(hosts: Hosts, pp: int, dp: int) -> Iterator[tuple[bool, bool]]:
    """Of every placement with a type for each rank, all in one building: whether it has slow ranks, and fast ones."""
    for types in itertools.product((0, 1), repeat=pp):
        if any(all(types.count(gpu) * dp <= own[gpu] for gpu in (0, 1)) for own in hosts):
            yield any(types), not all(types)


@pytest.mark.parametrize(("pp", "dp"), [(2, 1), (3, 1), (2, 2), (3, 2)])
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4))
@settings(deadline=None, max_examples=60)
def test_against_every_placement_of_small_fleets(pp: int, dp: int, hosts: Hosts) -> None:
    hosts = [own for own in hosts if any(own)]
    fast = sum(own[0] for own in hosts)
    if not fast:
        return
    request = request_of(hosts)
    rows = {name: np.array([value]) for name, value in (("tp", 8), ("cp", 1), ("pp", pp), ("dp", dp))}
    found = set(inside_one(hosts, pp, dp))
    is_nearer = (True, True) in found and (False, True) not in found
    pools = usable_pools(request)
    held = ranks_by_type(pools, rows["tp"], rows["cp"], rows["dp"])[FAST]
    left = bool(fits_as_near(request.cluster, pools, FAST, rows, held)[0])
    assert left == (fast >= pp * dp and not is_nearer)
