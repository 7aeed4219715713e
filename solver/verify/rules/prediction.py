"""Rules on the error bars of a plan: they follow from the profile, the configuration and the GPUs in use.

Owns their derivation. Whether the profile's spreads are right no judge can tell: they come from measured runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from models.prediction import Interval, Prediction
from solver.cost.fabric import fabric_of
from solver.cost.uncertainty import prediction
from solver.verify.case import Case, Finding, Rule, differs

LOOSE = 1e-4  # slopes are differences of two predictions


def derived_prediction(case: Case) -> Prediction | None:
    """The error bars that follow from the rest of the plan; None for a plan that states none."""
    if case.plan.prediction is None:
        return None
    pools = {pool.id: pool for used in case.pools_by_route.values() for pool in used}
    kept = 1.0 - case.request.constraints.memory_headroom_fraction
    return prediction(
        case.derived.job,
        case.derived.stack,
        case.derived.columns,
        [(pool.gpu, fabric_of(pool)) for pool in pools.values()],
        iteration_s=case.plan.metrics.iteration_s,
        memory=[(one.total_bytes, one.limit_bytes / kept) for one in case.plan.memory],
    )


def error_bars(case: Case) -> Iterator[Finding]:
    """Quantiles, probability that it fits, evidence and shared errors are those of the profile on the plan's GPUs."""
    stated, derived = case.plan.prediction, derived_prediction(case)
    if stated is None or derived is None:
        return
    if stated.evidence != derived.evidence:
        yield Finding("prediction", "evidence is not that of the profile for these GPUs, this model and precision")
    for name in ("iteration_s", "tokens_per_s", "peak_memory_bytes"):
        yield from _interval(name, getattr(stated, name), getattr(derived, name))
    for name in ("fits_probability", "family_spread", "run_spread"):
        if differs(getattr(stated, name), getattr(derived, name), tolerance=LOOSE):
            yield Finding("prediction", f"{name} {getattr(stated, name):.6g}, derived {getattr(derived, name):.6g}")
    apart = [abs(a - b) for a, b in zip(stated.common_errors, derived.common_errors, strict=False)]
    if len(stated.common_errors) != len(derived.common_errors) or max(apart, default=0.0) > LOOSE:
        yield Finding("prediction", "common_errors are not those of the profile's factors")


def _interval(name: str, stated: Interval, derived: Interval) -> Iterator[Finding]:
    for quantile in ("p10", "p50", "p90"):
        one, other = getattr(stated, quantile), getattr(derived, quantile)
        if differs(one, other, tolerance=LOOSE):
            yield Finding("prediction", f"{name}.{quantile} {one:.6g}, derived {other:.6g}")


FAMILY: Mapping[str, Rule] = {"error-bars": error_bars}
