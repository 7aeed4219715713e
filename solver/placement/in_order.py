"""Closed-form placements that fill capacity groups with rank after rank: a rank spans two where one is full.

All stage groups of rank 0 come first, then those of rank 1, and so on. So no capacity is lost but at the end, and no
more ranks exchange between capacity groups than there are boundaries. Regions are filled one after another in the same
way; of the capacity that is not needed, what would make a rank span two regions remains free first. At a boundary
between regions the whole ranks beside it may lie spread over the capacity groups of their side, so that the messages
over it have all links between the two sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from solver.placement.problem import PlacementProblem, RouteCount, Tier
from solver.placement.routes import MOST_JOINED, continued, merged

Routes = tuple[RouteCount, ...]
Share = Counter[int]  # stage groups of one rank by capacity group


def fill_in_order(problem: PlacementProblem, *, before: bool = False, after: bool = False) -> Routes | None:
    """Every capacity group filled before the next; None where a rule forbids it or all is in one.

    `before`: with the last whole rank of every region but the last spread over the capacity groups there, and None
    where there are no regions with several capacity groups. `after`: the first whole rank of every region but the first
    is spread as well.

    >>> from solver.placement.problem import Prices
    >>> prices = Prices((Tier(1.0, (0, 0)),), (0.0,) * 4, (0.0, 0.0), 0.0)
    >>> fill_in_order(PlacementProblem(4, 4, 8, (6, 10), (0, 1), ((True, True),) * 4, prices))
    (RouteCount(capacity_groups=(0, 0, 1, 1), num_replicas=2), RouteCount(capacity_groups=(0, 1, 1, 1), num_replicas=2))
    """
    everywhere = all(all(row) for row in problem.allowed_pu)
    allowed = problem.ranks_may_cross and problem.replicas_may_cross and everywhere and not problem.minimums
    need = problem.num_ranks * problem.num_replicas
    if not allowed or sum(problem.capacity_u) < need:
        return None
    regions = _regions(problem)
    if before and len(regions) < 2:
        return None
    shares = [Share() for _ in range(problem.num_ranks)]
    first = 0
    for groups, count in zip(regions, _counts(problem, regions), strict=True):
        end = first + count
        whole = range(-(-first // problem.num_replicas), end // problem.num_replicas)
        spread = {whole[0]} if whole and after and first else set[int]()
        spread |= {whole[-1]} if whole and before and end < need else set[int]()
        _fill_region(problem, shares, range(first, end), groups, spread)
        first = end
    routes = _joined(problem, shares)
    return routes if len(set(routes[0].capacity_groups)) > 1 or len(routes) > 1 else None


def _regions(problem: PlacementProblem) -> list[list[int]]:
    """Capacity groups by the cheapest tier that has several sets of several; all together where none has.

    Sets with the most capacity first, and capacity groups as they are numbered.
    """
    for tier in problem.prices.tiers:
        sets = {group: [u for u, own in enumerate(tier.group_u) if own == group] for group in tier.group_u}
        held = [[u for u in own if problem.capacity_u[u]] for own in sets.values()]
        filled = [own for own in held if own]
        if 1 < len(filled) < sum(map(len, filled)):
            return sorted(filled, key=lambda own: -sum(problem.capacity_u[u] for u in own))
    return [[u for u, capacity in enumerate(problem.capacity_u) if capacity]]


def _counts(problem: PlacementProblem, regions: Sequence[Sequence[int]]) -> Iterator[int]:
    """Stage groups in every region: whole ranks as far as the capacity that is not needed allows."""
    left = problem.num_ranks * problem.num_replicas
    spare = sum(problem.capacity_u) - left
    for groups in regions:
        capacity = sum(problem.capacity_u[u] for u in groups)
        count = min(capacity, left)
        rest = count % problem.num_replicas if count < left else 0
        if rest <= spare - (capacity - count):
            spare -= rest
            count -= rest
        left -= count
        yield count


def _fill_region(
    problem: PlacementProblem, shares: list[Share], cells: range, groups: Sequence[int], spread: set[int]
) -> None:
    """These stage groups into these capacity groups, one after another; first these ranks, as evenly as they fit."""
    n, left = problem.num_replicas, {u: problem.capacity_u[u] for u in groups}

    def put(rank: int, u: int, most: int) -> int:
        taken = min(most, left[u])
        shares[rank][u] += taken
        left[u] -= taken
        return taken

    for rank in spread:
        for number, u in enumerate(sorted(groups, key=lambda u: (left[u], u))):
            put(rank, u, -(-(n - shares[rank].total()) // (len(groups) - number)))
    order = iter(groups)
    u, at = next(order), cells.start
    while at < cells.stop:
        rank = at // n
        if rank in spread:
            at += n
        elif left[u]:
            at += put(rank, u, min((rank + 1) * n, cells.stop) - at)
        else:
            u = next(order)


def _joined(problem: PlacementProblem, shares: Sequence[Share]) -> Routes:
    """Replicas through these shares: each remains where it is as far as it can, else it goes the least way.

    Those that go equally far spread over all ends, so that their messages have every link on the way.
    """
    tiers = problem.prices.tiers
    chains: Routes = tuple(RouteCount((u,), count) for u, count in sorted(shares[0].items()) if count)
    for share in shares[1:]:
        evenly = len(chains) * len(share) <= MOST_JOINED
        following = [RouteCount((u,), count) for u, count in (sorted(share.items()) if evenly else share.items())]
        chains = merged(continued(chains, following, partial(_distance, tiers), evenly=evenly))
    return chains


def _distance(tiers: Sequence[Tier], here: int | None, there: int) -> int:
    """Here first, then tiers from the nearest."""
    if here is None or here == there:
        return -1
    return next((number for number, tier in enumerate(tiers) if tier.group_u[here] == tier.group_u[there]), len(tiers))
