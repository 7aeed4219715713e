"""A lower bound of the iteration time where layers are shared out by GPU type: it holds for every such share.

Which layers a rank gets follows the placement, which is not known here. Proofs: docs/bounds.md, "Layers shared out by
GPU type".
"""

from __future__ import annotations

import numpy as np

from solver.arrays import FloatArray
from solver.bounds.bounded import ROUNDING, Bounds
from solver.bounds.crossing_messages import CrossingDelay
from solver.bounds.crossing_ways import CrossingWays
from solver.bounds.gradient_exchange import UnknownShares
from solver.bounds.layer_limits import LayerLimits, LayerTimes, best_ranks, ends_worth, whole_layers_s
from solver.bounds.network_cut import distance_cases, with_distance_s
from solver.bounds.type_ranks import Types
from solver.configurations.enumerate import ONE_WAY, Space
from solver.configurations.layers import LayerSplit
from solver.configurations.pricing import Shares, kinds, least_cost
from solver.context import Context
from solver.cost.memory import peak_activations
from solver.estimates.iteration import crossed_s
from solver.estimates.params import ESTIMATES

WIDEST, HALVINGS = 4.0, 6  # of the search for a time: up to four times the near one, within 1.1 %
COARSE = 0.1  # of a layer: what whole layers per stage cost more than the bound; of 0, 0.1 and 0.25 the least spread


def unequal_bounds(context: Context, space: Space) -> Bounds:
    """Bounds, and memory: what no share of layers can bring below them."""
    types = Types.of(context, space)
    columns = space.columns
    whole, ways = types.least.whole, LayerTimes.of(types, LayerLimits.of(types))
    work_s = whole_layers_s(ways, slowest_rank_s(types))
    bound_s = _far_s(ways, np.maximum(work_s, whole.forward_s + whole.input_grad_s))
    bound_s += _update_s(types)
    lacking = _lacking_bytes(types)
    limit = max(context.memory_limit_bytes(gpu_class.gpu) for gpu_class in context.gpu_classes.values())
    return Bounds(
        iteration_s=bound_s,
        guess_s=_guess_s(types, bound_s=bound_s),
        lightest_s=np.zeros(len(columns)),
        fits=lacking <= ROUNDING * limit,
        least_memory_bytes=limit + lacking,
    )


def unequal_work_s(context: Context, space: Space) -> FloatArray:
    """The bound without exchange, memory and distance: the work of the ranks and the way of a micro-batch (seconds)."""
    types = Types.of(context, space)
    whole, ways = types.least.whole, LayerTimes.of(types, LayerLimits.of_work(types))
    work_s = whole_layers_s(ways, slowest_rank_s(types))
    return np.maximum(work_s, whole.forward_s + whole.input_grad_s)


def _far_s(ways: LayerTimes, near_s: FloatArray) -> FloatArray:
    """The least T, from `near_s` on, within which exchanges and messages over every cut are possible.

    Ranks that do not exchange over a cut have no more layers than they have time for, and the others all the rest.
    """
    types = ways.types
    low_s = _with_cuts_s(ways, np.full_like(types.held, types.num_usual), near_s)
    needs_s = _with_cuts_s(ways, ways.limits.most(low_s)[1], low_s, low_s)
    rows = np.flatnonzero(needs_s > low_s)
    if not len(rows):
        return low_s
    some = Types.of(types.context, types.space.take(rows))
    ways = LayerTimes.of(some, LayerLimits.of(some))
    low, high = low_s[rows], np.minimum(needs_s[rows], WIDEST * low_s[rows])
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        enough = _with_cuts_s(ways, ways.limits.most(middle)[1], middle, middle) <= middle
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    low_s[rows] = low
    return low_s


def _with_cuts_s(
    ways: LayerTimes, most: FloatArray, near_s: FloatArray, within_s: FloatArray | None = None
) -> FloatArray:
    """`near_s` or more (seconds), by what cuts of the network cost with at most so many usual layers of a rank by type.

    Whether it is more than `within_s` is all that needs to be known. Stages are at their smallest, one layer each.
    """
    types, space, whole = ways.types, ways.types.space, ways.types.least.whole

    def pipeline_s(delay: CrossingDelay) -> FloatArray:
        messages_s = delay.passes_s(space.columns.vpp, space.columns.vpp - 1)
        bound: FloatArray = whole.forward_s + whole.input_grad_s + 2.0 * messages_s
        return bound if within_s is None else np.where(ways.are_possible(within_s, messages_s), bound, np.inf)

    ones = np.ones_like(space.columns.pp)
    split = LayerSplit(ones, ones, ones, np.zeros_like(ones))
    smallest = Shares(space.columns, space.family, split, types.context.job.num_layers)
    shares = UnknownShares.of(
        types.least,
        types.num_usual,
        lambda num_ranks: best_ranks(most, types.held, num_ranks),
        CrossingWays(ways, most).least_s,
    )
    overlap_s = np.full(len(near_s), np.inf)
    cases = distance_cases(types.least, smallest, overlap_s, shares, within_s=within_s)
    return with_distance_s(near_s, cases, pipeline_s)


def slowest_rank_s(types: Types) -> FloatArray:
    """Time (s) in which p ranks can do all layers: T >= n / s_0 - phi e.

    s_p = 0, s_r = max(s_(r+1), (1 - phi/m) s_(r+1) + 1 / (m c_r)), the fastest type in front. n are the layers, with
    ends and other layers as few usual ones as they are worth; c_r (s) the work of a usual layer on the type of rank r;
    phi the least share of the forward in it, 0 with chunks; e (s) the work of the embedding.
    """
    columns, m = types.space.columns, types.space.columns.num_microbatches.astype(np.float64)
    layer_s = types.layer_s
    order = np.argsort(layer_s, axis=0, kind="stable")
    ascending = np.take_along_axis(layer_s, order, axis=0)
    upto = np.cumsum(np.take_along_axis(types.held, order, axis=0), axis=0)
    phi = np.where(types.space.family == ONE_WAY, _forward_part(types), 0.0)
    reach = np.zeros(len(columns))
    for rank in range(int(columns.pp.max(initial=0)) - 1, -1, -1):
        kind = np.minimum((upto <= rank).sum(axis=0), len(upto) - 1)
        per_layer = np.take_along_axis(ascending, kind[None, :], axis=0)[0]
        further = np.maximum(reach, (1.0 - phi / m) * reach + 1.0 / (m * per_layer))
        reach = np.where(rank < columns.pp, further, reach)
    embedding_s = np.maximum.reduce([price.of(0, 0, embedding=1.0).total_s for price in types.prices])
    bound: FloatArray = _equivalent_layers(types) / reach - phi * embedding_s
    return bound


def _equivalent_layers(types: Types) -> FloatArray:
    """Layers, layers of the other kind, and ends, each as few usual layers as it may be worth on any type."""
    others = [price.other_layer for price in types.prices]
    worth = np.min(np.stack([one.total_s for one in others]) / types.layer_s, axis=0)
    total: FloatArray = types.num_usual + types.num_others * worth + sum(ends_worth(types))
    return total


def _forward_part(types: Types) -> FloatArray:
    """Least share that the forward has of a layer's work."""
    layers = [one for price in types.prices for one in price.layer_of_each_kind()]
    least: FloatArray = np.minimum.reduce([one.forward_s / one.total_s for one in layers])
    return least


def _update_s(types: Types) -> FloatArray:
    """Some rank has at least its even part of the layers to update, on the quickest type."""
    columns, job = types.space.columns, types.context.job
    part = job.num_layers / columns.pp
    dense, moe = types.prices[0].of(part, 0), types.prices[0].of(0, part)
    light = least_cost([one for one, count in ((dense, job.num_dense_layers), (moe, job.num_moe_layers)) if count])
    updates = [price.update_s(light.parameters, light.expert_parameters) for price in types.prices]
    least: FloatArray = np.minimum.reduce(updates)
    return least


def _lacking_bytes(types: Types) -> FloatArray:
    """By how much an average rank's memory is too small on the roomiest ranks.

    All ranks together hold the whole model's state and the activations of one micro-batch.
    """
    context, pp, whole = types.context, types.space.columns.pp, types.least.whole
    nothing = np.zeros(len(pp))
    empty = [price.static_bytes(nothing, nothing) for price in types.prices]
    full = [price.static_bytes(whole.parameters, whole.expert_parameters) for price in types.prices]
    capacities = np.stack(
        [
            context.memory_limit_bytes(price.gpu_class.gpu) - static
            for price, static in zip(types.prices, empty, strict=True)
        ]
    )
    state = np.minimum.reduce([one - other for one, other in zip(full, empty, strict=True)])
    lacking: FloatArray = (state + whole.activation_bytes - best_ranks(capacities, types.held, pp)) / pp
    return lacking


def _guess_s(types: Types, *, bound_s: FloatArray) -> FloatArray:
    """The usual guess with an average rank first, and what whole layers cost."""
    columns, whole = types.space.columns, types.least.whole
    per_rank = bound_s / np.maximum(columns.num_microbatches * whole.total_s, 1e-12)
    fill = (columns.pp - 1) * per_rank * (whole.forward_s + whole.input_grad_s) / columns.vpp
    coarse = 1.0 + COARSE * columns.pp * columns.vpp / types.context.job.num_layers
    usual = _crowding(types, bound_s)
    return crossed_s(types.context, types.space, whole, inside_s=usual * (bound_s * coarse + fill), local=True)


def _crowding(types: Types, bound_s: FloatArray) -> FloatArray:
    """What memory costs usual schedules: on the first rank of the type with most, and of every other where it is last.

    Each type has as many layers per rank as it does in the time of the bound.
    """
    context, columns, whole = types.context, types.space.columns, types.least.whole
    first, last = np.full(len(columns), np.inf), np.ones(len(columns))
    for price, layer_s, held in zip(types.prices, types.layer_s, types.held, strict=True):
        part = bound_s / (columns.num_microbatches * layer_s) / context.job.num_layers
        static = price.static_bytes(part * whole.parameters, part * whole.expert_parameters)
        capacity = context.memory_limit_bytes(price.gpu_class.gpu) - static
        used = np.minimum(held, columns.pp).astype(np.int64)
        activations = part * price.of(*kinds(context, 0, context.job.num_layers)).activation_bytes
        needs = (peak_activations(columns, rank) * activations for rank in (columns.pp - used, 0))
        there, in_front = (ESTIMATES.crowding(need, capacity, columns.vpp) for need in needs)
        first = np.minimum(first, in_front)
        last = np.maximum(last, np.where(used == 0, 1.0, there))
    worst: FloatArray = np.maximum(first, last)
    return worst
