"""What a request leaves to place on: capacity groups by building, GPU type and pins, and the stage groups they hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from models.cluster import Cluster, Pool
from solver.arrays import FloatArray, IntArray
from solver.network.places import ancestors_of, buildings_of


@dataclass(frozen=True)
class CapacityGroup:
    """The pools of one GPU type in one building that the same pins concern, as indices into the usable pools."""

    building: str
    gpu: str
    pools: tuple[int, ...]


def capacity_groups_of(
    cluster: Cluster, pools: Sequence[Pool], pinned: Collection[str] = ()
) -> tuple[CapacityGroup, ...]:
    """Capacity groups in the order of their first pool; pools inside different `pinned` places are different groups."""
    around, buildings = ancestors_of(cluster), buildings_of(cluster)
    grouped: dict[tuple[str, str, frozenset[str]], list[int]] = {}
    for index, pool in enumerate(pools):
        key = (buildings[pool.place], pool.gpu.name, frozenset(pinned).intersection(around[pool.place]))
        grouped.setdefault(key, []).append(index)
    return tuple(CapacityGroup(building, gpu, tuple(members)) for (building, gpu, _), members in grouped.items())


def peaks_flops_per_s(pools: Sequence[Pool], groups: Sequence[CapacityGroup]) -> FloatArray:
    """Peak of one GPU of every capacity group, in BF16."""
    return np.array([pools[group.pools[0]].gpu.bf16_flops_per_s for group in groups])


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


def bundles_by_place(pools: Sequence[Pool], tp: IntArray, cp: IntArray, together: IntArray) -> IntArray:
    """Stage groups that every place can hold, in the order of first pools, where so many of a rank share it, by row."""
    numbers = {place: number for number, place in enumerate(dict.fromkeys(pool.place for pool in pools))}
    held = groups_by_row(pools, [numbers[pool.place] for pool in pools], tp, cp)
    return held // together[:, None] * together[:, None]


def bundles_by_row(
    pools: Sequence[Pool], set_of_pool: Sequence[int], tp: IntArray, cp: IntArray, together: IntArray
) -> IntArray:
    """Stage groups that every set of pools can hold where so many of a rank share a place, by row of degrees.

    Sets are numbered from 0, and no place has pools in two of them.
    """
    set_of_place = dict(zip((pool.place for pool in pools), set_of_pool, strict=True))
    held = np.zeros((len(tp), max(set_of_pool, default=-1) + 1), dtype=np.int64)
    for number, own in zip(set_of_place.values(), bundles_by_place(pools, tp, cp, together).T, strict=True):
        held[:, number] += own
    return held
