"""Imports for the command line and the HTTP service: texts of other tools in, a document and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.faults import Fault, Refused
from app.importers.huggingface import ImportedModel, huggingface, summary
from app.importers.registry import MODEL_KIND, File, ImportedCluster, check_kind, import_cluster
from models.workload import Workload
from solver.cost.job import job_of


def import_texts(
    kind: str,
    files: Sequence[Mapping[str, str]],
    *,
    overlay: Mapping[str, str] | None = None,
    name: str = "",
    ignore: Sequence[str] = (),
) -> dict[str, Any]:
    """The cluster or the architecture that texts describe, as plain values; `faults` instead where they describe none.

    `files` and `overlay` are `{"name": ..., "text": ...}`.
    """
    try:
        check_options(kind, len(files), has_overlay=overlay is not None, ignore=ignore)
        given = [(one["name"], one["text"].encode()) for one in files]
        added = None if overlay is None else (overlay["name"], overlay["text"].encode())
        document, notes = imported(kind, given, added, name=name, ignore=ignore)
    except Refused as refused:
        return {"faults": [fault.to_dict() for fault in refused.faults]}
    is_model = kind == MODEL_KIND
    return {"cluster": None if is_model else document, "architecture": document if is_model else None, "notes": notes}


def imported(
    kind: str, files: Sequence[File], overlay: File | None, *, name: str, ignore: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """The document that files of a kind describe, without what it need not state, and what a person should know."""
    if kind == MODEL_KIND:
        model = huggingface(*files[0], model_name=name, ignore=ignore)
        return model.architecture.model_dump(mode="json", exclude_none=True), model_notes(model)
    made = import_cluster(kind, files, overlay)
    cluster = made.cluster.model_copy(update={"name": name}) if name else made.cluster
    return cluster.model_dump(mode="json", exclude_defaults=True), cluster_notes(made)


def check_options(kind: str, num_files: int, *, has_overlay: bool, ignore: Sequence[str]) -> None:
    """Refuse a kind of import that is none, and what does not go with it."""
    check_kind(kind)
    is_model = kind == MODEL_KIND
    faults = []
    if is_model and num_files != 1:
        faults.append(Fault("bad-length", f"{num_files} files for one model", allowed="one config.json",
                            remedy="Import one model at a time.", where="files"))  # fmt: skip
    if is_model and has_overlay:
        faults.append(Fault("contradiction", "a model has no overlay", allowed="no overlay",
                            remedy="Leave the overlay out.", where="overlay"))  # fmt: skip
    if not is_model and ignore:
        faults.append(Fault("contradiction", f"ignore is for {MODEL_KIND}", allowed="nothing to ignore",
                            remedy="Leave ignore out.", where="ignore"))  # fmt: skip
    if faults:
        raise Refused(faults)


def cluster_notes(made: ImportedCluster) -> list[str]:
    """What was left out, and how large the cluster is."""
    cluster = made.cluster
    counts = f"{len(cluster.places):,} places, {len(cluster.pools):,} pools, {len(cluster.links):,} links"
    return [*made.notes, f"{counts}, {cluster.num_free_gpus:,} GPUs to plan with"]


def model_notes(model: ImportedModel) -> list[str]:
    """Which fields were used, and the number of parameters to compare with the model's card."""
    body = model.architecture.model_copy(update={"num_mtp_layers": 0})
    job = job_of(Workload(architecture=body, sequence_length=1, global_batch_sequences=1))
    counted = f"{job.total_parameters:,.0f} parameters, {job.active_parameters:,.0f} of them active"
    extra = model.architecture.num_mtp_layers
    return [*summary(model), counted + (f"; {extra} multi-token-prediction layers beside them" if extra else "")]
