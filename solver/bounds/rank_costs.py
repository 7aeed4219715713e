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
from solver.bounds.kind_costs import (
    ChunkCosts,
    Ends,
    Kind,
    layer_numbers,
    least_of_layers,
    other_layer,
    places_with,
    usual_layer,
)
from solver.bounds.layer_windows import RankWindows
from solver.bounds.synchronisation import least_exchange_s
from solver.context import Context
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import StageCost


@dataclass(frozen=True)
class RankCosts:
    """A pipeline rank by its ends and the windows of its stages, on one GPU type, with 0, 1, 2 ... layers.

    `excess_s` is what `_evened_s` shares out of usual layers' forwards, and of their forwards and input gradients.
    """

    kind: Kind
    at: Ends
    windows: RankWindows
    num_microbatches: int
    vpp: int
    looped: bool
    excess_s: tuple[float, float]

    @property
    def context(self) -> Context:
        """The request."""
        return self.kind.context

    @cached_property
    def layers(self) -> IntArray:
        """0, 1, 2 ... up to all layers."""
        return layer_numbers(self.context)

    @cached_property
    def inner(self) -> StageCost:
        """The layers at their least."""
        return self.kind.least_of(self.windows.together, (False, False))

    @cached_property
    def cost(self) -> StageCost:
        """The layers and ends at their least."""
        return self.kind.least_of(self.windows.together, self.at)

    @cached_property
    def chunk(self) -> ChunkCosts:
        """Any one of the stages, by its layers."""
        return self.kind.chunk(self.windows.any_stage)

    @cached_property
    def chunks(self) -> tuple[IntArray, IntArray, IntArray]:
        """Fewest layers of the first, of the last and of any chunk: without ends the last has the most."""
        n, v, (has_first, has_last) = self.layers.astype(np.float64), self.vpp, self.at
        first, last = (worth * here for worth, here in zip(self.kind.worth, self.at, strict=True))
        even, any_chunk = np.floor((n + first + last) / v), np.floor(n / v)
        begin = np.maximum(even - first, 1.0) if has_first else any_chunk
        end = np.ceil(n / v) if not (has_first or has_last) else any_chunk
        end = np.maximum(even - last, 1.0) if has_last else end
        if has_first and has_last:
            begin, end = np.minimum(begin, n - 1), np.minimum(end, n - 1)
        begin, end = np.maximum(begin, 0.0).astype(np.int64), np.maximum(end, 0.0).astype(np.int64)
        return begin, end, np.minimum.reduce([begin, end, any_chunk.astype(np.int64)])

    @cached_property
    def largest_chunk(self) -> FloatArray:
        """Most layers of any chunk."""
        return np.asarray(np.ceil((self.layers + ends_worth(self.kind, self.at)) / self.vpp), dtype=np.float64)

    @cached_property
    def slowest_s(self) -> FloatArray:
        """Least forward or input gradient, whichever takes longer, of the chunk with most layers."""
        most = -(-self.layers // self.vpp)
        slowest: FloatArray = np.maximum(self.chunk.forward_s, self.chunk.input_grad_s)[most]
        return slowest

    @cached_property
    def before_last_s(self) -> FloatArray:
        """Least forward of all chunks but the last: v - 1 of the smallest, or all layers but the largest chunk's."""
        if self.vpp == 1:
            return np.zeros(len(self.layers))
        first_s, n, v = self.kind.least_ends[self.at[0], False].forward_s, self.layers, self.vpp
        fewest = np.minimum(self.chunks[0], n // v)
        quickest_s = min(float(one.forward_s[0]) for one in self.kinds_of_layer)
        before_s = np.maximum(
            (v - 1) * self.chunk.forward_s[fewest], np.maximum(n - self.largest_chunk, 0) * quickest_s
        )
        return np.asarray(before_s + first_s, dtype=np.float64)

    @property
    def kinds_of_layer(self) -> list[StageCost]:
        """A layer of each kind that the stages may have, at its least."""
        windows, job = self.windows.any_stage, self.context.job
        may_be_other = job.num_moe_layers and job.num_dense_layers and (windows.fewest < self.layers).any()
        found = [self.kind.layer] if (windows.most > 0).any() else []
        return [*found, self.kind.other] if may_be_other else found

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

    @cached_property
    def exposed_s(self) -> FloatArray:
        """Least exchange of a stage beyond what overlaps."""
        fewest = self.layers if self.vpp == 1 else self.chunks[2]
        return _exposed_s(self, self.chunk.exchange_s((False, False)), fewest, self.at)

    @cached_property
    def parameters(self) -> list[tuple[FloatArray, FloatArray]]:
        """Dense and expert parameters by layers, by fabric."""
        found = []
        for price in self.kind.prices:
            usual, other = usual_layer(price.parts, self.context), other_layer(price.parts, self.context)
            ends = price.of(0, 0, embedding=float(self.at[0]), logits=float(self.at[1]))
            found.append(
                (
                    least_of_layers(self.windows.together, usual.parameters, other.parameters) + ends.parameters,
                    least_of_layers(self.windows.together, usual.expert_parameters, other.expert_parameters)
                    + ends.expert_parameters,
                )
            )
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
        """The tables of `PartitionProblem` for this rank and type, by layers."""
        m, v, cost = float(self.num_microbatches), self.vpp, self.cost
        ends, first = self.kind.least_ends[self.at], self.kind.least_ends[self.at[0], False]
        layer, other = self.kind.layer, self.kind.other
        begin, end, any_chunk = self.chunks
        last_forward, last_both = cost.forward_s, self.inner.forward_s + self.inner.input_grad_s + ends.forward_s
        last_gradient = self.inner.input_grad_s + ends.input_grad_s
        if v > 1:
            last, in_last = self.kind.chunk(self.windows.last), ends.forward_s - first.forward_s
            last_forward, last_both = last.forward_s[end] + in_last, last.both_s[end] + in_last
            last_gradient = last.input_grad_s[end] + ends.input_grad_s - first.input_grad_s
        both, update, capacity = cost.forward_s + cost.input_grad_s, self.update_s, self.capacity_bytes
        fits = cost.activation_bytes <= capacity * (1.0 + ROUNDING)
        safe = np.where(fits & (capacity > 0), capacity, 1.0)
        first_s, last_s = _outside_s(self, safe)
        work, exposed = m * cost.total_s, self.exposed_s
        first_chunk = self.kind.chunk(self.windows.first).forward_s[begin] + first.forward_s
        needs = {
            "work": np.where(fits, np.maximum(work + exposed, _exchanges_s(self)) + update, np.inf),
            "late": m * (cost.total_s - cost.forward_s + last_forward) + exposed + update,
            "through": work - last_s + update,
            "early": work - first_s + exposed + update,
            "early_back": work - first_s - last_s + update,
            "last": m * last_both + update,
            "between": m * (both - cost.forward_s + last_forward) + update,
            "first_chunk": first_chunk if v > 1 else cost.forward_s,
            "last_chunk": last_forward,
            "before_last": self.before_last_s,
            "own_both": both if v == 1 else self.chunk.both_s[any_chunk],
            "home": (m - 1.0) * self.slowest_s + update,
            "forwards": m * cost.forward_s + update,
            "first_end": _first_end_s(self),
            "input_gradient": cost.input_grad_s,
            "forward": _evened_s(self, layer.forward_s, other.forward_s, self.excess_s[0]) + ends.forward_s,
            "both": both,
            "even_both": _evened_s(
                self, layer.forward_s + layer.input_grad_s, other.forward_s + other.input_grad_s, self.excess_s[1]
            )
            + ends.forward_s
            + ends.input_grad_s,
            "last_gradient": last_gradient,
        }
        return needs | _memory_needs(self, safe)


def _evened_s(rank: RankCosts, usual_s: FloatArray, other_s: FloatArray, excess_s: float) -> FloatArray:
    """Least of a rank's layers where `excess_s` of every usual one is shared out over all layers of the model.

    A sum over all ranks is no more than what all layers take: of a rank alone it may be.
    """
    job, spread = rank.context.job, least_of_layers(rank.windows.together, usual_s - excess_s, other_s)
    return spread + excess_s * (job.num_moe_layers or job.num_layers) / job.num_layers * rank.layers


def ends_worth(kind: Kind, at: Ends) -> int:
    """Whole layers that the ends of a rank take as long as."""
    return int(sum(worth * here for worth, here in zip(kind.worth, at, strict=True)))


def _exchanges_s(rank: RankCosts) -> FloatArray:
    """Up to the end of the exchanges of all chunks, from the first forward; see `rank_exchanges_s`.

    Before all of them come all forwards, and the gradients of a chunk; together they take no less than one exchange
    of all parameters would.
    """
    if rank.vpp == 1:
        return np.zeros(len(rank.layers))
    chunk = rank.chunk
    exchanges = [
        least_exchange_s(
            rank.context,
            one.columns,
            one.price.gpu_class.fabric,
            dense=dense,
            experts=experts,
            num_places=places_with(rank.kind),
        )
        for one, (dense, experts) in zip(rank.kind.costs, rank.parameters, strict=True)
    ]
    exchange = np.minimum.reduce(exchanges)
    before = rank.num_microbatches * (rank.cost.forward_s + chunk.backward_s[rank.chunks[2]])
    overlap = _overlap_s(rank, rank.largest_chunk, rank.at)
    found: FloatArray = np.where(exchange > 0, np.maximum(before - overlap, 0.0) + exchange, 0.0)
    return found


def _overlap_s(rank: RankCosts, num_layers: IntArray | FloatArray, ends: Ends) -> FloatArray:
    """The most that the exchange of a stage with so many layers and these ends has of a head start."""
    ends_s = max(float(cost.total_s.max()) for cost in rank.kind.ends[ends])
    share = rank.context.stack.data_parallel_overlap.value
    return np.asarray(share * (num_layers * rank.kind.dearest_s + ends_s), dtype=np.float64)


def _exposed_s(rank: RankCosts, exchange_s: FloatArray, fewest: IntArray, ends: Ends) -> FloatArray:
    """Least exchange of one of its stages with so many layers or more, up to its largest, beyond what overlaps.

    `exchange_s` is that of a stage by its layers; it has these ends at most.
    """
    exposed = np.maximum(exchange_s - _overlap_s(rank, rank.layers, ends), 0.0)
    fewest = np.maximum(fewest, min(1, len(exposed) - 1))
    most = np.maximum(fewest, rank.layers if rank.vpp == 1 else rank.largest_chunk.astype(np.int64))
    sizes = (np.minimum(fewest + more, most) for more in range(int((most - fewest).max()) + 1))
    exposed_s: FloatArray = np.minimum.reduce([exposed[np.minimum(size, len(exposed) - 1)] for size in sizes])
    return exposed_s


def _first_end_s(rank: RankCosts) -> FloatArray:
    """The first stage's weight gradient and exchange, which follow the last of all input gradients."""
    if not rank.at[0]:
        return np.zeros(len(rank.layers))
    first = rank.kind.chunk(rank.windows.first)
    chunk_s = rank.inner.weight_grad_s if rank.vpp == 1 else first.weight_grad_s[rank.chunks[0]]
    ends = True, rank.at[1] and rank.vpp == 1
    exposed_s = _exposed_s(rank, first.exchange_s(ends), rank.chunks[0] if rank.vpp > 1 else rank.layers, ends)
    return chunk_s + rank.kind.least_ends[True, False].weight_grad_s + exposed_s


def _outside_s(rank: RankCosts, capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Most forwards before the first gradient, and most weight gradients after the last input gradient.

    Of what is counted, and of what memory holds with layers of either kind alone.
    """
    m, ends, inner = float(rank.num_microbatches), rank.kind.least_ends[rank.at], rank.inner
    most = []
    for seconds, held in (("forward_s", "activation_bytes"), ("weight_grad_s", "weight_grad_context_bytes")):
        per_byte = max(
            float((getattr(one, seconds) / np.maximum(getattr(one, held), 1e-9)).max()) for one in rank.kinds_of_layer
        )
        inside_s = np.minimum(m * getattr(inner, seconds), capacity * per_byte)
        most.append(inside_s + m * getattr(ends, seconds))
    return most[0], most[1]


def _round_trips(rank: RankCosts, capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
    """With several chunks, the round trips of micro-batches that wait for memory, and the whole cycles of each.

    Chunk j (from 0) of a micro-batch begins when the rank has its chunks up to j and all of its later ones to come: so
    no more than K micro-batches are between the forward and the input gradient of it, K = capacity / activations of
    these chunks, which are no less than j + 1 of the smallest, nor than all but v - 1 - j of the largest. So m / K
    trips follow each other, each with the v - 1 - j chunks of all ranks behind it. Of all j the longest in all counts;
    in a V only j = 0, which all of the other ranks' chunks behind it follow.
    """
    v, chunk, whole = rank.vpp, rank.chunk, rank.inner.activation_bytes
    largest = rank.largest_chunk * max(float(one.activation_bytes[0]) for one in rank.kinds_of_layer)
    trips, cycles = np.ones(len(whole)), np.zeros(len(whole))
    for later in range(v) if rank.looped else (v - 1,):
        held = np.maximum((v - later) * chunk.activation_bytes[rank.chunks[2]], whole - later * largest)
        slots = np.maximum(np.floor(capacity / np.maximum(held, 1.0) * (1.0 + ROUNDING)), 1.0)
        own = np.where(held > 0, np.ceil(rank.num_microbatches / slots), 1.0)
        is_longer = own * (later + 1.0) > trips * (cycles + 1.0)
        trips, cycles = np.where(is_longer, own, trips), np.where(is_longer, float(later * rank.looped), cycles)
    return trips, cycles


def _memory_needs(rank: RankCosts, capacity: FloatArray) -> dict[str, FloatArray]:
    """What memory for few micro-batches costs."""
    m, v, n, inner = float(rank.num_microbatches), rank.vpp, rank.layers, rank.inner
    kinds_of_layer = [one for one in rank.kinds_of_layer if one.activation_bytes[0] > 0]
    if v == 1:
        slots = np.floor(capacity / np.maximum(inner.activation_bytes, 1.0) * (1.0 + ROUNDING))
        trips = np.where(n > 0, np.ceil(m / np.maximum(slots, 1.0)), 1.0)
        keeps = all(bool(one.weight_grad_context_bytes[0] >= one.activation_bytes[0]) for one in kinds_of_layer)
        last = (trips - 1.0) * inner.weight_grad_s * keeps
        nothing = np.zeros(len(n))
        return {
            "weighted": nothing,
            "trips": trips,
            "trip_cycles": nothing,
            "trip_last": last,
            "held_own": nothing,
            "held_per_s": nothing,
        }
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
    trips, cycles = _round_trips(rank, capacity)
    own = per_byte * inner.activation_bytes**2 / v * (both_s + retained * weights_s)
    return {
        "weighted": rank.chunk.both_s[fewest] * v * (v - 1) / 2.0,
        "trips": trips,
        "trip_cycles": cycles,
        "trip_last": np.zeros(len(n)),
        "held_own": own,
        "held_per_s": per_byte * rank.chunk.activation_bytes[fewest],
    }
