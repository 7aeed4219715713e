"""Which host runs which rank, and what holds the place where it stands.

There is one order of ranks, the plan's: pipeline ranks outermost. It is Megatron-LM's default (tp-cp-ep-dp-pp, the only
one that it takes with any degrees) and torchtitan's mesh; a list of hosts realises the placement, not another order.
Host names are checked here, because they end in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from app.faults import Refused, refused
from models.cluster import Pool, places_around
from models.plan import Plan, RankRange
from models.request import PlanRequest

HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def needed(request: PlanRequest | None, why: str) -> PlanRequest:
    """The request of a plan, refused where it was not given."""
    if request is None:
        raise refused("missing-field", why, where="request",
                      remedy="Give the request, too: --request REQUEST.json.")  # fmt: skip
    return request


def pools_of(plan: Plan, request: PlanRequest | None) -> Mapping[str, Pool]:
    """The pools of the request by name; refused without a request, or with the request of another plan."""
    pools = {pool.id: pool for pool in needed(request, "the hosts of a plan need its request").cluster.pools}
    strange = sorted({ranks.pool for ranks in plan.placement.rank_map} - set(pools))
    if strange:
        raise _of_another(f"the request has no pool {strange[0]!r}, which the plan uses")
    return pools


def check_job(plan: Plan, request: PlanRequest) -> None:
    """Refused where the plan trains another model or batch than the request states."""
    one, workload = plan.configuration, request.workload
    layers, sequences = sum(one.layers_per_stage), one.degrees.dp * one.num_microbatches * one.micro_batch_sequences
    if layers != workload.architecture.num_layers:
        raise _of_another(f"the plan has {layers} layers, the request's model {workload.architecture.num_layers}")
    if sequences != workload.global_batch_sequences:
        raise _of_another(f"the plan trains {sequences} sequences, the request {workload.global_batch_sequences}")


def _of_another(what: str) -> Refused:
    return refused("invalid-plan", what, where="request", remedy="Give the request that the plan was made for.")


def unavailable_losses(plan: Plan, request: PlanRequest | None) -> Iterator[str]:
    """A line for every pool of which a request only counts the GPUs that a plan may not use."""
    if request is None:
        return
    used = {ranks.pool for ranks in plan.placement.rank_map}
    for pool in request.cluster.pools:
        number = pool.num_reserved_gpus + pool.num_unhealthy_gpus
        if pool.id in used and number:
            yield (
                f"which {number} GPUs of pool {pool.id} are reserved or out of service: ranks are on its first hosts "
                "as they are listed, so list those hosts last"
            )


def ranges(plan: Plan) -> list[RankRange]:
    """The rank map in rank order."""
    return sorted(plan.placement.rank_map, key=lambda one: one.first_rank)


def host_of_ranks(plan: Plan, request: PlanRequest | None) -> list[str]:
    """The host of every global rank, in plan order."""
    pools = pools_of(plan, request)
    return [host for ranks in ranges(plan) for host in hosts_of(ranks, pools[ranks.pool].gpus_per_host)]


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
            raise refused("missing-field", f"pool {ranks.pool!r} has no host names", "/cluster/pools",
                          remedy="Give the hosts: --hosts FILE, or `hosts` of the API.")  # fmt: skip
        name = ranks.hosts[index]
        if not HOST_NAME.fullmatch(name):
            raise refused("bad-pattern", f"{name!r} cannot be a host name", "/cluster/pools",
                          "letters, digits, dots, dashes and underscores", "Correct the name.")  # fmt: skip
        yield name


def may_be_same(one: str, other: str) -> bool:
    """Whether two names may mean one host: some tools print all labels of a name, others leave the last ones out.

    Hosts of two buildings may share their first label, and an address has the same one in a whole network.

    >>> may_be_same("n1.east", "n1"), may_be_same("n1.east", "n1.west"), may_be_same("10.0.0.1", "10.0.0.2")
    (True, False, False)
    """
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def nodes(hosts: Sequence[str]) -> list[tuple[str, int]]:
    """Runs of ranks on the same host, in the order of ranks: the host and how many.

    >>> nodes(["a", "a", "b"])
    [('a', 2), ('b', 1)]
    """
    return [(host, len(list(run))) for host, run in groupby(hosts)]


def buildings_of_places(request: PlanRequest | None) -> Mapping[str, str]:
    """The building of every place that lies in one, by place; none without a request, so a place stands for itself."""
    around = {} if request is None else places_around(request.cluster.places)
    return {place: one.id for place, above in around.items() for one in above if one.level == "building"}
