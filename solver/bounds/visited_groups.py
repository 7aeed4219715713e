"""Messages of pipelines that visit several groups of a cut in some order: what leaves every set of these groups.

Proof: docs/bounds.md, "Sets of groups".
"""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray


def least_crossing_s(
    rate_of_set: FloatArray, num_visited: int, cycles: IntArray, looped: BoolArray, num_groups: int
) -> FloatArray:
    """Least seconds per byte of the messages of a micro-batch between so many groups, over the links out of any set.

    `cycles` are the passes over all ranks, by configuration; where `looped` each but the last one comes home. The order
    in which the groups are visited is the best of all. `rate_of_set` is that of a `NetworkCut`, in bytes per second.

    >>> mesh = np.array([0.0, 3, 3, 4, 3, 4, 4, 3, 3, 4, 4, 3, 4, 3, 3, 0])
    >>> least_crossing_s(mesh, 4, np.array([1, 3]), np.array([False, True]), 4).tolist()
    [0.75, 2.75]
    """
    ways, row_of = np.unique(np.stack([cycles, looped]), axis=1, return_inverse=True)
    on_the_way, home = crossings_of_orders(num_groups, num_visited)
    per_byte_s = np.divide(1.0, rate_of_set, out=np.zeros_like(rate_of_set), where=rate_of_set > 0)
    each = [passes * on_the_way + (passes - 1) * comes_home * home for passes, comes_home in ways.T.tolist()]
    seconds = np.array([(crossings * per_byte_s).max(axis=1).min() for crossings in each])
    return np.asarray(seconds[row_of.ravel()])


@cache
def crossings_of_orders(num_groups: int, num_visited: int) -> tuple[IntArray, IntArray]:
    """How often a way over so many groups crosses the edge of every set of groups, and whether the way home from the
    last to the first does (orders x sets).

    The orders are all in which so many of the groups may be visited, but for those the other way round.
    """
    orders = [one for one in itertools.permutations(range(num_groups), num_visited) if one[0] <= one[-1]]
    inside = (np.arange(1 << num_groups)[None, :, None] >> np.array(orders)[:, None, :]) & 1
    return np.abs(np.diff(inside, axis=2)).sum(axis=2), np.abs(inside[:, :, -1] - inside[:, :, 0])
