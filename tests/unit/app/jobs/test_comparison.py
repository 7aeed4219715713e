"""Two plans side by side with their error bars and gaps: what both share cancels, and the order does not matter."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.jobs.comparison import comparison, predicted
from app.jobs.search import headline_of
from models.outcome import Planned
from models.plan import Plan
from models.prediction import Interval, Prediction
from models.statements import PROVEN
from tests.unit.app.fake_solver import tiny_plan

SIZES = st.floats(-0.2, 0.2)


def _plan(iteration_s: float, errors: tuple[float, ...] = (), *, run: float = 0.04, family: float = 0.06) -> Plan:
    """A plan that takes so long, give or take these errors."""
    around = Interval(p10=iteration_s * 0.9, p50=iteration_s, p90=iteration_s * 1.1)
    bars = Prediction(iteration_s=around, tokens_per_s=around, peak_memory_bytes=around, fits_probability=0.9,
                      evidence=(), common_errors=errors, family_spread=family, run_spread=run)  # fmt: skip
    return tiny_plan(iteration_s).model_copy(update={"prediction": bars})


@settings(deadline=None)
@given(shared=st.tuples(SIZES, SIZES, SIZES), first=st.floats(2.0, 9.0), second=st.floats(2.0, 9.0))
def test_errors_that_two_plans_of_a_job_share_cancel(shared: tuple[float, ...], first: float, second: float) -> None:
    found = predicted(_plan(first, shared), _plan(second, shared), same_job=True)
    alone = predicted(_plan(first), _plan(second), same_job=True)
    assert found is not None
    assert alone is not None
    assert found["time_ratio"] == alone["time_ratio"]
    assert math.log(found["time_ratio"].p90 / found["time_ratio"].p50) == pytest.approx(1.2815516 * 0.04 * 2**0.5)


@settings(deadline=None)
@given(one=st.tuples(SIZES, SIZES), other=st.tuples(SIZES, SIZES), first=st.floats(2.0, 9.0), second=st.floats(2, 9))
def test_the_order_of_the_plans_turns_the_ratio_over(
    one: tuple[float, ...], other: tuple[float, ...], first: float, second: float
) -> None:
    there = predicted(_plan(first, one), _plan(second, other), same_job=True)
    back = predicted(_plan(second, other), _plan(first, one), same_job=True)
    assert there is not None
    assert back is not None
    assert there["time_ratio"].p10 * back["time_ratio"].p90 == pytest.approx(1)
    assert there["b_faster_probability"] + back["b_faster_probability"] == pytest.approx(1)


def test_different_jobs_are_compared_less_surely() -> None:
    same, other = (predicted(_plan(3.0), _plan(4.0), same_job=known) for known in (True, False))
    assert same is not None
    assert other is not None
    assert other["time_ratio"].p10 < same["time_ratio"].p10 < same["time_ratio"].p90 < other["time_ratio"].p90


def test_plans_without_error_bars_or_of_other_software_have_no_ratio() -> None:
    assert predicted(_plan(3.0), tiny_plan(3.0), same_job=True) is None
    other = _plan(3.0).model_copy(update={"stack_profile": "another"})
    assert predicted(_plan(3.0), other, same_job=True) is None
    assert predicted(_plan(3.0, (0.1,)), _plan(3.0), same_job=True) is None, "another version of the profile"


def test_the_difference_of_the_best_plans_lies_between_bounds_and_plans() -> None:
    between = comparison(_plan(3.0), _plan(4.0))["best_plans_s"]
    assert between == {"least": 1.0 - 3.0, "most": 4.0 - 1.0}, "the made-up plans have a bound of 1 s"


@pytest.mark.parametrize(
    "kind", ["cost_per_token", "fewest_gpus", "least_cross_building_traffic", "time_at_confidence"]
)
def test_a_bound_of_another_objective_says_nothing_of_the_time(kind: str) -> None:
    """Its plan may be the best of its objective, which leaves no gap, and one in less time may exist all the same."""
    slow = _plan(4.0)
    proof = slow.proof.model_copy(update={"proven": PROVEN[kind], "lower_bound_s": 4.0, "speed_of_light_s": 0.25})
    slow = slow.model_copy(update={"proof": proof})
    found = comparison(_plan(3.0), slow)
    assert found["best_plans_s"] == {"least": 0.25 - 3.0, "most": 4.0 - 1.0}
    assert found["figures"]["lower_bound_s"] == {"a": 1.0, "b": None, "change": None}
    planned = Planned(plan=slow, complete=True, elapsed_s=0.0).model_dump_json().encode()
    figures = json.loads(headline_of(planned))
    assert (figures["lower_bound_s"], figures["relative_gap"]) == (None, proof.relative_gap)
