"""A bound of configurations with layers by GPU type: the pipelines of all partitions that the partition bound leaves.

A partition gives every pipeline rank a GPU type and a number of layers; of the layers of a rank the rule for its chunks
makes stages, so its pipeline is known but for where it is placed. With every cost at its least over that, the bound of
one pipeline holds for it. The least over all partitions bounds the configuration. Proof: docs/bounds.md, "Pipelines of
partitions".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from models.plan import Configuration
from solver.arrays import FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.bounds.kind_costs import Ends, Kind
from solver.bounds.least_hops import MessageDelays, TypeHops
from solver.bounds.stage_partition import (
    kinds_of,
    least_time_s,
    partition_problem,
    partition_states,
    partitions_up_to,
)
from solver.bounds.stage_partition_kernel import PartitionProblem
from solver.bounds.synchronisation import least_exchange_s
from solver.clock import WORK_PER_OPERATION_S, Clock, charge
from solver.configurations.by_type import chunk_layers
from solver.configurations.framework import backward_of
from solver.configurations.pricing import kinds, moe_before
from solver.context import Context
from solver.cost.columns import columns_of
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import StageCost
from solver.pipeline.bounds import makespan_bound
from solver.pipeline.problem import NO_CHANNEL, PipelineShape

STEP = 0.01  # of the time proven so far: how far the next partitions may be beyond it
LEAST_STEP = 0.002  # where there are too many partitions for more
BEYOND = 0.05  # of a time: how far beyond it a pipeline is bounded at once
MOST_PIPELINES = 320  # of one configuration: a pipeline takes about a millisecond
WORK_PER_PIPELINE_BOUND_S = 5e-4  # of one, beside its operations
PIPELINE_COSTS = ("forward_s", "input_grad_s", "weight_grad_s", "activation_bytes", "weight_grad_context_bytes")
Partition = tuple[tuple[int, ...], tuple[int, ...]]  # GPU type and layers of every rank


def partition_pipelines_bound_s(
    context: Context, configurations: Sequence[Configuration], low_s: float, high_s: float, clock: Clock
) -> float:
    """The largest time up to `high_s` (seconds) that is impossible for all of these, alike but for sharding.

    Not below what the partition bound finds. Every price is the least of these configurations.
    """
    gpus = kinds_of(context, [columns_of(one) for one in configurations])
    delays = MessageDelays.of(context, configurations)
    problem = partition_problem(configurations[0], gpus, delays)
    limit_s = least_time_s(problem, low_s, high_s)
    if limit_s >= high_s:
        return high_s
    pipelines = PartitionPipelines(context, configurations, gpus, TypeHops.of(context, configurations))
    return _least_of_all(problem, _PipelineBounds(pipelines, high_s, clock), limit_s)


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


def _least_of_all(problem: PartitionProblem, bounds: _PipelineBounds, limit_s: float) -> float:
    """Raise a limit that is impossible until a pipeline keeps within it, or as many were bounded as may be."""
    states, step = partition_states(problem), STEP
    while limit_s < bounds.high_s and step >= LEAST_STEP:
        next_s = min(limit_s * (1.0 + step), bounds.high_s)
        found = partitions_up_to(problem, states, next_s, MOST_PIPELINES)
        if found is None:
            step /= 2.0
            continue
        least_s = next_s
        for gpu_r, layers_r, need_s in zip(found.gpu.tolist(), found.layers.tolist(), found.need_s, strict=True):
            need_s = float(need_s) * (1.0 - ROUNDING)
            if need_s >= least_s:
                break
            bound_s = bounds.of((tuple(gpu_r), tuple(layers_r)), least_s)
            if bound_s is None:
                return max(limit_s, min(least_s, need_s))
            least_s = min(least_s, max(bound_s, need_s))
        limit_s = max(limit_s, least_s)
        if least_s < next_s:
            break
    return limit_s


@dataclass(frozen=True)
class PartitionPipelines:
    """Pipelines of configurations that are alike, by GPU type and layers of every rank; `gpus` are the types."""

    context: Context
    configurations: Sequence[Configuration]
    gpus: Sequence[Kind]
    hops: TypeHops

    def bound_s(self, partition: Partition, enough_s: float) -> float:
        """No plan with this partition takes less (seconds); infinite where memory holds no micro-batch.

        The bound need not go beyond `enough_s`.
        """
        gpu_r, layers_r = partition
        return min(
            (self._pipeline_s(np.array(gpu_r), layers, enough_s) for layers in self._stages(gpu_r, layers_r)),
            default=float("inf"),
        )

    @property
    def num_operations(self) -> int:
        """Of each of the pipelines."""
        first = self.configurations[0]
        kinds_of_operation = 2 if backward_of(self.context.request) == "fused" else 3
        return kinds_of_operation * first.degrees.num_stages * first.num_microbatches

    def _stages(self, gpu_r: Sequence[int], layers_r: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The layers of all stages, by every sharing of a rank's layers over its chunks that one of these has."""
        stages_r = self._stages_r
        for chosen in itertools.product(*(self._chunks(r, gpu_r[r], n) for r, n in enumerate(layers_r))):
            layers = [0] * sum(map(len, stages_r))
            for own, shares in zip(stages_r, chosen, strict=True):
                for stage, count in zip(own, shares, strict=True):
                    layers[stage] = count
            yield tuple(layers)

    @cached_property
    def _stages_r(self) -> list[Sequence[int]]:
        first = self.configurations[0]
        return [first.stages_of_rank(rank) for rank in range(first.degrees.pp)]

    @cached_property
    def _known(self) -> dict[tuple[object, ...], tuple[float, float]]:
        """Memory and update of ranks, and exchanges of stages, by what they hold."""
        return {}

    @cached_property
    def _known_chunks(self) -> dict[tuple[int, Ends, int], tuple[tuple[int, ...], ...]]:
        return {}

    def _chunks(self, rank: int, gpu: int, num_layers: int) -> tuple[tuple[int, ...], ...]:
        """Layers of the chunks of a rank, one for each way that they may be shared out."""
        own, last_stage = self._stages_r[rank], self.configurations[0].degrees.num_stages - 1
        key = gpu, (0 in own, last_stage in own), num_layers
        if key not in self._known_chunks:
            found = dict[tuple[int, ...], None]()
            for layer_s, first_s, last_s in self._layer_and_ends[gpu]:
                ends_s = [first_s * (stage == 0) + last_s * (stage == last_stage) for stage in own]
                found[chunk_layers(num_layers, layer_s, ends_s)] = None
            self._known_chunks[key] = tuple(found)
        return self._known_chunks[key]

    @cached_property
    def _layer_and_ends(self) -> list[list[tuple[float, float, float]]]:
        """By type, of every configuration: an average layer, the embedding and the logits (seconds)."""
        num_layers, found = self.context.job.num_layers, []
        for kind in self.gpus:
            own = set[tuple[float, float, float]]()
            for name in {price.gpu_class.gpu.name for price in kind.prices}:
                prices = [price for price in kind.prices if price.gpu_class.gpu.name == name]
                parts = [price.of(*kinds(self.context, 0, num_layers)).total_s / num_layers for price in prices]
                slowest = np.argmax(np.hstack(parts), axis=1)
                for ends in ({"embedding": 1.0}, {"logits": 1.0}):
                    parts += [price.of(0, 0, **ends).total_s for price in prices]
                columns = np.hstack(parts)
                for row, place in enumerate(slowest.tolist()):
                    layer_s, first_s, last_s = columns[row, place :: len(prices)].tolist()
                    own.add((layer_s, first_s, last_s))
            found.append(sorted(own))
        return found

    def _pipeline_s(self, gpu_r: IntArray, layers: tuple[int, ...], enough_s: float) -> float:
        """The bound of the pipeline with these types of ranks and layers of stages, and the update of all ranks."""
        first = self.configurations[0]
        num_stages, rank_of_s = first.degrees.num_stages, np.array(first.rank_of_stages)
        gpu_s, starts = gpu_r[rank_of_s], np.cumsum([0, *layers])
        moe = np.diff(self._moe_before[starts])
        dense = np.array(layers) - moe
        costs = [self._stage_costs(gpu, dense, moe) for gpu in range(len(self.gpus))]
        forward, gradient, weights, activation, context = (
            np.stack([getattr(cost, name) for cost in costs])[gpu_s, np.arange(num_stages)] for name in PIPELINE_COSTS
        )
        budget_r, update_r = self._ranks(gpu_r, rank_of_s, dense, moe)
        held_r = np.bincount(rank_of_s, activation, minlength=len(gpu_r))
        if (held_r > budget_r * (1.0 + ROUNDING)).any():
            return float("inf")
        fused = backward_of(self.context.request) == "fused"
        rows = [forward, gradient + weights] if fused else [forward, gradient, weights]
        none = np.full(num_stages, NO_CHANNEL)
        shape = PipelineShape(
            num_microbatches=first.num_microbatches,
            num_stages=num_stages,
            num_ranks=len(gpu_r),
            num_kinds=len(rows),
            rank_of_s=rank_of_s,
            duration_ks=np.stack(rows),
            latency_s=self._hops_s(gpu_s, rank_of_s),
            transfer_s=np.zeros(num_stages),
            activation_channel_s=none,
            gradient_channel_s=none,
            activation_s=activation,
            context_s=np.zeros(num_stages) if fused else np.minimum(context, activation),
            budget_r=np.maximum(held_r, budget_r),
            sync_s=self._exposed_s(gpu_s, dense, moe),
            sync_link_s=none,
            link_names=(),
        )
        update_s = float(update_r.max())
        return update_s + makespan_bound(shape, enough_s - update_s)

    @cached_property
    def _moe_before(self) -> IntArray:
        return moe_before(self.context)

    def _stage_costs(self, gpu: int, dense: IntArray, moe: IntArray) -> StageCost:
        """Of all stages at their least, as if each were on this type."""
        ends = np.arange(len(dense))
        embedding, logits = (np.where(ends == end, 1.0, 0.0) for end in (0, len(dense) - 1))
        return self.gpus[gpu].least.of(dense, moe, embedding=embedding, logits=logits)

    def _hops_s(self, gpu_s: IntArray, rank_of_s: IntArray) -> FloatArray:
        """Least message from every stage to the next."""
        hops = np.zeros(len(gpu_s))
        names = [kind.names for kind in self.gpus]
        for stage, (here, there) in enumerate(itertools.pairwise(gpu_s.tolist())):
            if rank_of_s[stage] != rank_of_s[stage + 1]:
                hops[stage] = self.hops.least_s(names[here], names[there])
        return hops

    def _ranks(
        self, gpu_r: IntArray, rank_of_s: IntArray, dense: IntArray, moe: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Most memory that is left for activations (bytes), and least update (seconds), of every rank."""
        held = np.array([np.bincount(rank_of_s, count, minlength=len(gpu_r)) for count in (dense, moe)])
        found = []
        for rank, gpu in enumerate(gpu_r.tolist()):
            at = bool(rank == rank_of_s[0]), bool(rank == rank_of_s[-1])
            key = gpu, at, float(held[0, rank]), float(held[1, rank])
            if key not in self._known:
                self._known[key] = self._rank(*key)
            found.append(self._known[key])
        budget_r, update_r = np.array(found).T
        return budget_r, update_r

    def _rank(self, gpu: int, at: Ends, dense: float, moe: float) -> tuple[float, float]:
        context, found = self.context, []
        for price in self.gpus[gpu].prices:
            cost = price.of(dense, moe, embedding=float(at[0]), logits=float(at[1]))
            static = price.static_bytes(cost.parameters, cost.expert_parameters, has_logits=float(at[1]))
            update = optimizer_s(
                cost.parameters,
                cost.expert_parameters,
                price.columns,
                gpu=price.gpu_class.gpu,
                stack=context.stack,
                job=context.job,
            )
            left = context.memory_limit_bytes(price.gpu_class.gpu) - float(static.min())
            found.append((left, float(update.min())))
        return max(left for left, _ in found), min(update for _, update in found)

    def _exposed_s(self, gpu_s: IntArray, dense: IntArray, moe: IntArray) -> FloatArray:
        """Least exchange of every stage beyond what overlaps."""
        exposed, last = np.zeros(len(gpu_s)), len(gpu_s) - 1
        for stage, gpu in enumerate(gpu_s.tolist()):
            key = gpu, (stage == 0, stage == last), int(dense[stage]), int(moe[stage]), "exchange"
            if key not in self._known:
                self._known[key] = self._exchange_and_overlap_s(gpu, key[1], int(dense[stage]), int(moe[stage]))
            exchange_s, overlap_s = self._known[key]
            exposed[stage] = max(exchange_s - overlap_s, 0.0)
        return exposed

    def _exchange_and_overlap_s(self, gpu: int, at: Ends, dense: int, moe: int) -> tuple[float, float]:
        """Least exchange of a stage inside a place, and the most that it has of a head start."""
        context, kind, exchanges, overlaps = self.context, self.gpus[gpu], [], []
        for one in kind.costs:
            cost = one.price.of(dense, moe, embedding=float(at[0]), logits=float(at[1]))
            exchanged = least_exchange_s(
                context,
                one.columns,
                one.price.gpu_class.fabric,
                dense=cost.parameters,
                experts=cost.expert_parameters,
                num_places=kind.num_places,
            )
            exchanges.append(float(exchanged.min()))
            overlaps.append(float(cost.total_s.max()))
        return min(exchanges), context.stack.data_parallel_overlap.value * max(overlaps)
