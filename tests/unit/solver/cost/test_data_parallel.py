"""Volumes and groups of data parallelism."""

from dataclasses import replace

import numpy as np
import pytest

from models.workload import Optimizer
from solver.cost.collectives import all_reduce_s, gather_s, group_of
from solver.cost.data_parallel import crossing_bytes, replica_groups, state_shards, step_traffic
from solver.cost.fabric import Fabric
from solver.cost.job import Job, job_of
from tests.unit.solver.cost.samples import STACK, columns, configuration, fabric, gpt, workload


def job(gradient_bytes: float) -> Job:
    """Any job with gradients of so many bytes; its weights travel in two."""
    return replace(job_of(workload(gpt())), optimizer=Optimizer(gradient_bytes_per_parameter=gradient_bytes))


@pytest.mark.parametrize(("tp", "local", "shared"), [(1, 8, 8), (2, 4, 4), (8, 1, 1)])
def test_groups_share_the_nics_of_a_host(tp, local, shared):
    row = columns(configuration(tp=tp, dp=64))
    group = replica_groups(row, fabric(), STACK).dense_shard
    assert group.local_ranks[0] == local
    nic = 25e9 * STACK.scale_out_efficiency.value * shared
    assert group.bus_bytes_per_s[0] == pytest.approx(min(nic, 3e11 * STACK.scale_up_efficiency.value))


def test_inside_a_domain_the_scale_up_rate_counts():
    group = group_of(np.array([8]), np.array([1]), fabric(), STACK)
    assert group.bus_bytes_per_s[0] == pytest.approx(3e11 * STACK.scale_up_efficiency.value)


def test_one_rank_pays_nothing():
    group = group_of(np.array([1]), np.array([8]), fabric(), STACK)
    assert all_reduce_s(np.array([1e9]), group)[0] == 0


def test_zero1_moves_as_much_as_an_all_reduce_when_gradients_have_two_bytes():
    rows = columns(configuration(dp=16, sharding=0), configuration(dp=16, sharding=1, shard_group=16))
    parameters, none = np.full(2, 1e9), np.zeros(2)
    traffic = step_traffic(parameters, none, rows, fabric(), STACK, job=job(2.0))
    total = traffic.reduce_s + traffic.gather_s
    assert total[0] == pytest.approx(total[1], rel=0.02)


def test_bytes_that_cross_buildings():
    rows = columns(*(configuration(dp=4, sharding=code, shard_group=2, num_microbatches=3) for code in range(4)))
    crossing = crossing_bytes(np.full(4, 1e6), rows, 2, job(4.0))
    assert crossing.tolist() == pytest.approx([4e6, 4e6, 3 * 0.75 * 8e6, 4e6])


def test_one_copy_for_all_replicas_is_a_ring_over_all_of_them():
    """Three quarters of gradients and weights cross every border; two copies meet in an all-reduce instead."""
    one, two = columns(configuration(dp=4, shard_group=4)), columns(configuration(dp=4, shard_group=2))
    assert crossing_bytes(np.array([1e6]), one, 2, job(4.0))[0] == pytest.approx(0.75 * 6e6)
    assert crossing_bytes(np.array([1e6]), two, 2, job(4.0))[0] == pytest.approx(4e6)


@pytest.mark.parametrize("sharding", [1, 3])
def test_sharding_over_more_replicas_never_needs_more_memory(sharding):
    rows = columns(*(configuration(dp=64, ep=2, sharding=sharding, shard_group=1 << k) for k in range(7)))
    for shards in state_shards(rows):
        assert (np.diff(shards) >= 0).all()


def test_copies_inside_one_place_are_kept_equal_there():
    rows = columns(configuration(dp=16, shard_group=16), configuration(dp=16, shard_group=8))
    whole, halves = step_traffic(np.full(2, 1e9), np.zeros(2), rows, fabric(), STACK, job=job(4.0)).reduce_s
    assert halves > 7 / 8 * whole


def test_the_example_of_405b_over_two_buildings():
    rows = columns(configuration(dp=8192, sharding=0))
    per_gpu = crossing_bytes(np.array([405e9 / 8192]), rows, 2, job(4.0))[0]
    assert per_gpu == pytest.approx(198e6, rel=2e-3)


def test_a_mesh_gives_a_group_the_links_between_its_ranks():
    """64 GB/s to one peer of an MI300X, 448 GB/s to all seven; behind a switch every group has all of it."""
    payload, ranks = np.full(3, 1e9), np.array([2, 4, 8])
    times = {}
    for full_mesh in (True, False):
        fabric = Fabric(448e9, 8, 5e10, 8, scale_up_latency_s=0.0, full_mesh=full_mesh)
        times[full_mesh] = gather_s(payload, group_of(ranks, np.ones(3, dtype=int), fabric, STACK))
    np.testing.assert_allclose(
        (times[True] - STACK.collective_latency_s.value) / (times[False] - STACK.collective_latency_s.value),
        [7.0, 7 / 3, 1.0],
    )
