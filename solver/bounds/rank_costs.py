"""What a pipeline rank with 0, 1, 2 ... layers takes at least on a GPU type, for configurations that are alike.

Every table has one entry per number of layers; `RankCosts.needs` makes the rows that the stage partition bound adds to
what other ranks take. What each row means: docs/bounds.md, "Partition of layers over GPU types".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.bounds.kind_costs import Ends, Kind, layer_numbers, window_sizes
from solver.bounds.layer_windows import fewest_others, most_others
from solver.bounds.synchronisation import least_exchange_s
from solver.configurations.pricing import StageCosts
from solver.context import Context
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import StageCost


@dataclass(frozen=True)
class RankCosts:
    """A pipeline rank by its ends, on one GPU type, with 0, 1, 2 ... usual layers and the fewest others beside them.

    `other_s` are forward, and forward and input gradient, of a layer of the other kind on the quickest type.
    """

    kind: Kind
    at: Ends
    num_microbatches: int
    vpp: int
    few_others: bool
    other_s: tuple[float, float]

    @property
    def context(self) -> Context:
        """The request."""
        return self.kind.context

    @cached_property
    def layers(self) -> FloatArray:
        """0, 1, 2 ... up to all usual layers."""
        return layer_numbers(self.context)

    @cached_property
    def others(self) -> FloatArray:
        """Fewest other layers in chunks with so many usual ones."""
        return fewest_others(self.context.job.architecture, self.vpp).astype(np.float64)

    def counted(self, price: StageCosts, ends: Ends) -> StageCost:
        """These layers, and ends."""
        counts = (self.others, self.layers) if self.context.job.num_moe_layers else (self.layers, self.others)
        return price.of(*counts, embedding=float(ends[0]), logits=float(ends[1]))

    @cached_property
    def inner(self) -> StageCost:
        """The layers at their least."""
        return self.counted(self.kind.least, (False, False))

    @cached_property
    def cost(self) -> StageCost:
        """The layers and ends at their least."""
        return self.counted(self.kind.least, self.at)

    @cached_property
    def chunks(self) -> tuple[IntArray, IntArray, IntArray]:
        """Fewest layers of the first, of the last and of any chunk."""
        n, v, (has_first, has_last) = self.layers + self.others, self.vpp, self.at
        first, last = (worth * here for worth, here in zip(self.kind.worth, self.at, strict=True))
        even, any_chunk = np.floor((n + first + last) / v), np.floor(n / v)
        begin = np.maximum(even - first, 1.0) if has_first else any_chunk
        end = np.maximum(even - last, 1.0) if has_last else any_chunk
        if has_first and has_last:
            begin, end = np.minimum(begin, n - 1), np.minimum(end, n - 1)
        begin, end = np.maximum(begin, 0.0).astype(np.int64), np.maximum(end, 0.0).astype(np.int64)
        return begin, end, np.minimum.reduce([begin, end, any_chunk.astype(np.int64)])

    @cached_property
    def before_last_s(self) -> FloatArray:
        """Least forward of all chunks but the last.

        Where others count as `few_others`, usual layers alone are counted, and as if others took no place in a chunk.
        """
        if self.vpp == 1:
            return 0.0 * self.layers
        first_s, n, v = self.kind.least_ends[self.at[0], False].forward_s, self.layers, self.vpp
        if not self.few_others:
            fewest = np.minimum(self.chunks[0], np.floor((n + self.others) / v).astype(np.int64))
            return (v - 1) * self.kind.chunk.forward_s[fewest] + first_s
        most = np.ceil(n / v) if self.at == (False, True) else np.ceil((n + _ends_worth(self)) / v)
        return np.maximum(n - most, 0.0) * self.kind.layer.forward_s + first_s

    @cached_property
    def update_s(self) -> FloatArray:
        """Least update."""
        stack, job = self.context.stack, self.context.job
        updates = [
            optimizer_s(*parameters, price.columns, gpu=price.gpu_class.gpu, stack=stack, job=job).min(axis=0)
            for price, parameters in zip(self.kind.prices, self.parameters, strict=True)
        ]
        least: FloatArray = np.minimum.reduce(updates)
        return least

    def exposed_s(self, exchange_s: FloatArray) -> FloatArray:
        """Least exchange of a stage beyond what overlaps, from that of a stage with 0, 1, 2 ... layers."""
        exposed = np.maximum(exchange_s - _overlap_s(self, window_sizes(self.context)), 0.0)
        least = np.minimum.accumulate(exposed[::-1])[::-1]  # a stage may have more layers than the fewest
        exposed_s: FloatArray = least[np.maximum(self.chunks[2], min(1, len(least) - 1))]
        return exposed_s

    @cached_property
    def parameters(self) -> list[tuple[FloatArray, FloatArray]]:
        """Dense and expert parameters by layers, by fabric."""
        found = (self.counted(price, self.at) for price in self.kind.prices)
        return [(one.parameters, one.expert_parameters) for one in found]

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
        m, v, cost = float(self.num_microbatches), self.vpp, self.cost
        ends, first = self.kind.least_ends[self.at], self.kind.least_ends[self.at[0], False]
        begin, end, _ = self.chunks
        last_forward, last_both = cost.forward_s, self.inner.forward_s + self.inner.input_grad_s + ends.forward_s
        if v > 1:
            in_last = ends.forward_s - first.forward_s
            last_forward, last_both = self.kind.chunk.forward_s[end] + in_last, self.kind.chunk.both_s[end] + in_last
        both, update, capacity = cost.forward_s + cost.input_grad_s, self.update_s, self.capacity_bytes
        fits = cost.activation_bytes <= capacity * (1.0 + ROUNDING)
        safe = np.where(fits & (capacity > 0), capacity, 1.0)
        first_s, last_s = _outside_s(self, safe)
        work, usual = cost.total_s, self.usual
        late = work - cost.forward_s + last_forward
        usual_late = (
            usual.input_grad_s + usual.weight_grad_s + self.kind.chunk.usual_among[0][end] * self.kind.layer.forward_s
        )
        exchanged = self._exchanged_s(m * work, m * usual.total_s)
        needs = {
            "work": np.where(fits, np.maximum(exchanged, _exchanges_s(self)) + update, np.inf),
            "late": self._exchanged_s(m * late, m * usual_late) + update,
            "through": m * cost.total_s - last_s + update,
            "early": self._exchanged_s(m * work - first_s, m * usual.total_s - first_s) + update,
            "early_back": m * cost.total_s - first_s - last_s + update,
            "last": m * last_both + update,
            "between": m * (both - cost.forward_s + last_forward) + update,
            "first_chunk": self.kind.chunk.forward_s[begin] + first.forward_s if v > 1 else cost.forward_s,
            "before_last": self.before_last_s,
            "own_both": both,
            "home": _home_s(self) + update,
            "whole": m * work + update,
            "spare_others": _spare_others(self),
            "forward": cost.forward_s - self.others * self.other_s[0],
            "both": both - self.others * self.other_s[1],
            "others": -self.others,
        }
        return needs | _memory_needs(self, safe)

    def _exchanged_s(self, all_s: FloatArray, usual_s: FloatArray) -> FloatArray:
        """Up to the end of the last exchange: of all stages, or of those with a usual layer, the last to end its work.

        `all_s` is the work of all of them until then, `usual_s` of usual layers and the ends in their stages.
        """
        exchange, of_usual = (
            self.exposed_s(one) for one in (self.kind.chunk.exchange_s, self.kind.chunk.usual_exchange_s)
        )
        ends_s: FloatArray = np.maximum(all_s + exchange, np.where(self.layers > 0, usual_s + of_usual, 0.0))
        return ends_s

    @cached_property
    def usual(self) -> StageCost:
        """The usual layers at their least, and the ends whose stage has one in any case."""
        job, moe = self.context.job, bool(self.context.job.num_moe_layers)
        first, last = (job.architecture.is_moe_layer(layer) == moe for layer in (0, job.num_layers - 1))
        counts = (0.0, self.layers) if moe else (self.layers, 0.0)
        ends = {"embedding": float(self.at[0] and first), "logits": float(self.at[1] and last)}
        return self.kind.least.of(*counts, **ends)


def _ends_worth(rank: RankCosts) -> float:
    """Whole layers that the rank's ends take as long as."""
    return sum(worth * here for worth, here in zip(rank.kind.worth, rank.at, strict=True))


def _spare_others(rank: RankCosts) -> FloatArray:
    """Most other layers beside so many usual ones, beyond the fewest."""
    most = most_others(rank.context.job.architecture, rank.vpp, int(_ends_worth(rank)))
    spare: FloatArray = np.maximum(most - rank.others, 0.0)
    return spare


def _exchanges_s(rank: RankCosts) -> FloatArray:
    """Up to the end of the exchanges of all chunks, from the first forward; see `rank_exchanges_s`.

    Before all of them come all forwards, and the gradients of a chunk; together they take no less than one exchange
    of all parameters would.
    """
    if rank.vpp == 1:
        return 0.0 * rank.layers
    chunk = rank.kind.chunk
    exchanges = [
        least_exchange_s(
            rank.context,
            one.columns,
            one.price.gpu_class.fabric,
            dense=dense,
            experts=experts,
            num_places=chunk.num_places,
        )
        for one, (dense, experts) in zip(rank.kind.costs, rank.parameters, strict=True)
    ]
    exchange = np.minimum.reduce(exchanges)
    most = np.ceil((rank.layers + rank.others + _ends_worth(rank)) / rank.vpp)
    before = rank.num_microbatches * (rank.cost.forward_s + chunk.backward_s[rank.chunks[2]])
    found: FloatArray = np.where(exchange > 0, np.maximum(before - _overlap_s(rank, most), 0.0) + exchange, 0.0)
    return found


def _overlap_s(rank: RankCosts, num_layers: IntArray | FloatArray) -> FloatArray:
    """The most that the exchange of a stage with so many layers and the rank's ends has of a head start."""
    ends_s = max(float(cost.total_s.max()) for cost in rank.kind.ends[rank.at])
    share = rank.context.stack.data_parallel_overlap.value
    return np.asarray(share * (num_layers * rank.kind.dearest_s + ends_s), dtype=np.float64)


def _home_s(rank: RankCosts) -> FloatArray:
    """The first stage's weight gradient and exchange."""
    if not rank.at[0]:
        return 0.0 * rank.layers
    chunk_s = rank.inner.weight_grad_s if rank.vpp == 1 else rank.kind.chunk.weight_grad_s[rank.chunks[0]]
    return chunk_s + rank.kind.least_ends[True, False].weight_grad_s + rank.exposed_s(rank.kind.chunk.exchange_s)


def _outside_s(rank: RankCosts, capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Most forwards before the first gradient, and most weight gradients after the last input gradient.

    Of what is counted, and of what memory holds with layers of either kind alone.
    """
    m, ends, inner = float(rank.num_microbatches), rank.kind.least_ends[rank.at], rank.inner
    most = []
    for seconds, held in (("forward_s", "activation_bytes"), ("weight_grad_s", "weight_grad_context_bytes")):
        per_byte = max(
            float((getattr(one, seconds) / np.maximum(getattr(one, held), 1e-9)).max())
            for one in (rank.kind.layer, rank.kind.other)
        )
        inside_s = np.minimum(m * getattr(inner, seconds), capacity * per_byte)
        most.append(inside_s + m * getattr(ends, seconds))
    return most[0], most[1]


def _memory_needs(rank: RankCosts, capacity: FloatArray) -> dict[str, FloatArray]:
    """What memory for few micro-batches costs."""
    m, v, n, inner = float(rank.num_microbatches), rank.vpp, rank.layers, rank.inner
    kinds_of_layer = [one for one in (rank.kind.layer, rank.kind.other) if one.activation_bytes[0] > 0]
    if v == 1:
        slots = np.floor(capacity / np.maximum(inner.activation_bytes, 1.0) * (1.0 + ROUNDING))
        trips = np.where(n > 0, np.ceil(m / np.maximum(slots, 1.0)), 1.0)
        keeps = all(bool(one.weight_grad_context_bytes[0] >= one.activation_bytes[0]) for one in kinds_of_layer)
        own = (trips - 1.0) * inner.weight_grad_s * keeps
        return {"weighted": 0.0 * n, "trips": trips, "held_own": own, "held_per_s": 0.0 * n}
    fewest, per_byte = rank.chunks[2], m / capacity
    per_activation = [
        (
            float((one.forward_s + one.input_grad_s)[0] / one.activation_bytes[0]),
            float(one.weight_grad_s[0] / one.activation_bytes[0]),
            min(float(one.weight_grad_context_bytes[0] / one.activation_bytes[0]), 1.0),
        )
        for one in kinds_of_layer
    ]
    both_s, weights_s, retained = map(min, zip(*per_activation, strict=True)) if per_activation else (0.0, 0.0, 0.0)
    own = per_byte * inner.activation_bytes**2 / v * (both_s + retained * weights_s)
    return {
        "weighted": rank.kind.chunk.both_s[fewest] * v * (v - 1) / 2.0,
        "trips": np.ones(len(n)),
        "held_own": own,
        "held_per_s": per_byte * rank.kind.chunk.activation_bytes[fewest],
    }
