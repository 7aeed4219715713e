"""Where the capacity groups of a request lie: island, building and region of each, and what joins the buildings.

Columns are in the order of the capacity groups (u) or of the buildings (b).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from models.cluster import Cluster, Pool
from solver.network.latency import access_s as access
from solver.network.paths import islands, least_paths, link_graph
from solver.network.places import buildings_of
from solver.network.topology import Topology
from solver.placement.capacity_groups import CapacityGroup
from solver.placement.problem import Tier

SOURCES = 256  # places from which ways are looked for at once; set by hand


@dataclass(frozen=True)
class Geography:
    """Capacity groups on the link graph; each names pools by index."""

    cluster: Cluster
    topology: Topology
    pools: Sequence[Pool]
    groups: tuple[CapacityGroup, ...]

    @cached_property
    def island_u(self) -> tuple[int, ...]:
        """Island of the link graph that every capacity group lies on."""
        island = islands(self.topology)
        return tuple(island[self.pools[group.pools[0]].place] for group in self.groups)

    @cached_property
    def building_u(self) -> tuple[int, ...]:
        """Number of every capacity group's building."""
        numbers: dict[str, int] = {}
        return tuple(numbers.setdefault(group.building, len(numbers)) for group in self.groups)

    @property
    def num_buildings(self) -> int:
        """Buildings with GPUs to use."""
        return max(self.building_u) + 1

    @cached_property
    def largest_building_gpus(self) -> int:
        """GPUs to use in the largest building: a larger job crosses."""
        held = Counter[str]()
        for group in self.groups:
            held[group.building] += sum(self.pools[p].num_free_gpus for p in group.pools)
        return max(held.values())

    @cached_property
    def region_u(self) -> tuple[int, ...]:
        """Number of every capacity group's region; where there is one region only, every building counts as one."""
        regions = [self.topology.enclosing(group.building, "region") or group.building for group in self.groups]
        numbers = {region: number for number, region in enumerate(dict.fromkeys(regions))}
        return tuple(numbers[region] for region in regions) if len(numbers) > 1 else self.building_u

    @cached_property
    def crossing_tiers(self) -> tuple[Tier, ...]:
        """Sets of capacity groups by building, by region and all together, with the longest delay inside any set."""
        found: list[Tier] = []
        for group_u in (self.building_u, self.region_u, (0,) * len(self.groups)):
            crosses = len(set(group_u)) < len(group_u) and (not found or group_u != found[-1].group_u)
            if crosses or len(set(group_u)) == 1:
                found.append(Tier(self._longest_delay_s(group_u), group_u))
        return tuple(found)

    def _longest_delay_s(self, group_u: tuple[int, ...]) -> float:
        """Longest one-way delay between first pools of two capacity groups of one set, 0 where no path joins them."""
        first = defaultdict[int, list[str]](list)
        for own, group in zip(self.groups, group_u, strict=True):
            first[group].append(self.pools[own.pools[0]].place)
        return max(map(self._longest_between_s, first.values()), default=0.0)

    def _longest_between_s(self, places: Sequence[str]) -> float:
        """The same between any two of these places, from a few at a time for memory."""
        topology, found_s = self.topology, 0.0
        index = np.unique([topology.index_of[place] for place in places])
        if len(index) == 1:
            return 0.0
        access_s = np.array([access(topology.places[place].level) for place in index])
        graph = link_graph(topology)
        for begin in range(0, len(index), SOURCES):
            rows = slice(begin, begin + SOURCES)
            distance_s = least_paths(graph, topology.latency_s, tuple(index[rows].tolist())).distance[:, index]
            counts = np.isfinite(distance_s) & (index[rows, None] != index)
            found_s = max(found_s, float((access_s[rows, None] + access_s + distance_s)[counts].max(initial=0.0)))
        return found_s

    @cached_property
    def leaving_bytes_per_s(self) -> tuple[float, ...]:
        """Rate of everything that leaves each building; infinite where nothing does."""
        building_at = buildings_of(self.cluster)
        rates = defaultdict[str, float](float)
        for edge in self.topology.edges:
            building = building_at[edge.from_place]
            if building != building_at[edge.to_place]:
                rates[building] += edge.capacity_bytes_per_s
        return tuple(rates.get(name, float("inf")) for name in dict.fromkeys(group.building for group in self.groups))

    @property
    def worst_cut_bytes_per_s(self) -> float:
        """Rate of everything that leaves the worst connected building."""
        return min(self.leaving_bytes_per_s)
