"""Placements: exact counts over routes, whatever the capacities, pins and rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, groupby, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.placement.fill import fill
from solver.placement.least_spans import least_span_s
from solver.placement.model import RankBlockModel
from solver.placement.problem import (
    MinimumReplicas,
    PlacementProblem,
    Prices,
    RouteCount,
    Tier,
    loss_s,
    minimums_hold,
    num_crossings,
)
from solver.placement.solve import place
from solver.placement.strategies import (
    keep_ranks_in_groups,
    keep_ranks_whole,
    keep_replicas_in_groups,
    keep_replicas_whole,
    spread_end_ranks,
)


def problem(capacity: tuple[int, ...], *, ranks: int = 4, replicas: int = 4, **changes: object) -> PlacementProblem:
    """Units in buildings of their own, every crossing 1 s, exchanges 0.1 s per rank that spans buildings."""
    num_groups = len(capacity)
    prices = Prices((Tier(1.0, (0,) * num_groups),), span_s=(0.1,) * ranks, slot_b=(0.0,) * num_groups, work_s=1.0)
    values = {
        "num_ranks": ranks,
        "num_replicas": replicas,
        "num_microbatches": 8,
        "capacity_u": capacity,
        "building_u": tuple(range(num_groups)),
        "allowed_pu": ((True,) * num_groups,) * ranks,
        "prices": prices,
    }
    return PlacementProblem(**{**values, **changes})  # type: ignore[arg-type]


def used(routes: tuple[RouteCount, ...], num_groups: int) -> list[int]:
    return [sum(route.num_replicas * route.capacity_groups.count(u) for route in routes) for u in range(num_groups)]


def solved(one: PlacementProblem) -> tuple[RouteCount, ...]:
    solution = place(one, time_limit_s=10)
    assert solution is not None
    assert solution.proven
    return solution.routes


def test_replicas_that_fit_whole_never_cross() -> None:
    routes = keep_replicas_whole(problem((8, 8)))
    assert routes == (RouteCount((0,) * 4, 2), RouteCount((1,) * 4, 2))


def test_leftovers_of_unequal_units_are_stitched_into_replicas() -> None:
    routes = keep_replicas_whole(problem((10, 6)))
    assert routes is not None
    assert sum(route.num_replicas for route in routes) == 4
    assert used(routes, 2) == [10, 6]


def test_ranks_kept_whole_share_one_route() -> None:
    assert keep_ranks_whole(problem((8, 8))) == (RouteCount((0, 0, 1, 1), 4),)


def test_ranks_kept_whole_need_room_for_all_their_replicas() -> None:
    assert keep_ranks_whole(problem((3, 13), ranks=4, replicas=4)) is None


def in_groups(capacity: tuple[int, ...], groups: tuple[int, ...], **changes: object) -> PlacementProblem:
    """The same in regions: near crossings cost 0.1 s."""
    one = problem(capacity, **changes)  # type: ignore[arg-type]
    tiers = (Tier(0.1, groups), Tier(1.0, (0,) * len(capacity)))
    return replace(one, prices=replace(one.prices, tiers=tiers))


def test_the_pipeline_crosses_regions_and_replicas_spread_inside_them() -> None:
    routes = keep_ranks_in_groups(in_groups((4, 4, 4, 4), (0, 0, 1, 1)))
    ways = [(0, 0, 2, 2), (0, 0, 3, 3), (1, 1, 2, 2), (1, 1, 3, 3)]
    assert routes == tuple(RouteCount(way, 1) for way in ways)  # every link between the regions


def test_unequal_buildings_of_a_region_share_the_replicas_of_its_ranks() -> None:
    routes = keep_ranks_in_groups(in_groups((6, 2, 3, 5), (0, 0, 1, 1)))
    assert routes is not None
    assert used(routes, 4) == [6, 2, 3, 5]
    assert {tuple(u // 2 for u in route.capacity_groups) for route in routes} == {(0, 0, 1, 1)}


def test_without_several_regions_there_is_nothing_between_the_pure_patterns() -> None:
    assert keep_ranks_in_groups(problem((8, 8))) is None
    assert keep_ranks_in_groups(in_groups((16, 8, 0, 0), (0, 0, 1, 1))) is None


def test_replicas_are_shared_out_over_regions_and_the_pipeline_crosses_inside_them() -> None:
    routes = keep_replicas_in_groups(in_groups((4, 4, 4, 4), (0, 0, 1, 1)))
    assert routes == (RouteCount((0, 0, 1, 1), 2), RouteCount((2, 2, 3, 3), 2))


def test_a_rank_spans_two_buildings_of_a_region_where_it_fits_into_neither() -> None:
    routes = keep_replicas_in_groups(in_groups((6, 6, 4, 4), (0, 0, 1, 1), replicas=5))
    assert routes is not None
    assert used(routes, 4) == [6, 6, 4, 4]
    assert {tuple(u // 2 for u in route.capacity_groups) for route in routes} == {(0, 0, 0, 0), (1, 1, 1, 1)}


@pytest.mark.parametrize("capacity", [(16, 8, 0, 0), (16, 0, 8, 0), (7, 3, 3, 3)])
def test_replicas_are_not_shared_out_over_one_region_nor_where_some_fit_nowhere(capacity: tuple[int, ...]) -> None:
    """All of them in one region, or each in one building, are placements that other forms give."""
    assert keep_replicas_in_groups(in_groups(capacity, (0, 0, 1, 1))) is None


def test_replicas_are_not_lost_where_their_ranks_have_room_one_by_one_only() -> None:
    """The larger region has room for rank 0 of six replicas and for ranks 1 and 2 of six, but not for all three."""
    ways = ((True, False, True, False), (True,) * 4, (True,) * 4)
    one = in_groups((2, 4, 6, 6), (0, 0, 1, 1), ranks=3, replicas=8)
    assert keep_replicas_in_groups(replace(one, allowed_pu=ways)) is None


def test_no_replica_is_shared_out_where_a_rule_forbids_it() -> None:
    free = in_groups((4, 4, 4, 4), (0, 0, 1, 1))
    assert keep_replicas_in_groups(replace(free, ranks_may_cross=False)) is None
    assert keep_replicas_in_groups(replace(free, replicas_may_cross=False)) is None


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 4), st.data())
@settings(max_examples=120, deadline=None)
def test_replicas_in_regions_fill_exactly_what_they_may(
    capacity: list[int], ranks: int, replicas: int, data: st.DataObject
) -> None:
    groups, num = tuple(u // 2 for u in range(len(capacity))), len(capacity)
    free = in_groups(tuple(capacity), groups, ranks=ranks, replicas=replicas)
    kinds = data.draw(st.lists(st.lists(st.booleans(), min_size=num, max_size=num).map(tuple), min_size=1, max_size=2))
    allowed = tuple(data.draw(st.sampled_from([*kinds, (True,) * num])) for _ in range(ranks))
    routes = keep_replicas_in_groups(replace(free, allowed_pu=allowed))
    if routes is not None:
        assert sum(route.num_replicas for route in routes) == replicas
        assert all(len(route.capacity_groups) == ranks for route in routes)
        assert all(taken <= own for taken, own in zip(used(routes, num), capacity, strict=True))
        assert all(len({groups[u] for u in route.capacity_groups}) == 1 for route in routes)
        assert all(may[u] for route in routes for may, u in zip(allowed, route.capacity_groups, strict=True))


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_regions_fill_exactly_what_they_may(capacity: list[int], ranks: int, replicas: int) -> None:
    groups = tuple(u // 2 for u in range(len(capacity)))
    routes = keep_ranks_in_groups(in_groups(tuple(capacity), groups, ranks=ranks, replicas=replicas))
    if routes is not None:
        assert sum(route.num_replicas for route in routes) == replicas
        assert all(len(route.capacity_groups) == ranks for route in routes)
        assert all(taken <= capacity for taken, capacity in zip(used(routes, len(capacity)), capacity, strict=True))
        assert len({tuple(groups[u] for u in route.capacity_groups) for route in routes}) == 1


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_every_pattern_fills_exactly_what_it_may(capacity: list[int], ranks: int, replicas: int) -> None:
    one = problem(tuple(capacity), ranks=ranks, replicas=replicas)
    for routes in (keep_replicas_whole(one), keep_ranks_whole(one), spread_end_ranks(one)):
        if routes is not None:
            assert sum(route.num_replicas for route in routes) == replicas
            assert all(len(route.capacity_groups) == ranks for route in routes)
            assert all(taken <= capacity for taken, capacity in zip(used(routes, len(capacity)), capacity, strict=True))
    if keep_replicas_whole(one) is None:
        assert sum(capacity) < ranks * replicas


def test_replicas_in_a_line_are_cut_once_where_a_capacity_group_ends() -> None:
    routes = keep_replicas_whole(problem((10, 11, 10, 11), ranks=6, replicas=7))
    assert routes is not None
    assert max(num_crossings(route.capacity_groups) for route in routes) == 1


def test_ranks_stay_whole_where_they_fit_and_the_others_spread_in_one_block() -> None:
    one = problem((9, 5, 5, 5), ranks=3, replicas=8)
    routes = spread_end_ranks(one)
    assert routes is not None
    assert sum(len({route.capacity_groups[p] for route in routes}) == 1 for p in range(3)) == 1
    assert max(num_crossings(route.capacity_groups) for route in routes) <= 2


@pytest.mark.parametrize(("crossings", "spans"), [(0, 4), (1, 3), (2, 2), (3, 1)])
def test_exchanges_that_no_route_saves(crossings: int, spans: int) -> None:
    one = problem((6, 5, 5), ranks=4, replicas=4)
    tier = one.prices.tiers[0]
    assert least_span_s(one, tier, crossings) == pytest.approx(0.1 * spans)


def best_by_hand(one: PlacementProblem) -> float:
    """Least loss over every assignment of every replica, by the definition in `loss_s`."""
    routes = list(product(range(one.num_capacity_groups), repeat=one.num_ranks))
    fits = [
        chosen
        for chosen in combinations_with_replacement(routes, one.num_replicas)
        if all(sum(route.count(u) for route in chosen) <= capacity for u, capacity in enumerate(one.capacity_u))
        and (one.replicas_may_cross or all(len({route[p] for route in chosen}) == 1 for p in range(one.num_ranks)))
        and (one.ranks_may_cross or all(len(set(route)) == 1 for route in chosen))
    ]
    return min((loss_s(one, tuple(RouteCount(route, 1) for route in chosen)) for chosen in fits), default=float("inf"))


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([(1.0, 3.0, 0.1), (0.05, 0.1, 1.0), (0.2, 0.2, 0.3)]),
    st.sampled_from([0.0, 0.02, 0.4]),
    st.sampled_from([(True, True), (False, True), (True, False)]),
)
@settings(max_examples=80, deadline=None)
def test_the_rank_block_programme_is_as_good_as_brute_force(
    capacity: list[int],
    ranks: int,
    replicas: int,
    costs: tuple[float, float, float],
    slot_s: float,
    rules: tuple[bool, bool],
) -> None:
    num_groups, (near, far, span) = len(capacity), costs
    tiers = (Tier(near, tuple(u // 2 for u in range(num_groups))), Tier(far, (0,) * num_groups))
    prices = Prices(tiers, tuple(span * (p + 1) for p in range(ranks)), slot_b=(slot_s,) * num_groups, work_s=0.1)
    one = problem(tuple(capacity), ranks=ranks, replicas=replicas, prices=prices)
    one = replace(one, ranks_may_cross=rules[0], replicas_may_cross=rules[1])
    solution, least = place(one, time_limit_s=10), best_by_hand(one)
    if solution is None:
        assert least == float("inf")
    else:
        assert solution.proven
        assert loss_s(one, solution.routes) == pytest.approx(least, abs=1e-4)
        assert solution.bound_s <= least + 1e-9


def test_the_programme_does_not_grow_with_the_replicas() -> None:
    few, many = problem((9, 7)), problem((9000, 7000), replicas=4000)
    models = [RankBlockModel(one, one.prices.tiers[0], 2) for one in (few, many)]
    assert len(models[0].programme.cost) == len(models[1].programme.cost)
    assert len(models[0].programme.rows) == len(models[1].programme.rows)


def test_buildings_keep_at_least_two_ranks_together_when_asked() -> None:
    assert any(len(list(block)) < 2 for route in solved(problem((9, 7))) for _, block in groupby(route.capacity_groups))
    assert place(problem((9, 7), least_block=2), time_limit_s=10) is None
    one = problem((10, 6), least_block=2)
    for route in solved(one):
        assert all(len(list(block)) >= 2 for _, block in groupby(route.capacity_groups))


def test_replicas_that_stay_whole_are_shared_out_as_pins_want() -> None:
    """Two ranks of four replicas: two replicas in the first building, where there is more, and two in the second."""
    pins = (MinimumReplicas(range(1), (0,), 1), MinimumReplicas(range(1, 2), (1,), 2))
    one = problem((16, 6), ranks=2, minimums=pins, ranks_may_cross=False)
    routes = solved(one)
    assert minimums_hold(one, routes)
    assert {route.capacity_groups: route.num_replicas for route in routes} == {(0, 0): 2, (1, 1): 2}
    assert place(replace(one, capacity_u=(16, 2)), time_limit_s=10) is None


def test_pins_and_minimums_are_obeyed() -> None:
    allowed = ((True, False), *((True, True),) * 3)
    assert all(route.capacity_groups[0] == 0 for route in solved(problem((8, 8), allowed_pu=allowed)))
    routes = solved(problem((8, 8), minimums=(MinimumReplicas(range(3, 4), (1,), 3),)))
    assert sum(route.num_replicas for route in routes if route.capacity_groups[3] == 1) >= 3


def test_no_more_replicas_obey_a_pin_than_there_are() -> None:
    assert place(problem((8, 8), minimums=(MinimumReplicas(range(1), (0,), 5),)), time_limit_s=10) is None


def placed_by_trying_all(one: PlacementProblem) -> list[tuple[RouteCount, ...]]:
    """Every multiset of routes within capacity that obeys the pins with counts."""
    groups = range(one.num_capacity_groups)
    found = []
    for chosen in combinations_with_replacement(product(groups, repeat=one.num_ranks), one.num_replicas):
        routes = tuple(RouteCount(groups_p, 1) for groups_p in chosen)
        within = all(number <= most for number, most in zip(used(routes, len(groups)), one.capacity_u, strict=True))
        if within and minimums_hold(one, routes):
            found.append(routes)
    return found


@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=3),
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 3), st.sets(st.integers(0, 2), min_size=1), st.integers(1, 3))
    ),
)
@settings(max_examples=60, deadline=None)
def test_the_same_replicas_obey_a_pin_of_several_ranks(
    capacity: list[int], drawn: list[tuple[int, int, set[int], int]]
) -> None:
    pins = tuple(
        MinimumReplicas(range(first, min(first + length, 3)), tuple(sorted(groups)), least)
        for first, length, groups, least in drawn[:2]
    )
    one = problem(tuple(capacity), ranks=3, replicas=3, minimums=pins)
    all_of_them, solution = placed_by_trying_all(one), place(one, time_limit_s=10)
    assert (solution is None) == (not all_of_them)
    if solution is not None:
        assert minimums_hold(one, solution.routes)
        assert loss_s(one, solution.routes) == pytest.approx(min(loss_s(one, routes) for routes in all_of_them))


def test_crossing_can_be_switched_off() -> None:
    assert all(len(set(route.capacity_groups)) == 1 for route in solved(problem((8, 8), ranks_may_cross=False)))
    routes = solved(problem((16, 16), replicas_may_cross=False))
    assert all(len({route.capacity_groups[p] for route in routes}) == 1 for p in range(4))


def test_too_little_room_has_no_placement() -> None:
    assert place(problem((7, 8)), time_limit_s=10) is None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 3), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_filling_pools_uses_every_slot_once(groups: list[int], ranks: int, replicas: int) -> None:
    replicas = min(replicas, sum(groups) // ranks)
    if replicas == 0:
        return
    filled = fill((RouteCount((0,) * ranks, replicas),), [list(enumerate(groups))])
    slots = [
        (pool, first + offset)
        for route in filled
        for pool, first in zip(route.pools, route.first_group, strict=True)
        for offset in range(route.num_replicas)
    ]
    assert len(slots) == len(set(slots)) == ranks * replicas
    assert all(slot < groups[pool] for pool, slot in slots)
