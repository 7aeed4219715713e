"""Fits a software-stack profile to measured rows of a user: which rows and constants, and the error bars.

The fit itself is in `fit.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import shorten
from typing import Any

import numpy as np

from models.errors import InvalidRequest
from models.stack import Evidence, StackProfile, Uncertainty, generation_of
from solver.arrays import FloatArray
from solver.calibration.fit import BOUNDS, Calibration, ContradictoryRows, TooFewRows, calibrate
from solver.calibration.predict import predict
from solver.calibration.rows import Run, with_stack
from solver.calibration.training import readable

MEAN_OVER_SIGMA = 0.8  # of a normal variable
MOST_SPREAD = 2.0  # what the document of a profile allows (`Uncertainty`)
MAX_TOLD = 400  # characters of the description of a profile
LEAST_SPREAD = 0.02  # repeated runs of one plan
_ALWAYS = ("gemm_efficiency", "attention_efficiency", "elementwise_traffic", "step_host_s")


def calibrate_rows(
    rows: Sequence[Mapping[str, str]], *, name: str, start: StackProfile | None = None, constants: Sequence[str] = ()
) -> Calibration:
    """A profile called `name` fitted to `rows` (columns: `docs/howto/fit-a-profile.md`).

    Starts from `start`, or from the packaged profile that the rows choose, as it is on their GPU generation.
    `constants` are freed; by default those that the degrees and precisions in the rows identify. Raises TooFewRows,
    ContradictoryRows or InvalidRequest.
    """
    runs, left_out = _readable(rows, start)
    _check_alike(runs)
    base = (start or _chosen(runs)).on(runs[0].gpu.name)
    names = tuple(constants) or identified(runs)
    for constant in names:
        if constant not in BOUNDS:
            raise InvalidRequest(
                f"{constant!r} is not a constant that can be fitted", remedy=f"use some of {', '.join(sorted(BOUNDS))}"
            )
    told = shorten("; ".join([f"calibrated from {len(runs)} measured runs", *left_out]), MAX_TOLD, placeholder=" ...")
    profile = base.model_copy(update={"name": name, "description": told, "generations": ()})

    def times(trial: StackProfile, indices: Sequence[int]) -> FloatArray:
        return np.array([one.iteration_s for one in predict(with_stack([runs[i] for i in indices], trial))])

    measured = np.array([run.measured_s for run in runs])
    source = f"calibrated from {len(runs)} rows"
    return _with_error_bars(calibrate(profile, names, measured, times, source=source, repeats=_repeats(runs)), runs)


def _repeats(runs: Sequence[Run]) -> list[int]:
    """A number for each run, the same for runs of one configuration."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault((run.workload, run.gpu.name, run.fabric, run.knobs), len(numbers)) for run in runs]


def _check_alike(runs: Sequence[Run]) -> None:
    """A fit moves one set of constants: of rows of several kinds it would make a profile that is true of none."""
    remedy = "fit the rows of each alone"
    for kind, found, ways in (
        ("GPU generations", Counter(generation_of(run.gpu.name) for run in runs), remedy),
        (
            "software profiles (columns framework and source)",
            Counter(run.stack.name for run in runs),
            f"{remedy}, or name the profile to start from",
        ),
    ):
        if len(found) > 1:
            listed = ", ".join(f"{name} ({count})" for name, count in sorted(found.items()))
            raise ContradictoryRows(f"the rows are of several {kind}: {listed}", remedy=ways)


def _chosen(runs: Sequence[Run]) -> StackProfile:
    """The profile that the rows choose, with sequence parallelism as most of them state it."""
    is_split = 2 * sum(run.stack.sequence_parallel for run in runs) > len(runs)
    return next(run.stack for run in runs if run.stack.sequence_parallel == is_split)


def _with_error_bars(fitted: Calibration, runs: Sequence[Run]) -> Calibration:
    """The runs behind the profile, and the spread of those that were held back: mean |error| = 0.8 sigma."""
    spread = max(fitted.cross_validated_mean_abs_pct / 100.0 / MEAN_OVER_SIGMA, LEAST_SPREAD)
    if spread > MOST_SPREAD:
        times = predict(with_stack(runs, fitted.profile))
        ratios = [run.measured_s / one.iteration_s for run, one in zip(runs, times, strict=True)]
        worst = max(range(len(runs)), key=lambda row: abs(math.log(ratios[row])))
        raise ContradictoryRows(
            f"rows held back are missed by {fitted.cross_validated_mean_abs_pct:.3g} % on average, and the run"
            f" {runs[worst].id[:80]!r} took {ratios[worst]:.3g} times what the fit predicts",
            remedy="check the units and degrees of that run, or leave it out",
        )
    bars = Uncertainty(family_spread_dense=spread, family_spread_moe=spread, run_spread=LEAST_SPREAD)
    update = {"evidence": evidence_from(runs, runs[0].stack.name), "uncertainty": bars}
    return replace(fitted, profile=fitted.profile.model_copy(update=update))


def evidence_from(runs: Sequence[Run], software: str) -> tuple[Evidence, ...]:
    """How many runs there are of each class, and how many of them of one software."""
    classes = Counter(class_of(run) for run in runs)
    own = Counter(class_of(run) for run in runs if run.stack.name == software)
    return tuple(
        Evidence(generation=of[0], kind=of[1], precision=of[2], rows=rows, own_rows=own[of])
        for of, rows in sorted(classes.items())
    )


def class_of(run: Run) -> tuple[str, Any, str]:
    """GPU generation, dense or moe, precision: what must be alike for one run to speak for another."""
    kind = "moe" if run.workload.architecture.moe is not None else "dense"
    return generation_of(run.gpu.name), kind, run.workload.precision


def _readable(rows: Sequence[Mapping[str, str]], start: StackProfile | None) -> tuple[list[Run], list[str]]:
    """The runs of the rows that can be used, and how many others were left out for which reason."""
    runs, skipped = readable(rows, None if start is None else (start,))
    reasons = Counter(reason for _, reason in skipped)
    if not runs:
        detail = "; ".join(sorted(reasons)) or "there are no rows"
        raise TooFewRows(f"no row can be used: {detail}", remedy="fill the columns that are named")
    runs.sort(key=lambda run: (run.measured_s, run.id))  # the order of the rows decides no fold
    return runs, [f"{count} left out: {reason}" for reason, count in sorted(reasons.items())]


def identified(runs: Sequence[Run]) -> tuple[str, ...]:
    """The constants that these runs can tell: those of the parallel dimensions and precisions that occur in them."""
    names = list(_ALWAYS)
    checks = {
        "scale_up_efficiency": any(run.knobs.tp > 1 for run in runs),
        "scale_out_efficiency": any(run.knobs.dp * run.knobs.tp > run.fabric.gpus_per_host for run in runs),
        "gemm_efficiency_fp8": any(run.workload.precision == "fp8" for run in runs),
        "gemm_efficiency_fp4": any(run.workload.precision == "fp4" for run in runs),
        "host_moe_layer_s": any(run.workload.architecture.moe is not None for run in runs),
        "point_to_point_efficiency": any(run.knobs.pp > 1 for run in runs),
    }
    names += [name for name, present in checks.items() if present]
    if all(run.workload.precision in ("fp8", "fp4") for run in runs):
        names.remove("gemm_efficiency")
    return tuple(names)
