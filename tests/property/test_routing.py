"""On random networks: bytes are conserved between traffic, routes and links, and nothing plain is ever faster."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.routing_rivals import equal_split, load_of, split_faults
from solver.transport.routing import commodities_of, fullest_edge_s, least_latency_split, route
from tests.unit.solver.transport.networks import random_network, random_sizes

SLACK = 1 + 2e-6

instances = st.tuples(
    st.integers(2, 9), st.integers(0, 12), st.integers(1, 24), st.integers(0, 2**32 - 1)
)  # places, extra links, demands, seed


def drawn(instance):
    """A network and what is sent over it."""
    num_places, extra, num_demands, seed = instance
    topology, generator = random_network(num_places, num_places - 1 + extra, seed)
    return topology, random_sizes(generator, topology, num_demands)


@settings(max_examples=40, deadline=None)
@given(instances)
def test_routings_ship_everything_and_beat_the_plain_ones(instance):
    topology, size_of = drawn(instance)
    commodities = commodities_of(topology, size_of, topology.capacity_bytes_per_s)
    best = route(topology, size_of, topology.capacity_bytes_per_s)
    plain = [make(commodities) for make in (least_latency_split, equal_split)]
    for split in (best.split_k, *plain):
        assert split_faults(commodities, split, fullest_edge_s(commodities, split)) == []
        assert_bytes_are_conserved_at_every_place(commodities, split)
    assert best.bound_s <= best.time_s * SLACK
    assert best.time_s <= best.bound_s * SLACK
    assert all(best.time_s <= fullest_edge_s(commodities, split) * SLACK for split in plain)


@settings(max_examples=40, deadline=None)
@given(instances)
def test_direct_routings_take_the_fewest_links_and_are_optimal_among_those(instance):
    topology, size_of = drawn(instance)
    best = route(topology, size_of, topology.capacity_bytes_per_s, direct=True)
    fewest = commodities_of(topology, size_of, topology.capacity_bytes_per_s).distance_k(np.ones(len(topology.edges)))
    for split, hops in zip(best.split_k, fewest, strict=True):
        assert {len(path) for path, _ in split} == {hops}
    assert best.bound_s <= best.time_s * SLACK
    assert best.time_s <= best.bound_s * SLACK
    assert route(topology, size_of, topology.capacity_bytes_per_s).time_s <= best.time_s * SLACK


def assert_bytes_are_conserved_at_every_place(commodities, split):
    """What leaves a place less what enters it is what is sent from there less what is sent to it."""
    load, topology = load_of(commodities, split), commodities.topology
    net, wanted = np.zeros(len(topology.places)), np.zeros(len(topology.places))
    np.add.at(net, topology.ends[0], load)
    np.subtract.at(net, topology.ends[1], load)
    for (source, target), size in zip(commodities.ends_k, commodities.size_k, strict=True):
        wanted[source] += size
        wanted[target] -= size
    assert net == pytest.approx(wanted, rel=1e-6, abs=1e-6 * max(1.0, load.max()))


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_scaling_all_demands_scales_all_times(factor):
    topology, generator = random_network(7, 15, 11)
    size_of = random_sizes(generator, topology, 20)
    scaled = {step: factor * size for step, size in size_of.items()}
    before, after = (route(topology, one, topology.capacity_bytes_per_s) for one in (size_of, scaled))
    assert after.time_s == pytest.approx(factor * before.time_s, rel=1e-5)


def test_five_hundred_commodities_over_24_buildings_are_optimal():
    topology, generator = random_network(24, 200, 5)
    size_of = random_sizes(generator, topology, 500)
    commodities = commodities_of(topology, size_of, topology.capacity_bytes_per_s)
    best = route(topology, size_of, topology.capacity_bytes_per_s)
    assert split_faults(commodities, best.split_k, best.time_s) == []
    assert best.time_s <= best.bound_s * SLACK
    assert best.time_s < fullest_edge_s(commodities, least_latency_split(commodities))
    assert best.time_s < fullest_edge_s(commodities, equal_split(commodities))
