"""The history of a search: every change, thinned to what a chart shows."""

from __future__ import annotations

from solver.search.history import MAX_POINTS, History


def test_a_long_search_keeps_a_readable_number_of_points() -> None:
    history = History()
    for step in range(5_000):
        history.add(float(step), 10.0 - step // 1_000, step / 1_000)
    points = history.points()
    assert len(points) <= MAX_POINTS
    assert points[0].elapsed_s == 0.0
    assert points[-1].lower_bound_s == 4.999
    assert [one.elapsed_s for one in points] == sorted(one.elapsed_s for one in points)
    assert {one.incumbent_s for one in points} == {10.0, 9.0, 8.0, 7.0, 6.0}


def test_what_does_not_change_is_one_point() -> None:
    history = History()
    for step in range(100):
        history.add(float(step), 2.0, 1.0)
    assert len(history.points()) == 1
