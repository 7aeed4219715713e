"""What is drawn and what is cut make up the whole iteration, and the account of a cut is right."""

from __future__ import annotations

from functools import cache

import pytest

from app.exporters.report.scene import Scene
from app.exporters.report.timings import Timing, timings
from app.exporters.report.windows import cuts, windows
from tests.build_report import build_report_plan, build_report_request


@cache
def _timing(num_ranks: int, num_microbatches: int) -> tuple[Timing, float]:
    plan = build_report_plan(num_ranks=num_ranks, num_microbatches=num_microbatches)
    [found] = timings(Scene(plan, build_report_request()))
    return found, max(found.end_s, plan.metrics.iteration_s)


@pytest.mark.parametrize("shape", [(2, 1), (4, 6), (4, 60), (16, 64), (16, 512)])
@pytest.mark.parametrize("tail_s", [0.0, 0.05, 60.0])
def test_windows_and_cuts_cover_the_iteration_without_overlap(shape: tuple[int, int], tail_s: float) -> None:
    timing, end_s = _timing(*shape)
    end_s += tail_s
    shown = windows(timing, end_s)
    at_s = 0.0
    for window, cut in zip(shown, cuts(timing, shown, end_s), strict=True):
        assert window.start_s == pytest.approx(at_s)
        assert window.end_s > window.start_s
        at_s = window.end_s
        if cut is not None:
            assert cut.start_s == pytest.approx(at_s)
            at_s = cut.end_s
    assert at_s == pytest.approx(end_s)


def test_a_short_timeline_is_drawn_whole() -> None:
    timing, end_s = _timing(4, 6)
    assert [one.name for one in windows(timing, end_s)] == ["The whole iteration"]


def test_a_long_tail_is_told_and_not_drawn() -> None:
    timing, _ = _timing(4, 6)
    shown = windows(timing, 60.0)
    *between, cut = cuts(timing, shown, 60.0)
    assert between == [None] * (len(shown) - 1)
    assert cut is not None
    assert (cut.num_operations, cut.busy_share, cut.end_s) == (0, 0.0, 60.0)


def test_the_account_of_a_cut_counts_operations_and_work() -> None:
    timing, end_s = _timing(16, 512)
    shown = windows(timing, end_s)
    first, _second, last = cuts(timing, shown, end_s)
    assert last is None
    assert first is not None
    inside = [bar for row in timing.rows for bar in row if first.start_s <= bar.start_s and bar.end_s <= first.end_s]
    assert first.num_operations == len(inside) > 1000
    # 1F1B keeps every rank busy between fill and drain but for the hop to the other building
    assert 0.8 < first.busy_share <= 1.0


def test_routes_that_run_alike_are_one_timing() -> None:
    plan = build_report_plan()
    document = plan.model_dump()
    route = {**document["placement"]["routes"][0], "id": "r1"}
    document["placement"]["routes"] = (*document["placement"]["routes"], route)
    document["timelines"] = (*document["timelines"], {**document["timelines"][0], "route": "r1"})
    twice = type(plan).model_validate(document)
    assert [one.routes for one in timings(Scene(twice, None))] == [("r0", "r1")]
