"""A request and a plan, read together: the look-ups that every rule needs, derived from these two documents alone.

Names to objects (pools, places, routes, timelines), and the place tree. No figure of the plan is trusted: what is
derived here comes from the request and from the plan's decisions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from models.cluster import Pool
from models.plan import Configuration, Plan, Route, RouteTimeline, StageExchange
from models.request import PlanRequest
from solver.network.places import ancestors_of, buildings_of


class StageGroups(NamedTuple):
    """The stage groups that one route puts on one pipeline rank, in a pool that exists."""

    route: Route
    pipeline_rank: int
    pool: Pool


@dataclass(frozen=True)
class Facts:
    """A request and a plan with their look-ups. Names that do not exist are left out: finding them is a rule's work."""

    request: PlanRequest
    plan: Plan

    @property
    def configuration(self) -> Configuration:
        """Everything of the plan that does not say where."""
        return self.plan.configuration

    @property
    def gpus_per_group(self) -> int:
        """GPUs of one pipeline rank of one replica."""
        return self.configuration.degrees.gpus_per_stage_group

    def exchange_s(self, private_s: float, shared_s: float) -> float:
        """Time of an exchange: the longer of its parts, inside places and on links, and one chunk of the shorter."""
        shorter_s, longer_s = sorted((private_s, shared_s))
        return longer_s + shorter_s / self.plan.transport_policy.num_exchange_chunks

    @property
    def stage_exchanges(self) -> list[StageExchange]:
        """Stated exchanges of stages that exist."""
        return [one for one in self.plan.exchanges if one.stage < self.configuration.degrees.num_stages]

    @cached_property
    def pool_by_id(self) -> Mapping[str, Pool]:
        """Pools of the request."""
        return {pool.id: pool for pool in self.request.cluster.pools}

    @cached_property
    def route_by_id(self) -> Mapping[str, Route]:
        """Routes of the plan; of two with one id the first."""
        return {route.id: route for route in reversed(self.plan.placement.routes)}

    @cached_property
    def timeline_by_route(self) -> Mapping[str, RouteTimeline]:
        """Timelines of the plan; of two with one route the first."""
        return {timeline.route: timeline for timeline in reversed(self.plan.timelines)}

    @cached_property
    def alike_route(self) -> Mapping[str, str]:
        """For every route with a timeline the first with the same schedule, in an equal problem."""
        firsts, found = list[RouteTimeline](), dict[str, str]()
        for route, timeline in self.timeline_by_route.items():
            alike = (one for one in firsts if one.schedule is timeline.schedule and one.problem == timeline.problem)
            first = next(alike, timeline)
            if first is timeline:
                firsts.append(timeline)
            found[route] = first.route
        return found

    @cached_property
    def groups(self) -> tuple[StageGroups, ...]:
        """Every stage group of every route whose pool exists."""
        return tuple(
            StageGroups(route, pipeline_rank, self.pool_by_id[pool])
            for route in self.plan.placement.routes
            for pipeline_rank, pool in enumerate(route.pools[: self.configuration.degrees.pp])
            if pool in self.pool_by_id
        )

    @cached_property
    def pools_by_route(self) -> Mapping[str, tuple[Pool, ...]]:
        """Pools of each route in rank order, for routes that name one existing pool per pipeline rank."""
        return {
            route.id: tuple(self.pool_by_id[pool] for pool in route.pools)
            for route in self.plan.placement.routes
            if len(route.pools) == self.configuration.degrees.pp and all(p in self.pool_by_id for p in route.pools)
        }

    @cached_property
    def _around(self) -> Mapping[str, tuple[str, ...]]:
        return ancestors_of(self.request.cluster)

    def is_inside(self, place: str, outer: str) -> bool:
        """Whether `place` is `outer` or lies in it."""
        return outer in self._around.get(place, ())

    @cached_property
    def _buildings(self) -> Mapping[str, str]:
        return buildings_of(self.request.cluster)

    @cached_property
    def buildings(self) -> tuple[str, ...]:
        """Buildings with GPUs of the plan."""
        return tuple(sorted({self.building_of(group.pool.place) for group in self.groups}))

    def building_of(self, place: str) -> str:
        """The building around a place; a place with no building around it counts as one of its own."""
        return self._buildings.get(place, place)
