"""`isthmus accuracy` and `calibrate`: predictions beside measured rows, and a profile fitted to them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.faults import refused
from app.terminal.inputs import read_rows
from app.terminal.options import File, OutFile, Service
from app.terminal.outputs import prepare, write
from app.terminal.screen import Screen, table

if TYPE_CHECKING:
    from rich.console import Console

SUBJECT = "training"
ERRORS = ("mean_abs", "median_abs", "bias", "worst")
Subject = Annotated[str, typer.Argument(help="training")]


def accuracy(subject: Subject, rows: File, *, screen: Screen) -> None:
    """Compare predictions with measured rows; nothing is refitted."""
    report = validation_report(subject, read_rows(rows))
    screen.show(report, lambda console: print_report(console, report))


def calibrate(
    rows: File,
    *,
    out: OutFile = None,
    name: Annotated[str, typer.Option(help="Name of the fitted profile.")] = "calibrated",
    constants: Annotated[str, typer.Option(help="Constants to fit, comma separated; empty: what the rows tell.")] = "",
    profile: Annotated[str | None, typer.Option(help="Profile to start from; else what the rows choose.")] = None,
    screen: Screen,
    service: Service,
) -> None:
    """Fit a software-stack profile to your own measured runs; --out writes the profile. A --server keeps it."""
    from app.client import calls
    from app.jobs.calibration import calibration

    prepare(out)
    names = tuple(one.strip() for one in constants.split(",") if one.strip())
    measured = read_rows(rows)
    with service.client() as client:
        if client is None:
            report = calibration(measured, name=name, constants=names, profile=profile)
        else:
            call = calls.calibrate(measured, name=name, constants=names, profile=profile)
            report = client.call(call).model_dump(mode="json")
            screen.news.print(f"{report['id']}: give it as options.stack_profile")
    write(out, json.dumps(report["profile"], indent=2).encode(), quiet=screen.quiet)
    screen.show(report, lambda console: print_calibration(console, report))


def validation_report(subject: str, rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Errors per family and in total, as plain values."""
    if subject != SUBJECT:
        raise refused("not-an-option", f"no measured subject is called {subject!r}", allowed=SUBJECT,
                      remedy=f"Use {SUBJECT}.", where="first argument")  # fmt: skip
    from solver.calibration.training import validate_training

    report = validate_training(rows).to_dict()
    if not report["total"]["rows"]:
        reasons = "; ".join(report["total"]["skipped"]) or "there are no rows"
        raise refused("too-few-rows", f"no row can be used: {reasons}", remedy="Fill the columns that are named.")
    return report


def print_report(console: Console, report: Mapping[str, Any]) -> None:
    """One line per family, the total, and the reasons of skipped rows."""
    headings = ("family", ">rows", *(f">{one.replace('_', ' ')}" for one in ERRORS))
    rows = ((name, str(summary["rows"]), *(_figure(summary, one) for one in ERRORS))
            for name, summary in [*report["families"].items(), ("total", report["total"])])  # fmt: skip
    console.print(table("Prediction errors (%)", *headings, rows=rows))
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
    start = report["start_mean_abs_pct"]
    if start is not None and report["cross_validated_mean_abs_pct"] > start:
        console.print("Rows held back are predicted worse than by the profile it began with: keep that, or add runs.")
