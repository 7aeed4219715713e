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
    from app.importers.huggingface import huggingface
    from app.importers.registry import MODEL_KIND, check_kind, import_cluster
    from app.jobs.importing import check_options, cluster_notes, model_notes

    check_kind(kind)
    check_options(kind, len(files), has_overlay=overlay is not None, ignore=ignore or ())
    given = [_read(one) for one in files]
    if kind == MODEL_KIND:
        model = huggingface(*given[0], model_name=name, ignore=ignore or ())
        text, notes = model.architecture.model_dump_json(indent=2, exclude_none=True), model_notes(model)
    else:
        made = import_cluster(kind, given, None if overlay is None else _read(overlay))
        cluster = made.cluster.model_copy(update={"name": name}) if name else made.cluster
        text, notes = cluster.model_dump_json(indent=2, exclude_defaults=True), cluster_notes(made)
    for note in () if screen.quiet else notes:
        typer.echo(note, err=True)
    if out is None or screen.as_json:
        typer.echo(text)
    write(out, (text + "\n").encode(), quiet=screen.quiet)


def _read(source: str) -> File:
    return ("standard input" if source == "-" else source, read_source(source))
