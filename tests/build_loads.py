"""Peaks, headroom and prices of the link loads of a hand-made plan, from its messages and exchanges.

The arithmetic is written out once more for one way between two buildings; nothing of planner or judge is imported.
"""

from __future__ import annotations

from models.plan import RouteTimeline, StageExchange
from models.transport import LinkFlow, LinkLoad
from tests.build_costs import MARGIN, Costs

Timelines = tuple[RouteTimeline, ...]
Exchanges = tuple[StageExchange, ...]


def valued(
    costs: Costs, loads: tuple[LinkLoad, ...], timelines: Timelines, exchanges: Exchanges
) -> tuple[LinkLoad, ...]:
    """The loads with what follows from the rest of the plan; messages and exchanges do not send at one time,
    and messages of one instant fit, whatever all of them would need together."""
    shared = {one.stage: one for one in exchanges if one.shared_s > 0}
    messages = _reserved_bytes_per_s(costs, timelines)
    exchange = max((costs.exchanged_bytes(stage) / one.shared_s for stage, one in shared.items()), default=0.0)
    priced = [load for load in loads if any(flow.cause == "dp" for flow in load.flows)]
    paid_s = _delaying_s(costs, timelines, exchanges) / max(len(priced), 1)
    return tuple(_valued(load, max(messages, exchange), paid_s) for load in loads)


def _valued(load: LinkLoad, used_bytes_per_s: float, paid_s: float) -> LinkLoad:
    peak = max(min(1.0, used_bytes_per_s / load.usable_bytes_per_s), load.mean_utilisation)
    flows = tuple(_priced(flow, paid_s) for flow in load.flows)
    dearest = max((flow.price_s_per_gb for flow in flows), default=0.0)
    return load.model_copy(
        update={
            "flows": flows,
            "peak_utilisation": peak,
            "headroom_bytes_per_s": load.usable_bytes_per_s * max(0.0, 1 - peak),
            "bottleneck": ("dp",) if dearest else (),
            "price_s_per_gb": dearest,
        }
    )


def _priced(flow: LinkFlow, paid_s: float) -> LinkFlow:
    price = paid_s / flow.bytes_per_iteration * 1e9 if flow.cause == "dp" else 0.0
    return flow.model_copy(update={"price_s_per_gb": price})


def _reserved_bytes_per_s(costs: Costs, timelines: Timelines) -> float:
    """What the messages of all replicas between the buildings may send at once, each way."""
    counts = {name: count for name, places, count in costs.routes if places[0] != places[1]}
    return sum(
        counts[one.route] * costs.message_bytes() / one.problem.hops[0].occupancy_s
        for one in timelines
        if one.route in counts and one.problem.hops and one.problem.hops[0].occupancy_s
    )


def _delaying_s(costs: Costs, timelines: Timelines, exchanges: Exchanges) -> float:
    """What the bytes of all exchanges would cost at the price of those that end after the pipeline, on all edges.

    These run one after another and the last of them sets the end, so a second on the wire is a second more.
    """
    ends = [one.end_s for one in timelines]
    last = max(exchanges, key=lambda one: one.end_s, default=None)
    if last is None or last.shared_s == 0 or last.end_s <= max(ends):
        return 0.0
    others = [one for one in exchanges if one.stage != last.stage and one.start_s < last.start_s]
    waited = [one for one in others if one.shared_s and one.start_s + one.shared_s >= last.start_s * (1 - 1e-12)]
    weight = 1.0 if waited or last.shared_s >= last.private_s else 1 / 8
    distance_s = 2 * MARGIN * costs.path("east", "west").latency_s
    wire_s = weight * sum(one.shared_s - distance_s for one in (last, *waited))
    everything = sum(costs.exchanged_bytes(one.stage) for one in exchanges if one.shared_s)
    return wire_s * everything / sum(costs.exchanged_bytes(one.stage) for one in (last, *waited))
