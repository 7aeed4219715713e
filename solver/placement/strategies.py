"""Closed-form placements that cost nothing to find: replicas kept whole, and ranks kept whole.

Owns the two pure patterns (DP-out and PP-out). What lies between them is the integer flow's to find.
"""

from __future__ import annotations

from solver.placement.problem import PlacementProblem, RouteCount


def keep_replicas_whole(problem: PlacementProblem) -> tuple[RouteCount, ...] | None:
    """Whole replicas unit by unit; what is left over in the units is stitched into replicas that cross.

    None when the pattern does not reach the number of replicas or a rule forbids it.
    """
    if not problem.replicas_may_cross or problem.minimums:
        return None
    routes, left = _whole(problem)
    missing = problem.num_replicas - sum(route.num_replicas for route in routes)
    if missing and not problem.ranks_may_cross:
        return None
    stitched = _stitch(problem, left, missing)
    return None if stitched is None else routes + stitched


def keep_ranks_whole(problem: PlacementProblem) -> tuple[RouteCount, ...] | None:
    """One route for all replicas: consecutive ranks share a unit, the roomiest units first.

    None when the units cannot hold all replicas of their ranks or a rule forbids it.
    """
    if problem.minimums:
        return None
    units: list[int] = []
    for u in sorted(range(problem.num_units), key=lambda u: -problem.capacity_u[u]):
        room = problem.capacity_u[u] // problem.num_replicas
        while room and len(units) < problem.num_ranks and problem.allowed_pu[len(units)][u]:
            units.append(u)
            room -= 1
    if len(units) < problem.num_ranks:
        return None
    crosses = len({problem.building_u[u] for u in units}) > 1
    if crosses and not problem.ranks_may_cross:
        return None
    return (RouteCount(units=tuple(units), num_replicas=problem.num_replicas),)


def _whole(problem: PlacementProblem) -> tuple[tuple[RouteCount, ...], list[int]]:
    """Routes of replicas inside one unit, and the groups that stay free in every unit."""
    routes, left, missing = [], list(problem.capacity_u), problem.num_replicas
    for u in sorted(range(problem.num_units), key=lambda u: -problem.capacity_u[u]):
        if all(problem.allowed_pu[p][u] for p in range(problem.num_ranks)):
            count = min(missing, left[u] // problem.num_ranks)
            if count:
                routes.append(RouteCount(units=(u,) * problem.num_ranks, num_replicas=count))
                left[u] -= count * problem.num_ranks
                missing -= count
    return tuple(routes), left


def _stitch(problem: PlacementProblem, left: list[int], missing: int) -> tuple[RouteCount, ...] | None:
    """Replicas over several units, each from the units with most room left, so that they cross rarely."""
    left, routes = list(left), []
    while missing:
        order = sorted(range(problem.num_units), key=lambda u: -left[u])
        units: list[int] = []
        for u in order:
            room = left[u]
            while room and len(units) < problem.num_ranks and problem.allowed_pu[len(units)][u]:
                units.append(u)
                room -= 1
        if len(units) < problem.num_ranks:
            return None
        need = {u: units.count(u) for u in set(units)}
        count = min(missing, *(left[u] // groups for u, groups in need.items()))
        for u, groups in need.items():
            left[u] -= groups * count
        routes.append(RouteCount(units=tuple(units), num_replicas=count))
        missing -= count
    return tuple(routes)
