"""Ranks of two stages in the columns of `joint_kernel`: V and loop layouts, with or without W as memory allows."""

from itertools import pairwise

import numpy as np

from solver.pipeline.exact.joint_kernel import (
    MERGED,
    NO_WEIGHTS,
    SEPARATE,
    STREAMS,
    Counts,
    JointRanks,
    list_open,
    list_states,
)
from solver.pipeline.exact.window_kernel import State
from solver.pipeline.problem import Floats, Ints, PipelineShape

MOST_STATES = 3_000_000  # of one graph: a pass over it takes a twentieth of a second
MOST_OPEN_STATES = 4_000_000  # of all ranks together, to bound memory
MOST_PLACES = 40_000_000  # that states are looked up in, to bound memory


def joint_ranks_of(shape: PipelineShape, most_states: int = MOST_STATES) -> JointRanks | None:
    """The ranks of exactly two stages, in whole ticks; None where there is none, or none that is small enough.

    Where a graph with W has more than `most_states`, W are counted together or left out.
    """
    pairs = [own for rank in range(shape.num_ranks) if len(own := np.flatnonzero(shape.rank_of_s == rank)) == 2]
    memories = [_memory(shape, own) for own in pairs]
    graphs = {
        memory: _graph(shape, np.array(memory), min(most_states, MOST_STATES)) for memory in dict.fromkeys(memories)
    }
    retained = [at for at, memory in enumerate(memories) if graphs[memory] is not None]
    if not retained:
        return None
    used = [memory for memory in graphs if graphs[memory] is not None]
    laid = [graph for graph in graphs.values() if graph is not None]
    sizes = [len(count) for count, _, _ in laid]
    of_rank = [used.index(memories[at]) for at in retained]
    weights = [laid[graph][2] for graph in of_rank]
    columns = [_streams(shape, pairs[at], kind) for at, kind in zip(retained, weights, strict=True)]
    return JointRanks(
        np.array(of_rank, dtype=np.int64),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.array(weights, dtype=np.int64),
        np.array([first for first, _ in columns], dtype=np.int64),
        np.array([ticks for _, ticks in columns], dtype=np.int64),
        shape.num_microbatches,
        np.concatenate([count for count, _, _ in laid]),
        np.concatenate([before for _, before, _ in laid]),
        np.zeros(max(sizes), dtype=np.int64),
        np.zeros(max(sizes), dtype=np.int64),
        np.zeros((2, STREAMS, 2 * shape.num_microbatches), dtype=np.int64),
        np.full(len(retained), -1, dtype=np.int64),
    )


def _memory(shape: PipelineShape, own: Ints) -> tuple[float, ...]:
    """Activations of both stages, contexts of both, the budget."""
    budget = float(shape.budget_r[shape.rank_of_s[own[0]]]) * (1 + 1e-9)
    return (*shape.activation_s[own].tolist(), *shape.context_s[own].tolist(), budget)


def _streams(shape: PipelineShape, own: Ints, weights: int) -> tuple[list[int], list[int]]:
    """First jobs of F, F, B, B, W, W (-1: fused) and ticks of the streams, that of merged W the shorter."""
    first, second = own.tolist()
    path = [(0, first), (0, second), (1, second), (1, first)]
    ticks = [int(shape.duration_ks[kind, stage]) for kind, stage in path]
    jobs = [shape.operation_id(kind, stage, 0) for kind, stage in path]
    if shape.num_kinds == 2:
        return [*jobs, -1, -1], [*ticks, 0, 0]
    apart = [int(shape.duration_ks[2, stage]) for stage in (first, second)]
    of_weights = apart if weights == SEPARATE else [min(apart)] * 2
    return [*jobs, *(shape.operation_id(2, stage, 0) for stage in (first, second))], [*ticks, *of_weights]


def _graph(shape: PipelineShape, memory: Floats, most_states: int) -> tuple[Counts, Counts, int] | None:
    """The states within memory, with W of both stages apart where they are few enough, else together, else without."""
    m, budget = shape.num_microbatches, memory[4]
    fits = [budget / held if held > 0 and np.isfinite(budget) else np.inf for held in memory[:4]]
    first, second, *waiting = (int(min(m, most)) for most in fits)
    least = min(memory[2:4])
    both = int(min(2 * m, budget / least if least > 0 and np.isfinite(budget) else np.inf))
    most_of = {SEPARATE: (*waiting,), MERGED: (both, 0), NO_WEIGHTS: (0, 0)}
    for weights in (SEPARATE, MERGED, NO_WEIGHTS) if shape.num_kinds == 3 else (NO_WEIGHTS,):
        most = np.array([first, second, *most_of[weights]], dtype=np.int64)
        if 2 * (most[0] + 1) ** 2 * (most[1:] + 1).prod() > MOST_PLACES:
            continue
        held = memory if weights == SEPARATE else np.array([memory[0], memory[1], least, 0.0, budget])
        nothing = np.zeros((0, STREAMS), dtype=np.int32)
        size = list_states(held, m, weights, most, nothing, nothing)
        if size <= (MOST_STATES if weights == NO_WEIGHTS else most_states):
            count, before = (np.zeros((size, STREAMS), dtype=np.int32) for _ in range(2))
            list_states(held, m, weights, most, count, before)
            return count, before, weights
    return None


def no_joint_ranks(shape: PipelineShape) -> JointRanks:
    """The columns where there is no rank of two stages."""
    whole, none = np.zeros((0, STREAMS), dtype=np.int64), np.zeros(0, dtype=np.int64)
    states, window = np.zeros((0, STREAMS), dtype=np.int32), np.zeros((2, STREAMS, 0), dtype=np.int64)
    first = np.zeros(1, dtype=np.int64)
    return JointRanks(none, first, none, whole, whole, shape.num_microbatches, states, states, none, none, window, none)


def with_open_states(joint: JointRanks, state: State) -> JointRanks:
    """The ranks, each with a graph of no more states than its walks within the windows pass.

    Narrower windows have no other walks, so these graphs do for them as well.
    """
    empty = np.zeros((0, STREAMS), dtype=np.int32)
    own = joint._replace(seen=joint.seen.copy(), reach=joint.reach.copy(), leave=joint.leave.copy())
    own = own._replace(window=joint.window.copy())
    sizes = [list_open(own, state, k, empty, empty) for k in range(len(joint.graph))]
    if min(sizes, default=0) == 0 or sum(sizes) > MOST_OPEN_STATES:
        return own
    at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    done, before = (np.zeros((at[-1], STREAMS), dtype=np.int32) for _ in range(2))
    for k, (begin, end) in enumerate(pairwise(at)):
        list_open(own, state, k, done[begin:end], before[begin:end])
    return own._replace(graph=np.arange(len(sizes)), graph_at=at, done=done, before=before)
