"""The most that one connection carries between groups of places, and the least that a message takes between them,
whatever path, transport and placement is chosen.

The limits are the fastest card, the planes that one connection may use, the widest window over the nearest way, and the
wait for what is lost. Whatever transport `solver/transport` chooses remains within them. Proofs: docs/bounds.md,
"Connections".
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from models.cluster import LoadBalancing
from solver.context import Context
from solver.cost.columns import FloatArray, IntArray
from solver.network.balancing import balanced_efficiency, expected_max_load, max_load_at_most
from solver.network.connection import ERASURE_DATA, ERASURE_PARITY
from solver.network.reach import connection_limit_bytes_per_s
from solver.network.technology import TECHNOLOGIES, load_balancing_options, payload_fraction
from solver.network.topology import Edge, PathFacts

Count = TypeVar("Count", int, IntArray)
SERIES_ERROR = 1.002  # loads of very many connections are a series, exact to a thousandth: see `network/balancing.py`
NUM_COUNTS = 3  # of losses of one queue pair that are looked at; more are rare, and to leave them out is less
SUM_ERROR = 1.0 + 1e-14  # of a few terms
MOST_PARTS = 16  # of a message on as many edges that are looked at one by one
GRID = 1.0 - 1.0 / 512.0  # the expected wait under selective repeat is an integral over so many points a round trip


@dataclass(frozen=True)
class MessageLoss:
    """What the edges between groups lose at least of stage messages, and what that delays.

    No message is lost where the least of the edges loses none, or where one of TCP may be on the way. `num_edges` lead
    out of all groups but the one with the most; every hop between two groups takes one of them there or back.
    """

    probability: float
    round_trip_s: float
    mtu_bytes: int
    selective: bool
    num_edges: int
    max_queue_pairs: int

    def each_s(
        self, transfer_s: FloatArray, message_bytes: FloatArray, num_gpus: IntArray, num_replicas: IntArray
    ) -> FloatArray:
        """Least wait of each message of some replica, whose bytes take `transfer_s` or more on the cards of so many
        GPUs, where so many replicas cross.

        Of N replicas on E edges some replica takes only edges that N / E or more share.
        """
        if not self.probability:
            return np.zeros(len(num_replicas))
        return self.wait_s(transfer_s, message_bytes, num_gpus, np.maximum(num_replicas / self.num_edges, 1.0))

    def wait_s(
        self, transfer_s: FloatArray, message_bytes: FloatArray, num_gpus: IntArray, num_sharing: FloatArray
    ) -> FloatArray:
        """Least wait of a message where so many replicas share an edge.

        With R the round trip, x the transfer and P the probability that some packet of all replicas is lost: under
        go-back-N R times the expected most losses of any queue pair; under selective repeat P (R - x), or the parity of
        a code where that is less.
        """
        losses = num_sharing * message_bytes / self.mtu_bytes * self.probability
        if not self.selective:
            return self.round_trip_s * _most_losses(losses, num_sharing * num_gpus * self.max_queue_pairs)
        part = 1.0 + self.mtu_bytes / message_bytes  # the last packet may be a part of one
        again: FloatArray = GRID * -np.expm1(-losses) / part * np.maximum(self.round_trip_s - part * transfer_s, 0.0)
        return np.minimum(again, ERASURE_PARITY / ERASURE_DATA * transfer_s)


def _most_losses(losses: FloatArray, num_parallel: FloatArray) -> FloatArray:
    """No less than this is expected of the largest of n Poisson counts, of `losses` together, or of fewer counts.

    The first terms of E[max] = sum over k of 1 - F_k(losses / n)^n.

    >>> _most_losses(np.array([0.01, 2.0]), np.array([100.0, 100.0])).round(4)
    array([0.01  , 0.8843])
    """
    mean = losses / num_parallel
    term = below = np.exp(-mean)
    found: FloatArray = -np.expm1(-losses)
    for k in range(1, NUM_COUNTS):
        term = term * mean / k
        below = below + term
        found = found - np.expm1(num_parallel * np.log(np.minimum(below * SUM_ERROR, 1.0)))
    return found


@dataclass(frozen=True)
class SharedPlanes:
    """So many planes of so much each, on which every connection between groups is hashed to one: none balances load.

    `planes_of_edge` are those of every edge, if they are as many, and `are_equal` says that none has less.
    Proof: docs/bounds.md, "Connections".
    """

    plane_bytes_per_s: float
    num_planes: int
    planes_of_edge: int | None
    are_equal: bool = False

    def most_bytes_per_s(self, num_connections: IntArray) -> FloatArray:
        """What no more than so many connections carry together."""
        return self.plane_bytes_per_s * self.num_planes * _hashed_share(num_connections, self.num_planes)

    def most_share(self, num_connections: IntArray) -> FloatArray:
        """The part of an edge that no more than so many connections fill."""
        return _hashed_share(num_connections, self.planes_of_edge or 1)

    def queue_bytes_per_s(self, num_hops: int, num_gpus: int) -> float:
        """What each of `num_gpus` connections carries at most on some hop of so many, all with as many connections.

        A hop has a queue each way, on any number of edges.
        """
        if self.planes_of_edge is None:
            return self.plane_bytes_per_s
        num_edges = self.num_planes // self.planes_of_edge
        load = _load_of_some_hop(num_hops, num_gpus, num_edges, self.planes_of_edge, are_equal=self.are_equal)
        return self.plane_bytes_per_s / load

    def least_queue_bytes_per_s(self, num_hops: IntArray, num_gpus: IntArray) -> FloatArray:
        """What `queue_bytes_per_s` is not below, for many at once."""
        if self.planes_of_edge is None:
            return np.full(len(num_hops), self.plane_bytes_per_s)
        edges = self.num_planes // self.planes_of_edge, self.planes_of_edge
        ways = _ways_of_hops(num_hops, num_gpus, *edges, are_equal=self.are_equal)
        loads = np.minimum.reduce([more * max_load_at_most(flows, np.array(planes)) for flows, planes, more in ways])
        slowest: FloatArray = self.plane_bytes_per_s / np.maximum(loads, 1.0)
        return slowest


@lru_cache(maxsize=16384)
def _load_of_some_hop(num_hops: int, num_gpus: int, num_edges: int, num_planes: int, *, are_equal: bool) -> float:
    """Some hop of so many has no less on the fullest plane of one of its ways, whatever edges each of them takes."""
    ways = _ways_of_hops(num_hops, num_gpus, num_edges, num_planes, are_equal=are_equal)
    return max(min(float(more) * expected_max_load(flows, planes) for flows, planes, more in ways) / SERIES_ERROR, 1.0)


def _ways_of_hops(
    num_hops: Count, num_gpus: Count, num_edges: int, num_planes: int, *, are_equal: bool
) -> list[tuple[Count, int, FloatArray | float]]:
    """The flows and the planes of a message on so many of the edges, as evenly as all hops can take them: the whole
    numbers of messages around the mean, and by how much more than the lower one that is. Undivided messages on equal
    edges meet the upper one at least.
    """
    ways = list[tuple[Count, int, FloatArray | float]]()
    for part in range(1, min(num_edges, MOST_PARTS) + 1):
        messages = 2 * part * num_hops
        fewer = np.maximum(messages // num_edges, 1)
        ways.append((num_gpus * -(-messages // num_edges), part * num_planes, 1.0))
        if part > 1 or not are_equal:
            ways.append((num_gpus * fewer, part * num_planes, np.maximum(messages / (fewer * num_edges), 1.0)))
    if num_edges > MOST_PARTS:
        ways.append((2 * num_gpus * num_hops // num_edges, num_planes, 1.0))
    return ways


def _hashed_share(num_connections: IntArray, num_planes: int) -> FloatArray:
    distinct, row_of = np.unique(num_connections, return_inverse=True)
    shares = [
        balanced_efficiency("ecmp", num_connections=int(one), queue_pairs=1, num_planes=num_planes) for one in distinct
    ]
    return np.minimum(np.array(shares, dtype=np.float64)[row_of.ravel()] * SERIES_ERROR, 1.0)


@dataclass(frozen=True)
class ConnectionLimits:
    """Bytes per second of one GPU's connection in an exchange and for a stage message, and what of the latter is lost.

    `step_s` is what software takes on every message; `shared` are planes that all connections are hashed to, if so.
    """

    exchange_bytes_per_s: float
    message_bytes_per_s: float
    step_s: float
    loss: MessageLoss
    shared: SharedPlanes | None = None

    def most_bytes_per_s(self, num_connections: IntArray) -> FloatArray:
        """What no more than so many connections carry together in an exchange."""
        alone = num_connections * self.exchange_bytes_per_s
        return np.asarray(
            alone if self.shared is None else np.minimum(alone, self.shared.most_bytes_per_s(num_connections))
        )

    def most_share(self, num_connections: IntArray) -> FloatArray:
        """The part of an edge between groups that an exchange of no more than so many connections fills."""
        return np.ones(len(num_connections)) if self.shared is None else self.shared.most_share(num_connections)


def connection_limits(
    context: Context, crossing: tuple[Edge, ...], nearest_s: float, num_edges: int
) -> ConnectionLimits:
    """Limits of connections that take one of these edges there and one back, each of `nearest_s` or more.

    `num_edges` are those out of all groups but one.

    A connection has no more than its card, than Q flows on planes of C / L each, and than a window per round trip.
    """
    planes = max((_plane_limit_bytes_per_s(edge) for edge in context.topology.edges), default=float("inf"))
    window = max((_window_limit_bytes_per_s(edge, nearest_s) for edge in crossing), default=float("inf"))
    card = max(pool.nic_bytes_per_s_per_gpu for pool in context.pools)
    stack, wire = context.stack, min(planes, window)
    return ConnectionLimits(
        exchange_bytes_per_s=min(card * stack.scale_out_efficiency.value, wire),
        message_bytes_per_s=min(card * stack.point_to_point_efficiency.value, wire),
        step_s=stack.collective_latency_s.value + min((TECHNOLOGIES[e.technology].step_s for e in crossing), default=0),
        loss=_message_loss(context, crossing, nearest_s, num_edges),
        shared=_shared_planes(context, crossing),
    )


def _shared_planes(context: Context, crossing: tuple[Edge, ...]) -> SharedPlanes | None:
    """Those of edges no wider than the widest between the groups, where all between these offer plain hashing alone."""
    if not crossing or any(set(_methods(edge)) != {"ecmp"} for edge in crossing):
        return None
    widest = max(edge.capacity_bytes_per_s for edge in crossing)
    narrow = [edge for edge in context.topology.edges if edge.capacity_bytes_per_s <= widest]
    rates = {edge.capacity_bytes_per_s / edge.planes for edge in narrow}
    planes, num_planes = {edge.planes for edge in narrow}, sum(edge.planes for edge in narrow)
    return SharedPlanes(max(rates), num_planes, planes.pop() if len(planes) == 1 else None, are_equal=len(rates) == 1)


def _methods(edge: Edge) -> tuple[LoadBalancing, ...]:
    return load_balancing_options(
        edge.technology, edge.load_balancing, out_of_order_receivers=edge.out_of_order_receivers
    )


def _message_loss(context: Context, crossing: tuple[Edge, ...], nearest_s: float, num_edges: int) -> MessageLoss:
    pairs = max((TECHNOLOGIES[edge.technology].max_queue_pairs for edge in context.topology.edges), default=1)
    streams = any(edge.technology == "tcp" for edge in context.topology.edges)
    probability = 0.0 if streams else min((edge.loss_probability for edge in crossing), default=0.0)
    return MessageLoss(
        probability=probability,
        round_trip_s=2.0 * nearest_s,
        mtu_bytes=max((edge.mtu_bytes for edge in crossing), default=1),
        selective=any(edge.out_of_order_receivers for edge in crossing),
        num_edges=num_edges,
        max_queue_pairs=pairs,
    )


def _plane_limit_bytes_per_s(edge: Edge) -> float:
    """What the planes carry that one connection may use: one under plain ECMP, one per queue pair, or all of them."""
    methods = _methods(edge)
    flows = 1 if set(methods) == {"ecmp"} else TECHNOLOGIES[edge.technology].max_queue_pairs
    used = edge.planes if "spray" in methods else min(flows, edge.planes)
    return edge.capacity_bytes_per_s * used / edge.planes


def _window_limit_bytes_per_s(edge: Edge, nearest_s: float) -> float:
    """The window's limit as if the edge were all of the path; what headers take is left out."""
    alone = PathFacts(
        edges=(),
        latency_s=nearest_s,
        round_trip_s=2.0 * nearest_s,
        capacity_bytes_per_s=edge.capacity_bytes_per_s,
        loss_probability=edge.loss_probability,
        planes=edge.planes,
        technology=edge.technology,
        load_balancing=edge.load_balancing,
        out_of_order_receivers=edge.out_of_order_receivers,
        mtu_bytes=edge.mtu_bytes,
        flow_bytes_per_s=edge.flow_bytes_per_s,
    )
    return connection_limit_bytes_per_s(alone) / payload_fraction(edge.technology, edge.mtu_bytes)
