"""Distances over the link graph: those of the topology's own paths, and none where no way leads."""

from __future__ import annotations

import numpy as np
import pytest

from models.cluster import Cluster
from solver.network.paths import least_paths, link_graph
from solver.network.topology import build_topology
from tests.build_job import job


def test_delays_are_those_of_the_paths_of_least_latency() -> None:
    places = [{"id": name, "level": "building"} for name in "abcd"]
    pool = job(hosts=(1,)).cluster.pools[0].model_dump(mode="json")
    pools = [{**pool, "id": f"p{name}", "place": name} for name in "abcd"]
    ends = (("a", "b", 0.001), ("a", "b", 0.004), ("b", "c", 0.0), ("a", "c", 0.002))
    links = [
        {"id": f"l{number}", "from_place": one, "to_place": other, "capacity_bytes_per_s": 1e9, "latency_s": delay_s}
        for number, (one, other, delay_s) in enumerate(ends)
    ]
    topology = build_topology(Cluster.model_validate({"name": "x", "places": places, "pools": pools, "links": links}))
    a, *others = (topology.index_of[name] for name in "abcd")
    found = least_paths(link_graph(topology), topology.latency_s, (a, others[-1])).distance[:, [a, *others]]
    assert found.tolist() == [[0.0, 0.001, 0.001, np.inf], [np.inf, np.inf, np.inf, 0.0]]
    edges = topology.path("a", "c")
    assert found[0, 2] == pytest.approx(sum(topology.edges[edge].latency_s for edge in edges))
