"""Closed-form placements that cost nothing to find: replicas kept whole, ranks kept whole, and what lies between.

These are DP-out, PP-out, PP-out between groups of buildings with DP-out inside them and the reverse, segments of the
pipeline on given capacity groups, and PP-out with the ranks that do not fit whole spread over the capacity that is
left.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from solver.placement.in_order import fill_in_order
from solver.placement.problem import PlacementProblem, RouteCount, Tier, loss_s, minimums_hold
from solver.placement.routes import MOST_JOINED, continued, merged

Routes = tuple[RouteCount, ...]


def keep_replicas_whole(problem: PlacementProblem) -> Routes | None:
    """Whole replicas, one capacity group after another; the capacity left over goes to replicas that cross.

    None when the pattern does not reach the number of replicas or a rule forbids it. Where pins want replicas in
    places, no replica crosses.
    """
    if not problem.replicas_may_cross:
        return None
    if problem.minimums:
        return _whole_as_pinned(problem)
    routes, left = _whole(problem)
    missing = problem.num_replicas - sum(route.num_replicas for route in routes)
    if missing and not problem.ranks_may_cross:
        return None
    crossing = _over_several(problem, left, missing)
    found = [] if crossing is None else [routes + crossing]
    if missing:
        found += [filled for tier in problem.prices.tiers if (filled := _filled_one_by_one(problem, tier)) is not None]
    return min(found, key=lambda one: loss_s(problem, one), default=None)


def _whole_as_pinned(problem: PlacementProblem) -> Routes | None:
    """Whole replicas, first as many as each pin wants where it wants them, those with the fewest places first."""
    free = {
        u: capacity // problem.num_ranks
        for u, capacity in enumerate(problem.capacity_u)
        if all(row[u] for row in problem.allowed_pu)
    }
    counts, largest_first = dict.fromkeys(free, 0), sorted(free, key=lambda u: -free[u])
    wanted = [(set(pin.capacity_groups), pin.num_replicas) for pin in problem.minimums]
    for inside, number in sorted(wanted, key=lambda one: len(one[0])):
        _filled_up(counts, free, [u for u in largest_first if u in inside], number)
    _filled_up(counts, free, largest_first, problem.num_replicas)
    routes = tuple(RouteCount((u,) * problem.num_ranks, count) for u, count in counts.items() if count)
    return routes if sum(counts.values()) == problem.num_replicas and minimums_hold(problem, routes) else None


def _filled_up(counts: dict[int, int], free: Mapping[int, int], inside: Sequence[int], number: int) -> None:
    """Add replicas in these capacity groups until they have so many together, or as many as are free."""
    for u in inside:
        missing = number - sum(counts[one] for one in inside)
        counts[u] += max(min(missing, free[u] - counts[u]), 0)


def _filled_one_by_one(problem: PlacementProblem, tier: Tier) -> Routes | None:
    """Replica after replica into the capacity groups of a tier's group: where one is full, it goes on in the next.

    None when capacity groups are closed to some ranks or the groups do not hold all replicas whole.
    """
    routes, missing = list[RouteCount](), problem.num_replicas
    for group in dict.fromkeys(tier.group_u):
        capacity = _inside(problem, tier, group)
        usable = [u for u, own in enumerate(capacity) if own and all(row[u] for row in problem.allowed_pu)]
        capacities = [(u, capacity[u]) for u in sorted(usable, key=lambda u: (-capacity[u], u))]
        count = min(missing, sum(own for _, own in capacities) // problem.num_ranks)
        routes += _laid_out(problem.num_ranks, count, capacities)
        missing -= count
    return None if missing else merged(routes)


def _laid_out(num_ranks: int, num_replicas: int, capacities: list[tuple[int, int]]) -> Iterator[RouteCount]:
    """So many replicas over capacity groups in their order, each capacity group filled before the next.

    >>> [route.capacity_groups for route in _laid_out(4, 3, [(0, 6), (1, 6)])]
    [(0, 0, 0, 0), (0, 0, 1, 1), (1, 1, 1, 1)]
    """
    begun: tuple[int, ...] = ()
    for u, capacity in capacities:
        if begun:
            taken = min(num_ranks - len(begun), capacity)
            begun, capacity = (*begun, *(u,) * taken), capacity - taken
            if len(begun) < num_ranks:
                continue
            yield RouteCount(begun, 1)
            begun, num_replicas = (), num_replicas - 1
        whole = min(capacity // num_ranks, num_replicas)
        if whole:
            yield RouteCount((u,) * num_ranks, whole)
        num_replicas, capacity = num_replicas - whole, capacity - whole * num_ranks
        begun = (u,) * capacity if num_replicas else ()
        if not num_replicas:
            return


def keep_ranks_whole(problem: PlacementProblem) -> Routes | None:
    """One route for all replicas: one capacity group after another, the largest next or, if better, the nearest.

    None when the capacity groups cannot hold all replicas of their ranks or a rule forbids it.
    """
    orders = (_whole_ranks(problem, nearest=nearest)[0] for nearest in (False, True))
    routes = [
        (RouteCount(capacity_groups=tuple(groups_p), num_replicas=problem.num_replicas),)
        for groups_p in orders
        if not problem.minimums and len(groups_p) == problem.num_ranks and _may_cross(problem, groups_p)
    ]
    return min(routes, key=lambda one: loss_s(problem, one), default=None)


def keep_ranks_in_groups(problem: PlacementProblem) -> Routes | None:
    """The pipeline crosses groups of buildings, as a region is one, and replicas are spread inside each of them.

    Of several tiers of groups the one that loses least. None when no tier has several groups of several capacity
    groups, the groups cannot hold all replicas of their ranks, or a rule forbids it.
    """
    bound = problem.minimums or not (problem.ranks_may_cross and problem.replicas_may_cross)
    if bound or not all(all(row) for row in problem.allowed_pu):
        return None
    routes = [found for tier in problem.prices.tiers if (found := _in_groups(problem, tier)) is not None]
    return min(routes, key=lambda one: loss_s(problem, one), default=None)


def _in_groups(problem: PlacementProblem, tier: Tier) -> Routes | None:
    """Ranks kept whole by groups of the tier; the ranks of a group are replicas kept whole by its capacity groups."""
    groups = sorted(set(tier.group_u))
    if not 1 < len(groups) < problem.num_capacity_groups:
        return None
    capacity = tuple(_inside(problem, tier, group) for group in groups)
    by_group = replace(
        problem,
        capacity_u=tuple(map(sum, capacity)),
        building_u=tuple(range(len(groups))),
        allowed_pu=((True,) * len(groups),) * problem.num_ranks,
    )
    visited, _ = _whole_ranks(by_group, nearest=False)
    if len(visited) < problem.num_ranks or len(set(visited)) == 1:
        return None
    parts, first = [], 0
    for group, ranks in itertools.groupby(visited):
        length = len(list(ranks))
        parts.append(keep_replicas_whole(_part(problem, first, length, capacity[group])))
        first += length
    whole = [part for part in parts if part is not None]
    return merged(_joined(whole)) if len(whole) == len(parts) else None


def keep_replicas_in_groups(problem: PlacementProblem) -> Routes | None:
    """The pipeline crosses inside groups of buildings, as a region is one, and replicas are shared out over these.

    Inside a group ranks are kept whole by capacity groups or, where some do not fit, fill them one after another. Of
    several tiers of groups the one that loses least. None when no tier has several groups in use, some of which have
    several capacity groups, the groups do not hold all replicas whole, or a rule forbids it.
    """
    if problem.minimums or not (problem.ranks_may_cross and problem.replicas_may_cross):
        return None
    routes = [found for tier in problem.prices.tiers if (found := _replicas_in_groups(problem, tier)) is not None]
    return min(routes, key=lambda one: loss_s(problem, one), default=None)


def _replicas_in_groups(problem: PlacementProblem, tier: Tier) -> Routes | None:
    """As many replicas as it holds into the largest group of the tier, then the next, as long as there are more."""
    capacities = sorted((_inside(problem, tier, group) for group in set(tier.group_u)), key=sum, reverse=True)
    routes, missing, num_groups = list[RouteCount](), problem.num_replicas, 0
    for capacity in capacities:
        inside = replace(problem, capacity_u=capacity, num_replicas=min(missing, _most_replicas(problem, capacity)))
        if inside.num_replicas:
            found = keep_ranks_whole(inside) or fill_in_order(inside) or keep_replicas_whole(inside)
            if found is None:
                return None
            routes += found
            missing, num_groups = missing - inside.num_replicas, num_groups + 1
    crosses = any(len(set(route.capacity_groups)) > 1 for route in routes)
    return merged(routes) if not missing and num_groups > 1 and crosses else None


def _most_replicas(problem: PlacementProblem, capacity_u: Sequence[int]) -> int:
    """Replicas for whose ranks there is room, as far as ranks with the same places open to them go."""
    return min(
        sum(capacity for capacity, may in zip(capacity_u, allowed, strict=True) if may) // num_ranks
        for allowed, num_ranks in Counter(problem.allowed_pu).items()
    )


def _part(problem: PlacementProblem, first: int, num_ranks: int, capacity_u: tuple[int, ...]) -> PlacementProblem:
    """The problem of some consecutive ranks alone, with capacities of their own."""
    ranks = slice(first, first + num_ranks)
    return replace(
        problem,
        num_ranks=num_ranks,
        capacity_u=capacity_u,
        allowed_pu=problem.allowed_pu[ranks],
        prices=replace(problem.prices, span_s=problem.prices.span_s[ranks]),
    )


def _inside(problem: PlacementProblem, tier: Tier, group: int) -> tuple[int, ...]:
    """Capacity of the capacity groups of a group; none elsewhere."""
    return tuple(
        capacity if own == group else 0 for capacity, own in zip(problem.capacity_u, tier.group_u, strict=True)
    )


def _joined(parts: list[Routes]) -> list[RouteCount]:
    """Routes of consecutive ranks end to end; those of one part spread over all of the next, and so over all links."""
    chains = list(parts[0])
    for part in parts[1:]:
        chains = continued(chains, part, lambda _here, _there: 0.0, evenly=len(chains) * len(part) <= MOST_JOINED)
    return chains


def keep_segments_whole(problem: PlacementProblem, segments: tuple[tuple[int, frozenset[int]], ...]) -> Routes | None:
    """Consecutive ranks in given capacity groups, as those of one GPU type are: (ranks, groups) along the pipeline.

    Each replica's part of a segment is in one capacity group as far as possible, and goes on in the nearest capacity
    group of the next segment. None when some segment's capacity groups have too little capacity or a rule forbids the
    routes.
    """
    chains = [RouteCount((), problem.num_replicas)]
    for num_ranks, groups_p in segments:
        first = len(chains[0].capacity_groups)
        capacity = tuple(own if u in groups_p else 0 for u, own in enumerate(problem.capacity_u))
        part = _part(problem, first, num_ranks, capacity)
        found = keep_replicas_whole(replace(part, minimums=(), replicas_may_cross=True))
        if found is None:
            return None
        chains = continued(chains, found, partial(_distance_s, problem), evenly=False)
    routes = merged(chains)
    return routes if obeys_rules(problem, routes) else None


def obeys_rules(problem: PlacementProblem, routes: Routes) -> bool:
    """Nothing crosses buildings that may not, and pinned ranks are where they have to be."""
    crosses = not all(_may_cross(problem, list(route.capacity_groups)) for route in routes)
    if crosses or not minimums_hold(problem, routes):
        return False
    ranks = range(problem.num_ranks)
    if not all(problem.allowed_pu[p][route.capacity_groups[p]] for route in routes for p in ranks):
        return False
    buildings = [{problem.building_u[route.capacity_groups[p]] for route in routes} for p in ranks]
    return problem.replicas_may_cross or all(len(one) == 1 for one in buildings)


def spread_end_ranks(problem: PlacementProblem) -> Routes | None:
    """Some ranks kept whole in one or more capacity groups; each rank after them, or before, lies over several others.

    Of any number of capacity groups to keep ranks in, inside the groups of any tier, what loses least. None when all
    ranks fit whole, nothing is left for the others or a rule forbids it.
    """
    if problem.minimums or not (problem.replicas_may_cross and problem.ranks_may_cross):
        return None
    backwards = replace(
        problem,
        allowed_pu=problem.allowed_pu[::-1],
        prices=replace(problem.prices, span_s=problem.prices.span_s[::-1]),
    )
    found = [routes for one in _groups(problem) for routes in _spread(one)]
    for routes in (routes for one in _groups(backwards) for routes in _spread(one)):
        found.append(tuple(replace(route, capacity_groups=route.capacity_groups[::-1]) for route in routes))
    return min(found, key=lambda one: loss_s(problem, one), default=None)


def _groups(problem: PlacementProblem) -> list[PlacementProblem]:
    """The problem in every group of every tier that can hold all replicas, each set of capacity groups once."""
    need = problem.num_ranks * problem.num_replicas
    capacities = {
        _inside(problem, tier, group): tier for tier in problem.prices.tiers for group in dict.fromkeys(tier.group_u)
    }
    return [replace(problem, capacity_u=capacity) for capacity in capacities if sum(capacity) >= need]


def _spread(problem: PlacementProblem) -> Iterator[Routes]:
    """The first ranks whole in the n largest capacity groups, for every n; the rest over several groups each."""
    for most_groups in range(1, problem.num_capacity_groups + 1):
        groups_p, left = _whole_ranks(problem, nearest=False, most_groups=most_groups)
        if len(set(groups_p)) < most_groups or len(groups_p) == problem.num_ranks:
            return
        spread = _over_several(problem, left, problem.num_replicas, first_rank=len(groups_p))
        if spread is not None:
            yield merged([RouteCount((*groups_p, *route.capacity_groups), route.num_replicas) for route in spread])


PATTERNS: tuple[Callable[[PlacementProblem], Routes | None], ...] = (
    keep_replicas_whole,
    keep_ranks_whole,
    keep_ranks_in_groups,
    keep_replicas_in_groups,
    spread_end_ranks,
)


def _may_cross(problem: PlacementProblem, groups_p: list[int]) -> bool:
    return problem.ranks_may_cross or len({problem.building_u[u] for u in groups_p}) == 1


def _whole_ranks(
    problem: PlacementProblem, *, nearest: bool, most_groups: int | None = None
) -> tuple[list[int], list[int]]:
    """Capacity groups of the first ranks, as many as fit with all their replicas, and the groups that stay free."""
    left, groups_p = list(problem.capacity_u), list[int]()
    while len(groups_p) < problem.num_ranks:
        here = groups_p[-1] if groups_p else None
        allowed = problem.allowed_pu[len(groups_p)]
        fits = [u for u, capacity in enumerate(left) if capacity >= problem.num_replicas and allowed[u]]
        if not fits or (here not in fits and len(set(groups_p)) == most_groups):
            break
        far_s = {u: _distance_s(problem, here, u) if nearest else 0.0 for u in fits}
        groups_p.append(here if here in fits else min(fits, key=lambda u: (far_s[u], -left[u], u)))
        left[groups_p[-1]] -= problem.num_replicas
    return groups_p, left


def _distance_s(problem: PlacementProblem, here: int | None, there: int) -> float:
    """Price of a crossing; the start is free."""
    if here is None:
        return 0.0
    return next(
        (tier.crossing_s for tier in problem.prices.tiers if tier.group_u[here] == tier.group_u[there]), float("inf")
    )


def _whole(problem: PlacementProblem) -> tuple[Routes, list[int]]:
    """Routes of replicas inside one capacity group, and the groups that stay free in every capacity group."""
    routes, left, missing = [], list(problem.capacity_u), problem.num_replicas
    for u in sorted(range(problem.num_capacity_groups), key=lambda u: -problem.capacity_u[u]):
        if all(problem.allowed_pu[p][u] for p in range(problem.num_ranks)):
            count = min(missing, left[u] // problem.num_ranks)
            if count:
                routes.append(RouteCount(capacity_groups=(u,) * problem.num_ranks, num_replicas=count))
                left[u] -= count * problem.num_ranks
                missing -= count
    return tuple(routes), left


def _over_several(problem: PlacementProblem, left: list[int], missing: int, first_rank: int = 0) -> Routes | None:
    """Ranks from `first_rank` on over several groups, that with most capacity left first, so that they cross rarely."""
    left, routes = list(left), []
    length = problem.num_ranks - first_rank
    while missing:
        groups_p = _most_capacity_first(problem, left, first_rank)
        if len(groups_p) < length:
            return None
        need = {u: groups_p.count(u) for u in set(groups_p)}
        count = min(missing, *(left[u] // groups for u, groups in need.items()))
        for u, groups in need.items():
            left[u] -= groups * count
        routes.append(RouteCount(capacity_groups=tuple(groups_p), num_replicas=count))
        missing -= count
    return tuple(routes)


def _most_capacity_first(problem: PlacementProblem, left: list[int], first_rank: int) -> list[int]:
    """Capacity groups of one replica's ranks from `first_rank` on, always that with most capacity left."""
    left, groups_p = list(left), list[int]()
    for rank in range(first_rank, problem.num_ranks):
        allowed = problem.allowed_pu[rank]
        if groups_p and left[groups_p[-1]] and allowed[groups_p[-1]]:
            best = groups_p[-1]
        else:
            best = max(range(problem.num_capacity_groups), key=lambda u: (allowed[u] and left[u] > 0, left[u], -u))
            if not (allowed[best] and left[best]):
                break
        groups_p.append(best)
        left[best] -= 1
    return groups_p
