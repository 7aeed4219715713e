"""What a stage-to-stage message costs on each route, when all replicas that share a link get equal shares of it.

Owns the reserved share: every replica keeps capacity / sharers of each link for the whole iteration, so a plan stays
true whatever order the others send in. Never schedules a message.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field, replace

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

EXCHANGE_PART = 0.5  # of an edge that carries both, what the gradient exchange keeps from stage messages


@dataclass(frozen=True)
class HopDelay:
    """The way from `stage` to the next of one route. No `link`: both ends share a pool, only the delay counts.

    `there` and `back` are the directed edges of activations and gradients, `upwards` says that the former go to a
    higher rank: a link name has one queue per direction along the ranks. `bottlenecks` are the edges whose share sets
    the rate, none where the GPUs' own cards or the transport do; `num_sharers` queues are on the fullest. With several
    `num_turns` the replicas of the route follow each other on the links, `transfer_s` apart.
    """

    stage: int
    latency_s: float
    transfer_s: float
    link: str | None
    there: tuple[int, ...] = ()
    back: tuple[int, ...] = ()
    upwards: bool = True
    choice: TransportChoice | None = None
    bottlenecks: tuple[int, ...] = ()
    num_sharers: int = 1
    num_turns: int = 1

    @property
    def streams(self) -> tuple[tuple[int, bool], ...]:
        """(edge, upwards) of everything this hop sends: activations one way along the ranks, gradients the other."""
        activations = [(edge, self.upwards) for edge in self.there]
        return (*activations, *((edge, not self.upwards) for edge in self.back))


@dataclass(frozen=True)
class Sharing:
    """Ends of a route when its replicas send all at once and when they take turns, shift included."""

    at_once_s: float
    in_turns_s: float


@dataclass(frozen=True)
class _Leg:
    """A hop before its share is known: its stage, the pools it joins and whether it climbs the ranks."""

    stage: int
    source: int
    target: int
    upwards: bool


def route_hops(
    context: Context,
    configuration: Configuration,
    routes: tuple[PooledRoute, ...],
    message_bytes: float,
    *,
    exchanging: frozenset[int] = frozenset(),
) -> list[tuple[HopDelay, ...]]:
    """Delays of every hop of every route; on `exchanging` edges the gradient exchange keeps its part."""
    legs = [_legs(configuration, route) for route in routes]
    sharers = _edge_sharers(context, routes, legs)
    room = {edge: room_bytes_per_s(context, edge, exchanging) / count for edge, count in sharers.items()}
    pricing = _Pricing(context, configuration, message_bytes, sharers, room)
    return [tuple(pricing.hop(leg) for leg in own) for own in legs]


def _legs(configuration: Configuration, route: PooledRoute) -> list[_Leg]:
    """Wherever the rank changes from one stage to the next."""
    ranks = [configuration.rank_of_stage(stage) for stage in range(configuration.degrees.num_stages)]
    return [
        _Leg(stage, route.pools[here], route.pools[there], there > here)
        for stage, (here, there) in enumerate(itertools.pairwise(ranks))
        if here != there
    ]


def _edge_sharers(context: Context, routes: tuple[PooledRoute, ...], legs: list[list[_Leg]]) -> Counter[int]:
    """Queues of messages on every directed edge: one per replica, pair of pools and direction along the ranks."""
    sharers: Counter[int] = Counter()
    for route, own in zip(routes, legs, strict=True):
        queues = set()
        for leg in own:
            if leg.source != leg.target:
                one, other = context.pools[leg.source].place, context.pools[leg.target].place
                pair = tuple(sorted((leg.source, leg.target)))
                queues |= {(edge, pair, leg.upwards) for edge in context.topology.path(one, other)}
                queues |= {(edge, pair, not leg.upwards) for edge in context.topology.path(other, one)}
        for edge, _, _ in queues:
            sharers[edge] += route.num_replicas
    return sharers


def room_bytes_per_s(context: Context, edge: int, exchanging: frozenset[int]) -> float:
    """What stage messages may use of an edge."""
    part = 1.0 - EXCHANGE_PART if edge in exchanging else 1.0
    return part * float(context.topology.capacity_bytes_per_s[edge])


@dataclass(frozen=True)
class _Pricing:
    """Prices hops: `sharers` queues on each edge, each with `room` bytes per second of it."""

    context: Context
    configuration: Configuration
    message_bytes: float
    sharers: Counter[int]
    room: dict[int, float]
    _known: dict[tuple[int, int, bool], HopDelay] = field(default_factory=dict)

    def hop(self, leg: _Leg) -> HopDelay:
        """Legs between the same pools in the same direction differ by their stage alone."""
        key = (leg.source, leg.target, leg.upwards)
        if key not in self._known:
            self._known[key] = self._priced(leg)
        return replace(self._known[key], stage=leg.stage)

    def _priced(self, leg: _Leg) -> HopDelay:
        source, target = self.context.pools[leg.source], self.context.pools[leg.target]
        if source.place == target.place:
            local_s = max(
                _local_message_s(self.context, self.configuration, end, self.message_bytes) for end in (source, target)
            )
            return HopDelay(leg.stage, local_s, 0.0, None)
        topology = self.context.topology
        there, back = topology.path(source.place, target.place), topology.path(target.place, source.place)
        choices = [self._choice(source, target, there), self._choice(target, source, back)]
        slower = min(choices, key=lambda choice: choice.effective_bytes_per_s)
        group = self.configuration.degrees.gpus_per_stage_group
        rate = min(group * slower.effective_bytes_per_s, *(self.room[edge] for edge in (*there, *back)))
        steps = [choice.expected_s - choice.message_bytes / choice.effective_bytes_per_s for choice in choices]
        latency_s = max(steps) + self.context.stack.collective_latency_s.value
        name = "~".join(sorted((source.id, target.id)))
        narrow = tuple(edge for edge in (*there, *back) if self.room[edge] <= rate * (1.0 + 1e-9))
        return HopDelay(
            stage=leg.stage,
            latency_s=latency_s,
            transfer_s=self.message_bytes / rate,
            link=name,
            there=there,
            back=back,
            upwards=leg.upwards,
            choice=slower,
            bottlenecks=narrow,
            num_sharers=max((self.sharers[edge] for edge in (*there, *back)), default=1),
        )

    def _choice(self, source: Pool, target: Pool, path: tuple[int, ...]) -> TransportChoice:
        return message_choice(
            self.context,
            self.configuration,
            (source, target),
            message_bytes=self.message_bytes,
            sharers=max(self.sharers[edge] for edge in path),
        )


def reserved_bytes_per_s(
    routes: tuple[PooledRoute, ...], hops: list[tuple[HopDelay, ...]], message_bytes: float
) -> dict[int, float]:
    """Rate that stage messages keep of every edge: that of all queues which may send at once."""
    rate: dict[int, float] = {}
    for route, delays in zip(routes, hops, strict=True):
        queues = {
            (edge, hop.link, upwards): -(-route.num_replicas // hop.num_turns) * message_bytes / hop.transfer_s
            for hop in delays
            if hop.link is not None
            for edge, upwards in hop.streams
        }
        for (edge, _, _), one in queues.items():
            rate[edge] = rate.get(edge, 0.0) + one
    return rate


def _local_message_s(context: Context, configuration: Configuration, pool: Pool, message_bytes: float) -> float:
    """Delay of a message inside one pool, where bandwidth is full: it never queues behind the next one's compute."""
    columns = columns_of(configuration)
    size = np.array([message_bytes])
    return float(boundary_message_s(size, columns.tp, columns.cp, fabric_of(pool), context.stack)[0])
