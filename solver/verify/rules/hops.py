"""Rules on the way between stages: no hop is faster than the path, the network cards or the links that it shares.

Owns latencies and transfer times of the timed problems. What links carry over an iteration is `links.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from solver.network.latency import tier_s
from solver.verify.case import Case, Finding, Rule, exceeds
from solver.verify.network_facts import Boundary
from solver.verify.sendings import Sending, peak_rate, sendings, stated_hops

Way = tuple[str, str]


def hop_latency(case: Case) -> Iterator[Finding]:
    """A hop is not shorter than the least-latency path between its places; inside one, than the nearest tier."""
    for boundary, hop in stated_hops(case):
        there, back = _least_latency_s(case, boundary)
        if exceeds(max(there, back), hop.latency_s):
            yield Finding(
                _name(boundary), f"latency_s {hop.latency_s:.9g}, the path takes {there:.9g} and {back:.9g} back"
            )


def hop_rate(case: Case) -> Iterator[Finding]:
    """A message takes at least its bytes over the network cards of the stage group (or its scale-up domain).

    Between pools it occupies the link for that long; inside a pool the delay as a whole has to cover it.
    """
    for boundary, hop in stated_hops(case):
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
    ways: defaultdict[Way, list[Sending]] = defaultdict(list)
    for one in sendings(case):
        ways[one.from_place, one.to_place].append(one)
    for place in sorted({source for source, _ in ways}):
        crossing = [way for way in ways if case.is_inside(way[0], place) and not case.is_inside(way[1], place)]
        yield from _overload(place, ways, crossing, case.network.place_bytes_per_s[place])
    for cut in case.network.cuts():
        crossing = [way for way in ways if case.building_of(way[0]) in cut and case.building_of(way[1]) not in cut]
        yield from _overload(", ".join(sorted(cut)), ways, crossing, case.network.cut_bytes_per_s(cut))


def _overload(
    where: str, ways: Mapping[Way, list[Sending]], crossing: list[Way], capacity_bytes_per_s: float
) -> Iterator[Finding]:
    rate, at_s = peak_rate([one for way in crossing for one in ways[way]])
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


def _name(boundary: Boundary) -> str:
    return f"route {boundary.route}, hop {boundary.from_stage} to {boundary.from_stage + 1}"


FAMILY: Mapping[str, Rule] = {
    "hop-latency": hop_latency,
    "hop-rate": hop_rate,
    "hop-share": hop_share,
}
