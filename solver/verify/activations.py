"""Activations that one pipeline rank holds over time, read off the stated times of its operations.

Owns the running sum. Never knows a budget and never reads the bytes that a plan states.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.schedule import Operation, RankTimeline

SAME_INSTANT = 1e-9


def peak_activation_bytes(timeline: RankTimeline, held: Mapping[int, tuple[float, float]]) -> float:
    """Most bytes held at one instant; `held` gives (activation, weight-gradient context) of every stage of the rank.

    F takes its activation when it starts; B gives it back for the context when it ends, W gives back the context; BW
    gives back the activation. What ends at an instant is given back before what starts at it is taken. Operations of
    other ranks' stages and times without an operation are the schedule rules' find, and left out here.

    >>> line = RankTimeline(operations=("0F0", "0F1", "0BW0", "0BW1"), start_s=(0, 1, 2, 4), end_s=(1, 2, 4, 6),
    ...     peak_memory_bytes=0)
    >>> peak_activation_bytes(line, {0: (5.0, 0.0)})
    10.0
    """
    slack = SAME_INSTANT * max(timeline.end_s, default=0.0)
    changes: list[tuple[float, float]] = []
    for text, start, end in zip(timeline.operations, timeline.start_s, timeline.end_s, strict=False):
        operation = Operation.parse(text)
        if operation.stage not in held:
            continue
        activation, context = held[operation.stage]
        if operation.kind == "F":
            changes.append((start, activation))
        else:
            change = {"B": context - activation, "W": -context, "BW": -activation}[operation.kind]
            changes.append((end - slack, change))
    now = peak = 0.0
    for _, change in sorted(changes):
        now += change
        peak = max(peak, now)
    return peak
