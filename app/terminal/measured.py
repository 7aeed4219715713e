"""Compares predictions with measured rows, and fits a profile to them, as the command line asks for it.

Owns the choice of the comparison by name and the tables. The comparisons and the fit themselves are the solver's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from app.faults import Fault, Refused
from models.catalogue import entry_names, named_entry
from models.stack import StackProfile

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


def calibration(
    rows: Sequence[Mapping[str, str]], *, name: str, constants: Sequence[str], profile: str | None
) -> dict[str, Any]:
    """Constants of a stack profile fitted to measured runs, with the error on runs held back, as plain values."""
    from solver.validation.calibration import calibrate_rows

    try:
        fitted = calibrate_rows(rows, name=name, start=_profile(profile), constants=constants)
    except KeyError as missing:
        remedy = "Use the columns of the measured training data."
        raise Refused((Fault("missing-field", f"the rows have no column {missing}", remedy=remedy),)) from None
    return {
        "profile": fitted.profile.model_dump(mode="json"),
        "rows": fitted.num_rows,
        "fitted": dict(fitted.fitted),
        "fit_mean_abs_pct": fitted.fit_mean_abs_pct,
        "fit_median_abs_pct": fitted.fit_median_abs_pct,
        "cross_validated_mean_abs_pct": fitted.cross_validated_mean_abs_pct,
        "cross_validated_median_abs_pct": fitted.cross_validated_median_abs_pct,
    }


def _profile(name: str | None) -> StackProfile | None:
    if name is None:
        return None
    allowed = ", ".join(entry_names("stacks"))
    if name not in entry_names("stacks"):
        raise Refused((Fault("unknown-name", f"no profile is called {name!r}", allowed=allowed,
                             remedy=f"Use one of {allowed}.", where="--profile"),))  # fmt: skip
    return StackProfile.model_validate(named_entry("stacks", name))


def print_calibration(console: Console, report: Mapping[str, Any]) -> None:
    """The fitted constants and how well they do."""
    console.print(f"Profile {report['profile']['name']!r} fitted to {report['rows']} runs:", highlight=False)
    for name, value in report["fitted"].items():
        console.print(f"  {name} = {value:.5g}", highlight=False)
    for name, rows in (("fit", "the rows it saw"), ("cross_validated", "rows held back")):
        mean, middle = report[f"{name}_mean_abs_pct"], report[f"{name}_median_abs_pct"]
        console.print(f"Error on {rows}: {mean:.2f} % mean, {middle:.2f} % median.")
