"""What one more byte on a link costs in iteration time: the duals of the routing of everything a plan sends.

The routing's duals are the prices where the plan's paths are as fast as the best and its bytes pay for all of their
time (they are then dual to these paths as well); elsewhere the paths are taken as given, and their fullest edges share
the price.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isclose

import numpy as np

from models.plan import Configuration, StageExchange
from models.transport import Dimension
from solver.arrays import FloatArray
from solver.context import Context
from solver.network.policy import POLICY
from solver.network.split import Step
from solver.placement.fill import PooledRoute
from solver.transport.exchange import ExchangeCost, InterSiteRing
from solver.transport.exchange_times import SAME_INSTANT
from solver.transport.hops import HopDelay, Sharing, free_bytes_per_s, reserved_bytes_per_s
from solver.transport.ring import Ring
from solver.transport.routing import route

LEAST_RATE = 1e-6  # of its capacity, what an edge keeps for an exchange whatever messages reserve
SAME_TIME = 1e-6  # relative difference below which the plan's paths are as fast as the best
NOISE = 1e-6  # of the most that a price times a rate is worth, below which a dual is the solver's rounding


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
    sharing: Sequence[Sharing | None]

    @cached_property
    def exchanging(self) -> frozenset[int]:
        """Edges that some exchange takes."""
        return frozenset(edge for cost in self.costs for edge in cost.edge_bytes)


Prices = dict[tuple[int, Dimension], float]


def link_prices(context: Context, traffic: Traffic, *, hidden_s: float) -> Prices:
    """Seconds of iteration time per byte of a cause on each edge that has a price.

    Messages may take `hidden_s`, the work they hide behind; exchanges count where they end after the pipeline. The two
    never coincide: each keeps its part of the edges that carry both. Of several phases the dearest counts.
    """
    capacity = context.topology.capacity_bytes_per_s
    free = np.array([free_bytes_per_s(context, edge, traffic.exchanging) for edge in range(len(capacity))])
    messages = [PricedPhase(message_sizes(context, traffic), message_load(context, traffic), hidden_s=hidden_s)]
    left = np.array(capacity)
    for edge, rate in reserved_bytes_per_s(traffic.routes, list(traffic.hops), traffic.message_bytes).items():
        left[edge] -= rate
    left = np.maximum(left, LEAST_RATE * capacity)  # an edge that is full of messages would have no rate at all
    prices: Prices = {}
    for cause, phases, rates in (("pp", messages, free), ("dp", exchange_phases(context, traffic), left)):
        for phase in phases:
            price_e = phase_prices(context, phase, rates)
            worth_e = price_e * rates  # seconds per second: per byte a thin edge's rounding looks dear
            for edge in np.flatnonzero(worth_e > NOISE * worth_e.max(initial=0.0)).tolist():
                prices[edge, cause] = max(prices.get((edge, cause), 0.0), float(price_e[edge]))  # type: ignore[index, arg-type]
    return prices


@dataclass(frozen=True)
class PricedPhase:
    """Bytes between places that travel at the same time, and what the plan's own paths put on every edge.

    `weight`: seconds that the iteration grows per second of their time beyond `hidden_s`, which other work hides.
    """

    size_of: dict[Step, float]
    load_e: FloatArray
    weight: float = 1.0
    hidden_s: float = 0.0


def phase_prices(context: Context, priced: PricedPhase, capacity: FloatArray) -> FloatArray:
    """Weight times the duals of shipping the phase; nothing where all of it is hidden."""
    fill_e = priced.load_e / capacity
    time_s = float(fill_e.max(initial=0.0))
    if time_s <= priced.hidden_s or not priced.size_of:
        return np.zeros(len(capacity))
    best = route(context.topology, priced.size_of, capacity, direct=context.detours_matter)
    paid_s = float(best.price_e @ priced.load_e)  # less where the plan's paths go round and the best may not
    is_best = time_s <= best.time_s * (1.0 + SAME_TIME) and paid_s >= time_s * (1.0 - SAME_TIME)
    if priced.hidden_s < best.time_s and is_best:
        return priced.weight * best.price_e
    full = fill_e >= time_s * (1.0 - SAME_TIME)
    return np.where(full, priced.weight / (capacity * full.sum()), 0.0)


def message_load(context: Context, traffic: Traffic) -> FloatArray:
    """Bytes of stage messages per edge over an iteration."""
    load_e = np.zeros(len(context.topology.edges))
    for own, delays in zip(traffic.routes, traffic.hops, strict=True):
        for hop in delays:
            for edge, _, part in hop.streams:
                load_e[edge] += part * traffic.configuration.num_microbatches * own.num_replicas * traffic.message_bytes
    return load_e


def message_sizes(context: Context, traffic: Traffic) -> dict[Step, float]:
    """Bytes of stage messages per iteration between each two places: activations one way, gradients the other."""
    pools, used = context.pools, traffic.configuration
    sizes: defaultdict[Step, float] = defaultdict(float)
    for own, delays in zip(traffic.routes, traffic.hops, strict=True):
        for hop in delays:
            if hop.link is not None:
                ranks = used.rank_of_stage(hop.stage), used.rank_of_stage(hop.stage + 1)
                source, target = (pools[own.pools[rank]].place for rank in ranks)
                size = used.num_microbatches * own.num_replicas * traffic.message_bytes
                sizes[source, target] += size
                sizes[target, source] += size
    return {ends: size for ends, size in sizes.items() if ends[0] != ends[1]}


def exchange_phases(context: Context, traffic: Traffic) -> list[PricedPhase]:
    """Ring steps of the exchanges that delay the end of the iteration, one phase per ring: they follow each other.

    Its weight is the mean over their bytes: those of ranks on other cards may reach another part of the same links.
    """
    weighted: defaultdict[Ring, float] = defaultdict(float)
    rings_between: defaultdict[Ring, list[InterSiteRing]] = defaultdict(list)
    ranks = traffic.configuration.rank_of_stages
    for stage, weight in delaying(traffic.exchanges, traffic.pipeline_s, ranks).items():
        site_ring = traffic.costs[stage].site_ring
        if site_ring is not None and site_ring.bottlenecks:
            rings_between[site_ring.ring].append(site_ring)
            weighted[site_ring.ring] += site_ring.sent_bytes * weight / site_ring.reached
    phases = []
    for ring, own in rings_between.items():
        sent_bytes = sum(site_ring.sent_bytes for site_ring in own)
        load_e = np.zeros(len(context.topology.edges))
        for edge, part in ring.load.items():
            load_e[edge] = part * sent_bytes
        phases.append(PricedPhase(dict.fromkeys(ring.steps, sent_bytes), load_e, weight=weighted[ring] / sent_bytes))
    return phases


def delaying(exchanges: tuple[StageExchange, ...], pipeline_s: float, ranks: Sequence[int]) -> dict[int, float]:
    """Stages whose exchange on shared links delays the iteration, and seconds that it grows per second of theirs.

    The last to end counts if it ends after the pipeline, and so does the exchange with whose end on the links it began,
    and so on. One that it waited for on the cards of its rank, of the `ranks` by stage, does not: its time on links is
    hidden.
    """
    last = max(exchanges, key=lambda one: one.end_s, default=None)
    if last is None or last.shared_s == 0 or last.end_s <= max(pipeline_s, last.last_weight_grad_end_s):
        return {}
    weights = {last.stage: 1.0 if last.shared_s >= last.private_s else 1.0 / POLICY.num_exchange_chunks}
    before = sorted((one for one in exchanges if one.shared_s > 0), key=lambda one: (-one.start_s, one.stage))
    waiting = last
    for one in before:
        on_cards_s = one.private_s if ranks[one.stage] == ranks[waiting.stage] else 0.0
        free_s = one.start_s + max(one.shared_s, on_cards_s)
        if one.start_s < waiting.start_s and isclose(free_s, waiting.start_s, rel_tol=SAME_INSTANT):
            if one.shared_s >= on_cards_s:
                weights[one.stage] = 1.0
            waiting = one
    return weights
