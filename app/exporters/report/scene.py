"""A plan and, where it is at hand, its request: what every section of the report looks at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from app.exporters.hosts import buildings_of_places
from models.plan import Plan
from models.request import PlanRequest

UPLINK = "uplink:"


@dataclass(frozen=True)
class Scene:
    """What the report is about."""

    plan: Plan
    request: PlanRequest | None

    def building(self, place: str) -> str:
        """The building of a place; the place itself where no request says more."""
        return self._buildings.get(place, place)

    @cached_property
    def _buildings(self) -> Mapping[str, str]:
        return buildings_of_places(self.request)

    @cached_property
    def buildings_of_route(self) -> dict[str, tuple[str, ...]]:
        """Building of every pipeline rank, by route."""
        return {route.id: tuple(map(self.building, route.places)) for route in self.plan.placement.routes}

    @cached_property
    def place_of_pool(self) -> dict[str, str]:
        """Where the pools that the plan uses are."""
        routes = self.plan.placement.routes
        return {pool: place for route in routes for pool, place in zip(route.pools, route.places, strict=True)}

    @cached_property
    def ranks_of_building(self) -> dict[str, set[int]]:
        """Pipeline ranks that sit in each building, all routes together."""
        found: dict[str, set[int]] = defaultdict(set)
        for buildings in self.buildings_of_route.values():
            for rank, building in enumerate(buildings):
                found[building].add(rank)
        return found

    @cached_property
    def used_gpus_of_building(self) -> dict[str, int]:
        """GPUs that the plan uses in each building."""
        used: dict[str, int] = defaultdict(int)
        for part in self.plan.placement.rank_map:
            used[self.building(self.place_of_pool.get(part.pool, part.pool))] += part.num_ranks
        return used

    @cached_property
    def free_gpus_of_building(self) -> dict[str, int]:
        """GPUs that the plan may use in each building; empty without the request."""
        free: dict[str, int] = defaultdict(int)
        for pool in self.request.cluster.pools if self.request is not None else ():
            free[self.building(pool.place)] += pool.num_free_gpus
        return free

    @cached_property
    def ends_of_link(self) -> dict[str, tuple[str, str]]:
        """Places at the ends of every link and uplink, in its forward direction; empty without the request."""
        if self.request is None:
            return {}
        cluster = self.request.cluster
        ends = {f"{UPLINK}{one.id}": (one.id, one.parent) for one in cluster.places if one.parent is not None}
        return ends | {link.id: (link.from_place, link.to_place) for link in cluster.links}
