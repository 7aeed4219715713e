"""Rules on the way between stages: no hop is faster than the path, the network cards or the links that it shares.

What links carry over an iteration is `links.py`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations

from models.plan import OtherSharing, RouteTimeline
from models.schedule import PipelineHop
from solver.cost.fabric import share_place
from solver.network.latency import tier_s
from solver.verify.case import Case, Finding, Rule, differs, exceeds, unequal
from solver.verify.joint_columns import end_with_hops
from solver.verify.message_paths import message_parts
from solver.verify.message_rates import Rates, Way, concatenated, message_rates, peak_rate, stated_hops
from solver.verify.network_facts import Boundary

MAX_BUILDINGS_FOR_ALL_CUTS = 10  # 1022 cuts; with more, the number of them would set the time of the judge
WORTH_A_SHIFT = 2e-3  # of the end of a route: less than this decides nothing between two ways of sharing


def hop_latency(case: Case) -> Iterator[Finding]:
    """A hop is not shorter than the longest path of its messages; inside one place, than the nearest tier."""
    for boundary, hop in stated_hops(case):
        there, back = _least_latency_s(case, boundary)
        if exceeds(max(there, back), hop.latency_s):
            yield Finding(
                _name(boundary), f"latency_s {hop.latency_s:.9g}, the path takes {there:.9g} and {back:.9g} back"
            )


def hop_rate(case: Case) -> Iterator[Finding]:
    """A message takes at least its bytes over the network cards of the stage group (or its scale-up domain).

    Between places it occupies the link for that long; inside a place the delay as a whole has to cover it.
    """
    queue_pairs = defaultdict[tuple[str, str], int](int)
    for one in case.plan.message_transports:
        ends = one.from_pool, one.to_pool
        queue_pairs[ends] = max(queue_pairs[ends], one.connection.num_queue_pairs)
    for boundary, hop in stated_hops(case):
        size, group = case.network.boundary_bytes(boundary), case.gpus_per_group
        rate = group * min(pool.nic_bytes_per_s_per_gpu for pool in (boundary.sender, boundary.receiver))
        stated, least = hop.transfer_s, size / rate
        if share_place(boundary.sender, boundary.receiver):
            if case.network.shares_scale_up(boundary):
                least = size / max(rate, group * boundary.sender.gpu.scale_up_bytes_per_s)
            stated, least = hop.transfer_s + hop.latency_s, least + _least_latency_s(case, boundary)[0]
        else:
            least = max(least, size / (group * _flows_bytes_per_s(case, boundary, queue_pairs)))
        if exceeds(least, stated):
            yield Finding(
                _name(boundary), f"{stated:.9g} s for {size:.6g} B, {group} GPUs need {least:.9g} s to send them"
            )


def _flows_bytes_per_s(case: Case, boundary: Boundary, queue_pairs: Mapping[tuple[str, str], int]) -> float:
    """What the links of a boundary allow the flows of one GPU, as many as its stated queue pairs; the worse way.

    `queue_pairs` is by sending and receiving pool.
    """
    limit = {link.id: link.flow_bytes_per_s or float("inf") for link in case.request.cluster.links}
    edges, slowest = case.network.topology.edges, float("inf")
    for source, target in boundary.ways:
        ways = [path for path, _ in message_parts(case, source.place, target.place)]
        each = max(min((limit.get(edges[edge].id, float("inf")) for edge in way), default=float("inf")) for way in ways)
        slowest = min(slowest, each * queue_pairs.get((source.id, target.id), float("inf")))
    return slowest


def hop_share(case: Case) -> Iterator[Finding]:
    """Messages under way at one time stay within the links out of every place and every set of buildings."""
    ways = message_rates(case)
    for place in sorted({source for source, _ in ways}):
        crossing = [way for way in ways if case.is_inside(way[0], place) and not case.is_inside(way[1], place)]
        yield from _overload(place, ways, crossing, case.network.topology.leaving_bytes_per_s[place])
    for cut in _cuts(case):
        crossing = [way for way in ways if case.building_of(way[0]) in cut and case.building_of(way[1]) not in cut]
        capacity = sum(
            edge.capacity_bytes_per_s
            for edge in case.network.topology.edges
            if case.building_of(edge.from_place) in cut and case.building_of(edge.to_place) not in cut
        )
        yield from _overload(", ".join(sorted(cut)), ways, crossing, capacity)


def _cuts(case: Case) -> Iterator[frozenset[str]]:
    """Sets of used buildings to cut off from the rest, whatever the paths: single ones, or all while these are few."""
    largest = len(case.buildings) - 1 if len(case.buildings) <= MAX_BUILDINGS_FOR_ALL_CUTS else 1
    for size in range(1, largest + 1):
        yield from map(frozenset, combinations(case.buildings, size))


def hop_stagger(case: Case) -> Iterator[Finding]:
    """Staggered replicas follow each other by one transfer, the same on every link, and the last by all slots but one.

    Then each takes a link when the one before it has left, and the whole round is over when the link is free again.
    """
    slots_of: defaultdict[str, set[tuple[float, int]]] = defaultdict(set)
    for boundary, hop in stated_hops(case):
        if hop.staggered:
            slots_of[boundary.route].add((hop.transfer_s, hop.num_sharing_replicas))
            if hop.num_sharing_replicas > case.route_by_id[boundary.route].num_replicas:
                yield Finding(_name(boundary), f"{hop.num_sharing_replicas} time slots, fewer replicas")
    for route, timeline in case.timeline_by_route.items():
        shifts = {transfer_s * (number - 1) for transfer_s, number in slots_of[route]} or {0.0}
        if len(slots_of[route]) > 1 or any(differs(timeline.stagger_s, shift) for shift in shifts):
            stated = ", ".join(
                f"{number} time slots of {transfer_s:.9g} s" for transfer_s, number in sorted(slots_of[route])
            )
            yield Finding(f"route {route}", f"stagger_s {timeline.stagger_s:.9g}, its hops have {stated or 'no slots'}")


def hop_sharing(case: Case) -> Iterator[Finding]:
    """The way of sharing links that a route did not take ends when it says, and would not have been worth taking.

    It has the same delays but for links that staggered replicas take: there, all at once takes no less than one turn
    and no more than the whole round, which carries the same bytes.
    """
    known: dict[tuple[str, tuple[PipelineHop, ...]], float] = {}
    for route, timeline in case.timeline_by_route.items():
        other = timeline.other_sharing
        if other is None or case.schedule_objections[route]:
            continue
        yield from (Finding(f"route {route}, the other sharing", text) for text in _unlike(timeline, other))
        key = (case.alike_route[route], other.hops)
        if key not in known:
            known[key] = end_with_hops(timeline, other.hops)
        end_s = known[key] + other.stagger_s
        yield from unequal(f"route {route}, the other sharing", "end_s", other.end_s, end_s, "the order ends at")
        if timeline.end_s > (1.0 + WORTH_A_SHIFT) * other.end_s:
            yield Finding(f"route {route}", f"ends at {timeline.end_s:.9g}, sharing the other way at {other.end_s:.9g}")


def _unlike(timeline: RouteTimeline, other: OtherSharing) -> Iterator[str]:
    """Where the other way is not the same pipeline, with one of the two in time slots."""
    own = {hop.from_stage: hop for hop in timeline.problem.hops}
    if own.keys() != {hop.from_stage for hop in other.hops} or len(own) != len(other.hops):
        yield "it has other hops"
        return
    if (timeline.stagger_s > 0) == (other.stagger_s > 0):
        yield "one of the two ways has to have time slots, and one not"
    shifts = {hop.transfer_s * (hop.num_sharing_replicas - 1) for hop in other.hops if hop.staggered} or {0.0}
    if any(differs(other.stagger_s, shift) for shift in shifts):
        yield f"stagger_s {other.stagger_s:.9g}, its time slots take {max(shifts):.9g}"
    for hop in other.hops:
        slotted, plain = (hop, own[hop.from_stage]) if hop.staggered else (own[hop.from_stage], hop)
        least_s = slotted.transfer_s if slotted.staggered else slotted.occupancy_s
        within = not exceeds(least_s, plain.occupancy_s) and not exceeds(plain.occupancy_s, slotted.occupancy_s)
        if plain.staggered or not within or differs(slotted.latency_s, plain.latency_s):
            yield f"hop {hop.from_stage} to {hop.to_stage}: {hop.occupancy_s:.9g} s, latency {hop.latency_s:.9g} s"


def _overload(
    where: str, ways: Mapping[Way, Rates], crossing: list[Way], capacity_bytes_per_s: float
) -> Iterator[Finding]:
    rate, at_s = peak_rate(concatenated(ways[way] for way in crossing))
    if exceeds(rate, capacity_bytes_per_s):
        yield Finding(
            f"out of {where}", f"{rate:.6g} B/s at {at_s:.6g} s, the links carry {capacity_bytes_per_s:.6g} B/s"
        )


def _least_latency_s(case: Case, boundary: Boundary) -> tuple[float, float]:
    """One-way delays there and back."""
    if case.network.shares_scale_up(boundary):
        return tier_s("scale_up"), tier_s("scale_up")
    if share_place(boundary.sender, boundary.receiver):
        return tier_s("rack"), tier_s("rack")
    return _longest_s(case, *boundary.places), _longest_s(case, *boundary.places[::-1])


def _longest_s(case: Case, source: str, target: str) -> float:
    """Delay of the longest path that a message takes: it is there when its last part is."""
    facts = case.network.topology.path_facts
    return max(facts(source, target, along=path).latency_s for path, _ in message_parts(case, source, target))


def _name(boundary: Boundary) -> str:
    return f"route {boundary.route}, hop {boundary.from_stage} to {boundary.from_stage + 1}"


FAMILY: Mapping[str, Rule] = {
    "hop-latency": hop_latency,
    "hop-rate": hop_rate,
    "hop-share": hop_share,
    "hop-stagger": hop_stagger,
    "hop-sharing": hop_sharing,
}
