"""What usual schedules and crossings make of a configuration: orders the search, proves nothing.

Owns rough closed forms. A wrong guess costs time, never correctness.
"""

from __future__ import annotations

import numpy as np

from solver.context import Context
from solver.cost.columns import Columns, FloatArray
from solver.cost.data_parallel import crossing_bytes
from solver.cost.memory import peak_activations
from solver.cost.stage import StageCost
from solver.space.enumerate import Space

HOPELESS_S = 1e6  # more traffic than the request allows: tried last
UNLIKELY = 10.0  # a GPU type is needed whose memory the ends of the pipeline do not fit into
CRAMPED = 1.4  # usual schedules that memory keeps from filling the pipeline take about so much more than the bound


def guess_s(
    context: Context, space: Space, first: StageCost, whole: StageCost, *, bound_s: FloatArray, room: FloatArray
) -> FloatArray:
    """Bound and fill where the usual number of micro-batches in flight fits, well above the bound where it does not.

    The fill is that of interleaved 1F1B, (p - 1)(f + i) / v beyond the bound. What crosses buildings comes on top.
    """
    columns = space.columns
    fill = (columns.pp - 1) * (first.forward_s + first.input_grad_s) / columns.vpp
    fits = peak_activations(columns, 0) * first.activation_bytes <= room
    inside: FloatArray = np.where(fits, bound_s + fill, CRAMPED * (bound_s + fill))
    return inside + crossing_s(context, space, whole)


def crossing_s(context: Context, space: Space, whole: StageCost) -> FloatArray:
    """The cheaper of exchanging all gradients, or all stage messages that compute does not hide, over the worst cut.

    Ranks that no building holds whole exchange in any case.
    """
    columns, cut = space.columns, context.cut
    parameters = whole.parameters * columns.tp + whole.expert_parameters * columns.tp * columns.ep
    gradient_bytes = context.job.optimizer.gradient_bytes_per_parameter
    exchange_bytes = crossing_bytes(parameters, columns, 2, gradient_bytes=gradient_bytes)
    exchange_s = exchange_bytes / cut.bytes_per_s + _ring_s(context, columns)
    passes = np.where(space.family == 1, 2 * columns.vpp - 1, columns.vpp)
    slot_bytes = passes * columns.dp * whole.boundary_bytes
    slot = slot_bytes / cut.bytes_per_s
    work = whole.total_s / columns.pp
    messages = columns.num_microbatches * np.maximum(slot - work, 0.0) + 2.0 * passes * (cut.latency_s + slot)
    rank_fits = columns.dp * columns.tp * columns.cp <= context.largest_building_gpus
    messages = np.where((columns.pp > 1) & rank_fits, messages, np.inf)
    crossing = np.minimum(exchange_s, messages)
    limit = context.request.constraints.max_cross_building_bytes_per_iteration
    if limit is not None:
        least_bytes = np.minimum(exchange_bytes, columns.num_microbatches * slot_bytes)
        crossing = np.where(least_bytes > limit, HOPELESS_S, crossing)
    return np.where(columns.num_gpus > context.largest_building_gpus, crossing, 0.0)


def _ring_s(context: Context, columns: Columns) -> FloatArray:
    """Delays of the exchanges' rings, one after another: 2 (k - 1) steps per stage over the places in use."""
    places = len({pool.place for pool in context.pools})
    used = np.clip(np.ceil(places * columns.num_gpus / context.usable_gpus), 1, np.minimum(places, columns.dp))
    ring_s: FloatArray = columns.pp * columns.vpp * 2.0 * (used - 1) * context.crossing_tiers[-1].crossing_s
    return ring_s
