"""A pipeline schedule read into columns for the judge: what is stated, what is missing, what is stated twice.

Every number here is the schedule's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.schedule import PipelineProblem, PipelineSchedule, PipelineViolation
from solver.pipeline.problem import Floats, Ints, PipelineShape, shape_of

Texts = tuple[str, ...]
Times = tuple[float, ...]
TOLERANCE = 1e-9  # relative: stated times are sums of floats


@dataclass(frozen=True, eq=False)
class Stated:
    """Times by operation id and by message id (NaN where nothing is stated), rank of operations, order of ranks.

    `messages_by_link`: the messages of every entry of `schedule.transfers`, by id.
    """

    problem: PipelineProblem
    schedule: PipelineSchedule
    shape: PipelineShape
    start: Floats
    end: Floats
    rank: Ints
    rank_ops: tuple[Ints, ...]
    message_start: Floats
    message_end: Floats
    messages_by_link: tuple[Ints, ...]
    slack_s: float


def read(problem: PipelineProblem, schedule: PipelineSchedule) -> tuple[Stated | None, list[PipelineViolation]]:
    """The stated times, or None with the objections when lists differ in length."""
    shape = shape_of(problem)
    found = _differing_lengths(shape, schedule)
    if found:
        return None, found
    ranks = schedule.ranks
    rows = [(one.operations, one.start_s, one.end_s) for one in ranks]
    named = _named(shape, rows)
    start, end, objections = _columns(shape, rows, named, messages=False)
    orders = tuple(one[one >= 0] for one in named)
    rank_of = np.full(shape.num_operations, -1, dtype=np.int64)
    for rank, operations in enumerate(orders):
        rank_of[operations[operations < shape.num_operations]] = rank
    rows = [(one.transfers, one.start_s, one.end_s) for one in schedule.transfers]
    named = _named(shape, rows)
    message_start, message_end, more = _columns(shape, rows, named, messages=True)
    by_link = tuple(one[one >= 0] for one in named)
    slack_s = TOLERANCE * max(1e-9, float(np.nanmax(end, initial=0.0)))
    stated = Stated(problem, schedule, shape, start, end, rank_of, orders, message_start, message_end, by_link, slack_s)
    return stated, objections + more


def _differing_lengths(shape: PipelineShape, schedule: PipelineSchedule) -> list[PipelineViolation]:
    found = []
    if len(schedule.ranks) != shape.num_ranks:
        found.append(violation("completeness", "ranks", f"{len(schedule.ranks)} timelines for {shape.num_ranks} ranks"))
    lists = [(f"rank {rank}", one.operations, one.start_s, one.end_s) for rank, one in enumerate(schedule.ranks)]
    lists += [(f"link {one.link}", one.transfers, one.start_s, one.end_s) for one in schedule.transfers]
    for where, texts, starts, ends in lists:
        if not len(texts) == len(starts) == len(ends):
            found.append(violation("completeness", where, "texts, starts and ends differ in length"))
    return found


def _named(shape: PipelineShape, rows: Sequence[tuple[Texts, Times, Times]]) -> list[Ints]:
    """Ids of what is stated, row by row; -1 for what the problem does not know."""
    numbers, syncs = shape.numbers(), {f"{stage}SYNC": stage for stage in range(shape.num_stages)}
    found = [np.array([numbers.get(text, -1) for text in row[0]], dtype=np.int64) for row in rows]
    for (texts, _, _), ids in zip(rows, found, strict=True):
        for at in np.flatnonzero(ids < 0).tolist():
            if texts[at] in syncs:
                ids[at] = shape.num_operations + syncs[texts[at]]
    return found


def _columns(
    shape: PipelineShape, rows: Sequence[tuple[Texts, Times, Times]], named: Sequence[Ints], *, messages: bool
) -> tuple[Floats, Floats, list[PipelineViolation]]:
    """Start and end by id of the operations, or of the messages; the first statement of each counts."""
    size = shape.num_operations + messages * shape.num_stages
    ids = np.concatenate([np.zeros(0, dtype=np.int64), *named])
    ids = np.where(ids < 0, size, ids)
    starts, ends = (
        np.concatenate([np.zeros(0), *(np.array(row[column], dtype=np.float64) for row in rows)]) for column in (1, 2)
    )
    known, first = np.unique(np.where(ids < size, ids, size), return_index=True)
    first, known = first[known < size], known[known < size]
    found = []
    missed = np.setdiff1d(np.arange(len(ids)), first, assume_unique=True).tolist()
    texts = [text for row in rows for text in row[0]] if missed else []
    for row in missed:
        text = texts[row]
        if ids[row] >= size:
            rule = "fused" if ("BW" in text) != (shape.num_kinds == 2) and "F" not in text else "unknown_operation"
            found.append(violation(rule, text, "is not an operation of this problem"))
        else:
            found.append(violation("duplicate", text, "is stated twice"))
    start, end = np.full(size, np.nan), np.full(size, np.nan)
    start[known], end[known] = starts[first], ends[first]
    return start, end, found


def violation(rule: str, where: str, detail: str) -> PipelineViolation:
    """An objection to a schedule: the rule that it breaks, where, and how."""
    return PipelineViolation(rule=rule, where=where, detail=detail)
