"""Rules on where: routes, replicas, pools, forbidden places, pins and what may cross buildings.

Global ranks are judged in `rank_map`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from models.request import Pin
from solver.cost.data_parallel import replicas_sharing_experts
from solver.network.places import has_precision
from solver.verify.case import Case, Finding, Rule

Key = TypeVar("Key", str, int)


def route_shape(case: Case) -> Iterator[Finding]:
    """Every route has its own id and names one place and one pool per pipeline rank."""
    pp = case.configuration.degrees.pp
    for name, times in Counter(route.id for route in case.plan.placement.routes).items():
        if times > 1:
            yield Finding(f"route {name}", f"{times} routes share this id")
    for route in case.plan.placement.routes:
        if len(route.places) != pp or len(route.pools) != pp:
            yield Finding(f"route {route.id}", f"{len(route.places)} places and {len(route.pools)} pools for pp {pp}")


def replica_ranges(case: Case) -> Iterator[Finding]:
    """The replicas of the routes are 0 to dp - 1, each exactly once."""
    dp, expected = case.configuration.degrees.dp, 0
    for route in sorted(case.plan.placement.routes, key=lambda route: route.first_replica):
        if route.first_replica != expected:
            kind = "overlap" if route.first_replica < expected else "leave a hole"
            yield Finding(f"route {route.id}", f"starts at replica {route.first_replica}, not {expected}: they {kind}")
        expected = max(expected, route.first_replica + route.num_replicas)
    total = sum(route.num_replicas for route in case.plan.placement.routes)
    if total != dp or expected != dp:
        yield Finding("routes", f"{total} replicas up to index {expected - 1} for dp {dp}")


def pools_exist(case: Case) -> Iterator[Finding]:
    """Every pool is one of the request."""
    for route in case.plan.placement.routes:
        for pipeline_rank, pool in enumerate(route.pools):
            if pool not in case.pool_by_id:
                yield Finding(f"route {route.id} rank {pipeline_rank}", f"{pool!r} is not a pool of the cluster")


def pools_in_place(case: Case) -> Iterator[Finding]:
    """Every pool lies in the place that the route names for it."""
    for route, pipeline_rank, pool in case.groups:
        if pipeline_rank < len(route.places) and not case.is_inside(pool.place, route.places[pipeline_rank]):
            yield Finding(
                f"route {route.id} rank {pipeline_rank}",
                f"pool {pool.id!r} lies in {pool.place!r}, not in {route.places[pipeline_rank]!r}",
            )


def pool_capacity(case: Case) -> Iterator[Finding]:
    """No pool gives more GPUs than are free in it."""
    used: Counter[str] = Counter()
    for group in case.groups:
        used[group.pool.id] += group.route.num_replicas * case.gpus_per_group
    for pool, num_gpus in used.items():
        free = case.pool_by_id[pool].num_free_gpus
        if num_gpus > free:
            yield Finding(f"pool {pool}", f"{num_gpus} GPUs used, {free} free")


def scale_up_domain(case: Case) -> Iterator[Finding]:
    """A tensor-parallel group fits a scale-up domain evenly, in every pool that is used."""
    tp = case.configuration.degrees.tp
    for pool in {group.pool.id: group.pool for group in case.groups}.values():
        if pool.gpu.scale_up_domain_gpus % tp:
            yield Finding(
                f"pool {pool.id}",
                f"tp {tp} does not divide its scale-up domain of {pool.gpu.scale_up_domain_gpus} GPUs",
            )


def expert_groups_together(case: Case) -> Iterator[Finding]:
    """Replicas that share an expert-parallel group sit in one place: stage times hold for its network only."""
    degrees = case.configuration.degrees
    yield from _apart(case, int(replicas_sharing_experts(degrees.ep, degrees.cp)), f"share experts (ep {degrees.ep})")


def sharding_groups_together(case: Case) -> Iterator[Finding]:
    """Where the sharded state has several copies, the replicas of each sit in one place: it is gathered inside."""
    used = case.configuration
    yield from _apart(case, used.replicas_sharing_place, f"share one of {used.num_state_copies} copies of the state")


def _apart(case: Case, bundle: int, why: str) -> Iterator[Finding]:
    """Bundles of consecutive replicas that are not in one place."""
    places: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
    if bundle > 1:
        for route, pipeline_rank, pool in case.groups:
            last = route.first_replica + route.num_replicas - 1
            for index in {route.first_replica // bundle, last // bundle}:
                places[pipeline_rank, index].add(pool.place)
    for (pipeline_rank, index), names in places.items():
        if len(names) > 1:
            yield Finding(
                f"pipeline rank {pipeline_rank}",
                f"replicas {index * bundle} to {(index + 1) * bundle - 1} {why} but are in {', '.join(sorted(names))}",
            )


def forbidden_places(case: Case) -> Iterator[Finding]:
    """Nothing runs in a forbidden place."""
    for place in case.request.constraints.forbidden_places:
        for route, pipeline_rank, pool in case.groups:
            if case.is_inside(pool.place, place):
                yield Finding(f"route {route.id} rank {pipeline_rank}", f"pool {pool.id!r} lies in forbidden {place!r}")


def precision_supported(case: Case) -> Iterator[Finding]:
    """Every pool that is used is of a GPU type with a unit for the precision of the job."""
    precision = case.request.workload.precision
    for pool in {group.pool.id: group.pool for group in case.groups}.values():
        if not has_precision(pool.gpu, precision):
            yield Finding(f"pool {pool.id}", f"{pool.gpu.name} states no {precision} peak")


def pins_obeyed(case: Case) -> Iterator[Finding]:
    """Enough replicas have every pinned pipeline rank in the pin's place."""
    degrees = case.configuration.degrees
    for index, pin in enumerate(case.request.constraints.pins):
        if pin.last_pipeline_rank >= degrees.pp:
            yield Finding(f"pin {index}", f"pins pipeline rank {pin.last_pipeline_rank}, the plan has pp {degrees.pp}")
            continue
        wanted = degrees.dp if pin.num_replicas is None else pin.num_replicas
        obeying = _num_obeying(case, pin)
        if obeying < wanted:
            yield Finding(
                f"pin {index}",
                f"ranks {pin.first_pipeline_rank} to {pin.last_pipeline_rank} are in {pin.place!r} for {obeying}"
                f" replicas, {wanted} wanted",
            )


def crossing_label(case: Case) -> Iterator[Finding]:
    """The label says which dimension has members in more than one building."""
    derived = {(False, False): "none", (False, True): "dp_out", (True, False): "pp_out", (True, True): "mixed"}[
        bool(_split_routes(case)), bool(_split_ranks(case))
    ]
    if case.plan.placement.crossing != derived:
        yield Finding("crossing", f"stated {case.plan.placement.crossing}, the places mean {derived}")


def pipeline_crossing(case: Case) -> Iterator[Finding]:
    """With pipeline_may_cross_buildings off, every replica remains in one building."""
    if not case.request.constraints.pipeline_may_cross_buildings:
        for route, buildings in _split_routes(case).items():
            yield Finding(f"route {route}", f"spans {', '.join(buildings)}, pipelines may not cross buildings")


def data_parallel_crossing(case: Case) -> Iterator[Finding]:
    """With data_parallel_may_cross_buildings off, all replicas of a pipeline rank are in one building."""
    if not case.request.constraints.data_parallel_may_cross_buildings:
        for pipeline_rank, buildings in _split_ranks(case).items():
            yield Finding(
                f"pipeline rank {pipeline_rank}", f"is in {', '.join(buildings)}, replicas may not cross buildings"
            )


def _num_obeying(case: Case, pin: Pin) -> int:
    pinned = range(pin.first_pipeline_rank, pin.last_pipeline_rank + 1)
    astray = {
        group.route.id
        for group in case.groups
        if group.pipeline_rank in pinned and not case.is_inside(group.pool.place, pin.place)
    }
    return sum(route.num_replicas for route in case.plan.placement.routes if route.id not in astray)


def _split_routes(case: Case) -> dict[str, list[str]]:
    """Routes in more than one building, with these."""
    return _in_many_buildings((group.route.id, case.building_of(group.pool.place)) for group in case.groups)


def _split_ranks(case: Case) -> dict[int, list[str]]:
    """Pipeline ranks whose replicas are in more than one building, with these."""
    return _in_many_buildings((group.pipeline_rank, case.building_of(group.pool.place)) for group in case.groups)


def _in_many_buildings(where: Iterable[tuple[Key, str]]) -> dict[Key, list[str]]:
    buildings: dict[Key, set[str]] = {}
    for key, building in where:
        buildings.setdefault(key, set()).add(building)
    return {key: sorted(names) for key, names in buildings.items() if len(names) > 1}


FAMILY: Mapping[str, Rule] = {
    "route-shape": route_shape,
    "replica-ranges": replica_ranges,
    "pools-exist": pools_exist,
    "pools-in-place": pools_in_place,
    "pool-capacity": pool_capacity,
    "scale-up-domain": scale_up_domain,
    "expert-groups-together": expert_groups_together,
    "sharding-groups-together": sharding_groups_together,
    "forbidden-places": forbidden_places,
    "precision-supported": precision_supported,
    "pins-obeyed": pins_obeyed,
    "crossing-label": crossing_label,
    "pipeline-crossing": pipeline_crossing,
    "data-parallel-crossing": data_parallel_crossing,
}
