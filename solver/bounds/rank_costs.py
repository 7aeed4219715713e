"""What a pipeline rank with 0, 1, 2 ... layers takes at least on a GPU type, for configurations that are alike.

Owns these tables, whose meaning `stage_partition.py` proves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from solver.bounds.bounded import ROUNDING
from solver.bounds.synchronisation import least_exchange_s
from solver.configurations.pricing import IntArray, StageCosts, Units, kinds, least_of, moe_among
from solver.context import Context, GpuClass
from solver.cost.columns import Columns, FloatArray
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import StageCost

Ends = tuple[bool, bool]  # whether a rank has the embedding and the logits


@dataclass(frozen=True)
class AlikeCosts:
    """Configurations that are alike on one GPU type and fabric: a row each in whatever `price` yields, layers across.

    `columns` are the same configurations as plain columns.
    """

    columns: Columns
    price: StageCosts

    @classmethod
    def of(cls, context: Context, gpu_class: GpuClass, alike: Sequence[Columns]) -> AlikeCosts:
        """From configurations of one row each, whose units are remembered."""
        columns = Columns(**{f.name: np.concatenate([getattr(one, f.name) for one in alike]) for f in fields(Columns)})
        priced = [StageCosts(context, gpu_class, one).units for one in alike]
        units = tuple(_stacked(same) for same in zip(*priced, strict=True))
        down = Columns(**{f.name: getattr(columns, f.name)[:, None] for f in fields(Columns)})
        return cls(columns, StageCosts(context, gpu_class, down, units))


def _stacked(costs: Sequence[StageCost]) -> StageCost:
    return StageCost(
        **{f.name: np.concatenate([getattr(one, f.name) for one in costs])[:, None] for f in fields(StageCost)}
    )


@dataclass(frozen=True)
class Kind:
    """One GPU type, or several as one: costs by fabric, and the ranks that it can hold."""

    costs: tuple[AlikeCosts, ...]
    held: int

    @property
    def context(self) -> Context:
        """The request."""
        return self.costs[0].price.context

    @cached_property
    def prices(self) -> tuple[StageCosts, ...]:
        """By fabric."""
        return tuple(one.price for one in self.costs)

    @cached_property
    def least(self) -> StageCosts:
        """Every unit at its least over fabrics and configurations."""
        over_fabrics = least_of(self.prices)
        first = replace(over_fabrics, columns=self.costs[0].columns.take(np.array([0])))
        return replace(first, least=tuple(_least_row(one) for one in over_fabrics.units))

    @cached_property
    def layer(self) -> StageCost:
        """A usual layer at its least."""
        return usual_layer(self.least.units, self.context)

    @property
    def layer_both_s(self) -> float:
        """Forward and input gradient of a usual layer."""
        return float(self.layer.forward_s[0] + self.layer.input_grad_s[0])

    @property
    def back(self) -> float:
        """Least quotient of a layer's input gradient and forward."""
        return float(self.layer.input_grad_s[0] / self.layer.forward_s[0])

    @cached_property
    def ends(self) -> dict[Ends, tuple[StageCost, ...]]:
        """The embedding, the logits, both or neither, by fabric."""
        return {ends: tuple(_ends(price, ends) for price in self.prices) for ends in EVERY_END}

    @cached_property
    def least_ends(self) -> dict[Ends, StageCost]:
        """The same at their least."""
        return {ends: _ends(self.least, ends) for ends in EVERY_END}

    @cached_property
    def worth(self) -> tuple[float, float]:
        """Whole layers that the embedding and the logits take as long as, on any fabric."""
        num_layers = self.context.job.num_layers
        worth = [0.0, 0.0]
        for number, ends in enumerate(((True, False), (False, True))):
            for price, cost in zip(self.prices, self.ends[ends], strict=True):
                layer_s = price.of(*kinds(self.context, 0, num_layers)).total_s / num_layers
                worth[number] = max(worth[number], float(np.floor(cost.total_s / layer_s).max()))
        return worth[0], worth[1]

    @cached_property
    def usual_among(self) -> IntArray:
        """Fewest usual layers among 0, 1, 2 ... consecutive layers."""
        numbers = layer_numbers(self.context).astype(np.int64)
        return moe_among(self.context)[0][numbers] if self.context.job.num_moe_layers else numbers

    @cached_property
    def chunk_forward_s(self) -> FloatArray:
        """Least forward of 0, 1, 2 ... consecutive layers."""
        return self._least_of_chunk(self.layer.forward_s, self.least.units[0].forward_s)

    def _least_of_chunk(self, usual: FloatArray, other: FloatArray) -> FloatArray:
        """Least sum over so many consecutive layers: all of them usual, or as few as may be."""
        numbers, fewest = layer_numbers(self.context), self.usual_among
        least: FloatArray = np.minimum(usual * numbers, usual * fewest + other * (numbers - fewest))
        return least

    @cached_property
    def exchange_s(self) -> FloatArray:
        """Least exchange inside a place of a stage with 0, 1, 2 ... layers."""
        context, found = self.context, []
        names = {one.gpu_class.gpu.name for one in self.prices}
        places = {pool.place for pool in context.pools if pool.gpu.name in names}
        for one in self.costs:
            usual, fabric = usual_layer(one.price.units, context), one.price.gpu_class.fabric
            dense = self._least_of_chunk(usual.parameters, one.price.units[0].parameters)
            experts = usual.expert_parameters * self.usual_among
            found.append(
                least_exchange_s(context, one.columns, fabric, dense=dense, experts=experts, num_places=len(places))
            )
        least: FloatArray = np.minimum.reduce(found)
        return least

    @cached_property
    def dearest_s(self) -> float:
        """Work of a layer of the slower kind on the slowest fabric."""
        return max(float(unit.total_s.max()) for price in self.prices for unit in price.units[:2])


EVERY_END: tuple[Ends, ...] = ((False, False), (True, False), (False, True), (True, True))


def _least_row(cost: StageCost) -> StageCost:
    return StageCost(**{f.name: getattr(cost, f.name).min(axis=0) for f in fields(StageCost)})


def _ends(price: StageCosts, ends: Ends) -> StageCost:
    return price.of(0, 0, embedding=float(ends[0]), logits=float(ends[1]))


def usual_layer(units: Units, context: Context) -> StageCost:
    """A layer of the kind that counts as one layer, MoE where there are any."""
    return units[1 if context.job.num_moe_layers else 0]


def layer_numbers(context: Context) -> FloatArray:
    """0, 1, 2 ... up to all layers of the kind that counts as one layer."""
    job = context.job
    return np.arange((job.num_moe_layers or job.num_dense_layers) + 1, dtype=np.float64)


@dataclass(frozen=True)
class RankCosts:
    """A pipeline rank by its ends, on one GPU type, with 0, 1, 2 ... usual layers."""

    kind: Kind
    at: Ends
    num_microbatches: int
    vpp: int

    @property
    def context(self) -> Context:
        """The request."""
        return self.kind.context

    @cached_property
    def layers(self) -> FloatArray:
        """0, 1, 2 ... up to all usual layers."""
        return layer_numbers(self.context)

    def usual_in(self, layers: FloatArray) -> FloatArray:
        """Fewest usual layers among so many consecutive ones."""
        return self.kind.usual_among[layers.astype(np.int64)].astype(np.float64)

    @cached_property
    def chunks(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Fewest layers of the first and of the last chunk, and the most of the last."""
        n, v, (has_first, has_last) = self.layers, self.vpp, self.at
        if v == 1:
            return n, n, n
        first, last = (worth * here for worth, here in zip(self.kind.worth, self.at, strict=True))
        even = np.floor((n + first + last) / v)
        begin = np.maximum(even - first, 1.0) if has_first else np.floor(n / v)
        end = np.maximum(even - last, 1.0) if has_last else np.floor(n / v)
        if has_first and has_last:
            begin, end = np.minimum(begin, n - 1), np.minimum(end, n - 1)
        most = np.ceil(n / v) if has_last and not has_first else np.ceil((n + first + last) / v)
        return np.maximum(begin, 0.0), np.maximum(end, 0.0), np.minimum(most, n)

    @cached_property
    def after_work_s(self) -> tuple[FloatArray, FloatArray]:
        """Least exchange of a stage beyond what overlaps, and least update."""
        stack, job, ends = self.context.stack, self.context.job, self.kind.ends[self.at]
        updates = [
            optimizer_s(
                *parameters,
                price.columns,
                gpu=price.gpu_class.gpu,
                stack=stack,
                optimizer=job.optimizer,
                weight_bytes=job.value_bytes,
            ).min(axis=0)
            for price, parameters in zip(self.kind.prices, self.parameters, strict=True)
        ]
        ends_s = max(float(cost.total_s.max()) for cost in ends)
        overlap = stack.data_parallel_overlap.value * (self.layers * self.kind.dearest_s + ends_s)
        exposed = np.maximum(self.kind.exchange_s - overlap, 0.0)
        least = np.minimum.accumulate(exposed[::-1])[::-1]  # a stage may have more layers than the fewest
        fewest = np.minimum.reduce([*self.chunks[:2], np.floor(self.layers / self.vpp)])
        return least[np.maximum(fewest, min(1, len(least) - 1)).astype(np.int64)], np.minimum.reduce(updates)

    @cached_property
    def parameters(self) -> list[tuple[FloatArray, FloatArray]]:
        """Dense and expert parameters by layers, by fabric."""
        found = []
        for price, ends in zip(self.kind.prices, self.kind.ends[self.at], strict=True):
            layer = usual_layer(price.units, self.context)
            dense = self.layers * layer.parameters + ends.parameters
            found.append((dense, self.layers * layer.expert_parameters + ends.expert_parameters))
        return found

    @property
    def capacity_bytes(self) -> FloatArray:
        """Most memory that is left for activations."""
        capacities = []
        for price, parameters in zip(self.kind.prices, self.parameters, strict=True):
            static = price.static_bytes(*parameters, has_logits=float(self.at[1]))
            capacities.append(self.context.memory_limit_bytes(price.gpu_class.gpu) - static.min(axis=0))
        capacity: FloatArray = np.maximum.reduce(capacities)
        return capacity

    def needs(self) -> dict[str, FloatArray]:
        """The tables of `Options` for this rank and type, by layers."""
        m, v = float(self.num_microbatches), self.vpp
        n, layer, ends = self.layers, self.kind.layer, self.kind.least_ends[self.at]
        first = self.kind.least_ends[self.at[0], False]
        forward, both = n * layer.forward_s + ends.forward_s, n * (layer.forward_s + layer.input_grad_s)
        both = both + ends.forward_s + ends.input_grad_s
        work = n * layer.total_s + ends.total_s
        begin, end, most = self.chunks
        end = self.usual_in(end) if v > 1 else end
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
            "first_chunk": self.kind.chunk_forward_s[begin.astype(np.int64)] + first.forward_s if v > 1 else forward,
            "before_last": (n - most) * layer.forward_s + first.forward_s if v > 1 else 0.0 * n,
            "forward": forward,
            "both": both,
        }
        return needs | self._memory_needs(safe)

    def _outside_s(self, capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Most forwards before the first gradient, and most weight gradients after the last input gradient."""
        m, n, layer = float(self.num_microbatches), self.layers, self.kind.layer
        ends = self.kind.least_ends[self.at]
        forwards = np.minimum(m * n, capacity / np.maximum(layer.activation_bytes, 1e-9))
        weights = np.minimum(m * n, capacity / np.maximum(layer.weight_grad_context_bytes, 1e-9))
        return forwards * layer.forward_s + m * ends.forward_s, weights * layer.weight_grad_s + m * ends.weight_grad_s

    def _memory_needs(self, capacity: FloatArray) -> dict[str, FloatArray]:
        """What memory for few micro-batches costs."""
        m, v = float(self.num_microbatches), self.vpp
        n, layer = self.layers, self.kind.layer
        weights_s = n * layer.weight_grad_s
        if v == 1:
            slots = np.maximum(np.floor(capacity / np.maximum(n * layer.activation_bytes, 1.0) * (1.0 + ROUNDING)), 1.0)
            trips = np.where(n > 0, np.ceil(m / slots), 1.0)
            keeps = bool(layer.weight_grad_context_bytes[0] >= layer.activation_bytes[0])
            own = (trips - 1.0) * weights_s * keeps
            return {"weighted": 0.0 * n, "trips": trips, "held_own": own, "held_per_s": 0.0 * n}
        fewest = self.usual_in(np.minimum.reduce([*self.chunks[:2], np.floor(n / v)]))
        per_byte = m / capacity
        own = layer.activation_bytes * n * (layer.forward_s + layer.input_grad_s)
        own = own + np.minimum(layer.weight_grad_context_bytes, layer.activation_bytes) * weights_s
        return {
            "weighted": (layer.forward_s + layer.input_grad_s) * fewest * v * (v - 1) / 2.0,
            "trips": np.ones(len(n)),
            "held_own": per_byte * own * n / v,
            "held_per_s": per_byte * layer.activation_bytes * fewest,
        }
