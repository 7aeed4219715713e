"""The placement question in index form: how many replicas put which pipeline rank into which capacity group.

A capacity group is the free capacity of one GPU type in one building. No solver and no request vocabulary. Suffixes: p
pipeline rank, u capacity group, b building.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Tier:
    """Which capacity groups cross to each other at one price: those of one `group_u`, whole ones of cheaper tiers.

    `crossing_s` is what an iteration loses per crossing of the replica that crosses most often (fill, drain, waiting).
    """

    crossing_s: float
    group_u: tuple[int, ...]


@dataclass(frozen=True)
class Prices:
    """Seconds that an iteration loses to crossings; what the placement trades off.

    tiers: cheapest first.
    span_s[p]: exchange of rank p's gradients, where its replicas are in several buildings. More of them hardly add to
    it: 2 (k-1)/k of the gradients leave each of k buildings.
    slot_b[b]: time one micro-batch message of one replica occupies all that leaves building b.
    work_s: work of the slowest rank on one micro-batch; messages hide behind it.
    """

    tiers: tuple[Tier, ...]
    span_s: tuple[float, ...]
    slot_b: tuple[float, ...]
    work_s: float


@dataclass(frozen=True)
class MinimumReplicas:
    """At least `num_replicas` replicas have all of `ranks` in `capacity_groups`, each in any of them."""

    ranks: range
    capacity_groups: tuple[int, ...]
    num_replicas: int


@dataclass(frozen=True)
class PlacementProblem:
    """What is to be placed: ranks of replicas, capacity groups, rules and prices; as large for many replicas as few.

    `building_u` numbers buildings from 0. `least_block` ranks at least stay together wherever a replica crosses.
    """

    num_ranks: int
    num_replicas: int
    num_microbatches: int
    capacity_u: tuple[int, ...]
    building_u: tuple[int, ...]
    allowed_pu: tuple[tuple[bool, ...], ...]
    prices: Prices
    minimums: tuple[MinimumReplicas, ...] = ()
    ranks_may_cross: bool = True
    replicas_may_cross: bool = True
    least_block: int = 1

    @property
    def num_capacity_groups(self) -> int:
        """Capacity groups that exist."""
        return len(self.capacity_u)

    @property
    def num_buildings(self) -> int:
        """Buildings that exist."""
        return max(self.building_u) + 1

    @cached_property
    def capacity_b(self) -> tuple[int, ...]:
        """Stage groups that each building holds."""
        total = [0] * self.num_buildings
        for u, building in enumerate(self.building_u):
            total[building] += self.capacity_u[u]
        return tuple(total)


@dataclass(frozen=True)
class RouteCount:
    """`num_replicas` replicas put rank p into capacity group capacity_groups[p]."""

    capacity_groups: tuple[int, ...]
    num_replicas: int


def minimums_hold(problem: PlacementProblem, routes: Sequence[RouteCount]) -> bool:
    """Enough replicas have the pinned ranks where they should be."""
    return all(
        sum(
            route.num_replicas
            for route in routes
            if all(route.capacity_groups[rank] in pin.capacity_groups for rank in pin.ranks)
        )
        >= pin.num_replicas
        for pin in problem.minimums
    )


@dataclass(frozen=True)
class PlacementSolution:
    """Routes with counts, the least loss proven and whether theirs meets it."""

    routes: tuple[RouteCount, ...]
    bound_s: float
    proven: bool


def loss_s(problem: PlacementProblem, routes: tuple[RouteCount, ...]) -> float:
    """Seconds that an iteration loses by the prices.

    They are the most crossings of a replica at the highest price of a tier that any takes, the exchanges of ranks that
    span buildings, and messages beyond the work that hides them.
    """
    return _crossing_s(problem, routes) + _span_s(problem, routes) + _excess_s(problem, routes)


def num_crossings(groups_p: tuple[int, ...]) -> int:
    """Boundaries at which a route changes its capacity group.

    >>> num_crossings((0, 0, 1, 0))
    2
    """
    return sum(here != there for here, there in itertools.pairwise(groups_p))


def shortest_block(groups_p: tuple[int, ...]) -> int:
    """Fewest ranks that stay together in one capacity group; a route that never crosses may be as short as it is.

    >>> shortest_block((0, 0, 1, 0)), shortest_block((0,))
    (1, 1)
    """
    blocks = [len(list(ranks)) for _, ranks in itertools.groupby(groups_p)]
    return min(blocks)


def _crossing_s(problem: PlacementProblem, routes: tuple[RouteCount, ...]) -> float:
    pairs = {pair for route in routes for pair in itertools.pairwise(route.capacity_groups)}
    cheapest = next(
        tier for tier in problem.prices.tiers if all(tier.group_u[one] == tier.group_u[other] for one, other in pairs)
    )
    return cheapest.crossing_s * max(num_crossings(route.capacity_groups) for route in routes)


def _span_s(problem: PlacementProblem, routes: tuple[RouteCount, ...]) -> float:
    return sum(
        price
        for p, price in enumerate(problem.prices.span_s)
        if len({problem.building_u[route.capacity_groups[p]] for route in routes}) > 1
    )


def _excess_s(problem: PlacementProblem, routes: tuple[RouteCount, ...]) -> float:
    """One direction of a building's links carries the activations of what leaves and the gradients of what enters."""
    messages: Counter[int] = Counter()
    for route in routes:
        for here, there in itertools.pairwise(route.capacity_groups):
            if here != there:
                for building in (problem.building_u[here], problem.building_u[there]):
                    messages[building] += route.num_replicas
    late = [problem.prices.slot_b[building] * count - problem.prices.work_s for building, count in messages.items()]
    return problem.num_microbatches * max([0.0, *late])
