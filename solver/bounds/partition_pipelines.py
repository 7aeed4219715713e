"""A bound of configurations with layers by GPU type: the pipelines of all partitions that the partition bound leaves.

A partition gives every pipeline rank a GPU type and a number of layers; of the layers of a rank the rule for its chunks
makes stages, so its pipeline is known but for where it is placed. With every cost at its least over that, the bound of
one pipeline holds for it. The least over all partitions bounds the configuration. Proof: docs/bounds.md, "Pipelines of
partitions".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from models.plan import Configuration
from solver.arrays import FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.bounds.kind_costs import Ends, Kind, places_with
from solver.bounds.least_hops import MessageDelays, TypeHop, TypeHops
from solver.bounds.stage_partition import (
    kinds_of,
    least_time_s,
    partition_problem,
    partition_states,
    partitions_up_to,
)
from solver.bounds.stage_partition_kernel import PartitionProblem, Partitions
from solver.bounds.synchronisation import least_exchange_s
from solver.clock import WORK_PER_OPERATION_S, WORK_PER_PIPELINE_BOUND_S, Clock, charge
from solver.configurations.by_type import TypeCost, chunk_layers, type_costs
from solver.configurations.framework import backward_of
from solver.context import Context
from solver.cost.columns import columns_of
from solver.cost.optimizer import optimizer_s
from solver.pipeline.bounds import SharedLinks, makespan_bound, shared_links_bound
from solver.pipeline.problem import NO_CHANNEL, PipelineShape

STEP = 0.01  # of the time that matters: how far the next partitions may be beyond what is proven so far
LEAST_STEP = 0.002  # where there are too many partitions for more
BEYOND = 0.05  # of a time: how far beyond it a pipeline is bounded at once
FEWEST_TOGETHER = 4  # partitions on the same GPU types, from which on they are bounded together first
MOST_PARTITIONS = 4_096  # within a time
MOST_PIPELINES = 128  # of one configuration: a pipeline takes about a millisecond
PIPELINE_COSTS = ("forward_s", "input_grad_s", "weight_grad_s", "activation_bytes", "weight_grad_context_bytes")
MOST_BEST = 2  # partitions of a configuration that are worth placing
TypedLayers = tuple[tuple[str, ...], tuple[int, ...]]  # GPU type of every rank and layers of every stage
Partition = tuple[tuple[int, ...], tuple[int, ...]]  # GPU type and layers of every rank


def partition_pipelines_bound_s(
    context: Context, configurations: Sequence[Configuration], high_s: float, clock: Clock
) -> float:
    """The largest time up to `high_s` (seconds) that is impossible for all of these, alike but for sharding.

    Not below what the partition bound finds. Every price is the least of these configurations. Of a configuration alone
    the partitions with the least bounds are remembered for `best_partitions`.
    """
    bound_s, best = _searched(context, configurations, high_s, clock)
    if best and len(configurations) == 1:
        context.known.partitions.once(configurations[0], lambda: best)
    return bound_s


def best_partitions(
    context: Context, configuration: Configuration, high_s: float, clock: Clock
) -> Sequence[TypedLayers]:
    """The partitions with the least bounds that are known of a configuration, or else of those below `high_s`."""
    return context.known.partitions.once(configuration, lambda: _searched(context, [configuration], high_s, clock)[1])


def _searched(
    context: Context, configurations: Sequence[Configuration], high_s: float, clock: Clock
) -> tuple[float, Sequence[TypedLayers]]:
    """The bound, and what `best_partitions` says."""
    gpus = kinds_of(context, [columns_of(one) for one in configurations])
    delays = MessageDelays.of(context, configurations)
    problem = partition_problem(configurations[0], gpus, delays)
    limit_s = least_time_s(problem, high_s)
    if limit_s >= high_s:
        return high_s, ()
    bounds = _PipelineBounds(PartitionPipelines.of(context, configurations, gpus), high_s, clock)
    bound_s = _least_of_all(problem, bounds, limit_s)
    return bound_s, bounds.best()


@dataclass
class _PipelineBounds:
    """Bounds of the pipelines of partitions (seconds), each worked out as far as it was asked for."""

    pipelines: PartitionPipelines
    high_s: float
    clock: Clock
    known: dict[Partition, tuple[float, float]] = field(default_factory=dict)  # the bound, and what was enough
    num_left: int = MOST_PIPELINES

    def of(self, partition: Partition, enough_s: float) -> float | None:
        """The bound, or as much of it as is enough; None where no more may be worked out."""
        bound_s, so_far_s = self.known.get(partition, (0.0, 0.0))
        if bound_s >= enough_s or bound_s < so_far_s:
            return bound_s
        if not self.num_left:
            return None
        self.num_left -= 1
        charge(self.clock, WORK_PER_PIPELINE_BOUND_S + WORK_PER_OPERATION_S * self.pipelines.num_operations)
        so_far_s = self.high_s if so_far_s else min(enough_s * (1.0 + BEYOND), self.high_s)
        self.known[partition] = self.pipelines.bound_s(partition, so_far_s), so_far_s
        return self.known[partition][0]

    def best(self) -> Sequence[TypedLayers]:
        """Those with the least bounds, where every rank is on one type."""
        pipelines, found = self.pipelines, list[TypedLayers]()
        whole = [one for one in self.known if sum(one[1]) == pipelines.context.job.num_layers]
        for partition in sorted(whole, key=lambda one: self.known[one][0])[:MOST_BEST]:
            names = [pipelines.gpus[gpu].names for gpu in partition[0]]
            if all(len(one) == 1 for one in names):
                types = tuple(name for one in names for name in one)
                found.append((types, next(pipelines.stages(*partition))))
        return tuple(found)


def _least_of_all(problem: PartitionProblem, bounds: _PipelineBounds, limit_s: float) -> float:
    """Raise a limit that is impossible until a pipeline keeps within it, or as many were bounded as may be."""
    states, step = partition_states(problem), STEP
    while limit_s < bounds.high_s and step >= LEAST_STEP:
        next_s = min(limit_s + step * bounds.high_s, bounds.high_s)
        found = partitions_up_to(problem, states, next_s, MOST_PARTITIONS)
        if found is None:
            step /= 2.0
            continue
        limit_s = max(limit_s, _least_of(_without_late_types(found, bounds, next_s), bounds, next_s))
        if limit_s < next_s:
            break
    return limit_s


def _without_late_types(found: Partitions, bounds: _PipelineBounds, limit_s: float) -> Partitions:
    """Less those whose GPU types are too late even where every rank has the fewest layers of all of them."""
    is_late = np.zeros(len(found.need_s), dtype=np.bool_)
    for gpu_r in np.unique(found.gpu, axis=0):
        own = (found.gpu == gpu_r).all(axis=1)
        if own.sum() >= FEWEST_TOGETHER:
            together = tuple(gpu_r.tolist()), tuple(found.layers[own].min(axis=0).tolist())
            bound_s = bounds.of(together, limit_s)
            is_late |= own & (bound_s is not None and bound_s >= limit_s)
    return found.at(np.flatnonzero(~is_late))


def _least_of(found: Partitions, bounds: _PipelineBounds, limit_s: float) -> float:
    """The least bound of the pipelines of these, or `limit_s`: what is known where no more may be worked out."""
    least_s = limit_s
    for gpu_r, layers_r, need_s in zip(found.gpu.tolist(), found.layers.tolist(), found.need_s, strict=True):
        need_s = float(need_s) * (1.0 - ROUNDING)
        if need_s >= least_s:
            break
        bound_s = bounds.of((tuple(gpu_r), tuple(layers_r)), least_s)
        if bound_s is None:
            return min(least_s, need_s)
        least_s = min(least_s, max(bound_s, need_s))
    return least_s


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
        """Of configurations that are alike, on all GPU types of the cluster."""
        if gpus is None:
            gpus = kinds_of(context, [columns_of(one) for one in configurations])
        return cls(context, configurations, gpus, TypeHops.of(context, configurations))

    def bound_s(self, partition: Partition, enough_s: float) -> float:
        """No plan with this partition takes less (seconds); infinite where memory holds no micro-batch.

        Where these are not all layers, no plan whose ranks have as many or more on these types does. The bound need
        not go beyond `enough_s`.
        """
        gpu_r, layers_r = partition
        return min(self._pipeline_s(np.array(gpu_r), layers, enough_s) for layers in self.stages(gpu_r, layers_r))

    @property
    def num_operations(self) -> int:
        """Of each of the pipelines."""
        first = self.configurations[0]
        kinds_of_operation = 2 if backward_of(self.context.request) == "fused" else 3
        return kinds_of_operation * first.degrees.num_stages * first.num_microbatches

    @cached_property
    def _ranks_of_type(self) -> list[_TypedRanks]:
        by_name = [type_costs(self.context, one) for one in self.configurations]
        return [_TypedRanks(kind, [costs[name] for costs in by_name for name in kind.names]) for kind in self.gpus]

    @cached_property
    def _stages_r(self) -> list[Sequence[int]]:
        first = self.configurations[0]
        return [first.stages_of_rank(rank) for rank in range(first.degrees.pp)]

    def stages(self, gpu_r: Sequence[int], layers_r: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The layers of all stages, by every sharing of a rank's layers over its chunks that one of these has."""
        num_stages, ways_r = self.configurations[0].degrees.num_stages, []
        for own, gpu, num_layers in zip(self._stages_r, gpu_r, layers_r, strict=True):
            at = own.index(0) if 0 in own else None, own.index(num_stages - 1) if num_stages - 1 in own else None
            ways_r.append(self._ranks_of_type[gpu].chunks(num_layers, len(own), *at))
        for chosen in itertools.product(*ways_r):
            layers = [0] * num_stages
            for own, shares in zip(self._stages_r, chosen, strict=True):
                for stage, count in zip(own, shares, strict=True):
                    layers[stage] = count
            yield tuple(layers)

    def _pipeline_s(self, gpu_r: IntArray, layers: tuple[int, ...], enough_s: float) -> float:
        """The bound of the pipeline with these types of ranks and layers of stages, and the update of all ranks."""
        rank_of_s, layers_s = np.array(self.configurations[0].rank_of_stages), np.array(layers)
        fewest, most = self._moe_layers(layers_s)
        budget_r, update_r = self._memory_and_update(gpu_r, rank_of_s, layers_s - most, fewest)
        costs = self._stage_costs(gpu_r[rank_of_s], layers_s, fewest, most)
        held_r = np.bincount(rank_of_s, costs[PIPELINE_COSTS.index("activation_bytes")], minlength=len(gpu_r))
        if (held_r > budget_r * (1.0 + ROUNDING)).any():
            return float("inf")
        exposed = np.zeros(len(layers))
        if layers_s.sum() == self.context.job.num_layers:
            exposed = self._exposed_s(gpu_r[rank_of_s], layers_s - fewest, fewest)
        hops, update_s = self._hops(gpu_r, rank_of_s), float(update_r.max())
        least_s = np.array([one.least_s for one in hops])
        shape = self._shape(rank_of_s, costs, np.maximum(held_r, budget_r), least_s, exposed)
        bound_s = makespan_bound(shape, enough_s - update_s)
        if bound_s + update_s < enough_s and any(one.all_s for one in hops):
            plain = replace(shape, latency_s=np.array([one.plain_s for one in hops]))
            bound_s = max(bound_s, shared_links_bound(plain, self._shared_links(gpu_r, rank_of_s)))
        return update_s + bound_s

    def _shape(
        self, rank_of_s: IntArray, costs: Sequence[FloatArray], budget_r: FloatArray, hops: FloatArray, sync: FloatArray
    ) -> PipelineShape:
        """The pipeline with these costs of stages, messages that nothing delays, and exchanges that share nothing."""
        forward, gradient, weights, activation, context = costs
        fused = backward_of(self.context.request) == "fused"
        rows = [forward, gradient + weights] if fused else [forward, gradient, weights]
        none = np.full(len(rank_of_s), NO_CHANNEL)
        return PipelineShape(
            num_microbatches=self.configurations[0].num_microbatches,
            num_stages=len(rank_of_s),
            num_ranks=len(budget_r),
            num_kinds=len(rows),
            rank_of_s=rank_of_s,
            duration_ks=np.stack(rows),
            latency_s=hops,
            transfer_s=np.zeros(len(rank_of_s)),
            activation_channel_s=none,
            gradient_channel_s=none,
            activation_s=activation,
            context_s=np.zeros(len(rank_of_s)) if fused else np.minimum(context, activation),
            budget_r=budget_r,
            sync_s=sync,
            sync_link_s=none,
            link_names=(),
        )

    def _moe_layers(self, layers: IntArray) -> tuple[IntArray, IntArray]:
        """Fewest and most MoE layers of every stage: where layers are missing it may begin later by so many."""
        before, starts = self.context.moe_before, np.cumsum([0, *layers])
        later = np.arange(self.context.job.num_layers - starts[-1] + 1)[:, None]
        among = before[starts[1:] + later] - before[starts[:-1] + later]
        return among.min(axis=0), among.max(axis=0)

    def _stage_costs(self, gpu_s: IntArray, layers: IntArray, fewest: IntArray, most: IntArray) -> list[FloatArray]:
        """The `PIPELINE_COSTS` of all stages on these types at their least, with the fewest or the most MoE layers."""
        stages, found = np.arange(len(layers)), []
        embedding, logits = (np.where(stages == end, 1.0, 0.0) for end in (0, len(layers) - 1))
        for moe in (fewest, most) if (fewest < most).any() else (fewest,):
            of_each = [kind.least.of(layers - moe, moe, embedding=embedding, logits=logits) for kind in self.gpus]
            found.append([np.stack([getattr(one, name) for one in of_each])[gpu_s, stages] for name in PIPELINE_COSTS])
        return [np.minimum.reduce(same) for same in zip(*found, strict=True)]

    def _hops(self, gpu_r: IntArray, rank_of_s: IntArray) -> list[TypeHop]:
        """Least message from every stage to the next."""
        hops = [TypeHop(0.0, 0.0, 0.0, 0.0)] * len(rank_of_s)
        for stage, (here, there) in enumerate(itertools.pairwise(rank_of_s.tolist())):
            if here != there:
                hops[stage] = self._between(gpu_r[here], gpu_r[there])
        return hops

    def _between(self, gpu: int, other: int) -> TypeHop:
        return self.hops.between(self.gpus[gpu].names, self.gpus[other].names)

    def _shared_links(self, gpu_r: IntArray, rank_of_s: IntArray) -> SharedLinks:
        """Links from the places of one type to those of another, for the messages between ranks on them."""
        num_types, num_stages = len(self.gpus), len(rank_of_s)
        links, lengths, after_s = np.full((2, num_stages), NO_CHANNEL), np.zeros((2, num_stages)), np.zeros(num_stages)
        for stage, (here, there) in enumerate(itertools.pairwise(gpu_r[rank_of_s].tolist())):
            ways = self._between(here, there), self._between(there, here)
            if here != there and ways[0].all_s > 0:
                links[:, stage] = here * num_types + there, there * num_types + here
                lengths[:, stage], after_s[stage] = [one.all_s for one in ways], ways[0].after_s
        return SharedLinks(links[0], links[1], lengths[0], lengths[1], after_s)

    def _memory_and_update(
        self, gpu_r: IntArray, rank_of_s: IntArray, dense: IntArray, moe: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Most memory that is left for activations (bytes), and least update (seconds), of every rank."""
        dense_r, moe_r = (np.bincount(rank_of_s, count, minlength=len(gpu_r)).tolist() for count in (dense, moe))
        found = []
        for rank, gpu in enumerate(gpu_r.tolist()):
            at = bool(rank == rank_of_s[0]), bool(rank == rank_of_s[-1])
            found.append(self._ranks_of_type[gpu].memory_and_update(at, dense_r[rank], moe_r[rank]))
        budget_r, update_r = np.array(found).T
        return budget_r, update_r

    def _exposed_s(self, gpu_s: IntArray, dense: IntArray, moe: IntArray) -> FloatArray:
        """Least exchange of every stage beyond what overlaps."""
        last, layers = len(gpu_s) - 1, zip(gpu_s.tolist(), dense.tolist(), moe.tolist(), strict=True)
        return np.array(
            [
                self._ranks_of_type[gpu].exposed_s((stage == 0, stage == last), some_dense, some_moe)
                for stage, (gpu, some_dense, some_moe) in enumerate(layers)
            ]
        )


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
                both, gpu = (cost.parameters, cost.expert_parameters), price.gpu_class.gpu
                static = price.static_bytes(*both, has_logits=float(at[1]))
                update = optimizer_s(*both, price.columns, gpu=gpu, stack=context.stack, job=context.job)
                left.append(context.memory_limit_bytes(gpu) - float(static.min()))
                updates.append(float(update.min()))
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
                exchanged = least_exchange_s(
                    context,
                    one.columns,
                    one.price.gpu_class.fabric,
                    dense=cost.parameters,
                    experts=cost.expert_parameters,
                    num_places=places_with(self.kind),
                )
                exchanges.append(float(exchanged.min()))
                work.append(float(cost.total_s.max()))
            self.known[key] = max(min(exchanges) - context.stack.data_parallel_overlap.value * max(work), 0.0)
        found: float = self.known[key]
        return found
