"""The least time that the exchange of a stage's gradients takes inside a place, whatever the placement."""

from __future__ import annotations

from dataclasses import replace

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
    points give it. Any number of replicas from the even part on may be there, so the least over them counts.
    """
    held = [replicas_in_a_place(columns, row, num_places) for row in range(len(columns))]
    replicas, row = np.concatenate(held), np.repeat(np.arange(len(held)), [len(one) for one in held])
    at = replace(columns.take(row), dp=replicas)

    def time_s(some_dense: FloatArray, some_experts: FloatArray) -> FloatArray:
        traffic = step_traffic(
            some_dense,
            some_experts,
            at,
            fabric,
            context.stack,
            gradient_bytes=context.job.optimizer.gradient_bytes_per_parameter,
            weight_bytes=context.job.value_bytes,
        )
        return traffic.reduce_s + traffic.gather_s

    zero, total = np.zeros(len(replicas)), np.zeros((len(replicas), dense.shape[-1]))
    for parameters, of_both in ((dense, lambda scale: (scale, zero)), (experts, lambda scale: (zero, scale))):
        if not parameters.any():
            continue
        each = np.broadcast_to(np.atleast_2d(parameters), (len(columns), parameters.shape[-1]))[row]
        scale = np.where((each > 0).any(axis=1), each.max(axis=1), 1.0)
        half, whole = (time_s(*of_both(part * scale)) for part in (0.5, 1.0))
        slope = 2.0 * (whole - half)
        some = whole[:, None] + slope[:, None] * (each / scale[:, None] - 1.0)
        total += np.where(each > 0, some, 0.0)
    least: FloatArray = total.min(axis=0, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)
