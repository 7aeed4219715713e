"""`isthmus import`: files of another tool in, a cluster or a model document out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.terminal.inputs import read_source
from app.terminal.outputs import write
from app.terminal.screen import Screen

if TYPE_CHECKING:
    from app.importers.registry import File

HELP = "topograph, slurm-yaml, slurm-topoconf, slurm-conf, kueue, links-csv or huggingface"


def import_command(
    kind: Annotated[str, typer.Argument(help=HELP)],
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files, or - for standard input.")],
    *,
    overlay: Annotated[str | None, typer.Option(help="What the format lacks: delays, rates, GPUs, prices.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the document to this file.")] = None,
    name: Annotated[str, typer.Option(help="Name of the document; else what the input says.")] = "",
    ignore: Annotated[list[str] | None, typer.Option(help="Field of a config.json to let pass; repeatable.")] = None,
    screen: Screen,
) -> None:
    """Turn a topology with its overlay, or a Hugging Face config.json, into our document."""
    from pydantic_core import to_json

    from app.jobs.importing import check_options, imported

    check_options(kind, len(files), has_overlay=overlay is not None, ignore=ignore or ())
    given, added = [_read(one) for one in files], None if overlay is None else _read(overlay)
    document, notes = imported(kind, given, added, name=name, ignore=ignore or ())
    text = to_json(document, indent=2).decode()
    for note in () if screen.quiet else notes:
        typer.echo(note, err=True)
    if out is None or screen.as_json:
        typer.echo(text)
    write(out, (text + "\n").encode(), quiet=screen.quiet)


def _read(source: str) -> File:
    return ("standard input" if source == "-" else source, read_source(source))
