"""Ranks of two stages in the columns of `joint_kernel`: V and loop layouts, with or without W as memory allows."""

from __future__ import annotations

import numpy as np

from solver.pipeline.exact.joint_kernel import STREAMS, Counts, JointRanks, list_states
from solver.pipeline.problem import Floats, Ints, PipelineShape

MOST_STATES = 1_500_000  # of one graph: a pass over it takes a hundredth of a second
MOST_PLACES = 40_000_000  # of all graphs and windows, to bound memory


def joint_ranks_of(shape: PipelineShape) -> JointRanks | None:
    """The ranks of exactly two stages, in whole ticks; None where there is none, or none that is small enough."""
    pairs = [own for rank in range(shape.num_ranks) if len(own := np.flatnonzero(shape.rank_of_s == rank)) == 2]
    memories = [_memory(shape, own) for own in pairs]
    graphs = {memory: _graph(shape, np.array(memory)) for memory in dict.fromkeys(memories)}
    retained = [at for at, memory in enumerate(memories) if graphs[memory] is not None]
    if not retained:
        return None
    used = [memory for memory in graphs if graphs[memory] is not None]
    laid = [graph for graph in graphs.values() if graph is not None]
    sizes = [len(count) for count, _ in laid]
    columns = [_streams(shape, pairs[at]) for at in retained]
    return JointRanks(
        np.array([used.index(memories[at]) for at in retained], dtype=np.int64),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        np.array([first for first, _ in columns], dtype=np.int64),
        np.array([ticks for _, ticks in columns], dtype=np.int64),
        shape.num_microbatches,
        np.concatenate([count for count, _ in laid]),
        np.concatenate([before for _, before in laid]),
        np.zeros(max(sizes), dtype=np.int64),
        np.zeros(max(sizes), dtype=np.int64),
        np.zeros((2, STREAMS, 2 * shape.num_microbatches), dtype=np.int64),
        np.full(len(retained), -1, dtype=np.int64),
    )


def _memory(shape: PipelineShape, own: Ints) -> tuple[float, float, float, float]:
    """Activations of both stages, the smaller context, the budget."""
    first, second = shape.activation_s[own].tolist()
    budget = float(shape.budget_r[shape.rank_of_s[own[0]]]) * (1 + 1e-9)
    return first, second, float(shape.context_s[own].min()), budget


def _streams(shape: PipelineShape, own: Ints) -> tuple[list[int], list[int]]:
    """First jobs of F, F, B, B, W, W (-1: fused) and ticks of five streams, that of W the shorter."""
    first, second = own.tolist()
    path = [(0, first), (0, second), (1, second), (1, first)]
    ticks = [int(shape.duration_ks[kind, stage]) for kind, stage in path]
    jobs = [shape.operation_id(kind, stage, 0) for kind, stage in path]
    if shape.num_kinds == 2:
        return [*jobs, -1, -1], [*ticks, 0]
    weights = [shape.operation_id(2, stage, 0) for stage in (first, second)]
    return [*jobs, *weights], [*ticks, int(shape.duration_ks[2, own].min())]


def _graph(shape: PipelineShape, memory: Floats) -> tuple[Counts, Counts] | None:
    """The states within memory, with W where they are few enough, else without."""
    m = shape.num_microbatches
    most = [m, m, 2 * m]
    for at, held in enumerate(memory[:3]):
        if held > 0 and np.isfinite(memory[3]):
            most[at] = min(most[at], int(memory[3] / held))
    for has_weights in (True, False) if shape.num_kinds == 3 else (False,):
        bounds = np.array([most[0], most[1], most[2] if has_weights else 0], dtype=np.int64)
        if (m + 1) * (bounds[0] + 1) ** 2 * (bounds[1] + 1) * (bounds[2] + 1) > MOST_PLACES:
            continue
        nothing = np.zeros((0, STREAMS), dtype=np.int32)
        size = list_states(memory, m, has_weights, bounds, nothing, nothing)
        if size <= MOST_STATES:
            count, before = (np.zeros((size, STREAMS), dtype=np.int32) for _ in range(2))
            list_states(memory, m, has_weights, bounds, count, before)
            return count, before
    return None
