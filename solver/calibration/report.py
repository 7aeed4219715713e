"""The figures of a validation run: how far predictions lie from measurements, per family and in total."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import fmean, median
from typing import Any

from solver.cost.uncertainty import interval


def error_pct(predicted: float, measured: float) -> float:
    """Signed error of a prediction in percent of the measurement; positive means predicted too high.

    >>> error_pct(110.0, 100.0)
    10.0
    """
    if measured == 0:
        raise ValueError("A measured value of 0 has no relative error; skip the row and name the reason instead.")
    return 100.0 * (predicted - measured) / measured


@dataclass(frozen=True)
class ErrorSummary:
    """Errors of one family of rows. `worst_pct` is the signed error of largest size; all are 0 when no row counted.

    `coverage_80` is the share of rows between their 10 and 90 % figures, `half_width_pct` the median half distance of
    the two over the prediction; null without intervals.
    """

    rows: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    mean_abs_pct: float = 0.0
    median_abs_pct: float = 0.0
    bias_pct: float = 0.0
    worst_pct: float = 0.0
    coverage_80: float | None = None
    half_width_pct: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return {**vars(self), "skipped": dict(sorted(self.skipped.items()))}


@dataclass(frozen=True)
class Inside:
    """Whether a measurement lies in its 10 to 90 % interval, and half the interval over the prediction."""

    holds: bool
    half_width: float


def inside(measured: float, predicted: float, spread: float) -> Inside:
    """A measurement against the interval of a log-normal prediction.

    >>> inside(1.1, 1.0, 0.1).holds, inside(1.2, 1.0, 0.1).holds
    (True, False)
    """
    bounds = interval(predicted, spread)
    return Inside(bounds.p10 <= measured <= bounds.p90, (bounds.p90 - bounds.p10) / 2.0 / predicted)


def summarise(
    errors_pct: Iterable[float], skipped: Mapping[str, int] | None = None, intervals: Sequence[Inside] = ()
) -> ErrorSummary:
    """Mean, median, bias and worst of signed errors, and how the intervals do.

    >>> summarise([1.0, -3.0]).mean_abs_pct
    2.0
    """
    errors = list(errors_pct)
    reasons = dict(skipped or {})
    if not errors:
        return ErrorSummary(rows=0, skipped=reasons)
    sizes = [abs(error) for error in errors]
    return ErrorSummary(
        rows=len(errors),
        skipped=reasons,
        mean_abs_pct=fmean(sizes),
        median_abs_pct=median(sizes),
        bias_pct=fmean(errors),
        worst_pct=max(errors, key=abs),
        coverage_80=fmean(one.holds for one in intervals) if intervals else None,
        half_width_pct=100.0 * median(one.half_width for one in intervals) if intervals else None,
    )


@dataclass(frozen=True)
class ValidationReport:
    """One summary per family of rows, and one over all rows that counted."""

    families: Mapping[str, ErrorSummary]
    total: ErrorSummary

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "families": {name: summary.to_dict() for name, summary in sorted(self.families.items())},
            "total": self.total.to_dict(),
        }


@dataclass
class ReportBuilder:
    """Collects errors and skips row by row; `build` freezes them into a report."""

    _errors: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _skipped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    _inside: dict[str, list[Inside]] = field(default_factory=lambda: defaultdict(list))

    def add(self, family: str, predicted: float, measured: float, spread: float | None = None) -> None:
        """Count one row; with the spread of ln(measured / predicted) also its interval."""
        self._errors[family].append(error_pct(predicted, measured))
        if spread is not None:
            self._inside[family].append(inside(measured, predicted, spread))

    def skip(self, family: str, reason: str) -> None:
        """Leave one row out, and say why."""
        self._skipped[family][reason] += 1

    def build(self) -> ValidationReport:
        """The report over everything added so far."""
        names = sorted({*self._errors, *self._skipped})
        families = {name: summarise(self._errors[name], self._skipped[name], self._inside[name]) for name in names}
        everything = chain.from_iterable(self._errors.values())
        skipped = sum(self._skipped.values(), Counter[str]())
        return ValidationReport(families, summarise(everything, skipped, [*chain.from_iterable(self._inside.values())]))
