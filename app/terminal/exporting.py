"""`isthmus export`: a plan in the form of another tool, one form or all of them, here or from a service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.faults import Refused, refused
from app.terminal.inputs import hosts_text, keeper, read_document, read_request
from app.terminal.options import Hosts, RequestFile, Service
from app.terminal.outputs import write
from app.terminal.screen import Screen

if TYPE_CHECKING:
    from rich.console import Console

    from app.client.blocking import Client


def _kinds(incomplete: str) -> list[str]:
    from app.exporters.registry import EXPORTERS

    return [kind for kind in EXPORTERS if kind.startswith(incomplete)]


def export(
    plan_source: Annotated[
        str | None, typer.Argument(metavar="PLAN", help="A plan file, or a plan's id on --server.", show_default=False)
    ] = None,
    *,
    kind: Annotated[
        str | None, typer.Option("--format", help="The form; --list shows them.", autocompletion=_kinds)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Write every form that the plan allows; --out is a folder.")] = (
        False
    ),
    listing: Annotated[bool, typer.Option("--list", help="Show the forms and the tools they are for.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file; with --all the folder.")] = None,
    request: RequestFile = None,
    hosts: Hosts = None,
    screen: Screen,
    service: Service,
) -> None:
    """Write a plan in the form of another tool."""
    if listing:
        _show_forms(screen)
        return
    _check(plan_source, kind, every=every, out=out)
    with service.client() as client:
        render, notes = _renderer(str(plan_source), request, hosts, client)
        if every:
            assert out is not None
            _write_all(out, Path(str(plan_source)).stem, render, screen)
            return
        data = render(str(kind))
    if out is None:
        screen.show({"format": kind, "text": data.decode()}, lambda _: typer.echo(data, nl=False))
        return
    write(out, data, quiet=screen.quiet)
    for line in notes(str(kind)):
        screen.news.print(line, markup=False, soft_wrap=True)
    screen.show({"written": {str(kind): str(out)}, "refused": {}}, lambda _: None)


def _check(plan_source: str | None, kind: str | None, *, every: bool, out: Path | None) -> None:
    from app.exporters.registry import exporter_named

    if plan_source is None:
        raise refused("missing-field", "no plan is named", where="PLAN", allowed="a file, or an id on --server",
                      remedy="Name one; `isthmus export --list` needs none.")  # fmt: skip
    if every == (kind is not None):
        raise refused("contradiction", "give either --format or --all", where="--format", allowed="one of them",
                      remedy="`isthmus export --list` shows the forms.")  # fmt: skip
    if every and out is None:
        raise refused("missing-field", "--all writes files", where="--out", allowed="a folder",
                      remedy="Name the folder: --out FOLDER.")  # fmt: skip
    if kind is not None:
        exporter_named(kind)


Render = Callable[[str], bytes]
Notes = Callable[[str], list[str]]


def _renderer(
    plan_source: str, request: str | None, hosts: list[str] | None, client: Client | None
) -> tuple[Render, Notes]:
    """How a form is made of the plan, and what a person should know of it."""
    from app.documents import read_plan
    from app.exporters.binding import bind, spare_notes
    from app.exporters.hosts import check_job
    from app.exporters.registry import exporter_named

    given, spare = hosts_text(hosts), []
    if (kept_by := keeper(plan_source, client)) is not None:
        return lambda kind: kept_by.export(plan_source, kind, given), lambda _kind: []
    asked = None if request is None else read_document(request, read_request, "request")
    found = read_document(plan_source, read_plan, "plan")
    if asked is not None:
        check_job(found, asked)
    if given is not None:
        bound = bind(found, asked, given)
        found, asked, spare = bound.plan, bound.request, spare_notes(bound.spare)
    return (
        lambda kind: exporter_named(kind).export(found, asked).encode(),
        lambda kind: [*exporter_named(kind).notes(found, asked), *spare],
    )


def _write_all(folder: Path, stem: str, render: Render, screen: Screen) -> None:
    """Every form that can be made, and for each of the others why not."""
    from app.client.errors import ServiceError
    from app.exporters.registry import EXPORTERS

    written: dict[str, str] = {}
    refused: dict[str, str] = {}
    for kind, exporter in EXPORTERS.items():
        path = folder / f"{stem}.{exporter.suffix}"
        try:
            data = render(kind)
        except (Refused, ServiceError) as why:
            if isinstance(why, ServiceError) and why.status != 422:
                raise
            refused[kind] = "; ".join(fault.what for fault in why.faults)
            screen.news.print(f"left out: {kind}: {refused[kind]}", markup=False, soft_wrap=True)
        else:
            write(path, data, quiet=screen.quiet)
            written[kind] = str(path)
    screen.show({"written": written, "refused": refused}, lambda _console: None)


def _show_forms(screen: Screen) -> None:
    from rich.table import Table

    from app.exporters.registry import EXPORTERS

    forms = [
        {"format": kind, "for": one.target.tool, "versions": one.target.versions, "suffix": one.suffix,
         "needs": list(one.target.needs)}
        for kind, one in EXPORTERS.items()
    ]  # fmt: skip

    def draw(console: Console) -> None:
        table = Table(title="Forms of a plan", title_justify="left")
        for heading in ("--format", "for", "needs"):
            table.add_column(heading, no_wrap=heading == "--format")
        for kind, one in EXPORTERS.items():
            table.add_row(kind, f"{one.target.tool} {one.target.versions}", "; ".join(one.target.needs))
        console.print(table)

    screen.show(forms, draw)
