"""The link graph: what becomes an edge, at which tier places meet, and which path a message takes."""

from __future__ import annotations

import pytest

from models.cluster import Cluster, Link, Place, Pool, Uplink
from solver.network import latency
from solver.network.topology import build_topology


def place(id, level, parent=None, **uplink):
    return Place(id=id, level=level, parent=parent, uplink=Uplink(**uplink))


def pool(place_id, num_hosts=16):
    return Pool(id=f"pool-{place_id}", place=place_id, gpu="H100-SXM-80G", num_hosts=num_hosts, nic_bytes_per_s=5e10)


def two_buildings(*, links=(), west_parent="campus", **uplink):
    places = [
        place("campus", "region"),
        place("east", "building", "campus", **uplink),
        place("east-z1", "zone", "east", oversubscription=2.0, planes=8),
        place("east-z2", "zone", "east"),
        place("west", "building", west_parent),
        place("west-z1", "zone", "west"),
    ]
    if west_parent == "far":
        places.insert(0, place("far", "region"))
    pools = [pool("east-z1"), pool("east-z2"), pool("west-z1")]
    return Cluster(name="two", places=tuple(places), pools=tuple(pools), links=tuple(links))


def cable(id="cable", **changes):
    numbers = {"capacity_bytes_per_s": 1e12, "distance_km": 10.0} | changes
    return Link(id=id, from_place="east", to_place="west", **numbers)


def edge(topology, id, reverse=False):
    return topology.edges[topology.edge_index[id, reverse]]


def test_an_uplink_carries_the_cards_below_over_its_oversubscription():
    topology = build_topology(two_buildings())
    cards = 16 * 8 * 5e10
    assert edge(topology, "uplink:east-z1").capacity_bytes_per_s == pytest.approx(cards / 2)
    assert edge(topology, "uplink:east").capacity_bytes_per_s == pytest.approx(2 * cards)
    assert edge(topology, "uplink:east", reverse=True).from_place == "campus"


def test_a_link_stands_in_for_a_default_uplink_of_its_buildings():
    topology = build_topology(two_buildings(links=[cable()]))
    assert ("uplink:east", False) not in topology.edge_index
    assert [topology.edges[i].id for i in topology.path("east-z1", "west-z1")] == [
        "uplink:east-z1",
        "cable",
        "uplink:west-z1",
    ]


def test_an_uplink_that_was_described_stays_beside_a_link():
    topology = build_topology(two_buildings(links=[cable()], oversubscription=2.8))
    assert ("uplink:east", False) in topology.edge_index
    assert ("uplink:west", False) not in topology.edge_index


def test_nothing_but_what_is_stated_joins_buildings_that_are_said_to_be_separate():
    apart = two_buildings().model_copy(update={"fabric": "separate"})
    assert not build_topology(apart).connected("east-z1", "west-z1")
    assert build_topology(apart).connected("east-z1", "east-z2")
    stated = two_buildings(oversubscription=2.8).model_copy(update={"fabric": "separate"})
    assert build_topology(stated).connected("east-z1", "campus")
    linked = two_buildings(links=[cable()]).model_copy(update={"fabric": "separate"})
    assert build_topology(linked).connected("east-z1", "west-z1")


def test_failed_planes_and_background_shrink_each_direction():
    link = cable(planes=4, num_failed_planes=1, background_bytes_per_s=1e11, reverse_capacity_bytes_per_s=8e11)
    topology = build_topology(two_buildings(links=[link]))
    assert edge(topology, "cable").capacity_bytes_per_s == pytest.approx(0.75e12 - 1e11)
    assert edge(topology, "cable", reverse=True).capacity_bytes_per_s == pytest.approx(0.6e12 - 1e11)
    assert edge(topology, "cable").planes == 3


@pytest.mark.parametrize(
    ("one", "other", "tier"),
    [
        ("east-z1", "east-z1", "zone"),
        ("east-z1", "east-z2", "building"),
        ("east-z1", "west-z1", "cross_building"),
        ("east", "east", "building"),
    ],
)
def test_places_meet_at_their_common_ancestor(one, other, tier):
    topology = build_topology(two_buildings())
    assert topology.tier(one, other) == tier
    assert topology.tier(other, one) == tier


def test_regions_without_a_common_ancestor_are_cross_region():
    topology = build_topology(two_buildings(links=[cable()], west_parent="far"))
    assert topology.tier("east-z1", "west-z1") == "cross_region"


def test_root_buildings_are_cross_building():
    places = (place("a", "building"), place("b", "building"))
    link = Link(id="l", from_place="a", to_place="b", capacity_bytes_per_s=1e12)
    topology = build_topology(Cluster(name="c", places=places, pools=(pool("a"), pool("b")), links=(link,)))
    assert topology.tier("a", "b") == "cross_building"


def test_the_tree_alone_gives_the_ladder():
    topology = build_topology(two_buildings())
    assert topology.path_facts("east-z1", "east-z2").latency_s == pytest.approx(latency.tier_s("building"))
    assert topology.path_facts("east-z1", "west-z1").latency_s == pytest.approx(latency.tier_s("cross_building"))


def test_the_faster_of_parallel_links_is_taken():
    links = [cable("slow", latency_s=2e-3), cable("fast", latency_s=1e-3)]
    topology = build_topology(two_buildings(links=links))
    assert "fast" in [topology.edges[i].id for i in topology.path("east-z1", "west-z1")]


def test_a_detour_of_two_short_links_beats_one_long():
    places = tuple(place(id, "building") for id in "abc")
    ends = (("a", "c", 9e-3), ("a", "b", 2e-3), ("b", "c", 2e-3))
    links = tuple(
        Link(id=f"{x}{y}", from_place=x, to_place=y, capacity_bytes_per_s=1e12, latency_s=delay) for x, y, delay in ends
    )
    topology = build_topology(Cluster(name="c", places=places, pools=(pool("a"), pool("c")), links=links))
    facts = topology.path_facts("a", "c")
    assert [topology.edges[i].id for i in facts.edges] == ["ab", "bc"]
    assert facts.round_trip_s == pytest.approx(8e-3 + 4 * latency.access_s("building"))


def test_losses_of_a_path_add_up():
    topology = build_topology(two_buildings(links=[cable(loss_probability=0.1)]))
    assert topology.path_facts("east-z1", "west-z1").loss_probability == pytest.approx(0.1)


def test_a_path_offers_what_all_its_edges_offer():
    link = cable(load_balancing=("spray", "ecmp"), out_of_order_receivers=True)
    facts = build_topology(two_buildings(links=[link])).path_facts("east-z1", "west-z1")
    assert facts.load_balancing == ("ecmp",)
    assert not facts.out_of_order_receivers


def test_islands_are_refused_by_name():
    places = (place("a", "building"), place("b", "building"))
    topology = build_topology(Cluster(name="c", places=places, pools=(pool("a"), pool("b"))))
    assert not topology.connected("a", "b")
    with pytest.raises(ValueError, match="no path leads from place 'a' to 'b'"):
        topology.path("a", "b")


def test_inside_a_place_no_edge_binds():
    facts = build_topology(two_buildings()).path_facts("east-z1", "east-z1")
    assert facts.edges == ()
    assert facts.capacity_bytes_per_s == float("inf")
