"""PyTorch runs the exported schedules: as fast as predicted, ranked as predicted, with the unpipelined gradients.

Wall times are asserted here and nowhere else, because they are what is claimed: each operation takes tens of
milliseconds, of which a process sleeps most, and the median of the repetitions counts.
"""

from __future__ import annotations

from itertools import combinations

import pytest

from app.replay.case import replay_case
from app.replay.job import ReplayJob
from app.replay.launch import Measured, execute
from tests.torch.cases import DELAYS, LAYOUTS, OURS, problem, schedule

UNIT_S = 0.05  # real time of a planned unit: a forward of a whole stage
TOLERANCE = 0.10
ALIKE = 0.02  # predictions closer than this are no ranking

Figures = dict[tuple[str, float], Measured]
WITH_MESSAGES = ("ours", "zbv", "interleaved")  # the export with communication, too, at the middle delay
CASES = [(name, delay) for delay in DELAYS for name in LAYOUTS]


@pytest.fixture(scope="module")
def figures(request: pytest.FixtureRequest) -> Figures:
    """Every schedule at every delay, executed by the same four processes."""
    cases = []
    for name, delay in CASES:
        asked = problem(name, delay)
        found = schedule(name, asked)
        spans = [end - start for row in found.ranks for start, end in zip(row.start_s, row.end_s, strict=True)]
        cases.append(replay_case(name, asked, found, UNIT_S * sum(spans) / len(spans)))
    measured = execute(ReplayJob(cases=tuple(cases), num_repetitions=3))
    for (_, delay), one in zip(CASES, measured, strict=True):
        request.config.get_terminal_writer().line(
            f"{one.name:12} delay {delay:g}: predicted {one.predicted_s:.3f} s, measured {one.measured_s:.3f} s, "
            f"ratio {one.ratio:.3f}, gradients differ by {one.gradient_difference:.1e}"
        )
    return dict(zip(CASES, measured, strict=True))


@pytest.mark.parametrize(("name", "delay"), CASES)
def test_the_measured_time_is_the_predicted_one(figures: Figures, name: str, delay: float) -> None:
    assert figures[name, delay].ratio == pytest.approx(1.0, abs=TOLERANCE)


@pytest.mark.parametrize(("name", "delay"), CASES)
def test_the_operations_run_in_the_exported_order(figures: Figures, name: str, delay: float) -> None:
    assert figures[name, delay].same_order


@pytest.mark.parametrize(("name", "delay"), CASES)
def test_loss_gradients_and_parameters_are_those_of_the_unpipelined_model(
    figures: Figures, name: str, delay: float
) -> None:
    one = figures[name, delay]
    assert one.same_result, one
    assert one.largest_gradient > 1e-3, "nothing to compare"


@pytest.mark.parametrize("delay", DELAYS)
def test_schedules_rank_as_predicted(figures: Figures, delay: float) -> None:
    for one, other in combinations([figures[name, delay] for name in LAYOUTS], 2):
        faster, slower = sorted((one, other), key=lambda each: each.predicted_s)
        if slower.predicted_s > faster.predicted_s * (1 + ALIKE):
            assert faster.measured_s < slower.measured_s, (faster, slower)


@pytest.mark.parametrize("delay", [delay for delay in DELAYS if delay > 0])
def test_ours_is_the_fastest_where_the_buildings_are_apart(figures: Figures, delay: float) -> None:
    others = [figures[name, delay].measured_s for name in LAYOUTS if name != OURS]
    assert figures[OURS, delay].measured_s < min(others)


@pytest.fixture(scope="module")
def with_messages() -> tuple[Measured, ...]:
    """The same from the export with communication, once each."""
    asked = [problem(name, DELAYS[1]) for name in WITH_MESSAGES]
    cases = [
        replay_case(name, one, schedule(name, one), planned_messages=True)
        for name, one in zip(WITH_MESSAGES, asked, strict=True)
    ]
    return execute(ReplayJob(cases=tuple(cases), num_warm_ups=1, num_repetitions=1))


def test_the_export_with_communication_runs_as_exported_with_the_same_gradients(
    with_messages: tuple[Measured, ...],
) -> None:
    for one in with_messages:
        assert one.same_order, one.name
        assert one.same_result, one


def test_the_delay_is_felt(figures: Figures) -> None:
    assert figures["one_f_one_b", 4.0].measured_s > 1.5 * figures["one_f_one_b", 0.0].measured_s
