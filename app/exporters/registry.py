"""The exports on offer. A new one is a file, a line in `ArtifactKind` and a line in `EXPORTERS`.

Owns the table. Never renders anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from app.exporters.chrome_trace import chrome_trace
from app.exporters.megatron_args import megatron_args
from app.exporters.rank_map_csv import rank_map_csv
from app.exporters.slurm_hostfile import slurm_hostfile
from app.exporters.torch_schedule_csv import torch_schedule_csv
from app.faults import Fault, Refused
from models.plan import Plan
from models.request import PlanRequest

ArtifactKind = Literal["chrome-trace", "rank-map-csv", "megatron-args", "slurm-hostfile", "torch-schedule-csv"]


@dataclass(frozen=True)
class Exporter:
    """One export: its function, its media type and the end of its file name."""

    export: Callable[[Plan, PlanRequest | None], str]
    media_type: str
    suffix: str


EXPORTERS: Mapping[ArtifactKind, Exporter] = {
    "chrome-trace": Exporter(chrome_trace, "application/json", "trace.json"),
    "rank-map-csv": Exporter(rank_map_csv, "text/csv; charset=utf-8", "ranks.csv"),
    "megatron-args": Exporter(megatron_args, "text/plain; charset=utf-8", "megatron.args"),
    "slurm-hostfile": Exporter(slurm_hostfile, "text/plain; charset=utf-8", "hosts.txt"),
    "torch-schedule-csv": Exporter(torch_schedule_csv, "text/csv; charset=utf-8", "schedule.csv"),
}


def exporter_named(name: str) -> Exporter:
    """The export of that name, or a fault that lists them all."""
    if name not in EXPORTERS:
        allowed = ", ".join(EXPORTERS)
        raise Refused((Fault("not-an-option", f"there is no export {name!r}", allowed=allowed,
                             remedy=f"Use one of {allowed}.", where="--format"),))  # fmt: skip
    return EXPORTERS[cast(ArtifactKind, name)]
