"""Compares predictions with measured rows, and fits a profile to them, as the command line asks for it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from app.faults import refused
from app.terminal.tables import table

SUBJECTS = ("training", "network", "pipeline")
ERRORS = ("mean_abs", "median_abs", "bias", "worst")


def validation_report(subject: str, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Errors per family and in total, as plain values."""
    if subject not in SUBJECTS:
        allowed = ", ".join(SUBJECTS)
        raise refused("not-an-option", f"no measured subject is called {subject!r}", allowed=allowed,
                      remedy=f"Use one of {allowed}.", where="first argument")  # fmt: skip
    module = importlib.import_module(f"solver.calibration.{subject}")
    validate: Callable[[Sequence[Mapping[str, str]]], Any] = getattr(module, f"validate_{subject}")
    try:
        report: dict[str, Any] = validate(rows).to_dict()
    except KeyError as missing:
        remedy = f"Use the columns of the measured {subject} data."
        raise refused("missing-field", f"the rows have no column {missing}", remedy=remedy) from None
    if not report["total"]["rows"]:
        reasons = "; ".join(report["total"]["skipped"]) or "there are no rows"
        raise refused("too-few-rows", f"no row can be used: {reasons}", remedy="Fill the columns that are named.")
    return report


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """One line per family, the total, and the reasons of skipped rows."""
    errors = table("Prediction errors (%)", "family", ">rows", *(f">{one.replace('_', ' ')}" for one in ERRORS))
    for name, summary in [*report["families"].items(), ("total", report["total"])]:
        errors.add_row(name, str(summary["rows"]), *(_figure(summary, one) for one in ERRORS))
    console.print(errors)
    for reason, number in report["total"]["skipped"].items():
        console.print(f"skipped {number}: {reason}")


def _figure(summary: Mapping[str, Any], column: str) -> str:
    value = float(summary[f"{column}_pct"])
    return f"{value:+.2f}" if column in ("bias", "worst") else f"{value:.2f}"


def print_calibration(console: Console, report: Mapping[str, Any]) -> None:
    """The fitted constants and how well they do."""
    console.print(f"Profile {report['profile']['name']!r}, {report['profile']['description']}:")
    for name, value in report["fitted"].items():
        console.print(f"  {name} = {value:.5g}")
    kinds = (
        ("start", "before, by the profile it began with"),
        ("fit", "on the rows it saw"),
        ("cross_validated", "on rows held back"),
    )
    for name, rows in kinds:
        mean, middle = report[f"{name}_mean_abs_pct"], report[f"{name}_median_abs_pct"]
        if mean is not None:  # an older service does not tell the first
            console.print(f"Error {rows}: {mean:.2f} % mean, {middle:.2f} % median.")
    if report["cross_validated_mean_abs_pct"] > (report["start_mean_abs_pct"] or float("inf")):
        console.print("Rows held back are predicted worse than by the profile it began with: keep that, or add runs.")
