"""The least time of a stage's gradient exchange, over how many places its replicas may be in: inside them and between.

Proof. Let the dp replicas of a rank be in k places, in bundles of b that an expert group spans, g GPUs each.

    fullest place   >= ceil(dp / (k b)) b replicas      it reduces and gathers among them for private_s
    emptiest place  <= floor(dp / (k b)) b replicas     a connection of each of its GPUs carries no more than c bytes/s
    private_s       >= inside(fullest)                  more replicas take no less time, see `synchronisation.py`
    shared_s        >= sent(k) / (emptiest g c) + 2 (k - 1) d       every place sends sent(k); d is the nearest way out
    exchange        >= max(private_s, shared_s)         chunks are pipelined over both, and the longer one has them all

No place holds more than its GPUs do, so k times the largest is at least dp. The least over all k that are possible
holds for every placement. Numbers of places from k to l share one step: inside as for l, between as for k.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from solver.bounds.network_cut import cuts
from solver.context import Context
from solver.cost.columns import Columns, FloatArray, IntArray
from solver.cost.data_parallel import crossing_bytes, group_parameters, step_traffic
from solver.cost.fabric import Fabric
from solver.placement.capacity_groups import groups_by_row

EACH, GROWTH = 4, 1.5  # numbers of places up to here one by one, then in steps that grow by this factor


def spread_exchange_s(
    context: Context, columns: Columns, fabrics: Sequence[Fabric], parameters: FloatArray, experts: FloatArray
) -> FloatArray:
    """Least seconds of an exchange of so many dense and expert parameters on one GPU, by configuration.

    The places of a rank may have any of these fabrics.
    """
    places = {pool.place: None for pool in context.pools}
    number = {place: index for index, place in enumerate(places)}
    held = groups_by_row(context.pools, [number[pool.place] for pool in context.pools], columns.tp, columns.cp)
    largest, bundle = held.max(axis=1), np.maximum(columns.ep // columns.cp, 1)
    whole = group_parameters(parameters, experts, columns)
    best = np.full(len(columns), np.inf)
    for fewest, most in _numbers_of_places(len(places)):
        emptiest = columns.dp // (fewest * bundle) * bundle
        fullest = -(-columns.dp // (most * bundle)) * bundle
        at = replace(columns, dp=fullest)
        inside = [
            step_traffic(parameters, experts, at, one.at_best(), context.stack, job=context.job) for one in fabrics
        ]
        least_s = np.minimum.reduce([one.reduce_s + one.gather_s for one in inside])
        if fewest > 1:
            sent = crossing_bytes(whole, columns, fewest, context.job)
            least_s = np.maximum(least_s, _between_s(context, columns, sent, emptiest, fewest))
        best = np.where((emptiest > 0) & (most * largest >= columns.dp), np.minimum(best, least_s), best)
    return np.where(np.isfinite(best), best, 0.0)


def _numbers_of_places(num_places: int) -> Iterator[tuple[int, int]]:
    """Fewest and most places of every step.

    >>> list(_numbers_of_places(12))
    [(1, 1), (2, 2), (3, 3), (4, 4), (5, 7), (8, 12)]
    """
    fewest = 1
    while fewest <= num_places:
        most = fewest if fewest <= EACH else min(int(GROWTH * fewest), num_places)
        yield fewest, most
        fewest = most + 1


def _between_s(context: Context, columns: Columns, sent: FloatArray, emptiest: IntArray, num_places: int) -> FloatArray:
    """A place with so many replicas sends so many bytes on a ring of so many places."""
    cut = next((one for one in cuts(context) if one.of_places), None)
    if cut is None:  # some place lies in another one: only cards are known to be in the way
        card = max(pool.nic_bytes_per_s_per_gpu for pool in context.pools)
        rate, nearest_s = card * context.stack.scale_out_efficiency.value, 0.0
    else:
        rate, nearest_s = cut.limits.exchange_bytes_per_s, cut.nearest_s
    connections = np.maximum(emptiest, 1) * columns.tp * columns.cp
    between_s: FloatArray = sent / (connections * rate) + 2.0 * (num_places - 1) * nearest_s
    return between_s
