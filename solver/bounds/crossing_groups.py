"""Pipelines that lie over the groups of a cut: where they cross and what leaves every set of groups, or which ranks
exchange between groups.

Every way of whole ranks to lie in groups is looked at, the one with the least bound first. Proof: docs/bounds.md,
"Pipelines over groups".
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from models.plan import Configuration
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.crossing_messages import CrossingMessages
from solver.bounds.crossing_pipelines import CrossingPipelines, crossed_stages
from solver.bounds.cuts import NetworkCut, cuts
from solver.bounds.gradient_exchange import sent_bytes
from solver.bounds.spanning_ranks import PipelineRanks, SpanningRanks
from solver.bounds.ways_over_groups import MOST_ASSIGNMENTS, WaysOverGroups
from solver.clock import charge_pipeline_bounds
from solver.context import Context
from solver.cost.columns import Columns, columns_of_all
from solver.cost.stage import boundary_bytes
from solver.pipeline.bounds import SharedLinks, makespan_bound, shared_links_bound
from solver.pipeline.problem import NO_CHANNEL, PipelineShape
from solver.placement.capacity_groups import groups_by_row

MOST_PIPELINES = 128  # of all ways: few bounds rise with more
MOST_LOOKED_AT = 1024  # ways, possible or not: of many ranks and groups there are more than can be told apart
FULLEST = 2  # sets of groups whose links are looked at as machines: more raise few bounds

Count = Callable[[int], None]  # of pipelines that are bounded
_Way = tuple[float, bool, list[int], list[int]]  # bound, whether of its own, boundaries that are crossed, and decided


def uncounted(number: int) -> None:
    """Does not count them."""


@dataclass(frozen=True)
class GroupCrossings:
    """Pipelines of configurations that are alike, over the groups of a cut.

    A message that crosses takes `crossing_s` of some replica, with what is lost, and `plain_s` of any, of which
    `after_s` is left when it is off the links; those of all replicas together have `all_bytes`. `num_gt` are the stage
    groups that each group holds, by GPU type, and `known` the ways of whole ranks by their types.
    """

    configuration: Configuration
    cut: NetworkCut
    crossing_s: float
    plain_s: float
    after_s: float
    all_bytes: float
    num_gt: IntArray
    known: dict[tuple[int, ...], WaysOverGroups] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        context: Context,
        configurations: Sequence[Configuration],
        cut: NetworkCut,
        types: Sequence[frozenset[str]],
        hop_s: float,
    ) -> GroupCrossings:
        """Over the groups of a cut, with ranks each on one of these sets of GPU types.

        No message between ranks takes less than `hop_s` (seconds).
        """
        columns = columns_of_all(configurations)
        size = boundary_bytes(context.job, columns)
        messages = CrossingMessages.of(cut, columns, size)
        return cls(
            configurations[0],
            cut,
            max(float(messages.each_s(columns.dp).min()), hop_s),
            plain_s=max(messages.latency_s + float(messages.transfer_s.min()), hop_s),
            after_s=messages.latency_s,
            all_bytes=float((columns.dp * size).min()),
            num_gt=np.stack([_stage_groups(context, cut, columns, names) for names in types], axis=1),
        )

    def least_s(self, ranks: PipelineRanks, within_s: tuple[float, float], count: Count) -> float:
        """No pipeline of these ranks takes less (seconds, without the update).

        It is as much as the lower one of the times that it may lie `within_s`, and need not go beyond the other. All
        pipelines that are bounded `count`.
        """
        (least_s, high_s), spanning_s = within_s, self._spanning.least_s(ranks)
        limit_s = least_s
        while limit_s < high_s:
            is_whole = spanning_s > limit_s
            if not is_whole.any() or self._ways_over(ranks, is_whole).fits_in_one:
                break  # none has to cross
            limit_s = float(spanning_s[is_whole].min())
            ways_s = self._least_way_s(ranks, is_whole, (least_s, min(limit_s, high_s)), count)
            least_s = max(least_s, min(ways_s, limit_s))
            if ways_s < limit_s:
                break
        return least_s

    @cached_property
    def _spanning(self) -> SpanningRanks:
        return SpanningRanks(self.cut, self.configuration.degrees.dp, self.num_gt)

    @cached_property
    def _alike(self) -> list[int]:
        """Of each group the first one that could take its place: with as much of every type, and links as good."""
        rates, sets = self.cut.rate_of_set, np.arange(len(self.cut.rate_of_set))

        def is_alike(one: int, other: int) -> bool:
            differ = ((sets >> one) ^ (sets >> other)) & 1
            swapped = sets ^ (differ << one) ^ (differ << other)
            return bool((self.num_gt[one] == self.num_gt[other]).all() and np.allclose(rates[swapped], rates))

        numbers = range(len(self.num_gt))
        return [next(one for one in numbers if one == number or is_alike(one, number)) for number in numbers]

    def _ways_over(self, ranks: PipelineRanks, is_whole: BoolArray) -> WaysOverGroups:
        gpu_r = tuple(ranks.gpu_r[is_whole].tolist())
        if gpu_r not in self.known:
            held = self.num_gt // self.configuration.degrees.dp
            self.known[gpu_r] = WaysOverGroups(gpu_r, held, self._alike, looped=self._looped)
        return self.known[gpu_r]

    def _least_way_s(
        self, ranks: PipelineRanks, is_whole: BoolArray, within_s: tuple[float, float], count: Count
    ) -> float:
        """The least over all ways of these ranks to lie whole in groups; others may lie anywhere.

        What is below the one of these times or beyond the other does not matter.
        """
        (low_s, best_s), num_bounded = within_s, 0
        some, ways, whole = ranks.without(~is_whole), self._ways_over(ranks, is_whole), np.flatnonzero(is_whole)
        queue: list[_Way] = [(low_s, False, sorted(ways.forced), sorted(ways.forced))]
        for number in itertools.count():
            if not queue or queue[0][0] >= best_s:
                break
            bound_s, is_bounded, crossed, decided = heapq.heappop(queue)
            if num_bounded == MOST_PIPELINES or number == MOST_LOOKED_AT:
                return bound_s
            assignments = ways.assignments(frozenset(crossed))
            behind = {number: self._stages_behind(number, whole) for number in crossed}
            if assignments and not is_bounded:
                num_bounded += 1
                count(1)
                bound_s = max(bound_s, self._delayed_s(some, behind, best_s))
                heapq.heappush(queue, (bound_s, True, crossed, decided))
                continue
            if assignments:
                way_s = bound_s
                if len(assignments) < MOST_ASSIGNMENTS:
                    way_s = self._on_links(some, behind).least_s(assignments, bound_s, best_s)
                best_s = min(best_s, way_s)
                if way_s <= bound_s or best_s <= low_s:
                    break  # those that cross here and elsewhere take no less, nor do others
            for more, known in ways.that_cross_more(frozenset(crossed), frozenset(decided)):
                heapq.heappush(queue, (bound_s, False, sorted(more), sorted(known)))
        return best_s

    def _delayed_s(self, ranks: PipelineRanks, behind: Mapping[int, list[int]], enough_s: float) -> float:
        """The pipeline whose messages of these stages cross."""
        latency_s, stages = ranks.shape.latency_s.copy(), list(itertools.chain(*behind.values()))
        latency_s[stages] = np.maximum(latency_s[stages], self.crossing_s)
        return makespan_bound(replace(ranks.shape, latency_s=latency_s), enough_s)

    def _on_links(self, ranks: PipelineRanks, behind: Mapping[int, list[int]]) -> _OnLinks:
        """The messages of all replicas where those of these stages cross, by boundary."""
        latency_s, stages = ranks.plain_s.copy(), list(itertools.chain(*behind.values()))
        latency_s[stages] = np.maximum(latency_s[stages], self.plain_s)
        shape = replace(ranks.shape, latency_s=latency_s)
        return _OnLinks(shape, self._is_onward, behind, self._all_s, after_s=self.after_s)

    def _stages_behind(self, number: int, whole: IntArray) -> list[int]:
        """The stages whose messages cross a boundary: in a loop the last cycle does not come home."""
        stages, num_cycles = self._behind_each[int(whole[number])], self.configuration.degrees.vpp
        return stages[: num_cycles - 1] if self._looped and number == len(whole) - 1 else stages

    @cached_property
    def _behind_each(self) -> list[list[int]]:
        """The stages whose messages cross where a pipeline does so behind this or that rank."""
        return [crossed_stages(self.configuration, [rank]) for rank in range(self.configuration.degrees.pp)]

    @cached_property
    def _all_s(self) -> FloatArray:
        """How long the messages of all replicas take the links out of every set of groups; 0 where there are none."""
        rates = self.cut.rate_of_set
        return np.divide(self.all_bytes, rates, out=np.zeros_like(rates), where=rates > 0)

    @cached_property
    def _is_onward(self) -> BoolArray:
        """Of each stage whether its activations go to a later rank, or home from the last one."""
        rank_s = np.array(self.configuration.rank_of_stages)
        return np.append(self._looped | (rank_s[1:] > rank_s[:-1]), True)

    @property
    def _looped(self) -> bool:
        return self.configuration.family == "loop"


def several_groups_bound_s(pipelines: CrossingPipelines, bound_s: float, high_s: float) -> float:
    """`bound_s` (seconds) of even configurations that are alike, or more where every way to lie over three groups or
    more takes longer.

    What goes beyond `high_s` does not matter.
    """
    context, configurations, relaxed = pipelines.context, pipelines.configurations, pipelines.relaxed
    found, shape = [cut for cut in cuts(context) if len(cut.rate_g) > 2], relaxed.shape
    if shape is None or shape.num_ranks == 1 or not found or bound_s >= high_s:
        return bound_s
    parameters = pipelines.parameters, pipelines.expert_parameters
    sent_s = sent_bytes(*parameters, columns_of_all(configurations), 2, context.job).min(axis=0)
    any_type = np.zeros(shape.num_ranks, dtype=np.int64)
    ranks = PipelineRanks(any_type, shape, shape.latency_s, sent_s, relaxed.overlap_s)
    names = frozenset(pool.gpu.name for pool in context.pools)
    count = partial(charge_pipeline_bounds, pipelines.clock, shape.num_operations)
    for cut in found:
        if bound_s < high_s:
            crossings = GroupCrossings.of(context, configurations, cut, [names], relaxed.hop_s)
            limits_s = bound_s - relaxed.update_s, high_s - relaxed.update_s
            bound_s = crossings.least_s(ranks, limits_s, count) + relaxed.update_s
    return bound_s


def _stage_groups(context: Context, cut: NetworkCut, columns: Columns, names: frozenset[str]) -> IntArray:
    """Stage groups of configurations that are alike that each group of a cut holds on some GPU types."""
    own = [number for number, pool in enumerate(context.pools) if pool.gpu.name in names]
    pools, group_of_pool = [context.pools[number] for number in own], [cut.group_of_pool[number] for number in own]
    held = groups_by_row(pools, group_of_pool, columns.tp[:1], columns.cp[:1])[0]
    return np.pad(held, (0, len(cut.rate_g) - len(held)))


@dataclass(frozen=True)
class _OnLinks:
    """Messages of a pipeline between groups, by the boundary that they cross: the stages that send activations there.

    Of each stage, `is_onward` says whether that goes to the later ranks or, as in a V, back to the earlier ones. Those
    of all replicas take the links out of each set of groups for `all_s` (seconds, by the number of the set).
    """

    shape: PipelineShape
    is_onward: BoolArray
    stages_of: Mapping[int, list[int]]
    all_s: FloatArray
    after_s: float

    def least_s(self, assignments: Sequence[tuple[int, ...]], low_s: float, high_s: float) -> float:
        """The least over assignments of ranks to groups, with the links out of the fullest sets of groups as machines.

        It is no less than the one of these times, and need not go beyond the other.
        """
        if not len(self.all_s):
            return low_s
        loads = [(self._loads_s(groups), groups) for groups in assignments]
        least_s = high_s
        for load_s, groups in sorted(loads, key=lambda load: float(load[0].max())):
            way_s = low_s
            for number in np.argsort(-load_s, kind="stable")[:FULLEST].tolist():
                if way_s < least_s:
                    way_s = max(way_s, shared_links_bound(self.shape, self._links(number, groups)))
            least_s = min(least_s, way_s)
            if least_s <= low_s:
                break
        return least_s

    def _loads_s(self, groups: Sequence[int]) -> FloatArray:
        """For how long the messages of a micro-batch take the links out of each set of groups."""
        sets, load_s = np.arange(len(self.all_s)), np.zeros(len(self.all_s))
        for number, stages in self.stages_of.items():
            here, there = groups[number], groups[(number + 1) % len(groups)]
            load_s += len(stages) * (((sets >> here) ^ (sets >> there)) & 1) * self.all_s
        return load_s

    def _links(self, number: int, groups: Sequence[int]) -> SharedLinks:
        """The links out of one set of groups."""
        num_stages = self.shape.num_stages
        links, all_s, after_s = np.full((2, num_stages), NO_CHANNEL), np.zeros(num_stages), np.zeros(num_stages)
        for boundary, stages in self.stages_of.items():
            here, there = ((number >> groups[rank % len(groups)]) & 1 for rank in (boundary, boundary + 1))
            for stage in stages:
                onward = self.is_onward[stage]
                if here != there:
                    links[0 if (here > there) == onward else 1, stage] = 0
                    all_s[stage], after_s[stage] = self.all_s[number], self.after_s
        return SharedLinks(links[0], links[1], all_s, all_s, after_s)
