"""The host of every global rank, one a line: what `srun --distribution=arbitrary` reads from SLURM_HOSTFILE.

Task i runs on the host of line i, so the order is the plan's and must not be sorted. Source: srun(1), SLURM_HOSTFILE.
Trainers number their ranks in the same order, Megatron-LM too.
"""

from __future__ import annotations

from collections.abc import Iterator

from app.exporters.hosts import host_of_ranks, unavailable_losses
from app.exporters.target import Target
from models.plan import Plan
from models.request import PlanRequest

TARGET = Target(
    "Slurm",
    "20.02 to 26.11",
    ("one Slurm cluster that sees all the hosts", "srun --distribution=arbitrary, as the slurm-sbatch export has it"),
)


def slurm_hostfile(plan: Plan, request: PlanRequest | None = None) -> str:
    """One host name per rank, in plan order."""
    return "".join(f"{host}\n" for host in host_of_ranks(plan, request))


def losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What a list of hosts does not carry."""
    yield from unavailable_losses(plan, request)
    yield "which GPU of a host a rank takes: Slurm counts the tasks of a host from 0"
    yield "degrees, schedule and transport: see the exports for the trainer"
