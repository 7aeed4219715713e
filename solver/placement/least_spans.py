"""Exchanges between buildings that no placement saves, whatever its routes: counted before any programme is built."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations

from solver.placement.problem import PlacementProblem, Tier

MAX_PARTED = 7  # buildings whose ways of parting are all looked at


def least_span_s(problem: PlacementProblem, tier: Tier, crossings: int) -> float:
    """Exchanges that no placement saves when replicas cross so often and inside groups; infinite where none fits.

    Replicas stay in their group, so the groups hold all of them whole. A rank that lies whole in a building makes every
    replica visit it: then one group holds them all, and at best the ranks of the highest price lie whole, see
    `_most_whole`.
    """
    groups = defaultdict[int, Counter[int]](Counter)
    for group, building, capacity in zip(tier.group_u, problem.building_u, problem.capacity_u, strict=True):
        groups[group][building] += capacity
    replicas, ranks = problem.num_replicas, problem.num_ranks
    if sum(sum(held.values()) // ranks for held in groups.values()) < replicas:
        return float("inf")
    if problem.num_buildings == 1:
        return 0.0
    whole = 0
    for held in groups.values():
        if sum(held.values()) >= ranks * replicas:
            whole = max(whole, _most_whole(sorted(held.values(), reverse=True), ranks, replicas, crossings))
    return sum(sorted(problem.prices.span_s, reverse=True)[whole:])


def _most_whole(capacity_b: list[int], num_ranks: int, num_replicas: int, crossings: int) -> int:
    """Most ranks that can lie whole in buildings, the largest first, where all replicas visit each that holds any.

    A building holds floor(capacity / replicas) of them. With up to `crossings` such buildings these are the largest
    ones. One more leaves no crossing for anything else: every replica is in these buildings alone, in the same order
    and once in each. Then on average x_i ranks lie before boundary i, and where x_i is not whole some rank is in both
    buildings: only between whole boundaries do buildings hold the floor of their sum.

    >>> _most_whole([7, 7, 2], num_ranks=4, num_replicas=4, crossings=1)
    1
    >>> _most_whole([10, 6], num_ranks=4, num_replicas=4, crossings=1)
    3
    """
    able = [capacity for capacity in capacity_b if capacity >= num_replicas]
    fits = [capacity // num_replicas for capacity in able]
    detour = min(sum(fits[:crossings]), num_ranks)
    without = able[: crossings + 1]
    if len(without) <= crossings or sum(without) < num_ranks * num_replicas:
        return detour
    if len(able) == len(without) <= MAX_PARTED:
        return max(detour, num_ranks - _least_boundaries(tuple(without), num_ranks, num_replicas))
    return max(detour, min(sum(fits[: crossings + 1]), num_ranks))


def _least_boundaries(capacity_b: tuple[int, ...], num_ranks: int, num_replicas: int) -> int:
    """Fewest boundaries that are not whole when all these buildings together hold all ranks: over all ways of parting.

    >>> _least_boundaries((8, 8), 4, 4), _least_boundaries((10, 6), 4, 4), _least_boundaries((9, 9, 2), 5, 4)
    (0, 1, 2)
    """
    parts = {frozenset[int](): [0] + [-1] * len(capacity_b)}  # most ranks held, by boundaries that are not whole
    everything = range(len(capacity_b))
    for size in range(1, len(capacity_b) + 1):
        for chosen in map(frozenset, combinations(everything, size)):
            first, most = min(chosen), [-1] * (len(capacity_b) + 1)
            for others in (rest for k in range(size) for rest in combinations(sorted(chosen - {first}), k)):
                held = sum(capacity_b[b] for b in (first, *others)) // num_replicas
                for boundaries, before in enumerate(parts[chosen - {first, *others}]):
                    if before >= 0 and boundaries + len(others) < len(most):
                        most[boundaries + len(others)] = max(most[boundaries + len(others)], before + held)
            parts[chosen] = most
    return next(boundaries for boundaries, held in enumerate(parts[frozenset(everything)]) if held >= num_ranks)
