"""Rules on what links cost: headroom, and prices as a dual certificate of the plan's own traffic.

Judges `headroom_bytes_per_s` and every `price_s_per_gb`. A price is believed only if it is a dual:
a phase that delays the iteration is worth one second per second, all of it on the edges that its traffic fills first;
one that is hidden is worth nothing. Rings of exchanges that span different places may delay together, and which byte is
whose cannot be read from the loads then; such prices are held to zero, sign and bottleneck only.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from models.plan import StageExchange
from models.transport import Dimension, LinkLoad
from solver.verify.case import Case, Finding, Rule, differs, exceeds, load_name, unequal
from solver.verify.exchanges_at_once import SAME_INSTANT

BYTES_PER_GB = 1e9  # the unit
SAME_TIME = 1e-4  # relative: rounding of prices and loads


class OnEdge(NamedTuple):
    """One cause on one edge: its bytes and its price in seconds per byte."""

    load: LinkLoad
    size_bytes: float
    price_s_per_byte: float


def link_headroom(case: Case) -> Iterator[Finding]:
    """Headroom is what the peak leaves of the usable capacity."""
    for load in case.plan.link_loads:
        left = load.usable_bytes_per_s * max(0.0, 1.0 - load.peak_utilisation)
        if differs(load.headroom_bytes_per_s, left) and abs(load.headroom_bytes_per_s - left) > 1.0:
            yield Finding(
                load_name(load), f"headroom_bytes_per_s {load.headroom_bytes_per_s:.9g}, the peak leaves {left:.9g}"
            )


def link_price(case: Case) -> Iterator[Finding]:
    """The price of a direction is that of its dearest flow; where there is one, the cause sets its pace there."""
    for load in case.plan.link_loads:
        dearest = max((flow.price_s_per_gb for flow in load.flows), default=0.0)
        yield from unequal(load_name(load), "price_s_per_gb", load.price_s_per_gb, dearest, "its flows cost")


def message_price(case: Case) -> Iterator[Finding]:
    """Prices of messages sum, over rates, to one second per second where messages outlast what hides them, else to 0.

    Only edges that messages fill first have one: these are dual feasibility and complementary slackness.
    """
    carried = _carried(case, "pp")
    if not carried:
        return
    left = 1.0 - case.plan.transport_policy.exchange_share  # of a link that carries exchanges, too
    shared = [any(flow.cause == "dp" for flow in one.load.flows) for one in carried]
    free = [one.load.usable_bytes_per_s * (left if dp else 1.0) for one, dp in zip(carried, shared, strict=True)]
    fill_s = [one.size_bytes / rate for one, rate in zip(carried, free, strict=True)]
    time_s = max(fill_s)
    hidden_s = _pipeline_end_s(case) - case.plan.time.pipeline_s
    worth = sum(one.price_s_per_byte * rate for one, rate in zip(carried, free, strict=True))
    if abs(time_s - hidden_s) > SAME_TIME * time_s and differs(worth, float(time_s > hidden_s), tolerance=SAME_TIME):
        yield Finding(
            "prices of pp",
            f"are worth {worth:.6g} s per s; messages take {time_s:.6g} s, work hides {hidden_s:.6g} s of them",
        )
    for one, edge_s in zip(carried, fill_s, strict=True):
        if one.price_s_per_byte > 0 and edge_s < time_s * (1.0 - SAME_TIME):
            yield Finding(load_name(one.load), f"has a price for pp, is full for {edge_s:.6g} s of {time_s:.6g} s")


def exchange_price(case: Case) -> Iterator[Finding]:
    """Prices of the exchange pay, byte by byte, for the time on links of those exchanges that delay the iteration.

    Exchanges whose pace the GPUs' own cards set have none.
    """
    carried, weight_of = _carried(case, "dp"), _delaying(case)
    paid = [one for one in carried if one.price_s_per_byte > 0]
    for one in paid:
        if not weight_of:
            yield Finding(load_name(one.load), "has a price for dp, no exchange between places delays the iteration")
        elif "dp" not in one.load.bottleneck:
            yield Finding(load_name(one.load), "has a price for dp, which does not name it as its bottleneck")
    spans = {case.exchanging.places(stage) for stage in _shared(case)}
    if not weight_of or not _is_one_ring(case) or len(next(iter(spans))) < 2:
        return
    weight_of = {stage: weight for stage, weight in weight_of.items() if case.exchanging.on_ring(stage).bottlenecks}
    own = _size(case, weight_of) / max(_size(case, _shared(case)), 1.0)
    worth_s = sum(one.price_s_per_byte * own * one.size_bytes for one in carried)
    stated = _by_stage(case)
    wire_s = sum(weight * stated[stage].shared_s for stage, weight in weight_of.items())
    delay_s = sum(weight * case.exchanging.on_ring(stage).delay_s for stage, weight in weight_of.items())
    named = any("dp" in one.load.bottleneck for one in carried)
    if exceeds(worth_s, wire_s) or (named and exceeds(wire_s - delay_s, worth_s)):
        yield Finding(
            "prices of dp", f"pay {worth_s:.9g} s, delaying exchanges are {wire_s - delay_s:.9g} to {wire_s:.9g} s"
        )


def _carried(case: Case, cause: Dimension) -> list[OnEdge]:
    """Edges that carry a cause."""
    return [
        OnEdge(load, flow.bytes_per_iteration, flow.price_s_per_gb / BYTES_PER_GB)
        for load, _ in case.loads
        for flow in load.flows
        if flow.cause == cause
    ]


def _pipeline_end_s(case: Case) -> float:
    return max((one.end_s for one in case.plan.timelines), default=0.0)


def _is_one_ring(case: Case) -> bool:
    """Whether all exchanges visit the same places in the same way."""
    return len({case.exchanging.places(stage) for stage in _shared(case)}) == 1 and len(case.plan.exchange_rings) < 2


def _shared(case: Case) -> list[int]:
    """Stages whose exchange takes links between places."""
    return [stage for stage, one in _by_stage(case).items() if one.shared_s > 0]


def _by_stage(case: Case) -> Mapping[int, StageExchange]:
    """Stated exchanges of stages that exist; of two of a stage the last."""
    return {one.stage: one for one in case.stage_exchanges}


def _size(case: Case, stages: Iterator[int] | list[int] | Mapping[int, float]) -> float:
    return sum(case.network.exchange_bytes(stage, len(case.exchanging.places(stage))) for stage in stages)


def _delaying(case: Case) -> dict[int, float]:
    """Stages whose exchange on links delays the iteration, with the seconds that it grows per second of theirs.

    That is the last to end, if it ends after the pipeline, and every one with whose end on the links the next began.
    """
    last = max(case.plan.exchanges, key=lambda one: one.end_s, default=None)
    if last is None or last.shared_s == 0 or last.end_s <= max(_pipeline_end_s(case), last.last_weight_grad_end_s):
        return {}
    chunk = 1.0 / case.plan.transport_policy.num_exchange_chunks
    weight_of = {last.stage: 1.0 if last.shared_s >= last.private_s else chunk}
    waits, rank_of = last, case.configuration.rank_of_stage
    stated = _by_stage(case)
    for one in sorted((stated[stage] for stage in _shared(case)), key=lambda one: (-one.start_s, one.stage)):
        if one.start_s >= waits.start_s:
            continue
        if rank_of(one.stage) == rank_of(waits.stage) and one.private_s > one.shared_s:
            if not differs(one.start_s + one.private_s, waits.start_s, tolerance=SAME_INSTANT):
                waits = one  # on the cards of the rank: its bytes between places are hidden
        elif not differs(one.start_s + one.shared_s, waits.start_s, tolerance=SAME_INSTANT):
            weight_of[one.stage], waits = 1.0, one
    return weight_of


FAMILY: Mapping[str, Rule] = {
    "link-headroom": link_headroom,
    "link-price": link_price,
    "message-price": message_price,
}

# Needs the rings that the plan states.
OF_RINGS: Mapping[str, Rule] = {"exchange-price": exchange_price}
