"""A pipeline schedule read into columns for the judge: what is stated, what is missing, what is stated twice.

Owns the reading of text forms and the objections that reading alone gives. Never times anything: every number here is
the schedule's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.schedule import PipelineProblem, PipelineSchedule, PipelineViolation
from solver.verify.pipeline_shape import Floats, Ints, PipelineShape, shape_of

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
    rows = [
        (rank, text, start, end)
        for rank, one in enumerate(schedule.ranks)
        for text, start, end in zip(one.operations, one.start_s, one.end_s, strict=True)
    ]
    start, end, objections = _columns(shape, [row[1:] for row in rows], shape.num_operations)
    rank_of = np.full(shape.num_operations, -1, dtype=np.int64)
    numbers = _numbers(shape)
    for rank, text, _, _ in rows:
        if text in numbers and numbers[text] < shape.num_operations:
            rank_of[numbers[text]] = rank
    messages = [
        row for line in schedule.transfers for row in zip(line.transfers, line.start_s, line.end_s, strict=True)
    ]
    size = shape.num_operations + shape.num_stages
    message_start, message_end, more = _columns(shape, messages, size)
    slack_s = TOLERANCE * max(1e-9, float(np.nanmax(end, initial=0.0)))
    orders = tuple(
        np.array([numbers[text] for text in one.operations if text in numbers], dtype=np.int64)
        for one in schedule.ranks
    )
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
    shape: PipelineShape, rows: Sequence[tuple[str, float, float]], size: int
) -> tuple[Floats, Floats, list[PipelineViolation]]:
    numbers = _numbers(shape)
    start, end = np.full(size, np.nan), np.full(size, np.nan)
    found = []
    for text, row_start, row_end in rows:
        number = numbers.get(text, size)
        if number >= size:
            rule = "fused" if ("BW" in text) != (shape.num_kinds == 2) and "F" not in text else "unknown_operation"
            found.append(violation(rule, text, "is not an operation of this problem"))
        elif not np.isnan(start[number]):
            found.append(violation("duplicate", text, "is stated twice"))
        else:
            start[number], end[number] = row_start, row_end
    return start, end, found


def _numbers(shape: PipelineShape) -> dict[str, int]:
    texts = shape.texts() + [f"{stage}SYNC" for stage in range(shape.num_stages)]
    return {text: number for number, text in enumerate(texts)}


def violation(rule: str, where: str, detail: str) -> PipelineViolation:
    """A named objection."""
    return PipelineViolation(rule=rule, where=where, detail=detail)
