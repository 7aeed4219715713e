"""What every configuration of a space takes at least and probably, from one layer's cost per distinct shape of layer.

Owns a bound and a guess for millions of rows at once: layers cost the same under equal tp, cp, ep, micro-batch and
recomputation, of which there are few. The bound holds however layers are split over ranks and GPU types; the guess
orders and proves nothing. `bounds.py` is sharper and dearer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from solver.context import Context
from solver.cost.collectives import exposed_s
from solver.cost.columns import FSDP, ZERO1, Columns, FloatArray, IntArray
from solver.cost.data_parallel import WEIGHT_BYTES, layer_traffic
from solver.cost.memory import peak_activations
from solver.cost.stage import StageCost
from solver.space.bounds import cheap_bounds
from solver.space.distinct import distinct_rows
from solver.space.enumerate import BY_GPU_TYPE, Space
from solver.space.guess import CRAMPED, crossed_s
from solver.space.pricing import StageCosts, kinds

HOPELESS = 100.0  # not even one micro-batch fits, as far as this rough look can tell
BLOCK = 1 << 15
DISTINCT = ("tp", "cp", "ep", "micro_batch", "recompute")


@dataclass(frozen=True)
class Outlook:
    """Per configuration: seconds that no plan goes below, and seconds that a usual plan may take."""

    bound_s: FloatArray
    guess_s: FloatArray


def outlook(context: Context, space: Space, *, late: Callable[[], bool] = lambda: False) -> Outlook:
    """T >= dp m W_ref / sum over types of ratio_t groups_t.

    Proof. dp m micro-batches run every layer once on some stage group. A group of type t that works T seconds does at
    most ratio_t T seconds' worth of the reference type's work, ratio_t being the largest quotient of the two types'
    times over the kinds of layers; sharding only adds to these times. No set of GPUs does more than the best ones.

    Once it is `late`, all other rows have their bound by FLOPs alone and wait behind those that were looked at. Those
    are every so many-th row, so that they stand for all.
    """
    distinct, row_of = _distinct(space.columns)
    prices = [StageCosts(context, machine, distinct) for machine in context.machines.values()]
    bound_s = cheap_bounds(context, space)
    found = Outlook(bound_s, HOPELESS * bound_s)
    num_blocks = -(-len(space) // BLOCK)
    for block in range(num_blocks):
        if block and late():
            break
        rows = np.arange(block, len(space), num_blocks)
        part = _block(context, space.take(rows), prices, row_of[rows])
        found.bound_s[rows], found.guess_s[rows] = part.bound_s, part.guess_s
    return found


def _block(context: Context, space: Space, prices: list[StageCosts], row_of: IntArray) -> Outlook:
    """Some rows, few enough that the processor's caches hold them."""
    whole = prices[0].of(*kinds(context, 0, context.job.num_layers), embedding=1.0, logits=1.0)
    columns = space.columns
    ratios = [_ratio(prices[0], price)[row_of] for price in prices]
    limits = [context.memory_limit_bytes(price.machine.gpu) for price in prices]
    rate, slowest, limit = _best_gpus(columns, ratios, [price.machine.num_gpus for price in prices], limits)
    work_s = columns.dp.astype(np.float64) * columns.num_microbatches * whole.total_s[row_of]
    bound_s: FloatArray = np.maximum(work_s * columns.tp * columns.cp / rate, cheap_bounds(context, space))
    by_type = space.layer_split == BY_GPU_TYPE
    pace = np.where(by_type, 1.0, rate / (slowest * columns.num_gpus))
    limit = np.where(by_type, max(limits), limit)
    taken = _taken(whole, row_of)
    guess_s = bound_s * pace * _fill(columns) * _tightness(prices[0], space, row_of, limit)
    guess_s = guess_s * _gathering(prices[0], columns, taken)
    return Outlook(bound_s, crossed_s(context, space, taken, inside_s=guess_s))


def _distinct(columns: Columns) -> tuple[Columns, IntArray]:
    """One row per combination of what the cost of a layer depends on, and which of them every row has."""
    first, row_of = distinct_rows(columns, DISTINCT)
    one, rows = np.ones(len(first), dtype=np.int64), columns.take(first)
    alike = dict.fromkeys(("pp", "dp", "vpp", "num_microbatches", "shard_group"), one)
    return Columns(**{name: getattr(rows, name) for name in DISTINCT}, **alike, sharding=one * ZERO1), row_of


def _taken(cost: StageCost, rows: IntArray) -> StageCost:
    return StageCost(**{one.name: getattr(cost, one.name)[rows] for one in fields(StageCost)})


def _ratio(reference: StageCosts, price: StageCosts) -> FloatArray:
    """How much faster a type is than the reference, at best over the kinds of layers that the model has."""
    ratio = np.zeros(len(price.columns))
    for known, own in zip(reference.units, price.units, strict=True):
        quotient = np.full_like(ratio, np.inf)
        np.divide(known.total_s, own.total_s, out=quotient, where=own.total_s > 0)
        ratio = np.maximum(ratio, np.where(known.total_s > 0, quotient, 0.0))
    return ratio


def _best_gpus(
    columns: Columns, ratios: list[FloatArray], rooms: list[int], limits: list[float]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Of the best GPUs that a configuration may use: the sum of their ratios, the least one, and the least memory."""
    ratio, room, memory = np.stack(ratios), np.array(rooms, dtype=np.float64), np.array(limits)
    best_first = np.argsort(-ratio, axis=0, kind="stable")
    left, rate = columns.num_gpus.astype(np.float64), np.zeros(len(columns))
    slowest, least = np.full(len(columns), np.inf), np.full(len(columns), np.inf)
    for place, kind in enumerate(best_first):
        taken = left if place == len(rooms) - 1 else np.minimum(left, room[kind])
        own = ratio[kind, np.arange(len(columns))]
        slowest = np.where(taken > 0, np.minimum(slowest, own), slowest)
        least = np.where(taken > 0, np.minimum(least, memory[kind]), least)
        rate, left = rate + taken * own, left - taken
    return rate, slowest, least


def _fill(columns: Columns) -> FloatArray:
    """What filling and draining the pipeline adds: (p - 1) / (m v) of the work."""
    added: FloatArray = 1.0 + (columns.pp - 1) / (columns.num_microbatches * columns.vpp)
    return added


def _gathering(price: StageCosts, columns: Columns, whole: StageCost) -> FloatArray:
    """What FSDP adds where the layers' own work does not hide it, all layers at once."""
    added: FloatArray = np.ones(len(columns))
    sharded = np.flatnonzero(columns.sharding >= FSDP)
    if not len(sharded):
        return added
    some, stack = _taken(whole, sharded), price.context.stack
    traffic = layer_traffic(
        some.parameters,
        some.expert_parameters,
        columns.take(sharded),
        price.machine.fabric,
        stack,
        gradient_bytes=price.context.job.optimizer.gradient_bytes_per_parameter,
    )
    overlap = stack.data_parallel_overlap.value
    forward_s = exposed_s(traffic.gather_s, some.forward_s, overlap)
    backward_s = exposed_s(traffic.gather_s + traffic.scatter_s, some.total_s - some.forward_s, overlap)
    added[sharded] += (forward_s + backward_s) / some.total_s
    return added


def _tightness(price: StageCosts, space: Space, row_of: IntArray, limit: FloatArray) -> FloatArray:
    """1 where a usual schedule fits into this memory, more where only fewer micro-batches do or none."""
    columns, context, job = space.columns, price.context, price.context.job
    layers = price.of(*kinds(context, 0, job.num_layers))
    shards = np.where(columns.sharding >= FSDP, columns.shard_group * columns.cp, 1)
    dense, experts = layers.parameters[row_of], layers.expert_parameters[row_of]
    fixed = (WEIGHT_BYTES + job.optimizer.gradient_bytes_per_parameter) * (dense + experts) / shards
    copies = columns.shard_group * columns.cp
    state = job.optimizer.state_bytes_per_parameter * (dense / copies + experts / np.maximum(copies / columns.ep, 1.0))
    held = layers.activation_bytes[row_of] / columns.pp
    room = limit - context.stack.framework_bytes.value - (fixed + state) / columns.pp
    most = np.where(peak_activations(columns, 0) * held <= room, 1.0, CRAMPED)
    tightness: FloatArray = np.where(held <= room, most, HOPELESS)
    return tightness
