"""Micro-batches begin in groups at even intervals, and forwards keep that order: for chunks with little memory.

A list scheduler that starts whatever has arrived lets young micro-batches take the memory that later chunks of older
ones need. Here the wish of an operation is when it would run if its micro-batch, alone in the pipeline, began at its
release. Forwards of a rank go strictly by their wishes, so memory is filled with what is soon freed. The micro-batches
of a group follow each other closely, as those of an interleaved schedule do (Narayanan 2021), but a group is as large
as memory allows, and the next one is released an interval per micro-batch later. The interval is the initiation
interval of modulo scheduling (Rau 1994) without its reservation table: the list scheduler settles collisions.

No pipeline can keep an interval shorter than the work of its busiest rank or channel, nor one shorter than

    max over ranks r of (sum over stages s of r of a_s (b_s + B_s - f_s) + c_s W_s) / C_r

with a_s, c_s the bytes of activation and context, f_s and b_s the starts of F and B of a micro-batch that runs alone,
B_s and W_s the times of B and W (s), and C_r the memory of the rank: so many byte seconds a micro-batch holds of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from solver.pipeline.generators.list_scheduler import ListScheduler, order_of
from solver.pipeline.generators.orders import fastest_that_fits
from solver.pipeline.generators.periodic import busiest_s
from solver.pipeline.problem import BACKWARD, FORWARD, WEIGHT, Floats, PipelineOrder, PipelineShape


class GroupInterval(NamedTuple):
    """How groups are released: micro-batches of one over those that memory holds whole; the interval per micro-batch
    from group to group and that inside them, over the shortest conceivable one.
    """

    group: float
    between: float
    inside: float


# Chosen on 374 random loops and Vs of 3 to 16 ranks and 2 to 8 chunks, six in ten with a slow link, out of 168: those
# that lower the mean of the best of all generators most. The wait is that of the grid of policies.
INTERVALS = (
    GroupInterval(0.85, 1.2, 0.1),
    GroupInterval(1.0, 1.0, 0.25),
    GroupInterval(1.2, 0.6, 0.25),
    GroupInterval(0.85, 1.0, 0.6),
    GroupInterval(0.4, 0.6, 0.6),
    GroupInterval(1.2, 1.0, 0.1),
    GroupInterval(1.0, 1.2, 1.0),
    GroupInterval(0.85, 0.8, 0.25),
)
LARGEST = 2  # a group, in micro-batches over ranks: as many are on their way where links are slow
WAIT = 0.3  # of what would start, for what is wished for earlier
SCARCE = 0.3  # interval by memory over that by work, below which the other generators are as good


def paced(shape: PipelineShape) -> PipelineOrder | None:
    """The fastest of a few groups; None for one chunk per rank, where memory suffices, or where no order fits."""
    busy_s, full_s = busiest_s(shape), by_memory_s(shape)
    if shape.num_stages < 2 * shape.num_ranks or full_s <= SCARCE * busy_s:
        return None
    scheduler, alone = ListScheduler(shape), _alone(shape)
    guides = ((alone[:, :, None] + release).ravel() for release in releases(shape, max(busy_s, full_s)))
    records = (scheduler.order(guide, strict=True, wait=WAIT) for guide in guides)
    return fastest_that_fits(shape, (order_of(record) for record in records if record is not None))


def releases(shape: PipelineShape, interval_s: float) -> Iterator[Floats]:
    """When each micro-batch begins (s), for every entry of `INTERVALS`, where the shortest interval is `interval_s`."""
    whole = _whole_microbatches(shape)
    for interval in INTERVALS:
        size = min(max(round(interval.group * whole), 1), LARGEST * shape.num_ranks + 1, shape.num_microbatches)
        yield _releases(shape.num_microbatches, size, interval) * interval_s


def by_memory_s(shape: PipelineShape) -> float:
    """The interval (s) below which the memory of some rank does not hold what micro-batches hold on their way."""
    start, duration = _alone(shape), shape.duration_ks
    held = shape.activation_s * (start[BACKWARD] + duration[BACKWARD] - start[FORWARD])
    if shape.num_kinds > WEIGHT:
        held += shape.context_s * duration[WEIGHT]
    held_r = np.bincount(shape.rank_of_s, weights=held, minlength=shape.num_ranks)
    return float(np.divide(held_r, shape.budget_r, out=np.zeros(shape.num_ranks), where=shape.budget_r > 0).max())


def _alone(shape: PipelineShape) -> Floats:
    """Starts (s) by kind and stage of a micro-batch alone in the pipeline; W after all else, in order of stages."""
    hop_s = (shape.transfer_s + shape.latency_s)[:-1]
    there = np.append(0.0, np.cumsum(shape.duration_ks[FORWARD, :-1] + hop_s))
    forwards_s = there[-1] + shape.duration_ks[FORWARD, -1]
    back = np.append(0.0, np.cumsum((shape.duration_ks[BACKWARD, 1:] + hop_s)[::-1]))[::-1]
    rows = [there, forwards_s + back]
    if shape.num_kinds > WEIGHT:
        rows.append(rows[BACKWARD] + 2.0 * shape.num_microbatches * (back[0] + forwards_s + shape.duration_ks.sum()))
    return np.stack(rows)


def _whole_microbatches(shape: PipelineShape) -> float:
    """How many micro-batches the fullest rank holds with the activations of all its stages."""
    held_r = np.bincount(shape.rank_of_s, weights=shape.activation_s, minlength=shape.num_ranks)
    most = np.full(shape.num_ranks, float(shape.num_microbatches))
    return float(np.divide(shape.budget_r, held_r, out=most, where=held_r > 0).min())


def _releases(num_microbatches: int, size: int, interval: GroupInterval) -> Floats:
    """In intervals, of groups that have `size` micro-batches or, so that they are equal, fewer.

    >>> _releases(5, 3, GroupInterval(1.0, 1.0, 0.25)).tolist()
    [0.0, 0.25, 0.5, 3.0, 3.25]
    """
    number, num_groups = np.arange(num_microbatches), -(-num_microbatches // size)
    group = number * num_groups // num_microbatches
    first = np.searchsorted(group, group)
    begins: Floats = first * interval.between + (number - first) * interval.inside
    return begins
