"""What every directed link carries in an iteration, by cause, and how busy that makes it."""

import numpy as np

from models.transport import Dimension, LinkFlow, LinkLoad
from solver.arrays import FloatArray
from solver.context import Context
from solver.network.topology import leaves_building
from solver.transport.exchange_times import most_at_once
from solver.transport.hops import reserved_bytes_per_s
from solver.transport.prices import Prices, Traffic, message_load

BYTES_PER_GB = 1e9  # the unit


def link_loads(context: Context, traffic: Traffic, *, iteration_s: float, prices: Prices) -> tuple[LinkLoad, ...]:
    """Loads of every edge that carries something, in the order of the topology; `prices` in seconds per byte."""
    pipeline, exchange = message_load(context, traffic).tolist(), _exchange_load(context, traffic).tolist()
    rate = reserved_bytes_per_s(traffic.routes, list(traffic.hops), traffic.message_bytes)
    fastest = most_at_once(traffic.costs, traffic.exchanges, len(context.topology.edges))
    setting_pace = _bottlenecks(traffic)
    loads = []
    for index, edge in enumerate(context.topology.edges):
        parts: list[tuple[Dimension, float]] = [("pp", pipeline[index]), ("dp", exchange[index])]
        flows = tuple(
            LinkFlow(
                cause=cause, bytes_per_iteration=size, price_s_per_gb=prices.get((index, cause), 0.0) * BYTES_PER_GB
            )
            for cause, size in parts
            if size
        )
        if flows:
            mean = (pipeline[index] + exchange[index]) / (edge.capacity_bytes_per_s * iteration_s)
            peak = max((rate.get(index, 0.0) + float(fastest[index])) / edge.capacity_bytes_per_s, mean)
            loads.append(
                LinkLoad(
                    link=edge.id,
                    reverse=edge.reverse,
                    usable_bytes_per_s=edge.capacity_bytes_per_s,
                    flows=flows,
                    mean_utilisation=mean,
                    peak_utilisation=peak,
                    num_background_flows=1 if edge.background_bytes_per_s else 0,
                    headroom_bytes_per_s=edge.capacity_bytes_per_s * max(1.0 - peak, 0.0),
                    bottleneck=tuple(cause for cause, _ in parts if index in setting_pace[cause]),
                    price_s_per_gb=max(flow.price_s_per_gb for flow in flows),
                )
            )
    return tuple(loads)


def _bottlenecks(traffic: Traffic) -> dict[Dimension, set[int]]:
    """Edges that set the rate of some stage message or of some exchange."""
    return {
        "pp": {edge for delays in traffic.hops for hop in delays for edge in hop.bottlenecks},
        "dp": {edge for cost in traffic.costs if cost.site_ring for edge in cost.site_ring.bottlenecks},
    }


def bytes_by_edge(context: Context, traffic: Traffic) -> FloatArray:
    """Bytes of an iteration on every edge, of all causes together."""
    return message_load(context, traffic) + _exchange_load(context, traffic)


def _exchange_load(context: Context, traffic: Traffic) -> FloatArray:
    load_e = np.zeros(len(context.topology.edges))
    for cost in traffic.costs:
        for edge, size in cost.edge_bytes.items():
            load_e[edge] += size
    return load_e


def cross_building_bytes(context: Context, bytes_e: FloatArray) -> float:
    """Bytes between buildings: those on links between them, and those that leave a building upwards."""
    topology = context.topology
    used = np.flatnonzero(bytes_e).tolist()
    return float(sum(bytes_e[edge] for edge in used if leaves_building(topology, topology.edges[edge])))


def egress_usd(context: Context, bytes_e: FloatArray) -> float:
    """Price of what the priced links carry in an iteration."""
    price = {link.id: link.usd_per_gb or 0.0 for link in context.request.cluster.links}
    used = ((context.topology.edges[index].id, float(bytes_e[index])) for index in np.flatnonzero(bytes_e))
    return sum(price.get(link, 0.0) * size / BYTES_PER_GB for link, size in used)
