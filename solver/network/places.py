"""The tree of places of a cluster: what encloses a place, the building around it, and the pools open to a plan."""

from __future__ import annotations

from models.cluster import Cluster, PlaceId, Pool
from models.request import PlanRequest


def ancestors_of(cluster: Cluster) -> dict[PlaceId, tuple[PlaceId, ...]]:
    """Every place with itself and all that encloses it, innermost first."""
    parents = {place.id: place.parent for place in cluster.places}

    def chain(place: PlaceId) -> tuple[PlaceId, ...]:
        above = parents[place]
        return (place,) if above is None else (place, *chain(above))

    return {place: chain(place) for place in parents}


def buildings_of(cluster: Cluster) -> dict[PlaceId, PlaceId]:
    """The building around every place; a place outside any building stands for itself."""
    levels = {place.id: place.level for place in cluster.places}
    return {
        place: next((one for one in around if levels[one] == "building"), place)
        for place, around in ancestors_of(cluster).items()
    }


def usable_pools(request: PlanRequest) -> list[Pool]:
    """Pools with free GPUs outside the forbidden places, in the order of the request."""
    free = [pool for pool in request.cluster.pools if pool.num_free_gpus]
    forbidden = set(request.constraints.forbidden_places)
    if not forbidden:
        return free
    around = ancestors_of(request.cluster)
    return [pool for pool in free if forbidden.isdisjoint(around[pool.place])]
