"""`isthmus observe`: the logs and traces of a run beside its plan."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.faults import refused
from app.terminal.exits import ExitCode
from app.terminal.inputs import keeper, read_document, read_request, read_rows, read_source
from app.terminal.options import PlanSource, RequestFile, Service
from app.terminal.outputs import write
from app.terminal.screen import Screen, escape, table

if TYPE_CHECKING:
    from rich.console import Console

    from app.client.blocking import Client
    from app.observations.beside import Observation
    from app.observations.measured import Measured
    from models.plan import Plan
    from models.request import PlanRequest

GB = 1e9


def observe(
    plan_source: PlanSource,
    logs: Annotated[
        list[str],
        typer.Argument(metavar="LOGS...", help="Logs of Megatron-LM or torchtitan, traces of PyTorch's profiler."),
    ],
    *,
    request: RequestFile = None,
    rows: Annotated[
        Path | None, typer.Option(help="Add a row for isthmus calibrate to this CSV file; needs the request.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="Share of the planned time that a run may be off.")
    ] = 0.10,
    screen: Screen,
    service: Service,
) -> None:
    """Lay a run beside its plan, cause by cause; exit code 3 when its time is off by more than the tolerance."""
    from app.observations.beside import observation
    from app.observations.files import read_measured
    from app.observations.rows import calibration_row

    with service.client() as client:
        found, asked = _planned(plan_source, request, client)
    if rows is not None and asked is None:
        raise refused("missing-field", "a row states the job, which a plan does not hold", where="--request",
                      remedy="Give the request of the plan: --request REQUEST.json.")  # fmt: skip
    runs = [read_measured(one, read_source(one), found) for one in logs]
    if not any(one.step_s for one in runs):
        what = "; ".join(f"{one.name}: {', '.join(one.notes)}" for one in runs)
        raise refused("invalid-request", f"no step time in these files: {what}", where="LOGS",
                      remedy="Record whole steps: two and more.")  # fmt: skip
    seen = observation(found, runs, tolerance=tolerance)
    if rows is not None and asked is not None:
        row = calibration_row(found, asked, seen, _framework(runs, asked))
        _add_row(rows, row, quiet=screen.quiet)
    screen.show(seen.to_dict(), lambda console: print_observation(console, seen))
    raise typer.Exit(ExitCode.PLANNED if seen.as_planned else ExitCode.INFEASIBLE)


def _planned(source: str, request: str | None, client: Client | None) -> tuple[Plan, PlanRequest | None]:
    """The plan, and its request where that is known: named, or kept by the service."""
    from app.documents import read_plan

    asked = None if request is None else read_document(request, read_request, "request")
    if (kept_by := keeper(source, client)) is None:
        return read_document(source, read_plan, "plan"), asked
    from app.client import calls
    from app.terminal.remote import outcome_on, plan_of

    return plan_of(outcome_on(kept_by, source)), asked or kept_by.call(calls.request_of(source))


def _add_row(path: Path, row: dict[str, str] | str, *, quiet: bool) -> None:
    """The row joins those that the file has, for a fit wants several runs; or why there is none."""
    from app.observations.rows import as_csv

    if isinstance(row, str):
        typer.echo(f"no row: {row}", err=True)
        return
    kept = read_rows(str(path)) if path.exists() else []
    write(path, as_csv([*kept, row]).encode(), quiet=quiet)


def _framework(runs: Sequence[Measured], asked: PlanRequest) -> str:
    """Who trained: as a log tells, or the framework that the job was planned for; a trace tells neither."""
    from app.observations.measured import TRACE

    logged = [one.tool for one in runs if one.step_s and one.tool != TRACE]
    planned_for = asked.constraints.framework
    return next(iter(logged), planned_for.name if planned_for is not None else "")


def print_observation(console: Console, seen: Observation) -> None:
    """The step, the causes with the largest difference first, and what to doubt."""
    off = f"{100 * (seen.ratio - 1):+.1f} %"
    verdict = "[bold green]as planned[/]" if seen.as_planned else "[bold red]not as planned[/]"
    console.print(
        f"[bold]{seen.measured_s:.4g} s[/] a step measured ({seen.num_steps} steps, +-{seen.spread_s:.2g} s), "
        f"{seen.planned_s:.4g} s planned: {off}, {verdict}."
    )
    if seen.causes:
        causes = table("Where the time went", "cause", ">planned s", ">measured s", ">difference s", "")
        for one in seen.causes:
            mark = "[red]off[/]" if one.is_off else ""
            causes.add_row(one.name, f"{one.planned_s:.4f}", f"{one.measured_s:.4f}", f"{one.difference_s:+.4f}", mark)
        console.print(causes)
    else:
        console.print("These files do not tell causes apart: a trace does, or Megatron with --timing-log-level 2.")
    for one in seen.causes:
        if one.is_off and one.rests_on:
            console.print(f"[bold]{escape(one.name)}[/] rests on {escape(one.rests_on)}.")
            for told in one.assumptions:
                console.print(f"  assumed: {escape(told)}")
    if seen.measured_peak_memory_bytes is not None and seen.planned_peak_memory_bytes is not None:
        measured, planned = seen.measured_peak_memory_bytes / GB, seen.planned_peak_memory_bytes / GB
        console.print(f"Peak memory {measured:.1f} GB measured, {planned:.1f} GB planned.")
    for note in seen.notes:
        console.print(f"Note: {escape(note)}.")
