"""A placement by GPU type with its pipeline ranks in another order of types, and layers moved between them.

In which order types follow each other, and which rank has one layer more, says how long the first micro-batch takes to
reach the busiest rank and the last one to leave it. Sharing out layers by the slowest rank alone does not see that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, permutations

import numpy as np

from solver.bounds.bounded import ROUNDING
from solver.bounds.kind_costs import kinds_by_name
from solver.bounds.typed_pipelines import PartitionPipelines
from solver.clock import Clock, charge_pipeline_bounds
from solver.configurations.by_type import TypeCost, layer_shares, type_costs
from solver.context import Context
from solver.evaluation.candidate import Candidate
from solver.evaluation.nearest_order import in_nearest_order

MOST_ORDERS = 96  # orders of the ranks that are bounded
MOST_MOVED, NUM_MOVES = 3, 64  # of them with the least bounds, that layers are moved in, and tries to move one
LEAST_GAIN = 0.01  # of the bound: quick schedules differ by more from theirs
SEED = 0  # of the layers that are moved; any will do


def may_reorder(context: Context, candidate: Candidate) -> bool:
    """Whether ranks share out layers by GPU type, and are on several."""
    types = set(candidate.gpu_types(context))
    return candidate.configuration.layer_split == "by_gpu_type" and len(types) > 1


def reordered(context: Context, candidate: Candidate, clock: Clock) -> Iterator[Candidate]:
    """The order of the ranks, with layers, whose pipeline has the least bound found; every rank keeps its pools.

    Ranks of a type remain together, in a loop also across its end. Nothing where that lowers the bound by little.
    """
    search = _Reordering(context, candidate, clock)
    enough_s = search.as_it_is().bound_s * (1.0 - LEAST_GAIN)
    begun = sorted(search.begun(), key=lambda one: one.bound_s)
    moved = map(search.with_layers_moved, begun[:MOST_MOVED])
    best = min(moved, key=lambda one: one.bound_s, default=None)
    if best is not None and best.bound_s <= enough_s:
        yield search.placed(best)


@dataclass(frozen=True)
class _Ordered:
    """Which rank of the candidate stands at every rank, the layers of all ranks, and their pipeline's bound."""

    ranks: tuple[int, ...]
    layers_r: tuple[int, ...]
    bound_s: float


class _Reordering:
    """The ranks of one candidate in other orders."""

    def __init__(self, context: Context, candidate: Candidate, clock: Clock) -> None:
        self.context, self.candidate, self.clock = context, candidate, clock
        self.types = candidate.gpu_types(context)
        self.costs: dict[str, TypeCost] = type_costs(context, candidate.configuration)
        self.pipelines = PartitionPipelines.of(context, [candidate.configuration])
        self.kinds = kinds_by_name(self.pipelines.gpus)

    def as_it_is(self) -> _Ordered:
        """The candidate's own order and layers."""
        configuration = self.candidate.configuration
        layers_r = [
            sum(configuration.layers_per_stage[stage] for stage in configuration.stages_of_rank(rank))
            for rank in range(configuration.degrees.pp)
        ]
        return self._ordered(tuple(range(len(self.types))), layers_r)

    def begun(self) -> Iterator[_Ordered]:
        """Every order that is tried, with layers by the slowest rank: that share of its shares with the least bound."""
        seen = set[tuple[str, ...]]()
        for ranks in islice(self._orders(), MOST_ORDERS):
            types = tuple(self.types[rank] for rank in ranks)
            if types in seen:
                continue
            seen.add(types)
            shares = layer_shares(
                self.candidate.configuration, [self.costs[gpu] for gpu in types], self.context.job.num_layers
            )
            found = [self._ordered(ranks, one.layers_r) for one in shares]
            if found:
                yield min(found, key=lambda one: one.bound_s)

    def with_layers_moved(self, begun: _Ordered) -> _Ordered:
        """The order with single layers moved from rank to rank as long as that raises no bound."""
        best, random, least = begun, np.random.default_rng(SEED), self.candidate.configuration.degrees.vpp
        for _ in range(NUM_MOVES):
            here, there = random.choice(len(best.ranks), 2, replace=False).tolist()
            if best.layers_r[here] > least:
                layers = list(best.layers_r)
                layers[here] -= 1
                layers[there] += 1
                moved = self._ordered(best.ranks, layers, best.bound_s * (1.0 + ROUNDING))
                best = moved if moved.bound_s <= best.bound_s else best
        return best

    def placed(self, ordered: _Ordered) -> Candidate:
        """The routes with their ranks in this order."""
        kinds = [self.kinds[self.types[rank]] for rank in ordered.ranks]
        layers = next(self.pipelines.stages(kinds, ordered.layers_r))
        configuration = self.candidate.configuration.model_copy(update={"layers_per_stage": layers})
        routes = tuple(
            replace(
                route,
                pools=tuple(route.pools[rank] for rank in ordered.ranks),
                first_group=tuple(route.first_group[rank] for rank in ordered.ranks),
            )
            for route in self.candidate.routes
        )
        return in_nearest_order(self.context, Candidate(configuration, routes))

    def _orders(self) -> Iterator[tuple[int, ...]]:
        """GPU types one after another in every order, in a loop begun at every rank."""
        by_type = [list(same) for _, same in groupby(range(len(self.types)), key=self.types.__getitem__)]
        is_loop = self.candidate.configuration.family == "loop"
        fixed = by_type[:1] if is_loop else []
        for others in permutations(by_type[len(fixed) :]):
            ranks = tuple(rank for same in (*fixed, *others) for rank in same)
            for first in range(len(ranks) if is_loop else 1):
                yield ranks[first:] + ranks[:first]

    def _ordered(self, ranks: tuple[int, ...], layers_r: Sequence[int], enough_s: float = float("inf")) -> _Ordered:
        """With its bound, which need not go much beyond what is enough."""
        charge_pipeline_bounds(self.clock, self.pipelines.num_operations)
        kinds = tuple(self.kinds[self.types[rank]] for rank in ranks)
        return _Ordered(ranks, tuple(layers_r), self.pipelines.bound_s((kinds, tuple(layers_r)), enough_s))
