"""Segments of the pipeline on given capacity groups: each replica's part together, and on in the nearest one."""

from __future__ import annotations

from solver.placement.problem import Prices, RouteCount, Tier
from solver.placement.strategies import keep_segments_whole
from tests.unit.solver.placement.test_placement import problem, used

FAST, SLOW = frozenset({0, 2}), frozenset({1, 3})
REGIONS = Prices((Tier(1.0, (0, 0, 1, 1)), Tier(5.0, (0,) * 4)), span_s=(0.1,) * 3, slot_b=(0.0,) * 4, work_s=1.0)


def test_replicas_go_on_in_the_nearest_capacity_group() -> None:
    regional = problem((2, 4, 2, 4), ranks=3, prices=REGIONS)
    assert keep_segments_whole(regional, ((1, FAST), (2, SLOW))) == (
        RouteCount((0, 1, 1), 2),
        RouteCount((2, 3, 3), 2),
    )


def test_leftovers_are_stitched_inside_the_segment() -> None:
    routes = keep_segments_whole(problem((3, 5, 1, 3), ranks=3), ((1, FAST), (2, SLOW)))
    assert routes is not None
    assert sum(route.num_replicas for route in routes) == 4
    assert used(routes, 4) == [3, 5, 1, 3]
    assert all(route.capacity_groups[0] in FAST and {*route.capacity_groups[1:]} <= SLOW for route in routes)


def test_rules_are_kept() -> None:
    segments = ((1, FAST), (2, SLOW))
    assert keep_segments_whole(problem((4, 8, 0, 0), ranks=3, ranks_may_cross=False), segments) is None
    assert keep_segments_whole(problem((2, 4, 2, 4), ranks=3, replicas_may_cross=False), segments) is None
    assert keep_segments_whole(problem((4, 8, 0, 0), ranks=3, replicas_may_cross=False), segments) is not None
    assert keep_segments_whole(problem((3, 8, 0, 0), ranks=3), segments) is None
