"""On random networks: bytes are conserved between traffic, routes and links, and nothing plain is ever faster."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.routing_rivals import equal_split_routing, routing_faults
from solver.transport.flows import Phase
from solver.transport.routing import route
from solver.transport.shortest_paths import shortest_path_routing
from tests.unit.solver.transport.networks import random_demands, random_network

PHASES = (Phase("dp", weight=1.0), Phase("pp", weight=4.0, hidden_s=0.05))
NAMES = tuple(phase.name for phase in PHASES)
SLACK = 1 + 2e-6

instances = st.tuples(
    st.integers(2, 9), st.integers(0, 12), st.integers(1, 24), st.integers(0, 2**32 - 1)
)  # places, extra links, demands, seed


@settings(max_examples=40, deadline=None)
@given(instances)
def test_routings_ship_everything_and_beat_the_plain_ones(instance):
    num_places, extra, num_demands, seed = instance
    topology, generator = random_network(num_places, num_places - 1 + extra, seed)
    demands = random_demands(generator, topology, num_demands, NAMES)
    best = route(topology, demands, PHASES)
    plain = [make(topology, demands, PHASES) for make in (shortest_path_routing, equal_split_routing)]
    for routing in (best, *plain):
        assert routing_faults(topology, demands, routing) == []
        assert_bytes_are_conserved_at_every_place(topology, demands, routing)
    assert best.bound_s <= best.iteration_s * SLACK
    assert best.iteration_s <= best.bound_s + 2e-6 * best.transfer_s  # the gap is that of whole phase times
    assert all(best.iteration_s <= other.iteration_s + 2e-6 * best.transfer_s for other in plain)
    assert all(best.phase_s[name] <= other.phase_s[name] * SLACK for name in NAMES for other in plain)


def assert_bytes_are_conserved_at_every_place(topology, demands, routing):
    """What leaves a place less what enters it is what its demands send less what they receive, phase by phase."""
    for name in NAMES:
        load = routing.load_bytes[name]
        net = np.zeros(len(topology.places))
        np.add.at(net, topology.tails, load)
        np.subtract.at(net, topology.heads, load)
        wanted = np.zeros(len(topology.places))
        for demand in demands:
            if demand.phase == name:
                wanted[topology.index_of[demand.source]] += demand.size_bytes
                wanted[topology.index_of[demand.target]] -= demand.size_bytes
        assert net == pytest.approx(wanted, rel=1e-6, abs=1e-6 * max(1.0, load.max()))


@pytest.mark.parametrize("factor", [0.5, 3.0])
def test_scaling_all_demands_scales_all_times(factor):
    topology, generator = random_network(7, 15, 11)
    demands = random_demands(generator, topology, 20, ("dp",))
    scaled = [type(one)(one.source, one.target, one.size_bytes * factor, one.phase, one.cause) for one in demands]
    phases = (Phase("dp"),)
    before, after = route(topology, demands, phases), route(topology, scaled, phases)
    assert after.iteration_s == pytest.approx(factor * before.iteration_s, rel=1e-5)


def test_five_hundred_commodities_over_24_buildings_are_optimal():
    topology, generator = random_network(24, 200, 5)
    demands = random_demands(generator, topology, 500, ("dp",))
    phases = (Phase("dp"),)
    best = route(topology, demands, phases)
    assert routing_faults(topology, demands, best) == []
    assert best.iteration_s <= best.bound_s * SLACK
    assert best.iteration_s < shortest_path_routing(topology, demands, phases).iteration_s
    assert best.iteration_s < equal_split_routing(topology, demands, phases).iteration_s
