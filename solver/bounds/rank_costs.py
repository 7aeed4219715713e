"""What the pipeline ranks of a GPU type take at least with 0, 1, 2 ... layers, for configurations that are alike.

Every table has one kind of rank after another, each with one entry per number of layers. What the stage partition bound
makes of them is in `rank_needs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.kind_costs import ChunkCosts, Kind, least_of_layers
from solver.bounds.layer_windows import Ends, RankKinds
from solver.configurations.by_type import TypeCost, chunk_layers_up_to
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
    def chunks(self) -> tuple[IntArray, IntArray, IntArray]:
        """Fewest layers of the first, of the last and of any chunk: without ends the last has the most."""
        n, v, worth = self.layers.astype(np.float64), self.vpp, self.kind.worth
        has_first, has_last = (here > 0 for here in self.has_ends)
        first, last = (own * here for own, here in zip(worth, self.has_ends, strict=True))
        even, any_chunk = np.floor((n + first + last) / v), np.floor(n / v)
        begin = np.where(has_first, np.maximum(even - first, 1.0), any_chunk)
        end = np.where(has_first, any_chunk, np.ceil(n / v))
        end = np.where(has_last, np.maximum(even - last, 1.0), end)
        most = np.where(has_first & has_last, n - 1, n)
        begin, end = (np.maximum(np.minimum(one, most), 0.0).astype(np.int64) for one in (begin, end))
        fewest = np.minimum.reduce([begin, end, any_chunk.astype(np.int64)])
        known = self._known_chunks
        return (
            np.where(known.is_known, known.layers.min(axis=0)[:, 0], begin),
            np.where(known.is_known, known.layers.min(axis=0)[:, -1], end),
            np.where(known.is_known, known.layers.min(axis=(0, 2)), fewest),
        )

    @cached_property
    def largest_chunk(self) -> FloatArray:
        """Most layers of any chunk."""
        worth = self.ranks.of_each([ends_worth(self.kind, at) for at in self.ranks.ends])
        largest = np.asarray(np.ceil((self.layers + worth) / self.vpp), dtype=np.float64)
        return np.where(self._known_chunks.is_known, self._known_chunks.layers.max(axis=(0, 2)), largest)

    @property
    def most_in_last(self) -> FloatArray:
        """Most layers of the last chunk."""
        known = self._known_chunks
        return np.where(known.is_known, known.layers.max(axis=0)[:, -1], self.largest_chunk)

    @cached_property
    def smaller_chunks(self) -> tuple[IntArray, FloatArray]:
        """How many chunks come before the first that has more layers than the fewest, or but the last; the most layers
        that they have together.

        Where n layers on v chunks leave a remainder, the last n mod v chunks have one more.
        """
        n, v, known = self.layers, self.vpp, self._known_chunks
        number = np.where(n % v > 0, v - n % v, v - 1)
        together = number * np.where(sum(self.has_ends) > 0, self.largest_chunk, n // v)
        first = known.layers[0]
        is_larger = first > first.min(axis=1)[:, None]
        at = np.where(is_larger.any(axis=1), np.maximum(is_larger.argmax(axis=1), 1), max(v - 1, 1))
        sums = known.layers.cumsum(axis=2).max(axis=0)[np.arange(len(n)), at - 1]
        return np.where(known.is_known, at, number), np.where(known.is_known, sums, together)

    @cached_property
    def _known_chunks(self) -> _KnownChunks:
        """Of ranks with ends: by rule and number of layers."""
        v, count = self.vpp, self.ranks.num_entries
        layers = np.ones((max(len(self.shared_by), 1), len(self.layers), v), dtype=np.int64)
        is_known = np.zeros(len(self.layers), dtype=np.bool_)
        if v > 1 and self.shared_by and count > v:
            for place, (first, last) in enumerate(self.ranks.ends):
                if first or last:
                    begin = place * count
                    is_known[begin + v : begin + count] = True
                    for way, cost in enumerate(self.shared_by):
                        ends_s = [cost.first_s * first, *([0.0] * (v - 2)), cost.last_s * last]
                        shares = chunk_layers_up_to(count - 1, cost.layer_s, ends_s)
                        layers[way, begin + v : begin + count] = shares
        return _KnownChunks(is_known, layers)

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


class _KnownChunks(NamedTuple):
    """Layers of every chunk (rules x entries x chunks), of the entries for which they are known."""

    is_known: BoolArray
    layers: IntArray


def ends_worth(kind: Kind, at: Ends) -> int:
    """Whole layers that the ends of a rank take as long as."""
    return int(sum(worth * here for worth, here in zip(kind.worth, at, strict=True)))
