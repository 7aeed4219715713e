"""A pipeline schedule read into columns for the judge: what is stated, what is missing, what is stated twice.

Owns the reading of text forms and the objections that reading alone gives. Never times anything: every number here is
the schedule's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from models.schedule import PipelineProblem, PipelineSchedule, PipelineViolation
from solver.verify.pipeline_shape import Floats, Ints, PipelineShape, shape_of

Texts = tuple[str, ...]
Times = tuple[float, ...]
TOLERANCE = 1e-9  # relative: stated times are sums of floats


@dataclass(frozen=True, eq=False)
class Stated:
    """Times by operation id and by message id (NaN where nothing is stated), rank of operations, order of ranks."""

    problem: PipelineProblem
    schedule: PipelineSchedule
    shape: PipelineShape
    start: Floats
    end: Floats
    rank: Ints
    rank_ops: tuple[Ints, ...]
    message_start: Floats
    message_end: Floats
    slack_s: float


def read(problem: PipelineProblem, schedule: PipelineSchedule) -> tuple[Stated | None, list[PipelineViolation]]:
    """The stated times, or None with the objections when lists do not even line up."""
    shape = shape_of(problem)
    found = _lists_line_up(shape, schedule)
    if found:
        return None, found
    ranks = schedule.ranks
    start, end, objections = _columns(
        shape, [(one.operations, one.start_s, one.end_s) for one in ranks], messages=False
    )
    numbers = _numbers(shape.texts(), shape.num_stages)
    named = [np.array([numbers.get(text, -1) for text in one.operations], dtype=np.int64) for one in ranks]
    orders = tuple(one[one >= 0] for one in named)
    rank_of = np.full(shape.num_operations, -1, dtype=np.int64)
    for rank, operations in enumerate(orders):
        rank_of[operations[operations < shape.num_operations]] = rank
    lines = [(line.transfers, line.start_s, line.end_s) for line in schedule.transfers]
    message_start, message_end, more = _columns(shape, lines, messages=True)
    slack_s = TOLERANCE * max(1e-9, float(np.nanmax(end, initial=0.0)))
    stated = Stated(problem, schedule, shape, start, end, rank_of, orders, message_start, message_end, slack_s)
    return stated, objections + more


def _lists_line_up(shape: PipelineShape, schedule: PipelineSchedule) -> list[PipelineViolation]:
    found = []
    if len(schedule.ranks) != shape.num_ranks:
        found.append(violation("completeness", "ranks", f"{len(schedule.ranks)} timelines for {shape.num_ranks} ranks"))
    lists = [(f"rank {rank}", one.operations, one.start_s, one.end_s) for rank, one in enumerate(schedule.ranks)]
    lists += [(f"link {line.link}", line.transfers, line.start_s, line.end_s) for line in schedule.transfers]
    for where, texts, starts, ends in lists:
        if not len(texts) == len(starts) == len(ends):
            found.append(violation("completeness", where, "texts, starts and ends differ in length"))
    return found


def _columns(
    shape: PipelineShape, rows: Sequence[tuple[Texts, Times, Times]], *, messages: bool
) -> tuple[Floats, Floats, list[PipelineViolation]]:
    """Start and end by id of the operations, or of the messages; the first statement of each counts."""
    numbers, size = _numbers(shape.texts(), shape.num_stages), shape.num_operations + messages * shape.num_stages
    texts = [text for row in rows for text in row[0]]
    ids = np.array([numbers.get(text, size) for text in texts], dtype=np.int64)
    starts, ends = (np.array([time for row in rows for time in row[column]], dtype=np.float64) for column in (1, 2))
    known, first = np.unique(np.where(ids < size, ids, size), return_index=True)
    first, known = first[known < size], known[known < size]
    found = []
    for row in np.setdiff1d(np.arange(len(texts)), first, assume_unique=True).tolist():
        text = texts[row]
        if ids[row] >= size:
            rule = "fused" if ("BW" in text) != (shape.num_kinds == 2) and "F" not in text else "unknown_operation"
            found.append(violation(rule, text, "is not an operation of this problem"))
        else:
            found.append(violation("duplicate", text, "is stated twice"))
    start, end = np.full(size, np.nan), np.full(size, np.nan)
    start[known], end[known] = starts[first], ends[first]
    return start, end, found


@lru_cache(maxsize=8)
def _numbers(texts: Texts, num_stages: int) -> dict[str, int]:
    named = (*texts, *(f"{stage}SYNC" for stage in range(num_stages)))
    return {text: number for number, text in enumerate(named)}


def violation(rule: str, where: str, detail: str) -> PipelineViolation:
    """A named objection."""
    return PipelineViolation(rule=rule, where=where, detail=detail)
