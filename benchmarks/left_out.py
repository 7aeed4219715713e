"""Predictions of families of runs that a fit has not seen, and the spreads that follow from their errors.

The error of a family that was left out is what a new plan has to expect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.fit.hierarchy import Fit, Hierarchy
from benchmarks.fit.software import SOFTWARE
from solver.calibration.report import ReportBuilder, ValidationReport
from solver.calibration.rows import Run, SkipRow, run_of
from solver.cost.uncertainty import total_spread

SUSPICIOUS = "suspicious"
MAX_STEPS = 25
INSIDE = 0.8  # of the measurements lie between the 10 and the 90 % figure
Z_90 = 1.2815515655446004
RUN_SPREAD = 0.04  # runs of one stack and one release about each other: 2 to 6 % in published sweeps
MEMORY_SPREAD = 0.045  # closed form against 31 published peaks of dense models on B200: 3.9 % mean


@dataclass(frozen=True)
class LeftOut:
    """A run as a fit without its family predicts it."""

    run: Run
    iteration_s: float
    constants_spread: float

    @property
    def log_error(self) -> float:
        """ln(predicted / measured)."""
        return float(np.log(self.iteration_s / self.run.measured_s))

    @property
    def kind(self) -> str:
        """Dense model or mixture of experts."""
        return "dense" if self.run.workload.architecture.moe is None else "moe"


def readable(rows: Sequence[Mapping[str, str]]) -> list[Run]:
    """The rows that can be read and that their source does not doubt, with the packaged software."""
    runs = []
    for row in rows:
        if SUSPICIOUS in (row.get("notes") or "").lower():
            continue
        try:
            runs.append(run_of(row, SOFTWARE))
        except (SkipRow, ValueError):
            continue
    return runs


def left_out_runs(plan: Hierarchy, fit: Fit) -> list[LeftOut]:
    """Every run of the hierarchy's deck, predicted by a fit without its family; fits start from that of all runs."""
    runs = plan.deck.runs
    families = np.array([run.family for run in runs])
    found: dict[int, LeftOut] = {}
    for family in sorted(set(families.tolist())):
        without = plan.fit(np.flatnonzero(families != family), fit.deviations, MAX_STEPS)
        times = np.exp(plan.predicted(without.deviations))
        spread = plan.spread(without)
        for index in np.flatnonzero(families == family).tolist():
            found[index] = LeftOut(runs[index], float(times[index]), float(spread[index]))
    return [found[index] for index in range(len(runs))]


def spreads(left_out: Sequence[LeftOut]) -> dict[str, float]:
    """Spreads between families, for dense models and mixtures of experts, at which 80 % of the intervals hold.

    A run's interval has the spread sqrt(constants^2 + family^2 + run^2); the least family spread is taken at which
    four fifths of the runs that were left out lie between their 10 and 90 % figures.
    """
    found = {"run_spread": RUN_SPREAD, "memory_spread": MEMORY_SPREAD}
    for kind in ("dense", "moe"):
        chosen = [one for one in left_out if one.kind == kind]
        needed = [(one.log_error / Z_90) ** 2 - one.constants_spread**2 - RUN_SPREAD**2 for one in chosen]
        square = float(np.quantile(needed, INSIDE)) if needed else 0.0
        found[f"family_spread_{kind}"] = round(float(np.sqrt(max(square, 1e-4))), 4)
    return found


def report_of(left_out: Sequence[LeftOut]) -> ValidationReport:
    """Errors and intervals per family; the spread between families is that of all other families."""
    builder = ReportBuilder()
    for family in sorted({one.run.family for one in left_out}):
        known = spreads([one for one in left_out if one.run.family != family])
        for one in left_out:
            if one.run.family == family:
                parts = (known[f"family_spread_{one.kind}"], RUN_SPREAD)
                spread = total_spread([one.constants_spread], *parts)
                builder.add(family, one.iteration_s, one.run.measured_s, spread)
    return builder.build()
