"""The host of every global rank, one a line: what `srun --distribution=arbitrary` reads from SLURM_HOSTFILE.

Task i runs on the host of line i, so the order is the plan's and must not be sorted. Source: srun(1), SLURM_HOSTFILE.
Host names come from users; one that a host name cannot be is refused, because it would end in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from app.faults import Fault, Refused
from models.plan import Plan, RankRange
from models.request import PlanRequest

HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")


def slurm_hostfile(plan: Plan, request: PlanRequest | None = None) -> str:
    """One host name per rank, in rank order."""
    if request is None:
        raise Refused((Fault("missing-field", "the hosts of a plan need its request", where="request",
                             remedy="Give the request, too: --request REQUEST.json."),))  # fmt: skip
    gpus_per_host = {pool.id: pool.gpus_per_host for pool in request.cluster.pools}
    ranges = sorted(plan.placement.rank_map, key=lambda one: one.first_rank)
    strange = sorted({ranks.pool for ranks in ranges} - set(gpus_per_host))
    if strange:
        raise Refused((Fault("invalid-plan", f"the request has no pool {strange[0]!r}, which the plan uses",
                             remedy="Give the request that the plan was made for."),))  # fmt: skip
    lines = (host for ranks in ranges for host in hosts_of(ranks, gpus_per_host[ranks.pool]))
    return "\n".join(lines) + "\n"


def hosts_of(ranks: RankRange, gpus_per_host: int) -> Iterator[str]:
    """The host of each rank of a range.

    >>> where = {"first_rank": 0, "pipeline_rank": 0, "route": "r", "pool": "p", "first_gpu": 7}
    >>> list(hosts_of(RankRange(num_ranks=3, hosts=("a", "b"), **where), 8))
    ['a', 'b', 'b']
    """
    first_host = ranks.first_gpu // gpus_per_host
    for gpu in range(ranks.first_gpu, ranks.first_gpu + ranks.num_ranks):
        index = gpu // gpus_per_host - first_host
        if index >= len(ranks.hosts):
            raise Refused((Fault("missing-field", f"pool {ranks.pool!r} has no host names", "/cluster/pools",
                                 remedy="State host_names in the pools of the request and plan again."),))  # fmt: skip
        name = ranks.hosts[index]
        if not HOST_NAME.fullmatch(name):
            raise Refused((Fault("bad-pattern", f"{name!r} cannot be a host name", "/cluster/pools",
                                 "letters, digits, dots, dashes and underscores", "Correct the name."),))  # fmt: skip
        yield name
