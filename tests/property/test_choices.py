"""On random clusters: what a choice names, every link on its way offers, and no other option of theirs is faster.

What a technology can do is written out here once more, from the rules of the trade: a TCP stream keeps its order and
its own recovery; go-back-N drops what arrives out of order; spraying, selective repeat and codes need receivers that
place packets out of order.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from models.cluster import Cluster, Link, Place, Pool
from solver.network.algorithms import Communicator, algorithms
from solver.network.choices import choose_transport, of_option
from solver.network.collectives import Level
from solver.network.connection import connection_rate_bytes_per_s
from solver.network.options import path_options
from solver.network.topology import build_topology

NIC = 5e10
NEEDS_REORDERING = {"selective_repeat", "selective_repeat_nack", "erasure_code"}
METHODS = ("ecmp", "ecmp_qp_scaling", "dqplb", "spray")
MOST_QUEUE_PAIRS = {"tcp": 64, "roce": 128, "infiniband": 128}


@st.composite
def clusters(draw):
    """Buildings in a line, every link with a technology, offers, planes, loss and distance of its own."""
    num_places = draw(st.integers(2, 5))
    names = [f"b{index}" for index in range(num_places)]
    links = []
    for one, other in pairwise(names):
        planes = draw(st.sampled_from([1, 2, 16, 76]))
        offered = draw(st.sets(st.sampled_from(METHODS), min_size=1))
        links.append(
            Link(
                id=f"{one}-{other}",
                from_place=one,
                to_place=other,
                capacity_bytes_per_s=draw(st.sampled_from([1e10, 4e11, 1e13])),
                latency_s=draw(st.sampled_from([1e-5, 1e-3, 2.5e-2])),
                loss_probability=draw(st.sampled_from([0.0, 1e-7, 1e-5, 1e-3])),
                planes=planes,
                num_failed_planes=draw(st.integers(0, planes - 1)),
                technology=draw(st.sampled_from(["roce", "infiniband", "tcp"])),
                load_balancing=tuple(method for method in METHODS if method in offered),
                out_of_order_receivers=draw(st.booleans()),
            )
        )
    pools = (Pool(id="p", place="b0", gpu="H100-SXM-80G", num_hosts=1, nic_bytes_per_s=NIC),)
    return Cluster(
        name="line", places=tuple(Place(id=name, level="building") for name in names), pools=pools, links=tuple(links)
    )


communicators = st.builds(
    lambda collective, places, size, connections: Communicator(
        "dp", collective, "cross_building", places, Level(8, 14e-6, NIC), size, connections, NIC
    ),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
    st.integers(2, 8),
    st.sampled_from([4e3, 1e6, 1e8, 1e10]),
    st.sampled_from([1, 8, 64, 512]),
)


@settings(max_examples=40, deadline=None)
@given(cluster=clusters(), communicator=communicators)
def test_choices_are_what_every_link_on_the_way_supports(cluster, communicator):
    path = build_topology(cluster).path_facts(cluster.places[0].id, cluster.places[-1].id)
    choice = choose_transport(communicator, path)
    assert choice.algorithm in algorithms(communicator)
    streams = any(link.technology == "tcp" for link in cluster.links)
    reorders = all(link.out_of_order_receivers for link in cluster.links)
    offered = set(METHODS).intersection(*(link.load_balancing for link in cluster.links))
    assert choice.load_balancing in offered | {"ecmp"}
    assert (choice.reliability == "tcp") == streams
    if streams:
        assert choice.load_balancing in ("ecmp", "ecmp_qp_scaling")
        assert choice.num_outstanding == 1
    if choice.load_balancing == "spray":
        assert reorders
        assert choice.reliability in NEEDS_REORDERING
    if choice.reliability in NEEDS_REORDERING:
        assert reorders
    technologies = ["tcp"] if streams else [link.technology for link in cluster.links]
    assert choice.num_queue_pairs <= min(MOST_QUEUE_PAIRS[name] for name in technologies)
    narrowest = min(link.usable_bytes_per_s(reverse=False) for link in cluster.links)
    window = choice.num_queue_pairs * choice.num_outstanding * choice.chunk_bytes
    most = min(NIC, narrowest / communicator.num_connections, window / path.round_trip_s)
    assert 0 < choice.effective_bytes_per_s <= most * (1 + 1e-9)
    assert choice.reason


@settings(max_examples=40, deadline=None)
@given(cluster=clusters(), communicator=communicators)
def test_no_supported_option_is_faster_than_the_choice(cluster, communicator):
    path = build_topology(cluster).path_facts(cluster.places[0].id, cluster.places[-1].id)
    choice = choose_transport(communicator, path)
    wire = communicator.wire(path)
    rates = [(option, connection_rate_bytes_per_s(option, wire)) for option in path_options(path).options]
    fastest = min(one.time_s for option, rate in rates for one in of_option(communicator, wire, option, rate))
    assert fastest * (1 - 1e-12) <= choice.expected_s <= fastest * 1.002


@settings(max_examples=8, deadline=None)
@given(cluster=clusters(), communicator=communicators)
def test_a_link_that_offers_more_is_never_slower(cluster, communicator):
    """Receivers that reorder and all methods of balancing on every link: the choice may only gain."""
    topology = build_topology(cluster)
    more = cluster.model_copy(
        update={
            "links": tuple(
                link.model_copy(update={"load_balancing": METHODS, "out_of_order_receivers": True})
                for link in cluster.links
            )
        }
    )
    ends = cluster.places[0].id, cluster.places[-1].id
    plain = choose_transport(communicator, topology.path_facts(*ends))
    richer = choose_transport(communicator, build_topology(more).path_facts(*ends))
    assert richer.expected_s <= plain.expected_s * 1.002


def test_one_stream_link_makes_the_whole_way_one_of_streams():
    places = tuple(Place(id=name, level="building") for name in "abc")
    pools = (Pool(id="p", place="a", gpu="H100-SXM-80G", num_hosts=1, nic_bytes_per_s=NIC),)
    links = [
        Link(id=f"{a}{b}", from_place=a, to_place=b, capacity_bytes_per_s=1e11, latency_s=delay, technology=technology)
        for a, b, delay, technology in (("a", "b", 1e-2, "roce"), ("b", "c", 1e-4, "tcp"))
    ]
    cluster = Cluster(name="mixed", places=places, pools=pools, links=tuple(links))
    assert build_topology(cluster).path_facts("a", "c").technology == "tcp"
    assert build_topology(cluster).path_facts("a", "b").technology == "roce"
    level = Level(8, 14e-6, NIC)
    message = Communicator("dp", "all_reduce", "cross_building", 2, level, 1e8, 8, NIC)
    assert choose_transport(message, build_topology(cluster).path_facts("a", "c")).reliability == "tcp"
    assert choose_transport(message, build_topology(cluster).path_facts("a", "b")).reliability == "go_back_n"
