"""`isthmus accuracy` and `calibrate`: predictions beside measured rows, and a profile fitted to them."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from app.terminal.inputs import read_rows
from app.terminal.options import File, OutFile, Service
from app.terminal.outputs import prepare, write
from app.terminal.screen import Screen

Subject = Annotated[str, typer.Argument(help="training, network or pipeline")]


def accuracy(subject: Subject, rows: File, *, screen: Screen) -> None:
    """Compare predictions with measured rows; nothing is refitted."""
    from app.terminal.measured import print_report, validation_report

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
    from app.terminal.measured import print_calibration

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
