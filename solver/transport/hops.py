"""What a stage-to-stage message costs on each route, when all replicas that share a link get equal shares of it.

Owns the reserved share: every replica keeps capacity / sharers of each link for the whole iteration, so a plan stays
true whatever order the others send in. Never schedules a message.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np

from models.cluster import Pool
from models.plan import Configuration
from models.transport import TransportChoice
from solver.context import Context
from solver.cost.collectives import boundary_message_s
from solver.cost.columns import columns_of
from solver.cost.fabric import fabric_of
from solver.placement.fill import PooledRoute
from solver.transport.choose import message_choice


@dataclass(frozen=True)
class HopDelay:
    """The way from `stage` to the next of one route. No `link`: both ends share a pool, only the delay counts.

    `there` and `back` are the directed edges of activations and gradients.
    """

    stage: int
    latency_s: float
    transfer_s: float
    link: str | None
    there: tuple[int, ...] = ()
    back: tuple[int, ...] = ()
    choice: TransportChoice | None = None


def hop_pools(configuration: Configuration, route: PooledRoute) -> list[tuple[int, int, int]]:
    """(stage, pool of its rank, pool of the next stage's rank) wherever the rank changes."""
    ranks = [configuration.rank_of_stage(stage) for stage in range(configuration.degrees.num_stages)]
    return [
        (stage, route.pools[here], route.pools[there])
        for stage, (here, there) in enumerate(itertools.pairwise(ranks))
        if here != there
    ]


def route_hops(
    context: Context, configuration: Configuration, routes: tuple[PooledRoute, ...], message_bytes: float
) -> list[tuple[HopDelay, ...]]:
    """Delays of every hop of every route."""
    sharers = edge_sharers(context, configuration, routes)
    return [
        tuple(
            _hop(context, configuration, stage, (here, there), message_bytes=message_bytes, sharers=sharers)
            for stage, here, there in hop_pools(configuration, route)
        )
        for route in routes
    ]


def edge_sharers(context: Context, configuration: Configuration, routes: tuple[PooledRoute, ...]) -> Counter[int]:
    """Streams of messages on every directed edge: one per replica and pair of pools, in each direction."""
    sharers: Counter[int] = Counter()
    for route in routes:
        for pair in {tuple(sorted(pools)) for _, *pools in hop_pools(configuration, route) if pools[0] != pools[1]}:
            one, other = (context.pools[index].place for index in pair)
            for edge in (*context.topology.path(one, other), *context.topology.path(other, one)):
                sharers[edge] += route.num_replicas
    return sharers


def _hop(
    context: Context,
    configuration: Configuration,
    stage: int,
    pools: tuple[int, int],
    *,
    message_bytes: float,
    sharers: Counter[int],
) -> HopDelay:
    source, target = context.pools[pools[0]], context.pools[pools[1]]
    if pools[0] == pools[1]:
        return HopDelay(stage, _local_message_s(context, configuration, source, message_bytes), 0.0, None)
    topology = context.topology
    there, back = topology.path(source.place, target.place), topology.path(target.place, source.place)
    choices = [
        message_choice(context, configuration, ends, message_bytes=message_bytes, sharers=max(sharers[e] for e in path))
        for ends, path in (((source, target), there), ((target, source), back))
    ]
    slower = min(choices, key=lambda choice: choice.effective_bytes_per_s)
    shares = [float(topology.capacity_bytes_per_s[edge]) / sharers[edge] for edge in (*there, *back)]
    rate = min(configuration.degrees.gpus_per_stage_group * slower.effective_bytes_per_s, *shares)
    steps = [choice.expected_s - choice.message_bytes / choice.effective_bytes_per_s for choice in choices]
    latency_s = max(steps) + context.stack.collective_latency_s.value
    name = "~".join(sorted((source.id, target.id)))
    return HopDelay(stage, latency_s, message_bytes / rate, name, there, back, slower)


def _local_message_s(context: Context, configuration: Configuration, pool: Pool, message_bytes: float) -> float:
    """Delay of a message inside one pool, where bandwidth is full: it never queues behind the next one's compute."""

    columns = columns_of(configuration)
    size = np.array([message_bytes])
    return float(boundary_message_s(size, columns.tp, columns.cp, fabric_of(pool), context.stack)[0])
