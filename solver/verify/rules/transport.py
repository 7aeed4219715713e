"""Rules on transport choices: every communicator has one per tier, with a collective, size and rate that it can have.

Judges `Plan.transport` and `Plan.transport_policy`. What the links carry is `links.py`, what messages cost is `hops.py`
and `exchange.py`.
"""

from collections.abc import Iterator, Mapping

from models.cluster import Tier
from models.transport import Dimension, TransportChoice
from solver.network.policy import POLICY
from solver.network.transfer import windowed_rate_bytes_per_s
from solver.verify.case import Case, Finding, Rule, differs, exceeds
from solver.verify.network_facts import BETWEEN_BUILDINGS

COLLECTIVES: Mapping[Dimension, tuple[str, ...]] = {
    "tp": ("all_reduce", "all_gather", "reduce_scatter"),
    "cp": ("all_gather", "reduce_scatter", "send_recv", "all_reduce", "all_to_all"),
    "ep": ("all_to_all",),
    "pp": ("send_recv",),
    "dp": ("all_reduce", "all_gather", "reduce_scatter"),
}


def transport_complete(case: Case) -> Iterator[Finding]:
    """Every dimension that communicates has a choice, on every tier between buildings that it has to cross."""
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


def transport_meaningful(case: Case) -> Iterator[Finding]:
    """A choice is for a dimension that communicates, with a collective of that dimension, stated once."""
    degrees = case.configuration.degrees
    sizes = {"tp": degrees.tp, "cp": degrees.cp, "ep": degrees.ep, "pp": degrees.pp, "dp": degrees.dp * degrees.cp}
    seen: set[tuple[str, str, str]] = set()
    for choice in case.plan.transport:
        key = (choice.dimension, choice.tier, choice.collective)
        if choice.collective not in COLLECTIVES[choice.dimension]:
            yield Finding(_name(choice), f"{choice.dimension} does no {choice.collective}")
        if choice.num_ranks > max(sizes[choice.dimension], 1) or sizes[choice.dimension] == 1:
            yield Finding(_name(choice), f"{choice.num_ranks} members, the degree is {sizes[choice.dimension]}")
        if key in seen:
            yield Finding(_name(choice), f"{choice.collective} is chosen twice")
        seen.add(key)


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


def transport_policy(case: Case) -> Iterator[Finding]:
    """Links are shared as the model shares them: bounds hold for its chunks and its share alone."""
    for name, value in POLICY:
        stated = getattr(case.plan.transport_policy, name)
        if stated != value:
            yield Finding("transport_policy", f"{name} {stated:g}, the model has {value:g}")


def _least_round_trips_s(case: Case) -> dict[tuple[Dimension, Tier], float]:
    """Shortest round trip of a dimension on each tier."""
    least: dict[tuple[Dimension, Tier], float] = {}
    for dimension, tier, (one, other) in case.network.pairs:
        round_trip = case.network.topology.path_facts(one, other).round_trip_s
        least[dimension, tier] = min(least.get((dimension, tier), round_trip), round_trip)
    return least


def _name(choice: TransportChoice) -> str:
    return f"{choice.dimension} on {choice.tier}"


FAMILY: Mapping[str, Rule] = {
    "transport-complete": transport_complete,
    "transport-meaningful": transport_meaningful,
    "transport-rate": transport_rate,
    "transport-message": transport_message,
    "transport-time": transport_time,
    "transport-policy": transport_policy,
}
