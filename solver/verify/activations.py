"""The stated operations of one pipeline rank over time: read once, and the activations that they hold.

Owns the running sum. Never knows a budget and never reads the bytes that a plan states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from models.schedule import MAX_OPERATIONS, Operation, RankTimeline

SAME_INSTANT = 1e-9


class Timed(NamedTuple):
    """One operation with its stated start and end."""

    stage: int
    kind: str
    start_s: float
    end_s: float


def timed_operations(timeline: RankTimeline) -> list[Timed]:
    """The operations of a rank; times without an operation are the schedule rules' find, and left out here."""
    timed = []
    for text, start, end in zip(timeline.operations, timeline.start_s, timeline.end_s, strict=False):
        operation = _parsed(text)
        timed.append(Timed(operation.stage, operation.kind, start, end))
    return timed


@lru_cache(maxsize=MAX_OPERATIONS)
def _parsed(text: str) -> Operation:
    """Routes share their operations' names."""
    return Operation.parse(text)


def peak_activation_bytes(operations: Sequence[Timed], held: Mapping[int, tuple[float, float]]) -> float:
    """Most bytes held at one instant; `held` gives (activation, weight-gradient context) of every stage of the rank.

    F takes its activation when it starts; B gives it back for the context when it ends, W gives back the context; BW
    gives back the activation. What ends at an instant is given back before what starts at it is taken. Operations of
    other ranks' stages are left out.

    >>> peak_activation_bytes([Timed(0, "F", 0, 1), Timed(0, "F", 1, 2), Timed(0, "BW", 2, 4)], {0: (5.0, 0.0)})
    10.0
    """
    slack = SAME_INSTANT * max((one.end_s for one in operations), default=0.0)
    changes: list[tuple[float, float]] = []
    for stage, kind, start, end in operations:
        if stage not in held:
            continue
        activation, context = held[stage]
        if kind == "F":
            changes.append((start, activation))
        else:
            change = {"B": context - activation, "W": -context, "BW": -activation}[kind]
            changes.append((end - slack, change))
    now = peak = 0.0
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak
