"""Rank after rank into capacity groups: everything has its place, and few ranks span two of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.placement.in_order import fill_in_order
from solver.placement.problem import PlacementProblem, Prices, RouteCount, Tier

SPREAD_BEFORE, SPREAD = partial(fill_in_order, before=True), partial(fill_in_order, before=True, after=True)
PATTERNS = (fill_in_order, SPREAD_BEFORE, SPREAD)


def problem(capacity: tuple[int, ...], region_u: tuple[int, ...], ranks: int, replicas: int) -> PlacementProblem:
    """Capacity groups in regions, near and far."""
    far = (0,) * len(capacity)
    prices = Prices((Tier(1.0, region_u), Tier(2.0, far)), (0.1,) * ranks, (0.0,) * len(capacity), 1.0)
    allowed = ((True,) * len(capacity),) * ranks
    return PlacementProblem(ranks, replicas, 8, capacity, tuple(range(len(capacity))), allowed, prices)


def held(routes: tuple[RouteCount, ...], rank: int) -> Counter[int]:
    """Replicas of a rank by capacity group."""
    counts = Counter[int]()
    for route in routes:
        counts[route.capacity_groups[rank]] += route.num_replicas
    return counts


CAPACITIES = st.lists(st.integers(0, 40), min_size=2, max_size=6)


@settings(max_examples=200, deadline=None)
@given(CAPACITIES, st.integers(1, 12), st.integers(1, 12), st.integers(1, 3))
def test_all_ranks_have_all_replicas_and_no_group_has_too_many(
    capacity: list[int], ranks: int, replicas: int, regions: int
) -> None:
    one = problem(tuple(capacity), tuple(u % regions for u in range(len(capacity))), ranks, replicas)
    for pattern in PATTERNS:
        routes = pattern(one)
        if routes is None:
            continue
        by_rank = [held(routes, rank) for rank in range(ranks)]
        assert all(counts.total() == replicas for counts in by_rank)
        used = sum(by_rank, Counter[int]())
        assert all(used[u] <= capacity[u] for u in range(len(capacity)))


@settings(max_examples=100, deadline=None)
@given(CAPACITIES, st.integers(1, 12), st.integers(1, 12))
def test_only_ranks_at_borders_span_capacity_groups(capacity: list[int], ranks: int, replicas: int) -> None:
    routes = fill_in_order(problem(tuple(capacity), (0,) * len(capacity), ranks, replicas))
    if routes is not None:
        borders = sum(len(held(routes, rank)) - 1 for rank in range(ranks))
        assert borders <= len(capacity) - 1


def test_a_region_that_need_not_be_full_ends_with_a_whole_rank() -> None:
    routes = fill_in_order(problem((7, 7, 12), (0, 0, 1), ranks=6, replicas=4))
    assert routes is not None
    assert all(len({0 if u < 2 else 1 for u in held(routes, rank)}) == 1 for rank in range(6))


def test_whole_ranks_beside_a_border_of_regions_lie_spread() -> None:
    one = problem((12, 12, 12, 12), (0, 0, 1, 1), ranks=12, replicas=4)
    before, both = SPREAD_BEFORE(one), SPREAD(one)
    assert before is not None
    assert both is not None
    assert [len(held(before, rank)) for rank in (5, 6)] == [2, 1]
    assert [len(held(both, rank)) for rank in (5, 6)] == [2, 2]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rules_forbid_it(pattern: object) -> None:
    one = problem((12, 12, 12, 12), (0, 0, 1, 1), ranks=12, replicas=4)
    assert callable(pattern)
    assert pattern(replace(one, ranks_may_cross=False)) is None
    assert pattern(replace(one, replicas_may_cross=False)) is None
    assert pattern(replace(one, capacity_u=(11, 12, 12, 12))) is None


def test_replicas_that_change_regions_take_every_link_between_them() -> None:
    """Of two zones in either region each has as many replicas on its way to both of the other."""
    routes = SPREAD(problem((12, 12, 12, 12), (0, 0, 1, 1), 6, 8))
    assert routes is not None
    far = Counter[tuple[int, int]]()
    for route in routes:
        ways = zip(route.capacity_groups, route.capacity_groups[1:], strict=False)
        far.update({way: route.num_replicas for way in ways if way[0] // 2 != way[1] // 2})
    assert far == {(0, 2): 2, (0, 3): 2, (1, 2): 2, (1, 3): 2}
