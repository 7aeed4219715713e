"""What distance costs every placement: exchanges of ranks whose replicas no single place can hold.

Owns that bound. It holds for any placement and any paths: it counts only how many places a rank needs, what leaves a
place, and its nearest way out. Never places anything.
"""

from __future__ import annotations

import numpy as np

from solver.context import Context
from solver.cost.columns import FloatArray
from solver.cost.data_parallel import crossing_bytes
from solver.placement.units import groups_of
from solver.space.pricing import Shares, StageCosts, kinds


def spanning_s(price: StageCosts, shares: Shares, overlap_s: FloatArray) -> FloatArray:
    """T >= m (lightest stage) - overlap + sum over spanning stages of bytes / rate + 2 (k - 1) delay.

    Proof. A place with room for g stage groups holds at most floor(g / dp) ranks with all their dp replicas, so at
    least pp less the sum of these ranks span places, each of them at least k = ceil(dp / largest g) and at least 2. The
    exchange of each stage of such a rank sends at least the bytes of an exchange between two places out of every place
    of its ring; one of two has no more than the second largest rate out. Its ring takes 2 (k - 1) steps, each at least
    the nearest way out of some place. Exchanges take the links one after another, the first not before all weight
    gradients of its stage, less what overlaps.
    """
    context, columns = price.context, price.columns
    widest = int(columns.cp.max(initial=1)) + 1
    distinct, row_of = np.unique(columns.tp * widest + columns.cp, return_inverse=True)
    held = np.array([_groups_by_place(context, *divmod(int(one), widest)) for one in distinct]).reshape(
        len(distinct), -1
    )[row_of.ravel()]
    if held.shape[1] < 2:
        return np.zeros(len(columns))
    whole = (held // columns.dp[:, None]).sum(axis=1)
    num_stages = np.maximum(columns.pp - whole, 0) * columns.vpp
    num_places = np.maximum(-(-columns.dp // np.maximum(held.max(axis=1), 1)), 2)
    rate, nearest_s = _out_of_places(context)
    parameters, experts = least_parameters(price, shares)
    everything = (parameters + experts * columns.ep) * columns.tp
    gradient_bytes = context.job.optimizer.gradient_bytes_per_parameter
    size = crossing_bytes(everything, columns, 2, gradient_bytes=gradient_bytes)
    one = size / rate + 2.0 * (num_places - 1) * nearest_s
    begin = np.maximum(columns.num_microbatches * _lightest_stage_s(price, shares) - overlap_s, 0.0)
    bound: FloatArray = np.where(num_stages > 0, begin + num_stages * one, 0.0)
    return bound


def _groups_by_place(context: Context, tp: int, cp: int) -> list[int]:
    """Stage groups that every place with pools has room for."""
    held: dict[str, int] = {}
    for pool in context.pools:
        held[pool.place] = held.get(pool.place, 0) + groups_of(pool, tp, cp)
    return list(held.values())


def _out_of_places(context: Context) -> tuple[float, float]:
    """Second largest rate out of a place with pools and all that lies in it, and the least delay of a way out.

    Infinite and none where such places lie inside each other.
    """
    topology = context.topology
    places = {pool.place for pool in context.pools}
    if any(places & set(topology.ancestors(place)[1:]) for place in places):
        return float("inf"), 0.0  # a ring between a place and one inside it leaves neither
    rates = dict.fromkeys(places, 0.0)
    nearest_s = float("inf")
    for edge in topology.edges:
        for place in places & (set(topology.ancestors(edge.from_place)) - set(topology.ancestors(edge.to_place))):
            rates[place] += edge.capacity_bytes_per_s
            nearest_s = min(nearest_s, edge.latency_s)
    second = sorted(rates.values())[-2]
    return second or float("inf"), nearest_s if nearest_s < float("inf") else 0.0


def least_parameters(price: StageCosts, shares: Shares) -> tuple[FloatArray, FloatArray]:
    """Dense and expert parameters on one GPU of the stage with the fewest layers, of the kind that has fewer."""
    job, split = price.context.job, shares.split
    inner = np.where(price.columns.pp * price.columns.vpp > 2, split.middle, split.first)
    layers = np.minimum.reduce([split.first, split.last, inner])
    dense, moe = price.of(layers, 0), price.of(0, layers)
    if job.num_dense_layers and job.num_moe_layers:
        return np.minimum(dense.parameters, moe.parameters), np.zeros(len(price.columns))
    small = moe if job.num_moe_layers else dense
    return small.parameters, small.expert_parameters


def _lightest_stage_s(price: StageCosts, shares: Shares) -> FloatArray:
    """Work of one micro-batch on the lightest stage: the first, the last, or one between of the cheaper kind."""
    split, total = shares.split, shares.num_layers
    first = price.of(*kinds(price.context, 0, split.first), embedding=1.0).total_s
    last = price.of(*kinds(price.context, total - split.last, total), logits=1.0).total_s
    job = price.context.job
    per_kind = [(job.num_dense_layers, price.of(1, 0).total_s), (job.num_moe_layers, price.of(0, 1).total_s)]
    layer_s = np.minimum.reduce([one for count, one in per_kind if count])
    inner = np.where(price.columns.pp * price.columns.vpp > 2, split.middle * layer_s, np.inf)
    lightest: FloatArray = np.minimum.reduce([first, last, inner])
    return lightest
