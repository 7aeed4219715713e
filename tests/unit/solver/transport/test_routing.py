"""Routing finds the hand-solved optimum, prices links, keeps phases apart, and its check can object."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.routing_rivals import disjoint_paths, equal_split_routing, routing_faults
from solver.transport.flows import Demand, Phase, Routing, Share
from solver.transport.routing import route
from solver.transport.shortest_paths import shortest_path_routing
from tests.unit.solver.transport.networks import network

ONE = (Phase("dp"),)
TRIANGLE = [("a", "b", 2e9, 1e-3), ("a", "c", 1e9, 1e-3), ("c", "b", 1e9, 1e-3)]


def demand(source="a", target="b", size=3e9, phase="dp", cause="dp"):
    return Demand(source, target, size, phase, cause)


def test_a_demand_splits_over_two_ways_by_capacity():
    """2 GB/s direct and 1 GB/s by way of c ship 3 GB in one second."""
    topology = network(TRIANGLE)
    routing = route(topology, [demand()], ONE)
    assert routing.iteration_s == pytest.approx(1.0, rel=1e-6)
    assert routing.bound_s == pytest.approx(1.0, rel=1e-5)
    assert shortest_path_routing(topology, [demand()], ONE).iteration_s == pytest.approx(1.5)
    assert routing_faults(topology, [demand()], routing) == []


def test_parallel_links_are_all_used():
    topology = network([("a", "b", 1e9, 1e-3), ("a", "b", 3e9, 2e-3)])
    assert route(topology, [demand(size=4e9)], ONE).iteration_s == pytest.approx(1.0, rel=1e-6)


def test_both_directions_have_their_own_capacity():
    topology = network([("a", "b", 1e9, 1e-3)])
    demands = [demand(size=1e9), demand("b", "a", size=1e9)]
    assert route(topology, demands, ONE).iteration_s == pytest.approx(1.0, rel=1e-6)


def test_flows_of_one_phase_share_and_of_two_phases_do_not():
    topology = network([("a", "b", 1e9, 1e-3)])
    together = [demand(size=1e9), demand(size=1e9, cause="pp")]
    apart = [demand(size=1e9), demand(size=1e9, phase="pp", cause="pp")]
    one, two = route(topology, together, ONE), route(topology, apart, (Phase("dp"), Phase("pp")))
    assert one.phase_s["dp"] == pytest.approx(2.0)
    assert two.phase_s["dp"] == pytest.approx(1.0)
    assert two.phase_s["pp"] == pytest.approx(1.0)


def test_background_and_failed_planes_are_honoured():
    topology = network([("a", "b", 4e9, 1e-3)], planes=4, num_failed_planes=1, background_bytes_per_s=1e9)
    assert route(topology, [demand(size=2e9)], ONE).iteration_s == pytest.approx(1.0)


def test_hidden_time_costs_nothing_and_has_no_price():
    topology = network(TRIANGLE)
    hidden = route(topology, [demand()], (Phase("dp", hidden_s=5.0),))
    assert hidden.iteration_s == 0.0
    assert not hidden.prices_s_per_byte["dp"].any()
    partly = route(topology, [demand()], (Phase("dp", weight=3.0, hidden_s=0.4),))
    assert partly.iteration_s == pytest.approx(3 * 0.6, rel=1e-5)


def test_prices_tell_what_a_byte_less_saves():
    """The cut around a carries 3 GB/s, so one byte more anywhere on it costs 1/3 ns, times its weight."""
    topology = network(TRIANGLE)
    routing = route(topology, [demand()], (Phase("dp", weight=2.0),))
    prices = routing.prices_s_per_byte["dp"]
    step = 3e6
    more = route(topology, [demand(size=3e9 + step)], (Phase("dp", weight=2.0),))
    direct = topology.edge_index["0:ab", False]
    assert prices[direct] == pytest.approx((more.iteration_s - routing.iteration_s) / step, rel=1e-3)
    assert prices @ routing.capacity_bytes_per_s == pytest.approx(2.0)


def test_among_equals_the_shorter_path_stays():
    """The detour is free of load but nothing is gained by it."""
    topology = network([("a", "b", 2e9, 1e-3), ("a", "c", 2e9, 1e-3), ("c", "b", 2e9, 1e-3), ("d", "a", 1e9, 1e-3)])
    demands = [demand("d", "a", size=5e9), demand(size=1e9)]
    routing = route(topology, demands, ONE)
    (share,) = [one for one in routing.shares if one.demand == 1]
    assert [topology.edges[edge].id for edge in share.edges] == ["0:ab"]


def test_capacities_can_be_replaced():
    topology = network([("a", "b", 1e9, 1e-3)])
    halved = topology.capacity_bytes_per_s / 2
    assert route(topology, [demand(size=1e9)], ONE, capacity_bytes_per_s=halved).iteration_s == pytest.approx(2.0)


@pytest.mark.parametrize("demands", [[], [demand("a", "a")], [demand(size=0.0)]])
def test_nothing_to_ship_takes_no_time(demands):
    topology = network(TRIANGLE)
    routing = route(topology, demands, ONE)
    assert routing.iteration_s == 0.0
    assert routing_faults(topology, demands, routing) == []


def test_demands_with_the_same_ends_keep_their_own_bytes():
    topology = network(TRIANGLE)
    demands = [demand(size=1e9), demand(size=2e9, cause="pp")]
    routing = route(topology, demands, ONE)
    shipped = [sum(share.size_bytes for share in routing.shares if share.demand == index) for index in (0, 1)]
    assert shipped == pytest.approx([1e9, 2e9])


def test_an_island_is_refused_by_name():
    topology = network([("a", "b", 1e9, 1e-3), ("c", "d", 1e9, 1e-3)])
    with pytest.raises(ValueError, match="no path leads"):
        route(topology, [demand("a", "c")], ONE)


def test_equal_split_uses_disjoint_paths():
    topology = network(TRIANGLE)
    ends = topology.index_of["a"], topology.index_of["b"]
    paths = disjoint_paths(topology, *ends, num_paths=4)
    assert len(paths) == 2
    assert not set(paths[0]) & set(paths[1])
    routing = equal_split_routing(topology, [demand()], ONE)
    assert routing.iteration_s == pytest.approx(1.5)


@pytest.fixture
def routed():
    topology = network(TRIANGLE)
    demands = [demand()]
    return topology, demands, route(topology, demands, ONE)


def broken(routing: Routing, **changes) -> Routing:
    first, *rest = routing.shares
    return replace(routing, shares=(replace(first, **changes), *rest))


def test_the_check_objects_to_missing_bytes(routed):
    topology, demands, routing = routed
    faults = routing_faults(topology, demands, broken(routing, size_bytes=1.0))
    assert any("bytes are routed" in fault for fault in faults)


def test_the_check_objects_to_negative_bytes(routed):
    topology, demands, routing = routed
    assert any("negative" in fault for fault in routing_faults(topology, demands, broken(routing, size_bytes=-1.0)))


def test_the_check_objects_to_a_broken_path(routed):
    topology, demands, routing = routed
    wrong = topology.edge_index["2:cb", True]
    faults = routing_faults(topology, demands, broken(routing, edges=(wrong,)))
    assert any("does not leave 'a'" in fault for fault in faults)
    short = topology.edge_index["1:ac", False]
    assert any("ends in 'c'" in fault for fault in routing_faults(topology, demands, broken(routing, edges=(short,))))


def test_the_check_objects_to_an_overload(routed):
    """A routing that claims a shorter time than its loads allow."""
    topology, demands, routing = routed

    class Boast(Routing):
        @property
        def phase_s(self):
            return {"dp": 0.5}

    boast = Boast(routing.phases, routing.demands, routing.shares, routing.capacity_bytes_per_s, "boast")
    assert any("carries" in fault for fault in routing_faults(topology, demands, boast))


def test_loads_and_bottleneck_follow_the_shares():
    topology = network(TRIANGLE)
    edge = topology.edge_index["0:ab", False]
    routing = Routing(ONE, (demand(),), (Share(0, (edge,), 3e9),), topology.capacity_bytes_per_s, "by hand")
    assert routing.load_bytes["dp"][edge] == 3e9
    assert routing.bottleneck("dp") == edge
    assert np.count_nonzero(routing.load_bytes["dp"]) == 1
    assert Routing(ONE, (), (), topology.capacity_bytes_per_s, "idle").bottleneck("dp") is None
