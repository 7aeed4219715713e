"""A micro-batch begins at even intervals, and forwards keep that order: for chunked layouts with little memory.

A list scheduler that starts whatever has arrived lets young micro-batches take the memory that later chunks of older
ones need. Here the wish of an operation is when it would run if micro-batch j, alone in the pipeline, began at j T:
forwards of a rank go strictly by their wishes, so memory is filled with what is soon freed. This is the initiation
interval of modulo scheduling (Rau 1994) without its reservation table: the list scheduler settles collisions.

No pipeline can keep an interval shorter than the work of its busiest rank or channel, nor one shorter than

    max over ranks r of (sum over stages s of r of a_s (b_s + B_s - f_s) + c_s W_s) / C_r

with a_s, c_s the bytes of activation and context, f_s and b_s the starts of F and B of a micro-batch that runs alone,
B_s and W_s the times of B and W (s), and C_r the memory of the rank: so many byte seconds a micro-batch holds of it.
"""

from __future__ import annotations

import numpy as np

from solver.pipeline.generators.list_scheduler import ListScheduler, order_of
from solver.pipeline.generators.orders import fastest_that_fits
from solver.pipeline.generators.periodic import busiest_s
from solver.pipeline.problem import BACKWARD, FORWARD, WEIGHT, Floats, PipelineOrder, PipelineShape

# Chosen on 280 random loops and Vs of 2 to 8 ranks and 2 to 8 chunks: the four best of fourteen, and the best wait.
INTERVALS = (1.05, 0.8, 0.6, 1.5)  # times the shortest conceivable one
WAIT = 0.3  # of what would start, for what is wished for earlier
SCARCE = 0.5  # interval by memory over that by work, below which the other generators are as good


def paced(shape: PipelineShape) -> PipelineOrder | None:
    """The fastest of a few intervals; None for one chunk per rank, where memory suffices, or where no order fits."""
    busy_s, full_s = busiest_s(shape), by_memory_s(shape)
    if shape.num_stages < 2 * shape.num_ranks or full_s <= SCARCE * busy_s:
        return None
    scheduler, alone = ListScheduler(shape), _alone(shape)
    intervals = (times * max(busy_s, full_s) for times in INTERVALS)
    guides = ((alone[:, :, None] + interval_s * np.arange(shape.num_microbatches)).ravel() for interval_s in intervals)
    records = (scheduler.order(guide, strict=True, wait=WAIT) for guide in guides)
    return fastest_that_fits(shape, (order_of(record) for record in records if record is not None))


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
