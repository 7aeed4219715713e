"""Bytes between places split over paths, so that the fullest edge is done as early as possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from solver.arrays import FloatArray
from solver.network.split import Step
from solver.network.topology import Topology
from solver.transport.path_flow import RELATIVE_GAP, Commodities, Path, PathFlow, solve_path_flow

SplitK = tuple[tuple[tuple[Path, float], ...], ...]


def route(topology: Topology, size_of: Mapping[Step, float], capacity_bytes_per_s: FloatArray) -> PathFlow:
    """The best split of `size_of` bytes from place to place, where edges have these capacities.

    Where the paths of least latency are as fast, they stay.
    """
    commodities = commodities_of(topology, size_of, capacity_bytes_per_s)
    best = solve_path_flow(commodities)
    plain_k = least_latency_split(commodities)
    plain_s = fullest_edge_s(commodities, plain_k)
    if plain_s <= best.time_s * (1 + RELATIVE_GAP):
        return replace(best, split_k=plain_k, time_s=plain_s)
    return replace(best, time_s=fullest_edge_s(commodities, best.split_k))


def commodities_of(topology: Topology, size_of: Mapping[Step, float], capacity_bytes_per_s: FloatArray) -> Commodities:
    """Bytes by place as columns of the programme."""
    ends_k = tuple((topology.index_of[source], topology.index_of[target]) for source, target in size_of)
    return Commodities(topology, capacity_bytes_per_s, ends_k, np.array(list(size_of.values())))


def least_latency_split(commodities: Commodities) -> SplitK:
    """Everything on its path of least latency."""
    paths = commodities.paths_under(commodities.topology.latency_s)
    return tuple(((paths.between(*ends), 1.0),) for ends in commodities.ends_k)


def fullest_edge_s(commodities: Commodities, split_k: SplitK) -> float:
    """Time at which the fullest edge is done under a split."""
    load_e = np.zeros(len(commodities.capacity))
    for size, split in zip(commodities.size_k, split_k, strict=True):
        for path, part in split:
            load_e[list(path)] += part * size
    return float(np.max(load_e / commodities.capacity, initial=0.0))
