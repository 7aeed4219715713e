"""A bound of one configuration over every GPU type and every whole number of layers of each of its ranks.

Owns what a rank with so many layers takes at least on a type, and the proof. The search over partitions is
`stage_partition_kernel.py`. Never places anything.

A time T is possible only if some partition into ranks, a type and layers for each, keeps within all of these, with m
micro-batches, rank r's work y = f + i + w of one of them, and U the forward of the first chunks before r:

- *work*: U + m y + exchange + update <= T. Its first forward waits for U; whatever it does last is a weight gradient
  whose stage then exchanges, less what overlaps.
- *through*: U + m (f + i) + back U: its last input gradient goes back through all first chunks before it; `back` is
  the least quotient of input gradient and forward.
- *late, last, between*: the first forward of its last chunk waits for all chunks but the last of all ranks, and round
  and round for the last ones before it. From there on it has the forwards of that chunk and all gradients to do;
  or those of that chunk, which go all the way back; or all input gradients, which go back through U.
- *early*: no gradient is there before the forward of all stages and the input gradients of the last chunks behind it.
  Until then it has done forwards alone, no more than memory holds. After its last input gradient it has only weight
  gradients left, no more of them than memory holds, and that input gradient goes back through U.
- *trips*, one chunk: with memory for K micro-batches F waits for the input gradient K micro-batches before:
  ceil(m / K) times its own forward and input gradient and those of all ranks behind it, and the weight gradient where
  what it keeps is as large.
- *held*, several chunks: the rank has capacity bytes for T seconds. A chunk's activation is held while it and all later
  chunks of all ranks run, of the same chunk those of later ranks round and round, and then its weight gradient.

Forwards that wait for all ranks, or for all cycles but the last, wait for their messages, too (`least_hops.py`).
Each sum over other ranks is the least of all partitions within T, so they may belong to different ones. Chunks of
a rank take equally long but for one layer, as `by_type.shared_layers` has it: with e layers' worth of an end in it a
chunk counts e layers more, rounded down, and no chunk has fewer than (layers + e) / v rounded down, less its own e, nor
more than that rounded up. Where there are dense and MoE layers only those that count as one are counted; the others may
take their place in a chunk, so heads are shorter by all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from models.plan import Configuration
from solver.bounds.bounded import ROUNDING
from solver.bounds.least_hops import MessageDelays
from solver.bounds.stage_partition_kernel import (
    BEFORE_LAST,
    BOTH,
    NEEDS,
    NUM_SUMS,
    Options,
    PartitionStates,
    least_sums,
)
from solver.bounds.synchronisation import least_exchange_s
from solver.configurations.enumerate import ranks_by_type
from solver.configurations.pricing import StageCosts, kinds, least_of
from solver.context import Context
from solver.cost.columns import Columns, FloatArray, columns_of
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import StageCost

MOST_CELLS = 1_500_000  # of the tables of the search; beyond it types that are much alike count as one
RESOLUTION = 0.002  # of the time asked for: how near the bound comes to what the lines give
NUM_PASSES = 3
SAFETY = 1 - ROUNDING


@dataclass(frozen=True)
class Kind:
    """One GPU type, or several as one: prices by fabric and configuration, and the ranks that it can hold."""

    prices: tuple[StageCosts, ...]
    held: int

    @cached_property
    def least(self) -> StageCosts:
        """Every unit at its least."""
        return least_of(self.prices)

    @cached_property
    def layer(self) -> StageCost:
        """A usual layer at its least."""
        return _layer(self.least)

    @property
    def layer_both_s(self) -> float:
        """Forward and input gradient of a usual layer."""
        return float(self.layer.forward_s[0] + self.layer.input_grad_s[0])

    @cached_property
    def average_s(self) -> tuple[float, ...]:
        """Work of an average layer, by fabric."""
        num_layers = self.least.context.job.num_layers
        whole = [price.of(*kinds(price.context, 0, num_layers)) for price in self.prices]
        return tuple(float(one.total_s[0]) / num_layers for one in whole)

    @cached_property
    def exchange_s(self) -> FloatArray:
        """Least exchange inside a place by layers of a stage, of the kind of layers that has fewer parameters."""
        context, found = self.least.context, []
        names, job = {one.gpu_class.gpu.name for one in self.prices}, context.job
        for price in self.prices:
            dense, moe = price.units[:2]
            own, experts = (moe if job.num_moe_layers else dense).parameters, moe.expert_parameters
            if job.num_dense_layers and job.num_moe_layers:
                own, experts = np.minimum(dense.parameters, moe.parameters), np.zeros(1)
            layers = _numbers(context)
            one_s = least_exchange_s(
                context,
                price.columns,
                price.gpu_class.fabric,
                dense=layers * own,
                experts=layers * experts,
                num_places=len({pool.place for pool in context.pools if pool.gpu.name in names}),
            )
            found.append(one_s)
        least: FloatArray = np.minimum.reduce(found)
        return least

    @cached_property
    def dearest_s(self) -> FloatArray:
        """Work of a layer of the slower kind on the slowest fabric."""
        both = [one for price in self.prices for one in (price.units[0].total_s, price.units[1].total_s)]
        dearest: FloatArray = np.maximum.reduce(both)
        return dearest


def line_bound_s(context: Context, configurations: Sequence[Configuration], low_s: float, high_s: float) -> float:
    """The largest time up to `high_s` that is impossible for all of these, alike but for experts and sharding.

    `low_s` where none is; this file's top has the proof, in which every price is the least of these configurations.
    """
    gpus = _kinds(context, [columns_of(one) for one in configurations])
    options = _options(context, configurations[0], gpus, MessageDelays.of(context, configurations))
    return least_time_s(options, low_s, high_s)


def least_time_s(options: Options, low_s: float, high_s: float) -> float:
    """Halve the interval between a time that is impossible and one that may not be."""
    states = _partition_states(options)
    if not _keeps(options, states, high_s):
        return high_s
    tolerance_s = RESOLUTION * high_s
    while high_s - low_s > tolerance_s:
        middle = (low_s + high_s) / 2.0
        if _keeps(options, states, middle):
            high_s = middle
        else:
            low_s = middle
    return low_s


def _keeps(options: Options, states: PartitionStates, limit_s: float) -> bool:
    """Whether some line may keep within the limit: sums that are known of all such lines rule out more of them."""
    known = np.zeros(NUM_SUMS)
    for _ in range(NUM_PASSES):
        found = least_sums(options, states, known, limit_s / SAFETY)
        if found[BOTH] + 2.0 * options.turn_delay_s + options.update_s > limit_s / SAFETY:
            return False
        found[BEFORE_LAST] = max(found[BEFORE_LAST] - options.slack_s, 0.0)
        if (found <= known).all():
            return True
        known = found
    return True


def _partition_states(options: Options) -> PartitionStates:
    """How many ranks of each type lines may use, fewest first, where those left suffice for the other ranks."""
    sizes, num_ranks = options.held_c + 1, len(options.kind_r)
    used = np.stack([axis.ravel() for axis in np.indices(tuple(sizes.tolist()))], axis=1)
    used = used[used.sum(axis=1) <= num_ranks]
    used = np.ascontiguousarray(used[np.argsort(used.sum(axis=1), kind="stable")])
    strides = np.append(np.cumprod(sizes[::-1])[::-1][1:], 1)
    return PartitionStates(used, used @ strides, strides)


def _kinds(context: Context, alike: Sequence[Columns]) -> list[Kind]:
    """GPU types, quickest first; those next to each other that differ least are one where there are too many ranks."""
    columns = alike[0]
    held = ranks_by_type(context.pools, columns.tp, columns.cp, columns.dp)
    found = []
    for name, count in held.items():
        classes = [one for one in context.gpu_classes.values() if one.gpu.name == name]
        own = [StageCosts(context, gpu_class, one) for one in alike for gpu_class in classes]
        found.append(Kind(tuple(own), min(int(count[0]), int(columns.pp[0]))))
    found = sorted((one for one in found if one.held), key=lambda one: one.layer_both_s)
    while len(found) > 1 and np.prod([one.held + 1.0 for one in found]) * context.job.num_layers > MOST_CELLS:
        ratios = [slow.layer_both_s / fast.layer_both_s for fast, slow in itertools.pairwise(found)]
        place = int(np.argmin(ratios))
        both = found[place : place + 2]
        merged = Kind(both[0].prices + both[1].prices, min(both[0].held + both[1].held, int(columns.pp[0])))
        found = [*found[:place], merged, *found[place + 2 :]]
    return found


def _layer(price: StageCosts) -> StageCost:
    """A layer of the kind that counts as one layer, MoE where there are any."""
    return price.units[1 if price.context.job.num_moe_layers else 0]


def _numbers(context: Context) -> FloatArray:
    """0, 1, 2 ... up to all layers of the kind that counts as one layer."""
    job = context.job
    return np.arange((job.num_moe_layers or job.num_dense_layers) + 1, dtype=np.float64)


@dataclass(frozen=True)
class Rank:
    """A pipeline rank by its ends, on one GPU type, with 0, 1, 2 ... usual layers."""

    context: Context
    columns: Columns
    kind: Kind
    has_first: bool
    has_last: bool

    @cached_property
    def layers(self) -> FloatArray:
        """0, 1, 2 ... up to all usual layers."""
        return _numbers(self.context)

    @property
    def num_others(self) -> int:
        """Layers of the kind that is not counted."""
        return self.context.job.num_layers - (len(self.layers) - 1)

    @cached_property
    def ends(self) -> tuple[StageCost, ...]:
        """The embedding and the logits that it has, by fabric."""
        return tuple(self._ends(price) for price in self.kind.prices)

    def _ends(self, price: StageCosts) -> StageCost:
        return price.of(0, 0, embedding=float(self.has_first), logits=float(self.has_last))

    @cached_property
    def least_ends(self) -> StageCost:
        """The ends at their least."""
        return self._ends(self.kind.least)

    @cached_property
    def chunks(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Fewest layers of the first and of the last chunk, and the most of the last."""
        n, v = self.layers, int(self.columns.vpp[0])
        if v == 1:
            return n, n, n
        first, last = (self._worth(embedding=float(self.has_first)), self._worth(logits=float(self.has_last)))
        even = np.floor((n + first + last) / v)
        begin = np.maximum(even - first, 1.0) if self.has_first else np.floor(n / v)
        end = np.maximum(even - last, 1.0) if self.has_last else np.floor(n / v)
        if self.has_first and self.has_last:
            begin, end = np.minimum(begin, n - 1), np.minimum(end, n - 1)
        most = np.ceil(n / v) if self.has_last and not self.has_first else np.ceil((n + first + last) / v)
        return np.maximum(begin, 0.0), np.maximum(end, 0.0), np.minimum(most, n)

    def _worth(self, *, embedding: float = 0.0, logits: float = 0.0) -> float:
        """Whole layers that an end takes as long as, on any fabric."""
        if not embedding and not logits:
            return 0.0
        ends = [price.of(0, 0, embedding=embedding, logits=logits) for price in self.kind.prices]
        worth = [float(end.total_s[0]) / layer_s for end, layer_s in zip(ends, self.kind.average_s, strict=True)]
        return float(np.floor(max(worth)))

    @cached_property
    def after_work_s(self) -> tuple[FloatArray, FloatArray]:
        """Least exchange of a stage beyond what overlaps, and least update."""
        updates = [
            optimizer_s(
                *self._parameters(price, ends),
                price.columns,
                gpu=price.gpu_class.gpu,
                stack=self.context.stack,
                optimizer=self.context.job.optimizer,
                weight_bytes=self.context.job.value_bytes,
            )
            for price, ends in zip(self.kind.prices, self.ends, strict=True)
        ]
        ends_s = np.maximum.reduce([ends.total_s for ends in self.ends])
        overlap = self.context.stack.data_parallel_overlap.value * (self.layers * self.kind.dearest_s + ends_s)
        exposed = np.maximum(self.kind.exchange_s - overlap, 0.0)
        least = np.minimum.accumulate(exposed[::-1])[::-1]  # a stage may have more layers than the fewest
        fewest = np.minimum.reduce([*self.chunks[:2], np.floor(self.layers / self.columns.vpp[0])])
        return least[np.maximum(fewest, min(1, len(least) - 1)).astype(np.int64)], np.minimum.reduce(updates)

    def _parameters(self, price: StageCosts, ends: StageCost) -> tuple[FloatArray, FloatArray]:
        """Dense and expert parameters by layers."""
        layer = _layer(price)
        dense: FloatArray = self.layers * layer.parameters + ends.parameters
        experts: FloatArray = self.layers * layer.expert_parameters + ends.expert_parameters
        return dense, experts

    @property
    def capacity_bytes(self) -> FloatArray:
        """Most memory that is left for activations."""
        capacities = []
        for price, ends in zip(self.kind.prices, self.ends, strict=True):
            static = price.static_bytes(*self._parameters(price, ends), has_logits=float(self.has_last))
            capacities.append(self.context.memory_limit_bytes(price.gpu_class.gpu) - static)
        capacity: FloatArray = np.maximum.reduce(capacities)
        return capacity

    def needs(self) -> dict[str, FloatArray]:
        """The tables of `Options` for this rank and type, by layers."""
        m, v = float(self.columns.num_microbatches[0]), int(self.columns.vpp[0])
        n, layer, ends = self.layers, self.kind.layer, self.least_ends
        first = self.kind.least.of(0, 0, embedding=float(self.has_first))
        forward, both = n * layer.forward_s + ends.forward_s, n * (layer.forward_s + layer.input_grad_s)
        both = both + ends.forward_s + ends.input_grad_s
        work = n * layer.total_s + ends.total_s
        begin, end, most = self.chunks
        end = np.maximum(end - self.num_others, 0.0) if v > 1 else end
        in_last = ends.forward_s - (first.forward_s if v > 1 else 0.0)
        last_forward = end * layer.forward_s + in_last
        last_both = end * (layer.forward_s + layer.input_grad_s) + in_last
        exchange, update = self.after_work_s
        held = layer.activation_bytes * n + ends.activation_bytes
        capacity = self.capacity_bytes
        fits = held <= capacity * (1.0 + ROUNDING)
        safe = np.where(fits & (capacity > 0), capacity, 1.0)
        first_s, last_s = self._outside_s(safe)
        needs = {
            "work": np.where(fits, m * work + exchange + update, np.inf),
            "late": m * (work - forward + last_forward) + exchange + update,
            "through": m * work - last_s + update,
            "early": m * work - first_s + exchange + update,
            "early_back": m * work - first_s - last_s + update,
            "last": m * last_both + update,
            "between": m * (both - forward + last_forward) + update,
            "first_chunk": begin * layer.forward_s + (first.forward_s if v > 1 else ends.forward_s),
            "before_last": (n - most) * layer.forward_s + first.forward_s if v > 1 else 0.0 * n,
            "forward": forward,
            "both": both,
        }
        return needs | self._memory_needs(safe)

    def _outside_s(self, capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Most forwards before the first gradient, and most weight gradients after the last input gradient."""
        m, n, layer = float(self.columns.num_microbatches[0]), self.layers, self.kind.layer
        ends = self.least_ends
        forwards = np.minimum(m * n, capacity / np.maximum(layer.activation_bytes, 1e-9))
        weights = np.minimum(m * n, capacity / np.maximum(layer.weight_grad_context_bytes, 1e-9))
        return forwards * layer.forward_s + m * ends.forward_s, weights * layer.weight_grad_s + m * ends.weight_grad_s

    def _memory_needs(self, capacity: FloatArray) -> dict[str, FloatArray]:
        """What memory for few micro-batches costs."""
        m, v = float(self.columns.num_microbatches[0]), int(self.columns.vpp[0])
        n, layer = self.layers, self.kind.layer
        weights_s = n * layer.weight_grad_s
        if v == 1:
            slots = np.maximum(np.floor(capacity / np.maximum(n * layer.activation_bytes, 1.0) * (1.0 + ROUNDING)), 1.0)
            trips = np.where(n > 0, np.ceil(m / slots), 1.0)
            keeps = bool(layer.weight_grad_context_bytes[0] >= layer.activation_bytes[0])
            own = (trips - 1.0) * weights_s * keeps
            return {"weighted": 0.0 * n, "trips": trips, "held_own": own, "held_per_s": 0.0 * n}
        fewest = np.minimum.reduce([*self.chunks[:2], np.floor(n / v)])
        fewest = np.maximum(fewest - self.num_others, 0.0)
        per_byte = m / capacity
        own = layer.activation_bytes * n * (layer.forward_s + layer.input_grad_s)
        own = own + np.minimum(layer.weight_grad_context_bytes, layer.activation_bytes) * weights_s
        return {
            "weighted": (layer.forward_s + layer.input_grad_s) * fewest * v * (v - 1) / 2.0,
            "trips": np.ones(len(n)),
            "held_own": per_byte * own * n / v,
            "held_per_s": per_byte * layer.activation_bytes * fewest,
        }


def _back(price: StageCosts) -> float:
    """Least quotient of input gradient and forward."""
    parts = (_layer(price), price.units[2])
    return min(float(one.input_grad_s[0] / one.forward_s[0]) for one in parts if float(one.forward_s[0]) > 0)


def _options(context: Context, configuration: Configuration, gpus: Sequence[Kind], delays: MessageDelays) -> Options:
    """What every kind of rank takes on every type: the ends and those between."""
    columns, pp = columns_of(configuration), configuration.degrees.pp
    folded = configuration.family == "v"
    ends = [(True, folded), (False, False), (False, not folded)]
    ranks = [[Rank(context, columns, gpu, *one) for gpu in gpus] for one in ends]
    needs = [[one.needs() for one in row] for row in ranks]
    layers = [gpu.layer for gpu in gpus]
    others = ranks[0][0].num_others
    return Options(
        kind_r=np.array([0] + [1] * (pp - 2) + [2]),
        held_c=np.array([gpu.held for gpu in gpus]),
        num_layers=len(ranks[0][0].layers) - 1,
        least_n=0 if others else configuration.degrees.vpp,
        num_chunks=configuration.degrees.vpp,
        looped=configuration.family == "loop",
        back=min(_back(gpu.least) for gpu in gpus),
        slack_s=others * max(float(one.forward_s[0]) for one in layers) if configuration.degrees.vpp > 1 else 0.0,
        update_s=float(min(one.after_work_s[1][-(-(len(one.layers) - 1) // pp)] for one in ranks[1])),
        ahead_delay_s=delays.ahead_s,
        turn_delay_s=delays.turn_s,
        held_delay_s=delays.held_s,
        layer_both_c=np.array([gpu.layer_both_s for gpu in gpus]),
        after_r=np.zeros(pp),
        after_last_r=np.zeros(pp),
        needs=np.array([[[one[name] for one in row] for row in needs] for name in NEEDS]),
    )
