"""The closed forms equal a step-by-step play of the algorithm, and the bus factors are those of nccl-tests."""

from __future__ import annotations

import pytest

from solver.network import collectives as cost
from solver.network.collectives import Level
from tests.unit.solver.network import stepwise

ALPHA, RATE, SIZE = 3e-6, 50e9, 64e6


def uniform(*_: int) -> stepwise.Link:
    return ALPHA, RATE


@pytest.mark.parametrize("num_ranks", [2, 3, 8, 13])
def test_ring_gather_equals_its_steps(num_ranks):
    played = stepwise.ring_all_gather(num_ranks, SIZE, uniform)
    assert cost.ring_gather_s(SIZE, num_ranks, ALPHA, RATE) == pytest.approx(played, rel=1e-12)


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8, 11, 16])
def test_plain_tree_equals_its_steps(num_ranks):
    played = stepwise.binomial_all_reduce(num_ranks, SIZE, uniform)
    assert cost.tree_all_reduce_s(SIZE, num_ranks, ALPHA, RATE) == pytest.approx(played, rel=1e-12)


@pytest.mark.parametrize("num_ranks", [2, 4, 8, 32])
def test_recursive_doubling_equals_its_steps(num_ranks):
    played = stepwise.recursive_doubling_all_gather(num_ranks, SIZE, uniform)
    assert cost.recursive_gather_s(SIZE, num_ranks, ALPHA, RATE) == pytest.approx(played, rel=1e-12)


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_pairwise_all_to_all_equals_its_steps(num_ranks):
    played = stepwise.pairwise_all_to_all(num_ranks, SIZE, uniform)
    assert cost.ring_gather_s(SIZE, num_ranks, ALPHA, RATE) == pytest.approx(played, rel=1e-12)


@pytest.mark.parametrize(("num_inside", "num_places"), [(8, 2), (4, 5), (2, 3), (8, 1)])
def test_hierarchical_without_overlap_equals_its_steps(num_inside, num_places):
    inside, across = (2e-6, 400e9), (5e-3, 50e9)
    played = stepwise.hierarchical_all_reduce(num_inside, num_places, SIZE, inside, across)
    closed = cost.hierarchical_all_reduce_s(SIZE, Level(num_inside, *inside), Level(num_places, *across))
    assert closed == pytest.approx(played, rel=1e-12)


WINDOWS = pytest.mark.parametrize(("num_chunks", "window"), [(1, 1), (4, 2), (7, 3), (8, 8), (5, 1)])


@pytest.mark.parametrize("stage_s", [(0.0, 2.0, 0.5), (3.0, 1.0, 0.0), (0.4, 0.4, 0.0), (0.0, 0.1, 0.4)])
@pytest.mark.parametrize("latency_s", [0.0, 0.7, 25.0])
@WINDOWS
def test_chunks_in_flight_equal_their_play(stage_s, latency_s, num_chunks, window):
    played = stepwise.windowed_stages(stage_s, latency_s, num_chunks, window)
    closed = cost.pipelined_stages_s(stage_s, latency_s, num_chunks=num_chunks, num_in_flight=window)
    assert closed == pytest.approx(played, rel=1e-12)


@pytest.mark.parametrize("stage_s", [(1.0, 2.0, 0.5), (3.0, 1.0, 3.0), (0.1, 0.1, 0.4), (1.0, 9.0, 1.0)])
@pytest.mark.parametrize("latency_s", [0.0, 0.7, 25.0])
@WINDOWS
def test_two_passes_inside_cost_at_most_one_turn_more(stage_s, latency_s, num_chunks, window):
    """Second passes wait for a gap between first passes, which the closed form leaves out."""
    played = stepwise.windowed_stages(stage_s, latency_s, num_chunks, window)
    closed = cost.pipelined_stages_s(stage_s, latency_s, num_chunks=num_chunks, num_in_flight=window)
    assert closed * (1 - 1e-12) <= played <= closed + stage_s[0] + stage_s[2]


def test_chunk_scheduling_multiplies_latency():
    """Two sites, four chunks two at a time: two rounds of two crossings, as ASTRA-sim plays it (20.03 ms at 5 ms)."""
    inside, across = Level(4, 1e-6, 50e9), Level(2, 5e-3, 12.5e9)
    time_s = cost.hierarchical_all_reduce_s(2**20, inside, across, num_chunks=4, num_in_flight=2)
    assert time_s == pytest.approx(20.03e-3, rel=0.01)
    all_in_flight = cost.hierarchical_all_reduce_s(2**20, inside, across, num_chunks=4, num_in_flight=4)
    assert all_in_flight == pytest.approx(10.03e-3, rel=0.01)


@pytest.mark.parametrize(("latency_s", "rate"), [(5e-3, 12.5e9), (1e-4, 1e9), (0.0, 50e9), (1e-5, 2e9)])
def test_flat_ring_across_sites_is_near_its_steps(latency_s, rate):
    """The steady period and the longest way are both lower bounds; queues at the slow hops add a little."""
    num_ranks, num_sites = 24, 2

    def link(sender: int, receiver: int) -> stepwise.Link:
        crosses = sender * num_sites // num_ranks != receiver * num_sites // num_ranks
        return (latency_s, rate) if crosses else (2e-6, 50e9)

    played = stepwise.ring_all_reduce(num_ranks, SIZE, link)
    closed = cost.flat_ring_across_sites_s(SIZE, num_ranks, num_sites, inside=(2e-6, 50e9), across=(latency_s, rate))
    assert played * 0.93 <= closed <= played * (1 + 1e-9)


def test_pipelined_tree_costs_two_passes_of_the_payload():
    time_s = cost.tree_all_reduce_s(1e9, 16, 0.0, 1e9, chunk_bytes=1.0)
    assert time_s == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("all_to_all", 0.875), ("send_recv", 1.0)],
)
def test_bus_factors_are_those_of_nccl_tests(collective, factor):
    assert cost.bus_factor(collective, 8) == factor


@pytest.mark.parametrize("num_ranks", [1])
def test_a_single_rank_needs_no_time(num_ranks):
    assert cost.ring_gather_s(SIZE, num_ranks, ALPHA, RATE) == 0
    assert cost.tree_all_reduce_s(SIZE, num_ranks, ALPHA, RATE) == 0
    assert cost.recursive_gather_s(SIZE, num_ranks, ALPHA, RATE) == 0
