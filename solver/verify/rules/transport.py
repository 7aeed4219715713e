"""Rules on transport choices: every communicator has one per tier, and each is possible on the links that it takes.

Owns `Plan.transport`. What the links carry is `links.py`, what messages cost is `hops.py` and `exchange.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from models.cluster import Tier
from models.transport import Dimension, PlacePair, TransportChoice
from solver.network.technology import TECHNOLOGIES, load_balancing_options, reliability_options
from solver.network.topology import PathFacts
from solver.network.transfer import windowed_rate_bytes_per_s
from solver.verify.case import Case, Finding, Rule, differs, exceeds
from solver.verify.message_paths import message_parts
from solver.verify.network_facts import BETWEEN_BUILDINGS

Ends = tuple[str, str]  # places from and to

COLLECTIVES: Mapping[Dimension, tuple[str, ...]] = {
    "tp": ("all_reduce", "all_gather", "reduce_scatter"),
    "cp": ("all_gather", "reduce_scatter", "send_recv", "all_reduce", "all_to_all"),
    "ep": ("all_to_all",),
    "pp": ("send_recv",),
    "dp": ("all_reduce", "all_gather", "reduce_scatter"),
}


def transport_complete(case: Case) -> Iterator[Finding]:
    """Every dimension that communicates has a choice, on every tier between buildings that it has to cross.

    Stage messages have one for every two places between which they travel, exchanges one for every place that sends.
    """
    chosen = {(choice.dimension, choice.tier) for choice in case.plan.transport}
    degrees = case.configuration.degrees
    for dimension, degree in (("tp", degrees.tp), ("cp", degrees.cp), ("ep", degrees.ep), ("pp", degrees.pp)):
        if degree > 1 and not any(one == dimension for one, _ in chosen):
            yield Finding(dimension, f"degree {degree} communicates, no choice is stated")
    if degrees.dp * degrees.cp > 1 and not any(one == "dp" for one, _ in chosen):
        yield Finding("dp", f"{degrees.dp} replicas exchange gradients, no choice is stated")
    for dimension, tier, pair in sorted(case.network.crossings):
        if (dimension, tier) not in chosen:
            yield Finding(f"{dimension} on {tier}", f"{pair[0]} and {pair[1]} exchange {dimension} traffic, no choice")
    yield from _unserved(case)


def _unserved(case: Case) -> Iterator[Finding]:
    """Places between which messages travel, and places that exchange with others, without a choice that names them."""
    served: defaultdict[str, set[Ends]] = defaultdict(set)
    for choice in case.plan.transport:
        served[choice.dimension].update(map(_ends, choice.place_pairs))
    ways = {(one.sender.place, one.receiver.place) for one in case.network.boundaries}
    for source, target in sorted(ways | {way[::-1] for way in ways}):
        if source != target and (source, target) not in served["pp"]:
            yield Finding(f"pp from {source} to {target}", "messages travel this way, no choice names it")
    senders = {source for source, _ in served["dp"]}
    for rank in range(case.configuration.degrees.pp):
        places = case.network.places_of_rank(rank)
        for place in sorted(places - senders if len(places) > 1 else ()):
            yield Finding(f"dp from {place}", f"rank {rank} is exchanged with other places, no choice names this one")


def transport_meaningful(case: Case) -> Iterator[Finding]:
    """A choice is for a dimension that communicates, with a collective of that dimension, stated once for its places.

    The places that it names meet on its tier.
    """
    degrees = case.configuration.degrees
    sizes = {"tp": degrees.tp, "cp": degrees.cp, "ep": degrees.ep, "pp": degrees.pp, "dp": degrees.dp * degrees.cp}
    seen: set[tuple[str, ...]] = set()
    for choice in case.plan.transport:
        if choice.collective not in COLLECTIVES[choice.dimension]:
            yield Finding(_name(choice), f"{choice.dimension} does no {choice.collective}")
        if choice.num_ranks > max(sizes[choice.dimension], 1) or sizes[choice.dimension] == 1:
            yield Finding(_name(choice), f"{choice.num_ranks} members, the degree is {sizes[choice.dimension]}")
        for ends in map(_ends, choice.place_pairs):
            if any(place not in case.place_by_id for place in ends):
                yield Finding(_name(choice), f"no places {ends[0]} and {ends[1]}")
            elif case.network.topology.tier(*ends) != choice.tier or ends[0] == ends[1]:
                yield Finding(_name(choice), f"{ends[0]} and {ends[1]} do not meet on {choice.tier}")
        keys = {(choice.dimension, choice.collective, choice.tier, *ends) for ends in _pairs(choice)}
        if keys & seen:
            yield Finding(_name(choice), f"{choice.collective} is chosen twice")
        seen |= keys


def transport_supported(case: Case) -> Iterator[Finding]:
    """Load balancing and loss recovery are possible end to end on every path that the choice serves."""
    for choice in case.plan.transport:
        for ends, path in _paths_of(case, choice):
            balancing = load_balancing_options(
                path.technology, path.load_balancing, out_of_order_receivers=path.out_of_order_receivers
            )
            if choice.load_balancing not in balancing:
                yield Finding(
                    _name(choice),
                    f"{choice.load_balancing} from {ends[0]} to {ends[1]}, where {', '.join(balancing)} is on offer",
                )
            recovery = reliability_options(
                path.technology, choice.load_balancing, out_of_order_receivers=path.out_of_order_receivers
            )
            if choice.reliability not in recovery:
                yield Finding(
                    _name(choice),
                    f"{choice.reliability} with {choice.load_balancing} from {ends[0]} to {ends[1]}, possible are"
                    f" {', '.join(recovery)}",
                )


def transport_limits(case: Case) -> Iterator[Finding]:
    """Queue pairs and chunks in flight stay within what the technology of the paths takes."""
    for choice in case.plan.transport:
        for ends, path in _paths_of(case, choice):
            limits = TECHNOLOGIES[path.technology]
            if choice.num_queue_pairs > limits.max_queue_pairs or choice.num_outstanding > limits.max_outstanding:
                yield Finding(
                    _name(choice),
                    f"{choice.num_queue_pairs} queue pairs with {choice.num_outstanding} chunks each from {ends[0]} to"
                    f" {ends[1]}; {path.technology} takes {limits.max_queue_pairs} and {limits.max_outstanding}",
                )


def transport_rate(case: Case) -> Iterator[Finding]:
    """The rate of a member is within its network cards, and between buildings within its window over the round trip."""
    fastest = max((pool.nic_bytes_per_s_per_gpu for *_, pool in case.groups), default=0.0)
    round_trips = _least_round_trips_s(case)
    for choice in case.plan.transport:
        if choice.tier not in BETWEEN_BUILDINGS:
            continue
        in_flight = choice.num_queue_pairs * choice.num_outstanding * choice.chunk_bytes
        round_trip = round_trips.get((choice.dimension, choice.tier), 0.0)
        most = windowed_rate_bytes_per_s(fastest, in_flight, round_trip)
        if exceeds(choice.effective_bytes_per_s, most):
            yield Finding(
                _name(choice),
                f"effective {choice.effective_bytes_per_s:.6g} B/s; a card sends {fastest:.6g} B/s, and"
                f" {in_flight:.6g} B in flight over {round_trip:.6g} s allow {most:.6g} B/s",
            )


def transport_message(case: Case) -> Iterator[Finding]:
    """What one member sends to the next stage is its share of the hidden states."""
    sizes = {case.network.boundary_bytes(boundary) / case.gpus_per_group for boundary in case.network.boundaries}
    for choice in case.plan.transport:
        if choice.dimension == "pp" and sizes and not any(not differs(choice.message_bytes, size) for size in sizes):
            yield Finding(_name(choice), f"message_bytes {choice.message_bytes:.9g}, a member sends {min(sizes):.9g}")


def transport_time(case: Case) -> Iterator[Finding]:
    """A message between stages takes its bytes at the stated rate and the distance at least."""
    round_trips = _least_round_trips_s(case)
    for choice in case.plan.transport:
        if choice.collective != "send_recv" or choice.tier not in BETWEEN_BUILDINGS:
            continue
        delay = round_trips.get((choice.dimension, choice.tier), 0.0) / 2
        wire = choice.message_bytes / choice.effective_bytes_per_s if choice.effective_bytes_per_s else float("inf")
        if exceeds(wire + delay, choice.expected_s):
            yield Finding(
                _name(choice), f"expected_s {choice.expected_s:.9g}, wire and distance take {wire:.6g} + {delay:.6g} s"
            )


def _least_round_trips_s(case: Case) -> dict[tuple[Dimension, Tier], float]:
    """Shortest round trip of a dimension on a tier between buildings."""
    least: dict[tuple[Dimension, Tier], float] = {}
    for dimension, tier, (one, other) in case.network.crossings:
        round_trip = case.network.topology.path_facts(one, other).round_trip_s
        least[dimension, tier] = min(least.get((dimension, tier), round_trip), round_trip)
    return least


def _paths_of(case: Case, choice: TransportChoice) -> Iterator[tuple[Ends, PathFacts]]:
    """Paths end to end of what a choice serves: of messages those of the plan, of exchanges that of least latency."""
    topology = case.network.topology
    for ends in map(_ends, choice.place_pairs):
        if any(place not in case.place_by_id for place in ends) or not topology.connected(*ends):
            continue
        paths = [path for path, _ in message_parts(case, *ends)] if choice.dimension == "pp" else [topology.path(*ends)]
        yield from ((ends, topology.path_facts(*ends, along=path)) for path in paths)


def _ends(pair: PlacePair) -> Ends:
    return (pair.from_place, pair.to_place)


def _pairs(choice: TransportChoice) -> list[tuple[str, ...]]:
    """The places that a choice serves, or that it serves none by name."""
    return [_ends(pair) for pair in choice.place_pairs] or [()]


def _name(choice: TransportChoice) -> str:
    return f"{choice.dimension} on {choice.tier}"


FAMILY: Mapping[str, Rule] = {
    "transport-complete": transport_complete,
    "transport-meaningful": transport_meaningful,
    "transport-supported": transport_supported,
    "transport-limits": transport_limits,
    "transport-rate": transport_rate,
    "transport-message": transport_message,
    "transport-time": transport_time,
}
