"""The least time that the exchange of a stage's gradients takes inside a place, whatever the placement."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from solver.context import Context
from solver.cost.columns import Columns, FloatArray, IntArray
from solver.cost.data_parallel import step_traffic
from solver.cost.fabric import Fabric


def replicas_in_a_place(columns: Columns, row: int, num_places: int) -> IntArray:
    """Numbers of replicas of a configuration that the fullest of so many places may hold, in bundles that an expert
    group spans.

    Some place holds at least its even part.
    """
    dp, bundle = int(columns.dp[row]), max(1, int(columns.ep[row]) // int(columns.cp[row]))
    return np.arange(-(-dp // (num_places * bundle)), dp // bundle + 1) * bundle


def least_exchange_s(
    context: Context,
    columns: Columns,
    fabric: Fabric,
    *,
    dense: FloatArray,
    experts: FloatArray,
    num_places: int,
) -> FloatArray:
    """Least time that stages of any of the configurations exchange, by entry of the last axis of the parameters.

    `dense` and `experts` have one row, or one per configuration, of parameters of a stage on one GPU.

    The time is a straight line in the parameters of each kind for every number of replicas in the fullest place: two
    points give it. Any number of replicas from the even part on may be there, so the least over them counts: of
    those that are nowhere below another one of the same configuration that other one is enough.
    """
    held = [replicas_in_a_place(columns, row, num_places) for row in range(len(columns))]
    replicas, row = np.concatenate(held), np.repeat(np.arange(len(held)), [len(one) for one in held])
    at = replace(columns.take(row), dp=replicas)

    def time_s(some_dense: FloatArray, some_experts: FloatArray) -> FloatArray:
        traffic = step_traffic(some_dense, some_experts, at, fabric, context.stack, job=context.job)
        return traffic.reduce_s + traffic.gather_s

    zero, times = np.zeros(len(replicas)), list[_AffineTimes]()
    for parameters, of_both in ((dense, lambda scale: (scale, zero)), (experts, lambda scale: (zero, scale))):
        if not parameters.any():
            continue
        each = np.broadcast_to(np.atleast_2d(parameters), (len(columns), parameters.shape[-1]))
        scale = np.where((each > 0).any(axis=1), each.max(axis=1), 1.0)
        half, whole = (time_s(*of_both(part * scale[row])) for part in (0.5, 1.0))
        times.append(_AffineTimes(each / scale[:, None], whole, 2.0 * (whole - half)))
    if not times:
        return np.zeros(dense.shape[-1])
    retained = _not_above(times, row)
    least: FloatArray = np.add.reduce([one.at(retained, row) for one in times]).min(axis=0, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


@dataclass(frozen=True)
class _AffineTimes:
    """Times of numbers of replicas: `whole` at the most parameters, so much more for all of them, 0 for none.

    `share` is a row for each configuration of parameters over the most.
    """

    share: FloatArray
    whole: FloatArray
    slope: FloatArray

    def at(self, retained: IntArray, row: IntArray) -> FloatArray:
        """Of some numbers of replicas, each of the configuration of this row."""
        share = self.share[row[retained]]
        return np.where(share > 0, self.whole[retained, None] + self.slope[retained, None] * (share - 1.0), 0.0)


def _not_above(times: list[_AffineTimes], row: IntArray) -> IntArray:
    """Places that are not above one of the same configuration, whatever the parameters: neither end is."""
    ends = np.stack([end for one in times for end in (one.whole, one.whole - one.slope)])
    first = np.flatnonzero(np.diff(row, prepend=-1))
    least = np.minimum.reduceat(ends[::2].sum(axis=0), first)[np.searchsorted(row[first], row)]
    is_least = ends[::2].sum(axis=0) <= least
    chosen = np.flatnonzero(is_least)[np.searchsorted(row[is_least], row)]
    retained: IntArray = np.flatnonzero(is_least | (ends < ends[:, chosen]).any(axis=0))
    return retained
