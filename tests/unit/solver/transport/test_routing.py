"""Routing finds the hand-solved optimum, prices links, and its check can object."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.routing_rivals import disjoint_paths, equal_split, split_faults
from solver.transport.routing import commodities_of, fullest_edge_s, least_latency_split, route
from tests.unit.solver.transport.networks import network

TRIANGLE = [("a", "b", 2e9, 1e-3), ("a", "c", 1e9, 1e-3), ("c", "b", 1e9, 1e-3)]
AB = {("a", "b"): 3e9}


def routed(topology, size_of=AB, capacity=None):
    return route(topology, size_of, topology.capacity_bytes_per_s if capacity is None else capacity)


def of(topology, size_of=AB):
    return commodities_of(topology, size_of, topology.capacity_bytes_per_s)


def test_a_demand_splits_over_two_ways_by_capacity():
    """2 GB/s direct and 1 GB/s by way of c ship 3 GB in one second."""
    topology = network(TRIANGLE)
    best = routed(topology)
    assert best.time_s == pytest.approx(1.0, rel=1e-6)
    assert best.bound_s == pytest.approx(1.0, rel=1e-5)
    assert fullest_edge_s(of(topology), least_latency_split(of(topology))) == pytest.approx(1.5)
    assert split_faults(of(topology), best.split_k, best.time_s) == []


def test_parallel_links_are_all_used():
    topology = network([("a", "b", 1e9, 1e-3), ("a", "b", 3e9, 2e-3)])
    assert routed(topology, {("a", "b"): 4e9}).time_s == pytest.approx(1.0, rel=1e-6)


def test_both_directions_have_their_own_capacity():
    topology = network([("a", "b", 1e9, 1e-3)])
    assert routed(topology, {("a", "b"): 1e9, ("b", "a"): 1e9}).time_s == pytest.approx(1.0, rel=1e-6)


def test_background_and_failed_planes_are_honoured():
    topology = network([("a", "b", 4e9, 1e-3)], planes=4, num_failed_planes=1, background_bytes_per_s=1e9)
    assert routed(topology, {("a", "b"): 2e9}).time_s == pytest.approx(1.0)


def test_bytes_that_edges_carry_already_leave_the_detour_to_the_others():
    """Three gigabytes beside one on the direct link: four through the cut around a, three a second."""
    topology = network(TRIANGLE)
    carried = np.zeros(len(topology.edges))
    carried[topology.edge_index["0:ab", False]] = 1e9
    best = route(topology, AB, topology.capacity_bytes_per_s, carried_bytes=carried)
    assert best.time_s == pytest.approx(4 / 3, rel=1e-6)
    assert best.bound_s == pytest.approx(4 / 3, rel=1e-5)
    both = routed(topology, {("a", "b"): 4e9})
    assert best.time_s == pytest.approx(both.time_s, rel=1e-6)


def test_prices_tell_what_a_byte_less_saves():
    """The cut around a carries 3 GB/s, so one byte more anywhere on it costs 1/3 ns."""
    topology = network(TRIANGLE)
    best, step = routed(topology), 3e6
    more = routed(topology, {("a", "b"): 3e9 + step})
    direct = topology.edge_index["0:ab", False]
    assert best.price_e[direct] == pytest.approx((more.time_s - best.time_s) / step, rel=1e-3)
    assert best.price_e @ topology.capacity_bytes_per_s == pytest.approx(1.0)


def test_among_equals_the_shorter_path_stays():
    """The detour is free of load but nothing is gained by it."""
    topology = network([("a", "b", 2e9, 1e-3), ("a", "c", 2e9, 1e-3), ("c", "b", 2e9, 1e-3), ("d", "a", 1e9, 1e-3)])
    ((path, part),) = routed(topology, {("d", "a"): 5e9, ("a", "b"): 1e9}).split_k[1]
    assert ([topology.edges[edge].id for edge in path], part) == (["0:ab"], 1.0)


def test_capacities_can_be_replaced():
    topology = network([("a", "b", 1e9, 1e-3)])
    halved = topology.capacity_bytes_per_s / 2
    assert routed(topology, {("a", "b"): 1e9}, halved).time_s == pytest.approx(2.0)


def test_an_island_is_refused_by_name():
    topology = network([("a", "b", 1e9, 1e-3), ("c", "d", 1e9, 1e-3)])
    with pytest.raises(ValueError, match="no path leads"):
        routed(topology, {("a", "c"): 3e9})


def test_equal_split_uses_disjoint_paths():
    topology = network(TRIANGLE)
    paths = disjoint_paths(topology, topology.index_of["a"], topology.index_of["b"], num_paths=4)
    assert len(paths) == 2
    assert not set(paths[0]) & set(paths[1])
    assert fullest_edge_s(of(topology), equal_split(of(topology))) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("split", "fault"),
    [
        ([(("0:ab", False), 0.5)], "of its bytes are routed"),
        ([(("0:ab", False), 2.0), (("0:ab", False), -1.0)], "negative part"),
        ([(("2:cb", True), 1.0)], "does not leave 'a'"),
        ([(("1:ac", False), 1.0)], "ends in 'c'"),
        ([(("0:ab", False), 1.0)], "an edge is full for 1.5 s of 1 s"),
    ],
)
def test_the_check_objects(split, fault):
    topology = network(TRIANGLE)
    split_k = (tuple(((topology.edge_index[edge],), part) for edge, part in split),)
    assert any(fault in one for one in split_faults(of(topology), split_k, 1.0))
