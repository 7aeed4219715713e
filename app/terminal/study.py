"""`isthmus study`: sends a grid of requests to a running service, waits for it, and shows it as one table."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.terminal.exits import ExitCode
from app.terminal.inputs import read_document
from app.terminal.options import OutFile, Service
from app.terminal.outputs import prepare, write
from app.terminal.planning import settings_of
from app.terminal.screen import PLAIN_WIDTH, Screen, escape, table

if TYPE_CHECKING:
    from rich.console import Console

    from app.client.blocking import Client
    from app.wire import Study

POLL_S = 0.5


def study(
    context: typer.Context,
    grid: Annotated[str, typer.Argument(metavar="GRID", help="A body of POST /v1/studies: a file, or - .")],
    *,
    out: OutFile = None,
    screen: Screen,
    service: Service,
) -> None:
    """Plan a grid of requests on a running service; Ctrl-C stops it and keeps what was found."""
    from app.documents import parse_json

    document = read_document(grid, parse_json)
    prepare(out)
    with service.client_of(service.address() or settings_of(context).address) as client:
        found = _followed(client, document, screen.news).model_dump(mode="json")
    write(out, _as_file(found, out), quiet=screen.quiet)
    screen.show(found, lambda console: _show(console, found))
    is_planned = any(member["figures"] for member in found["members"])
    raise typer.Exit(ExitCode.PLANNED if is_planned else ExitCode.NOTHING_FOUND)


def _as_file(found: Mapping[str, Any], out: Path | None) -> bytes:
    """The study as the name of its file asks: a table as .csv, a picture as .svg, and JSON."""
    from app.exporters.report.answer_picture import study_picture
    from app.jobs.findings import study_table
    from app.wire import Study

    suffix = "" if out is None else out.suffix.lower()
    if suffix not in (".csv", ".svg"):
        return json.dumps(found, indent=2).encode()
    study = Study.model_validate(found)
    return (study_table(study) if suffix == ".csv" else study_picture(study.findings)).encode()


def _followed(client: Client, document: Any, console: Console) -> Study:
    """The study once it has ended."""
    from app.client import calls

    current = client.call(calls.submit_study(document))
    console.print(f"{current.id}: {len(current.members)} points")
    shown = ""
    while current.state != "done":
        try:
            current = client.call(calls.study(current.id))
            news = ", ".join(f"{number} {state}" for state, number in sorted(current.counts.items()))
            if news != shown:
                console.print(f"  {news}")
                shown = news
            if current.state != "done":
                time.sleep(POLL_S)
        except KeyboardInterrupt:
            console.print("  stopping what is left, keeping what was found")
            client.call(calls.cancel_study(current.id))
    return current


def _show(console: Console, found: Mapping[str, Any]) -> None:
    """The table, without the plans' names where it would be too wide, and below it why a point has no plan."""
    from app.jobs.patches import in_words

    points = table(escape(found["name"] or found["id"]), ">", ">time s", ">bound s", ">gap %", ">GPUs")
    is_wide = console.width >= PLAIN_WIDTH
    for heading in ("crossing", "state", *(("plan",) if is_wide else ())):
        points.add_column(heading, no_wrap=True)
    points.add_column("point", overflow="fold")
    for member in found["members"]:
        plan = (member["plan_id"] or "",) if is_wide else ()
        cells = (*_figures(member["figures"]), member["state"], *plan, escape(in_words(member["changes"])))
        points.add_row(str(member["index"]), *cells)
    console.print(points)
    said = found["findings"]
    console.print(f"profile {escape(', '.join(said['stack_profiles']))}; {escape(said['says'])}.")
    for axis in said["axes"]:
        console.print(f"{escape(axis['pointer'])}: {escape(axis['says'])}")
    for member in found["members"]:
        for fault in member["faults"]:
            console.print(f"{member['index']}: {escape(fault['what'])} ({escape(fault['where'])})")
        if member["figures"] is None and member["plan_id"]:
            console.print(f"{member['index']}: no plan; GET /v1/plans/{member['plan_id']} says why")


def _figures(figures: Mapping[str, Any] | None) -> tuple[str, ...]:
    if figures is None:
        return ("",) * 5
    bound_s, gap = figures["lower_bound_s"], figures["relative_gap"]
    return (
        f"{figures['iteration_s']:.3f}",
        "" if bound_s is None else f"{bound_s:.3f}",
        "" if gap is None else f"{100 * gap:.1f}",
        f"{figures['num_gpus']:,}",
        escape(figures["crossing"]),
    )
