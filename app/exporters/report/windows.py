"""Which parts of a long timeline are drawn: all of it, or its fill, a window of its steady state and its drain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from app.exporters.report.timings import Timing

READABLE_OPERATIONS = 60.0  # of usual length, side by side across the page, with room for two digits
FEWEST_OPERATIONS = 45.0
MOST_PARTS = 3.3  # windows that a timeline may fill without anything being cut
LONGEST_TAIL = 0.75  # of a window, for what comes after the last operation


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
    """The parts to draw of an iteration that ends at `end_s`, in order and not overlapping."""
    length_s = _length_s(timing)
    shown_s = min(end_s, timing.end_s + LONGEST_TAIL * length_s)
    if shown_s <= MOST_PARTS * length_s:
        return _parts(shown_s, math.ceil(shown_s / length_s / (MOST_PARTS / 3) - 1e-9), whole=shown_s == end_s)
    middle_s = timing.end_s / 2
    return (
        Window("Fill", 0.0, length_s),
        Window("Steady state", middle_s - length_s / 2, middle_s + length_s / 2),
        Window("Drain", timing.end_s - length_s, shown_s),
    )


def _parts(end_s: float, num_parts: int, *, whole: bool) -> tuple[Window, ...]:
    if num_parts == 1:
        return (Window("The whole iteration" if whole else "The pipeline", 0.0, end_s),)
    cuts_s = [end_s * index / num_parts for index in range(num_parts + 1)]
    return tuple(Window(f"Part {index} of {num_parts}", *pair) for index, pair in enumerate(pairwise(cuts_s), 1))


def _length_s(timing: Timing) -> float:
    """Until the first rank has its first gradient back, within what the eye can part."""
    first_s = next((bar.end_s for bar in timing.rows[0] if bar.operation.kind != "F"), timing.end_s)
    usual_s = timing.usual_s
    return min(max(1.15 * first_s, FEWEST_OPERATIONS * usual_s), READABLE_OPERATIONS * usual_s)


def cuts(timing: Timing, shown: tuple[Window, ...], end_s: float) -> list[Cut | None]:
    """What lies behind each window that is not drawn; None where the next one follows at once."""
    starts_s = [*(window.start_s for window in shown[1:]), end_s]
    pairs = ((window.end_s, start_s) for window, start_s in zip(shown, starts_s, strict=True))
    return [
        _cut(timing, before_s, after_s) if after_s - before_s > 1e-9 * end_s else None for before_s, after_s in pairs
    ]


def _cut(timing: Timing, start_s: float, end_s: float) -> Cut:
    num_operations = sum(start_s <= bar.start_s and bar.end_s <= end_s for row in timing.rows for bar in row)
    ranks = range(len(timing.rows))
    room_s = len(ranks) * (end_s - start_s)
    busy_s = sum(timing.busy_s(rank, start_s, end_s) for rank in ranks)
    return Cut(start_s, end_s, num_operations, busy_s / room_s if room_s > 0 else 0.0)
