"""Lower bounds of a pipeline's makespan or span (seconds), valid for every schedule of the problem.

Without search: longest paths, busy ranks, memory over time, busy channels, exchanges. All hold for schedules that run
the micro-batches of each stage and kind in order, and some best schedule does. Proofs: docs/bounds.md, "One pipeline".
Stronger bounds, by horizons and the states of a rank or channel, stand in `exact`: `resource_kernel` (a stage, a
channel of up to three hops), `joint_kernel` (a rank of two stages), `shaving_kernel` (parts of windows refuted).

Nothing is rounded; a relative 1e-12 is given away so that float sums cannot lift a bound over the truth.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.schedule import PipelineProblem
from solver.pipeline.bounds_kernel import AlikePipelines, bounds_of_alike, busy_rank, heads, ranks_bound, tails_after
from solver.pipeline.memory_kernel import MemoryWaits, least_end_s, rank_holds, waits_for_memory
from solver.pipeline.one_machine_kernel import one_machine
from solver.pipeline.problem import NO_CHANNEL, Floats, Ints, PipelineShape, shape_of
from solver.pipeline.simulate_kernel import ShapeColumns, columns_of
from solver.pipeline.sums_kernel import forwards_fed

WRITTEN = ("duration_ks", "latency_s", "activation_s", "context_s", "budget_r", "sync_s")  # by pipelines that are alike
SAFETY = 1 - 1e-12  # no float sum may lift a bound over the truth


class SharedLinks(NamedTuple):
    """Links that the messages of many replicas with this pipeline share, by the stage before the message.

    The link that activations take and the one of gradients (-1 for none), how long the messages of all replicas take
    there (seconds), and how long after that a message arrives.
    """

    activation_link_s: Ints
    gradient_link_s: Ints
    activations_s: Floats
    gradients_s: Floats
    after_s: Floats


def lower_bound(problem: PipelineProblem) -> float:
    """The best of all bounds here for the problem's objective, in seconds.

    >>> from models.schedule import PipelineRank, PipelineStage
    >>> stage = PipelineStage(forward_s=1, input_grad_s=1, weight_grad_s=1)
    >>> problem = PipelineProblem(num_microbatches=32, ranks=(PipelineRank(),) * 8, stages=(stage,) * 8)
    >>> round(lower_bound(problem), 6)
    103.0
    """
    return bound_of(shape_of(problem), problem.objective)


def bound_of(shape: PipelineShape, objective: str) -> float:
    """The best bound of an objective (`span` or `makespan`) in seconds, for columns that exist already."""
    return span_bound(shape) if objective == "span" else makespan_bound(shape)


def makespan_bound(shape: PipelineShape, enough_s: float = np.inf) -> float:
    """Longest path, busy ranks, ranks full of activations, busy channels and shared exchanges, with heads and tails.

    Ranks and channels are one-machine problems, whose preemptive optimum bounds them (Jackson's rule). Memory of a rank
    is a machine that holds activations (`_memory_over_time`). A bound need not go beyond `enough_s` (seconds): what it
    takes to find more is spared then.
    """
    columns = columns_of(shape)
    waits = memory_waits(shape)
    head = heads(columns, waits, 0)
    tail = tails_after(columns, waits, 0, shape.sync_s)
    best = max(_busy_channels(shape, head, tail), _busy_exchanges(shape, head))
    if shape.transfer_s.any():
        best = max(best, *(_fed_rank(shape, rank, head, tail) for rank in range(shape.num_ranks)))
    return ranks_bound(columns, head, tail, best, enough_s / SAFETY) * SAFETY


def makespan_bounds(shape: PipelineShape, each: AlikePipelines, enough_p: Floats) -> Floats:
    """`makespan_bound` of each of these pipelines, as far as it is enough; `shape` is what they have in common."""
    columns = columns_of(shape)
    own = {name: getattr(columns, name).copy() for name in WRITTEN}
    return bounds_of_alike(columns._replace(**own), each, enough_p / SAFETY) * SAFETY


def shared_links_bound(shape: PipelineShape, shared: SharedLinks) -> float:
    """No less than this passes until the last of many replicas with this pipeline ends, by what all of them send.

    The costs and messages of `shape` have to be no more than those of any replica.
    """
    columns, waits = columns_of(shape), memory_waits(shape)
    tail = tails_after(columns, waits, 0, shape.sync_s)
    return _busy_links(shape, shared, heads(columns, waits, 0), tail) * SAFETY


def last_ends(shape: PipelineShape) -> tuple[Floats, Floats]:
    """No earlier end the last weight gradients (seconds): that of each stage, and that of all stages of each rank.

    Of the makespan's bounds, with what a stage waits for in its place, those of busy ranks, and of a rank's own memory.

    >>> from models.schedule import PipelineRank, PipelineStage
    >>> stage = PipelineStage(forward_s=1, input_grad_s=1, weight_grad_s=1)
    >>> problem = PipelineProblem(num_microbatches=4, ranks=(PipelineRank(),) * 3, stages=(stage,) * 3)
    >>> last_ends(shape_of(problem))[1].round(6).tolist()
    [13.0, 13.0, 14.0]
    """
    columns, waits = columns_of(shape), memory_waits(shape)
    head, ranks = heads(columns, waits, 0), range(shape.num_ranks)
    stage_s, rank_s = np.zeros(shape.num_stages), np.zeros(shape.num_ranks)
    for stage in range(shape.num_stages):
        tail = tails_after(columns, waits, 0, np.where(np.arange(shape.num_stages) == stage, 0.0, -np.inf))
        stage_s[stage] = max(busy_rank(columns, rank, head, tail) for rank in ranks)
    for rank in ranks:
        own = shape.rank_of_s == rank
        tail = tails_after(columns, waits, 0, np.where(own, 0.0, -np.inf))
        known_s = max(busy_rank(columns, rank, head, tail), float(stage_s[own].max()))
        rank_s[rank] = max(known_s, _memory_over_time(columns, rank, (head, tail), known_s))
    return stage_s * SAFETY, rank_s * SAFETY


def span_bound(shape: PipelineShape) -> float:
    """The largest over ranks of longest path, busy rank and memory over time, in the part that starts at this rank.

    Time counts from the rank's first start, and only ends on this rank count.
    """
    columns = columns_of(shape)
    waits = memory_waits(shape)
    best = 0.0
    for rank in range(shape.num_ranks):
        own = shape.rank_of_s == rank
        first = int(np.flatnonzero(own)[0])
        head = heads(columns, waits, first)
        counted = np.where(own, shape.sync_s, -np.inf)
        tail = tails_after(columns, waits, first, counted)
        kinds = [columns.duration_ks[:, own, None] + head[:, own] + tail[:, own]]
        known_s = max(float(np.max(kinds)), busy_rank(columns, rank, head, tail))
        best = max(best, known_s, _memory_over_time(columns, rank, (head, tail), known_s))
    return best * SAFETY


def memory_waits(shape: PipelineShape) -> MemoryWaits:
    """Which B and W must have freed memory before an F may start: F[j] of a stage waits for those of `distance` before.

    Where the stages of a rank up to this one hold P_s of a micro-batch, and up to stage l hold P_l, this F and
    `distance` others that hold P_l do not fit together; the same with min(a, c) of stage l, which is held until W.
    """
    return waits_for_memory(columns_of(shape))


def _memory_over_time(columns: ShapeColumns, rank: int, head_and_tail: tuple[Floats, Floats], known_s: float) -> float:
    """A rank has its memory for all the time: in no window of time can it hold more; 0 where all fits at once.

    `known_s` is a bound that is known of the same time.
    """
    return least_end_s(rank_holds(columns, rank, *head_and_tail), known_s)


def _fed_rank(shape: PipelineShape, rank: int, head: Floats, tail: Floats) -> float:
    """A rank of several stages as one machine whose forwards arrive one after another over the busiest channel."""
    own = shape.rank_of_s == rank
    if own.sum() < 2:
        return 0.0
    channel = _busiest_channel(shape, float(shape.duration_ks[0, own].min()))
    if channel == NO_CHANNEL:
        return 0.0
    length, start = forwards_fed(columns_of(shape), rank, channel, head)
    forwards = start, length, np.full(len(length), tail[0, own].min())
    duration = np.broadcast_to(shape.duration_ks[:, :, None], head.shape)
    others = [one[1:, own].ravel() for one in (head, duration, tail)]
    return one_machine(*map(np.concatenate, zip(forwards, others, strict=True)))


def _busiest_channel(shape: PipelineShape, beyond_s: float) -> int:
    """The first of those that activations take longest, each of them longer than this (seconds), if there is one."""
    used = (shape.activation_channel_s >= 0) & (shape.transfer_s > beyond_s)
    if not used.any():
        return NO_CHANNEL
    channels = shape.activation_channel_s[used]
    taken_s = np.bincount(channels, weights=shape.transfer_s[used])
    return int(channels[np.argmax(taken_s[channels])])


def _busy_channels(shape: PipelineShape, head: Floats, tail: Floats) -> float:
    """Channels as machines: a message's head is its producer's end, its tail the latency and all that follows."""
    channels = shape.activation_channel_s, shape.gradient_channel_s
    shared = SharedLinks(*channels, shape.transfer_s, shape.transfer_s, shape.latency_s)
    return _busy_links(shape, shared, head, tail)


def _busy_links(shape: PipelineShape, shared: SharedLinks, head: Floats, tail: Floats) -> float:
    """The same of the messages of all replicas: no link carries them faster, whichever replica is the last."""
    jobs: dict[int, list[tuple[Floats, float, Floats]]] = {}
    for s in range(shape.num_stages - 1):
        for kind, sender, receiver, links, lengths in (
            (0, s, s + 1, shared.activation_link_s, shared.activations_s),
            (1, s + 1, s, shared.gradient_link_s, shared.gradients_s),
        ):
            if links[s] >= 0:
                ready = head[kind, sender] + shape.duration_ks[kind, sender]
                after = shared.after_s[s] + shape.duration_ks[kind, receiver] + tail[kind, receiver]
                jobs.setdefault(int(links[s]), []).append((ready, float(lengths[s]), after))
    best = 0.0
    for parts in jobs.values():
        ready = np.concatenate([part[0] for part in parts])
        duration = np.concatenate([np.full(len(part[0]), part[1]) for part in parts])
        best = max(best, one_machine(ready, duration, np.concatenate([part[2] for part in parts])))
    return best


def _busy_exchanges(shape: PipelineShape, head: Floats) -> float:
    """Gradient exchanges that share a link follow each other on it, each after the last W of its stage."""
    last = shape.num_kinds - 1
    ready = head[last, :, -1] + shape.duration_ks[last]
    best = 0.0
    for link in set(shape.sync_link_s.tolist()) - {-1}:
        own = shape.sync_link_s == link
        best = max(best, one_machine(ready[own], shape.sync_s[own], np.zeros(int(own.sum()))))
    return best
