"""The least time of a stage's gradient exchange, over how many places its replicas may be in: inside and between them.

Proof, an inequality per line: docs/bounds.md, "Exchanges over any number of places".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np

from models.cluster import Pool
from solver.bounds.cuts import cuts, ring_rates
from solver.configurations.enumerate import num_places
from solver.context import Context
from solver.cost.columns import Columns, FloatArray, IntArray
from solver.cost.data_parallel import crossing_bytes, group_parameters, replicas_together, step_traffic
from solver.cost.fabric import Fabric
from solver.network.policy import POLICY
from solver.placement.capacity_groups import bundles_by_place

EACH, GROWTH = 4, 4  # numbers of places up to here one by one, then in steps that grow by this factor: few, for time


@dataclass(frozen=True)
class ExchangeBound:
    """Least seconds from begin to end of an exchange, and of them those on the cards of its rank."""

    duration_s: FloatArray
    cards_s: FloatArray

    @classmethod
    def of(
        cls,
        context: Context,
        columns: Columns,
        fabrics: Sequence[Fabric],
        parameters: FloatArray,
        experts: FloatArray,
        *,
        names: AbstractSet[str] | None = None,
    ) -> ExchangeBound:
        """The exchange of so many dense and expert parameters on one GPU, by row, in places with any of these fabrics.

        All replicas are on GPUs of these types, or of any.
        """
        pools = pools_of(context, names)
        num_all, largest, bundle = num_places(pools), _largest_place(pools, columns), replicas_together(columns)
        whole = group_parameters(parameters, experts, columns)
        duration_s, cards_s = np.full(len(columns), np.inf), np.full(len(columns), np.inf)
        for fewest, most in _numbers_of_places(num_all):
            emptiest = columns.dp // (fewest * bundle) * bundle
            at = replace(columns, dp=-(-columns.dp // (most * bundle)) * bundle)
            inside = [
                step_traffic(parameters, experts, at, one.at_best(), context.stack, job=context.job) for one in fabrics
            ]
            private_s = np.minimum.reduce([one.reduce_s + one.gather_s for one in inside])
            sent = crossing_bytes(whole, columns, fewest, context.job)
            shared_s = _between_s(context, (pools, columns), sent, emptiest, fewest)
            longer_s, shorter_s = np.maximum(private_s, shared_s), np.minimum(private_s, shared_s)
            possible = (emptiest > 0) & (most * largest >= columns.dp)
            end_s = np.where(possible, longer_s + shorter_s / POLICY.num_exchange_chunks, np.inf)
            duration_s = np.minimum(duration_s, end_s)
            cards_s = np.minimum(cards_s, np.where(possible, longer_s, np.inf))
        known = np.isfinite(duration_s)
        return cls(np.where(known, duration_s, 0.0), np.where(known, cards_s, 0.0))


def span_places(context: Context, columns: Columns, names: AbstractSet[str]) -> bool:
    """Whether no place holds all replicas of a rank on GPUs of these types, of any of the configurations."""
    return bool((_largest_place(pools_of(context, names), columns) < columns.dp).all())


def pools_of(context: Context, names: AbstractSet[str] | None) -> list[Pool]:
    """Pools of these GPU types, or of all."""
    return [pool for pool in context.pools if names is None or pool.gpu.name in names]


def _largest_place(pools: Sequence[Pool], columns: Columns) -> IntArray:
    """Replicas of a rank that the largest place holds, by configuration."""
    found: IntArray = bundles_by_place(pools, columns.tp, columns.cp, replicas_together(columns)).max(axis=1)
    return found


def _numbers_of_places(num_places: int) -> Iterator[tuple[int, int]]:
    """Fewest and most places of every step.

    >>> list(_numbers_of_places(48))
    [(1, 1), (2, 2), (3, 3), (4, 4), (5, 20), (21, 48)]
    """
    fewest = 1
    while fewest <= num_places:
        most = fewest if fewest <= EACH else min(GROWTH * fewest, num_places)
        yield fewest, most
        fewest = most + 1


def _between_s(
    context: Context, among: tuple[Sequence[Pool], Columns], sent: FloatArray, emptiest: IntArray, num_places: int
) -> FloatArray:
    """A place with so many replicas sends so many bytes on a ring of so many places; no time where there is one.

    `among` are the pools that may be in it, and the configurations.
    """
    pools, columns = among
    places = {pool.place for pool in pools}
    if num_places == 1:
        return np.zeros(len(columns))
    connections = np.maximum(emptiest, 1) * columns.tp * columns.cp
    card = max(pool.nic_bytes_per_s_per_gpu for pool in context.pools)
    rate, nearest_s = connections * card * context.stack.scale_out_efficiency.value, 0.0
    for cut in cuts(context):
        around = [set[str]() for _ in cut.rate_g]
        for pool, group in zip(context.pools, cut.group_of_pool, strict=True):
            around[group] |= {pool.place} & places
        most = max(map(len, around))
        if num_places > most:
            rates = ring_rates(cut.rate_g[[bool(own) for own in around]])
            rate = np.minimum(rate, cut.limits.most_bytes_per_s(connections))
            rate = np.minimum(rate, rates[-(-num_places // most)])
            nearest_s = max(nearest_s, cut.nearest_s)
    return sent / rate + 2.0 * (num_places - 1) * nearest_s
