"""What the links out of buildings and places can carry, as the judge derives it from the request.

A cut bounds every routing, so nothing here depends on the paths that a plan chose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from solver.network.topology import UPLINK_PREFIX, Edge, Topology
from solver.verify.facts import Facts

MAX_BUILDINGS_FOR_ALL_CUTS = 10  # 1022 cuts; with more, the number of them would set the time of the judge


@dataclass(frozen=True)
class BuildingCuts:
    """Cuts around the buildings of a plan, which are named as `Facts.building_of` names them."""

    facts: Facts
    topology: Topology

    @cached_property
    def buildings(self) -> tuple[str, ...]:
        """Buildings with GPUs of the plan."""
        return tuple(sorted({self.facts.building_of(group.pool.place) for group in self.facts.groups}))

    def all(self) -> Iterator[frozenset[str]]:
        """Sets of used buildings to cut off from the rest: single ones, or every set while these are few."""
        largest = len(self.buildings) - 1 if len(self.buildings) <= MAX_BUILDINGS_FOR_ALL_CUTS else 1
        for size in range(1, largest + 1):
            yield from map(frozenset, combinations(self.buildings, size))

    def bytes_per_s(self, buildings: frozenset[str]) -> float:
        """Usable capacity out of these buildings to anywhere else."""
        building_of = self.facts.building_of
        return sum(
            edge.capacity_bytes_per_s
            for edge in self.topology.edges
            if building_of(edge.from_place) in buildings and building_of(edge.to_place) not in buildings
        )

    @cached_property
    def place_bytes_per_s(self) -> Mapping[str, float]:
        """Usable capacity out of each place with all that lies in it."""
        around = {place.id: {one.id for one in self.facts.enclosing(place.id)} for place in self.topology.places}
        leaving: defaultdict[str, float] = defaultdict(float)
        for edge in self.topology.edges:
            for place in around[edge.from_place] - around[edge.to_place]:
                leaving[place] += edge.capacity_bytes_per_s
        return leaving

    def counts_as_crossing(self, edge: Edge) -> bool:
        """Edges between buildings that count into the bytes there: links both ways, uplinks on the way up only."""
        crosses = self.facts.building_of(edge.from_place) != self.facts.building_of(edge.to_place)
        return crosses and not (edge.id.startswith(UPLINK_PREFIX) and edge.reverse)
