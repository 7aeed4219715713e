"""Lower bounds of a pipeline's makespan or span, each with its proof; valid for every schedule of the problem.

Proven without search: longest paths, busy ranks, busy channels, exchanges. Stronger bounds, by horizons and the states
of a rank or channel, stand in `exact`: `resource_kernel` (a stage, a channel of up to three hops) and `joint_kernel` (a
rank of two stages). All bounds rest on one exchange argument: micro-batches are alike, so the k-th smallest start of F
on a stage can be given to micro-batch k, and the same for every kind and stage. If x_j >= y_j for every j then the k-th
smallest x is at least the k-th smallest y, so every precedence survives; memory counts operations, not names. Hence
some best schedule runs micro-batches in order within each stage and kind.

Nothing is rounded; a relative 1e-12 is given away so that float sums cannot lift a bound over the truth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.schedule import PipelineProblem
from solver.pipeline.bounds_kernel import heads, one_machine, tails_after
from solver.pipeline.problem import Floats, Ints, PipelineShape, shape_of
from solver.pipeline.simulate_kernel import ShapeColumns, columns_of

SAFETY = 1 - 1e-12  # no float sum may lift a bound over the truth
ROUNDING = 1e-9  # relative: what sums of bytes may be off


def lower_bound(problem: PipelineProblem) -> float:
    """The best of all bounds here for the problem's objective, in seconds.

    >>> from models.schedule import PipelineRank, PipelineStage
    >>> stage = PipelineStage(forward_s=1, input_grad_s=1, weight_grad_s=1)
    >>> problem = PipelineProblem(num_microbatches=32, ranks=(PipelineRank(),) * 8, stages=(stage,) * 8)
    >>> round(lower_bound(problem), 6)
    103.0
    """
    shape = shape_of(problem)
    return span_bound(shape) if problem.objective == "span" else makespan_bound(shape)


def makespan_bound(shape: PipelineShape) -> float:
    """Longest path, busy ranks, ranks full of activations, and busy channels, with heads and tails.

    Proof. Heads and tails are longest paths over precedences that hold in every in-order schedule: data with its
    delay, order within stage and kind, and memory slots (`memory_slots`). A rank runs one operation at a time, so it
    is a one-machine problem with these heads and tails, whose preemptive optimum (Jackson's rule) bounds it below;
    a channel is one in the same way, its jobs being messages.
    """
    columns, slots = columns_of(shape), memory_slots(shape)
    head = heads(columns, slots, 0)
    tail = tails_after(columns, slots, 0, shape.sync_s)
    duration = columns.duration_ks[:, :, None]
    best = float((head + duration + tail).max())
    best = max(best, _busy_ranks(shape, head, tail), _busy_channels(shape, columns, head, tail))
    best = max(best, *(_full_rank(shape, rank, head, tail) for rank in range(shape.num_ranks)))
    return max(best, _busy_exchanges(shape, head)) * SAFETY


def span_bound(shape: PipelineShape) -> float:
    """The largest over ranks of the same bounds for the part of the pipeline that starts at this rank.

    Proof. Count time from the rank's first start and leave out every stage before the rank's first one: fewer
    operations, so the rest is a relaxation; every operation kept is a successor of the rank's first F in order, or
    waits for nothing, so heads stay valid. Only ends on this rank count in the tails.
    """
    columns, slots = columns_of(shape), memory_slots(shape)
    best = 0.0
    for rank in range(shape.num_ranks):
        own = shape.rank_of_s == rank
        first = int(np.flatnonzero(own)[0])
        head = heads(columns, slots, first)
        counted = np.where(own, shape.sync_s, -np.inf)
        tail = tails_after(columns, slots, first, counted)
        kinds = [columns.duration_ks[:, own, None] + head[:, own] + tail[:, own]]
        best = max(best, float(np.max(kinds)), _busy_rank(shape, rank, head, tail))
    return best * SAFETY


def memory_slots(shape: PipelineShape) -> Ints:
    """K by kind and stage: F[j + K] of the stage cannot start before B[j] (row 1) or W[j] (row 2) has ended.

    Proof. When F[j] starts, j + 1 activations have been taken. With b inputs and w weights done, the stage holds
    (j + 1 - b) a + (b - w) c. It is least in b at b = w when c <= a is not needed: as w <= b, it is at least
    (j + 1 - b) a, so b >= j + 1 - floor(budget / a); and with d = min(a, c), as b <= j + 1, it is at least
    (j + 1 - w) d, so w >= j + 1 - floor(budget / d).

    The rank's earlier stages in the way forward had F of the same micro-batches before, and have their B after: each
    micro-batch between F and B here holds their activations too. So a is the sum over these stages and this one.
    """
    slots = np.zeros((3, shape.num_stages), dtype=np.int64)
    held_by_w = np.minimum(shape.activation_s, shape.context_s)
    budget_s = shape.budget_r[shape.rank_of_s]
    earlier = np.tri(shape.num_stages, dtype=np.bool_) & (shape.rank_of_s[:, None] == shape.rank_of_s[None, :])
    for kind, held in ((1, earlier @ shape.activation_s), (2, held_by_w)):
        limited = (held > 0) & np.isfinite(budget_s)
        fits = np.floor(budget_s[limited] / held[limited] * (1 + 1e-9))
        slots[kind, limited] = np.minimum(fits, shape.num_microbatches).astype(np.int64)
    return slots


def _busy_ranks(shape: PipelineShape, head: Floats, tail: Floats) -> float:
    return max(_busy_rank(shape, rank, head, tail) for rank in range(shape.num_ranks))


def _busy_rank(shape: PipelineShape, rank: int, head: Floats, tail: Floats) -> float:
    own = shape.rank_of_s == rank
    duration = np.broadcast_to(shape.duration_ks[:, :, None], head.shape)
    return one_machine(head[:, own].ravel(), duration[:, own].ravel(), tail[:, own].ravel())


def _full_rank(shape: PipelineShape, rank: int, head: Floats, tail: Floats) -> float:
    """A rank as one machine whose forwards wait for memory that its own backwards free; 0 where memory never fills.

    Proof. Let the rank have C bytes, and R(t) be the bytes freed on it by time t if every B and W ended at its head
    plus its duration: no schedule frees more. The F begun by t hold at most C + R(t) bytes, so their work is at most
    G(C + R(t)), where G(x) is the most work of F that x bytes hold: a fractional knapsack, filled in order of work per
    byte. Cut the work of F into pieces in that order, piece k of length f_k after pieces of a_1 + ... + a_(k-1) bytes:
    no work beyond the first k - 1 pieces' sum is done before the first t with C + R(t) >= a_1 + ... + a_(k-1). So for
    each k the pieces from k on are F work done after that time, and the preemptive one-machine bound of these pieces
    with all B and W holds. Read backwards in time, W takes the context that the F of its micro-batch frees: the same
    bound holds for the tails of W.
    """
    own = shape.rank_of_s == rank
    m, budget = shape.num_microbatches, float(shape.budget_r[rank])
    activation, duration = np.repeat(shape.activation_s[own], m), np.repeat(shape.duration_ks[:, own], m, axis=1)
    if activation.sum() <= budget:
        return 0.0
    heads_k, tails_k = (one[:, own].reshape(shape.num_kinds, -1) for one in (head, tail))
    split = shape.num_kinds == 3
    context = np.minimum(np.repeat(shape.context_s[own], m), activation) if split else 0.0 * activation
    freed = [activation - context, context][: shape.num_kinds - 1]
    jobs = [(heads_k[1], duration[1], tails_k[1])]
    length, start = _as_memory_allows(duration[0], activation, budget, (heads_k + duration)[1:].ravel(), freed)
    jobs.append((np.maximum(start, heads_k[0].min()), length, np.full(len(length), tails_k[0].min())))
    if split:
        length, end = _as_memory_allows(duration[2], context, budget, (tails_k + duration)[0], [context])
        jobs.append((np.full(len(length), heads_k[2].min()), length, np.maximum(end, tails_k[2].min())))
    ready, length, after = (np.concatenate(column) for column in zip(*jobs, strict=True))
    return one_machine(ready, length, after)


def _as_memory_allows(
    work: Floats, held: Floats, budget: float, when: Floats, freed: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """Pieces of work in order of work per byte, and the time from which memory allows each.

    Where all that is held are multiples of the least, memory counts in these, and a piece needs one more.
    """
    per_byte = np.divide(work, held, out=np.full(len(work), np.inf), where=held > 0)
    order = np.argsort(-per_byte, kind="stable")
    before = np.cumsum(held[order]) - held[order]
    by_time = np.argsort(when, kind="stable")
    total = (1 + ROUNDING) * (budget + np.append(0.0, np.cumsum(np.concatenate(freed)[by_time])))
    unit = float(held.min(where=held > 0, initial=np.inf))
    if np.isfinite(unit):
        units = unit * np.rint(held / unit)
        if (np.abs(held - units) <= ROUNDING * units).all():
            total, before = unit * np.floor(total / unit), before + unit / 2
    at = np.minimum(np.searchsorted(total, before), len(when))
    return work[order], np.append(0.0, when[by_time])[at]


def _busy_channels(shape: PipelineShape, columns: ShapeColumns, head: Floats, tail: Floats) -> float:
    """Channels as machines: a message's head is its producer's end, its tail the latency and all that follows."""
    jobs: dict[int, list[tuple[Floats, float, Floats]]] = {}
    for s in range(shape.num_stages - 1):
        if shape.activation_channel_s[s] < 0:
            continue
        for kind, sender, receiver, channels in (
            (0, s, s + 1, shape.activation_channel_s),
            (1, s + 1, s, shape.gradient_channel_s),
        ):
            ready = head[kind, sender] + columns.duration_ks[kind, sender]
            after = shape.latency_s[s] + columns.duration_ks[kind, receiver] + tail[kind, receiver]
            jobs.setdefault(int(channels[s]), []).append((ready, float(shape.transfer_s[s]), after))
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
