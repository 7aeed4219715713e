"""Prices of stages under whole columns of configurations: costs of one layer of each kind, added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from solver.arrays import FloatArray, IntArray
from solver.configurations.enumerate import V_FAMILY
from solver.configurations.layers import LayerSplit, split_layers
from solver.context import Context, GpuClass
from solver.cost.columns import FSDP, Columns, joined
from solver.cost.job import Job
from solver.cost.layer import Setting
from solver.cost.memory import static_memory
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import PART_KINDS, StageCost, part_cost, stage_of

Layers = npt.NDArray[np.int64] | npt.NDArray[np.float64] | float | int
PartCosts = tuple[StageCost, StageCost, StageCost, StageCost]
COSTS = tuple(one.name for one in fields(StageCost))


@dataclass(frozen=True)
class StageCosts:
    """Prices stages on one GPU type: a stage costs the sum of its layers and ends.

    `least` stands in for the parts' own costs where the type is not known: see `least_of`.
    """

    context: Context
    gpu_class: GpuClass
    columns: Columns
    least: tuple[StageCost, ...] | None = None

    def of(self, dense: Layers, moe: Layers, *, embedding: Layers = 0.0, logits: Layers = 0.0) -> StageCost:
        """A stage with so many layers of each kind, and the ends."""
        counts = part_counts(self.context.job, dense, moe, embedding, logits)
        some = [place for place, count in enumerate(counts) if count.ndim or count] or [0]
        num_axes = max(counts[place].ndim for place in some)
        summed: FloatArray | float = 0.0
        for place in some:
            costs = self._costs_of_parts[place]
            missing_axes = max(num_axes - (costs.ndim - 1), 0)
            summed = summed + counts[place] * costs.reshape(len(COSTS), *[1] * missing_axes, *costs.shape[1:])
        found = dict(zip(COSTS, np.asarray(summed), strict=True)) | {"boundary_bytes": self._boundary_bytes}
        return StageCost(**found)

    @cached_property
    def parts(self) -> PartCosts:
        """One dense layer, one MoE layer, the embedding, the logits; a kind that the model lacks costs nothing.

        Those of a single configuration are remembered: many configurations share them.
        """
        if self.least is not None:
            return self.least[0], self.least[1], self.least[2], self.least[3]
        if len(self.columns) > 1:
            return self.priced_parts()
        return parts_of_each(self.context, self.gpu_class, [self.columns])[0]

    @cached_property
    def _costs_of_parts(self) -> list[FloatArray]:
        """All costs of every part together: costs by rows."""
        return [np.stack([getattr(part, name) for name in COSTS]) for part in self.parts]

    @cached_property
    def _boundary_bytes(self) -> FloatArray:
        """Of any part: a kind of layer that the model lacks has none."""
        most: FloatArray = np.maximum.reduce([part.boundary_bytes for part in self.parts])
        return most

    @property
    def usual_layer(self) -> StageCost:
        """A layer of the kind that bounds count as one layer: MoE where there are any."""
        return self.parts[1 if self.context.job.num_moe_layers else 0]

    @property
    def other_layer(self) -> StageCost:
        """A layer of the other kind; it costs nothing where the model has none."""
        return self.parts[0 if self.context.job.num_moe_layers else 1]

    def layer_of_each_kind(self) -> list[StageCost]:
        """One layer of each kind that the model has, the usual one first."""
        job = self.context.job
        both = job.num_moe_layers and job.num_dense_layers
        return [self.usual_layer, self.other_layer] if both else [self.usual_layer]

    @cached_property
    def whole(self) -> StageCost:
        """The whole model on one stage group: all layers and both ends."""
        return self.of(*kinds(self.context, 0, self.context.job.num_layers), embedding=1.0, logits=1.0)

    @property
    def _setting(self) -> Setting:
        own = self.gpu_class
        return Setting.of(self.context.job, own.gpu, own.fabric, self.context.stack, self.columns)

    def priced_parts(self) -> PartCosts:
        """The parts of all rows, priced anew."""
        job, profiles, at = self.context.job, self.context.request.workload.layer_profiles, self._setting
        lacking = {"dense": job.num_moe_layers and not job.num_dense_layers, "moe": not job.num_moe_layers}
        parts = [{} if lacking.get(kind) else {kind: part_cost(at, kind, profiles)} for kind in PART_KINDS]
        dense, moe, embedding, logits = (stage_of(one, dict.fromkeys(one, 1.0), len(self.columns)) for one in parts)
        return dense, moe, embedding, logits

    def static_bytes(
        self, parameters: FloatArray, experts: FloatArray, *, has_logits: FloatArray | float = 0.0
    ) -> FloatArray:
        """Model state, buffers and framework on one GPU that holds so many parameters."""
        return static_memory(self._setting, parameters, experts, has_logits=has_logits).total_bytes

    def update_s(self, parameters: FloatArray, experts: FloatArray) -> FloatArray:
        """Optimizer step of one GPU that holds so many parameters (seconds)."""
        job, stack = self.context.job, self.context.stack
        return optimizer_s(parameters, experts, self.columns, gpu=self.gpu_class.gpu, stack=stack, job=job)

    def ends_in_usual_layers(self) -> tuple[FloatArray, FloatArray]:
        """Embedding and logits as multiples of a usual layer's time."""
        ends = self.of(0, 0, embedding=1.0), self.of(0, 0, logits=1.0)
        first, last = (one.total_s / self.usual_layer.total_s for one in ends)
        return first, last

    def end_extras(self) -> tuple[FloatArray, FloatArray]:
        """Embedding, and logits with the multi-token-prediction layers, as multiples of an average layer's time."""
        job = self.context.job
        layer_s = self.of(*kinds(self.context, 0, job.num_layers)).total_s / job.num_layers
        return self.of(0, 0, embedding=1.0).total_s / layer_s, self.of(0, 0, logits=1.0).total_s / layer_s


def part_counts(
    job: Job, dense: Layers, moe: Layers, embedding: Layers, logits: Layers
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """How often a stage has each of `StageCosts.parts`: multi-token prediction rides with logits and repeats them."""
    riding = np.asarray(logits) * job.num_mtp_layers
    rides_moe = job.architecture.is_moe_layer(job.num_layers - 1)
    return (
        np.asarray(dense) + (0.0 if rides_moe else 1.0) * riding,
        np.asarray(moe) + (1.0 if rides_moe else 0.0) * riding,
        np.asarray(embedding),
        np.asarray(logits) * (1.0 + job.num_mtp_layers),
    )


def parts_of_each(context: Context, gpu_class: GpuClass, alike: Sequence[Columns]) -> list[PartCosts]:
    """The parts of configurations of one row each; those that are not remembered are priced together."""

    def price(places: list[int]) -> list[PartCosts]:
        priced = StageCosts(context, gpu_class, joined([alike[place] for place in places])).priced_parts()
        dense, moe, first, last = ([part.take(slice(row, row + 1)) for row in range(len(places))] for part in priced)
        return list(zip(dense, moe, first, last, strict=True))

    return context.known.parts.each([_parts_key(gpu_class, one) for one in alike], price)


def _parts_key(gpu_class: GpuClass, one: Columns) -> tuple[object, ...]:
    """What the parts of one configuration depend on: replicas enter where they hold parts of the weights."""
    columns = (one.tp, one.cp, one.ep, one.micro_batch, one.recompute, one.sharding)
    sharded = (int(one.dp[0]), int(one.shard_group[0])) if one.sharding[0] >= FSDP else ()
    own = tuple(int(column[0]) for column in columns)
    return (gpu_class.gpu.name, gpu_class.fabric, *own, bool(one.pp[0] > 1), *sharded)


def least_of(prices: Sequence[StageCosts]) -> StageCosts:
    """Every part at its least over these GPU types: no stage on any of them costs less in anything."""
    if len(prices) == 1:
        return prices[0]
    parts = tuple(map(least_cost, zip(*(price.parts for price in prices), strict=True)))
    return replace(prices[0], least=parts)


def least_cost(costs: Sequence[StageCost]) -> StageCost:
    """Every cost at its least over these stages, each by itself."""
    return StageCost(**{name: np.minimum.reduce([getattr(one, name) for one in costs]) for name in COSTS})


def kinds(context: Context, start: Layers, stop: Layers) -> tuple[Layers, Layers]:
    """Dense and MoE layers among layers start..stop-1."""
    moe = context.moe_before
    low, high = np.asarray(start, dtype=np.int64), np.asarray(stop, dtype=np.int64)
    num_moe = moe[high] - moe[low]
    return (high - low) - num_moe, num_moe


def moe_among(context: Context) -> tuple[IntArray, IntArray]:
    """Fewest and most MoE layers among 0, 1, 2 ... consecutive layers, wherever these are."""
    before = context.moe_before
    among = [before[count:] - before[: len(before) - count] for count in range(len(before))]
    return np.array([one.min() for one in among]), np.array([one.max() for one in among])


@dataclass(frozen=True)
class Shares:
    """Where each stage begins in the list of layers, for every configuration."""

    columns: Columns
    family: IntArray
    split: LayerSplit
    num_layers: int

    @classmethod
    def of(cls, price: StageCosts, family: IntArray) -> Shares:
        """The split by the ends' extra work on the GPU type that `price` stands for."""
        first_extra, last_extra = price.end_extras()
        columns, total = price.columns, price.context.job.num_layers
        split = split_layers(total, columns.pp * columns.vpp, first_extra=first_extra, last_extra=last_extra)
        return cls(columns, family, split, total)

    def start(self, stage: IntArray) -> IntArray:
        """First layer of a stage; `stage` may be the number of stages, whose start is the number of layers."""
        stages = self.columns.pp * self.columns.vpp
        longer_from = stages - 1 - self.split.num_more
        inner = self.split.first + (stage - 1) * self.split.middle + np.maximum(stage - longer_from, 0)
        begin = np.where(stage <= 0, 0, inner)
        return np.where(stage >= stages, self.num_layers, begin)

    def inner_ranks(self) -> tuple[IntArray, IntArray, IntArray]:
        """Layers of the lighter and of the heavier ranks between the ends, and how many are light.

        Stages from `longer_from` on have one layer more. Round and round that is all chunks from one on, and of the
        ranks from one on the chunk before; in a V the way back or a part of it, and the end of the way forth.
        """
        pp, vpp, inner = self.columns.pp, self.columns.vpp, np.maximum(self.columns.pp - 2, 0)
        longer_from = pp * vpp - 1 - self.split.num_more
        chunk, rank = np.divmod(longer_from, pp)
        folded, forth = self.family == V_FAMILY, longer_from <= pp
        num_light = np.where(forth, longer_from - 1, inner - (2 * pp - 1 - longer_from))
        num_light = np.clip(np.where(folded, num_light, rank - 1), 0, inner)
        most = np.where(folded, np.where(forth, 2, 1), vpp - chunk)
        base = vpp * self.split.middle
        return np.where(num_light > 0, base + most - 1, base + most), base + most, num_light

    @property
    def last_rank(self) -> IntArray:
        """Rank of the last stage: the first of a V, which comes back there."""
        return np.where(self.family == V_FAMILY, 0, self.columns.pp - 1)

    def stage_of(self, chunk: int, rank: IntArray) -> IntArray:
        """Stage that is chunk `chunk` of a rank: round and round, or folding back in a V."""
        pp = self.columns.pp
        forth = chunk * pp + rank
        back = (chunk + 1) * pp - 1 - rank
        return np.where((self.family == V_FAMILY) & (chunk % 2 == 1), back, forth)


def rank_cost(price: StageCosts, shares: Shares, rank: IntArray) -> StageCost:
    """All chunks of a rank together, per micro-batch."""
    columns, context = price.columns, price.context
    dense = np.zeros(len(columns))
    moe = np.zeros(len(columns))
    embedding = np.zeros(len(columns))
    logits = np.zeros(len(columns))
    for chunk in range(int(columns.vpp.max(initial=1))):
        held = chunk < columns.vpp
        stage = shares.stage_of(chunk, rank)
        more_dense, more_moe = kinds(
            context, np.where(held, shares.start(stage), 0), np.where(held, shares.start(stage + 1), 0)
        )
        dense, moe = dense + more_dense, moe + more_moe
        embedding = embedding + np.where(held & (stage == 0), 1.0, 0.0)
        logits = logits + np.where(held & (stage == columns.pp * columns.vpp - 1), 1.0, 0.0)
    return price.of(dense, moe, embedding=embedding, logits=logits)
