"""Error bars of a prediction: errors of the constants, carried by the slopes of the cost model, and what none explains.

The spreads themselves are the profile's.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from models.cluster import GpuType
from models.diagnostic import Diagnostic
from models.prediction import Interval, Prediction
from models.stack import Constant, Evidence, StackProfile, generation_of
from solver.arrays import FloatArray
from solver.cost.columns import Columns
from solver.cost.estimate import iteration_estimate
from solver.cost.fabric import Fabric
from solver.cost.job import Job
from solver.cost.layer import Setting

Z_90 = NormalDist().inv_cdf(0.9)
STEP = 1e-3  # of a logarithm, for differences
ROWS_AT_ONCE = 2000  # configurations, each with as many variants as constants


def common_errors(at: Setting) -> FloatArray:
    """d ln(time) per standard unit of each error factor: sum over constants of (d ln T / d ln c) F; rows x factors.

    The slopes are those of the closed form on GPUs of one type.
    """
    known, here = at.stack.uncertainty, generation_of(at.gpu.name)
    rows = [(name.partition("@")[0], row) for name, row in zip(known.names, known.factors, strict=True)
            if name.partition("@")[2] in ("", here)]  # fmt: skip
    if not rows:
        return np.zeros((len(at.columns), len(known.factors[0]) if known.factors else 0))
    slopes = log_slopes(at, [name for name, _ in rows])
    return np.asarray(slopes @ np.array([row for _, row in rows]))


def log_slopes(at: Setting, names: Sequence[str]) -> FloatArray:
    """d ln(iteration time) / d ln(constant), rows x names, by forward differences."""
    count, columns = len(names), at.columns
    fields: dict[str, Any] = {name: getattr(at.stack, name) for name in StackProfile.model_fields}
    varied: dict[str, Any] = {}
    for row, name in enumerate(names):
        varied[name] = np.full(count + 1, fields[name].value)
        varied[name][row + 1] *= math.exp(STEP)
    found = []
    for first in range(0, len(columns), ROWS_AT_ONCE):
        part = np.arange(first, min(first + ROWS_AT_ONCE, len(columns)))
        for name, values in varied.items():  # one entry per row, as every formula broadcasts
            tiled: Any = np.tile(values, len(part))
            fields[name] = Constant.model_construct(value=tiled, origin="fitted", source="")
        trial = StackProfile.model_construct(**{**fields, "generations": ()})
        varied_rows = Setting.of(at.job, at.gpu, at.fabric, trial, columns.take(np.repeat(part, count + 1)))
        times = iteration_estimate(varied_rows).iteration_s
        logs = np.log(times.reshape(len(part), count + 1))
        found.append((logs[:, 1:] - logs[:, :1]) / STEP)
    return np.concatenate(found)


def time_factor(at: Setting, confidence: float) -> FloatArray:
    """The time that a measurement remains below with this probability, over the predicted one; one per row."""
    spread = np.sqrt((common_errors(at) ** 2).sum(axis=1) + _own_variance(at.job, at.stack))
    return np.asarray(np.exp(NormalDist().inv_cdf(confidence) * spread))


def least_time_factor(job: Job, stack: StackProfile, confidence: float) -> float:
    """No configuration's `time_factor` is below this at a confidence of at least 1/2: constants without errors."""
    return math.exp(NormalDist().inv_cdf(confidence) * math.sqrt(_own_variance(job, stack)))


def _own_variance(job: Job, stack: StackProfile) -> float:
    """What no constant explains."""
    return family_spread(job, stack) ** 2 + stack.uncertainty.run_spread**2


def family_spread(job: Job, stack: StackProfile) -> float:
    """Spread of the runs of models of this kind, mixtures of experts or dense ones, about the profile."""
    known = stack.uncertainty
    return known.family_spread_moe if job.num_moe_layers else known.family_spread_dense


def interval(value: float, spread: float) -> Interval:
    """10, 50 and 90 % figures of a log-normal value.

    >>> interval(1.0, 0.0).p90
    1.0
    """
    factor = math.exp(Z_90 * spread)
    return Interval(p10=value / factor, p50=value, p90=value * factor)


def fits_probability(peak_bytes: float, memory_bytes: float, spread: float) -> float:
    """Probability that a peak whose logarithm has this spread remains within the memory.

    >>> round(fits_probability(0.94, 1.0, 0.045), 2)
    0.92
    """
    return NormalDist().cdf(math.log(memory_bytes / peak_bytes) / spread)


def total_spread(errors: Sequence[float], family_spread: float, run_spread: float) -> float:
    """Standard deviation of ln(measured / predicted): independent parts add as squares.

    >>> total_spread([3.0], 4.0, 0.0)
    5.0
    """
    return math.sqrt(sum(one * one for one in errors) + family_spread**2 + run_spread**2)


def evidence_of(stack: StackProfile, gpus: Sequence[GpuType], job: Job) -> tuple[Evidence, ...]:
    """Runs of the profile on each of these GPU generations with this kind of model and precision, none included."""
    kind = "moe" if job.num_moe_layers else "dense"
    found = []
    for generation in sorted({generation_of(gpu.name) for gpu in gpus}):
        same = (generation, kind, job.precision)
        none = Evidence(generation=generation, kind=kind, precision=job.precision, rows=0, own_rows=0)
        found.append(next((one for one in stack.evidence if (one.generation, one.kind, one.precision) == same), none))
    return tuple(found)


def shared_errors(
    job: Job, stack: StackProfile, columns: Columns, gpu_types: Sequence[tuple[GpuType, Fabric]]
) -> tuple[float, ...]:
    """The constants' errors of a plan on GPUs of these types: those on the type whose GPUs alone would be slowest."""
    return tuple(common_errors(slowest_alone(job, stack, columns, gpu_types))[0].tolist())


def prediction(
    job: Job,
    stack: StackProfile,
    columns: Columns,
    gpu_types: Sequence[tuple[GpuType, Fabric]],
    *,
    iteration_s: float,
    memory: Sequence[tuple[float, float]],
) -> Prediction:
    """Error bars of a plan on GPUs of these types; `memory` holds peak and HBM bytes of its pipeline ranks."""
    known = stack.uncertainty
    errors = shared_errors(job, stack, columns, gpu_types)
    family = family_spread(job, stack)
    spread = total_spread(errors, family, known.run_spread)
    fullest = max(memory, key=lambda one: one[0] / one[1])
    return Prediction(
        iteration_s=interval(iteration_s, spread),
        tokens_per_s=interval(job.tokens_per_iteration / iteration_s, spread),
        peak_memory_bytes=interval(fullest[0], known.memory_spread),
        fits_probability=fits_probability(*fullest, known.memory_spread),
        evidence=evidence_of(stack, [one for one, _ in gpu_types], job),
        common_errors=errors,
        family_spread=family,
        run_spread=known.run_spread,
    )


def slowest_alone(
    job: Job, stack: StackProfile, columns: Columns, gpu_types: Sequence[tuple[GpuType, Fabric]]
) -> Setting:
    """The job on the GPU type on which alone the first configuration would take longest."""
    distinct = dict.fromkeys(gpu_types)  # a plan has hundreds of pools and few types
    settings = [Setting.of(job, gpu, fabric, stack, columns) for gpu, fabric in distinct]
    return max(settings, key=lambda one: float(iteration_estimate(one).iteration_s[0]))


def probability_faster(one: Prediction, other_s: float, other_errors: Sequence[float]) -> float:
    """Probability that `one` takes less time than another plan of its job and profile: what both share cancels.

    Phi(ln(T2 / T1) / s), s^2 = |e1 - e2|^2 + 2 r^2 with the error factors e and the spread r of single runs.
    """
    apart = [a - b for a, b in zip(one.common_errors, other_errors, strict=True)]
    spread = total_spread(apart, one.run_spread, one.run_spread)
    return NormalDist().cdf(math.log(other_s / one.iteration_s.p50) / spread)


def evidence_warnings(stack: StackProfile, evidence: Sequence[Evidence]) -> tuple[Diagnostic, ...]:
    """A warning for every class of runs that nobody measured."""
    return tuple(
        Diagnostic(
            rule="nobody-measured",
            severity="warning",
            pointer="/workload/precision",
            detail=f"No measured run of {one.kind} training in {one.precision} on {one.generation} GPUs stands behind "
            f"the times: profile {stack.name!r} takes what other GPUs and precisions have in common.",
            remedies=("read the error bars", "fit a profile to runs of your own: isthmus calibrate"),
        )
        for one in evidence
        if not one.rows
    )
