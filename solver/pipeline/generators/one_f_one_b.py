"""1F1B and 1F1B with extra warm-ups. Source: Narayanan et al. 2019, 2021; extra warm-ups: `extra_warm_ups`.

Orders of a one-way layout in which each rank, after its warm-up, runs one forward and one backward alternately.
"""

import numpy as np

from solver.pipeline.generators.list_scheduler import with_messages
from solver.pipeline.generators.orders import in_flight_limits, is_one_way, warmed_up
from solver.pipeline.problem import Ints, PipelineOrder, PipelineShape


def one_f_one_b(shape: PipelineShape) -> PipelineOrder | None:
    """Warm-up of ranks - 1 - rank forwards, fewer where memory says so."""
    return with_warm_ups(shape, np.zeros(shape.num_ranks, dtype=np.int64))


def eager_one_f_one_b(shape: PipelineShape) -> PipelineOrder | None:
    """Extra warm-ups hide each hop: ceil(2 delay / (F + B + W)) more forwards on every rank before it.

    With e extra warm-ups the steady cost of a hop is zero as soon as e >= 2 delay / (F + B + W of the slowest rank).
    """
    return with_warm_ups(shape, extra_warm_ups(shape))


def extra_warm_ups(shape: PipelineShape) -> Ints:
    """Forwards beyond 1F1B on every rank that hide the delays of all later hops."""
    if not is_one_way(shape):
        return np.zeros(shape.num_ranks, dtype=np.int64)
    period_s = max(float(shape.duration_ks.sum(axis=0).max()), 1e-30)
    wished = np.ceil(2 * (shape.latency_s + shape.transfer_s) / period_s - 1e-9)
    per_hop = np.minimum(wished, shape.num_microbatches).astype(np.int64)
    return np.minimum(np.cumsum(per_hop[::-1])[::-1], shape.num_microbatches)


def with_warm_ups(shape: PipelineShape, extra: Ints) -> PipelineOrder | None:
    """1F1B with the given extra forwards per rank, within memory; None for another layout."""
    if not is_one_way(shape):
        return None
    most = in_flight_limits(shape) - 1
    wished = np.arange(shape.num_ranks)[::-1] + extra
    warm_ups = np.clip(np.minimum(wished, most), 0, shape.num_microbatches)
    microbatches = np.arange(shape.num_microbatches)
    own = [rank * shape.num_microbatches + microbatches for rank in range(shape.num_ranks)]
    return with_messages(
        shape, [warmed_up(shape, each, each, warm_up) for each, warm_up in zip(own, warm_ups.tolist(), strict=True)]
    )
