"""Rules on the error bars of a plan: they follow from the profile, the configuration and the GPUs in use.

Whether the profile's spreads are right no judge can tell: they come from measured runs.
"""

from collections.abc import Iterator, Mapping

from solver.cost.columns import columns_of
from solver.cost.fabric import fabric_of
from solver.cost.uncertainty import probability_faster, shared_errors
from solver.verify.case import Case, Finding, Rule, differs, unequal

ZERO = 1e-12  # an error factor below is rounding
ROUNDED = 1e-6  # of a probability


def error_bars(case: Case) -> Iterator[Finding]:
    """Quantiles, probability that it fits, evidence and shared errors are those of the profile on the plan's GPUs."""
    stated, derived = case.plan.prediction, case.prediction
    if stated is None:
        yield Finding("prediction", "is not stated")
        return
    if stated.evidence != derived.evidence:
        yield Finding("prediction", "evidence is not that of the profile for these GPUs, this model and precision")
    for name in ("iteration_s", "tokens_per_s", "peak_memory_bytes"):
        one, other = getattr(stated, name), getattr(derived, name)
        for quantile in ("p10", "p50", "p90"):
            yield from unequal(
                "prediction", f"{name}.{quantile}", getattr(one, quantile), getattr(other, quantile), "derived"
            )
    for name in ("fits_probability", "family_spread", "run_spread"):
        yield from unequal("prediction", name, getattr(stated, name), getattr(derived, name), "derived")
    pairs = list(zip(stated.common_errors, derived.common_errors, strict=False))
    apart = any(differs(a, b) and abs(a - b) > ZERO for a, b in pairs)
    if apart or len(stated.common_errors) != len(derived.common_errors):
        yield Finding("prediction", "common_errors are not those of the profile's factors")


def alternative_odds(case: Case) -> Iterator[Finding]:
    """The probability that an alternative is slower than the plan follows from both times and the shared errors."""
    ours, pools = case.prediction, {pool.id: pool for pool in case.request.cluster.pools}
    for index, one in enumerate(case.plan.alternatives):
        if one.configuration is None or one.slower_probability is None:
            continue
        used = {name: pools[name] for route in one.routes for name in route.pools if name in pools}
        gpu_types = [(pool.gpu, fabric_of(pool)) for pool in used.values()]
        if not gpu_types:
            yield Finding(f"alternative {index}", "slower_probability is stated without its pools")
            continue
        errors = shared_errors(case.derived.job, case.derived.stack, columns_of(one.configuration), gpu_types)
        derived = probability_faster(ours, one.iteration_s, errors)
        if abs(one.slower_probability - derived) > ROUNDED:
            yield Finding(
                f"alternative {index}", f"slower_probability {one.slower_probability:.6g}, derived {derived:.6g}"
            )


FAMILY: Mapping[str, Rule] = {"error-bars": error_bars, "alternative-odds": alternative_odds}
