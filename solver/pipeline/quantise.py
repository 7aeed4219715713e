"""The only place that makes whole ticks of seconds: how long a tick is, and the direction of rounding.

Times of a pipeline are rounded down, which gives a relaxation: what is proven in ticks is true in continuous time.
"""

from dataclasses import dataclass, replace
from decimal import Decimal
from math import gcd

import numpy as np

from solver.pipeline.problem import Floats, PipelineShape

FINEST_DIGITS = 9  # decimals of a second: no tick is finer than a nanosecond
SNAP = 1e-6  # a time this close to a whole tick (in ticks) is that tick: binary fractions of decimal input

# of a whole schedule for CP-SAT: times 2^20 units of memory and some hundred intervals they stay within 63 bits
MOST_TICKS = 2**32


@dataclass(frozen=True, eq=False)
class TickShape:
    """A shape whose times are whole numbers of ticks; `exact`: none was rounded."""

    shape: PipelineShape
    tick_s: float
    exact: bool


def quantise(shape: PipelineShape, tick_s: float) -> TickShape:
    """Every time of the shape in ticks, rounded down; memory remains what it is."""
    columns = (shape.duration_ks, shape.latency_s, shape.transfer_s, shape.sync_s)
    ticks = [whole_ticks(column, tick_s) for column in columns]
    exact = all(
        np.abs(column / tick_s - tick).max(initial=0.0) <= SNAP for column, tick in zip(columns, ticks, strict=True)
    )
    duration, latency, transfer, sync = ticks
    rounded = replace(shape, duration_ks=duration, latency_s=latency, transfer_s=transfer, sync_s=sync)
    return TickShape(rounded, tick_s, exact)


def whole_ticks(seconds: Floats, tick_s: float) -> Floats:
    """Seconds as whole ticks, rounded down except where they are a whole tick already.

    >>> whole_ticks(np.array([0.3, 0.35]), 0.1).tolist()
    [3.0, 3.0]
    """
    ticks = seconds / tick_s
    nearest: Floats = np.round(ticks)
    return np.where(np.abs(ticks - nearest) <= SNAP, nearest, np.floor(ticks))


def exact_tick_s(shape: PipelineShape) -> float | None:
    """The largest tick of which every time is a whole number, or None when it would be finer than a nanosecond."""
    times = np.concatenate([shape.duration_ks.ravel(), shape.latency_s, shape.transfer_s, shape.sync_s])
    scale, common = 10**FINEST_DIGITS, 0
    for value in np.unique(times):
        scaled = Decimal(repr(float(value))) * scale
        nearest = int(scaled.to_integral_value())
        if abs(scaled - nearest) > Decimal("1e-3"):
            return None
        common = gcd(common, nearest)
    return common / scale if common else None


def coarse_tick_s(shape: PipelineShape, ticks_per_operation: int) -> float:
    """A tick that cuts the mean positive duration into about so many parts."""
    positive = shape.duration_ks[shape.duration_ks > 0]
    return float(positive.mean()) / ticks_per_operation if positive.size else 1.0


def least_tick_s(shape: PipelineShape, most_ticks: int) -> float:
    """A tick of which no schedule without idle time on all ranks and channels takes more than so many.

    Messages and exchanges may take far longer than operations, so `coarse_tick_s` alone says nothing of the whole.
    """
    messages = 2.0 * (shape.transfer_s + np.maximum(shape.latency_s, 0.0)).sum()
    total_s = shape.num_microbatches * (shape.duration_ks.sum() + messages) + shape.sync_s.sum()
    return float(total_s) / most_ticks


def fine_tick_s(shape: PipelineShape) -> float:
    """The exact tick where there is one of at least a millionth of an operation, else about that millionth."""
    floor_s = max(coarse_tick_s(shape, 1_000_000), least_tick_s(shape, MOST_TICKS))
    exact_s = exact_tick_s(shape)
    if exact_s is None or exact_s < floor_s:
        return floor_s
    # CP-SAT makes an all-different of intervals of one tick, which is far slower
    return exact_s / 4 if (shape.duration_ks < 2 * exact_s).any() else exact_s


def seconds_to_ticks(seconds: float, tick_s: float) -> int:
    """Whole ticks that one duration needs, rounded up.

    >>> seconds_to_ticks(0.0101, 0.001), seconds_to_ticks(0.01, 0.001)
    (11, 10)
    """
    return -int(whole_ticks(np.array([-seconds]), tick_s)[0])
