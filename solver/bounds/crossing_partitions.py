"""Pipelines of partitions over GPU types that lie over two groups: where they cross, or how a rank exchanges over both.

Proof: docs/bounds.md, "Pipelines of partitions that cross".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from models.plan import Configuration
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.crossing_messages import CrossingMessages
from solver.bounds.crossing_pipelines import MOST_WAYS, PipelineCrossing, crossed_stages, ways_to_cross
from solver.bounds.cuts import NetworkCut, cuts
from solver.bounds.kind_costs import Kind
from solver.bounds.least_hops import MessageDelays
from solver.configurations.nearness import ranks_by_type
from solver.context import Context
from solver.cost.columns import Columns, columns_of_all
from solver.cost.stage import boundary_bytes
from solver.pipeline.bounds import makespan_bound, shared_links_bound
from solver.pipeline.problem import PipelineShape

Count = Callable[[int], None]  # of pipelines that are bounded


def uncounted(number: int) -> None:
    """Does not count them."""


@dataclass(frozen=True)
class PartitionRanks:
    """The pipeline of a partition, every cost and message at its least, and the GPU type of each rank.

    By stage, `plain_s` are the messages as if nothing was lost, `sent_s` the bytes that it sends out of a place to
    exchange its gradients, and `overlap_s` the most seconds of that which overlap.
    """

    gpu_r: IntArray
    shape: PipelineShape
    plain_s: FloatArray
    sent_s: FloatArray
    overlap_s: FloatArray

    def without(self, some: BoolArray) -> PartitionRanks:
        """With nothing to do on some ranks, and no time for messages from them."""
        stages, shape = some[self.shape.rank_of_s], self.shape
        less = replace(
            shape,
            duration_ks=np.where(stages, 0.0, shape.duration_ks),
            latency_s=np.where(stages, 0.0, shape.latency_s),
        )
        return replace(self, shape=less, plain_s=np.where(stages, 0.0, self.plain_s))


@dataclass(frozen=True)
class PartitionCrossings:
    """Partitions of configurations that are alike, over the two groups of a cut.

    `held` are the ranks that each group has room for, by GPU type (groups x types).
    """

    configuration: Configuration
    cut: NetworkCut
    crossing: PipelineCrossing
    held: IntArray

    @classmethod
    def of_all(
        cls, context: Context, configurations: Sequence[Configuration], gpus: Sequence[Kind], hop_s: float
    ) -> list[PartitionCrossings]:
        """For every cut of two groups, where the ways to cross are few."""
        first, columns = configurations[0], columns_of_all(configurations)
        if first.degrees.pp == 1 or len(list(ways_to_cross(first))) > MOST_WAYS:
            return []
        found, size = [], boundary_bytes(context.job, columns)
        for cut in cuts(context):
            if len(cut.rate_g) == 2:
                messages = CrossingMessages.of(cut, columns, size)
                held = [_held(context, cut, group, columns_of_all([first]), gpus) for group in range(2)]
                crossing = PipelineCrossing(
                    max(float(messages.each_s(columns.dp).min()), hop_s),
                    MessageDelays(),
                    plain_s=max(messages.latency_s + float(messages.transfer_s.min()), hop_s),
                    after_s=messages.latency_s,
                    all_s=float((columns.dp * size).min()) / messages.link_bytes_per_s,
                )
                found.append(cls(first, cut, crossing, np.array(held)))
        return found

    def least_s(self, ranks: PartitionRanks, within_s: tuple[float, float], count: Count) -> float:
        """No pipeline of this partition takes less (seconds, without the update).

        It is as much as the lower one of the times that it may lie `within_s`, and need not go beyond the other. All
        pipelines that are bounded `count`.
        """
        (least_s, high_s), spanning_s = within_s, self.spanning_s(ranks)
        limit_s = least_s
        while limit_s < high_s:
            is_whole = spanning_s > limit_s
            if self._is_held(np.zeros_like(is_whole), is_whole, ranks.gpu_r):
                break  # none has to cross
            limit_s = float(spanning_s[is_whole].min())
            ways_s = self._ways_s(ranks, is_whole, (least_s, min(limit_s, high_s)), count)
            least_s = max(least_s, min(ways_s, limit_s))
            if ways_s < limit_s:
                break
        return least_s

    def _ways_s(self, ranks: PartitionRanks, is_whole: BoolArray, within_s: tuple[float, float], count: Count) -> float:
        """The least over all ways to cross where some ranks are whole in one of the groups, both of which have some.

        What is below the one of these times or beyond the other does not matter. The other ranks may lie anywhere.
        """
        low_s, high_s = within_s
        some, known, least_s = ranks.without(~is_whole), dict[tuple[int, ...], float](), float("inf")
        for way in self._all_ways:
            if not is_whole[list(way)].all() or (len(way) == 1 and not is_whole[way[0] + 1 :].any()):
                continue  # as well as at another place: between the two are only ranks that lie anywhere
            count(1)
            known[way] = self._way_s(some, way, high_s)
            if self._is_held(self._inside(way), is_whole, ranks.gpu_r):
                least_s = min(least_s, known[way])
            if least_s <= low_s:
                return low_s
        if self.configuration.family == "loop":  # any other one crosses at more than two places, and so as two ways do
            return min([least_s, *sorted(known.values())[1:2]])
        for pair in itertools.combinations(sorted(known, key=known.__getitem__), 2):
            if max(known[one] for one in pair) < least_s:
                count(1)
                least_s = min(least_s, self._way_s(some, tuple(sorted(itertools.chain(*pair))), high_s))
            if least_s <= low_s:
                return low_s
        return least_s

    def spanning_s(self, ranks: PartitionRanks) -> FloatArray:
        """No less time passes where this or that rank lies in both groups, so that its exchanges go between them.

        All of them follow the first one, and one of them all work of the rank.
        """
        shape, overlap_s = ranks.shape, ranks.overlap_s
        if self.configuration.degrees.dp == 1:
            return np.full(shape.num_ranks, np.inf)
        exchange_s, m = ranks.sent_s / self.cut.exchange_rates[2], shape.num_microbatches
        before_s, found = np.concatenate([[0.0], np.cumsum(shape.duration_ks[0] + shape.latency_s)]), []
        for rank in range(shape.num_ranks):
            own = shape.rank_of_s == rank
            forward, gradients = shape.duration_ks[0, own], shape.duration_ks[1:, own].sum(axis=0)
            last_s = m * (forward.sum() + gradients.sum()) + (exchange_s - overlap_s)[own].min()
            all_s = m * (forward.sum() + gradients.min()) - overlap_s[own].max() + exchange_s[own].sum()
            found.append(before_s[np.flatnonzero(own)[0]] + max(last_s, all_s))
        return np.array(found)

    @cached_property
    def _all_ways(self) -> list[tuple[int, ...]]:
        return list(ways_to_cross(self.configuration))

    def _inside(self, way: tuple[int, ...]) -> BoolArray:
        """Ranks of one group, where pipelines cross behind these."""
        ranks = np.arange(self.configuration.degrees.pp)
        return np.asarray((ranks > (way[0] if len(way) > 1 else -1)) & (ranks <= way[-1]))

    def _is_held(self, is_inside: BoolArray, is_whole: BoolArray, gpu_r: IntArray) -> bool:
        """Whether either group has room for these ranks, and the other one for the rest, of those that are whole."""
        both = is_inside & is_whole, ~is_inside & is_whole
        parts = [np.bincount(gpu_r[own], minlength=self.held.shape[1]) for own in both]
        return any(bool((np.array(ways) <= self.held).all()) for ways in (parts, parts[::-1]))

    def _way_s(self, ranks: PartitionRanks, way: tuple[int, ...], high_s: float) -> float:
        """Where pipelines cross behind these ranks, with the messages of all replicas on the same links."""
        shape, crossing, stages = ranks.shape, self.crossing, crossed_stages(self.configuration, way)
        latency_s, plain_s = shape.latency_s.copy(), ranks.plain_s.copy()
        latency_s[stages] = np.maximum(latency_s[stages], crossing.crossing_s)
        bound_s = makespan_bound(replace(shape, latency_s=latency_s), high_s)
        if bound_s >= high_s:
            return bound_s
        plain_s[stages] = np.maximum(plain_s[stages], crossing.plain_s)
        links = crossing.shared_links(stages, shape.num_stages)
        return max(bound_s, shared_links_bound(replace(shape, latency_s=plain_s), links))


def _held(context: Context, cut: NetworkCut, group: int, one: Columns, gpus: Sequence[Kind]) -> list[int]:
    """Ranks that a group has room for with all their replicas, by GPU type, of one row."""
    pools = [pool for pool, own in zip(context.pools, cut.group_of_pool, strict=True) if own == group]
    ranks = ranks_by_type(pools, one.tp, one.cp, one.dp)
    return [sum(int(ranks[name][0]) for name in gpu.names & ranks.keys()) for gpu in gpus]
