"""The gradient exchange of every stage: inside places, across them, and when each takes the shared links.

Inside a place the GPUs' own NICs work; across places one copy per place travels a ring of places. Eight chunks are
pipelined over both. Owns these times and bytes; never schedules an operation of the pipeline.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from models.plan import Configuration, StageExchange
from models.transport import TransportChoice
from solver.context import Context
from solver.cost.columns import ZERO1, Columns, FloatArray, columns_of
from solver.cost.data_parallel import crossing_bytes, step_traffic
from solver.cost.fabric import fabric_of
from solver.placement.fill import PooledRoute
from solver.space.stages import PoolStages
from solver.transport.choose import exchange_choice

NUM_CHUNKS = 8


@dataclass(frozen=True)
class ExchangeCost:
    """Of one stage: head start, time inside places, time on shared links, and bytes on every directed edge."""

    overlap_s: float
    private_s: float
    shared_s: float
    edge_bytes: dict[int, float]
    choices: tuple[TransportChoice, ...] = ()

    @property
    def duration_s(self) -> float:
        """From begin to end when the links are free."""
        return max(self.private_s, self.shared_s) + min(self.private_s, self.shared_s) / NUM_CHUNKS


def exchanging_edges(context: Context, configuration: Configuration, routes: tuple[PooledRoute, ...]) -> frozenset[int]:
    """Edges that the exchange of some rank takes."""
    edges: set[int] = set()
    for rank in range(configuration.degrees.pp):
        counts = rank_replicas(routes, rank)
        if len(_places(context, counts)) > 1:
            edges.update(edge for pair in _neighbours(context, counts) for edge in context.topology.path(*pair))
    return frozenset(edges)


def exchange_costs(
    context: Context,
    configuration: Configuration,
    routes: tuple[PooledRoute, ...],
    stages: dict[int, PoolStages],
    *,
    reserved: dict[int, float],
) -> tuple[ExchangeCost, ...]:
    """Costs of the exchange of every stage; `stages` maps pool index to its stage costs.

    `reserved` is what stage messages keep of each edge (B/s).
    """
    capacity = np.array(context.topology.capacity_bytes_per_s)
    for edge, rate in reserved.items():
        capacity[edge] -= rate
    known: dict[object, ExchangeCost] = {}
    costs = []
    for stage in range(configuration.degrees.num_stages):
        counts = rank_replicas(routes, configuration.rank_of_stage(stage))
        key = (tuple(counts.items()), *(_signature(stages[pool], stage) for pool in counts))
        if key not in known:
            known[key] = _exchange(context, configuration, counts, stages, stage, capacity=capacity)
        costs.append(known[key])
    return tuple(costs)


def _signature(stages: PoolStages, stage: int) -> tuple[float, ...]:
    """What an exchange depends on: stages that agree in it share their exchange cost."""
    cost = stages.cost
    values = (cost.parameters, cost.expert_parameters, cost.forward_s, cost.input_grad_s, cost.weight_grad_s)
    return tuple(float(value[stage]) for value in values)


def rank_replicas(routes: tuple[PooledRoute, ...], rank: int) -> Counter[int]:
    """Replicas of a pipeline rank by pool."""
    counts: Counter[int] = Counter()
    for route in routes:
        counts[route.pools[rank]] += route.num_replicas
    return counts


def _exchange(
    context: Context,
    configuration: Configuration,
    counts: Counter[int],
    stages: dict[int, PoolStages],
    stage: int,
    *,
    capacity: FloatArray,
) -> ExchangeCost:
    columns = columns_of(configuration)
    overlap_s = max(_overlap_s(context, columns, stages[pool], stage) for pool in counts)
    private_s = max(
        _private_s(context, replace(columns, dp=np.array([count])), pool, stages[pool], stage)
        for pool, count in counts.items()
    )
    edge_bytes = _edge_bytes(context, columns, counts, _stage_parameters(columns, stages[next(iter(counts))], stage))
    if not edge_bytes:
        return ExchangeCost(overlap_s, private_s, 0.0, {})
    sent_bytes = max(edge_bytes.values())
    nics = min(_place_bytes_per_s(context, configuration, pool, count) for pool, count in counts.items())
    wire_s = max(sent_bytes / nics, *(size / capacity[edge] for edge, size in edge_bytes.items()))
    num_places = len(_places(context, counts))
    steps = 2 * (num_places - 1)
    farthest_s = max(context.topology.path_facts(*pair).latency_s for pair in _neighbours(context, counts))
    local_bytes = _largest_local_bytes(context, stages[next(iter(counts))])
    chosen = {
        pair: exchange_choice(context, configuration, counts, pair, local_bytes=local_bytes)
        for pair in _narrowest_by_tier(context, counts)
    }
    share = min(_share_of_wire(context, configuration, counts, pair, choice) for pair, choice in chosen.items())
    return ExchangeCost(overlap_s, private_s, wire_s / share + steps * farthest_s, edge_bytes, tuple(chosen.values()))


def _largest_local_bytes(context: Context, stages: PoolStages) -> float:
    """Gradients of the largest stage on one GPU: one transport serves all stages that span the same places."""
    largest = float((stages.cost.parameters + stages.cost.expert_parameters).max())
    return largest * context.job.optimizer.gradient_bytes_per_parameter


def _narrowest_by_tier(context: Context, counts: Counter[int]) -> tuple[tuple[str, str], ...]:
    """Of the ring's steps on each tier, the one with the least capacity."""
    narrowest: dict[str, tuple[str, str]] = {}
    capacity = {pair: context.topology.path_facts(*pair).capacity_bytes_per_s for pair in _neighbours(context, counts)}
    for pair in sorted(capacity, key=lambda pair: -capacity[pair]):
        narrowest[context.topology.tier(*pair)] = pair
    return tuple(narrowest.values())


def _share_of_wire(
    context: Context, configuration: Configuration, counts: Counter[int], pair: tuple[str, str], choice: TransportChoice
) -> float:
    """Part of a step's rate that the chosen transport reaches: collisions, windows, headers, codes."""
    connections = min(counts.values()) * configuration.degrees.gpus_per_stage_group
    capacity = context.topology.path_facts(*pair).capacity_bytes_per_s
    cards = min(_place_bytes_per_s(context, configuration, pool, count) for pool, count in counts.items())
    return min(1.0, choice.effective_bytes_per_s * connections / min(capacity, cards))


def _overlap_s(context: Context, columns: Columns, stages: PoolStages, stage: int) -> float:
    """Buckets go out while the last backward still runs; gathered weights arrive beside the next forward (ZeRO-1)."""
    beside = stages.cost.input_grad_s[stage] + stages.cost.weight_grad_s[stage]
    if columns.sharding[0] == ZERO1:
        beside = beside + stages.cost.forward_s[stage]
    return float(context.stack.data_parallel_overlap.value * beside)


def _private_s(context: Context, columns: Columns, pool: int, stages: PoolStages, stage: int) -> float:
    """Reduction and gathering among the replicas of one place: `columns.dp` of them."""
    traffic = step_traffic(
        stages.cost.parameters[stage : stage + 1],
        stages.cost.expert_parameters[stage : stage + 1],
        columns,
        fabric_of(context.pools[pool]),
        context.stack,
        gradient_bytes=context.job.optimizer.gradient_bytes_per_parameter,
    )
    return float(traffic.reduce_s[0] + traffic.gather_s[0])


def _stage_parameters(columns: Columns, stages: PoolStages, stage: int) -> FloatArray:
    """Parameters of the whole stage: local dense over tp, local experts over tp and ep."""
    dense = stages.cost.parameters[stage] * columns.tp
    whole: FloatArray = dense + stages.cost.expert_parameters[stage] * columns.tp * columns.ep
    return whole


def _places(context: Context, counts: Counter[int]) -> list[str]:
    """Places with replicas, building by building, so that a ring enters every building once."""
    order = {pool: index for index, unit in enumerate(context.units) for pool in unit.pools}
    places = [context.pools[pool].place for pool in sorted(counts, key=lambda pool: (order[pool], pool))]
    return list(dict.fromkeys(places))


def _neighbours(context: Context, counts: Counter[int]) -> list[tuple[str, str]]:
    """Each place of the ring with the next one."""
    places = _places(context, counts)
    return list(zip(places, [*places[1:], places[0]], strict=True))


def _edge_bytes(context: Context, columns: Columns, counts: Counter[int], parameters: FloatArray) -> dict[int, float]:
    num_places = len(_places(context, counts))
    if num_places == 1:
        return {}
    gradient_bytes = context.job.optimizer.gradient_bytes_per_parameter
    sent = float(crossing_bytes(parameters, columns, num_places, gradient_bytes=gradient_bytes)[0])
    loads: Counter[int] = Counter()
    for pair in _neighbours(context, counts):
        for edge in context.topology.path(*pair):
            loads[edge] += 1
    return {edge: times * sent for edge, times in loads.items()}


def _place_bytes_per_s(context: Context, configuration: Configuration, pool: int, num_replicas: int) -> float:
    """Rate at which all GPUs that hold the stage in one place send together."""
    gpus = num_replicas * configuration.degrees.gpus_per_stage_group
    return gpus * context.pools[pool].nic_bytes_per_s_per_gpu * context.stack.scale_out_efficiency.value


def run_exchanges(costs: tuple[ExchangeCost, ...], last_end_s: list[float]) -> tuple[StageExchange, ...]:
    """When each exchange runs: first ready, first served on the shared links; the others as soon as they are ready."""
    done: dict[int, StageExchange] = {}
    free_s = 0.0
    ready = [end - cost.overlap_s for end, cost in zip(last_end_s, costs, strict=True)]
    for stage in sorted(range(len(costs)), key=lambda stage: (ready[stage], stage)):
        cost = costs[stage]
        start_s = max(ready[stage], 0.0)
        if cost.shared_s > 0:
            start_s = max(start_s, free_s)
            free_s = start_s + cost.shared_s
        done[stage] = StageExchange(
            stage=stage,
            last_weight_grad_end_s=last_end_s[stage],
            overlap_s=cost.overlap_s,
            start_s=start_s,
            private_s=cost.private_s,
            shared_s=cost.shared_s,
            end_s=max(last_end_s[stage], start_s + cost.duration_s),
        )
    return tuple(done[stage] for stage in range(len(costs)))
