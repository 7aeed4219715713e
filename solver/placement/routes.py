"""Counted stays chained into routes with counts.

Owns only that: as many routes as needed, never more than there are kinds of stays.
"""

from __future__ import annotations

from solver.placement.model import Stay
from solver.placement.problem import PlacementProblem, RouteCount, Tier


def chained(problem: PlacementProblem, tier: Tier, stays: dict[Stay, int]) -> tuple[RouteCount, ...]:
    """Strip one route after another: from the largest first stay on, always with the largest stay that continues it."""
    left, routes = dict(stays), list[RouteCount]()
    while True:
        starts = [stay for stay, count in left.items() if count and stay.first == 0]
        if not starts:
            return merged(routes)
        chain = [max(starts, key=lambda stay: (left[stay], -stay.unit))]
        while chain[-1].last < problem.num_ranks:
            chain.append(_next(chain[-1], tier, left))
        count = min(left[stay] for stay in chain)
        for stay in chain:
            left[stay] -= count
        units = tuple(stay.unit for stay in chain for _ in range(stay.length))
        routes.append(RouteCount(units=units, num_replicas=count))


def _next(stay: Stay, tier: Tier, left: dict[Stay, int]) -> Stay:
    """The largest stay that begins where this one ends, inside its group."""
    fits = [
        other
        for other, count in left.items()
        if count
        and other.first == stay.last
        and other.crossings == stay.crossings + 1
        and tier.group_u[other.unit] == tier.group_u[stay.unit]
    ]
    return max(fits, key=lambda other: (left[other], -other.unit))


def merged(routes: list[RouteCount]) -> tuple[RouteCount, ...]:
    """Routes over the same units become one; the largest come first.

    >>> merged([RouteCount((0, 1), 2), RouteCount((0, 0), 3), RouteCount((0, 1), 4)])
    (RouteCount(units=(0, 1), num_replicas=6), RouteCount(units=(0, 0), num_replicas=3))
    """
    counts: dict[tuple[int, ...], int] = {}
    for route in routes:
        counts[route.units] = counts.get(route.units, 0) + route.num_replicas
    found = [RouteCount(units=units, num_replicas=count) for units, count in counts.items()]
    return tuple(sorted(found, key=lambda route: (-route.num_replicas, route.units)))
