"""Counted blocks of ranks chained into routes with counts: no more routes than there are kinds of blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from solver.placement.model import RankBlock
from solver.placement.problem import PlacementProblem, RouteCount, Tier

Distance = Callable[[int | None, int], float]  # from where a chain ends, if it has begun, to a capacity group
MOST_JOINED = 32  # routes up to which ends are joined in every way: each has a pipeline of its own to time


def chained(problem: PlacementProblem, tier: Tier, blocks: dict[RankBlock, int]) -> tuple[RouteCount, ...]:
    """Strip one route after another: the largest first block, then always the largest that continues it."""
    left, routes = dict(blocks), list[RouteCount]()
    while True:
        starts = [block for block, count in left.items() if count and block.first == 0]
        if not starts:
            return merged(routes)
        chain = [max(starts, key=lambda block: (left[block], -block.capacity_group))]
        while chain[-1].last < problem.num_ranks:
            chain.append(_next(chain[-1], tier, left))
        count = min(left[block] for block in chain)
        for block in chain:
            left[block] -= count
        groups_p = tuple(block.capacity_group for block in chain for _ in range(block.length))
        routes.append(RouteCount(capacity_groups=groups_p, num_replicas=count))


def _next(block: RankBlock, tier: Tier, left: dict[RankBlock, int]) -> RankBlock:
    """The largest block that begins where this one ends, inside its group."""
    fits = [
        other
        for other, count in left.items()
        if count
        and other.first == block.last
        and other.crossings == block.crossings + 1
        and other.pins == block.pins
        and tier.group_u[other.capacity_group] == tier.group_u[block.capacity_group]
    ]
    return max(fits, key=lambda other: (left[other], -other.capacity_group))


def merged(routes: list[RouteCount]) -> tuple[RouteCount, ...]:
    """Routes over the same capacity groups become one; the largest come first.

    >>> merged([RouteCount((0, 1), 2), RouteCount((0, 0), 3), RouteCount((0, 1), 4)])
    (RouteCount(capacity_groups=(0, 1), num_replicas=6), RouteCount(capacity_groups=(0, 0), num_replicas=3))
    """
    counts: dict[tuple[int, ...], int] = {}
    for route in routes:
        counts[route.capacity_groups] = counts.get(route.capacity_groups, 0) + route.num_replicas
    found = [RouteCount(capacity_groups=groups_p, num_replicas=count) for groups_p, count in counts.items()]
    return tuple(sorted(found, key=lambda route: (-route.num_replicas, route.capacity_groups)))


def continued(
    chains: Sequence[RouteCount], following: Sequence[RouteCount], distance: Distance, *, evenly: bool
) -> list[RouteCount]:
    """Every replica goes on in a route of the next ranks, the nearest first; over those as near, see `shared_out`.

    >>> chains, following = [RouteCount((0,), 2)], [RouteCount((1,), 1), RouteCount((0,), 1)]
    >>> [one.capacity_groups for one in continued(chains, following, lambda u, w: u != w, evenly=False)]
    [(0, 0), (0, 1)]
    """
    waiting, left = ([route.num_replicas for route in routes] for routes in (chains, following))
    ends = [next(reversed(chain.capacity_groups), None) for chain in chains]
    far = [[distance(end, route.capacity_groups[0]) for route in following] for end in ends]
    longer = []
    for near in sorted({one for row in far for one in row}):
        for number, chain in enumerate(chains):
            open_to = {other: left[other] for other, one in enumerate(far[number]) if one == near}
            count = min(waiting[number], sum(open_to.values()))
            for other, own in shared_out(count, open_to, evenly=evenly).items():
                longer.append(RouteCount((*chain.capacity_groups, *following[other].capacity_groups), own))
                left[other] -= own
                waiting[number] -= own
    return longer


def shared_out(count: int, left: Mapping[int, int], *, evenly: bool) -> dict[int, int]:
    """So many replicas over what has so much left: in proportion, as far as they are whole, or one after another.

    >>> shared_out(5, {0: 4, 1: 6}, evenly=True), shared_out(5, {0: 4, 1: 6}, evenly=False)
    ({0: 2, 1: 3}, {0: 4, 1: 1})
    """
    taken, total = dict.fromkeys(left, 0), sum(left.values())
    if evenly:
        taken = {key: count * own // max(total, 1) for key, own in left.items()}
        for _ in range(count - sum(taken.values())):
            taken[max(left, key=lambda key: (left[key] - taken[key], -key))] += 1
    else:
        for key, own in left.items():
            taken[key] = min(own, count - sum(taken.values()))
    return {key: own for key, own in taken.items() if own}
