"""Calibration recovers planted constants and refuses what cannot be fitted."""

import numpy as np
import pytest

from models.stack import StackProfile
from solver.calibration.fit import ContradictoryRows, TooFewRows, calibrate, with_constants
from solver.cost.estimate import iteration_estimate
from solver.cost.job import job_of
from solver.cost.layer import Setting
from tests.unit.solver.cost.samples import A100, STACK, fabric, random_columns, workload

COLUMNS = random_columns(40, seed=2)
JOB = job_of(workload())
NAMES = ("gemm_efficiency", "scale_up_efficiency", "step_host_s")


def times(stack: StackProfile, rows):
    return iteration_estimate(Setting.of(JOB, A100, fabric(), stack, COLUMNS.take(np.array(list(rows))))).iteration_s


def test_planted_constants_come_back():
    planted = {"gemm_efficiency": 0.62, "scale_up_efficiency": 0.6, "step_host_s": 0.04}
    truth = with_constants(STACK, planted, source="planted")
    result = calibrate(STACK, NAMES, times(truth, range(40)), times, source="test", num_folds=2)
    assert result.fit_mean_abs_pct < 0.5
    assert result.cross_validated_mean_abs_pct < 1.0
    for name, value in planted.items():
        assert result.fitted[name] == pytest.approx(value, rel=0.1)
        assert getattr(result.profile, name).origin == "fitted"
    assert result.profile.gemm_half_size == STACK.gemm_half_size


def test_too_few_rows_are_refused():
    measured = times(STACK, range(5))
    with pytest.raises(TooFewRows, match="5 usable rows cannot fix 3 constants") as caught:
        calibrate(STACK, NAMES, measured, times, source="test")
    assert "6 rows" in caught.value.remedy


def test_contradictory_rows_are_refused():
    noise = np.exp(np.random.default_rng(1).normal(0, 2.0, 40))
    with pytest.raises(ContradictoryRows):
        calibrate(STACK, NAMES, times(STACK, range(40)) * noise, times, source="test")
