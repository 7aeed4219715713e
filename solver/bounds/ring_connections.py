"""How much of the links exchanges between two groups fill, where little room is left for them in one.

A ring has as many connections as the smaller part of its rank has GPUs, and where connections are hashed to planes few
fill little. Proof: docs/bounds.md, "Connections of rings".
"""

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.bounds.connections import ConnectionLimits
from solver.cost.columns import Columns
from solver.cost.data_parallel import replicas_together


def least_fill(limits: ConnectionLimits, columns: Columns, left: IntArray, num_ranks: IntArray) -> FloatArray:
    """Capacity of links that a byte of the exchanges of so many ranks takes at least, on average, by row.

    All of them lie in two groups, one of which has so many stage groups `left` for them.
    """
    filled, bundles = np.ones(len(columns)), replicas_together(columns)
    for row, together in enumerate(bundles.tolist()):
        others, most = max(int(num_ranks[row]), 1), max(int(columns.dp[row]) // 2 // together, 1) * together
        smaller = np.arange(together, most + 1, together)
        shares = limits.most_share(smaller * int(columns.tp[row] * columns.cp[row]))
        filled[row] = lower_hull(smaller, 1.0 / shares, min(max(int(left[row]) / others, together), most))
    return filled


def lower_hull(x: IntArray, y: FloatArray, at: float) -> float:
    """The largest convex function that is nowhere above these points, there.

    >>> lower_hull(np.array([1, 2, 3]), np.array([4.0, 3.0, 0.0]), 2.0)
    2.0
    """
    below, above = x <= at, x >= at
    left, right = np.meshgrid(np.flatnonzero(below), np.flatnonzero(above))
    width = x[right] - x[left]
    weight = np.where(width > 0, (at - x[left]) / np.maximum(width, 1), 0.0)
    return float(((1.0 - weight) * y[left] + weight * y[right]).min())
