"""What the pipeline ranks of a GPU type need at least: rows that the stage partition bound adds to what others take.

What each row means: docs/bounds.md, "Partition of layers over GPU types".
"""

from collections.abc import Sequence

import numpy as np

from solver.arrays import FloatArray, IntArray
from solver.bounds.bounded import ROUNDING
from solver.bounds.kind_costs import least_of_layers, rank_cards_s
from solver.bounds.layer_windows import Ends
from solver.bounds.rank_costs import RankCosts


def rank_needs(rank: RankCosts) -> dict[str, FloatArray]:
    """The tables of `PartitionProblem` on a type, by kind of rank and layers."""
    m, v, cost, ends = float(rank.num_microbatches), rank.vpp, rank.cost, rank.ends
    layer, other = rank.kind.layer, rank.kind.other
    first_chunk_s, first_gradient = _first_chunk_s(rank)
    last_forward, last_both, last_gradient = _last_chunk_s(rank)
    forward, total, both = cost.forward_s, cost.total_s, cost.forward_s + cost.input_grad_s
    update, capacity = rank.update_s, rank.capacity_bytes
    fits = cost.activation_bytes <= capacity * (1.0 + ROUNDING)
    safe = np.where(fits & (capacity > 0), capacity, 1.0)
    first_s, last_s = _outside_s(rank, safe)
    work, exposed = m * total, _least_exposed_s(rank)
    needs = {
        "work": np.where(fits, np.maximum(work + exposed, _exchanges_s(rank)) + update, np.inf),
        "late": m * (total - forward + last_forward) + exposed + update,
        "through": work - last_s + update,
        "early": work - first_s + exposed + update,
        "early_back": work - first_s - last_s + update,
        "last": m * last_both + update,
        "first_chunk": first_chunk_s,
        "last_chunk": last_forward,
        "before_last": _before_last_s(rank, "forward_s") + (rank.vpp > 1) * rank.embedding.forward_s,
        "own_both": both if v == 1 else rank.ranks.of_layers(rank.chunk.both_s, rank.chunk_layers.fewest),
        "home": (m - 1.0) * _slowest_chunk_s(rank) + update,
        "forwards": m * forward + update,
        "first_end": _first_end_s(rank),
        "input_gradient": cost.input_grad_s,
        "forward": _evened_s(rank, layer.forward_s, other.forward_s, rank.excess_s[0]) + ends.forward_s,
        "both": both,
        "even_both": _evened_s(
            rank, layer.forward_s + layer.input_grad_s, other.forward_s + other.input_grad_s, rank.excess_s[1]
        )
        + ends.forward_s
        + ends.input_grad_s,
        "first_gradient": first_gradient,
        "last_gradient": last_gradient,
        "gradient_before_last": _before_last_s(rank, "input_grad_s"),
    }
    return needs | _memory_needs(rank, safe) | _cycles_needs(rank, exposed + update)


def _first_chunk_s(rank: RankCosts) -> tuple[FloatArray, FloatArray]:
    """Forward and input gradient of the first chunk."""
    if rank.vpp == 1:
        return rank.cost.forward_s, rank.cost.input_grad_s
    cost, layers = rank.kind.chunk(rank.ranks.windows.first).cost, rank.chunk_layers.fewest_in_first
    forward_s = rank.ranks.of_layers(cost.forward_s, layers) + rank.embedding.forward_s
    return forward_s, rank.ranks.of_layers(cost.input_grad_s, layers)


def _last_chunk_s(rank: RankCosts) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Forward, forward and input gradient, and input gradient of the last chunk."""
    if rank.vpp == 1:
        return rank.cost.forward_s, rank.cost.forward_s + rank.cost.input_grad_s, rank.cost.input_grad_s
    chunk, layers = rank.kind.chunk(rank.ranks.windows.last), rank.chunk_layers.fewest_in_last
    logits = [getattr(rank.ends, one) - getattr(rank.embedding, one) for one in ("forward_s", "input_grad_s")]
    return (
        rank.ranks.of_layers(chunk.cost.forward_s, layers) + logits[0],
        rank.ranks.of_layers(chunk.both_s, layers) + logits[0] + logits[1],
        rank.ranks.of_layers(chunk.cost.input_grad_s, layers) + logits[1],
    )


def _slowest_chunk_s(rank: RankCosts) -> FloatArray:
    """Least forward or input gradient, whichever takes longer, of the chunk with most layers."""
    slowest_s = np.maximum(rank.chunk.cost.forward_s, rank.chunk.cost.input_grad_s)
    return rank.ranks.of_layers(slowest_s, -(-rank.layers // rank.vpp))


def _before_last_s(rank: RankCosts, seconds: str) -> FloatArray:
    """Least forward or input gradient of the layers of all chunks but the last: v - 1 of the smallest, or all layers
    but the most that the last may have.
    """
    if rank.vpp == 1:
        return np.zeros(len(rank.layers))
    n, v, kind = rank.layers, rank.vpp, rank.kind
    fewest = np.minimum(rank.chunk_layers.fewest_in_first, n // v)
    quickest_s = rank.of_kinds_of_layer(
        (float(getattr(kind.layer, seconds)[0]), float(getattr(kind.other, seconds)[0])), np.minimum
    )
    smallest_s = (v - 1) * rank.ranks.of_layers(getattr(rank.chunk.cost, seconds), fewest)
    least_s: FloatArray = np.maximum(smallest_s, np.maximum(n - rank.chunk_layers.most_in_last, 0) * quickest_s)
    return least_s


def _evened_s(rank: RankCosts, usual_s: FloatArray, other_s: FloatArray, excess_s: float) -> FloatArray:
    """Least of a rank's layers where `excess_s` of every usual one is shared out over all layers of the model.

    A sum over all ranks is no more than what all layers take: of a rank alone it may be.
    """
    job, spread = rank.context.job, least_of_layers(rank.ranks.windows.together, usual_s - excess_s, other_s)
    return spread + excess_s * (job.num_moe_layers or job.num_layers) / job.num_layers * rank.layers


def _exchanges_s(rank: RankCosts) -> FloatArray:
    """Up to the end of the exchanges of all chunks, from the first forward; see `rank_exchanges_s`.

    Before all of them come all forwards, and the gradients of a chunk; together they take no less than one exchange
    of all parameters would.
    """
    if rank.vpp == 1:
        return np.zeros(len(rank.layers))
    exchanges = [
        rank_cards_s(rank.kind, one, *parameters)
        for one, parameters in zip(rank.kind.costs, rank.parameters, strict=True)
    ]
    exchange: FloatArray = np.minimum.reduce(exchanges)
    backward_s = rank.ranks.of_layers(rank.chunk.backward_s, rank.chunk_layers.fewest)
    before = rank.num_microbatches * (rank.cost.forward_s + backward_s)
    overlap = _overlap_s(rank, rank.chunk_layers.largest, rank.ranks.ends)
    return np.where(exchange > 0, np.maximum(before - overlap, 0.0) + exchange, 0.0)


def _overlap_s(rank: RankCosts, num_layers: IntArray | FloatArray, ends: Sequence[Ends]) -> FloatArray:
    """The most that the exchange of a stage with so many layers has of a head start; ends by kind of rank."""
    ends_s = rank.ranks.of_each([max(float(cost.total_s.max()) for cost in rank.kind.ends[at]) for at in ends])
    share = rank.context.stack.data_parallel_overlap.value
    return np.asarray(share * (num_layers * rank.kind.dearest_s + ends_s), dtype=np.float64)


def _exposed_s(rank: RankCosts, exchange_s: FloatArray, fewest: IntArray, ends: Sequence[Ends]) -> FloatArray:
    """Least exchange of one of its stages with so many layers or more, up to its largest, beyond what overlaps.

    `exchange_s` is that of a stage by its layers; it has these ends at most, by kind of rank.
    """
    exposed, all_layers = np.maximum(exchange_s - _overlap_s(rank, rank.layers, ends), 0.0), int(rank.layers[-1])
    fewest = np.maximum(fewest, min(1, all_layers))
    most = np.maximum(fewest, rank.layers if rank.vpp == 1 else rank.chunk_layers.largest.astype(np.int64))
    sizes = (np.minimum(fewest + more, most) for more in range(int((most - fewest).max()) + 1))
    exposed_s: FloatArray = np.minimum.reduce(
        [rank.ranks.of_layers(exposed, np.minimum(size, all_layers)) for size in sizes]
    )
    return exposed_s


def _least_exposed_s(rank: RankCosts) -> FloatArray:
    """Least exchange of a stage beyond what overlaps."""
    fewest = rank.layers if rank.vpp == 1 else rank.chunk_layers.fewest
    return _exposed_s(rank, rank.chunk.exchange_s((False, False)), fewest, rank.ranks.ends)


def _first_end_s(rank: RankCosts) -> FloatArray:
    """The first stage's weight gradient and exchange, which follow the last of all input gradients."""
    first, is_alone = rank.kind.chunk(rank.ranks.windows.first), rank.vpp == 1
    fewest = rank.chunk_layers.fewest_in_first
    chunk_s = rank.inner.weight_grad_s if is_alone else rank.ranks.of_layers(first.cost.weight_grad_s, fewest)
    ends = True, is_alone and any(at == (True, True) for at in rank.ranks.ends)
    of_each = [ends] * len(rank.ranks.ends)
    exposed_s = _exposed_s(rank, first.exchange_s(ends), rank.layers if is_alone else fewest, of_each)
    return rank.has_ends[0] * (chunk_s + exposed_s) + rank.embedding.weight_grad_s


def _outside_s(rank: RankCosts, capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Most forwards before the first gradient, and most weight gradients after the last input gradient.

    Of what is counted, and of what memory holds with layers of either kind alone.
    """
    m, most = float(rank.num_microbatches), []
    for seconds, held in (("forward_s", "activation_bytes"), ("weight_grad_s", "weight_grad_context_bytes")):
        usual, other = (
            float(getattr(one, seconds)[0]) / max(float(getattr(one, held)[0]), 1e-9)
            for one in (rank.kind.layer, rank.kind.other)
        )
        per_byte = rank.of_kinds_of_layer((usual, other), np.maximum)
        inside_s = np.minimum(m * getattr(rank.inner, seconds), capacity * per_byte)
        most.append(inside_s + m * getattr(rank.ends, seconds))
    return most[0], most[1]


def _round_trips(rank: RankCosts, capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
    """With several chunks, the round trips of micro-batches that wait for memory, and the whole cycles of each.

    Chunk j (from 0) of a micro-batch begins when the rank has its chunks up to j and all of its later ones to come: so
    no more than K micro-batches are between the forward and the input gradient of it, K = capacity / activations of
    these chunks, which are no less than j + 1 of the smallest, nor than all but v - 1 - j of the largest. So m / K
    trips follow each other, each with the v - 1 - j chunks of all ranks behind it. Of all j the longest in all counts;
    in a V only j = 0, which all of the other ranks' chunks behind it follow.
    """
    v, whole = rank.vpp, rank.inner.activation_bytes
    smallest = rank.ranks.of_layers(rank.chunk.cost.activation_bytes, rank.chunk_layers.fewest)
    each = float(rank.kind.layer.activation_bytes[0]), float(rank.kind.other.activation_bytes[0])
    largest = rank.chunk_layers.largest * rank.of_kinds_of_layer(each, np.maximum)
    trips, cycles = np.ones(len(whole)), np.zeros(len(whole))
    for later in range(v) if rank.looped else (v - 1,):
        held = np.maximum((v - later) * smallest, whole - later * largest)
        slots = np.maximum(np.floor(capacity / np.maximum(held, 1.0) * (1.0 + ROUNDING)), 1.0)
        own = np.where(held > 0, np.ceil(rank.num_microbatches / slots), 1.0)
        is_longer = own * (later + 1.0) > trips * (cycles + 1.0)
        trips, cycles = np.where(is_longer, own, trips), np.where(is_longer, float(later * rank.looped), cycles)
    return trips, cycles


def _memory_needs(rank: RankCosts, capacity: FloatArray) -> dict[str, FloatArray]:
    """What memory for few micro-batches costs."""
    m, v, n, inner = float(rank.num_microbatches), rank.vpp, rank.layers, rank.inner
    both_s, weights_s, retained = _per_activation(rank)
    if v == 1:
        slots = np.floor(capacity / np.maximum(inner.activation_bytes, 1.0) * (1.0 + ROUNDING))
        trips = np.where(n > 0, np.ceil(m / np.maximum(slots, 1.0)), 1.0)
        return {"trips": trips, "trip_last": (trips - 1.0) * inner.weight_grad_s * (retained >= 1.0)}
    fewest, per_byte = rank.chunk_layers.fewest, m / capacity
    trips, cycles = _round_trips(rank, capacity)
    own = per_byte * inner.activation_bytes**2 / v * (both_s + retained * weights_s)
    return {
        "weighted": rank.ranks.of_layers(rank.chunk.both_s, fewest) * v * (v - 1) / 2.0,
        "trips": trips,
        "trip_cycles": cycles,
        "trip_last": np.zeros(len(n)),
        "held_own": own,
        "held_per_s": per_byte * rank.ranks.of_layers(rank.chunk.cost.activation_bytes, fewest),
    }


def _per_activation(rank: RankCosts) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Forward and input gradient, and weight gradient, per byte of activations; the part of it that W retains."""
    kinds = rank.kind.layer, rank.kind.other
    held = [max(float(one.activation_bytes[0]), 1e-9) for one in kinds]
    per_byte = [
        (
            float((one.forward_s + one.input_grad_s)[0]) / own,
            float(one.weight_grad_s[0]) / own,
            min(float(one.weight_grad_context_bytes[0]) / own, 1.0),
        )
        for one, own in zip(kinds, held, strict=True)
    ]
    both_s, weights_s, retained = (rank.of_kinds_of_layer(costs, np.minimum) for costs in zip(*per_byte, strict=True))
    return both_s, weights_s, retained


def _cycles_needs(rank: RankCosts, end_s: FloatArray) -> dict[str, FloatArray]:
    """In a loop, the work that is left once a micro-batch has been through the chunks that have fewest layers.

    Behind these, k of them, come the forwards of all other chunks and all gradients. `end_s` follows the last of them.
    """
    n, v, cost, kind = rank.layers, rank.vpp, rank.cost, rank.kind
    if v == 1 or not rank.looped:
        return {}
    cycles, layers = rank.chunk_layers.num_smaller, rank.chunk_layers.in_smaller
    small_s = rank.ranks.of_layers(rank.chunk.cost.forward_s, rank.chunk_layers.fewest)
    each = float(kind.layer.forward_s[0]), float(kind.other.forward_s[0])
    quickest_s, slowest_s = (rank.of_kinds_of_layer(each, pick) for pick in (np.minimum, np.maximum))
    forward_s = np.maximum((v - cycles) * small_s, np.maximum(n - layers, 0.0) * quickest_s)
    forward_s = np.maximum(forward_s, rank.inner.forward_s - layers * slowest_s)
    logits_s, gradients_s = rank.ends.forward_s - rank.embedding.forward_s, cost.input_grad_s + cost.weight_grad_s
    after_s = rank.num_microbatches * (forward_s + logits_s + gradients_s) + end_s
    return {"cycles": cycles.astype(np.float64), "after_cycles": after_s, "small_chunk": small_s}
