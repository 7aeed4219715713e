"""A clock of a computer that does other things for a while."""

from __future__ import annotations

import itertools
from collections.abc import Callable

TICK_S = 0.002  # a reading after the one before


def paused_clock(reading: int, pause_s: float) -> Callable[[], float]:
    """A clock that leaps by `pause_s` after a reading of that number."""
    readings = itertools.count()

    def now() -> float:
        number = next(readings)
        return TICK_S * number + (pause_s if number > reading else 0.0)

    return now
