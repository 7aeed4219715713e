"""A valid lower bound of the iteration time of every configuration, and which of them can fit into memory at all.

Owns bounds that hold for every placement, transport and schedule of the stated model: layers split by `layers.py`,
gradients exchanged after the last weight gradient less the stack's overlap. Never looks at a link between places: the
bounds let every flow across buildings be free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from solver.context import Context, Machine, peak_flops_per_s
from solver.cost.columns import RECOMPUTE_FULL, FloatArray
from solver.cost.compute import matrix_peak
from solver.cost.data_parallel import step_traffic
from solver.cost.memory import static_memory
from solver.cost.optimizer import optimizer_s
from solver.cost.stage import StageCost
from solver.space.enumerate import Space
from solver.space.guess import guess_s
from solver.space.pricing import IntArray, Shares, StageCosts, kinds, rank_cost

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Bounds:
    """Per configuration: the bound, whether it can fit, and the least memory that its fullest rank needs.

    `guess_s` is what usual schedules take; it orders the search and proves nothing. `lightest_s` is the work of the
    lightest rank over the iteration.
    """

    iteration_s: FloatArray
    guess_s: FloatArray
    lightest_s: FloatArray
    fits: BoolArray
    least_memory_bytes: FloatArray


def speed_of_light_s(context: Context) -> float:
    """Model-independent bound: model FLOPs over the peak of every GPU that may be used."""
    peaks = sorted(
        ((peak_flops_per_s(m.gpu, context.job.precision), m.num_gpus) for m in context.machines.values()), reverse=True
    )
    left, rate = context.usable_gpus, 0.0
    for peak, count in peaks:
        rate += min(left, count) * peak
        left -= min(left, count)
    return context.job.model_flops / rate


def cheap_bounds(context: Context, space: Space) -> FloatArray:
    """FLOPs over the best rate of as many GPUs as each configuration uses: costs nothing, orders the space.

    No part of the model runs faster than the better of matrix products and attention core in this stack. Full
    recomputation runs the forward twice: 4/3 of the FLOPs.
    """
    peak = max(_best_rate(context, machine) for machine in context.machines.values())
    columns = space.columns
    gpus = columns.num_gpus.astype(np.float64)
    again = np.where(columns.recompute == RECOMPUTE_FULL, 4.0 / 3.0, 1.0)
    bound: FloatArray = context.job.model_flops * again / (peak * gpus)
    return bound


def _best_rate(context: Context, machine: Machine) -> float:
    matrix, share = matrix_peak(machine.gpu, context.stack, context.job.precision)
    return max(matrix * share, machine.gpu.bf16_flops_per_s * context.stack.attention_efficiency.value)


def lower_bounds(context: Context, space: Space) -> Bounds:
    """The best over GPU types of each type's bound, and what the slower types cannot do faster where they are needed.

    A configuration that uses more GPUs than the fastest types have runs at least one rank on a slower one: then
    T >= m * the lightest rank there, and the guess is that type's.
    """
    reference = StageCosts(context, next(iter(context.machines.values())), space.columns)
    shares = Shares.of(reference, space.family)
    per_type = [_bounds_on(context, machine, space, shares) for machine in context.machines.values()]
    best = np.minimum.reduce([one.iteration_s for one in per_type])
    guess = np.minimum.reduce([one.guess_s for one in per_type])
    used = space.columns.num_gpus
    left = np.zeros(len(used), dtype=np.int64)
    by_speed = _fastest_first(context, per_type)
    for number, (machine, one) in enumerate(by_speed):
        needed = used > left
        lightest_s = np.minimum.reduce([other.lightest_s for _, other in by_speed[number:]])
        best = np.where(needed, np.maximum(best, lightest_s), best)
        guess = np.where(needed, np.maximum(guess, one.guess_s), guess)
        left = left + machine.num_gpus
    return Bounds(
        iteration_s=np.maximum(best, cheap_bounds(context, space)),
        guess_s=guess,
        lightest_s=np.minimum.reduce([one.lightest_s for one in per_type]),
        fits=np.logical_or.reduce([one.fits for one in per_type]),
        least_memory_bytes=np.minimum.reduce([one.least_memory_bytes for one in per_type]),
    )


def _fastest_first(context: Context, per_type: list[Bounds]) -> list[tuple[Machine, Bounds]]:
    """GPU types by how fast they run the lightest rank of the first configurations."""
    pairs = list(zip(context.machines.values(), per_type, strict=True))
    return sorted(pairs, key=lambda pair: float(pair[1].lightest_s.sum()))


def _bounds_on(context: Context, machine: Machine, space: Space, shares: Shares) -> Bounds:
    price = StageCosts(context, machine, space.columns)
    first, last = np.zeros_like(space.columns.pp), space.columns.pp - 1
    ends = [(rank, rank_cost(price, shares, rank)) for rank in (first, last)]
    whole = price.of(*kinds(context, 0, context.job.num_layers), embedding=1.0, logits=1.0)
    static = [_static_bytes(price, shares, rank, cost) for rank, cost in ends]
    limit = context.memory_limit_bytes(machine.gpu)
    average = space.columns.num_microbatches * whole.total_s / space.columns.pp
    one_there_and_back = whole.forward_s + whole.input_grad_s
    parts = [average, one_there_and_back]
    for (rank, cost), kept in zip(ends, static, strict=True):
        parts.append(_rank_s(price, shares, rank, cost))
        parts.append(_memory_seconds_s(price, shares, rank, limit - kept))
    parts.append(_round_trips_s(space, ends[0][1], whole, limit - static[0]))
    memory = np.maximum.reduce([kept + cost.activation_bytes for kept, (_, cost) in zip(static, ends, strict=True)])
    bound_s = np.maximum.reduce(parts) + _tail_s(context, machine, space, price, [cost for _, cost in ends])
    return Bounds(
        iteration_s=bound_s,
        guess_s=guess_s(context, space, ends[0][1], whole, bound_s=bound_s, room=limit - static[0]),
        lightest_s=space.columns.num_microbatches * _lightest_rank_s(price, shares, [cost for _, cost in ends]),
        fits=memory <= limit,
        least_memory_bytes=memory,
    )


def _lightest_rank_s(price: StageCosts, shares: Shares, ends: list[StageCost]) -> FloatArray:
    """Work of one micro-batch on the rank with least: an end, or one with only smaller shares of the cheaper kind."""
    columns = price.columns
    kinds_there = [price.of(1, 0).total_s, price.of(0, 1).total_s]
    layer_s = np.minimum.reduce([one for one in kinds_there if float(one.max(initial=0.0)) > 0])
    inner = np.where(columns.pp > 2, columns.vpp * shares.split.middle * layer_s, np.inf)
    lightest: FloatArray = np.minimum.reduce([inner, *(cost.total_s for cost in ends)])
    return lightest


def _rank_s(price: StageCosts, shares: Shares, rank: IntArray, cost: StageCost) -> FloatArray:
    """The first forward reaches a rank through all stages before it, its gradients go back through them.

    T >= head + max(m w, m (f + i) + tail): weight gradients may run while the tail does.
    """
    before = shares.start(rank)
    lead = price.of(*kinds(price.context, 0, before), embedding=np.where(rank > 0, 1.0, 0.0))
    m = price.columns.num_microbatches
    through = m * (cost.forward_s + cost.input_grad_s) + lead.input_grad_s
    bound: FloatArray = lead.forward_s + np.maximum(m * cost.total_s, through)
    return bound


def _round_trips_s(space: Space, first: StageCost, whole: StageCost, room: FloatArray) -> FloatArray:
    """With K micro-batches held at once on rank 0: ceil(m / K) round trips through all stages, one-way layouts only."""
    columns = space.columns
    held = np.maximum(np.floor(room / np.maximum(first.activation_bytes, 1.0)), 1.0)
    trips = np.ceil(columns.num_microbatches / held)
    bound: FloatArray = np.where(columns.vpp == 1, trips * (whole.forward_s + whole.input_grad_s), 0.0)
    return bound


def _memory_seconds_s(price: StageCosts, shares: Shares, rank: IntArray, room: FloatArray) -> FloatArray:
    """A rank holds bytes for seconds, and has `room` bytes for T seconds: T >= m sum_j a_j life_j / room.

    Stage j holds its activation from its forward to its input gradient, while it and all later stages run both.
    """
    context, columns, total = price.context, price.columns, shares.num_layers
    held = np.zeros(len(columns))
    for chunk in range(int(columns.vpp.max(initial=1))):
        stage = np.minimum(shares.stage_of(chunk, rank), columns.pp * columns.vpp - 1)
        begin, end = shares.start(stage), shares.start(stage + 1)
        later = price.of(*kinds(context, begin, total), logits=1.0)
        life = later.forward_s + later.input_grad_s
        own = price.of(*kinds(context, begin, end)).activation_bytes
        held = held + np.where(chunk < columns.vpp, own * life, 0.0)
    bound: FloatArray = columns.num_microbatches * held / np.maximum(room, 1.0)
    return bound


def _tail_s(context: Context, machine: Machine, space: Space, price: StageCosts, ends: list[StageCost]) -> FloatArray:
    """After the last weight gradient of a stage: its exchange inside a place, less the most that overlaps; the update.

    Places hold at least dp / places replicas each; the stage is taken to have the fewest layers and no end.
    """
    columns = space.columns
    fewest = np.minimum(context.job.num_layers // (columns.pp * columns.vpp), context.job.num_layers)
    dense, moe = price.of(fewest, 0), price.of(0, fewest)
    small = dense if context.job.num_moe_layers == 0 else moe if context.job.num_dense_layers == 0 else None
    parameters = np.minimum(dense.parameters, moe.parameters) if small is None else small.parameters
    experts = np.zeros(len(columns)) if small is None else small.expert_parameters
    alone = replace(columns, dp=np.maximum(columns.dp // len({pool.place for pool in context.pools}), 1))
    traffic = step_traffic(
        parameters,
        experts,
        alone,
        machine.fabric,
        context.stack,
        gradient_bytes=context.job.optimizer.gradient_bytes_per_parameter,
    )
    beside = np.maximum.reduce([cost.total_s for cost in ends]) + price.of(1, 1).total_s
    exposed = traffic.reduce_s + traffic.gather_s - context.stack.data_parallel_overlap.value * beside
    update = optimizer_s(
        parameters, experts, columns, gpu=machine.gpu, stack=context.stack, optimizer=context.job.optimizer
    )
    tail: FloatArray = np.maximum(exposed, 0.0) + update
    return tail


def _static_bytes(price: StageCosts, shares: Shares, rank: IntArray, cost: StageCost) -> FloatArray:
    """Model state, buffers and framework of a rank."""
    context, machine, columns = price.context, price.machine, price.columns
    stages = columns.pp * columns.vpp
    ends_here = np.where(shares.stage_of(0, rank) == stages - 1, 1.0, 0.0)
    for chunk in range(1, int(columns.vpp.max(initial=1))):
        ends_here = np.maximum(ends_here, np.where(shares.stage_of(chunk, rank) == stages - 1, 1.0, 0.0))
    return static_memory(
        context.job,
        machine.gpu,
        machine.fabric,
        context.stack,
        columns,
        parameters=cost.parameters,
        expert_parameters=cost.expert_parameters,
        has_logits=ends_here,
    ).total_bytes
