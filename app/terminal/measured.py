"""Compares predictions with measured rows, and fits a profile to them, as the command line asks for it.

Owns the choice of the comparison by name and the tables. The comparisons and the fit themselves are the solver's.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from app.faults import Fault, Refused

if TYPE_CHECKING:
    from solver.validation.rows import Run

SUBJECTS = ("training", "network", "pipeline")
COLUMNS = ("rows", "mean_abs_pct", "median_abs_pct", "bias_pct", "worst_pct")


def validation_report(subject: str, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Errors per family and in total, as plain values."""
    if subject not in SUBJECTS:
        allowed = ", ".join(SUBJECTS)
        raise Refused((Fault("not-an-option", f"no measured subject is called {subject!r}", allowed=allowed,
                             remedy=f"Use one of {allowed}.", where="first argument"),))  # fmt: skip
    module = importlib.import_module(f"solver.validation.{subject}")
    validate: Callable[[Sequence[Mapping[str, str]]], Any] = getattr(module, f"validate_{subject}")
    try:
        report: dict[str, Any] = validate(rows).to_dict()
    except KeyError as missing:
        remedy = f"Use the columns of the measured {subject} data."
        raise Refused((Fault("missing-field", f"the rows have no column {missing}", remedy=remedy),)) from None
    return report


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """One line per family, the total, and the reasons of skipped rows."""
    table = Table(title="Prediction errors (%)", title_justify="left")
    table.add_column("family")
    for column in COLUMNS:
        table.add_column(column.removesuffix("_pct").replace("_", " "), justify="right")
    for name, summary in [*report["families"].items(), ("total", report["total"])]:
        table.add_row(name, str(summary["rows"]), *(_figure(summary, one) for one in COLUMNS[1:]))
    console.print(table)
    for reason, number in report["total"]["skipped"].items():
        console.print(f"skipped {number}: {reason}", highlight=False)


def _figure(summary: Mapping[str, Any], column: str) -> str:
    value = float(summary[column])
    return f"{value:+.2f}" if column in ("bias_pct", "worst_pct") else f"{value:.2f}"


DEFAULT_CONSTANTS = ("gemm_efficiency", "scale_out_efficiency", "step_constant_s")


def calibration(rows: Sequence[Mapping[str, str]], constants: Sequence[str], profile: str | None) -> dict[str, Any]:
    """Constants of a stack profile fitted to measured runs, with the error on runs held back, as plain values.

    The profile to start from is the one named, or the one that most rows choose by their framework and GPU; rows that
    choose another one are left out and counted.
    """
    import numpy as np

    from solver.cost.calibrate import BOUNDS, calibrate
    from solver.validation.predict import predict
    from solver.validation.rows import with_stack

    unknown = sorted(set(constants) - set(BOUNDS))
    if unknown:
        allowed = ", ".join(BOUNDS)
        raise Refused((Fault("not-an-option", f"no constant is called {unknown[0]!r}", allowed=allowed,
                             remedy="Use constants of the cost model.", where="--constants"),))  # fmt: skip
    runs, skipped = _runs(rows, profile)
    base = runs[0].stack
    measured_s = np.array([run.measured_s for run in runs])
    fitted = calibrate(
        base,
        tuple(constants),
        measured_s,
        lambda trial, chosen: np.array(
            [one.iteration_s for one in predict([with_stack(runs[index], trial) for index in chosen])]
        ),
        source=f"least squares on {len(runs)} measured runs of the user",
    )
    return {
        "profile": fitted.profile.model_dump(mode="json"),
        "started_from": base.name,
        "rows": fitted.num_rows,
        "skipped": skipped,
        "fitted": dict(fitted.fitted),
        "fit_mean_abs_pct": fitted.fit_mean_abs_pct,
        "fit_median_abs_pct": fitted.fit_median_abs_pct,
        "cross_validated_mean_abs_pct": fitted.cross_validated_mean_abs_pct,
        "cross_validated_median_abs_pct": fitted.cross_validated_median_abs_pct,
    }


def _runs(rows: Sequence[Mapping[str, str]], profile: str | None) -> tuple[list[Run], dict[str, int]]:
    """The runs that share one profile, and how many rows were left out for which reason."""
    from solver.validation.rows import SkipRow, run_of
    from solver.validation.training import packaged_stacks

    stacks = packaged_stacks()
    runs: list[Run] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        try:
            runs.append(run_of(row, stacks))
        except SkipRow as reason:
            skipped[str(reason)] += 1
        except KeyError as missing:
            remedy = "Use the columns of the measured training data."
            raise Refused((Fault("missing-field", f"the rows have no column {missing}", remedy=remedy),)) from None
    names = Counter(run.stack.name for run in runs)
    chosen = profile or (names.most_common(1)[0][0] if names else "")
    if chosen not in names:
        found = ", ".join(names) or "none of the packaged profiles"
        raise Refused((Fault("too-few-rows", f"no usable row belongs to profile {chosen!r}; rows choose {found}",
                             remedy="Check framework and gpu of the rows, or name another --profile."),))  # fmt: skip
    skipped["belongs to another profile"] = len(runs) - names[chosen]
    return [run for run in runs if run.stack.name == chosen], {why: count for why, count in skipped.items() if count}


def print_calibration(console: Console, report: Mapping[str, Any]) -> None:
    """The fitted constants and how well they do."""
    console.print(f"Fitted to {report['rows']} runs, starting from profile {report['started_from']}:")
    for name, value in report["fitted"].items():
        console.print(f"  {name} = {value:.5g}", highlight=False)
    for name, rows in (("fit", "the rows it saw"), ("cross_validated", "rows held back")):
        mean, middle = report[f"{name}_mean_abs_pct"], report[f"{name}_median_abs_pct"]
        console.print(f"Error on {rows}: {mean:.2f} % mean, {middle:.2f} % median.")
    for reason, number in report["skipped"].items():
        console.print(f"skipped {number}: {reason}", highlight=False)
