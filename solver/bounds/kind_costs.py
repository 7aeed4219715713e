"""What layers take at least on a GPU type, for configurations that are alike: one by one, and so many in a row.

Several types may count as one. What a rank makes of them is in `rank_costs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from solver.arrays import FloatArray
from solver.bounds.layer_windows import EVERY_END, Ends, Windows
from solver.bounds.spread_exchange import ExchangeBound, span_places
from solver.bounds.synchronisation import least_exchange_s
from solver.configurations.pricing import StageCosts, least_cost, least_of, parts_of_each
from solver.context import Context, GpuClass
from solver.cost.columns import Columns, joined
from solver.cost.stage import StageCost


@dataclass(frozen=True)
class AlikeCosts:
    """Configurations that are alike on one GPU type and fabric: a row each in whatever `price` yields, layers across.

    `columns` are the same configurations as plain columns.
    """

    columns: Columns
    price: StageCosts

    @property
    def names(self) -> frozenset[str]:
        """The name of the GPU type, alone in a set."""
        return frozenset({self.price.gpu_class.gpu.name})

    @cached_property
    def span_places(self) -> bool:
        """Whether no place has room for all replicas of a rank on this type."""
        return span_places(self.price.context, self.columns, self.names)

    @classmethod
    def of(cls, context: Context, gpu_class: GpuClass, alike: Sequence[Columns]) -> AlikeCosts:
        """From configurations of one row each, whose parts are remembered."""
        columns = joined(alike)
        priced = parts_of_each(context, gpu_class, alike)
        parts = tuple(_stacked(same) for same in zip(*priced, strict=True))
        down = Columns(**{f.name: getattr(columns, f.name)[:, None] for f in fields(Columns)})
        return cls(columns, StageCosts(context, gpu_class, down, parts))


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
        """Prices of stages on the types, by fabric."""
        return tuple(one.price for one in self.costs)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the GPU types."""
        return frozenset(price.gpu_class.gpu.name for price in self.prices)

    @cached_property
    def least(self) -> StageCosts:
        """Every part at its least over fabrics and configurations."""
        over_fabrics = least_of(self.prices)
        first = replace(over_fabrics, columns=self.costs[0].columns.take(np.array([0])))
        return replace(first, least=tuple(_least_row(one) for one in over_fabrics.parts))

    @cached_property
    def layer(self) -> StageCost:
        """A usual layer at its least."""
        return self.least.usual_layer

    def least_of(self, windows: Windows) -> StageCost:
        """So many layers, among which so many may be usual, each cost at its least."""
        has_moe = bool(self.context.job.num_moe_layers)
        found = []
        for usual in (windows.fewest, windows.most):
            counts = (windows.layers - usual, usual) if has_moe else (usual, windows.layers - usual)
            found.append(self.least.of(*counts))
        return least_cost(found)

    @property
    def layer_both_s(self) -> float:
        """Forward and input gradient of a usual layer."""
        return float(self.layer.forward_s[0] + self.layer.input_grad_s[0])

    @cached_property
    def ends(self) -> dict[Ends, tuple[StageCost, ...]]:
        """The embedding, the logits, both or neither, by fabric."""
        return {ends: tuple(_ends(price, ends) for price in self.prices) for ends in EVERY_END}

    @cached_property
    def worth(self) -> tuple[float, float]:
        """Whole layers that the embedding and the logits take as long as, on any fabric."""
        of_each = zip(*(price.end_extras() for price in self.prices), strict=True)
        first, last = (max(float(np.floor(one).max()) for one in same) for same in of_each)
        return first, last

    @cached_property
    def other(self) -> StageCost:
        """A layer of the other kind at its least; it costs nothing where the model has none."""
        return self.least.other_layer

    @cached_property
    def known_chunks(self) -> dict[tuple[bytes, bytes], ChunkCosts]:
        """Costs of consecutive layers by the usual ones among them, as far as they were asked for."""
        return {}

    def chunk(self, windows: Windows) -> ChunkCosts:
        """Costs of consecutive layers among which so many may be of the usual kind."""
        return self.known_chunks.setdefault(windows.key, ChunkCosts(self, windows))

    @cached_property
    def dearest_s(self) -> float:
        """Work of a layer of the slower kind on the slowest fabric."""
        return max(float(part.total_s.max()) for price in self.prices for part in price.parts[:2])


def kinds_by_name(kinds: Sequence[Kind]) -> dict[str, int]:
    """The place of every GPU type among these kinds, by its name."""
    return {name: place for place, kind in enumerate(kinds) for name in kind.names}


def usual_excess_s(gpus: Sequence[Kind]) -> tuple[float, float]:
    """How much longer a usual layer takes than another, on the mean of the types: its forward, and both ways."""
    layers = [(one.layer, one.other) for one in gpus]
    forward = [float(usual.forward_s[0] - other.forward_s[0]) for usual, other in layers]
    gradient = [float(usual.input_grad_s[0] - other.input_grad_s[0]) for usual, other in layers]
    forward_s = sum(forward) / len(forward)
    return forward_s, forward_s + sum(gradient) / len(gradient)


@dataclass(frozen=True)
class ChunkCosts:
    """So many consecutive layers on one GPU type, or several as one."""

    kind: Kind
    windows: Windows
    known_exchanges: dict[Ends, FloatArray] = field(default_factory=dict)

    @cached_property
    def cost(self) -> StageCost:
        """Every cost of so many consecutive layers at its least, each by itself."""
        return self.kind.least_of(self.windows)

    @cached_property
    def both_s(self) -> FloatArray:
        """Least forward and input gradient of so many consecutive layers."""
        layer, other = self.kind.layer, self.kind.other
        return self._least_of_chunk(layer.forward_s + layer.input_grad_s, other.forward_s + other.input_grad_s)

    @cached_property
    def backward_s(self) -> FloatArray:
        """Least input and weight gradient of so many consecutive layers."""
        layer, other = self.kind.layer, self.kind.other
        return self._least_of_chunk(layer.input_grad_s + layer.weight_grad_s, other.input_grad_s + other.weight_grad_s)

    def _least_of_chunk(self, usual: FloatArray, other: FloatArray) -> FloatArray:
        """Least sum over so many consecutive layers."""
        return least_of_layers(self.windows, usual, other)

    def exchange_s(self, ends: Ends) -> FloatArray:
        """Least exchange inside a place of a stage with so many layers and these ends."""
        if ends not in self.known_exchanges:
            self.known_exchanges[ends] = self._exchange_s(ends)
        return self.known_exchanges[ends]

    def _exchange_s(self, ends: Ends) -> FloatArray:
        found = []
        for one in self.kind.costs:
            usual, other, more = one.price.usual_layer, one.price.other_layer, _ends(one.price, ends)
            dense = self._least_of_chunk(usual.parameters, other.parameters) + more.parameters
            experts = self._least_of_chunk(usual.expert_parameters, other.expert_parameters) + more.expert_parameters
            found.append(stage_exchange_s(self.kind, one, dense, experts))
        least: FloatArray = np.minimum.reduce(found)
        return least


def inside_exchange_s(kind: Kind, costs: AlikeCosts, dense: FloatArray, experts: FloatArray) -> FloatArray:
    """Least exchange inside a place of so many parameters, a column each, on one of the types and fabrics of a kind."""
    fabric = costs.price.gpu_class.fabric
    return least_exchange_s(kind.context, costs.columns, fabric, dense=dense, experts=experts, names=kind.names)


def stage_exchange_s(kind: Kind, costs: AlikeCosts, dense: FloatArray, experts: FloatArray) -> FloatArray:
    """Least exchange of a stage with so many parameters, a column each, on one of the types and fabrics of a kind.

    Inside a place, and between places where none has room for all replicas of a rank.
    """
    return _exchange_s(kind, costs, dense, experts, lambda found: found.duration_s)


def rank_cards_s(kind: Kind, costs: AlikeCosts, dense: FloatArray, experts: FloatArray) -> FloatArray:
    """The same of all stages of a rank that has so many parameters together, one after another on its cards."""
    return _exchange_s(kind, costs, dense, experts, lambda found: found.cards_s)


def _exchange_s(
    kind: Kind,
    costs: AlikeCosts,
    dense: FloatArray,
    experts: FloatArray,
    seconds: Callable[[ExchangeBound], FloatArray],
) -> FloatArray:
    inside_s = inside_exchange_s(kind, costs, dense, experts)
    if not costs.span_places:
        return inside_s
    shape = len(costs.columns), dense.shape[-1]
    rows = costs.columns.take(np.repeat(np.arange(shape[0]), shape[1]))
    both = (np.broadcast_to(one, shape).ravel() for one in (dense, experts))
    found = ExchangeBound.of(kind.context, rows, [costs.price.gpu_class.fabric], *both, names=costs.names)
    between_s = seconds(found).reshape(shape).min(axis=0)
    return np.where((dense + experts).max(axis=0) > 0, np.maximum(inside_s, between_s), inside_s)


def least_of_layers(windows: Windows, usual: FloatArray, other: FloatArray) -> FloatArray:
    """Least sum over so many layers: with as many usual ones as there may be, or as few."""
    each = (usual * number + other * (windows.layers - number) for number in (windows.fewest, windows.most))
    least: FloatArray = np.minimum.reduce(list(each))
    return least


def _least_row(cost: StageCost) -> StageCost:
    return StageCost(**{f.name: getattr(cost, f.name).min(axis=0) for f in fields(StageCost)})


def _ends(price: StageCosts, ends: Ends) -> StageCost:
    return price.of(0, 0, embedding=float(ends[0]), logits=float(ends[1]))
