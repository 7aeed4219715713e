"""The imports on offer. A new topology format is a file and a line in `TOPOLOGIES`.

An import is read, gets the overlay, and is validated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.faults import Refused, refused
from app.importers.assembly import assemble
from app.importers.fabric import Fabric
from app.importers.kueue import kueue
from app.importers.links_csv import links_csv
from app.importers.overlay import read_overlay
from app.importers.slurm_conf import slurm_conf
from app.importers.slurm_yaml import slurm_yaml
from app.importers.source import names_shown
from app.importers.topograph import topograph
from models.cluster import Cluster

File = tuple[str, bytes]
MODEL_KIND = "huggingface"
TOPOLOGIES: Mapping[str, Callable[[Sequence[File]], Fabric]] = {
    "topograph": topograph,
    "slurm-yaml": slurm_yaml,
    "slurm-topoconf": slurm_yaml,  # scontrol prints the form of topology.yaml
    "slurm-conf": slurm_conf,
    "kueue": kueue,
    "links-csv": links_csv,
}
KINDS = (*TOPOLOGIES, MODEL_KIND)


@dataclass(frozen=True)
class ImportedCluster:
    """The cluster, and what the import left out."""

    cluster: Cluster
    notes: tuple[str, ...]


def import_cluster(kind: str, files: Sequence[File], overlay: File | None) -> ImportedCluster:
    """The cluster that files of one format and an overlay describe."""
    if kind not in TOPOLOGIES:
        raise _unknown(kind, TOPOLOGIES)
    if not files:
        raise refused("missing-field", "no file is given", remedy="Name the files to import.", where="FILE")
    fabric = TOPOLOGIES[kind](files)
    if overlay is None:
        raise _no_overlay(kind, fabric)
    return ImportedCluster(assemble(fabric, read_overlay(*overlay)), fabric.notes)


def check_kind(kind: str) -> None:
    """Refuse a format that does not exist, with those that do."""
    if kind not in KINDS:
        raise _unknown(kind, KINDS)


def _unknown(kind: str, known: Sequence[str] | Mapping[str, object]) -> Refused:
    allowed = ", ".join(known)
    return refused("not-an-option", f"there is no import {kind!r}", allowed=allowed, remedy=f"Use one of {allowed}.",
                   where="KIND")  # fmt: skip


def _no_overlay(kind: str, fabric: Fabric) -> Refused:
    """What the format leaves open, in the words of the overlay."""
    levels = "".join(f"{{level: {level}, place: ...}}, " for level in fabric.levels).rstrip(", ")
    hosts = names_shown((host.name for host in fabric.hosts), 3) or "no hosts: state pools"
    what = (
        f"{kind} names {len(fabric.hosts):,} hosts ({hosts}) but neither GPUs, rates nor delays: an overlay is needed"
    )
    remedy = (
        f"Give an overlay (--overlay OVERLAY.yaml) with levels: [{levels}] and "
        'hosts: [{match: ["*"], gpu: H100-SXM-80G, gpus_per_host: 8, nic_bytes_per_s: 5e10}].'
    )
    return refused("missing-field", what, allowed="an overlay", remedy=remedy, where="--overlay")
