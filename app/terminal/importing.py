"""`isthmus import`: files of another tool in, a cluster or a model document out.

Owns the options and what is told to the person; the reading is in `app/importers`. Never fetches anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.terminal.options import Quiet

if TYPE_CHECKING:
    from app.importers.huggingface import ImportedModel
    from app.importers.registry import File, ImportedCluster

HELP = "topograph, slurm-yaml, slurm-topoconf, slurm-conf, kueue, links-csv or huggingface"


def import_command(
    kind: Annotated[str, typer.Argument(help=HELP)],
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files, or - for standard input.")],
    *,
    overlay: Annotated[str | None, typer.Option(help="What the format lacks: delays, rates, GPUs, prices.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the document to this file.")] = None,
    name: Annotated[str, typer.Option(help="Name of the document; else what the input says.")] = "",
    ignore: Annotated[list[str] | None, typer.Option(help="Field of a config.json to let pass; repeatable.")] = None,
    quiet: Quiet = False,
) -> None:
    """Turn a topology with its overlay, or a Hugging Face config.json, into our document."""
    from app.importers.registry import MODEL_KIND, check_kind, import_cluster, import_model
    from app.terminal.outputs import write

    check_kind(kind)
    _check_options(kind, len(files), overlay, ignore)
    given = [_read(one) for one in files]
    if kind == MODEL_KIND:
        model = import_model(given[0], name=name, ignore=ignore or ())
        text, notes = model.architecture.model_dump_json(indent=2, exclude_none=True), _model_notes(model)
    else:
        made = import_cluster(kind, given, None if overlay is None else _read(overlay))
        cluster = made.cluster.model_copy(update={"name": name}) if name else made.cluster
        text, notes = cluster.model_dump_json(indent=2, exclude_defaults=True), _cluster_notes(made)
    for note in () if quiet else notes:
        typer.echo(note, err=True)
    if out is None:
        typer.echo(text)
    else:
        write(out, (text + "\n").encode(), quiet=quiet)


def _read(source: str) -> File:
    from app.terminal.inputs import read_source

    return ("standard input" if source == "-" else source, read_source(source))


def _check_options(kind: str, num_files: int, overlay: str | None, ignore: list[str] | None) -> None:
    from app.faults import Fault, Refused
    from app.importers.registry import MODEL_KIND

    is_model = kind == MODEL_KIND
    faults = []
    if is_model and num_files != 1:
        faults.append(Fault("bad-length", f"{num_files} files for one model", allowed="one config.json",
                            remedy="Import one model at a time.", where="FILE"))  # fmt: skip
    if is_model and overlay is not None:
        faults.append(Fault("contradiction", "a model has no overlay", allowed="no --overlay",
                            remedy="Leave --overlay out.", where="--overlay"))  # fmt: skip
    if not is_model and ignore:
        faults.append(Fault("contradiction", f"--ignore is for {MODEL_KIND}", allowed="no --ignore",
                            remedy="Leave --ignore out.", where="--ignore"))  # fmt: skip
    if faults:
        raise Refused(faults)


def _cluster_notes(made: ImportedCluster) -> list[str]:
    cluster = made.cluster
    counts = f"{len(cluster.places):,} places, {len(cluster.pools):,} pools, {len(cluster.links):,} links"
    return [*made.notes, f"{counts}, {cluster.num_free_gpus:,} GPUs to plan with"]


def _model_notes(model: ImportedModel) -> list[str]:
    from app.importers.huggingface import summary
    from models.workload import Workload
    from solver.cost.job import job_of

    body = model.architecture.model_copy(update={"num_mtp_layers": 0})
    job = job_of(Workload(architecture=body, sequence_length=1, global_batch_sequences=1))
    counted = f"{job.total_parameters:,.0f} parameters, {job.active_parameters:,.0f} of them active"
    extra = model.architecture.num_mtp_layers
    return [*summary(model), counted + (f"; {extra} multi-token-prediction layers beside them" if extra else "")]
