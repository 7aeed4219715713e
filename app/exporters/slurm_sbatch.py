"""A batch script that starts one task per GPU on the hosts of the plan, in its order.

The allocation names the hosts folded (Slurm sorts them); the step lays the tasks out as the host file says, since an
arbitrary distribution belongs to a step and cannot be combined with topology requests. Source: sbatch(1), srun(1).
"""

from __future__ import annotations

from collections.abc import Iterator

from app.exporters.hosts import host_of_ranks, pools_of
from app.exporters.slurm_hostfile import TARGET as HOSTFILE
from app.exporters.target import Target, header
from app.hostlists import fold
from models.plan import Plan
from models.request import PlanRequest

TARGET = Target(
    "Slurm",
    HOSTFILE.versions,
    (
        "one Slurm cluster that sees all the hosts",
        "the host file beside it: slurm-hostfile, or megatron-hostfile for Megatron-LM",
        "the trainer's command as arguments: sbatch THIS_FILE python train.py ...",
    ),
)
STEP = """\
export SLURM_HOSTFILE="${ISTHMUS_HOSTFILE:-hosts.txt}"
if [ "$(wc -l < "$SLURM_HOSTFILE")" -ne @NUM_RANKS@ ]; then
  echo "$SLURM_HOSTFILE must have @NUM_RANKS@ lines, one per rank" >&2
  exit 1
fi
export MASTER_ADDR="$(head -n 1 "$SLURM_HOSTFILE")"
export MASTER_PORT="${MASTER_PORT:-29500}"
srun --ntasks=@NUM_RANKS@ --distribution=arbitrary --kill-on-bad-exit=1 bash -c \\
  'export RANK="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID" WORLD_SIZE="$SLURM_NTASKS"; exec "$@"' rank "$@"
"""


def slurm_sbatch(plan: Plan, request: PlanRequest | None = None) -> str:
    """The script; host names are checked before they get into it."""
    hosts = host_of_ranks(plan, request)
    pools = pools_of(plan, request)
    per_host = {pools[ranks.pool].gpus_per_host for ranks in plan.placement.rank_map}
    folded = fold(dict.fromkeys(hosts))
    options = [
        "--job-name=isthmus",
        f"--nodes={len(set(hosts))}",
        f"--ntasks={len(hosts)}",
        f"--nodelist={folded}",
        "--exclusive",
    ]
    if len(per_host) == 1:
        options.append(f"--gpus-per-node={per_host.pop()}")
    lines = "".join(f"#SBATCH {option}\n" for option in options)
    comment = header(TARGET, losses(plan, request))
    return f"#!/bin/bash\n{lines}{comment}set -euo pipefail\n{STEP.replace('@NUM_RANKS@', str(len(hosts)))}"


def losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What the script does not carry."""
    yield "topology requests (--switches, --segment): an arbitrary distribution excludes them, the host list decides"
    if request is not None:
        used = {ranks.pool for ranks in plan.placement.rank_map}
        if len({pool.gpus_per_host for pool in request.cluster.pools if pool.id in used}) > 1:
            yield "GPUs per host: they differ, so no --gpus-per-node is asked for"
    yield "degrees, schedule and transport: see the exports for the trainer"
