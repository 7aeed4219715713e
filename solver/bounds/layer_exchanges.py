"""The least time of a rank up to the end of its exchanges, by its number of layers, on one GPU type, in columns.

For layers shared out by GPU type, in any way. Proofs: docs/bounds.md, "Exchanges of the layers of a rank".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.arrays import FloatArray
from solver.bounds.synchronisation import affine_exchange
from solver.bounds.type_ranks import RankTime, Types
from solver.configurations.pricing import StageCosts
from solver.cost.stage import StageCost


@dataclass(frozen=True)
class RankExchanges:
    """Exchanges of the ranks on one type beside their work.

    `usual` is the exchange of so many usual layers, `least_start_s` the start of one of either kind, `beside_s` the
    most that it overlaps with each usual layer; `worth` are the ends in layers, at most.
    """

    types: Types
    place: int
    usual: RankTime
    least_start_s: FloatArray
    beside_s: FloatArray
    worth: Sequence[FloatArray]

    @classmethod
    def of(cls, types: Types, place: int) -> RankExchanges:
        """The exchanges of ranks on the type at this place of the list of types."""
        own, share = types.by_fabric[place], types.context.stack.data_parallel_overlap.value
        of_kinds = [_exchange(own, layers) for layers in zip(*map(StageCosts.layer_of_each_kind, own), strict=True)]
        beside_s = share * np.maximum.reduce([one.usual_layer.total_s for one in own])
        least_start_s = np.minimum.reduce([one.start_s for one in of_kinds])
        return cls(types, place, of_kinds[0], least_start_s, beside_s, _most_worth(own))

    def times(self) -> list[RankTime]:
        """Ranks up to the end of one stage's exchange, and up to the end of those of all their stages."""
        layer, m, v = self.types.prices[self.place].usual_layer, self.num_microbatches, self.num_chunks
        uncovered_s = self._uncovered_s(lambda cost: cost.total_s)
        gradient_s = m * (layer.total_s - layer.forward_s) - self.beside_s
        all_start_s = self.usual.start_s + (v - 1.0) * self.least_start_s - uncovered_s
        work = RankTime(m * layer.total_s, self.least_start_s - uncovered_s)
        forwards = RankTime(m * layer.forward_s + self.usual.per_layer_s, all_start_s)
        return [
            *self._with_stage(work, self.usual.per_layer_s - self.beside_s),
            *self._with_stage(forwards, gradient_s),
        ]

    def late_times(self, late: Sequence[RankTime]) -> list[RankTime]:
        """Times of what follows the first forward through all stages, by type: on this one, with a stage's exchange."""
        after_s = self.least_start_s - self._uncovered_s(lambda cost: cost.total_s - cost.forward_s)
        found = [RankTime(one.per_layer_s[self.place], one.start_s[self.place] + after_s) for one in late]
        each_s = self.usual.per_layer_s - self.beside_s
        return [one for time in found for one in self._with_stage(time, each_s)]

    @property
    def home_s(self) -> FloatArray:
        """Weight gradient and exchange of a first stage: one layer at least, and the embedding; 0 where not known."""
        types, share = self.types, self.types.context.stack.data_parallel_overlap.value
        own = types.by_fabric[self.place]
        embedding = [price.of(0, 0, embedding=1.0) for price in own]
        start_s = self.least_start_s + _exchange(own, embedding).per_layer_s
        start_s = start_s + np.minimum.reduce([one.weight_grad_s - share * one.total_s for one in embedding])
        each = []
        for layers in zip(*map(StageCosts.layer_of_each_kind, own), strict=True):
            beside_s = np.maximum.reduce([share * one.total_s - one.weight_grad_s for one in layers])
            each.append(_exchange(own, layers).per_layer_s - beside_s)
        each_s = np.minimum.reduce(each)
        return np.where(each_s >= 0.0, start_s + each_s, 0.0)

    @property
    def num_microbatches(self) -> FloatArray:
        """Micro-batches of every configuration."""
        return self.types.space.columns.num_microbatches.astype(np.float64)

    @property
    def num_chunks(self) -> FloatArray:
        """Stages of a rank of every configuration."""
        return self.types.space.columns.vpp.astype(np.float64)

    def _with_stage(self, time: RankTime, each_s: FloatArray) -> list[RankTime]:
        """With a stage whose usual layers add so much each, or take it off: as few or as many as it may have.

        A stage has at least one layer, and of n layers on a rank its even part but for one layer and what ends are
        worth.
        """
        v, others = self.num_chunks, self.types.num_others
        at_least = self.types.least_usual(np.ones_like(self.types.space.columns.vpp))
        more_s, less_s = np.maximum(each_s, 0.0), np.minimum(each_s, 0.0)
        beyond = np.where(v > 1, sum(self.worth) + others + v - 1.0, 0.0) / v
        per_layer_s, start_s = time.per_layer_s + less_s / v, time.start_s + less_s * beyond
        fewer = (v - 1.0) / v * (1.0 + np.maximum(*self.worth) + others)
        return [
            RankTime(per_layer_s, start_s + more_s * at_least),
            RankTime(per_layer_s + more_s / v, start_s - more_s * fewer),
        ]

    def _uncovered_s(self, work: Callable[[StageCost], FloatArray]) -> FloatArray:
        """What ends and other layers of a stage may overlap with beyond this work of their own."""
        types, own = self.types, self.types.by_fabric[self.place]
        beside_s = [price.of(0, 0, embedding=1.0, logits=1.0).total_s for price in own]
        own_s = [work(price.of(0, 0, embedding=1.0, logits=1.0)) for price in own]
        if types.num_others:
            others = [price.other_layer for price in own]
            beside_s = [s + types.num_others * one.total_s for s, one in zip(beside_s, others, strict=True)]
            own_s = [s + types.num_others * work(one) for s, one in zip(own_s, others, strict=True)]
        share = types.context.stack.data_parallel_overlap.value
        beyond_s = share * np.maximum.reduce(beside_s) - self.num_microbatches * np.minimum.reduce(own_s)
        uncovered: FloatArray = np.maximum(beyond_s, 0.0)
        return uncovered


def _exchange(prices: Sequence[StageCosts], layers: Sequence[StageCost]) -> RankTime:
    """Exchange of so many layers of a kind, by fabric, among the fewest replicas that some place holds."""
    none = np.zeros_like(layers[0].parameters)
    dense = affine_exchange(prices, layers[0].parameters, none)
    experts = affine_exchange(prices, none, layers[0].expert_parameters)
    return RankTime(dense[1] + experts[1], dense[0] + experts[0])


def _most_worth(prices: Sequence[StageCosts]) -> list[FloatArray]:
    """Whole layers that the embedding and the logits take as long as, on any fabric."""
    worth = zip(*(price.ends_in_usual_layers() for price in prices), strict=True)
    return [np.floor(np.maximum.reduce(one)) for one in worth]
