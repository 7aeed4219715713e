"""The most that one connection carries between groups of places, whatever path, transport and placement is chosen.

Owns that upper limit: the fastest card, the planes that one connection may use, and the widest window over the nearest
way. Never chooses a transport: `solver/transport` does, and stays below it.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.context import Context
from solver.network.reach import connection_limit_bytes_per_s
from solver.network.technology import TECHNOLOGIES, load_balancing_options, payload_fraction
from solver.network.topology import Edge, PathFacts


@dataclass(frozen=True)
class ConnectionLimits:
    """Bytes per second of one GPU's connection in an exchange and for a stage message."""

    exchange_bytes_per_s: float
    message_bytes_per_s: float


def connection_limits(context: Context, crossing: tuple[Edge, ...], nearest_s: float) -> ConnectionLimits:
    """Limits of connections that take one of these edges there and one back, each of `nearest_s` or more.

    Proof. A connection has no more than its card; than Q C / L, with Q flows on the L planes of the narrowest edge of
    its path, of which each carries C / L (a split path adds up C and L of its parts, so its quotient is no larger than
    the largest of theirs); and than window / round trip, or Mathis' bound per stream. Paths lose as much as each of
    their edges or more, and one edge of TCP makes all of it TCP, whose window is the smallest.
    """
    planes = max((_plane_limit_bytes_per_s(edge) for edge in context.topology.edges), default=float("inf"))
    window = max((_window_limit_bytes_per_s(edge, nearest_s) for edge in crossing), default=float("inf"))
    card = max(pool.nic_bytes_per_s_per_gpu for pool in context.pools)
    stack, wire = context.stack, min(planes, window)
    return ConnectionLimits(
        exchange_bytes_per_s=min(card * stack.scale_out_efficiency.value, wire),
        message_bytes_per_s=min(card * stack.point_to_point_efficiency.value, wire),
    )


def _plane_limit_bytes_per_s(edge: Edge) -> float:
    """What the planes carry that one connection may use: one under plain ECMP, one per queue pair, or all of them."""
    methods = load_balancing_options(
        edge.technology, edge.load_balancing, out_of_order_receivers=edge.out_of_order_receivers
    )
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
