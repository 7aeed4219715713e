"""What stage messages keep of an edge: a queue sends one message at a time, at the rate of its fastest."""

from __future__ import annotations

import pytest

from solver.placement.fill import PooledRoute
from solver.transport.hops import HopDelay, reserved_bytes_per_s


@pytest.mark.parametrize("times_s", [(0.5, 2.0), (2.0, 0.5)])
def test_hops_of_one_queue_keep_the_rate_of_the_fastest(times_s: tuple[float, float]) -> None:
    route = PooledRoute(pools=(0, 1, 0), num_replicas=3, first_group=(0, 0, 3))
    hops = tuple(HopDelay(stage, 0.0, time_s, "east-west", there=((7, 1.0),)) for stage, time_s in enumerate(times_s))
    assert reserved_bytes_per_s((route,), [hops], 10.0) == {7: pytest.approx(3 * 10.0 / 0.5)}
