"""The least time that the exchange of a stage's gradients takes inside a place, whatever the placement.

Owns that floor for any numbers of parameters at once. Never sees a route or a link.
"""

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
    """Least time by entry of `dense` and `experts` that stages of any of the configurations with these parameters
    exchange.

    The time is a straight line in the parameters of each kind for every number of replicas in the fullest place: two
    points give it. Any number of replicas from the even part on may be there, so the least over them counts.
    """
    held = [replicas_in_a_place(columns, row, num_places) for row in range(len(columns))]
    replicas = np.concatenate(held)
    at = replace(columns.take(np.repeat(np.arange(len(held)), [len(one) for one in held])), dp=replicas)

    def time_s(some_dense: float, some_experts: float) -> FloatArray:
        traffic = step_traffic(
            np.full(len(replicas), some_dense),
            np.full(len(replicas), some_experts),
            at,
            fabric,
            context.stack,
            gradient_bytes=context.job.optimizer.gradient_bytes_per_parameter,
            weight_bytes=context.job.value_bytes,
        )
        return traffic.reduce_s + traffic.gather_s

    total = np.zeros((len(dense), len(replicas)))
    for parameters, unit in ((dense, (1.0, 0.0)), (experts, (0.0, 1.0))):
        if not parameters.any():
            continue
        scale = float(parameters.max())
        half, whole = (time_s(part * scale * unit[0], part * scale * unit[1]) for part in (0.5, 1.0))
        slope = 2.0 * (whole - half)
        some = (parameters > 0)[:, None]
        total += np.where(some, whole + slope * (parameters[:, None] / scale - 1.0), 0.0)
    least: FloatArray = total.min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)
