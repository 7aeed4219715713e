"""Integer flow on the layered graph, decomposed into routes with counts.

Owns only that: as many routes as needed, never more than the graph has positive arcs.
"""

from __future__ import annotations

from solver.placement.problem import RouteCount


def decompose(
    num_ranks: int, num_units: int, flow_puv: dict[tuple[int, int, int], int], count_pu: list[list[int]]
) -> tuple[RouteCount, ...]:
    """Strip one path after another, always along the largest flow, with the least flow on it as its count.

    >>> decompose(2, 2, {(0, 0, 0): 1, (0, 0, 1): 2}, [[3, 0], [1, 2]])
    (RouteCount(units=(0, 1), num_replicas=2), RouteCount(units=(0, 0), num_replicas=1))
    """
    flow, first = dict(flow_puv), list(count_pu[0])
    routes = []
    while sum(first):
        start = max(range(num_units), key=lambda u: first[u])
        units, room = [start], first[start]
        for p in range(num_ranks - 1):
            here = units[-1]
            there = max(range(num_units), key=lambda v: flow.get((p, here, v), 0))
            room = min(room, flow[p, here, there])
            units.append(there)
        first[start] -= room
        for p in range(num_ranks - 1):
            flow[p, units[p], units[p + 1]] -= room
        routes.append(RouteCount(units=tuple(units), num_replicas=room))
    return _merge(routes)


def _merge(routes: list[RouteCount]) -> tuple[RouteCount, ...]:
    """Routes over the same units become one; the largest come first."""
    counts: dict[tuple[int, ...], int] = {}
    for route in routes:
        counts[route.units] = counts.get(route.units, 0) + route.num_replicas
    merged = [RouteCount(units=units, num_replicas=count) for units, count in counts.items()]
    return tuple(sorted(merged, key=lambda route: (-route.num_replicas, route.units)))
