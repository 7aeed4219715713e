"""Rings take least-latency paths, split where the graph has room elsewhere, and describe a split as one path."""

from __future__ import annotations

import numpy as np
import pytest

from models.request import PlanRequest
from solver.network.split import step_facts
from solver.transport.ring import ring_of, split_ring, widest_ring
from tests.build_job import context_of, job
from tests.unit.solver.transport.meshes import PARALLEL, THIN_TRIANGLE, meshed


def test_a_ring_takes_the_paths_of_least_latency():
    topology = context_of(meshed(2, PARALLEL)).topology
    ring = ring_of(topology, ["b0", "b1"])
    assert ring.steps == (("b0", "b1"), ("b1", "b0"))
    assert {topology.edges[edge].id for edge in ring.load} == {"near"}
    assert ring_of(topology, ["b0"]).steps == ()


def test_a_chain_of_buildings_offers_no_choice():
    context = context_of(job(hosts=(4, 4, 4)))
    assert context.topology.edges_with_detour == frozenset()
    plain = ring_of(context.topology, ["b0", "b1", "b2"])
    assert split_ring(context, plain, context.topology.capacity_bytes_per_s) is None
    assert len(context.known.splits) == 0


def test_only_the_cycle_of_a_graph_offers_choices():
    """A building on a stalk beside the triangle has one way in."""
    stalk = ("stalk", "b2", "b3", 1e11, 1e-4)
    topology = context_of(meshed(4, (*THIN_TRIANGLE, stalk))).topology
    assert {topology.edges[edge].id for edge in topology.edges_with_detour} == {"b01", "b12", "b02"}


def test_parallel_links_split_by_capacity():
    context = context_of(meshed(2, PARALLEL))
    topology = context.topology
    plain = ring_of(topology, ["b0", "b1"])
    split = split_ring(context, plain, topology.capacity_bytes_per_s)
    assert split is not None
    load = {topology.edges[edge].id: part for edge, part in split.load.items()}
    assert load == {"near": pytest.approx(0.25), "far": pytest.approx(0.75)}
    assert {len(parts) for parts in plain.parts} == {1}
    assert {len(parts) for parts in split.parts} == {2}


def test_a_split_and_the_widest_ring_are_found_once_per_capacity():
    """A split compares with the widest ring, which is not looked for again either."""
    context = context_of(meshed(2, PARALLEL))
    plain = ring_of(context.topology, ["b0", "b1"])
    capacity = np.array(context.topology.capacity_bytes_per_s)
    for _ in range(3):
        split_ring(context, plain, capacity)
        widest_ring(context, plain, capacity)
    assert len(context.known.splits) == 2
    split_ring(context, plain, capacity / 2)
    assert len(context.known.splits) == 4


def test_an_edge_full_of_messages_takes_no_part():
    context = context_of(meshed(2, PARALLEL))
    topology = context.topology
    capacity = np.array(topology.capacity_bytes_per_s)
    for reverse in (False, True):
        capacity[topology.edge_index["far", reverse]] = 0.0
    assert split_ring(context, ring_of(topology, ["b0", "b1"]), capacity) is None


OTHER = {"technology": "tcp", "load_balancing": ["ecmp"]}


def test_links_of_another_technology_take_all_or_nothing():
    """One transport serves a step, so all its paths have to offer the same: those of the kind that is done sooner."""
    near, far = PARALLEL
    for capacity, taken in ((7.5e10, "far"), (2e10, "near")):
        context = context_of(meshed(2, (near, (*far[:3], capacity, far[4])), far=OTHER))
        topology = context.topology
        plain = ring_of(topology, ["b0", "b1"])
        found = split_ring(context, plain, topology.capacity_bytes_per_s) or plain
        assert {topology.edges[edge].id for edge in found.load} == {taken}


def test_links_of_another_technology_are_split_among_themselves():
    near, far = PARALLEL
    context = context_of(meshed(2, (near, far, ("third", *far[1:]))))
    document = context.request.model_dump(mode="json")
    for link in document["cluster"]["links"][1:]:
        link.update(OTHER)
    context = context_of(PlanRequest.model_validate(document))
    topology = context.topology
    found = split_ring(context, ring_of(topology, ["b0", "b1"]), topology.capacity_bytes_per_s)
    assert found is not None
    load = {topology.edges[edge].id: part for edge, part in found.load.items()}
    assert load == {"far": pytest.approx(0.5), "third": pytest.approx(0.5)}


def test_a_split_step_adds_rates_and_keeps_the_worst_of_the_rest():
    context = context_of(meshed(2, PARALLEL, far={"planes": 4, "loss_probability": 1e-5}))
    topology = context.topology
    split = split_ring(context, ring_of(topology, ["b0", "b1"]), topology.capacity_bytes_per_s)
    assert split is not None
    both = step_facts(topology, split.steps[0], split.parts[0])
    near, far = (topology.edges[topology.edge_index[name, False]] for name in ("near", "far"))
    assert both.capacity_bytes_per_s == pytest.approx(near.capacity_bytes_per_s + far.capacity_bytes_per_s)
    assert both.planes == near.planes + far.planes
    assert both.loss_probability == pytest.approx(1e-5)
    assert both.latency_s > far.latency_s
