"""The way of a micro-batch before the first and behind the last message between two groups, for any share of layers.

Where every replica crosses between two groups, the links out of either carry all their messages, one after another:
none before the forwards that lead to the first, and behind the last its gradient goes home. Proof: docs/bounds.md,
"Ways before and behind messages".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.bounds.gradient_exchange import SplitLayers
from solver.bounds.layer_limits import LayerTimes
from solver.bounds.least_hops import least_hops_s
from solver.bounds.lightest import both
from solver.configurations.enumerate import ONE_WAY, V_FAMILY
from solver.configurations.pricing import moe_among
from solver.context import Context


@dataclass(frozen=True)
class CrossingWays:
    """Ways of configurations with layers by GPU type, whose ranks have at most so many usual layers, by type."""

    times: LayerTimes
    most: FloatArray

    def least_s(self, whole: IntArray, spanning: SplitLayers) -> FloatArray:
        """Least seconds before and behind the messages, on average of both directions; 0 where none is known.

        A group has no more than so many `whole` ranks.
        """
        types, limits = self.times.types, self.times.limits
        pp, folded = types.space.columns.pp, types.space.family == V_FAMILY
        usual, others = self._left_out(np.minimum(whole, pp - 1), spanning, folded=folded)
        way_s = self.times.there_and_back(self.most, types.held, usual) - others * both(types.least.other_layer)
        way_s = np.where(folded, (way_s - both(types.least.of(0, 0, logits=1.0))) / 2.0, way_s)
        hops_s = np.maximum(2 * pp - 3 - spanning.in_row, 0.0) * least_hops_s(types.context, types.space.columns)
        is_known = (types.space.family == ONE_WAY) | (folded & (types.space.columns.vpp == 2))
        return np.where(is_known, np.maximum(way_s, 0.0) + hops_s + limits.home_s, 0.0)

    def _left_out(
        self, uneven: IntArray, spanning: SplitLayers, *, folded: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Usual layers and others that are not on these ways, at most; of so many ranks one chunk may have one more."""
        types = self.times.types
        ends = _more_behind(self.times)
        usual = np.minimum(uneven * _more_usual(types.context), uneven + types.num_others) + ends + spanning.usual
        of_others = types.space.columns.pp * min(max(spanning.longest_others - 1, 0), 1)
        more = uneven + ends + spanning.usual + spanning.in_row + of_others
        others = np.where(folded, _more_others(types.context, more), spanning.in_row / 2.0)
        usual = np.where(folded, usual, spanning.usual / 2.0)
        return np.minimum(usual, types.num_usual), np.minimum(others, types.num_others)


def _more_behind(times: LayerTimes) -> FloatArray:
    """Most layers that the chunk with the logits has beyond one more than that with the embedding."""
    extras = [price.end_extras() for own in times.types.by_fabric for price in own]
    more: FloatArray = np.maximum.reduce([first - last for first, last in extras])
    return np.asarray(np.maximum(np.floor(more + ROUNDING), 0.0))


def _more_usual(context: Context) -> int:
    """Most usual layers that some in a row have more than others in a row, of which there is one less."""
    fewest, most = moe_among(context)
    if not context.job.num_moe_layers:
        return 1
    return int((most[1:] - fewest[:-1]).max())


def _more_others(context: Context, more: FloatArray) -> FloatArray:
    """Most layers of the other kind that the last layers of the model have more than the first: of the last ones there
    are so many more, or not as many.
    """
    moe, total = context.moe_before, context.job.num_layers
    before = np.arange(total + 1) - moe if context.job.num_moe_layers else moe
    table = np.full(total + 1, before[total])
    for number in range(total - 1):
        first = np.arange(1, total - number)
        table[number] = (before[total] - before[total - first - number] - before[first]).max()
    table = np.maximum(np.maximum.accumulate(table), 0)
    return np.asarray(table[np.minimum(more, total).astype(np.int64)], dtype=np.float64)
