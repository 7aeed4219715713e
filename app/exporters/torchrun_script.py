"""A script for every host: it finds its node rank by the host's name and starts torchrun with it.

The order of nodes realises the placement: torchrun numbers ranks by node rank, then by local rank. Source: torchrun
(torch.distributed.run), static rendezvous.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from app.exporters.hosts import host_of_ranks, nodes, unavailable_losses
from app.exporters.target import Target, header
from app.exporters.templating import render
from app.faults import Refused, refused
from models.plan import Plan
from models.request import PlanRequest

TARGET = Target(
    "torchrun",
    "PyTorch 2.1 to 2.13",
    (
        "the script started on every host, with the trainer's command as arguments: -m torchtitan.train ...",
        "host names as `hostname` prints them, in full or up to the first dot",
    ),
)


def torchrun_script(plan: Plan, request: PlanRequest | None = None) -> str:
    """The script; refused where a host holds ranks that do not follow each other, or hosts hold different numbers."""
    found = nodes(host_of_ranks(plan, request))
    hosts = [host for host, _ in found]
    twice = next((host for host in hosts if hosts.count(host) > 1), None) if len(set(hosts)) < len(hosts) else None
    if twice is not None:
        raise _refused(f"host {twice} holds ranks that do not follow each other")
    sizes = {num_ranks for _, num_ranks in found}
    if len(sizes) > 1:
        raise _refused(f"hosts hold {min(sizes)} to {max(sizes)} ranks, torchrun starts the same number on each")
    return render("torchrun.sh.j2", header=header(TARGET, losses(plan, request)), hosts=hosts,
                  patterns=[" | ".join(one) for one in _patterns(hosts)], per_node=found[0][1])  # fmt: skip


def _patterns(hosts: Sequence[str]) -> Iterator[list[str]]:
    """What `hostname` may print on each host, as patterns of a shell.

    Names of other lengths count where no other host has the same first label.

    >>> list(_patterns(["n1", "n2.east", "n3.east", "n3.west"]))
    [['n1', 'n1.*'], ['n2.east', 'n2.east.*', 'n2'], ['n3.east'], ['n3.west']]
    """
    hosts_of_label = Counter(host.partition(".")[0] for host in hosts)
    for host in hosts:
        first = host.partition(".")[0]
        longer_or_short = [f"{host}.*", first] if hosts_of_label[first] == 1 else []
        yield list(dict.fromkeys((host, *longer_or_short)))


def _refused(what: str) -> Refused:
    return refused("not-expressible", what, "/plan/placement/rank_map", "whole hosts of one size",
                   "Use the slurm-sbatch export, which places every rank, or plan with tensor-parallel groups "
                   "that fill hosts.")  # fmt: skip


def losses(plan: Plan, request: PlanRequest | None = None) -> Iterator[str]:
    """What the script does not carry."""
    yield from unavailable_losses(plan, request)
    yield "restarts: node ranks are fixed, an elastic rendezvous would number the nodes as they come"
    yield "degrees, schedule and transport: see the torchtitan-args and nccl-env exports"
