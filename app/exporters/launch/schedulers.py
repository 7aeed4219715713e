"""What a scheduler gets in a bundle: the files that start every rank on its planned host, and the commands in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from app.exporters import kueue_jobset, slurm_hostfile, slurm_sbatch, slurm_topology, torchrun_script
from app.exporters.hosts import host_of_ranks, nodes
from app.exporters.launch.options import Launch
from app.exporters.target import SchedulerName
from app.exporters.templating import render
from models.plan import Plan
from models.request import PlanRequest

Files = Mapping[str, str]
SEGMENT_HOSTS = 1  # the hosts are named: a segment of one asks for no more, and divides every number of them


@dataclass(frozen=True)
class Step:
    """One command of the README, with {name} for that of the job, and what it is for."""

    what: str
    command: str


SLURM_STEPS = (
    Step("Ask Slurm whether it would take the job", "sbatch --test-only job.sbatch"),
    Step("Start it; the preflight runs first, on every host", "sbatch job.sbatch"),
    Step("Compare the allocation with the plan", "scontrol show job -d JOBID | isthmus check allocation . -"),
    Step("Compare the ranks that have started with the plan", "isthmus check ranks . {name}-JOBID.log"),
)
SSH_STEPS = (
    Step("Look at every host: GPUs, cards, NCCL, reachability, clock", "bash start.sh preflight"),
    Step("Start it; every rank compares itself with the plan first", "bash start.sh run | tee job.log"),
    Step("Compare the ranks that have started with the plan", "isthmus check ranks . job.log"),
)
KUBERNETES_STEPS = (
    Step("Put this folder where the pods read it",
         "kubectl create configmap {name}-files "
         "$(ls | grep -vE '^(README|manifest|jobset|kueue)' | sed 's/^/--from-file=/')"),
    Step("Ask the API server whether it would take the job", "kubectl apply --dry-run=server -f jobset.yaml"),
    Step("Start it; Kueue admits it when all its groups fit", "kubectl apply -f jobset.yaml"),
    Step("Compare the ranks that have started with the plan",
         "kubectl logs -l jobset.sigs.k8s.io/jobset-name={name} --prefix=false --tail=-1 "
         "--max-log-requests=10000 | isthmus check ranks . -"),
)  # fmt: skip
LOCAL_STEPS = (Step("Execute it: one process for each pipeline rank of each replica", "isthmus replay ."),)


@dataclass(frozen=True)
class Scheduler:
    """One scheduler: files, commands in order, what it is not told, whether it permutes the hosts of a group.

    One that is not `on_hosts` starts processes on this machine: no rank, no preflight, nothing of the site.
    """

    tool: str
    versions: str
    files: Callable[[Plan, PlanRequest, Launch], Files]
    steps: tuple[Step, ...]
    losses: Callable[[Plan, PlanRequest | None], Iterator[str]]
    permutes_hosts: bool = False
    on_hosts: bool = True


def _slurm_files(plan: Plan, request: PlanRequest, options: Launch) -> Files:
    stated = {
        "job-name": options.name,
        "output": "%x-%j.log",
        "time": options.time_limit_minutes,
        "partition": options.partition,
        "account": options.account,
        "segment": SEGMENT_HOSTS if options.block_topology else None,
    }
    asked = [f"--{name}={value}" for name, value in stated.items() if value is not None]
    target, command = slurm_sbatch.BUNDLED, "bash rank.sh"
    return {
        "job.sbatch": slurm_sbatch.batch_script(plan, request, target, options=asked, command=command),
        "hosts.txt": slurm_hostfile.slurm_hostfile(plan, request),
        "topology.conf": slurm_topology.slurm_topology_conf(plan, request),
    }


def _ssh_files(plan: Plan, request: PlanRequest, _options: Launch) -> Files:
    hosts = [host for host, _ in nodes(host_of_ranks(plan, request))]
    return {
        "torchrun.sh": torchrun_script.torchrun_script(plan, request),
        "start.sh": render("start.sh.j2", num_hosts=len(hosts)),
        "nodes.txt": "".join(f"{host}\n" for host in hosts),
    }


def _kubernetes_files(plan: Plan, request: PlanRequest, options: Launch) -> Files:
    return {
        "jobset.yaml": kueue_jobset.jobset_manifest(plan, request, options),
        "kueue-topology.yaml": kueue_jobset.kueue_topology(),
        "pod.sh": render("pod.sh.j2"),
    }


SCHEDULERS: Mapping[SchedulerName, Scheduler] = {
    "slurm": Scheduler(
        "Slurm", slurm_sbatch.BUNDLED.versions, _slurm_files, SLURM_STEPS, slurm_sbatch.losses
    ),
    "kubernetes": Scheduler(
        "Kubernetes with JobSet and Kueue",
        "JobSet 0.8 to 0.11, Kueue 0.14 to 0.20",
        _kubernetes_files,
        KUBERNETES_STEPS,
        kueue_jobset.losses,
        permutes_hosts=True,
    ),
    "ssh": Scheduler(
        "ssh and torchrun", torchrun_script.TARGET.versions, _ssh_files, SSH_STEPS, torchrun_script.losses
    ),
    "local": Scheduler(
        "processes of this machine",
        "with Linux",
        lambda _plan, _request, _options: {},
        LOCAL_STEPS,
        lambda _plan, _request: iter(()),
        on_hosts=False,
    ),
}  # fmt: skip
