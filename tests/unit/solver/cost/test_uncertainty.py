"""Error bars: what plans share cancels in their difference, and what nobody measured is said."""

import numpy as np
import pytest

from models.catalogue import entry_names
from models.stack import GenerationConstant, StackProfile, Uncertainty, generation_of, packaged_stack
from solver.cost.job import job_of
from solver.cost.layer import Setting
from solver.cost.uncertainty import evidence_warnings, log_slopes, prediction, probability_faster, time_factor
from tests.unit.solver.cost.samples import A100, fabric, random_columns, workload

JOB = job_of(workload())
COLUMNS = random_columns(4, seed=3)
STACK = StackProfile(
    name="doubtful",
    uncertainty=Uncertainty(names=("gemm_efficiency",), factors=((0.1,),), family_spread_dense=0.1, run_spread=0.02),
)


def of(row: int, iteration_s: float, stack: StackProfile = STACK):
    """Error bars of one configuration."""
    columns = COLUMNS.take(np.array([row]))
    gpu_types = [(A100, fabric())]
    return prediction(JOB, stack, columns, gpu_types, iteration_s=iteration_s, memory=[(7e10, 8e10)])


def faster(one, other) -> float:
    """Probability that the first plan takes less time than the second."""
    return probability_faster(one, other.iteration_s.p50, other.common_errors)


def test_figures_are_ordered_and_centred_on_the_plan():
    bars = of(0, 2.0)
    assert bars.iteration_s.p10 < bars.iteration_s.p50 == 2.0 < bars.iteration_s.p90
    assert bars.tokens_per_s.p50 * 2.0 == pytest.approx(JOB.tokens_per_iteration)
    assert 0.5 < bars.fits_probability < 1.0


def test_a_faster_unit_never_slows_a_step_down():
    names = ("gemm_efficiency", "attention_efficiency", "elementwise_traffic", "step_host_s")
    slopes = log_slopes(Setting.of(JOB, A100, fabric(), STACK, COLUMNS), names)
    assert slopes.shape == (len(COLUMNS), len(names))
    assert slopes[0, :2].max() < 0
    assert slopes[:, :2].max() <= 0  # launches alone set the pace of small layers
    assert slopes[:, 2:].min() >= 0
    assert abs(slopes[:, 0]).max() <= 1.01


def test_a_common_error_cancels_between_two_plans():
    one, other = of(0, 1.0), of(0, 1.06)
    alone = (one.iteration_s.p90 / one.iteration_s.p50 - 1.0) / 1.28
    assert alone > 0.1  # each time is known to 10 % only
    assert faster(one, other) > 0.95  # but 6 % between them are certain
    assert faster(one, one) == pytest.approx(0.5)
    assert faster(one, other) + faster(other, one) == pytest.approx(1.0)


def test_a_class_that_nobody_measured_is_warned_of():
    bars = of(0, 1.0)
    assert [one.rows for one in bars.evidence] == [0]
    assert "No measured run of dense training" in evidence_warnings(STACK, bars.evidence)[0].detail


def test_generations_differ_within_a_profile():
    stack = StackProfile(
        name="own", generations=(GenerationConstant(generation="hopper", name="gemm_efficiency", value=0.5),)
    )
    assert stack.on("H100-SXM-80G").gemm_efficiency.value == 0.5
    assert stack.on("A100-SXM-80G") is stack
    changed = stack.model_copy(update={"gemm_efficiency": stack.gemm_efficiency.model_copy(update={"value": 0.4})})
    assert changed.on("A100-SXM-80G").gemm_efficiency.value == 0.4
    with pytest.raises(ValueError, match="'speed' is not a constant"):
        StackProfile(name="own", generations=(GenerationConstant(generation="hopper", name="speed", value=0.5),))


def test_packaged_profiles_know_their_doubts_on_every_generation():
    for name in entry_names("stacks"):
        known = packaged_stack(name).uncertainty
        places = {one.partition("@")[2] for one in known.names}
        assert {generation_of(gpu) for gpu in ("A100", "H100", "B200", "B300")} <= places, name
        assert known.family_spread_moe >= known.family_spread_dense > 0.0


def test_doubt_is_that_of_the_error_bars_and_none_at_one_half():
    at = Setting.of(JOB, A100, fabric(), STACK, COLUMNS)
    at_90, at_50 = (time_factor(at, share) for share in (0.9, 0.5))
    bars = [of(row, 1.0).iteration_s.p90 for row in range(len(COLUMNS))]
    assert at_90.tolist() == pytest.approx(bars)
    assert at_50.tolist() == pytest.approx([1.0] * len(COLUMNS))
