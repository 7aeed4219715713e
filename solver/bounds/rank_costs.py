"""What the pipeline ranks of a GPU type take at least with 0, 1, 2 ... layers, for configurations that are alike.

Every table has one kind of rank after another, each with one entry per number of layers. What the stage partition bound
makes of them is in `rank_needs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.bounds.chunk_layers import ChunkLayers
from solver.bounds.kind_costs import ChunkCosts, Kind, least_of_layers
from solver.bounds.layer_windows import Ends, RankKinds
from solver.configurations.by_type import TypeCost
from solver.context import Context
from solver.cost.stage import StageCost


@dataclass(frozen=True)
class RankCosts:
    """All kinds of ranks of a pipeline on one GPU type, or several as one.

    `excess_s` is what `_evened_s` shares out of usual layers' forwards, and of their forwards and input gradients.
    `shared_by` are costs by which configurations share out layers over the chunks of a rank, if they are to be known.
    """

    kind: Kind
    ranks: RankKinds
    num_microbatches: int
    vpp: int
    looped: bool
    excess_s: tuple[float, float]
    shared_by: Sequence[TypeCost] = ()

    @property
    def context(self) -> Context:
        """The request."""
        return self.kind.context

    @property
    def layers(self) -> IntArray:
        """0, 1, 2 ... up to all layers, once for every kind of rank."""
        return self.ranks.layers

    @cached_property
    def has_ends(self) -> tuple[FloatArray, FloatArray]:
        """1 where a rank has the embedding, and where it has the logits."""
        first, last = zip(*self.ranks.ends, strict=True)
        return self.ranks.of_each(first), self.ranks.of_each(last)

    @cached_property
    def ends(self) -> StageCost:
        """The ends at their least."""
        embedding, logits = self.has_ends
        return self.kind.least.of(0, 0, embedding=embedding, logits=logits)

    @cached_property
    def embedding(self) -> StageCost:
        """The cost of the embedding alone, where the rank has it."""
        return self.kind.least.of(0, 0, embedding=self.has_ends[0])

    @cached_property
    def inner(self) -> StageCost:
        """The layers at their least."""
        return self.kind.least_of(self.ranks.windows.together)

    @cached_property
    def cost(self) -> StageCost:
        """The layers and ends at their least."""
        names = [one.name for one in fields(StageCost) if one.name != "boundary_bytes"]
        return replace(self.inner, **{name: getattr(self.inner, name) + getattr(self.ends, name) for name in names})

    @cached_property
    def chunk(self) -> ChunkCosts:
        """Any one of the stages, by its layers."""
        return self.kind.chunk(self.ranks.windows.any_stage)

    @cached_property
    def chunk_layers(self) -> ChunkLayers:
        """Fewest and most layers of its chunks."""
        return ChunkLayers.of(self.ranks, self.vpp, self.kind.worth, self.shared_by)

    @cached_property
    def parameters(self) -> list[tuple[FloatArray, FloatArray]]:
        """Dense and expert parameters by layers, by fabric."""
        embedding, logits = self.has_ends
        found = []
        for number, price in enumerate(self.kind.prices):
            usual, other = price.usual_layer, price.other_layer
            first, last = (self.kind.ends[at][number] for at in ((True, False), (False, True)))
            dense, experts = (
                least_of_layers(self.ranks.windows.together, getattr(usual, name), getattr(other, name))
                + embedding * getattr(first, name)
                + logits * getattr(last, name)
                for name in ("parameters", "expert_parameters")
            )
            found.append((dense, experts))
        return found

    @cached_property
    def update_s(self) -> FloatArray:
        """Least seconds of the optimizer step, by number of layers."""
        each = zip(self.kind.prices, self.parameters, strict=True)
        updates = [price.update_s(*parameters).min(axis=0) for price, parameters in each]
        least: FloatArray = np.minimum.reduce(updates)
        return least

    @property
    def capacity_bytes(self) -> FloatArray:
        """Most memory that is left for activations."""
        capacities = []
        for price, parameters in zip(self.kind.prices, self.parameters, strict=True):
            static = price.static_bytes(*parameters, has_logits=self.has_ends[1])
            capacities.append(self.context.memory_limit_bytes(price.gpu_class.gpu) - static.min(axis=0))
        capacity: FloatArray = np.maximum.reduce(capacities)
        return capacity

    def of_kinds_of_layer(self, costs: tuple[float, float], pick: np.ufunc) -> FloatArray:
        """The least or largest of the costs of a usual layer and of another, of those that a rank's stages may have."""
        windows, job = self.ranks.windows.any_stage, self.context.job
        usual = self.ranks.any_of_kind(windows.most > 0)
        other = self.ranks.any_of_kind(windows.fewest < self.layers) & bool(job.num_moe_layers and job.num_dense_layers)
        return np.where(usual & other, pick(*costs), np.where(usual, *costs))


def ends_worth(kind: Kind, at: Ends) -> int:
    """Whole layers that the ends of a rank take as long as."""
    return int(sum(worth * here for worth, here in zip(kind.worth, at, strict=True)))
