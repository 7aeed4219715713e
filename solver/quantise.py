"""The only place that turns seconds and bytes into integers.

Rounds against ourselves: durations and needs up, capacities down, so a discrete plan stays true in continuous time.
"""

from __future__ import annotations

import math


def seconds_to_ticks(seconds: float, tick_s: float) -> int:
    """Whole ticks that a duration needs, rounded up; float noise below 1e-9 ticks is forgiven.

    >>> seconds_to_ticks(0.0101, 0.001), seconds_to_ticks(0.01, 0.001)
    (11, 10)
    """
    return math.ceil(seconds / tick_s - 1e-9)
