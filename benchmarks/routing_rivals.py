"""What the optimised routing is held against: an even split over disjoint paths, and a check of every routing."""

from __future__ import annotations

import numpy as np

from solver.arrays import FloatArray
from solver.network.paths import least_paths, link_graph
from solver.network.topology import Topology
from solver.transport.routing import Commodities, SplitK, fullest_edge_s

NUM_SPLIT_PATHS = 4  # of the rival that splits evenly over disjoint paths; set by hand
RELATIVE_TOLERANCE = 1e-6  # of parts and loads: rounding of the solver


def equal_split(commodities: Commodities) -> SplitK:
    """Every commodity evenly over up to four edge-disjoint paths, found shortest first."""
    paths_k = [disjoint_paths(commodities.topology, *ends, num_paths=NUM_SPLIT_PATHS) for ends in commodities.ends_k]
    return tuple(tuple((path, 1.0 / len(paths)) for path in paths) for paths in paths_k)


def disjoint_paths(topology: Topology, source: int, target: int, *, num_paths: int) -> list[tuple[int, ...]]:
    """Up to `num_paths` paths that share no edge, by rising latency."""
    graph, weight = link_graph(topology), topology.latency_s.copy()
    found: list[tuple[int, ...]] = []
    while len(found) < num_paths:
        paths = least_paths(graph, weight, (source,))
        if not np.isfinite(paths.length(source, target)):
            break
        found.append(paths.between(source, target))
        weight[list(found[-1])] = np.inf
    return found


def split_faults(commodities: Commodities, split_k: SplitK, time_s: float) -> list[str]:
    """Everything that is wrong with a split; empty when it ships every byte along real paths within the time.

    Paths join source and target edge by edge, parts add up to one, and no edge carries more than its capacity allows.
    """
    faults = []
    for k, (ends, split) in enumerate(zip(commodities.ends_k, split_k, strict=True)):
        faults += [f"commodity {k}: {fault}" for path, _ in split for fault in _path_faults(commodities, ends, path)]
        faults += [f"commodity {k}: negative part {part:g}" for _, part in split if part < 0]
        if abs(sum(part for _, part in split) - 1.0) > RELATIVE_TOLERANCE:
            faults.append(f"commodity {k}: {sum(part for _, part in split):g} of its bytes are routed")
    if fullest_edge_s(commodities, split_k) > time_s * (1 + RELATIVE_TOLERANCE):
        faults.append(f"an edge is full for {fullest_edge_s(commodities, split_k):g} s of {time_s:g} s")
    return faults


def _path_faults(commodities: Commodities, ends: tuple[int, int], path: tuple[int, ...]) -> list[str]:
    places, edges = commodities.topology.places, commodities.topology.edges
    at, target = (places[end].id for end in ends)
    for edge in path:
        if edges[edge].from_place != at:
            return [f"edge {edges[edge].id!r} does not leave {at!r}"]
        at = edges[edge].to_place
    return [] if at == target else [f"path ends in {at!r} instead of {target!r}"]


def load_of(commodities: Commodities, split_k: SplitK) -> FloatArray:
    """Bytes on every edge."""
    load_e = np.zeros(len(commodities.capacity))
    for size, split in zip(commodities.size_k, split_k, strict=True):
        for path, part in split:
            load_e[list(path)] += part * size
    return load_e
