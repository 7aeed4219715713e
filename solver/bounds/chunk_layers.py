"""How many layers the chunks of a pipeline rank have at least and at most, by the number of its layers.

The rule that shares them out is `chunk_layers_up_to`; docs/bounds.md, "Partition of layers over GPU types".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.bounds.layer_windows import Ends, RankKinds
from solver.configurations.by_type import TypeCost, chunk_layers_up_to

Column = TypeVar("Column", IntArray, FloatArray)


@dataclass(frozen=True)
class ChunkLayers:
    """Of all kinds of ranks of a pipeline, one after another, an entry per number of layers.

    The fewest of the first chunk, of the last and of any; the most of any (`largest`) and of the last. `num_smaller`
    chunks come before the first that has more than the fewest, or but the last, and have up to `in_smaller` together.
    """

    fewest_in_first: IntArray
    fewest_in_last: IntArray
    fewest: IntArray
    largest: FloatArray
    most_in_last: FloatArray
    num_smaller: IntArray
    in_smaller: FloatArray

    @classmethod
    def of(
        cls, ranks: RankKinds, num_chunks: int, worth: tuple[float, float], shared_by: Sequence[TypeCost]
    ) -> ChunkLayers:
        """Ends are worth so many layers at most; of ranks with ends the chunks are known where `shared_by` says how
        configurations share them out.
        """
        found, count = cls._of_worth(ranks, num_chunks, worth), ranks.num_entries
        if num_chunks == 1 or count <= num_chunks:
            return found
        for place, (first, last) in enumerate(ranks.ends if shared_by else ()):
            if first or last:
                ways = [_by_rule(one, count - 1, num_chunks, (first, last)) for one in shared_by]
                found = found.with_known(slice(place * count + num_chunks, (place + 1) * count), np.array(ways))
        return found

    @classmethod
    def _of_worth(cls, ranks: RankKinds, num_chunks: int, worth: tuple[float, float]) -> ChunkLayers:
        """Without ends the last chunk has the most; of n layers on v chunks the last n mod v have one more."""
        n, v = ranks.layers, num_chunks
        has_first, has_last = (ranks.of_each(here) > 0 for here in zip(*ranks.ends, strict=True))
        first, last = (own * here for own, here in zip(worth, (has_first, has_last), strict=True))
        even, any_chunk = np.floor((n + first + last) / v), np.floor(n / v)
        begin = np.where(has_first, np.maximum(even - first, 1.0), any_chunk)
        end = np.where(has_first, any_chunk, np.ceil(n / v))
        end = np.where(has_last, np.maximum(even - last, 1.0), end)
        most = np.where(has_first & has_last, n - 1, n)
        begin, end = (np.maximum(np.minimum(one, most), 0.0).astype(np.int64) for one in (begin, end))
        fewest = np.minimum.reduce([begin, end, any_chunk.astype(np.int64)])
        largest = np.ceil((n + first + last) / v)
        number = np.where(n % v > 0, v - n % v, v - 1)
        together = number * np.where(has_first | has_last, largest, n // v)
        return cls(begin, end, fewest, largest, largest, number, np.asarray(together, dtype=np.float64))

    def with_known(self, at: slice, layers: IntArray) -> ChunkLayers:
        """With chunks of so many layers (rules x entries x chunks) at some entries."""
        least, most, first = layers.min(axis=0), layers.max(axis=0), layers[0]
        is_larger = first > first.min(axis=1)[:, None]
        number = np.where(is_larger.any(axis=1), np.maximum(is_larger.argmax(axis=1), 1), layers.shape[2] - 1)
        together = layers.cumsum(axis=2).max(axis=0)[np.arange(len(number)), number - 1]
        return ChunkLayers(
            _with(self.fewest_in_first, at, least[:, 0]),
            _with(self.fewest_in_last, at, least[:, -1]),
            _with(self.fewest, at, least.min(axis=1)),
            _with(self.largest, at, most.max(axis=1)),
            _with(self.most_in_last, at, most[:, -1]),
            _with(self.num_smaller, at, number),
            _with(self.in_smaller, at, together),
        )


def _by_rule(cost: TypeCost, most: int, num_chunks: int, ends: Ends) -> list[tuple[int, ...]]:
    """Layers of the chunks of a rank with these ends, by the number of its layers from one in each on."""
    first, last = ends
    ends_s = [cost.first_s * first, *[0.0] * (num_chunks - 2), cost.last_s * last]
    return chunk_layers_up_to(most, cost.layer_s, ends_s)


def _with(column: Column, at: slice, values: IntArray) -> Column:
    """The column with other values there."""
    changed = column.copy()
    changed[at] = values
    return changed
