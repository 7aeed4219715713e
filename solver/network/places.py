"""The tree of places of a cluster: what encloses a place, the building around it, and the pools open to a plan."""

from models.cluster import Cluster, GpuType, PlaceId, Pool, places_around
from models.request import PlanRequest
from models.workload import Precision


def ancestors_of(cluster: Cluster) -> dict[PlaceId, tuple[PlaceId, ...]]:
    """Every place with itself and all that encloses it, innermost first, by name."""
    return {place: tuple(one.id for one in around) for place, around in places_around(cluster.places).items()}


def buildings_of(cluster: Cluster) -> dict[PlaceId, PlaceId]:
    """The building around every place; a place outside any building stands for itself."""
    return {
        place: next((one.id for one in around if one.level == "building"), place)
        for place, around in places_around(cluster.places).items()
    }


def has_precision(gpu: GpuType, precision: Precision) -> bool:
    """Whether a GPU type has a unit for it: 32 and 16 bits any type, 8 and 4 bits where it states their peak."""
    return {"fp8": gpu.fp8_flops_per_s, "fp4": gpu.fp4_flops_per_s}.get(precision, gpu.bf16_flops_per_s) is not None


def usable_pools(request: PlanRequest) -> list[Pool]:
    """Open pools whose GPU type has the precision of the job, in the order of the request; all of them if none has."""
    opened = open_pools(request)
    return [pool for pool in opened if has_precision(pool.gpu, request.workload.precision)] or opened


def open_pools(request: PlanRequest) -> list[Pool]:
    """Pools with free GPUs outside the forbidden places, in the order of the request."""
    free = [pool for pool in request.cluster.pools if pool.num_free_gpus]
    forbidden = set(request.constraints.forbidden_places)
    if not forbidden:
        return free
    around = ancestors_of(request.cluster)
    return [pool for pool in free if forbidden.isdisjoint(around[pool.place])]


def usable_gpus(request: PlanRequest) -> int:
    """GPUs that a plan may use at most."""
    free = sum(pool.num_free_gpus for pool in usable_pools(request))
    return min(free, request.constraints.max_gpus or free)


def num_enclosing(request: PlanRequest) -> tuple[int, int]:
    """Buildings and regions with usable pools."""
    around, level_of = ancestors_of(request.cluster), {place.id: place.level for place in request.cluster.places}
    enclosing = {place for pool in usable_pools(request) for place in around[pool.place]}
    levels = [level_of[place] for place in enclosing]
    return levels.count("building"), levels.count("region")


def alike_pools(request: PlanRequest) -> list[list[Pool]]:
    """Pools to use of one place that differ in names and sizes alone: where there are several, all of them.

    A plan keeps them apart: no stage group spans two pools, for it takes the GPUs of one in their order.
    """
    size = {"id": "", "num_hosts": 1, "num_reserved_gpus": 0, "num_unhealthy_gpus": 0, "host_names": ()}
    found: dict[Pool, list[Pool]] = {}
    for pool in usable_pools(request):
        found.setdefault(pool.model_copy(update=size), []).append(pool)
    return [pools for pools in found.values() if len(pools) > 1]


def with_one_of_each(request: PlanRequest) -> PlanRequest:
    """The request with every set of alike pools stated as one, under the name of the first."""
    pools = {pool.id: pool for pool in request.cluster.pools}
    for first, *others in alike_pools(request):
        sizes = ("num_hosts", "num_reserved_gpus", "num_unhealthy_gpus")
        total = {size: sum(getattr(pool, size) for pool in (first, *others)) for size in sizes}
        pools[first.id] = first.model_copy(update={**total, "host_names": ()})
        for other in others:
            del pools[other.id]
    return request.with_cluster(pools=tuple(pools.values()))
