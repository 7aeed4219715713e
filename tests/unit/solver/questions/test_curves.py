"""Curves: points with plans and bounds that longer searches do not contradict, monotone where more never hurts."""

from __future__ import annotations

from typing import Any

import pytest

from models.errors import InvalidRequest
from models.worth import Curve, Curves, CurvesAnswer
from solver.network.topology import build_topology
from solver.questions.ask import ask
from solver.questions.curves import changes_over
from solver.questions.more import direction
from solver.questions.searches import changed
from tests.build_request import build_request, cluster
from tests.counted import work_clock
from tests.unit.solver.questions.intervals import CLOSE


def _asked(limit_s: float, over: list[str], factors: list[float], **parts: Any) -> CurvesAnswer:
    request = build_request(options={"time_limit_s": limit_s, "workers": 1}, **parts).model_dump(mode="json")
    document = {"request": request, "over": over, "factors": factors, "options": {"time_limit_s": limit_s}}
    return ask(Curves.model_validate(document), clock=work_clock())


def _crossing() -> dict[str, Any]:
    """Only all buildings together have these GPUs, and the links are narrow."""
    hardware = cluster()
    for link in hardware["links"]:
        link["capacity_bytes_per_s"] = 1e9
    return {"cluster": hardware, "constraints": {"allowed": {"tp": [2], "pp": [2], "dp": [8]}}}


def test_no_short_curve_is_contradicted_by_a_long_one_and_none_rises_where_more_helps() -> None:
    short, long = (_asked(limit_s, ["bandwidth", "latency", "memory"], [0.1, 10.0], **_crossing())
                   for limit_s in (1.0, 2.5))  # fmt: skip
    for one, other in zip(short.curves, long.curves, strict=True):
        assert one.monotone
        assert [point.factor for point in one.points] == [0.1, 1.0, 10.0]
        for first, second in ((one, other), (other, one)):
            _allows(first, second)
        for falling in (one, other):
            values = [point.value for point in falling.points if point.value is not None]
            bounds = [point.lower_bound for point in falling.points if point.lower_bound is not None]
            order = -1 if falling.over == "latency" else 1
            assert values[::order] == sorted(values, reverse=True)
            assert bounds[::order] == sorted(bounds, reverse=True)
    for found in (short, long):
        assert (
            len({point.model_dump_json() for one in found.curves for point in one.points if point.factor == 1.0}) == 1
        )
    bandwidth = long.curves[0].points
    assert bandwidth[0].lower_bound is not None
    assert bandwidth[-1].value is not None
    assert bandwidth[-1].value < bandwidth[0].value  # type: ignore[operator]


def _allows(plans: Curve, bounds: Curve) -> None:
    for one, other in zip(plans.points, bounds.points, strict=True):
        if one.value is not None and other.lower_bound is not None:
            assert other.lower_bound <= one.value * (1.0 + CLOSE)


def test_any_number_may_be_the_axis_and_what_cannot_be_is_said() -> None:
    answer = _asked(8.0, ["/workload/global_batch_sequences"], [0.01, 2.0])  # some times what it takes
    (curve,) = answer.curves
    assert (answer.unit, curve.monotone) == ("s/million tokens", False)
    assert curve.points[0].status == "refused", "a batch of 0.16 sequences is none"
    assert curve.points[0].detail
    assert curve.points[-1].plan is not None


def test_what_a_cluster_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no latency to change"):
        _asked(3.0, ["latency"], [2.0], cluster="h100-b200-one-building")


def test_a_question_that_is_stopped_keeps_what_it_has() -> None:
    heard: list[CurvesAnswer] = []
    question = Curves.model_validate({"request": build_request(), "over": ["memory"], "factors": [2.0]})
    answer = ask(
        question,
        found=heard.append,
        cancelled=lambda: bool(heard) and heard[-1].curves[0].points[0].status == "planned",
    )
    assert [point.status for point in answer.curves[0].points] == ["planned", "not_tried"]
    assert not answer.complete


@pytest.mark.parametrize("name", ["two-buildings", "five-cloud-zones", "single-building"])
def test_delays_that_nobody_stated_are_those_of_the_tiers(name: str) -> None:
    request = build_request(cluster=name)
    times = {factor: changed(request, changes_over(request, "latency", factor), "/over") for factor in (1.0, 3.0)}
    one, three = (build_topology(times[factor].cluster) for factor in (1.0, 3.0))
    assert one.edges == build_topology(request.cluster).edges
    grown = [(thrice.latency_s, once.latency_s) for once, thrice in zip(one.edges, three.edges, strict=True)]
    assert all(thrice == pytest.approx(once) or thrice == pytest.approx(3.0 * once) for thrice, once in grown)
    assert any(thrice > once for thrice, once in grown)
    assert direction(request, times[3.0]) == "less"
