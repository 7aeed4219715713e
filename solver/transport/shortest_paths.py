"""The routing that needs no optimisation, where the optimised one begins: everything on its shortest path."""

from __future__ import annotations

from collections.abc import Sequence

from solver.arrays import FloatArray
from solver.network.topology import Topology
from solver.transport.flows import Demand, Phase, Routing, Share
from solver.transport.paths import least_paths


def shortest_path_routing(
    topology: Topology,
    demands: Sequence[Demand],
    phases: Sequence[Phase],
    *,
    capacity_bytes_per_s: FloatArray | None = None,
) -> Routing:
    """Every demand on its path of least latency, as ordinary routing would place it."""
    ends = [(topology.index_of[demand.source], topology.index_of[demand.target]) for demand in demands]
    paths = least_paths(topology, topology.latency_s, tuple(sorted({source for source, _ in ends})))
    shares = tuple(
        Share(index, paths.between(*pair), demand.size_bytes)
        for index, (pair, demand) in enumerate(zip(ends, demands, strict=True))
    )
    capacity = topology.capacity_bytes_per_s if capacity_bytes_per_s is None else capacity_bytes_per_s
    return Routing(tuple(phases), tuple(demands), shares, capacity, "shortest path")
