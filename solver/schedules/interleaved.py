"""Interleaved 1F1B over looped chunks, in the flexible form: v chunks, N consecutive micro-batches, in-flight limit.

Owns the DoraPP family of orders: N = ranks is depth-first (Narayanan et al. 2021), N = micro-batches breadth-first
(Lamy-Poirier 2023), values between are Llama 3's flexible schedule. The number of chunks is that of the layout.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from solver.schedules.orders import Step, is_loop, planned, whole_backward
from solver.verify.pipeline_shape import FORWARD, PipelineOrder, PipelineShape


def interleaved(shape: PipelineShape) -> PipelineOrder | None:
    """Depth-first: groups of as many micro-batches as ranks, warm-up 2 (ranks - rank - 1) + (v - 1) N."""
    return flexible(shape, group=shape.num_ranks)


def breadth_first(shape: PipelineShape) -> PipelineOrder | None:
    """Breadth-first: every chunk runs all micro-batches before the next chunk."""
    return flexible(shape, group=shape.num_microbatches)


def flexible_double(shape: PipelineShape) -> PipelineOrder | None:
    """Between the two: groups of twice the ranks, which hides a hop of about one pass."""
    return flexible(shape, group=2 * shape.num_ranks)


def flexible_limited(shape: PipelineShape) -> PipelineOrder | None:
    """Depth-first within the memory of the ranks: the in-flight limit is the largest that the tightest rank holds."""
    if not is_loop(shape) or shape.num_stages == shape.num_ranks:
        return None
    held = np.maximum(shape.activation_s, shape.context_s).reshape(-1, shape.num_ranks).max(axis=0)
    most = shape.num_stages * shape.num_microbatches
    limit = max(int(min((shape.budget_r / np.maximum(held, 1e-30)).min(), most)), 1)
    return flexible(shape, group=shape.num_ranks, in_flight_limit=limit)


def flexible(shape: PipelineShape, *, group: int, in_flight_limit: int | None = None) -> PipelineOrder | None:
    """The family itself; None for another layout or one chunk per rank.

    `in_flight_limit` caps the chunk activations that a rank holds at once.
    """
    if not is_loop(shape) or shape.num_stages == shape.num_ranks:
        return None
    chunks = shape.num_stages // shape.num_ranks
    group = min(group, shape.num_microbatches)
    ranks = []
    for rank in range(shape.num_ranks):
        warm_up = 2 * (shape.num_ranks - rank - 1) + (chunks - 1) * group
        if in_flight_limit is not None:
            warm_up = min(warm_up, in_flight_limit - 1)
        ranks.append(_rank(shape, rank, group, warm_up))
    return planned(shape, ranks)


def _rank(shape: PipelineShape, rank: int, group: int, warm_up: int) -> Iterator[Step]:
    chunks = shape.num_stages // shape.num_ranks
    forwards = list(_visits(shape.num_microbatches, group, range(chunks)))
    backwards = list(_visits(shape.num_microbatches, group, range(chunks - 1, -1, -1)))
    warm_up = min(warm_up, len(forwards))
    for chunk, microbatch in forwards[:warm_up]:
        yield FORWARD, chunk * shape.num_ranks + rank, microbatch
    for index, (chunk, microbatch) in enumerate(backwards):
        if index + warm_up < len(forwards):
            ahead_chunk, ahead = forwards[index + warm_up]
            yield FORWARD, ahead_chunk * shape.num_ranks + rank, ahead
        yield from whole_backward(chunk * shape.num_ranks + rank, microbatch)


def _visits(num_microbatches: int, group: int, chunks: range) -> Iterator[tuple[int, int]]:
    """Chunk and micro-batch in turn: each group of consecutive micro-batches passes all chunks.

    >>> list(_visits(3, 2, range(2)))
    [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (1, 2)]
    """
    for first in range(0, num_microbatches, group):
        for chunk in chunks:
            for microbatch in range(first, min(first + group, num_microbatches)):
                yield chunk, microbatch
