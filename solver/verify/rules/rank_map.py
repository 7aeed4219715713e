"""Rules on the rank map: every global rank has one GPU, no GPU has two, and the ranges say what the routes say.

Judges global ranks, GPU offsets inside pools and host lists, by two conventions: global rank = ((pipeline_rank * dp +
replica) * cp + c) * tp + t; GPU g of a pool is on host g // gpus_per_host.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from models.plan import RankRange
from solver.verify.case import Case, Finding, Rule


def rank_map_complete(case: Case) -> Iterator[Finding]:
    """The ranges cover the global ranks 0 to GPUs - 1, each exactly once."""
    total, expected = case.configuration.degrees.num_gpus, 0
    for one in sorted(case.plan.placement.rank_map, key=lambda one: one.first_rank):
        if one.first_rank != expected:
            kind = "mapped twice" if one.first_rank < expected else "not mapped"
            low, high = sorted((one.first_rank, expected))
            yield Finding(_name(one), f"global ranks {low} to {high - 1} are {kind}")
        expected = max(expected, one.first_rank + one.num_ranks)
    if expected != total:
        yield Finding("rank map", f"ends at global rank {expected - 1}, the plan has {total} GPUs")


def rank_map_agrees(case: Case) -> Iterator[Finding]:
    """A range holds ranks of its own route and pipeline rank, in the pool that the route names."""
    dp, group = case.configuration.degrees.dp, case.gpus_per_group
    for one in case.plan.placement.rank_map:
        route = case.route_by_id.get(one.route)
        if route is None or one.pipeline_rank >= len(route.pools):
            yield Finding(_name(one), f"route {one.route!r} with pipeline rank {one.pipeline_rank} is not in the plan")
            continue
        first = (one.pipeline_rank * dp + route.first_replica) * group
        last = first + route.num_replicas * group
        if one.first_rank < first or one.first_rank + one.num_ranks > last:
            yield Finding(
                _name(one),
                f"route {route.id} has global ranks {first} to {last - 1} on pipeline rank {one.pipeline_rank}",
            )
        if one.pool != route.pools[one.pipeline_rank]:
            yield Finding(
                _name(one),
                f"in pool {one.pool!r}, route {route.id} names {route.pools[one.pipeline_rank]!r}"
                f" for pipeline rank {one.pipeline_rank}",
            )


def gpus_held_once(case: Case) -> Iterator[Finding]:
    """The GPU offsets of one pool do not overlap and stay below its free GPUs."""
    ranges: defaultdict[str, list[RankRange]] = defaultdict(list)
    for one in case.plan.placement.rank_map:
        ranges[one.pool].append(one)
    for name, held in ranges.items():
        pool = case.pool_by_id.get(name)
        taken = 0
        for one in sorted(held, key=lambda one: one.first_gpu):
            if one.first_gpu < taken:
                yield Finding(_name(one), f"GPUs {one.first_gpu} to {taken - 1} of pool {name} are held twice")
            taken = max(taken, one.first_gpu + one.num_ranks)
        if pool is not None and taken > pool.num_free_gpus:
            yield Finding(f"pool {name}", f"GPU {taken - 1} is held, GPUs 0 to {pool.num_free_gpus - 1} are free")


def scale_up_aligned(case: Case) -> Iterator[Finding]:
    """A range starts where a tensor-parallel group may start, so that no group straddles two scale-up domains."""
    tp = case.configuration.degrees.tp
    for one in case.plan.placement.rank_map:
        if one.first_gpu % tp or one.first_rank % tp or one.num_ranks % tp:
            yield Finding(
                _name(one), f"{one.num_ranks} ranks from GPU {one.first_gpu} cut a tensor-parallel group of {tp}"
            )


def hosts_right(case: Case) -> Iterator[Finding]:
    """The host list of a range is the slice of the pool's hosts that its GPUs lie on; empty where hosts are unnamed."""
    for one in case.plan.placement.rank_map:
        pool = case.pool_by_id.get(one.pool)
        if pool is None:
            continue
        first = one.first_gpu // pool.gpus_per_host
        last = (one.first_gpu + one.num_ranks - 1) // pool.gpus_per_host
        expected = pool.host_names[first : last + 1]
        if one.hosts != expected:
            yield Finding(
                _name(one),
                f"lists {_ends(one.hosts)}, GPUs {one.first_gpu} to {one.first_gpu + one.num_ranks - 1} of pool"
                f" {pool.id} are on {_ends(expected)}",
            )


def _name(one: RankRange) -> str:
    return f"rank map from {one.first_rank}"


def _ends(hosts: tuple[str, ...]) -> str:
    return f"{len(hosts)} hosts ({hosts[0]} to {hosts[-1]})" if hosts else "no hosts"


FAMILY: Mapping[str, Rule] = {
    "rank-map-complete": rank_map_complete,
    "rank-map-agrees": rank_map_agrees,
    "gpus-held-once": gpus_held_once,
    "scale-up-aligned": scale_up_aligned,
    "hosts-right": hosts_right,
}
