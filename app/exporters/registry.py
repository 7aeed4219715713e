"""The exports on offer. A new one is a file, a name in `ArtifactKind` and a line in `EXPORTERS`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from app.exporters import (
    chrome_trace,
    kueue_jobset,
    megatron_args,
    megatron_communicators,
    nccl_env,
    rank_map_csv,
    slurm_hostfile,
    slurm_sbatch,
    slurm_topology,
    torch_schedule_csv,
    torchrun_script,
    torchtitan_args,
    volcano_job,
)
from app.exporters.report.page import report_html
from app.exporters.target import Target, one_line
from app.faults import Refused, refused
from models.plan import Plan
from models.request import PlanRequest

ArtifactKind = Literal[
    "chrome-trace",
    "rank-map-csv",
    "megatron-args",
    "megatron-communicators",
    "megatron-hostfile",
    "torchtitan-args",
    "torchrun-script",
    "torch-schedule-csv",
    "torch-comms-csv",
    "nccl-env",
    "nccl-cross-dc-env",
    "slurm-hostfile",
    "slurm-sbatch",
    "slurm-topology-yaml",
    "slurm-topology-conf",
    "kueue-jobset",
    "volcano-job",
    "report-html",
    "export-notes",
]
Export = Callable[[Plan, PlanRequest | None], str]
Losses = Callable[[Plan, PlanRequest | None], Iterator[str]]
TEXT, CSV, JSON = "text/plain; charset=utf-8", "text/csv; charset=utf-8", "application/json"
YAML = "application/yaml"
PEOPLE = Target("people", "any")


def no_losses(_plan: Plan, _request: PlanRequest | None) -> Iterator[str]:
    """For exports that show the plan to people."""
    yield from ()


@dataclass(frozen=True)
class Exporter:
    """One export: its function, its media type, the end of its file name, whom it is for and what it loses."""

    export: Export
    media_type: str
    suffix: str
    target: Target = PEOPLE
    losses: Losses = no_losses

    def notes(self, plan: Plan, request: PlanRequest | None) -> Iterator[str]:
        """What a person should know of it, line by line and safe to print: the tool it is for, and its losses."""
        if self.target is not PEOPLE:
            yield one_line(f"for {self.target.tool} {self.target.versions}")
        yield from (one_line(f"not expressed: {loss}") for loss in self.losses(plan, request))


def export_notes(plan: Plan, request: PlanRequest | None = None) -> str:
    """For every export: versions, needs, what it cannot express of this plan, or why it cannot be made."""
    notes = {kind: _note(one, plan, request) for kind, one in EXPORTERS.items() if kind != "export-notes"}
    return json.dumps(notes, indent=2) + "\n"


def _note(one: Exporter, plan: Plan, request: PlanRequest | None) -> dict[str, object]:
    refused: list[str] = []
    try:
        one.export(plan, request)
    except Refused as why:
        refused = [f"{fault.what}. {fault.remedy}" for fault in why.faults]
    return {
        "for": one.target.tool,
        "versions": one.target.versions,
        "needs": list(one.target.needs),
        "not_expressed": list(one.losses(plan, request)),
        "refused": refused,
    }


class _Module(Protocol):
    """What every file of an export holds beside its function."""

    TARGET: Target

    def losses(self, plan: Plan, request: PlanRequest | None, /) -> Iterator[str]: ...


def _of(module: _Module, export: Export, media_type: str, suffix: str) -> Exporter:
    return Exporter(export, media_type, suffix, module.TARGET, module.losses)


TORCH = torch_schedule_csv
EXPORTERS: Mapping[ArtifactKind, Exporter] = {
    "chrome-trace": _of(chrome_trace, chrome_trace.chrome_trace, JSON, "trace.json"),
    "rank-map-csv": _of(rank_map_csv, rank_map_csv.rank_map_csv, CSV, "ranks.csv"),
    "megatron-args": _of(megatron_args, megatron_args.megatron_args, TEXT, "megatron.args"),
    "megatron-communicators": _of(
        megatron_communicators, megatron_communicators.megatron_communicators, YAML, "communicators.yaml"
    ),
    "megatron-hostfile": _of(slurm_hostfile, slurm_hostfile.slurm_hostfile, TEXT, "megatron.hosts.txt"),
    "torchtitan-args": _of(torchtitan_args, torchtitan_args.torchtitan_args, TEXT, "torchtitan.args"),
    "torchrun-script": _of(torchrun_script, torchrun_script.torchrun_script, TEXT, "torchrun.sh"),
    "torch-schedule-csv": _of(TORCH, TORCH.torch_schedule_csv, CSV, "schedule.csv"),
    "torch-comms-csv": _of(TORCH, TORCH.torch_comms_csv, CSV, "schedule.comms.csv"),
    "nccl-env": Exporter(nccl_env.nccl_env, TEXT, "nccl.env", nccl_env.MAINLINE, nccl_env.losses),
    "nccl-cross-dc-env": Exporter(
        nccl_env.nccl_cross_dc_env, TEXT, "nccl-cross-dc.env", nccl_env.CROSS_DC, nccl_env.cross_dc_losses
    ),
    "slurm-hostfile": _of(slurm_hostfile, slurm_hostfile.slurm_hostfile, TEXT, "hosts.txt"),
    "slurm-sbatch": _of(slurm_sbatch, slurm_sbatch.slurm_sbatch, TEXT, "sbatch.sh"),
    "slurm-topology-yaml": Exporter(
        slurm_topology.slurm_topology_yaml, YAML, "topology.yaml", slurm_topology.YAML_TARGET, slurm_topology.losses
    ),
    "slurm-topology-conf": Exporter(
        slurm_topology.slurm_topology_conf, TEXT, "topology.conf", slurm_topology.CONF_TARGET, slurm_topology.losses
    ),
    "kueue-jobset": _of(kueue_jobset, kueue_jobset.kueue_jobset, YAML, "jobset.yaml"),
    "volcano-job": _of(volcano_job, volcano_job.volcano_job, YAML, "volcano.yaml"),
    "report-html": Exporter(report_html, "text/html; charset=utf-8", "report.html"),
    "export-notes": Exporter(export_notes, JSON, "notes.json"),
}


def exporter_named(name: str) -> Exporter:
    """The export of that name, or a fault that lists them all."""
    if name not in EXPORTERS:
        allowed = ", ".join(EXPORTERS)
        raise refused("not-an-option", f"there is no export {name!r}", allowed=allowed,
                      remedy="Give one of these names.", where="--format")  # fmt: skip
    return EXPORTERS[cast(ArtifactKind, name)]
