"""The timelines as compact data for the zoom: whole ticks, differences of times, durations by stage and kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from app.exporters.report.timings import Bar, Lane, Timing, lane_labels
from app.words import visible

LANE_CHARACTERS = 8  # of each end of a link; the script shows 19 of a row
MAX_OPERATIONS = 120_000  # about 1.3 MB of data
NUM_TICKS = 10_000_000  # of the longest timeline; finer than a pixel at any zoom that is useful
KIND_CODES = {"F": "F", "B": "B", "W": "W", "BW": "X"}


def viewer_data(found: Sequence[Timing], labels: Sequence[str]) -> tuple[dict[str, Any], int]:
    """The slowest timings that fit, and how many do not."""
    longest_s = max(timing.end_s for timing in found)
    tick_s = longest_s / NUM_TICKS
    taken: list[dict[str, Any]] = []
    room = MAX_OPERATIONS
    for timing, label in zip(found, labels, strict=True):
        room -= timing.num_operations
        if room < 0:
            break
        taken.append(_timing(timing, label, tick_s))
    return {"tick": tick_s, "timings": taken}, len(found) - len(taken)


def _timing(timing: Timing, label: str, tick_s: float) -> dict[str, Any]:
    problem = timing.timeline.problem
    return {
        "name": visible(label),
        "stages": [
            {
                "F": round(one.forward_s / tick_s),
                "B": round(one.input_grad_s / tick_s),
                "W": round(one.weight_grad_s / tick_s),
                "X": round((one.input_grad_s + one.weight_grad_s) / tick_s),
                "held": round(one.activation_bytes),
                "context": round(one.weight_grad_context_bytes),
            }
            for one in problem.stages
        ],
        "ranks": [_rank(timing, rank, tick_s) for rank in range(len(timing.rows))],
        "lanes": [
            _lane(lane, label, tick_s)
            for lane, label in zip(timing.lanes, lane_labels(timing.lanes, LANE_CHARACTERS), strict=True)
        ],
        "fullest": timing.fullest_rank,
    }


def _rank(timing: Timing, rank: int, tick_s: float) -> dict[str, Any]:
    row = timing.rows[rank]
    budget_bytes = timing.timeline.problem.ranks[rank].activation_budget_bytes
    stages = [bar.operation.stage for bar in row]
    return {
        "name": visible(timing.buildings[rank]),
        "kinds": "".join(KIND_CODES[bar.operation.kind] for bar in row),
        "stages": stages[:1] if len(set(stages)) == 1 else stages,
        "batches": [bar.operation.microbatch for bar in row],
        "starts": _differences(round(bar.start_s / tick_s) for bar in row),
        "budget": None if budget_bytes is None else round(budget_bytes),
    }


def _lane(lane: Lane, label: str, tick_s: float) -> dict[str, Any]:
    def whole(bar: Bar) -> list[int]:
        return [round((bar.end_s - bar.start_s) / tick_s), round(bar.latency_s / tick_s)]

    return {
        "name": label,
        "starts": _differences(round(bar.start_s / tick_s) for bar in lane.bars),
        "times": [whole(bar) for bar in lane.bars],
    }


def _differences(values: Iterable[int]) -> list[int]:
    """Each value less the one before.

    >>> _differences([3, 5, 9])
    [3, 2, 4]
    """
    return [value - before for before, value in pairwise((0, *values))]
