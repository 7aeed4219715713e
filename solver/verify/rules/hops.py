"""Rules on the way between stages: no hop is faster than the path, the network cards or the links that it shares.

Owns latencies and transfer times of the timed problems. What links carry over an iteration is `links.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from models.schedule import PipelineHop
from solver.network.latency import tier_s
from solver.verify.case import Case, Finding, Rule, exceeds
from solver.verify.network_facts import Boundary


class Sending(NamedTuple):
    """Rate that a message puts on the way from one place to another while it is under way."""

    start_s: float
    end_s: float
    bytes_per_s: float
    from_place: str
    to_place: str


def hop_latency(case: Case) -> Iterator[Finding]:
    """A hop is not shorter than the least-latency path between its places; inside one, than the nearest tier."""
    for boundary, hop in _hops(case):
        there, back = _least_latency_s(case, boundary)
        if exceeds(max(there, back), hop.latency_s):
            yield Finding(
                _name(boundary), f"latency_s {hop.latency_s:.9g}, the path takes {there:.9g} and {back:.9g} back"
            )


def hop_rate(case: Case) -> Iterator[Finding]:
    """A message takes at least its bytes over the network cards of the stage group (or its scale-up domain).

    Between pools it occupies the link for that long; inside a pool the delay as a whole has to cover it.
    """
    for boundary, hop in _hops(case):
        size, group = case.network.boundary_bytes(boundary), case.gpus_per_group
        rate = group * min(pool.nic_bytes_per_s_per_gpu for pool in (boundary.sender, boundary.receiver))
        stated, least = hop.transfer_s, size / rate
        if boundary.sender.id == boundary.receiver.id:
            if case.network.shares_scale_up(boundary):
                least = size / max(rate, group * boundary.sender.gpu.scale_up_bytes_per_s)
            stated, least = hop.transfer_s + hop.latency_s, least + _least_latency_s(case, boundary)[0]
        if exceeds(least, stated):
            yield Finding(
                _name(boundary), f"{stated:.9g} s for {size:.6g} B, {group} GPUs need {least:.9g} s to send them"
            )


def hop_share(case: Case) -> Iterator[Finding]:
    """Messages under way at one time stay within the links out of every place and every set of buildings."""
    sendings = list(_sendings(case))
    for place in sorted({one.from_place for one in sendings}):
        leaving = [
            one for one in sendings if case.is_inside(one.from_place, place) > case.is_inside(one.to_place, place)
        ]
        yield from _overload(place, leaving, case.network.place_bytes_per_s[place])
    for cut in case.network.cuts():
        leaving = [
            one
            for one in sendings
            if case.building_of(one.from_place) in cut and case.building_of(one.to_place) not in cut
        ]
        yield from _overload(", ".join(sorted(cut)), leaving, case.network.cut_bytes_per_s(cut))


def _overload(where: str, leaving: list[Sending], capacity_bytes_per_s: float) -> Iterator[Finding]:
    rate, at_s = _peak(leaving)
    if exceeds(rate, capacity_bytes_per_s):
        yield Finding(
            f"out of {where}", f"{rate:.6g} B/s at {at_s:.6g} s, the links carry {capacity_bytes_per_s:.6g} B/s"
        )


def _least_latency_s(case: Case, boundary: Boundary) -> tuple[float, float]:
    """One-way delays there and back."""
    if case.network.shares_scale_up(boundary):
        return tier_s("scale_up"), tier_s("scale_up")
    if boundary.sender.place == boundary.receiver.place:
        return tier_s("rack"), tier_s("rack")
    facts = case.network.topology.path_facts(boundary.sender.place, boundary.receiver.place)
    return facts.latency_s, facts.round_trip_s - facts.latency_s


def _hops(case: Case) -> Iterator[tuple[Boundary, PipelineHop]]:
    """Every boundary with its stated hop; one without delay where none is stated."""
    stated = {(route, hop.from_stage): hop for route, one in case.timeline_by_route.items() for hop in one.problem.hops}
    for boundary in case.network.boundaries:
        if boundary.route in case.timeline_by_route:
            nothing = PipelineHop(from_stage=boundary.from_stage, to_stage=boundary.from_stage + 1)
            yield boundary, stated.get((boundary.route, boundary.from_stage), nothing)


def _sendings(case: Case) -> Iterator[Sending]:
    """Every message between two places, with the rate of all replicas that send it at once."""
    for boundary, hop in _hops(case):
        ends = (boundary.sender.place, boundary.receiver.place)
        if ends[0] == ends[1] or hop.transfer_s <= 0:
            continue
        at_once = -(-case.route_by_id[boundary.route].num_replicas // hop.num_sharing_replicas)
        rate = at_once * case.network.boundary_bytes(boundary) / hop.transfer_s
        times = case.message_times[boundary.route]
        for kind, stage, way in (("F", boundary.from_stage, ends), ("B", boundary.from_stage + 1, ends[::-1])):
            for start, end in times[kind, stage]:
                yield Sending(start, end, rate, *way)


def _peak(sendings: list[Sending]) -> tuple[float, float]:
    """Highest summed rate and when; what ends at an instant makes room for what starts at it."""
    changes: defaultdict[tuple[float, bool], float] = defaultdict(float)
    slack = 1e-9 * max((one.end_s for one in sendings), default=0.0)
    for one in sendings:
        changes[one.start_s, True] += one.bytes_per_s
        changes[one.end_s - slack, False] -= one.bytes_per_s
    now, peak, at_s = 0.0, 0.0, 0.0
    for (time, _), change in sorted(changes.items()):
        now += change
        if now > peak:
            peak, at_s = now, time
    return peak, at_s


def _name(boundary: Boundary) -> str:
    return f"route {boundary.route}, hop {boundary.from_stage} to {boundary.from_stage + 1}"


FAMILY: Mapping[str, Rule] = {
    "hop-latency": hop_latency,
    "hop-rate": hop_rate,
    "hop-share": hop_share,
}
