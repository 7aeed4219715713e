"""What one more byte on a link costs in iteration time: the duals of the routing of everything a plan sends.

Owns the phases of a plan's traffic. Never routes: `routing.py` does, and its duals are the prices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.plan import Configuration, StageExchange
from solver.context import Context
from solver.placement.fill import PooledRoute
from solver.transport.exchange import NUM_CHUNKS, ExchangeCost, SharedWire
from solver.transport.flows import Demand, Phase
from solver.transport.hops import HopDelay, reserved_bytes_per_s, room_bytes_per_s
from solver.transport.ring import Ring
from solver.transport.routing import route

FloatArray = NDArray[np.float64]
MESSAGES = "messages"
NOISE = 1e-6  # of the dearest edge, below which a dual is the solver's rounding


@dataclass(frozen=True)
class Traffic:
    """Everything that a timed plan sends between places."""

    configuration: Configuration
    routes: tuple[PooledRoute, ...]
    hops: Sequence[tuple[HopDelay, ...]]
    costs: tuple[ExchangeCost, ...]
    exchanges: tuple[StageExchange, ...]
    message_bytes: float
    pipeline_s: float

    @property
    def exchanging(self) -> frozenset[int]:
        """Edges that some exchange takes."""
        return frozenset(edge for cost in self.costs for edge in cost.edge_bytes)


def link_prices(context: Context, traffic: Traffic, *, hidden_s: float) -> dict[int, float]:
    """Seconds of iteration time per byte on each edge that has a price.

    Messages may take `hidden_s`, the work they hide behind; exchanges count where they end after the pipeline. The two
    never coincide: each keeps its part of the edges that carry both. Of several phases the dearest counts.
    """
    prices: defaultdict[int, float] = defaultdict(float)
    capacity = context.topology.capacity_bytes_per_s
    room = np.array([room_bytes_per_s(context, edge, traffic.exchanging) for edge in range(len(capacity))])
    messages = Phase(MESSAGES, hidden_s=hidden_s)
    _add(prices, context, message_demands(context, traffic), [messages], capacity=room)
    left = np.array(capacity)
    for edge, rate in reserved_bytes_per_s(traffic.routes, list(traffic.hops), traffic.message_bytes).items():
        left[edge] -= rate
    demands, phases = exchange_demands(traffic)
    _add(prices, context, demands, phases, capacity=left)
    return dict(prices)


def _add(
    prices: defaultdict[int, float],
    context: Context,
    demands: list[Demand],
    phases: list[Phase],
    *,
    capacity: FloatArray,
) -> None:
    """Raise prices to the duals of these phases."""
    if not demands or not phases:
        return
    least = 1e-6 * context.topology.capacity_bytes_per_s  # an edge that is full of messages would have no rate at all
    routing = route(context.topology, demands, phases, capacity_bytes_per_s=np.maximum(capacity, least))
    for price_e in routing.prices_s_per_byte.values():
        for edge in np.flatnonzero(price_e > NOISE * price_e.max(initial=0.0)).tolist():
            prices[edge] = max(prices[edge], float(price_e[edge]))


def message_demands(context: Context, traffic: Traffic) -> list[Demand]:
    """Stage messages of an iteration between each two places: activations one way, gradients the other."""
    pools, used = context.pools, traffic.configuration
    sizes: defaultdict[tuple[str, str], float] = defaultdict(float)
    for own, delays in zip(traffic.routes, traffic.hops, strict=True):
        for hop in delays:
            if hop.link is not None:
                ranks = used.rank_of_stage(hop.stage), used.rank_of_stage(hop.stage + 1)
                source, target = (pools[own.pools[rank]].place for rank in ranks)
                size = used.num_microbatches * own.num_replicas * traffic.message_bytes
                sizes[source, target] += size
                sizes[target, source] += size
    return [Demand(*ends, size, MESSAGES, "pp") for ends, size in sizes.items() if ends[0] != ends[1]]


def exchange_demands(traffic: Traffic) -> tuple[list[Demand], list[Phase]]:
    """Ring steps of the exchanges that delay the end of the iteration, one phase per ring: exchanges take turns."""
    demands: list[Demand] = []
    phases: list[Phase] = []
    weights: dict[Ring, float] = {}
    wires: defaultdict[Ring, list[SharedWire]] = defaultdict(list)
    for stage, weight in delaying(traffic.exchanges, traffic.pipeline_s).items():
        wire = traffic.costs[stage].wire
        if wire is not None and wire.bottlenecks:
            wires[wire.ring].append(wire)
            weights[wire.ring] = max(weights.get(wire.ring, 0.0), weight / wire.reached)
    for number, (ring, own) in enumerate(wires.items()):
        phases.append(Phase(f"exchange {number}", weight=weights[ring]))
        sent_bytes = sum(wire.sent_bytes for wire in own)
        demands.extend(Demand(*step, sent_bytes, phases[-1].name, "dp") for step in ring.steps)
    return demands, phases


def delaying(exchanges: tuple[StageExchange, ...], pipeline_s: float) -> dict[int, float]:
    """Stages whose exchange on shared links delays the iteration, and seconds that it grows per second of theirs.

    The last to end counts if it ends after the pipeline, and so does every exchange that it waited for on the links.
    """
    last = max(exchanges, key=lambda one: one.end_s, default=None)
    if last is None or last.shared_s == 0 or last.end_s <= max(pipeline_s, last.last_weight_grad_end_s):
        return {}
    weights = {last.stage: 1.0 if last.shared_s >= last.private_s else 1.0 / NUM_CHUNKS}
    before = sorted((one for one in exchanges if one.shared_s > 0), key=lambda one: one.start_s, reverse=True)
    start_s = last.start_s
    for one in before:
        if one.start_s < start_s and one.start_s + one.shared_s >= start_s * (1.0 - 1e-12):
            weights[one.stage] = 1.0
            start_s = one.start_s
    return weights
