"""Micro-batches begin in groups at even intervals, and forwards keep that order: for chunks with little memory.

A list scheduler that starts whatever has arrived lets young micro-batches take the memory that later chunks of older
ones need. Here the wish of an operation is when it would run if its micro-batch, alone in the pipeline, began at its
release. Forwards of a rank go strictly by their wishes, so memory is filled with what is soon freed. The micro-batches
of a group follow each other closely, as those of an interleaved schedule do (Narayanan 2021), but a group is as large
as memory allows, and the next one is released an interval per micro-batch later. The interval is the initiation
interval of modulo scheduling (Rau 1994) without its reservation table: the list scheduler settles collisions. Which
groups and intervals are best differs from pipeline to pipeline, by up to a tenth of the makespan, so the best of a few
is changed by chance for as long as that is quick.

No pipeline can keep an interval shorter than the work of its busiest rank or channel, nor one shorter than

    max over ranks r of (sum over stages s of r of a_s (b_s + B_s - f_s) + c_s W_s) / C_r

with a_s, c_s the bytes of activation and context, f_s and b_s the starts of F and B of a micro-batch that runs alone,
B_s and W_s the times of B and W (s), and C_r the memory of the rank: so many byte seconds a micro-batch holds of it.
"""

from typing import NamedTuple

import numpy as np

from solver.pipeline.generators.list_scheduler import ListScheduler, order_of
from solver.pipeline.generators.list_scheduler_kernel import Record
from solver.pipeline.generators.periodic import busiest_s
from solver.pipeline.problem import BACKWARD, FORWARD, WEIGHT, Floats, PipelineOrder, PipelineShape


class Pace(NamedTuple):
    """How groups are released: micro-batches of one over those that memory holds whole; the interval per micro-batch
    from group to group and that inside them, over the shortest conceivable one. And how operations are wished for:
    the share of what would start within which an earlier wish is waited for; then, over the shortest intervals of all
    micro-batches that memory holds whole, how much earlier backwards are wished for, and how long after its backward a
    W: for ever, where it fills what is idle, or less, so that gradients of a stage are exchanged earlier.
    """

    group: float
    between: float
    inside: float
    wait: float = 0.3
    lead: float = 0.0
    weight_lag: float = np.inf


# Chosen on 374 random loops and Vs of 3 to 16 ranks and 2 to 8 chunks, six in ten with a slow link, out of 168: those
# that lower the mean of the best of all generators most. The wait is that of the grid of policies.
PACES = (
    Pace(0.85, 1.2, 0.1),
    Pace(1.0, 1.0, 0.25),
    Pace(1.2, 0.6, 0.25),
    Pace(0.85, 1.0, 0.6),
    Pace(0.4, 0.6, 0.6),
    Pace(1.2, 1.0, 0.1),
    Pace(1.0, 1.2, 1.0),
    Pace(0.85, 0.8, 0.25),
)
LARGEST = 2  # a group, in micro-batches over ranks: as many are on their way where links are slow
SCARCE = 0.3  # interval by memory over that by work, below which the other generators are as good
# Chosen on 69 chunked pipelines of twelve searches, most of mixed fleets. The best of the paces above is 14.8 % over
# their bounds; as many changes as order 60,000 operations leave 12.5 %, 100,000 12.3 %, 250,000 11.7 %.
MOST_CHANGES, MOST_OPERATIONS = 64, 100_000  # of the best pace; ordered in all for them, about 0.1 s
FACTOR_SIGMA, LEAD_SIGMA = 0.6, 0.3  # of one change; set by hand
WAITS, WEIGHT_LAGS = (0.0, 0.1, 0.3, 0.6, 1.0), (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, np.inf)  # what is drawn, set by hand
SEED = 1  # of the changes; any will do


class _Found(NamedTuple):
    """A pace, the order that it makes, and its makespan (s), infinite where the order blocks itself."""

    pace: Pace
    record: Record | None
    makespan_s: float


def paced(shape: PipelineShape) -> PipelineOrder | None:
    """The fastest of some paces; None for one chunk per rank, where memory suffices, or where no order fits."""
    interval_s = _interval_s(shape)
    if not interval_s:
        return None
    scheduler, alone = ListScheduler(shape), _alone(shape)
    filled_s = interval_s * _whole_microbatches(shape)

    def made(pace: Pace) -> _Found:
        guide = alone[:, :, None] + releases(shape, pace) * interval_s
        guide[BACKWARD] -= pace.lead * filled_s
        if shape.num_kinds > WEIGHT and pace.weight_lag < np.inf:
            guide[WEIGHT] = guide[BACKWARD] + pace.weight_lag * filled_s
        record = scheduler.order(guide.ravel(), strict=True, wait=pace.wait)
        return _Found(pace, record, np.inf if record is None else scheduler.replayed(record)[0])

    best = min((made(pace) for pace in PACES), key=lambda found: found.makespan_s)
    random = np.random.default_rng(SEED)
    for _ in range(_num_changes(shape)):
        found = made(_changed(best.pace, random))
        best = found if found.makespan_s <= best.makespan_s else best
    return None if best.record is None else order_of(best.record)


def num_orders(shape: PipelineShape) -> int:
    """How many orders `paced` makes of a shape."""
    return len(PACES) + _num_changes(shape) if _interval_s(shape) else 0


def releases(shape: PipelineShape, pace: Pace) -> Floats:
    """When each micro-batch begins, over the shortest interval; groups have the pace's size or, to be equal, less."""
    m, size = shape.num_microbatches, max(round(pace.group * _whole_microbatches(shape)), 1)
    num_groups = -(-m // min(size, LARGEST * shape.num_ranks + 1, m))
    number = np.arange(m)
    group = number * num_groups // m
    first = np.searchsorted(group, group)
    return first * pace.between + (number - first) * pace.inside


def by_memory_s(shape: PipelineShape) -> float:
    """The interval (s) below which the memory of some rank does not hold what micro-batches hold on their way."""
    start, duration = _alone(shape), shape.duration_ks
    held = shape.activation_s * (start[BACKWARD] + duration[BACKWARD] - start[FORWARD])
    if shape.num_kinds > WEIGHT:
        held += shape.context_s * duration[WEIGHT]
    held_r = np.bincount(shape.rank_of_s, weights=held, minlength=shape.num_ranks)
    return float(np.divide(held_r, shape.budget_r, out=np.zeros(shape.num_ranks), where=shape.budget_r > 0).max())


def _interval_s(shape: PipelineShape) -> float:
    """The shortest conceivable interval (s); 0 where chunks have so much memory that other generators are as good."""
    busy_s, full_s = busiest_s(shape), by_memory_s(shape)
    is_scarce = shape.num_stages >= 2 * shape.num_ranks and full_s > SCARCE * busy_s
    return max(busy_s, full_s) if is_scarce else 0.0


def _num_changes(shape: PipelineShape) -> int:
    return min(MOST_OPERATIONS // shape.num_operations, MOST_CHANGES)


def _changed(pace: Pace, random: np.random.Generator) -> Pace:
    """One or two parts of it drawn anew, around what they are."""
    names = random.choice(Pace._fields, random.integers(1, 3), replace=False).tolist()
    return pace._replace(**{name: _drawn(name, getattr(pace, name), random) for name in names})


def _drawn(name: str, value: float, random: np.random.Generator) -> float:
    """Another value of one part of a pace."""
    if name == "wait":
        return float(random.choice(WAITS))
    if name == "weight_lag":
        return float(random.choice(WEIGHT_LAGS))
    if name == "lead":
        return value + float(LEAD_SIGMA * random.normal())
    return value * float(np.exp(FACTOR_SIGMA * random.normal()))


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
