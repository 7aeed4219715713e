"""What a request leaves to place on: usable pools, buildings of places, capacity groups by building and GPU type.

The reading of pins, forbidden places and reserved GPUs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from models.cluster import Cluster, Pool
from models.request import PlanRequest

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CapacityGroup:
    """The pools of one GPU type in one building that the same pins concern, as indices into the usable pools."""

    building: str
    gpu: str
    pools: tuple[int, ...]


def ancestors(cluster: Cluster, place: str) -> tuple[str, ...]:
    """The place and everything that encloses it, innermost first."""
    return _chain({one.id: one.parent for one in cluster.places}, place)


def _chain(parents: dict[str, str | None], place: str) -> tuple[str, ...]:
    chain: list[str] = []
    here: str | None = place
    while here is not None:
        chain.append(here)
        here = parents[here]
    return tuple(chain)


def enclosing(cluster: Cluster) -> dict[str, frozenset[str]]:
    """For every place, itself and everything that encloses it; one pass, for callers that ask about many places."""
    parents = {one.id: one.parent for one in cluster.places}
    return {place: frozenset(_chain(parents, place)) for place in parents}


def building_of(cluster: Cluster, place: str) -> str:
    """The building around a place; a place outside any building stands for itself."""
    levels = {one.id: one.level for one in cluster.places}
    return next((one for one in ancestors(cluster, place) if levels[one] == "building"), place)


def usable_pools(request: PlanRequest) -> list[Pool]:
    """Pools with free GPUs outside the forbidden places, in the order of the request."""
    free = [pool for pool in request.cluster.pools if pool.num_free_gpus]
    forbidden = set(request.constraints.forbidden_places)
    if not forbidden:
        return free
    around = enclosing(request.cluster)
    return [pool for pool in free if not forbidden & around[pool.place]]


def usable_gpus(request: PlanRequest) -> int:
    """GPUs that a plan may use at most."""
    free = sum(pool.num_free_gpus for pool in usable_pools(request))
    return min(free, request.constraints.max_gpus or free)


def buildings_of(cluster: Cluster) -> dict[str, str]:
    """`building_of` for every place, in one pass."""
    levels = {one.id: one.level for one in cluster.places}
    parents = {one.id: one.parent for one in cluster.places}
    chains = {place: _chain(parents, place) for place in parents}
    return {place: next((one for one in chain if levels[one] == "building"), place) for place, chain in chains.items()}


def capacity_groups_of(
    cluster: Cluster, pools: Sequence[Pool], pinned: Collection[str] = ()
) -> tuple[CapacityGroup, ...]:
    """Capacity groups in the order of their first pool; pools inside different `pinned` places are different groups."""
    around, buildings = enclosing(cluster), buildings_of(cluster)
    grouped: dict[tuple[str, str, frozenset[str]], list[int]] = {}
    for index, pool in enumerate(pools):
        key = (buildings[pool.place], pool.gpu.name, around[pool.place] & frozenset(pinned))
        grouped.setdefault(key, []).append(index)
    return tuple(CapacityGroup(building, gpu, tuple(members)) for (building, gpu, _), members in grouped.items())


def groups_of(pool: Pool, tp: int, cp: int) -> int:
    """Stage groups that a pool can hold; none where tensor parallelism would straddle scale-up domains."""
    return pool.num_free_gpus // (tp * cp) if pool.gpu.scale_up_domain_gpus % tp == 0 else 0


def groups_by_row(pools: Sequence[Pool], set_of_pool: Sequence[int], tp: IntArray, cp: IntArray) -> IntArray:
    """Stage groups that every set of pools can hold, by row of degrees; sets are numbered from 0."""
    widest = int(cp.max(initial=1)) + 1
    distinct, row_of = np.unique(tp * widest + cp, return_inverse=True)
    held = np.zeros((len(distinct), max(set_of_pool, default=-1) + 1), dtype=np.int64)
    for pool, number in zip(pools, set_of_pool, strict=True):
        held[:, number] += np.array([groups_of(pool, *divmod(int(one), widest)) for one in distinct], dtype=np.int64)
    by_row: IntArray = held[row_of.ravel()]
    return by_row
