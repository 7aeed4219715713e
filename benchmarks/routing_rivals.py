"""What the optimised routing is held against: an even split over disjoint paths, and a check of every routing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from solver.network.topology import Topology
from solver.transport.flows import Demand, Phase, Routing, Share
from solver.transport.paths import least_paths

NUM_SPLIT_PATHS = 4  # of the rival that splits evenly over disjoint paths; set by hand
RELATIVE_TOLERANCE = 1e-6  # of sizes and loads: rounding of the solver


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


def routing_faults(topology: Topology, demands: Sequence[Demand], routing: Routing) -> list[str]:
    """Everything that is wrong with a routing; empty when it ships every byte of every demand along real paths.

    Looks at the demands, the shares and the edges alone: paths join source and target edge by edge, bytes are
    conserved, and no phase claims a time in which an edge would carry more than its capacity.
    """
    faults: list[str] = []
    shipped = np.zeros(len(demands))
    load: dict[str, NDArray[np.float64]] = {}
    for number, share in enumerate(routing.shares):
        demand = demands[share.demand]
        faults.extend(f"share {number}: {fault}" for fault in _path_faults(topology, demand, share))
        shipped[share.demand] += share.size_bytes
        phase_load = load.setdefault(demand.phase, np.zeros(len(topology.edges)))
        for edge in share.edges:
            phase_load[edge] += share.size_bytes
    for index, demand in enumerate(demands):
        if abs(shipped[index] - demand.size_bytes) > RELATIVE_TOLERANCE * max(1.0, demand.size_bytes):
            faults.append(f"demand {index}: {shipped[index]:g} of {demand.size_bytes:g} bytes are routed")
    for phase, phase_load in load.items():
        faults.extend(_capacity_faults(topology, routing, phase, phase_load))
    return faults


def _path_faults(topology: Topology, demand: Demand, share: Share) -> list[str]:
    if share.size_bytes < 0:
        return [f"negative size {share.size_bytes:g}"]
    at = demand.source
    for edge in share.edges:
        if topology.edges[edge].from_place != at:
            return [f"edge {topology.edges[edge].id!r} does not leave {at!r}"]
        at = topology.edges[edge].to_place
    return [] if at == demand.target else [f"path ends in {at!r} instead of {demand.target!r}"]


def _capacity_faults(topology: Topology, routing: Routing, phase: str, load: NDArray[np.float64]) -> list[str]:
    allowed = routing.capacity_bytes_per_s * routing.phase_s[phase]
    over = np.flatnonzero(load > allowed * (1 + RELATIVE_TOLERANCE) + 1e-9)
    return [
        f"phase {phase!r}: edge {topology.edges[index].id!r} carries {load[index]:g} of {allowed[index]:g} bytes"
        for index in over
    ]
