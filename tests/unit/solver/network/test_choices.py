"""Choices are exact, allowed by the technology, move the right way with distance, loss and planes, and say why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.cost.fabric import Fabric
from solver.network.algorithms import Communicator, algorithms
from solver.network.choices import choose_transport, fastest_option, of_option
from solver.network.collectives import Level
from solver.network.connection import Option, Wire, connection_rate_bytes_per_s, step_s
from solver.network.options import path_options, window_shapes
from solver.network.topology import PathFacts
from solver.transport.communicators import choose_scale_up

MIB = 2**20
INSIDE = Level(64, 14e-6, 50e9)
ALL = ("ecmp", "ecmp_qp_scaling", "dqplb", "spray")


def path(latency_s=5e-3, capacity=1.6e12, planes=32, loss=0.0, **changes):
    facts = PathFacts(
        edges=(0,),
        latency_s=latency_s,
        round_trip_s=2 * latency_s,
        capacity_bytes_per_s=capacity,
        loss_probability=loss,
        planes=planes,
        technology="roce",
        load_balancing=ALL,
        out_of_order_receivers=True,
        mtu_bytes=4096,
    )
    return replace(facts, **changes)


def communicator(collective="all_reduce", size=1e9, places=2, inside=INSIDE, connections=64):
    return Communicator("dp", collective, "cross_building", places, inside, size, connections, 50e9)


def wire(facts, connections=16, member=50e9):
    return Wire(facts, member, connections, facts.capacity_bytes_per_s)


def choose(facts, **changes):
    return choose_transport(communicator(**changes), facts)


@pytest.mark.parametrize("loss", [0.0, 1e-5])
@pytest.mark.parametrize("latency_s", [1e-5, 5e-3])
@pytest.mark.parametrize(
    ("collective", "size"), [("all_reduce", 1e6), ("all_reduce", 1e10), ("all_to_all", 1e7), ("send_recv", 6e7)]
)
def test_no_candidate_is_faster_than_the_choice(collective, size, latency_s, loss):
    """What the search passes over could not have won: all candidates are listed here."""
    facts, group = path(latency_s=latency_s, loss=loss), communicator(collective, size=size)
    seen = wire(facts, connections=64)
    rates = [(option, connection_rate_bytes_per_s(option, seen)) for option in path_options(facts).options]
    everything = [one for option, rate in rates for one in of_option(group, seen, option, rate)]
    fastest = min(one.time_s for one in everything)
    best = fastest_option(group, seen)
    assert fastest <= best.time_s <= fastest * 1.002
    assert choose_transport(group, facts).expected_s == best.time_s
    windows = [one.option.in_flight_bytes for one in everything if one.time_s <= fastest * 1.0019]
    assert best.option.in_flight_bytes <= min(windows)


def test_among_close_options_the_plainest_wins():
    one = fastest_option(communicator(), wire(path(latency_s=1e-5, planes=1, capacity=1e15), connections=64))
    assert one.option.num_queue_pairs == 1
    assert one.option.load_balancing == "ecmp"


def test_few_flows_on_many_planes_are_sprayed_where_receivers_reorder():
    facts = path(planes=76, capacity=16 * 50e9, latency_s=1e-4)
    chosen = choose_transport(communicator(connections=16), facts)
    assert chosen.load_balancing == "spray"
    assert "spray: 16 flows on 76 planes would collide to 0.1" in chosen.reason


def test_without_reordering_receivers_nothing_is_sprayed():
    facts = path(planes=76, capacity=16 * 50e9, latency_s=1e-4, out_of_order_receivers=False)
    chosen = choose_transport(communicator(connections=16), facts)
    assert chosen.load_balancing in ("dqplb", "ecmp_qp_scaling")
    assert chosen.reliability == "go_back_n"
    assert chosen.num_queue_pairs > 1


@pytest.mark.parametrize("loss", [0.0, 1e-5])
@pytest.mark.parametrize("reordering", [True, False])
@pytest.mark.parametrize("technology", ["roce", "infiniband", "tcp"])
def test_every_option_is_supported_by_the_technology(technology, reordering, loss):
    facts = path(technology=technology, out_of_order_receivers=reordering, loss=loss)
    listed = list(path_options(facts).options)
    assert listed
    for option in listed:
        if technology == "tcp":
            assert option.reliability == "tcp"
            assert option.load_balancing in ("ecmp", "ecmp_qp_scaling")
        if option.load_balancing == "spray":
            assert reordering
            assert option.reliability != "go_back_n"
        if not reordering and technology != "tcp":
            assert option.reliability == "go_back_n"


def test_distance_asks_for_a_window_of_the_product():
    near, far = choose(path(latency_s=1e-4)), choose(path(latency_s=5e-3))

    def in_flight(choice):
        return choice.num_queue_pairs * choice.chunk_bytes * choice.num_outstanding

    assert in_flight(far) > in_flight(near)
    assert in_flight(far) >= 0.9 * far.effective_bytes_per_s * 10e-3


def test_a_small_window_limits_the_rate():
    tight = Option("ecmp", "go_back_n", 1, MIB, 1)
    facts = path(planes=1)
    assert connection_rate_bytes_per_s(tight, wire(facts, connections=1)) == pytest.approx(MIB / 10e-3, rel=0.03)


def test_hierarchy_wins_for_large_arrays_and_few_steps_for_small_ones():
    large, small = choose(path(), size=1e10), choose(path(latency_s=1e-4), size=1e5, places=16)
    assert large.algorithm == "hierarchical"
    assert small.algorithm in ("pat", "tree")


def test_loss_over_distance_makes_coding_win():
    facts = path(latency_s=12.5e-3, loss=1e-4, planes=1, capacity=50e9)
    group = communicator("send_recv", size=128 * MIB, inside=Level(1, 0.0, 1e12), connections=1)
    chosen = choose_transport(group, facts)
    assert chosen.reliability == "erasure_code"
    assert "selective_repeat" in chosen.reason


def test_loss_without_distance_does_not():
    facts = path(latency_s=5e-6, loss=1e-9, planes=1, capacity=50e9)
    group = communicator("send_recv", size=128 * MIB, inside=Level(1, 0.0, 1e12), connections=1)
    assert choose_transport(group, facts).reliability != "erasure_code"


@pytest.mark.parametrize("scheme", ["go_back_n", "selective_repeat", "selective_repeat_nack", "erasure_code"])
def test_loss_delays_every_scheme_and_more_members_wait_longer(scheme):
    option = Option("ecmp", scheme, 1, MIB, 128)
    clean, lossy = path(planes=1, capacity=1e13), path(planes=1, capacity=1e13, loss=3e-2)
    few, many = wire(lossy, connections=1), wire(lossy, connections=100)
    size = 64 * MIB
    assert step_s(option, wire(clean), size) < step_s(option, few, size) < step_s(option, many, size)


def test_tcp_streams_scale_until_the_line_is_full():
    facts = path(technology="tcp", loss=1e-4, planes=1, capacity=1e10, latency_s=15e-3)
    rates = [
        connection_rate_bytes_per_s(Option("ecmp", "tcp", pairs, 4 * MIB, 1), wire(facts, connections=1))
        for pairs in (1, 4, 64)
    ]
    assert rates[0] < rates[1] < rates[2]


def test_windows_differ_and_stay_in_budget():
    shapes = window_shapes(128)
    products = [chunk * outstanding for chunk, outstanding in shapes]
    assert products == sorted(set(products))
    assert all(option.in_flight_bytes <= 2**31 for option in path_options(path()).options)


@pytest.mark.parametrize(
    ("collective", "nested", "expected"),
    [
        ("send_recv", True, {"direct"}),
        ("all_to_all", True, {"direct", "direct_hierarchical"}),
        ("all_to_all", False, {"direct"}),
        ("all_reduce", True, {"ring", "pat", "tree", "hierarchical"}),
        ("all_gather", False, {"ring", "pat"}),
    ],
)
def test_each_collective_has_its_algorithms(collective, nested, expected):
    inside = INSIDE if nested else Level(1, 0.0, 1e12)
    assert set(algorithms(communicator(collective, inside=inside))) == expected


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"])
def test_every_collective_gets_a_choice_with_its_time_in_the_reason(collective):
    chosen = choose(path(), collective=collective)
    assert chosen.expected_s > 0
    assert f"{chosen.expected_s * 1e3:.3g} ms" in chosen.reason
    assert len(chosen.reason) <= 600


def test_a_gather_takes_about_half_of_an_all_reduce():
    reduce, gather = choose(path(), size=1e10), choose(path(), size=1e10, collective="all_gather")
    assert gather.expected_s == pytest.approx(reduce.expected_s / 2, rel=0.15)


def test_hierarchical_exchange_across_two_sites_moves_the_fair_volume():
    """S/n_l bytes across per member and direction at k = 2: 2 (k-1)/k of a shard, whatever the inside costs."""
    fast_inside = Level(64, 1e-6, 1e15)
    chosen = choose(path(latency_s=1e-6, planes=1, capacity=1e15), size=64e10, inside=fast_inside)
    assert chosen.expected_s == pytest.approx(1e10 / 50e9, rel=0.03)


def test_small_exchange_messages_are_better_regrouped():
    group = communicator("all_to_all", size=1e5, places=64, inside=Level(8, 1e-6, 400e9), connections=8)
    assert choose_transport(group, path(latency_s=1e-5)).algorithm == "direct_hierarchical"


def test_a_mesh_of_links_has_its_own_curve():
    """Two of the eight GPUs have one link of seven between them, at a switch they have all of their rate."""
    group = replace(communicator(size=1e9, places=1, inside=Level(2, 0.0, 1.0)), tier="scale_up")
    mesh, switch = (choose_scale_up(group, Fabric(448e9, 8, 5e10, 8, full_mesh=one)) for one in (True, False))
    assert mesh.effective_bytes_per_s < 64e9
    assert switch.effective_bytes_per_s > 300e9


def test_scale_up_comes_from_the_measured_curve():
    group = replace(communicator(size=1e9, places=1, inside=Level(8, 0.0, 1.0)), tier="scale_up")
    fabric = Fabric(450e9, 8, 5e10, 8)
    chosen = choose_scale_up(group, fabric)
    assert chosen.effective_bytes_per_s == pytest.approx(460e9, rel=0.05)
    alone = choose_scale_up(replace(group, inside=Level(1, 0.0, 1.0)), fabric)
    assert alone.expected_s == 0
