"""Layers are shared out by GPU type where the fastest type alone has its ranks further apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.request import PlanRequest
from solver.configurations.enumerate import BY_GPU_TYPE, enumerate_space
from solver.configurations.nearness import fits_as_near, ranks_by_type
from solver.network.places import usable_pools
from tests.build_job import job

FAST, SLOW = "B200-SXM", "H100-SXM-80G"
Hosts = list[tuple[int, int]]  # of every building, fast ones and slow ones


def request_of(hosts: Hosts) -> PlanRequest:
    """Buildings with so many hosts of each type, one for every stage group."""
    allowed = {"tp": [8], "cp": [1], "vpp": [1], "micro_batch_sequences": [1], "recompute": ["none"]}
    document = job(hosts=(1,) * len(hosts), batch=8, allowed=allowed).model_dump(mode="json")
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
