"""Fits the constants of a software stack to measured iteration times: least squares under priors and limits,
cross-validation, and when to refuse. The caller says how a profile predicts the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from models.errors import PlannerError
from models.stack import Constant, StackProfile
from solver.arrays import FloatArray
from solver.calibration.priors import PRIORS

Predict = Callable[[StackProfile, Sequence[int]], FloatArray]  # times of the chosen samples under a profile

# Limits of each constant, and how far (in natural logarithms) a fit may wander from its start for one sigma.
BOUNDS: Mapping[str, tuple[float, float]] = {name: (prior.low, prior.high) for name, prior in PRIORS.items()}
SIGMAS: Mapping[str, float] = {name: math.hypot(prior.shared, prior.software) for name, prior in PRIORS.items()}
MEASURED_SIGMA = 0.03  # relative scatter of runs of one stack that nothing explains: published sweeps agree to 2-4 %
ROWS_PER_CONSTANT = 2  # with fewer, constants follow the noise of single runs
CONTRADICTION_PCT = 30.0  # median error of a fit that no set of constants explains


class TooFewRows(PlannerError):
    """Fewer measured runs than the constants they should fix need."""

    code = "too-few-rows"


class ContradictoryRows(PlannerError):
    """No set of constants explains the runs."""

    code = "contradictory-rows"


@dataclass(frozen=True)
class Calibration:
    """A fitted profile and how well it does on the rows it saw and on rows held back, beside the one it began with."""

    profile: StackProfile
    num_rows: int
    fitted: Mapping[str, float]
    start_mean_abs_pct: float
    start_median_abs_pct: float
    fit_mean_abs_pct: float
    fit_median_abs_pct: float
    cross_validated_mean_abs_pct: float
    cross_validated_median_abs_pct: float


def with_constants(stack: StackProfile, values: Mapping[str, float], *, source: str) -> StackProfile:
    """The profile with some constants replaced by fitted ones."""
    update = {name: Constant(value=value, origin="fitted", source=source) for name, value in values.items()}
    return stack.model_copy(update={**update, "is_fitted": True})


def fit_constants(
    stack: StackProfile, names: Sequence[str], measured_s: FloatArray, predict: Predict, *, rows: Sequence[int]
) -> dict[str, float]:
    """The constants that bring predicted times of `rows` closest to the measured ones.

    Minimises a robust (soft L1) sum of log ratios plus a weak pull towards the starting profile, so that constants
    these rows say nothing about stay where they were.
    """
    start = np.log([_clipped(name, getattr(stack, name).value) for name in names])
    lower = np.log([BOUNDS[name][0] for name in names])
    upper = np.log([BOUNDS[name][1] for name in names])
    sigma = np.array([SIGMAS[name] for name in names])
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
    repeats: Sequence[int] = (),
    num_folds: int = 5,
) -> Calibration:
    """Fit `names` to all samples, and report the error with every fold held back once.

    `repeats` numbers the configuration of each sample: those of one are held back together, or they would tell each
    other's times. Without it all differ.
    Raises TooFewRows below two rows per constant, ContradictoryRows when the fit itself remains far off.
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
    before, errors = (_errors_pct(predict(one, everything), measured_s) for one in (stack, profile))
    if float(np.median(errors)) > CONTRADICTION_PCT:
        raise ContradictoryRows(
            f"the best fit misses half of the rows by more than {CONTRADICTION_PCT:g} %",
            remedy="check units and degrees of the rows, and that they all ran on one software stack",
        )
    held = np.zeros(count)
    folds = [number % num_folds for number in repeats or everything]
    for fold in range(num_folds):
        test = [row for row in everything if folds[row] == fold]
        train = [row for row in everything if folds[row] != fold]
        without = fit_constants(stack, names, measured_s, predict, rows=train)
        held[test] = _errors_pct(predict(with_constants(stack, without, source=source), test), measured_s[test])
    return Calibration(
        profile=profile,
        num_rows=count,
        fitted=values,
        start_mean_abs_pct=float(before.mean()),
        start_median_abs_pct=float(np.median(before)),
        fit_mean_abs_pct=float(errors.mean()),
        fit_median_abs_pct=float(np.median(errors)),
        cross_validated_mean_abs_pct=float(held.mean()),
        cross_validated_median_abs_pct=float(np.median(held)),
    )


def _errors_pct(predicted: FloatArray, measured: FloatArray) -> FloatArray:
    return 100.0 * np.abs(predicted / measured - 1.0)
