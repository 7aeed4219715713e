"""Pools in an order that follows the links, whatever order the request has them in.

Patterns that fill capacity groups one after another put neighbours in this order next to each other along the pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from models.cluster import Pool
from solver.arrays import FloatArray
from solver.network.paths import least_paths, link_graph
from solver.network.topology import Topology

MOST_BUILDINGS = 2_048  # beyond, the largest first and no chain, which takes longer with their square; set by hand
MOST_STARTS = 64  # buildings, the largest, that a chain is begun at; set by hand
APART_S = 1e9  # between buildings that no path joins: more than any path takes


def along_links(
    topology: Topology, pools: Sequence[Pool], num_bytes: float, strength: Mapping[str, tuple[object, ...]]
) -> list[Pool]:
    """The pools building after building, the nearest next: the chain whose steps of `num_bytes` take the least time.

    The largest building comes first where that leaves a choice; inside one the GPUs of most `strength`, which is by
    name of the GPU type, then the largest places.
    """
    building_of = {pool.place: topology.enclosing(pool.place, "building") or pool.place for pool in pools}
    in_place, in_building = Counter[str](), Counter[str]()
    for pool in pools:
        in_place[pool.place] += pool.num_free_gpus
        in_building[building_of[pool.place]] += pool.num_free_gpus
    largest = sorted(pools, key=_largest_first(in_place))
    ordered = sorted(largest, key=lambda pool: strength[pool.gpu.name], reverse=True)  # stable
    first = {building_of[pool.place]: pool.place for pool in reversed(ordered)}
    buildings = sorted(dict.fromkeys(building_of[pool.place] for pool in ordered), key=lambda one: -in_building[one])
    if len(buildings) <= MOST_BUILDINGS:
        steps_s = steps_between_s(topology, [first[one] for one in buildings], num_bytes)
        chains = [_chain(steps_s, start) for start in range(min(len(buildings), MOST_STARTS))]
        best = min(chains, key=lambda one: float(steps_s[one[:-1], one[1:]].sum()), default=[])
        buildings = [buildings[index] for index in best]
    position = {building: number for number, building in enumerate(buildings)}
    return sorted(ordered, key=lambda one: position[building_of[one.place]])


def _largest_first(in_place: Counter[str]) -> Callable[[Pool], tuple[float | str, ...]]:
    """By GPU type, the largest place and pool first, then by name as numbers count: p2 before p10."""

    def key(pool: Pool) -> tuple[float | str, ...]:
        place = pool.place
        return pool.gpu.name, -in_place[place], len(place), place, -pool.num_free_gpus, len(pool.id), pool.id

    return key


def steps_between_s(topology: Topology, places: Sequence[str], num_bytes: float) -> FloatArray:
    """From each place to each, in the slower direction: the way of least delays and times of so many bytes on links."""
    weight = topology.latency_s + num_bytes / topology.capacity_bytes_per_s
    index = [topology.index_of[place] for place in places]
    found = np.minimum(least_paths(link_graph(topology), weight, tuple(index)).distance[:, index], APART_S)
    return np.maximum(found, found.T)


def _chain(steps_s: FloatArray, start: int) -> list[int]:
    """From here always on to the nearest that is left; of those as near to the first."""
    left, order = np.ones(len(steps_s), dtype=bool), [start]
    left[start] = False
    while left.any():
        order.append(int(np.argmin(np.where(left, steps_s[order[-1]], np.inf))))
        left[order[-1]] = False
    return order
