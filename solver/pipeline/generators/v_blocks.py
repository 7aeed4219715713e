"""ZBV, V-Half and V-Min: schedules of a V layout from one building block repeated. Source: Qi et al. 2024.

The block is searched for: every pass F, B takes one unit and a micro-batch starts every six units, one for each of
the two F, B and W of a rank. A block is given by the hops between neighbouring ranks (four offsets) and three waits.
It is legal when no two passes of a rank meet modulo six; its memory is the time its activations live, divided by six.
The paper's blocks are the legal ones of least memory (V-Min), of half (V-Half) and of 1F1B's memory (ZBV); of the
blocks within the memory the one is taken whose order runs best with the real times.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from solver.pipeline.generators.list_scheduler import with_weights_filled
from solver.pipeline.generators.orders import fastest, is_v
from solver.pipeline.generators.v_reorder import reordered
from solver.pipeline.generators.zbv_phases import zbv_phases
from solver.pipeline.problem import BACKWARD, FORWARD, Floats, Ints, PipelineOrder, PipelineShape

PERIOD = 6  # units per micro-batch: F, B and W of both chunks of a rank
OFFSETS = range(1, 5)
WAITS = range(1, 7)  # from a pass on its last rank to the next pass there
MOST_TRIED = 8  # blocks whose order is timed; set by hand
MOST_RANKS_REORDERED = 32  # passes of fill and drain grow with the square of the ranks; at 32 moving takes 0.5 s


def v_min(shape: PipelineShape) -> PipelineOrder | None:
    """A third of 1F1B: (ranks + 4) / 3 activations."""
    return _from_blocks(shape, float((shape.num_ranks + 4) // 3))


def v_half(shape: PipelineShape) -> PipelineOrder | None:
    """Half of 1F1B: about (ranks + 2) / 2 activations."""
    own = (half_block(shape.num_ranks),) if shape.num_ranks <= MOST_RANKS_REORDERED else ()
    return _from_blocks(shape, (shape.num_ranks + 2) / 2, with_ends=own)


def zbv(shape: PipelineShape) -> PipelineOrder | None:
    """1F1B's memory, ranks activations, and no bubble in the long run for equal times: by hand or the best block."""
    return fastest(shape, (zbv_phases(shape), _from_blocks(shape, float(shape.num_ranks))))


def half_block(num_ranks: int) -> Ints:
    """V-Half's own block by rank: two units a hop for F down and B down, one for F up and B up.

    >>> half_block(2)
    array([[ 0,  4,  8, 13],
           [ 2,  3, 10, 12]])
    """
    rank, pause = np.arange(num_ranks), 3 if num_ranks % 2 == 0 else 0
    up = 3 * num_ranks - 2 - rank
    return np.stack([2 * rank, up, 3 * num_ranks - 1 + pause + 2 * rank, up + 3 * num_ranks + pause], axis=1)


def _from_blocks(
    shape: PipelineShape, most_activations: float, *, with_ends: Sequence[Ints] = ()
) -> PipelineOrder | None:
    if not is_v(shape) or shape.num_kinds == 2:
        return None
    rounds = PERIOD * np.arange(shape.num_microbatches)
    starts = [(reordered(times, PERIOD, shape.num_microbatches), most_activations) for times in with_ends]
    starts += [(times[:, :, None] + rounds, held) for times, held in blocks_within(shape.num_ranks, most_activations)]
    return fastest(shape, (_order_of_block(shape, start, max(most_activations, held)) for start, held in starts))


def _order_of_block(shape: PipelineShape, start: Ints, most_activations: float) -> PipelineOrder | None:
    """F and B by their units, W in gaps, holding at most so many whole activations (two chunks)."""
    held = np.maximum(shape.activation_s, shape.context_s)
    whole_bytes = held[: shape.num_ranks] + held[: shape.num_ranks - 1 : -1]
    most_bytes = most_activations * whole_bytes * (1 + 1e-9)
    ranks = [_in_time(shape, rank, start[rank]) for rank in range(shape.num_ranks)]
    return with_weights_filled(shape, ranks, most_bytes)


@lru_cache(maxsize=64)
def blocks_within(num_ranks: int, most_activations: float) -> Sequence[tuple[Ints, float]]:
    """Legal blocks within the memory and what they hold, the two shortest of each level, largest level first."""
    times, lives, length = _legal_blocks(num_ranks)
    held = np.ceil(lives / PERIOD) / 2
    by_level = np.lexsort((length, held))
    level = held[by_level]
    third = np.concatenate([[False, False], level[2:] == level[:-2]])
    within = by_level[~third & (level <= most_activations)]
    chosen = within[::-1][:MOST_TRIED] if within.size else by_level[:1]
    return [(times[index], float(held[index])) for index in chosen]


def _legal_blocks(num_ranks: int) -> tuple[Ints, Floats, Floats]:
    """Start of F down, F up, B down, B up on every rank of every legal block, with its live time and length."""
    grid = np.array(np.meshgrid(*[OFFSETS] * 4, *[WAITS] * 3, indexing="ij")).reshape(7, -1)
    down, up, back_down, back_up, *waits = grid[:, :, None].astype(np.int64)
    rank, last = np.arange(num_ranks)[None, :], num_ranks - 1
    f1_first = down * last + waits[0]
    b1_first = f1_first + up * last + waits[1]
    b0_first = b1_first + back_down * last + waits[2]
    f0, f1 = down * rank, f1_first + up * (last - rank)
    b1, b0 = b1_first + back_down * rank, b0_first + back_up * (last - rank)
    times = np.stack([f0, f1, b1, b0], axis=2)
    residues = np.sort(times % PERIOD, axis=2)
    legal = (np.diff(residues, axis=2) > 0).all(axis=(1, 2))
    lives = ((b0 - f0) + (b1 - f1) + 2).max(axis=1)
    length = b0.max(axis=1)
    return times[legal], lives[legal].astype(np.float64), length[legal].astype(np.float64)


def _in_time(shape: PipelineShape, rank: int, start: Ints) -> Ints:
    """F and B of all micro-batches by time."""
    stages = (rank, shape.num_stages - 1 - rank)
    passes = ((FORWARD, stages[0]), (FORWARD, stages[1]), (BACKWARD, stages[1]), (BACKWARD, stages[0]))
    names = [shape.operation_id(kind, stage, 0) + np.arange(shape.num_microbatches) for kind, stage in passes]
    return np.concatenate(names)[np.argsort(start.ravel(), kind="stable")].astype(np.int64)
