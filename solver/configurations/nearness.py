"""Whether all pipeline ranks fit on the best GPU type alone, and into one building, where they do on several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from models.cluster import Cluster, Pool
from models.workload import Workload
from solver.arrays import BoolArray, IntArray
from solver.configurations.distinct import distinct_rows
from solver.cost.compute import strength_of
from solver.network.places import buildings_of
from solver.placement.capacity_groups import groups_by_row

PLACED_BY = ("tp", "cp", "dp", "pp")  # what says how many stage groups there are, and where they fit


def best_type(workload: Workload, pools: Sequence[Pool]) -> str | None:
    """Name of the GPU type whose pools are no worse than those of any other in their types' strength and their network
    cards; None where there is no such type, or where layers are measured, whatever the types state.
    """
    figures = [(*strength_of(workload, pool.gpu), pool.nic_bytes_per_s_per_gpu) for pool in pools]
    name = pools[figures.index(max(figures))].gpu.name
    own = [one for one, pool in zip(figures, pools, strict=True) if pool.gpu.name == name]
    others = [one for one, pool in zip(figures, pools, strict=True) if pool.gpu.name != name]
    is_best = not others or bool(np.all(np.min(own, axis=0) >= np.max(others, axis=0)))
    return name if is_best and not workload.layer_profiles else None


def ranks_by_type(pools: Sequence[Pool], tp: IntArray, cp: IntArray, dp: IntArray) -> dict[str, IntArray]:
    """Pipeline ranks that all GPUs of each type can hold, every rank with all its replicas."""
    names = list(dict.fromkeys(pool.gpu.name for pool in pools))
    groups = groups_by_row(pools, [names.index(pool.gpu.name) for pool in pools], tp, cp)
    return {name: groups[:, number] // dp for number, name in enumerate(names)}


def fits_as_near(
    cluster: Cluster, pools: Sequence[Pool], gpu: str, rows: Mapping[str, IntArray], held: IntArray
) -> BoolArray:
    """Whether all pipeline ranks fit on this GPU type alone, and into one building if they do so on several types.

    `pools` are those to use, and `rows` have the columns of `PLACED_BY` at least; `held` are the ranks that all GPUs of
    the type hold, and the result has an entry per row. Every rank has all its replicas on one type.
    """
    fits: BoolArray = held >= rows["pp"]
    some = np.flatnonzero(fits)
    buildings = buildings_of(cluster)
    inside: dict[str, list[Pool]] = {}
    for pool in pools:
        inside.setdefault(buildings[pool.place], []).append(pool)
    if not len(some) or all(len({pool.gpu.name for pool in one}) == 1 for one in inside.values()):
        return fits
    first, row_of = distinct_rows(*(rows[name][some] for name in PLACED_BY))
    *degrees, pp = (rows[name][some][first] for name in PLACED_BY)
    alone, together = np.zeros((2, len(pp)), dtype=np.bool_)
    for one in inside.values():
        ranks = ranks_by_type(one, *degrees)
        alone |= ranks.get(gpu, 0) >= pp
        held = np.stack(list(ranks.values()))
        together |= (held.sum(axis=0) >= pp) & ((held > 0).sum(axis=0) > 1)
    fits[some] = (alone | ~together)[row_of]
    return fits


def fits_uncrossed(
    cluster: Cluster,
    pools: Sequence[Pool],
    rows: Mapping[str, IntArray],
    *,
    ranks_may_cross: bool,
    replicas_may_cross: bool,
) -> BoolArray:
    """Whether these pools hold all replicas where those of a rank, or the ranks of a replica, stay in one building.

    `rows` have the columns of `PLACED_BY` at least; the result has an entry per row.
    """
    buildings = buildings_of(cluster)
    number_of = {name: number for number, name in enumerate(dict.fromkeys(buildings[pool.place] for pool in pools))}
    first, row_of = distinct_rows(*(rows[name] for name in PLACED_BY))
    tp, cp, dp, pp = (rows[name][first] for name in PLACED_BY)
    held = groups_by_row(pools, [number_of[buildings[pool.place]] for pool in pools], tp, cp)
    together = (1 if ranks_may_cross else pp) * (1 if replicas_may_cross else dp) * np.ones_like(pp)
    return np.asarray((held // together[:, None]).sum(axis=1) * together >= dp * pp)[row_of]
