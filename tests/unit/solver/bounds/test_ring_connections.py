"""What exchanges fill of links between two groups, held against every way to split their ranks."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest

from solver.bounds.connections import ConnectionLimits, MessageLoss, SharedPlanes
from solver.bounds.ring_connections import least_fill
from solver.cost.columns import Columns, columns_from

LOSS = MessageLoss(0.0, 0.0, 1, True, 1, 1)
LIMITS = ConnectionLimits(1e9, 1e9, 0.0, LOSS, SharedPlanes(1e9, 32, 8))


@pytest.mark.parametrize(("ep", "num_replicas"), [(1, 6), (1, 7), (2, 8), (4, 8)])
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_no_split_of_the_ranks_fills_less(ep: int, num_replicas: int, num_ranks: int) -> None:
    row = dict.fromkeys([one.name for one in fields(Columns)], 1)
    columns = columns_from([{**row, "ep": ep, "dp": num_replicas, "pp": num_ranks, "tp": 2}])
    each = range(ep, num_replicas, ep)
    for left in range(num_ranks * ep, num_ranks * num_replicas):
        ways = [way for way in itertools.product(each, repeat=num_ranks) if sum(way) <= left]
        smaller = [2 * np.minimum(way, num_replicas - np.array(way)) for way in ways]
        least = min(float((1.0 / LIMITS.most_share(one)).sum()) for one in smaller)
        filled = float(least_fill(LIMITS, columns, np.array([left]), np.array([num_ranks]))[0])
        assert num_ranks * filled <= least * (1 + 1e-12)


def test_links_that_balance_load_are_filled_by_any_number_of_connections() -> None:
    row = dict.fromkeys([one.name for one in fields(Columns)], 1)
    columns = columns_from([{**row, "dp": 8, "pp": 4}])
    balanced = replace(LIMITS, shared=None)
    assert least_fill(balanced, columns, np.array([4]), np.array([4])).tolist() == [1.0]
