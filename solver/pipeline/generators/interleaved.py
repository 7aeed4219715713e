"""Interleaved 1F1B over looped chunks, in the flexible form: v chunks, N consecutive micro-batches.

N = ranks is depth-first (Narayanan et al. 2021), N = micro-batches breadth-first (Lamy-
Poirier 2023), values between are Llama 3's flexible schedule. The number of chunks is that of the layout.
"""

import numpy as np

from solver.pipeline.generators.list_scheduler import with_messages
from solver.pipeline.generators.orders import is_loop, warmed_up
from solver.pipeline.problem import Ints, PipelineOrder, PipelineShape


def interleaved(shape: PipelineShape) -> PipelineOrder | None:
    """Depth-first: groups of as many micro-batches as ranks, warm-up 2 (ranks - rank - 1) + (v - 1) N."""
    return flexible(shape, group=shape.num_ranks)


def breadth_first(shape: PipelineShape) -> PipelineOrder | None:
    """Breadth-first: every chunk runs all micro-batches before the next chunk."""
    return flexible(shape, group=shape.num_microbatches)


def flexible_double(shape: PipelineShape) -> PipelineOrder | None:
    """Between the two: groups of twice the ranks, which hides a hop of about one pass."""
    return flexible(shape, group=2 * shape.num_ranks)


def flexible(shape: PipelineShape, *, group: int) -> PipelineOrder | None:
    """The family itself; None for another layout or one chunk per rank."""
    if not is_loop(shape) or shape.num_stages == shape.num_ranks:
        return None
    chunks = shape.num_stages // shape.num_ranks
    group = min(group, shape.num_microbatches)
    forwards, backwards = _visits(shape, group, down=False), _visits(shape, group, down=True)
    ranks = []
    for rank in range(shape.num_ranks):
        warm_up = 2 * (shape.num_ranks - rank - 1) + (chunks - 1) * group
        first = rank * shape.num_microbatches
        ranks.append(warmed_up(shape, forwards + first, backwards + first, warm_up))
    return with_messages(shape, ranks)


def _visits(shape: PipelineShape, group: int, *, down: bool) -> Ints:
    """Stage * micro-batches + micro-batch on the first rank: each group of micro-batches passes all chunks in turn."""
    per_chunk = shape.num_ranks * shape.num_microbatches
    chunk, microbatch = np.divmod(
        np.arange(shape.num_stages // shape.num_ranks * shape.num_microbatches), shape.num_microbatches
    )
    order = np.lexsort((microbatch, -chunk if down else chunk, microbatch // group))
    return (chunk * per_chunk + microbatch)[order]
