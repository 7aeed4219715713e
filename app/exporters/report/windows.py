"""Which parts of a long timeline are drawn: all of it, or its fill, a window of its steady state and its drain.

Owns the choice and the account of what is cut. Never makes markup.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from app.exporters.report.timings import Timing

READABLE_OPERATIONS = 80.0  # of usual length, side by side across the page
FEWEST_OPERATIONS = 24.0


@dataclass(frozen=True)
class Window:
    """A part of the timeline that is drawn."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Cut:
    """A part of the timeline that is not drawn, summed up."""

    start_s: float
    end_s: float
    num_operations: int
    busy_share: float


def windows(timing: Timing, end_s: float) -> tuple[Window, ...]:
    """The parts to draw of a timeline that ends at `end_s`, in order and not overlapping."""
    length_s = _length_s(timing)
    if 3 * length_s >= end_s:
        return (Window("The whole iteration", 0.0, end_s),)
    middle_s = timing.end_s / 2
    tail_s = length_s + end_s - timing.end_s
    return (
        Window("Fill", 0.0, length_s),
        Window("Steady state", middle_s - length_s / 2, middle_s + length_s / 2),
        Window("Drain", end_s - min(tail_s, 1.5 * length_s), end_s),
    )


def _length_s(timing: Timing) -> float:
    """Until the first rank has its first gradient back, within what the eye can part."""
    first_s = next((bar.end_s for bar in timing.rows[0] if bar.operation.kind != "F"), timing.end_s)
    usual_s = timing.usual_s
    return min(max(1.15 * first_s, FEWEST_OPERATIONS * usual_s), READABLE_OPERATIONS * usual_s)


def cuts(timing: Timing, shown: tuple[Window, ...]) -> list[Cut]:
    """What lies between the windows."""
    return [_cut(timing, one.end_s, next_.start_s) for one, next_ in pairwise(shown)]


def _cut(timing: Timing, start_s: float, end_s: float) -> Cut:
    num_operations = sum(start_s <= bar.start_s and bar.end_s <= end_s for row in timing.rows for bar in row)
    ranks = range(len(timing.rows))
    room_s = len(ranks) * (end_s - start_s)
    busy_s = sum(timing.busy_s(rank, start_s, end_s) for rank in ranks)
    return Cut(start_s, end_s, num_operations, busy_s / room_s if room_s > 0 else 0.0)
