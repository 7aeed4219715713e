"""How many layers a rank of each GPU type can have within a time, and the time in which ranks can have all of them.

For layers shared out by GPU type, in any way. Proofs: docs/bounds.md, "Limits of the layers of a rank".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.arrays import BoolArray, FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.bounds.layer_exchanges import RankExchanges
from solver.bounds.least_hops import between_types_s, least_hops_s
from solver.bounds.lightest import both
from solver.bounds.type_ranks import RankTime, Types
from solver.configurations.enumerate import V_FAMILY
from solver.cost.stage import StageCost

LeastPass = Callable[[FloatArray, FloatArray, FloatArray | float], FloatArray]
WIDEST, HALVINGS = 1.0, 10  # of the search for a time: up to twice the ideal share's, within a thousandth


@dataclass(frozen=True)
class LayerLimits:
    """What limits the layers of a rank, one row per type.

    `work` is that of its work alone. `ends` are the same with the embedding and with the logits, or with nothing and
    both where these are on one rank, `between` with the layers of the other kind that lie between usual ones,
    `exchanges` those that end with exchanges, `late` those that follow the forward of the first micro-batch through all
    stages; `in_memory` is what fits, and `least_s` the work of the fewest layers of whatever kind that a rank has: one
    for each of its stages. `home_s` is what follows the last input gradient of the first stage, by configuration.
    """

    work: RankTime
    ends: Sequence[RankTime]
    between: RankTime
    exchanges: Sequence[RankTime]
    late: Sequence[RankTime]
    in_memory: FloatArray
    least_s: FloatArray
    home_s: FloatArray

    @classmethod
    def of_work(cls, types: Types) -> LayerLimits:
        """Work alone: whatever the memory, without exchanges."""
        m, layer_s = types.space.columns.num_microbatches, types.layer_s
        lightest_s = [np.minimum.reduce([one.total_s for one in price.layer_of_each_kind()]) for price in types.prices]
        usual = types.least_usual(types.space.columns.vpp)
        least_s = usual * layer_s + (types.space.columns.vpp - usual) * np.stack(lightest_s)
        zero, forward_s = np.zeros_like(layer_s), np.stack([price.usual_layer.forward_s for price in types.prices])
        late = RankTime(m * (layer_s - forward_s), zero)
        in_memory, work = np.full_like(layer_s, np.inf), RankTime(m * layer_s, zero)
        ends, between = _ends(types), _between(types)
        return cls(work, ends, between, (), (late,), in_memory, m * least_s, _first_weights_s(types))

    @classmethod
    def of(cls, types: Types) -> LayerLimits:
        """Work, memory and exchanges."""
        alone = cls.of_work(types)
        in_memory, full = _memory_limits(types)
        late = *alone.late, full
        exchanges = [RankExchanges.of(types, place) for place in range(len(types.prices))]
        return replace(
            alone,
            exchanges=_by_type([one.times() for one in exchanges]),
            late=(*late, *_by_type([one.late_times(late) for one in exchanges])),
            in_memory=in_memory,
            home_s=np.maximum(alone.home_s, np.minimum.reduce([one.home_s for one in exchanges])),
        )

    def most(self, limit_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Most usual layers of a rank within a time: as its work and memory allow, and as its exchanges allow, too."""
        work = np.minimum(self.work.most(limit_s), self.in_memory)
        every = np.minimum.reduce([work, *(one.most(limit_s) for one in (self.between, *self.exchanges))])
        return np.maximum(work, 0.0), np.maximum(every, 0.0)

    def taken_by_ends(self, limit_s: FloatArray, held: FloatArray) -> FloatArray:
        """Fewest usual layers by which ranks with ends have less, as their work and memory allow, on any type."""
        work = np.minimum(self.work.most(limit_s), self.in_memory)
        less = [work - np.minimum(one.most(limit_s), self.in_memory) for one in self.ends]
        taken = np.sum([np.where(held > 0, one, np.inf).min(axis=0) for one in less], axis=0)
        return np.where(np.isfinite(taken), taken, 0.0)

    def most_late(self, left_s: FloatArray) -> FloatArray:
        """Most usual layers of a rank in what is left of the time once a micro-batch has passed all stages forward."""
        layers: FloatArray = np.maximum(np.minimum.reduce([one.most(left_s) for one in self.late]), 0.0)
        return layers


def _ends(types: Types) -> list[RankTime]:
    """Work of n usual layers and the embedding, and of as many and the logits; of a V both are on one rank."""
    m, together = types.space.columns.num_microbatches, (types.space.family == V_FAMILY) | (types.space.columns.pp == 1)
    embedding_s = np.stack([price.of(0, 0, embedding=1.0).total_s for price in types.prices])
    logits_s = np.stack([price.of(0, 0, logits=1.0).total_s for price in types.prices])
    with_logits_s = np.where(together, embedding_s, 0.0)
    each = embedding_s - with_logits_s, logits_s + with_logits_s
    return [RankTime(m * types.layer_s, m * one_s) for one_s in each]


def _between(types: Types) -> RankTime:
    """Work of n usual layers in v stages and of those between them: n c + (n - v) d c', with d others between two."""
    columns, apart = types.space.columns, types.least_between
    others_s = apart * np.stack([price.other_layer.total_s for price in types.prices])
    m = columns.num_microbatches
    return RankTime(m * (types.layer_s + others_s), -m * columns.vpp * others_s)


def whole_layers_s(ways: LayerTimes, least_s: FloatArray) -> FloatArray:
    """The least T, from `least_s` on, in which ranks have time and memory for all layers, each a whole number of them.

    A rank has at least one layer for each of its stages, and no more than its limits allow; a type has no more ranks
    than it can hold with all their replicas.
    """
    low, high = least_s, (1.0 + WIDEST) * least_s
    found = ways.are_possible(low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        enough = ways.are_possible(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(found, least_s, low)


@dataclass(frozen=True)
class LayerTimes:
    """Whether ranks have time and memory for all layers, by what passes of a micro-batch take at least.

    `follows_s` follows on the last stage, or on the largest one, for each of the other micro-batches.
    """

    types: Types
    limits: LayerLimits
    forward: LeastPass
    there_and_back: LeastPass
    messages_s: FloatArray
    follows_s: FloatArray

    @classmethod
    def of(cls, types: Types, limits: LayerLimits) -> LayerTimes:
        """The times of all rows under these limits."""
        forward = _least_pass(types, lambda cost: cost.forward_s)
        there_and_back = _least_pass(types, both)
        follows_s = np.maximum(_last_stage_s(types), _largest_stage_s(types))
        return cls(types, limits, forward, there_and_back, _messages_s(types), follows_s)

    def are_possible(self, limit_s: FloatArray, messages_s: FloatArray | float = 0.0) -> BoolArray:
        """Within a time (s), where messages of a micro-batch on its way forward take so long, or their least."""
        types, limits, columns = self.types, self.limits, self.types.space.columns
        messages_s = np.maximum(self.messages_s, messages_s)
        work, every = limits.most(limit_s)
        every = np.minimum(every, limits.most_late(limit_s - messages_s - self.forward(every, types.held, 0.0)))
        usable = (limits.least_s <= limit_s * (1.0 + ROUNDING)) & (every >= types.least_usual(columns.vpp))
        held = np.where(usable, types.held, 0.0)
        without_ends = best_ranks(work, held, columns.pp) - limits.taken_by_ends(limit_s, held)
        enough: BoolArray = (held.sum(axis=0) >= columns.pp) & (without_ends >= types.num_usual)
        enough &= best_ranks(every, held, columns.pp) >= types.num_usual
        behind_s = (columns.num_microbatches - 1.0) * self.follows_s + 2.0 * messages_s + limits.home_s
        return enough & (self.there_and_back(every, held, 0.0) + behind_s <= limit_s * (1.0 + ROUNDING))


def _least_pass(types: Types, seconds: Callable[[StageCost], FloatArray]) -> LeastPass:
    """Least seconds of a micro-batch over all stages, from the most usual layers of a rank and the ranks, by type, and
    how many usual layers are left out, whichever they are.

    The quickest types have as many layers as they may; ranks that do not fit on them have their fewest elsewhere.
    """
    pp, fewest = types.space.columns.pp, types.least_usual(types.space.columns.vpp)
    layer_s = np.stack([seconds(price.usual_layer) for price in types.prices])
    order = np.argsort(layer_s, axis=0, kind="stable")
    ascending_s, least = np.take_along_axis(layer_s, order, axis=0), types.least
    rest_s = seconds(least.of(0, 0, embedding=1.0, logits=1.0))
    if types.num_others:
        rest_s = rest_s + types.num_others * seconds(least.other_layer)

    def least_s(most: FloatArray, held: FloatArray, left_out: FloatArray | float) -> FloatArray:
        layers, ranks = (np.cumsum(np.take_along_axis(one, order, axis=0), axis=0) for one in (most * held, held))
        elsewhere = np.maximum(pp - ranks, 0.0) * fewest
        upto = np.minimum(layers, types.num_usual - np.maximum(elsewhere, left_out))
        total_s: FloatArray = (np.diff(upto, axis=0, prepend=0.0) * ascending_s).sum(axis=0) + rest_s
        return total_s

    return least_s


def _messages_s(types: Types) -> FloatArray:
    """Least messages of a micro-batch on its way forward: from each stage to the next, of a V not where it folds.

    Some go between types, as often as the pipeline passes from the ranks of one to those of another.
    """
    columns, is_v, v = types.space.columns, types.space.family == V_FAMILY, types.space.columns.vpp
    num_messages = np.where(is_v, (columns.pp - 1) * v, columns.pp * v - 1)
    num_between = np.where(is_v, v, 2 * v - 1)  # between two groups of ranks
    hop_s = least_hops_s(types.context, columns)
    further_s = np.maximum(between_types_s(types.context, columns) - hop_s, 0.0)
    return np.where(columns.pp > 1, num_messages * hop_s + num_between * further_s, 0.0)


def _last_stage_s(types: Types) -> FloatArray:
    """Least forward and input gradient of the last stage: one layer at least, and the logits."""
    least = types.least
    logits_s = both(least.of(0, 0, logits=1.0))
    found: FloatArray = logits_s + np.minimum.reduce([both(one) for one in least.layer_of_each_kind()])
    return found


def _largest_stage_s(types: Types) -> FloatArray:
    """Least forward or input gradient, whichever takes longer, of the stage with most usual layers."""
    most = np.ceil(types.num_usual / (types.space.columns.pp * types.space.columns.vpp))
    layers = [price.usual_layer for price in types.prices]
    found: FloatArray = most * np.minimum.reduce([np.maximum(one.forward_s, one.input_grad_s) for one in layers])
    return found


def _memory_limits(types: Types) -> tuple[FloatArray, RankTime]:
    """Most usual layers of a rank without ends, by type: the state of each, and its activation of one micro-batch.

    Before its first gradient a rank does no more forwards than it has memory for their activations; the time is that of
    its other work.
    """
    m, nothing = types.space.columns.num_microbatches, np.zeros_like(types.layer_s[0])
    found, per_layer_s, start_s = [], [], []
    for price, own in zip(types.prices, types.by_fabric, strict=True):
        layer, empty = price.usual_layer, price.static_bytes(nothing, nothing)
        state = price.static_bytes(layer.parameters, layer.expert_parameters) - empty
        left_bytes = np.maximum(types.context.memory_limit_bytes(price.gpu_class.gpu) - empty, 0.0)
        each = np.maximum(state + layer.activation_bytes, 1.0)
        found.append(np.floor(left_bytes / each * (1.0 + ROUNDING)))
        kinds_of_layer = [one for fabric in own for one in fabric.layer_of_each_kind()]
        per_byte_s = np.maximum.reduce(
            [one.forward_s / np.maximum(one.activation_bytes, 1.0) for one in kinds_of_layer]
        )
        per_layer_s.append(m * layer.total_s + state * per_byte_s)
        start_s.append(-left_bytes * per_byte_s)
    return np.stack(found), RankTime(np.stack(per_layer_s), np.stack(start_s))


def ends_worth(types: Types) -> tuple[FloatArray, FloatArray]:
    """As few usual layers as the embedding and the logits may be worth on any type."""
    worth = zip(*(price.ends_in_usual_layers() for price in types.prices), strict=True)
    first, last = (np.minimum.reduce(one) for one in worth)
    return first, last


def best_ranks(values: FloatArray, held: FloatArray, num_ranks: IntArray) -> FloatArray:
    """Sum of the largest values over so many ranks, of which every type can hold some."""
    order = np.argsort(-values, axis=0, kind="stable")
    left, total = num_ranks.astype(np.float64), np.zeros(values.shape[1])
    for value, capacity in zip(np.take_along_axis(values, order, 0), np.take_along_axis(held, order, 0), strict=True):
        taken = np.minimum(left, capacity)
        total, left = total + taken * value, left - taken
    return total


def _by_type(times: Sequence[Sequence[RankTime]]) -> list[RankTime]:
    """The same times of every type, a row per type."""
    return [RankTime(*map(np.stack, zip(*same, strict=True))) for same in zip(*times, strict=True)]


def _first_weights_s(types: Types) -> FloatArray:
    """Least weight gradient of a first stage: that of one layer and of the embedding."""
    found = []
    for price in types.prices:
        layer_s = np.minimum.reduce([one.weight_grad_s for one in price.layer_of_each_kind()])
        found.append(layer_s + price.of(0, 0, embedding=1.0).weight_grad_s)
    least_s: FloatArray = np.minimum.reduce(found)
    return least_s
