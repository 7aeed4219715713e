"""What every directed link carries in an iteration, by cause, and how busy that makes it.

Owns the bytes per edge. Never decides a path or a rate.
"""

from __future__ import annotations

from collections import defaultdict

from models.plan import Configuration
from models.transport import LinkFlow, LinkLoad
from solver.context import Context
from solver.placement.fill import PooledRoute
from solver.placement.units import building_of
from solver.transport.exchange import ExchangeCost
from solver.transport.hops import HopDelay, reserved_bytes_per_s

BYTES_PER_GB = 1e9


def link_loads(
    context: Context,
    configuration: Configuration,
    routes: tuple[PooledRoute, ...],
    hops: list[tuple[HopDelay, ...]],
    costs: tuple[ExchangeCost, ...],
    *,
    message_bytes: float,
    iteration_s: float,
) -> tuple[LinkLoad, ...]:
    """Loads of every edge that carries something, in the order of the topology."""
    pipeline = _pipeline_bytes(configuration, routes, hops, message_bytes)
    rate = reserved_bytes_per_s(routes, hops, message_bytes)
    exchange: defaultdict[int, float] = defaultdict(float)
    fastest: defaultdict[int, float] = defaultdict(float)
    for cost in costs:
        for carried, size in cost.edge_bytes.items():
            exchange[carried] += size
            fastest[carried] = max(fastest[carried], size / cost.shared_s)
    loads = []
    for index, edge in enumerate(context.topology.edges):
        parts = [("pp", pipeline[index]), ("dp", exchange[index])]
        flows = tuple(LinkFlow(cause=cause, bytes_per_iteration=size) for cause, size in parts if size)
        if flows:
            total = pipeline[index] + exchange[index]
            mean = total / (edge.capacity_bytes_per_s * iteration_s)
            peak = (rate.get(index, 0.0) + fastest[index]) / edge.capacity_bytes_per_s
            loads.append(
                LinkLoad(
                    link=edge.id,
                    reverse=edge.reverse,
                    usable_bytes_per_s=edge.capacity_bytes_per_s,
                    flows=flows,
                    mean_utilisation=mean,
                    peak_utilisation=max(peak, mean),
                    num_background_flows=1 if edge.background_bytes_per_s else 0,
                )
            )
    return tuple(loads)


def _pipeline_bytes(
    configuration: Configuration,
    routes: tuple[PooledRoute, ...],
    hops: list[tuple[HopDelay, ...]],
    message_bytes: float,
) -> defaultdict[int, float]:
    """Bytes of stage messages per edge."""
    size: defaultdict[int, float] = defaultdict(float)
    for route, delays in zip(routes, hops, strict=True):
        for hop in delays:
            for edge, _ in hop.streams:
                size[edge] += configuration.num_microbatches * route.num_replicas * message_bytes
    return size


def cross_building_bytes(context: Context, loads: tuple[LinkLoad, ...]) -> float:
    """Bytes that leave a building, each counted on the links between buildings."""
    index, edges = context.topology.edge_index, context.topology.edges
    total = 0.0
    for load in loads:
        edge = edges[index[load.link, load.reverse]]
        ends = {building_of(context.request.cluster, place) for place in (edge.from_place, edge.to_place)}
        if len(ends) == 2:
            total += sum(flow.bytes_per_iteration for flow in load.flows)
    return total


def egress_usd(context: Context, loads: tuple[LinkLoad, ...]) -> float:
    """Price of what the priced links carry in an iteration."""
    price = {link.id: link.usd_per_gb or 0.0 for link in context.request.cluster.links}
    sizes = {load: sum(flow.bytes_per_iteration for flow in load.flows) for load in loads}
    return sum(price.get(load.link, 0.0) * size / BYTES_PER_GB for load, size in sizes.items())
