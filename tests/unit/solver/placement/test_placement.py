"""Placements: exact counts over routes, whatever the capacities, pins and rules."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.placement.fill import fill
from solver.placement.problem import MinimumReplicas, PlacementProblem, Prices, RouteCount
from solver.placement.solve import place, whole_replicas
from solver.placement.strategies import keep_ranks_whole, keep_replicas_whole


def problem(capacity: tuple[int, ...], *, ranks: int = 4, replicas: int = 4, **changes: object) -> PlacementProblem:
    """Units in buildings of their own, every boundary 1 s, exchanges 0.1 s per rank and further building."""
    units = len(capacity)
    prices = Prices(
        boundary_s=tuple(tuple(0.0 if u == v else 1.0 for v in range(units)) for u in range(units)),
        slot_s=tuple(tuple(0.0 for _ in range(units)) for _ in range(units)),
        work_s=1.0,
        span_s=(0.1,) * ranks,
    )
    values = {
        "num_ranks": ranks,
        "num_replicas": replicas,
        "num_microbatches": 8,
        "capacity_u": capacity,
        "building_u": tuple(range(units)),
        "allowed_pu": ((True,) * units,) * ranks,
        "prices": prices,
    }
    return PlacementProblem(**{**values, **changes})  # type: ignore[arg-type]


def used(routes: tuple[RouteCount, ...], units: int) -> list[int]:
    return [sum(route.num_replicas * route.units.count(u) for route in routes) for u in range(units)]


def solved(one: PlacementProblem) -> tuple[RouteCount, ...]:
    solution = place(one, time_limit_s=10, workers=1, seed=0)
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


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_every_pattern_fills_exactly_what_it_may(capacity: list[int], ranks: int, replicas: int) -> None:
    one = problem(tuple(capacity), ranks=ranks, replicas=replicas)
    for routes in (keep_replicas_whole(one), keep_ranks_whole(one)):
        if routes is not None:
            assert sum(route.num_replicas for route in routes) == replicas
            assert all(len(route.units) == ranks for route in routes)
            assert all(taken <= room for taken, room in zip(used(routes, len(capacity)), capacity, strict=True))
    if keep_replicas_whole(one) is None:
        assert sum(capacity) < ranks * replicas


def priced(one: PlacementProblem, assignment: tuple[tuple[int, ...], ...]) -> float:
    """Objective of replicas placed one by one, by the definition in `Prices`."""
    prices = one.prices
    boundary = sum(
        max(prices.boundary_s[replica[p]][replica[p + 1]] for replica in assignment) for p in range(one.num_ranks - 1)
    )
    spans = sum(prices.span_s[p] * len({replica[p] for replica in assignment}) for p in range(one.num_ranks))
    return boundary + spans


@pytest.mark.parametrize("capacity", [(4, 2), (3, 3), (5, 2), (2, 2, 3)])
def test_the_integer_flow_is_as_good_as_brute_force(capacity: tuple[int, ...]) -> None:
    one = problem(capacity, ranks=3, replicas=2)
    paths = list(product(range(len(capacity)), repeat=3))
    fits = [
        pair
        for pair in product(paths, repeat=2)
        if all(sum(path.count(u) for path in pair) <= room for u, room in enumerate(capacity))
    ]
    solution = place(one, time_limit_s=10, workers=1, seed=0)
    assert solution is not None
    assert solution.objective_s == pytest.approx(min(priced(one, pair) for pair in fits), abs=1e-5)


def test_pins_and_minimums_are_obeyed() -> None:
    allowed = ((True, False), *((True, True),) * 3)
    assert all(route.units[0] == 0 for route in solved(problem((8, 8), allowed_pu=allowed)))
    routes = solved(problem((8, 8), minimums=(MinimumReplicas(3, (1,), 3),)))
    assert sum(route.num_replicas for route in routes if route.units[3] == 1) >= 3


def test_crossing_can_be_switched_off() -> None:
    assert all(len(set(route.units)) == 1 for route in solved(problem((8, 8), ranks_may_cross=False)))
    routes = solved(problem((16, 16), replicas_may_cross=False))
    assert all(len({route.units[p] for route in routes}) == 1 for p in range(4))


def test_too_little_room_has_no_placement() -> None:
    assert place(problem((7, 8)), time_limit_s=10, workers=1, seed=0) is None
    assert sum(route.num_replicas for route in whole_replicas(problem((7, 8)))) == 3


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
