"""Pipelines of configurations with layers by GPU type, many at once: each by the type and the layers of every rank.

With every cost at its least over the configurations and the places of the types, the bound of one pipeline holds for
it. Proof: docs/bounds.md, "Pipelines of partitions".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from models.plan import Configuration
from solver.arrays import FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.bounds.crossing_groups import Count, GroupCrossings, uncounted
from solver.bounds.cuts import cuts
from solver.bounds.kind_costs import Kind, stage_exchange_s
from solver.bounds.layer_windows import Ends
from solver.bounds.least_hops import TypeHops
from solver.bounds.spanning_ranks import PipelineRanks
from solver.bounds.stage_partition import kinds_of
from solver.configurations.by_type import TypeCost, chunk_layers, type_costs
from solver.configurations.framework import backward_of
from solver.context import Context
from solver.cost.columns import columns_of
from solver.cost.data_parallel import crossing_bytes, group_parameters
from solver.pipeline.bounds import SharedLinks, makespan_bounds, shared_links_bound
from solver.pipeline.bounds_kernel import AlikePipelines
from solver.pipeline.problem import NO_CHANNEL, PipelineShape

PIPELINE_COSTS = ("forward_s", "input_grad_s", "weight_grad_s", "activation_bytes", "weight_grad_context_bytes")
Partition = tuple[tuple[int, ...], tuple[int, ...]]  # GPU type and layers of every rank
FewestMost = tuple[IntArray, IntArray]  # of every stage: fewest and most MoE layers


@dataclass(frozen=True)
class PartitionPipelines:
    """Pipelines of configurations that are alike, by GPU type and layers of every rank; `gpus` are the types."""

    context: Context
    configurations: Sequence[Configuration]
    gpus: Sequence[Kind]
    hops: TypeHops

    @classmethod
    def of(
        cls, context: Context, configurations: Sequence[Configuration], gpus: Sequence[Kind] | None = None
    ) -> PartitionPipelines:
        """The pipelines of configurations that are alike, on all GPU types of the cluster unless some are given."""
        if gpus is None:
            gpus = kinds_of(context, [columns_of(one) for one in configurations])
        return cls(context, configurations, gpus, TypeHops.of(context, configurations))

    def bound_s(self, partition: Partition, enough_s: float) -> float:
        """The bound of one partition, see `bounds_s`."""
        return float(self.bounds_s([partition], np.array([enough_s]))[0])

    def bounds_s(self, partitions: Sequence[Partition], enough_s: FloatArray, count: Count = uncounted) -> FloatArray:
        """No plan with one of these takes less (seconds); infinite where memory holds no micro-batch.

        Where the ranks of one do not have all layers, no plan whose ranks have as many or more on these types takes
        less. A bound need not go beyond what is enough of it. Others that are bounded beside these `count`.
        """
        layers, owner = list[tuple[int, ...]](), list[int]()
        for place, partition in enumerate(partitions):
            ways = list(self.stages(*partition))
            layers += ways
            owner += [place] * len(ways)
        gpu_pr, of_partition = np.array([gpu_r for gpu_r, _ in partitions]), np.array(owner)
        found = self._pipelines_s(gpu_pr[of_partition], np.array(layers), enough_s[of_partition], count)
        least_s = np.full(len(partitions), np.inf)
        np.minimum.at(least_s, of_partition, found)
        return least_s

    @property
    def num_operations(self) -> int:
        """Operations of each of the pipelines."""
        return self._shape.num_operations

    @cached_property
    def _ranks(self) -> _RanksByType:
        by_name = [type_costs(self.context, one) for one in self.configurations]
        of_type = [_TypedRanks(kind, [costs[name] for costs in by_name for name in kind.names]) for kind in self.gpus]
        return _RanksByType(of_type, self.context.job.num_layers)

    @cached_property
    def _hops_by_type(self) -> _HopsByType:
        each = [[self.hops.between(one.names, other.names) for other in self.gpus] for one in self.gpus]
        least_s, plain_s, after_s, all_s = np.moveaxis(np.array(each), -1, 0)
        return _HopsByType(least_s, plain_s, after_s, all_s, self._layout.rank_of_s)

    @cached_property
    def _layout(self) -> _Layout:
        return _Layout(self.configurations[0])

    def stages(self, gpu_r: Sequence[int], layers_r: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The layers of all stages, by every sharing of a rank's layers over its chunks that one of these has."""
        ranks, places = self._ranks.of_type, self._layout.place_of_s
        ways = [
            ranks[gpu].chunks(num_layers, *own)
            for own, gpu, num_layers in zip(self._layout.chunks_of_ranks, gpu_r, layers_r, strict=True)
        ]
        for chosen in itertools.product(*ways):
            by_rank = tuple(itertools.chain.from_iterable(chosen))
            yield tuple(by_rank[place] for place in places)

    def _pipelines_s(self, gpu_pr: IntArray, layers_ps: IntArray, enough_p: FloatArray, count: Count) -> FloatArray:
        """Bounds of pipelines with these types of ranks and layers of stages, and the update of all ranks."""
        fewest, most = _moe_layers(self.context, layers_ps)
        whole, gpu_ps = layers_ps.sum(axis=1) == self.context.job.num_layers, gpu_pr[:, self._layout.rank_of_s]
        costs = _stage_costs(self.gpus, gpu_ps, layers_ps, (fewest, most))
        of_rank, ends_r = self._layout.is_of_rank, _ends(np.arange(gpu_pr.shape[1]), self._layout.rank_of_s)
        budget_pr, update_p = self._ranks.memory_and_update(
            gpu_pr, ends_r, (layers_ps - most) @ of_rank, fewest @ of_rank
        )
        held_pr = costs[PIPELINE_COSTS.index("activation_bytes")] @ of_rank
        found = np.where((held_pr > budget_pr * (1.0 + ROUNDING)).any(axis=1), np.inf, 0.0)
        rows = np.flatnonzero(found == 0.0)
        if not len(rows):
            return found
        exposed = np.zeros(layers_ps.shape)
        exposed[whole] = self._ranks.exposed_s(
            gpu_ps[whole], self._layout.ends_s, (layers_ps - fewest)[whole], fewest[whole]
        )
        each = self._alike(gpu_pr, costs, np.maximum(held_pr, budget_pr), exposed)
        each = AlikePipelines(*(column[rows] for column in each))
        limits = enough_p[rows] - update_p[rows]
        found[rows] = makespan_bounds(self._shape, each, limits)
        for place in np.flatnonzero(found[rows] < limits).tolist():
            row, shape = rows[place], each.at(self._shape, place)
            found[row] = max(found[row], self._hops_by_type.shared_links_s(gpu_pr[row], shape))
            if whole[row] and found[row] < limits[place]:
                ranks = self._partition_ranks(gpu_pr[row], layers_ps[row], fewest[row], shape)
                for crossings in self.crossings:
                    found[row] = crossings.least_s(ranks, (found[row], limits[place]), count)
        return found + update_p

    def _partition_ranks(
        self, gpu_r: IntArray, layers_s: IntArray, moe_s: IntArray, shape: PipelineShape
    ) -> PipelineRanks:
        """What lying over two groups takes of one of the pipelines depends on this."""
        plain_s = self._hops_by_type.of_stages(self._hops_by_type.plain_s, gpu_r[None])[0]
        asked = gpu_r[self._layout.rank_of_s], self._layout.ends_s, layers_s - moe_s, moe_s
        sent_s, overlap_s = self._ranks.sent_and_overlap(*asked).T
        return PipelineRanks(gpu_r, shape, plain_s, sent_s, overlap_s)

    @cached_property
    def crossings(self) -> list[GroupCrossings]:
        """Over every cut of two groups: of each partition those over more take too long to be worth it."""
        some, types = (self.context, self.configurations), [gpu.names for gpu in self.gpus]
        is_cut = self.configurations[0].degrees.pp > 1
        over_two = [cut for cut in cuts(self.context) if is_cut and len(cut.rate_g) == 2]
        return [GroupCrossings.of(*some, cut, types, self.hops.hop_s) for cut in over_two]

    @cached_property
    def _shape(self) -> PipelineShape:
        """What all the pipelines have in common; times and bytes are their own."""
        first, nothing = self.configurations[0], np.zeros(len(self._layout.rank_of_s))
        duration_ks = np.zeros((2 if backward_of(self.context.request) == "fused" else 3, len(nothing)))
        return PipelineShape.without_links(
            first.num_microbatches,
            self._layout.rank_of_s,
            duration_ks,
            nothing,
            nothing,
            activation_s=nothing,
            context_s=nothing,
            budget_r=np.zeros(first.degrees.pp),
        )

    def _alike(
        self, gpu_pr: IntArray, costs: Sequence[FloatArray], budget_pr: FloatArray, sync_ps: FloatArray
    ) -> AlikePipelines:
        """The pipelines with these costs of stages, messages and exchanges."""
        forward, gradient, weights, activation, context = costs
        fused = self._shape.num_kinds == 2
        rows = [forward, gradient + weights] if fused else [forward, gradient, weights]
        return AlikePipelines(
            duration_pks=np.stack(rows, axis=1),
            latency_ps=self._hops_by_type.of_stages(self._hops_by_type.least_s, gpu_pr),
            activation_ps=activation,
            context_ps=np.zeros(context.shape) if fused else np.minimum(context, activation),
            budget_pr=budget_pr,
            sync_ps=sync_ps,
        )


@dataclass(frozen=True)
class _Layout:
    """Which stages (s) the pipeline ranks of a configuration have."""

    configuration: Configuration

    @cached_property
    def rank_of_s(self) -> IntArray:
        return np.array(self.configuration.rank_of_stages)

    @cached_property
    def stages_of_ranks(self) -> list[list[int]]:
        ranks = range(self.configuration.degrees.pp)
        return [self.configuration.stages_of_rank(rank) for rank in ranks]

    @cached_property
    def chunks_of_ranks(self) -> list[tuple[int, int | None, int | None]]:
        """Of every rank: how many stages it has, and which of them are the first and the last of the pipeline."""
        found = []
        for own in self.stages_of_ranks:
            first, last = (own.index(end) if end in own else None for end in (0, len(self.rank_of_s) - 1))
            found.append((len(own), first, last))
        return found

    @cached_property
    def place_of_s(self) -> Sequence[int]:
        """Where each stage stands in the stages of all ranks, rank after rank."""
        places: list[int] = np.argsort(list(itertools.chain.from_iterable(self.stages_of_ranks))).tolist()
        return places

    @cached_property
    def ends_s(self) -> IntArray:
        stages = np.arange(len(self.rank_of_s))
        return _ends(stages, stages)

    @cached_property
    def is_of_rank(self) -> IntArray:
        """Stages x ranks: 1 where the stage is one of the rank's."""
        return np.eye(self.configuration.degrees.pp, dtype=np.int64)[self.rank_of_s]


def _moe_layers(context: Context, layers_ps: IntArray) -> FewestMost:
    """Fewest and most MoE layers of every stage: where layers are missing it may begin later by so many."""
    before, num_layers = context.moe_before, context.job.num_layers
    ends = np.cumsum(layers_ps, axis=1)
    starts, missing = ends - layers_ps, num_layers - ends[:, -1:]
    fewest = most = before[ends] - before[starts]
    for later in range(1, int(missing.max(initial=0)) + 1):
        by = np.minimum(later, missing)
        among = before[ends + by] - before[starts + by]
        fewest, most = np.minimum(fewest, among), np.maximum(most, among)
    return fewest, most


def _stage_costs(gpus: Sequence[Kind], gpu_ps: IntArray, layers_ps: IntArray, moe: FewestMost) -> list[FloatArray]:
    """The `PIPELINE_COSTS` of all stages on these types at their least, with the fewest or the most MoE layers."""
    stages, found = np.arange(layers_ps.shape[1]), []
    at = gpu_ps, np.arange(len(gpu_ps))[:, None], stages
    embedding, logits = (np.where(stages == end, 1.0, 0.0) for end in (0, layers_ps.shape[1] - 1))
    for number in moe if (moe[0] < moe[1]).any() else moe[:1]:
        of_each = [kind.least.of(layers_ps - number, number, embedding=embedding, logits=logits) for kind in gpus]
        found.append([np.stack([getattr(one, name) for one in of_each])[at] for name in PIPELINE_COSTS])
    return [np.minimum.reduce(same) for same in zip(*found, strict=True)]


def _ends(numbers: IntArray, of_stages: IntArray) -> IntArray:
    """Of ranks or stages: 2 for the one of the first stage, and 1 more for the one of the last."""
    return np.asarray(2 * (numbers == of_stages[0]) + (numbers == of_stages[-1]))


@dataclass(frozen=True)
class _HopsByType:
    """Messages from the ranks on each GPU type to those on each other one: a field of `TypeHop` is types x types."""

    least_s: FloatArray
    plain_s: FloatArray
    after_s: FloatArray
    all_s: FloatArray
    rank_of_s: IntArray

    def of_stages(self, seconds: FloatArray, gpu_pr: IntArray) -> FloatArray:
        """These times of the messages from every stage to the next, by pipeline; 0 on the same rank."""
        here, there = self.rank_of_s[:-1], self.rank_of_s[1:]
        found = np.zeros((len(gpu_pr), len(self.rank_of_s)))
        found[:, :-1] = np.where(here != there, seconds[gpu_pr[:, here], gpu_pr[:, there]], 0.0)
        return found

    def shared_links_s(self, gpu_r: IntArray, shape: PipelineShape) -> float:
        """What messages of all replicas take over the links from the places of one type to those of another."""
        gpu_s = gpu_r[self.rank_of_s]
        here, there = gpu_s[:-1], gpu_s[1:]
        over = np.flatnonzero((here != there) & (self.all_s[here, there] > 0))
        if not len(over):
            return 0.0
        here, there, num_stages = here[over], there[over], len(gpu_s)
        links, all_s, after_s = np.full((2, num_stages), NO_CHANNEL), np.zeros((2, num_stages)), np.zeros(num_stages)
        links[:, over] = here * len(self.all_s) + there, there * len(self.all_s) + here
        all_s[:, over], after_s[over] = (self.all_s[here, there], self.all_s[there, here]), self.after_s[here, there]
        plain = replace(shape, latency_s=self.of_stages(self.plain_s, gpu_r[None])[0])
        return shared_links_bound(plain, SharedLinks(links[0], links[1], all_s[0], all_s[1], after_s))


@dataclass(frozen=True)
class _RanksByType:
    """Ranks on each of the GPU types, for many at once: by type, ends, dense and MoE layers, in columns."""

    of_type: Sequence[_TypedRanks]
    most_layers: int

    def memory_and_update(
        self, gpu_pr: IntArray, ends_r: IntArray, dense_pr: IntArray, moe_pr: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Most memory that is left for activations (bytes) of every rank, and the longest least update (seconds)."""
        asked = np.stack([gpu_pr, np.broadcast_to(ends_r, gpu_pr.shape), dense_pr, moe_pr])
        found = self._of_each(asked, lambda ranks, at, dense, moe: ranks.memory_and_update(at, dense, moe))
        return found[..., 0], found[..., 1].max(axis=1)

    def exposed_s(self, gpu_ps: IntArray, ends_s: IntArray, dense_ps: IntArray, moe_ps: IntArray) -> FloatArray:
        """Least exchange of every stage beyond what overlaps."""
        asked = np.stack([gpu_ps, np.broadcast_to(ends_s, gpu_ps.shape), dense_ps, moe_ps])
        return self._of_each(asked, lambda ranks, at, dense, moe: ranks.exposed_s(at, dense, moe))

    def sent_and_overlap(self, gpu_s: IntArray, ends_s: IntArray, dense_s: IntArray, moe_s: IntArray) -> FloatArray:
        """Of every stage the fewest bytes that it sends out of a place, and the most of an exchange that overlaps."""
        asked = np.stack([gpu_s, ends_s, dense_s, moe_s])
        return self._of_each(asked, lambda ranks, at, dense, moe: ranks.sent_and_overlap(at, dense, moe))

    def _of_each(self, asked: IntArray, value: Callable[[_TypedRanks, Ends, int, int], object]) -> FloatArray:
        """The value of ranks on a type with these ends, dense and MoE layers (4 x ...); of equal ones once."""
        sizes = len(self.of_type), 4, self.most_layers + 1, self.most_layers + 1
        codes, where = np.unique(np.ravel_multi_index(tuple(asked), sizes), return_inverse=True)
        each = zip(*(one.tolist() for one in np.unravel_index(codes, sizes)), strict=True)
        found = [value(self.of_type[gpu], (at >= 2, at % 2 == 1), dense, moe) for gpu, at, dense, moe in each]
        return np.array(found)[where.reshape(asked.shape[1:])]


@dataclass(frozen=True)
class _TypedRanks:
    """Ranks on a GPU type, or on several that count as one, by what they have; all that was asked for is remembered.

    `costs` are those by which every configuration shares out the layers of a rank.
    """

    kind: Kind
    costs: Sequence[TypeCost]
    known: dict[tuple[object, ...], Any] = field(default_factory=dict)

    def chunks(
        self, num_layers: int, num_chunks: int, first: int | None, last: int | None
    ) -> tuple[tuple[int, ...], ...]:
        """Layers of the chunks of a rank, one for each way of a configuration to share them out.

        `first` and `last` are the chunks with the embedding and the logits.
        """
        key = "chunks", num_layers, num_chunks, first, last
        if key not in self.known:
            ways = dict[tuple[int, ...], None]()
            for cost in self.costs:
                ends_s = [
                    cost.first_s * (chunk == first) + cost.last_s * (chunk == last) for chunk in range(num_chunks)
                ]
                ways[chunk_layers(num_layers, cost.layer_s, ends_s)] = None
            self.known[key] = tuple(ways)
        found: tuple[tuple[int, ...], ...] = self.known[key]
        return found

    def memory_and_update(self, at: Ends, dense: float, moe: float) -> tuple[float, float]:
        """Most memory that so many layers and ends leave for activations (bytes), and their least update (seconds)."""
        key = "rank", at, dense, moe
        if key not in self.known:
            context, left, updates = self.kind.context, [], []
            for price in self.kind.prices:
                cost = price.of(dense, moe, embedding=float(at[0]), logits=float(at[1]))
                both = cost.parameters, cost.expert_parameters
                static = price.static_bytes(*both, has_logits=float(at[1]))
                left.append(context.memory_limit_bytes(price.gpu_class.gpu) - float(static.min()))
                updates.append(float(price.update_s(*both).min()))
            self.known[key] = max(left), min(updates)
        found: tuple[float, float] = self.known[key]
        return found

    def exposed_s(self, at: Ends, dense: int, moe: int) -> float:
        """Least exchange of a stage inside a place, beyond the most that it has of a head start."""
        key = "stage", at, dense, moe
        if key not in self.known:
            context, exchanges, work = self.kind.context, [], []
            for one in self.kind.costs:
                cost = one.price.of(dense, moe, embedding=float(at[0]), logits=float(at[1]))
                exchanged = stage_exchange_s(self.kind, one, cost.parameters, cost.expert_parameters)
                exchanges.append(float(exchanged.min()))
                work.append(float(cost.total_s.max()))
            self.known[key] = max(min(exchanges) - context.stack.data_parallel_overlap.value * max(work), 0.0)
        found: float = self.known[key]
        return found

    def sent_and_overlap(self, at: Ends, dense: int, moe: int) -> tuple[float, float]:
        """Fewest bytes that a stage sends out of a place, over two or more, and the most seconds that overlap."""
        key = "sent", at, dense, moe
        if key not in self.known:
            context, sent, work = self.kind.context, [], []
            for one in self.kind.costs:
                cost = one.price.of(dense, moe, embedding=float(at[0]), logits=float(at[1]))
                parameters = group_parameters(cost.parameters[:, 0], cost.expert_parameters[:, 0], one.columns)
                sent.append(float(crossing_bytes(parameters, one.columns, 2, context.job).min()))
                work.append(float(cost.total_s.max()))
            self.known[key] = min(sent), context.stack.data_parallel_overlap.value * max(work)
        found: tuple[float, float] = self.known[key]
        return found
