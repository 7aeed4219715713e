"""The launch folder: every file that starts the job of a plan, in one mapping from name to text.

`README.md` has the commands in order, `manifest.json` the digest of every file, what the targets cannot be told and the
hosts that are left over. Same plan, hosts and options, same bytes. Writes nothing to a disk.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from math import ceil

from app.exporters.binding import Bound, bind, spare_notes
from app.exporters.hosts import check_job, pools_of
from app.exporters.launch.options import Launch
from app.exporters.launch.ranks import RankRow, rank_rows, written
from app.exporters.launch.schedulers import SCHEDULERS, Scheduler
from app.exporters.launch.trainers import TRAINERS, Trainer, environment
from app.exporters.target import one_line
from app.exporters.templating import render
from app.faults import refused
from models.cluster import Pool
from models.plan import Plan
from models.request import PlanRequest

MIN_NCCL = "2.24"  # from which on NCCL_ALGO takes functions, see nccl_env
CLOCK_SPREAD_S = 5  # started at once, hosts report within seconds of each other; more is a clock that is wrong
FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can state: its bytes do not depend on the day


def bundle(plan: Plan, request: PlanRequest | None, options: Launch) -> dict[str, str]:
    """The files by name, with the hosts that the options name, or else those that the plan has."""
    options.check()
    pools_of(plan, request)
    assert request is not None  # pools_of has refused it
    check_job(plan, request)
    bound = Bound(plan, request, {}) if options.hosts is None else bind(plan, request, options.hosts)
    trainer, scheduler = TRAINERS[options.trainer], SCHEDULERS[options.scheduler]
    files = {
        **trainer.files(bound.plan, bound.request),
        **scheduler.files(bound.plan, bound.request, options),
        **(_host_files(bound, trainer, scheduler) if scheduler.on_hosts else {}),
    }
    parts = ((trainer.tool, trainer.losses), (scheduler.tool, scheduler.losses))
    lines = (f"{tool}: {line}" for tool, losses in parts for line in losses(bound.plan, bound.request))
    lost = list(dict.fromkeys(map(one_line, lines)))
    files["README.md"] = _readme(bound, options, lost, sorted(files))
    return {**files, "manifest.json": _manifest(files, bound, options, lost)}


def _host_files(bound: Bound, trainer: Trainer, scheduler: Scheduler) -> dict[str, str]:
    """What every host reads before the trainer starts."""
    rows = rank_rows(bound.plan, bound.request, by_group=scheduler.permutes_hosts)
    return {
        "nccl.env": environment(trainer, bound.plan, bound.request),
        "site.env": render("site.env.j2", trainer=trainer),
        "ranks.csv": written(rows),
        "rank.sh": render("rank.sh.j2", trainer=trainer),
        "preflight.sh": _preflight(bound, rows),
    }


def zipped(files: Mapping[str, str], folder: str) -> bytes:
    """The files as a zip with one folder in it."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(f"{folder}/{name}", FIRST_DATE), files[name], zipfile.ZIP_DEFLATED)
    return target.getvalue()


def unzipped(data: bytes) -> dict[str, str]:
    """The files of such a zip by name, without their folder."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name.rpartition("/")[2]: archive.read(name).decode() for name in archive.namelist()}


def changed_files(files: Mapping[str, bytes]) -> list[str]:
    """Files of a bundle that are missing or are not those of its manifest; site.env is there to be changed."""
    try:
        digests = json.loads(files["manifest.json"])["sha256"]
    except (KeyError, ValueError, TypeError):
        raise refused("invalid-request", "the folder has no manifest.json of a bundle", "", "a bundle's folder",
                      "Give the folder that isthmus bundle wrote.", where="BUNDLE") from None  # fmt: skip
    return [
        name
        for name, digest in digests.items()
        if name != "site.env" and (name not in files or hashlib.sha256(files[name]).hexdigest() != digest)
    ]


def _preflight(bound: Bound, rows: Sequence[RankRow]) -> str:
    """The script that looks at a host: which, how many GPUs and cards, and whom it has to reach."""
    pools = {pool.id: pool for pool in bound.request.cluster.pools}
    first_of_building: dict[str, str] = {}
    hosts: dict[str, str] = {}
    for row in rows:
        for host in row.hosts:
            first_of_building.setdefault(row.building, host)
            hosts.setdefault(host, row.pool)
    needs = {name: (pools[name].gpus_per_host, _num_cards(bound.plan, pools[name])) for name in set(hosts.values())}
    return render(
        "preflight.sh.j2",
        hosts=hosts,
        needs=needs,
        peers=list(first_of_building.values()),
        min_nccl=MIN_NCCL,
        clock_spread_s=CLOCK_SPREAD_S,
    )


def _num_cards(plan: Plan, pool: Pool) -> int:
    """Network cards of a host that NCCL should see; none is asked for where the plan's transport is TCP alone."""
    if all(choice.reliability == "tcp" for choice in plan.transport if choice.tier != "scale_up"):
        return 0
    return ceil(pool.gpus_per_host * pool.nics_per_gpu)


def _readme(bound: Bound, options: Launch, lost: Sequence[str], names: Sequence[str]) -> str:
    configuration = bound.plan.configuration
    return render(
        "README.md.j2",
        options=options,
        trainer=TRAINERS[options.trainer],
        scheduler=SCHEDULERS[options.scheduler],
        model=one_line(bound.request.workload.architecture.name),
        degrees=configuration.degrees,
        iteration_s=bound.plan.metrics.iteration_s,
        num_hosts=len({host for one in bound.plan.placement.rank_map for host in one.hosts}),
        spare=spare_notes(bound.spare),
        lost=lost,
        names=names,
        about=ABOUT,
    )


def _manifest(files: Mapping[str, str], bound: Bound, options: Launch, lost: Sequence[str]) -> str:
    document = {
        "format": "isthmus-bundle-1",
        "options": options.model_dump(exclude={"hosts"}),
        "trainer": f"{TRAINERS[options.trainer].tool} {TRAINERS[options.trainer].versions}",
        "scheduler": f"{SCHEDULERS[options.scheduler].tool} {SCHEDULERS[options.scheduler].versions}",
        "not_expressed": list(lost),
        "spare_hosts": {pool: list(hosts) for pool, hosts in bound.spare.items() if hosts},
        "plan_sha256": hashlib.sha256(bound.plan.model_dump_json().encode()).hexdigest(),
        "sha256": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())},
    }
    return json.dumps(document, indent=2) + "\n"


ABOUT: Mapping[str, str] = {
    "communicators.yaml": "NCCL settings of every process group",
    "hosts.txt": "the host of every rank, one a line, in rank order; never sort it",
    "isthmus_job.py": "model and settings for the trainer",
    "job.sbatch": "the batch script",
    "iteration.json": "one iteration: orders of operations, times, messages and exchanges, in planned seconds",
    "jobset.yaml": "the manifest",
    "kueue-topology.yaml": "the levels of places for Kueue's administrator",
    "megatron.args": "Megatron-LM's arguments",
    "nccl.env": "the environment of every rank",
    "nodes.txt": "the hosts in order",
    "pod.sh": "what a pod runs: torchrun with its node rank",
    "preflight.sh": "looks at a host before the job starts",
    "rank.sh": "compares its rank with the plan, then becomes the trainer",
    "ranks.csv": "where every rank has to be",
    "schedule.csv": "the order of operations of the pipeline",
    "site.env": "**yours to change**: where the trainer is, its data arguments, the port",
    "start.sh": "runs a script on every host",
    "topology.conf": "the tree of places for Slurm's administrator",
    "torchrun.sh": "torchrun with the node rank of this host",
    "torchtitan.args": "torchtitan's overrides",
}
