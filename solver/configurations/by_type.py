"""Layers of every stage where each pipeline rank is on a GPU type of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.plan import Configuration
from solver.configurations.layers import share_layers, shares_one_by_one
from solver.configurations.pricing import StageCosts, kinds
from solver.context import Context, GpuClass
from solver.cost.columns import Columns, columns_of
from solver.cost.memory import Schedule, peak_activations

IN_FLIGHT = (1.0, 0.5, 0.0)  # of what usual schedules hold at once; one micro-batch in any case
LEAST_GAIN = 0.01  # of the slowest rank's work, below which fewer micro-batches in flight are not worth their bubble


@dataclass(frozen=True)
class TypeCost:
    """One GPU type: seconds and bytes of an average layer and of the ends, and the capacity of an empty rank.

    `held_bytes` are the activations of one layer and micro-batch, the other bytes model state and buffers. `layer_usd`
    is the price of that time, 0 where prices are not known.
    """

    layer_s: float
    first_s: float
    last_s: float
    layer_bytes: float
    first_bytes: float
    last_bytes: float
    held_bytes: float
    capacity_bytes: float
    layer_usd: float = 0.0


def type_costs(context: Context, configuration: Configuration) -> dict[str, TypeCost]:
    """Costs of every type by its name, on the slowest of its fabrics."""
    columns = columns_of(configuration)
    found: dict[str, TypeCost] = {}
    for gpu_class in context.gpu_classes.values():
        cost = _type_cost(context, gpu_class, columns)
        if gpu_class.gpu.name not in found or cost.layer_s > found[gpu_class.gpu.name].layer_s:
            found[gpu_class.gpu.name] = cost
    return found


def _type_cost(context: Context, gpu_class: GpuClass, columns: Columns) -> TypeCost:
    price, num_layers = StageCosts(context, gpu_class, columns), context.job.num_layers
    layers = price.of(*kinds(context, 0, num_layers))
    first, last = price.of(0, 0, embedding=1.0), price.of(0, 0, logits=1.0)

    def static_bytes(dense: float, experts: float, logits: float) -> float:
        return float(price.static_bytes(np.array([dense]), np.array([experts]), has_logits=logits)[0])

    empty = static_bytes(0.0, 0.0, 0.0)
    return TypeCost(
        layer_s=(layer_s := float(layers.total_s[0]) / num_layers),
        first_s=float(first.total_s[0]),
        last_s=float(last.total_s[0]),
        layer_bytes=(static_bytes(float(layers.parameters[0]), float(layers.expert_parameters[0]), 0.0) - empty)
        / num_layers,
        first_bytes=static_bytes(float(first.parameters[0]), 0.0, 0.0) - empty,
        last_bytes=static_bytes(float(last.parameters[0]), float(last.expert_parameters[0]), 1.0) - empty,
        held_bytes=float(layers.activation_bytes[0]) / num_layers,
        capacity_bytes=context.memory_limit_bytes(gpu_class.gpu) - empty,
        layer_usd=layer_s * context.usd_per_gpu_s.get(gpu_class.gpu.name, 0.0),
    )


@dataclass(frozen=True)
class Shared:
    """Layers by stage and by rank, and the work of the slowest rank on one micro-batch (seconds)."""

    layers_per_stage: tuple[int, ...]
    layers_r: tuple[int, ...]
    slowest_s: float


def layer_shares(configuration: Configuration, cost_r: Sequence[TypeCost], num_layers: int) -> Iterator[Shared]:
    """Shares for ranks with these costs: with memory for as many micro-batches in flight as usual, then for fewer.

    Fewer in flight leave memory for more layers on fast ranks; only shares whose slowest rank gains by it follow.
    """
    degrees = configuration.degrees
    stages_r = [configuration.stages_of_rank(rank) for rank in range(degrees.pp)]
    ends = {0: [cost.first_s for cost in cost_r], degrees.num_stages - 1: [cost.last_s for cost in cost_r]}
    ends_s = [sum(ends[stage][rank] for stage in own if stage in ends) for rank, own in enumerate(stages_r)]
    layer_s = [cost.layer_s for cost in cost_r]
    least_s = float("inf")
    for most in _limits(configuration, cost_r, stages_r):
        ranks = share_layers(num_layers, layer_s, ends_s, least=[len(own) for own in stages_r], most=most)
        if ranks is None:
            continue
        slowest_s = max(end + each * count for end, each, count in zip(ends_s, layer_s, ranks, strict=True))
        if slowest_s < least_s * (1.0 - LEAST_GAIN):
            least_s = slowest_s
            yield Shared(_by_stage(stages_r, ranks, layer_s, ends), tuple(ranks), slowest_s)


def chunk_layers(num_layers: int, layer_s: float, ends_s: Sequence[float]) -> tuple[int, ...]:
    """Layers of each chunk of one rank, of which the ends of the model take so long on top.

    >>> chunk_layers(8, 1.0, (0.0, 0.0, 2.0))
    (3, 3, 2)
    """
    assert num_layers >= len(ends_s), "every rank has at least one layer per chunk"
    return chunk_layers_up_to(num_layers, layer_s, ends_s)[-1]


def chunk_layers_up_to(most: int, layer_s: float, ends_s: Sequence[float]) -> list[tuple[int, ...]]:
    """The same for as many layers as chunks, one more, and so on, up to `most`.

    >>> chunk_layers_up_to(5, 1.0, (0.0, 0.0, 2.0))
    [(1, 1, 1), (1, 2, 1), (2, 2, 1)]
    """
    chunks = len(ends_s)
    shares = shares_one_by_one([layer_s] * chunks, ends_s, least=[1] * chunks, most=[most] * chunks)
    return list(itertools.islice(shares, most - chunks + 1))


def _by_stage(
    stages_r: Sequence[Sequence[int]],
    ranks: Sequence[int],
    layer_s: Sequence[float],
    ends: Mapping[int, Sequence[float]],
) -> tuple[int, ...]:
    """The layers of every rank shared out over its stages, of which the `ends` have more to do."""
    layers = [0] * sum(map(len, stages_r))
    for rank, own in enumerate(stages_r):
        inside = [ends[stage][rank] if stage in ends else 0.0 for stage in own]
        for stage, count in zip(own, chunk_layers(ranks[rank], layer_s[rank], inside), strict=True):
            layers[stage] = count
    return tuple(layers)


def _limits(
    configuration: Configuration, cost_r: Sequence[TypeCost], stages_r: Sequence[Sequence[int]]
) -> Iterator[list[int]]:
    """Most layers that every rank has memory for, with as many micro-batches in flight as usual, and with fewer."""
    columns, last_stage = columns_of(configuration), configuration.degrees.num_stages - 1
    usual: Schedule = "zb_h1" if configuration.family == "v" else "1f1b"
    for part in IN_FLIGHT:
        most = []
        for rank, (cost, own) in enumerate(zip(cost_r, stages_r, strict=True)):
            held = max(1.0, part * float(peak_activations(columns, rank, schedule=usual)[0]))
            capacity = cost.capacity_bytes - (0 in own) * cost.first_bytes - (last_stage in own) * cost.last_bytes
            most.append(max(int(capacity / (cost.layer_bytes + held * cost.held_bytes)), 0))
        yield most
