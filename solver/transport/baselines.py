"""Routings that need no optimisation: everything on the shortest path, or split evenly over a few disjoint ones.

Owns the two yardsticks of the optimised routing, and its starting point. Never balances load.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from solver.network.topology import Topology
from solver.transport.flows import Demand, Phase, Routing, Share
from solver.transport.paths import least_paths

NUM_SPLIT_PATHS = 4  # of the rival that splits evenly over disjoint paths; set by hand


def shortest_path_routing(
    topology: Topology,
    demands: Sequence[Demand],
    phases: Sequence[Phase],
    *,
    capacity_bytes_per_s: NDArray[np.float64] | None = None,
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


def equal_split_routing(
    topology: Topology,
    demands: Sequence[Demand],
    phases: Sequence[Phase],
    *,
    capacity_bytes_per_s: NDArray[np.float64] | None = None,
) -> Routing:
    """Every demand evenly over up to four edge-disjoint paths, found shortest first."""
    paths_of: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    shares: list[Share] = []
    for index, demand in enumerate(demands):
        ends = topology.index_of[demand.source], topology.index_of[demand.target]
        if ends not in paths_of:
            paths_of[ends] = disjoint_paths(topology, *ends, num_paths=NUM_SPLIT_PATHS)
        paths = paths_of[ends]
        shares.extend(Share(index, path, demand.size_bytes / len(paths)) for path in paths)
    capacity = topology.capacity_bytes_per_s if capacity_bytes_per_s is None else capacity_bytes_per_s
    return Routing(tuple(phases), tuple(demands), tuple(shares), capacity, "equal split")


def disjoint_paths(topology: Topology, source: int, target: int, *, num_paths: int) -> list[tuple[int, ...]]:
    """Up to `num_paths` paths that share no edge, by rising latency; one empty path inside a place."""
    if source == target:
        return [()]
    weight = topology.latency_s.copy()
    found: list[tuple[int, ...]] = []
    while len(found) < num_paths:
        paths = least_paths(topology, weight, (source,))
        if not np.isfinite(paths.length(source, target)):
            break
        found.append(paths.between(source, target))
        weight[list(found[-1])] = np.inf
    if not found:
        ends = topology.places[source].id, topology.places[target].id
        raise ValueError(f"no path leads from place {ends[0]!r} to {ends[1]!r}: add a link or a common parent")
    return found
