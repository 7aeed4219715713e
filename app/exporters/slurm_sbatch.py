"""A batch script that starts one task per GPU on the hosts of the plan, in its order.

The allocation names the hosts folded (Slurm sorts them); the step lays the tasks out as the host file says, since an
arbitrary distribution belongs to a step and an allocation that asks for one gets no topology. topology/block puts a
job into one block where one has as many hosts, unless it has segments: then it refuses the hosts of the plan.
Source: sbatch(1), srun(1), eval_nodes_block.c of Slurm 26.11.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.exporters.hosts import host_of_ranks, pools_of, unavailable_losses
from app.exporters.slurm_hostfile import TARGET as HOSTFILE
from app.exporters.target import Target, header
from app.exporters.templating import render
from app.hostlists import fold
from models.plan import Plan
from models.request import PlanRequest

TARGET = Target(
    "Slurm",
    HOSTFILE.versions,
    (
        "one Slurm cluster that sees all the hosts",
        "the slurm-hostfile export beside it as hosts.txt",
        "the trainer's command as arguments: sbatch THIS_FILE python train.py ...",
        "your --time, --partition and --account before THIS_FILE, where the site asks for them",
    ),
)
BUNDLED = Target(
    "Slurm", HOSTFILE.versions, ("one Slurm cluster that sees all the hosts", "this folder on all of them")
)


def slurm_sbatch(plan: Plan, request: PlanRequest | None = None) -> str:
    """The script; host names are checked before they get into it."""
    return batch_script(plan, request, TARGET)


def batch_script(
    plan: Plan, request: PlanRequest | None, target: Target, *, options: Sequence[str] = (), command: str = ""
) -> str:
    """The script with more options of sbatch; with a `command` it is the one of a bundle, whose folder it runs in."""
    hosts = host_of_ranks(plan, request)
    pools = pools_of(plan, request)
    per_host = {pools[ranks.pool].gpus_per_host for ranks in plan.placement.rank_map}
    asked = [
        *(() if options else ("--job-name=isthmus",)),
        f"--nodes={len(set(hosts))}",
        f"--ntasks={len(hosts)}",
        f"--nodelist={fold(dict.fromkeys(hosts))}",
        "--exclusive",
        *options,
    ]
    if len(per_host) == 1:
        asked.append(f"--gpus-per-node={per_host.pop()}")
    return render(
        "sbatch.sh.j2",
        options=asked,
        header=header(target, losses(plan, request)),
        num_ranks=len(hosts),
        num_hosts=len(set(hosts)),
        in_bundle=bool(command),
        command=f"{command} " if command else "",
    )


def losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What the script does not carry."""
    yield from unavailable_losses(plan, request)
    yield "topology requests (--switches): the host list decides"
    yield (
        "topology/block: without --segment it refuses hosts of several blocks where one block has as many "
        "(isthmus bundle --block-topology, or --segment=1 before THIS_FILE)"
    )
    if request is not None:
        used = {ranks.pool for ranks in plan.placement.rank_map}
        if len({pool.gpus_per_host for pool in request.cluster.pools if pool.id in used}) > 1:
            yield "GPUs per host: they differ, so no --gpus-per-node is asked for"
    yield "degrees, schedule and transport: see the exports for the trainer"
