"""Fits the constants of a software stack to measured iteration times.

Owns the least-squares problem, its bounds and priors, cross-validation, and when to refuse. Never reads rows: the
caller says how a profile predicts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from models.errors import PlannerError
from models.stack import Constant, StackProfile
from solver.cost.columns import FloatArray

Predict = Callable[[StackProfile, Sequence[int]], FloatArray]  # times of the chosen samples under a profile

# Limits of each constant, in its unit: what hardware allows, with room for what was ever measured.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "gemm_efficiency": (0.2, 0.88),
    "gemm_efficiency_fp8": (0.15, 0.82),
    "gemm_efficiency_fp4": (0.1, 0.8),
    "gemm_half_size": (5.0, 1500.0),
    "attention_efficiency": (0.05, 0.8),
    "memory_efficiency": (0.4, 0.95),
    "elementwise_traffic": (0.5, 6.0),
    "expert_gemm_share": (0.2, 1.0),
    "expert_traffic": (0.3, 10.0),
    "host_layer_s": (1e-6, 5e-3),
    "host_moe_layer_s": (1e-6, 2e-2),
    "scale_up_efficiency": (0.2, 0.95),
    "scale_out_efficiency": (0.02, 1.0),
    "ring_contention": (0.01, 3.0),
    "point_to_point_efficiency": (0.02, 0.92),
    "collective_latency_s": (1e-6, 1e-3),
    "tensor_parallel_overlap": (0.01, 0.98),
    "expert_parallel_overlap": (0.01, 0.98),
    "pipeline_overlap": (0.01, 0.99),
    "data_parallel_overlap": (0.01, 0.98),
    "expert_imbalance": (1.0, 2.0),
    "step_constant_s": (1e-4, 1.0),
    "optimizer_traffic": (0.5, 5.0),
}
# How far (in natural logarithms) a fit may wander from its start for one sigma: what is known beforehand.
SIGMAS: Mapping[str, float] = {
    "gemm_efficiency": 0.2,
    "gemm_efficiency_fp8": 0.25,
    "gemm_efficiency_fp4": 0.4,
    "attention_efficiency": 0.4,
    "memory_efficiency": 0.1,
    "elementwise_traffic": 0.4,
    "scale_up_efficiency": 0.12,  # measured: 224 of 300 GB/s on 8 A100, 695 of 900 on 8 B200
    "scale_out_efficiency": 0.5,
    "gemm_half_size": 0.6,
    "ring_contention": 0.2,
    "step_constant_s": 0.5,
    "expert_gemm_share": 0.4,
    "point_to_point_efficiency": 0.4,
    "data_parallel_overlap": 0.5,
    "tensor_parallel_overlap": 0.5,
    "expert_parallel_overlap": 0.5,
    "pipeline_overlap": 0.5,
}
OTHER_SIGMA = 1.0
MEASURED_SIGMA = 0.03  # relative scatter of runs of one stack that nothing explains: published sweeps agree to 2-4 %
ROWS_PER_CONSTANT = 2
CONTRADICTION_PCT = 30.0  # median error of a fit that no set of constants explains


class TooFewRows(PlannerError):
    """Fewer measured runs than the constants they should fix need."""

    code = "too-few-rows"


class ContradictoryRows(PlannerError):
    """No set of constants explains the runs."""

    code = "contradictory-rows"


@dataclass(frozen=True)
class Calibration:
    """A fitted profile and how well it does: on the rows it saw, and on rows held back."""

    profile: StackProfile
    num_rows: int
    fitted: Mapping[str, float]
    fit_mean_abs_pct: float
    fit_median_abs_pct: float
    cross_validated_mean_abs_pct: float
    cross_validated_median_abs_pct: float


def with_constants(stack: StackProfile, values: Mapping[str, float], *, source: str) -> StackProfile:
    """The profile with some constants replaced by fitted ones."""
    update = {name: Constant(value=value, origin="fitted", source=source) for name, value in values.items()}
    return stack.model_copy(update={**update, "is_fitted": True})


def fit_constants(
    stack: StackProfile,
    names: Sequence[str],
    measured_s: FloatArray,
    predict: Predict,
    *,
    rows: Sequence[int],
    sigma_scale: float = 1.0,
) -> dict[str, float]:
    """The constants that bring predicted times of `rows` closest to the measured ones.

    Minimises a robust (soft L1) sum of log ratios plus a weak pull towards the starting profile, so that constants
    these rows say nothing about stay where they were; `sigma_scale` below 1 makes the pull stronger.
    """
    start = np.log([_clipped(name, getattr(stack, name).value) for name in names])
    lower = np.log([BOUNDS[name][0] for name in names])
    upper = np.log([BOUNDS[name][1] for name in names])
    sigma = sigma_scale * np.array([SIGMAS.get(name, OTHER_SIGMA) for name in names])
    target = np.log(measured_s[list(rows)])

    def residuals(x: FloatArray) -> FloatArray:
        trial = with_constants(stack, dict(zip(names, np.exp(x), strict=True)), source="trial")
        misfit = np.log(np.maximum(predict(trial, rows), 1e-9)) - target
        return np.concatenate([misfit / MEASURED_SIGMA, (x - start) / sigma])

    solution = least_squares(
        residuals,
        start,
        bounds=(lower - 1e-9, upper + 1e-9),
        loss="soft_l1",
        diff_step=1e-3,
        ftol=1e-3,
        xtol=1e-3,
        max_nfev=20,
    )
    return dict(zip(names, np.exp(solution.x).tolist(), strict=True))


def _clipped(name: str, value: float) -> float:
    low, high = BOUNDS[name]
    return min(max(value, low), high)


def calibrate(
    stack: StackProfile,
    names: Sequence[str],
    measured_s: FloatArray,
    predict: Predict,
    *,
    source: str,
    num_folds: int = 5,
) -> Calibration:
    """Fit `names` to all samples, and report the error with every fold held back once.

    Raises TooFewRows below two rows per constant, ContradictoryRows when the fit itself stays far off.
    """
    count = len(measured_s)
    if count < ROWS_PER_CONSTANT * len(names):
        raise TooFewRows(
            f"{count} usable rows cannot fix {len(names)} constants",
            remedy=f"give at least {ROWS_PER_CONSTANT * len(names)} rows of one stack, or free fewer constants",
        )
    everything = range(count)
    values = fit_constants(stack, names, measured_s, predict, rows=everything)
    profile = with_constants(stack, values, source=source)
    errors = _errors_pct(predict(profile, everything), measured_s)
    if float(np.median(errors)) > CONTRADICTION_PCT:
        raise ContradictoryRows(
            f"the best fit misses half of the rows by more than {CONTRADICTION_PCT:g} %",
            remedy="check units and degrees of the rows, and that they all ran on one software stack",
        )
    held = np.zeros(count)
    for fold in range(num_folds):
        test = list(range(fold, count, num_folds))
        train = [row for row in everything if row % num_folds != fold]
        without = fit_constants(stack, names, measured_s, predict, rows=train)
        held[test] = _errors_pct(predict(with_constants(stack, without, source=source), test), measured_s[test])
    return Calibration(
        profile=profile,
        num_rows=count,
        fitted=values,
        fit_mean_abs_pct=float(errors.mean()),
        fit_median_abs_pct=float(np.median(errors)),
        cross_validated_mean_abs_pct=float(held.mean()),
        cross_validated_median_abs_pct=float(np.median(held)),
    )


def _errors_pct(predicted: FloatArray, measured: FloatArray) -> FloatArray:
    errors: FloatArray = 100.0 * np.abs(predicted / measured - 1.0)
    return errors
