"""What a stage-to-stage message costs on each route, when all replicas that share a link get equal shares of it.

The reserved share: every replica keeps capacity / sharers of each link for the whole iteration, so a plan remains
true whatever order the others send in.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from models.plan import Configuration
from models.schedule import PipelineHop
from models.transport import TransportChoice
from solver.context import Context
from solver.cost.collectives import boundary_message_s
from solver.cost.columns import columns_of
from solver.cost.fabric import fabric_of, share_place
from solver.network.algorithms import Communicator
from solver.network.choices import choose_transport
from solver.network.collectives import Level
from solver.network.policy import POLICY
from solver.network.topology import PathFacts
from solver.placement.fill import PooledRoute
from solver.transport.message_paths import MessagePaths

EdgeParts = tuple[tuple[int, float], ...]
WHOLE = 1e-9  # relative, of a number of messages: parts are sums of floats
MOST_SHARED = 16_384  # hops of pipeline problems, 1 KiB each: the routes of a plan in 64 buildings have 4,000 of them


@dataclass(frozen=True)
class Sent:
    """How messages travel one way between two pools, by index: the transport, and connections that share the way."""

    source: int
    target: int
    choice: TransportChoice
    num_connections: int


@dataclass(frozen=True)
class HopDelay:
    """The way from `stage` to the next of one route. No `link`: both ends share a place, only the delay counts.

    `there` and `back` are the directed edges of activations and gradients, with the part of a message that each
    carries; `upwards` says that the former go to a higher rank: a link name has one queue per direction along the
    ranks. `bottlenecks` are the edges whose share sets the rate, none where the GPUs' own cards do. `num_sharers`
    messages share what it can carry as equals; `num_senders` queues are on the fullest edge. `sent` is how it travels
    there and back. With several `num_time_slots` the replicas of the route follow each other on the links,
    `transfer_s` apart, and travel as `sent_in_time_slot` says.
    """

    stage: int
    latency_s: float
    transfer_s: float
    link: str | None
    there: EdgeParts = ()
    back: EdgeParts = ()
    upwards: bool = True
    bottlenecks: tuple[int, ...] = ()
    num_sharers: int = 1
    num_senders: int = 1
    num_time_slots: int = 1
    sent: tuple[Sent, ...] = ()
    sent_in_time_slot: tuple[Sent, ...] = ()

    @property
    def streams(self) -> tuple[tuple[int, bool, float], ...]:
        """Directed edges, whether messages on them go up the ranks, and the part of a message that each carries."""
        activations = [(edge, self.upwards, part) for edge, part in self.there]
        return (*activations, *((edge, not self.upwards, part) for edge, part in self.back))


@dataclass(frozen=True)
class Sharing:
    """Seconds at which a route ends when its replicas send all at once, and when in time slots, shift included."""

    at_once_s: float
    in_time_slots_s: float


@dataclass(frozen=True)
class _Leg:
    """A hop before its share is known: its stage, the pools that it joins, and whether it goes to a higher rank."""

    stage: int
    source: int
    target: int
    upwards: bool


@dataclass(frozen=True)
class StageMessages:
    """The messages between stages of a configuration: the bytes of one, and the paths that they take."""

    context: Context
    configuration: Configuration
    num_bytes: float
    paths: MessagePaths

    def sent(self, source: int, target: int, sharers: int, senders: int) -> Sent:
        """How messages travel from one pool to another that `sharers` queues share, while `senders` of them send.

        Every GPU of every group that shares the way is one connection; of those that send the slowest is waited for.
        """
        context, group = self.context, self.configuration.degrees.gpus_per_stage_group
        pools = context.pools[source], context.pools[target]
        ends = pools[0].place, pools[1].place
        member = min(one.nic_bytes_per_s_per_gpu for one in pools) * context.stack.point_to_point_efficiency.value
        communicator = Communicator(
            "pp",
            "send_recv",
            context.topology.tier(*ends),
            2,
            Level(1, 0.0, member),
            self.num_bytes / group,
            sharers * group,
            member,
            num_parallel=senders * group,
        )
        return Sent(source, target, choose_transport(communicator, self.paths.facts(*ends)), sharers * group)


def route_hops(
    messages: StageMessages, routes: tuple[PooledRoute, ...], exchanging: frozenset[int] = frozenset()
) -> list[tuple[HopDelay, ...]]:
    """Delays of every hop of every route; on `exchanging` edges the gradient exchange keeps its part."""
    context = messages.context
    legs = [_legs(messages.configuration, route) for route in routes]
    queues, parts = _edge_sharers(context, routes, legs, messages.paths)
    free = {edge: free_bytes_per_s(context, edge, exchanging) / part for edge, part in parts.items()}
    pricing = _Pricing(messages, queues, parts, free)
    return [tuple(pricing.hop(leg) for leg in own) for own in legs]


def _legs(configuration: Configuration, route: PooledRoute) -> list[_Leg]:
    """Wherever the rank changes from one stage to the next."""
    ranks = configuration.rank_of_stages
    return [
        _Leg(stage, route.pools[here], route.pools[there], there > here)
        for stage, (here, there) in enumerate(itertools.pairwise(ranks))
        if here != there
    ]


Queue = tuple[str, str, tuple[int, ...], bool]  # places from and to, pair of pools, direction along the ranks


def _queues(context: Context, legs: list[_Leg]) -> set[Queue]:
    """Queues of messages of one replica, there and back."""
    found: set[Queue] = set()
    for leg in legs:
        source, target = context.pools[leg.source], context.pools[leg.target]
        if not share_place(source, target):
            one, other = source.place, target.place
            pair = tuple(sorted((leg.source, leg.target)))
            found |= {(one, other, pair, leg.upwards), (other, one, pair, not leg.upwards)}
    return found


def queues_by_way(
    context: Context, configuration: Configuration, routes: tuple[PooledRoute, ...]
) -> Counter[tuple[str, str]]:
    """Queues of messages of all replicas from one place to another."""
    counted: Counter[tuple[str, str]] = Counter()
    for route in routes:
        for source, target, _, _ in _queues(context, _legs(configuration, route)):
            counted[source, target] += route.num_replicas
    return counted


def waiting_ways(
    context: Context, configuration: Configuration, routes: tuple[PooledRoute, ...], hops: list[tuple[HopDelay, ...]]
) -> Counter[tuple[str, str]]:
    """Queues between places (`queues_by_way`) whose messages wait for links, not for cards."""
    ranks = configuration.rank_of_stages
    waiting = {
        tuple(context.pools[route.pools[ranks[stage]]].place for stage in (hop.stage, hop.stage + 1))
        for route, delays in zip(routes, hops, strict=True)
        for hop in delays
        if hop.bottlenecks
    }
    ways = queues_by_way(context, configuration, routes)
    return Counter({way: count for way, count in ways.items() if way in waiting or way[::-1] in waiting})


def _edge_sharers(
    context: Context, routes: tuple[PooledRoute, ...], legs: list[list[_Leg]], paths: MessagePaths
) -> tuple[Counter[int], dict[int, float]]:
    """Queues on every directed edge: one per replica, pair of pools and direction along the ranks; and the parts of
    messages that they put on it together.
    """
    queues: Counter[int] = Counter()
    parts: dict[int, float] = {}
    for route, own in zip(routes, legs, strict=True):
        shared: dict[tuple[int, tuple[int, ...], bool], float] = {}
        for source, target, pair, upwards in _queues(context, own):
            for edge, part in paths.edges(source, target):
                shared[edge, pair, upwards] = max(shared.get((edge, pair, upwards), 0.0), part)
        for (edge, _, _), part in sorted(shared.items()):
            queues[edge] += route.num_replicas
            parts[edge] = parts.get(edge, 0.0) + part * route.num_replicas
    return queues, parts


def free_bytes_per_s(context: Context, edge: int, exchanging: frozenset[int]) -> float:
    """What stage messages may use of an edge."""
    part = 1.0 - POLICY.exchange_share if edge in exchanging else 1.0
    return part * float(context.topology.capacity_bytes_per_s[edge])


@dataclass(frozen=True)
class _Pricing:
    """Prices hops: `queues` and `parts` of messages on each edge, `free` bytes per second of it for a whole one."""

    messages: StageMessages
    queues: Counter[int]
    parts: dict[int, float]
    free: dict[int, float]
    _known: dict[tuple[int, int, bool], HopDelay] = field(default_factory=dict)
    _shared: dict[tuple[float, ...], HopDelay] = field(default_factory=dict)

    def hop(self, leg: _Leg) -> HopDelay:
        """The delay of a leg.

        Legs between the same pools in the same direction differ by their stage alone, and inside places by their
        delay. Routes share equal hops: many hundred of them have as many hops as a pipeline has stages.
        """
        ends = (leg.source, leg.target, leg.upwards)
        if ends not in self._known:
            self._known[ends] = self._priced(leg)
        priced = self._known[ends]
        key = (leg.stage, priced.latency_s) if priced.link is None else (leg.stage, *ends)
        if key not in self._shared:
            self._shared[key] = replace(priced, stage=leg.stage)
        return self._shared[key]

    def _priced(self, leg: _Leg) -> HopDelay:
        context, configuration, size = self.messages.context, self.messages.configuration, self.messages.num_bytes
        source, target = context.pools[leg.source], context.pools[leg.target]
        if share_place(source, target):
            columns, one = columns_of(configuration), np.array([size])  # never queued behind the next one's compute
            local_s = [boundary_message_s(one, columns.tp, columns.cp, fabric_of(end), context.stack)[0]
                       for end in (source, target)]  # fmt: skip
            return HopDelay(leg.stage, float(max(local_s)), 0.0, None)
        paths = self.messages.paths
        there, back = paths.edges(source.place, target.place), paths.edges(target.place, source.place)
        on_way = [edge for edge, _ in (*there, *back)]
        ends = (source.place, target.place)
        equals = [self._equals(way, paths.facts(*each)) for way, each in ((there, ends), (back, ends[::-1]))]
        senders = [max(self.queues[edge] for edge, _ in way) for way in (there, back)]
        sent = (
            self.messages.sent(leg.source, leg.target, equals[0], senders[0]),
            self.messages.sent(leg.target, leg.source, equals[1], senders[1]),
        )
        choices = [one.choice for one in sent]
        group, slower = configuration.degrees.gpus_per_stage_group, min(one.effective_bytes_per_s for one in choices)
        rate = min(group * slower, *(self.free[edge] for edge in on_way))
        cards = min(source.nic_bytes_per_s_per_gpu, target.nic_bytes_per_s_per_gpu)
        cards *= context.stack.point_to_point_efficiency.value
        pace = min(group * cards, *(self.free[edge] for edge in on_way))
        steps = [choice.expected_s - choice.message_bytes / choice.effective_bytes_per_s for choice in choices]
        return HopDelay(
            stage=leg.stage,
            latency_s=max(steps) + context.stack.collective_latency_s.value,
            transfer_s=size / rate,
            link="~".join(sorted((source.id, target.id))),
            there=there,
            back=back,
            upwards=leg.upwards,
            bottlenecks=tuple(edge for edge in on_way if self.free[edge] <= pace * (1.0 + 1e-9)),
            num_sharers=max(equals),
            num_senders=max(senders),
            sent=sent,
        )

    def _equals(self, way: EdgeParts, path: PathFacts) -> int:
        """Whole messages that share what the way can carry as equals: those on the edge that leaves each the least."""
        capacity = self.messages.context.topology.capacity_bytes_per_s
        filled = (self.parts[edge] / float(capacity[edge]) for edge, _ in way)
        return math.ceil(path.capacity_bytes_per_s * max(filled) * (1.0 - WHOLE))


def reserved_bytes_per_s(
    routes: tuple[PooledRoute, ...], hops: list[tuple[HopDelay, ...]], message_bytes: float
) -> dict[int, float]:
    """Rate that stage messages keep of every edge: that of all queues which may send at once, each at its fastest."""
    rate: dict[int, float] = {}
    for route, delays in zip(routes, hops, strict=True):
        queues = dict[tuple[int, str, bool], float]()
        for hop in delays:
            if hop.link is not None:
                at_once = -(-route.num_replicas // hop.num_time_slots)
                for edge, upwards, part in hop.streams:
                    one = at_once * part * message_bytes / hop.transfer_s
                    queues[edge, hop.link, upwards] = max(queues.get((edge, hop.link, upwards), 0.0), one)
        for (edge, _, _), one in queues.items():
            rate[edge] = rate.get(edge, 0.0) + one
    return rate


def pipeline_hops(delays: tuple[HopDelay, ...]) -> tuple[PipelineHop, ...]:
    """The hops of a route as its pipeline problem has them."""
    return tuple(
        _pipeline_hop(hop.stage, hop.latency_s, hop.transfer_s, hop.link, hop.num_time_slots) for hop in delays
    )


@lru_cache(maxsize=MOST_SHARED)
def _pipeline_hop(
    stage: int, latency_s: float, transfer_s: float, link: str | None, num_time_slots: int
) -> PipelineHop:
    return PipelineHop(
        from_stage=stage,
        to_stage=stage + 1,
        latency_s=latency_s,
        transfer_s=transfer_s,
        link=link,
        num_sharing_replicas=num_time_slots,
        staggered=num_time_slots > 1,
    )
