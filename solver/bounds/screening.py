"""What every configuration of a space takes at least and probably, from one layer's cost per distinct shape of layer.

A bound and a guess for millions of rows at once: layers cost the same under equal tp, cp, ep, micro-batch and
recomputation, of which there are few. The bound holds however layers are split over ranks and GPU types; the guess only
orders the search. `work.py` has a tighter bound, which takes longer to compute.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.bounds.work import light_bound_s
from solver.configurations.distinct import distinct_rows
from solver.configurations.enumerate import BY_GPU_TYPE, Space
from solver.configurations.pricing import StageCosts, kinds, part_counts
from solver.context import Context
from solver.cost.collectives import exposed_s
from solver.cost.columns import FSDP, ZERO1, Columns, FloatArray, IntArray
from solver.cost.data_parallel import layer_traffic
from solver.cost.job import Job
from solver.cost.memory import peak_activations
from solver.cost.stage import StageCost
from solver.estimates.iteration import crossed_s
from solver.estimates.params import ESTIMATES

BLOCK = 1 << 16  # rows that are bounded together: a column of them has 512 KiB; set by hand
DISTINCT = ("tp", "cp", "ep", "micro_batch", "recompute")


@dataclass(frozen=True)
class ScreeningBounds:
    """Per configuration: seconds that no plan goes below, and seconds that a usual plan may take."""

    bound_s: FloatArray
    guess_s: FloatArray


class Screening:
    """Screens a space part by part. Any part has every so many-th row, so that it stands for all."""

    def __init__(self, context: Context, space: Space) -> None:
        self._context, self._space = context, space
        distinct, self._row_of = _distinct(space.columns)
        self._prices = [StageCosts(context, gpu_class, distinct) for gpu_class in context.gpu_classes.values()]
        self._num_blocks = -(-len(space) // BLOCK)
        self._left = range(self._num_blocks)

    @property
    def is_complete(self) -> bool:
        """All of the space was looked at."""
        return not self._left

    def look(
        self, most: int = sys.maxsize, *, late: Callable[[], bool] = lambda: False
    ) -> tuple[IntArray, ScreeningBounds]:
        """So many further rows or hardly more, or all that are left, with their bounds.

        Once it is `late`, all other rows have their bound alone and wait behind those that were looked at.
        """
        num_blocks = -(-most // BLOCK)
        blocks, self._left = self._left[:num_blocks], self._left[num_blocks:]
        parts = [(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))]
        for block in blocks:
            rows = np.arange(block, len(self._space), self._num_blocks)
            some, guessed = self._space.take(rows), not block or not late()
            found = _block(self._context, some, self._prices, self._row_of[rows], guessed=guessed)
            parts.append((rows, found.bound_s, found.guess_s))
        rows, bound_s, guess_s = (np.concatenate(one) for one in zip(*parts, strict=True))
        return rows, ScreeningBounds(bound_s, guess_s)


def screening_bounds(context: Context, space: Space, *, late: Callable[[], bool] = lambda: False) -> ScreeningBounds:
    """T >= dp m sum_k n_k u_k / sum_t r_t groups_t, r_t = max_k u_k / s_kt, for any worth u_k >= 0 of a part k.

    s_kt is the time that the cost model gives part k (a layer of either kind, the embedding, the logits) on type t,
    n_k how many of them the model has.

    Proof. dp m micro-batches run every part once on some stage group. A group of type t that works T seconds gets parts
    worth r_t T done at most; sharding only adds to these times. No set of GPUs does more than the best ones. Two worths
    are tried: the times on the first type, and with it r_t that of the part which takes most (`_even_worth`). Where a
    part of no weight has the largest r_t, as the logits of a vocabulary of 1, both say little; the speed of light is
    what remains. `late` is that of `Screening.look`.
    """
    rows, found = Screening(context, space).look(late=late)
    order = np.argsort(rows)
    return ScreeningBounds(found.bound_s[order], found.guess_s[order])


def _block(
    context: Context, space: Space, prices: list[StageCosts], row_of: IntArray, *, guessed: bool
) -> ScreeningBounds:
    """Some rows, few enough that the processor's caches hold them."""
    whole = prices[0].whole
    columns = space.columns
    limits = [context.memory_limit_bytes(price.gpu_class.gpu) for price in prices]
    capacity = [price.gpu_class.num_gpus for price in prices]
    times_s = [np.stack([part.total_s for part in price.parts]) for price in prices]
    num_gpu_batches = (columns.dp * columns.num_microbatches * columns.tp * columns.cp).astype(np.float64)
    rate, slowest, limit = _best_gpus(columns, [one[row_of] for one in _ratios(times_s[0], times_s)], capacity, limits)
    bound_s: FloatArray = np.maximum(num_gpu_batches * whole.total_s[row_of] / rate, light_bound_s(context))
    if len(prices) > 1:
        worth = _even_worth(_num_parts(context.job), times_s)
        even_rate = _best_gpus(columns, [one[row_of] for one in _ratios(worth, times_s)], capacity, limits)[0]
        work = (_num_parts(context.job)[:, None] * worth).sum(axis=0)
        bound_s = np.maximum(bound_s, num_gpu_batches * work[row_of] / even_rate)
    if not guessed:
        return ScreeningBounds(bound_s, ESTIMATES.oversize * bound_s)
    by_type = space.layer_split == BY_GPU_TYPE
    pace = np.where(by_type, 1.0, rate / (slowest * columns.num_gpus))
    limit = np.where(by_type, max(limits), limit)
    taken = whole.take(row_of)
    guess_s = bound_s * pace * _fill(columns) * _tightness(prices[0], space, row_of, limit)
    guess_s = guess_s * _gathering(prices[0], columns, taken)
    return ScreeningBounds(bound_s, crossed_s(context, space, taken, inside_s=guess_s))


def _distinct(columns: Columns) -> tuple[Columns, IntArray]:
    """One row per combination of what the cost of a layer depends on, and which of them every row has."""
    first, row_of = distinct_rows(*(getattr(columns, name) for name in DISTINCT))
    one, rows = np.ones(len(first), dtype=np.int64), columns.take(first)
    alike = dict.fromkeys(("pp", "dp", "vpp", "num_microbatches", "shard_group"), one)
    return Columns(**{name: getattr(rows, name) for name in DISTINCT}, **alike, sharding=one * ZERO1), row_of


def _num_parts(job: Job) -> FloatArray:
    """Dense layers, MoE layers, embeddings and logits of the model, in the order of `StageCosts.parts`."""
    return np.array(part_counts(job, job.num_dense_layers, job.num_moe_layers, 1.0, 1.0))


def _ratios(worth: FloatArray, times_s: list[FloatArray]) -> list[FloatArray]:
    """Worth of what each type does in a second, at best over the parts of the model."""
    found = []
    for own_s in times_s:
        quotient = np.full_like(own_s, np.inf)
        np.divide(worth, own_s, out=quotient, where=own_s > 0)
        found.append(np.where(worth > 0, quotient, 0.0).max(axis=0))
    return found


def _even_worth(num_parts: FloatArray, times_s: list[FloatArray]) -> FloatArray:
    """The most that the parts may be worth where every type earns as much by any as by the one that takes most.

    u_k = min_t s_kt s_h0 / s_ht for the part h with the largest n_h s_h0.
    """
    heaviest = np.argmax(num_parts[:, None] * times_s[0], axis=0)[None, :]
    own_s = [np.take_along_axis(one, heaviest, axis=0) for one in times_s]
    worth: FloatArray = np.minimum.reduce([one * (own_s[0] / own) for one, own in zip(times_s, own_s, strict=True)])
    return np.where(num_parts[:, None] > 0, worth, 0.0)


def _best_gpus(
    columns: Columns, ratios: list[FloatArray], capacities: list[int], limits: list[float]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of the best GPUs that a configuration may use: the sum of their ratios, the least one, and the least memory."""
    ratio, capacity, memory = np.stack(ratios), np.array(capacities, dtype=np.float64), np.array(limits)
    best_first = np.argsort(-ratio, axis=0, kind="stable")
    left, rate = columns.num_gpus.astype(np.float64), np.zeros(len(columns))
    slowest, least = np.full(len(columns), np.inf), np.full(len(columns), np.inf)
    for place, kind in enumerate(best_first):
        taken = left if place == len(capacities) - 1 else np.minimum(left, capacity[kind])
        own = ratio[kind, np.arange(len(columns))]
        slowest = np.where(taken > 0, np.minimum(slowest, own), slowest)
        least = np.where(taken > 0, np.minimum(least, memory[kind]), least)
        rate, left = rate + taken * own, left - taken
    return rate, slowest, least


def _fill(columns: Columns) -> FloatArray:
    """What filling and draining the pipeline adds: (p - 1) / (m v) of the work."""
    return 1.0 + (columns.pp - 1) / (columns.num_microbatches * columns.vpp)


def _gathering(price: StageCosts, columns: Columns, whole: StageCost) -> FloatArray:
    """What FSDP adds where the layers' own work does not hide it, all layers at once."""
    added: FloatArray = np.ones(len(columns))
    sharded = np.flatnonzero(columns.sharding >= FSDP)
    if not len(sharded):
        return added
    some, stack = whole.take(sharded), price.context.stack
    parameters, fabric, job = (some.parameters, some.expert_parameters), price.gpu_class.fabric, price.context.job
    traffic = layer_traffic(*parameters, columns.take(sharded), fabric, stack, job=job)
    overlap = stack.data_parallel_overlap.value
    forward_s = exposed_s(traffic.gather_s, some.forward_s, overlap)
    backward_s = exposed_s(traffic.gather_s + traffic.reduce_s, some.total_s - some.forward_s, overlap)
    added[sharded] += (forward_s + backward_s) / some.total_s
    return added


def _tightness(price: StageCosts, space: Space, row_of: IntArray, limit: FloatArray) -> FloatArray:
    """1 where a usual schedule fits into this memory, more where only fewer micro-batches do or none."""
    columns, context, job = space.columns, price.context, price.context.job
    layers = price.of(*kinds(context, 0, job.num_layers))
    shards = np.where(columns.sharding >= FSDP, columns.shard_group * columns.cp, 1)
    dense, experts = layers.parameters[row_of], layers.expert_parameters[row_of]
    fixed = (job.value_bytes + job.optimizer.gradient_bytes_per_parameter) * (dense + experts) / shards
    copies = columns.shard_group * columns.cp
    state = job.optimizer.state_bytes_per_parameter * (dense / copies + experts / np.maximum(copies / columns.ep, 1.0))
    held = layers.activation_bytes[row_of] / columns.pp
    capacity = limit - context.stack.framework_bytes.value - (fixed + state) / columns.pp
    most = ESTIMATES.crowding(peak_activations(columns, 0) * held, capacity, columns.vpp)
    return np.where(held <= capacity, most, ESTIMATES.oversize)
