"""Rules on stage messages between places: stated transports that the links offer, and hops that follow from them.

Judges `Plan.message_transports` and the exact times of hops. What no transport could beat is `hops.py`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from models.schedule import PipelineHop
from models.transport import Connection, TransportChoice
from solver.network.technology import (
    CHUNK_BYTES,
    MAX_IN_FLIGHT_BYTES,
    OUTSTANDING,
    QUEUE_PAIRS,
    TECHNOLOGIES,
    load_balancing_options,
    reliability_options,
)
from solver.network.topology import PathFacts
from solver.verify.case import Case, Finding, Rule, differs


def unoffered(path: PathFacts, connection: Connection | TransportChoice) -> Iterator[str]:
    """What of a connection its path does not offer: balancing, recovery, queue pairs, windows."""
    limits, reordering = TECHNOLOGIES[path.technology], path.out_of_order_receivers
    balancing = load_balancing_options(path.technology, path.load_balancing, out_of_order_receivers=reordering)
    if connection.load_balancing not in balancing:
        yield f"{connection.load_balancing}, its path offers {', '.join(balancing)}"
    elif path.planes == 1 and connection.load_balancing != balancing[0]:
        yield f"{connection.load_balancing} on one plane, where nothing collides; the plainest is {balancing[0]}"
    recovery = reliability_options(path.technology, connection.load_balancing, out_of_order_receivers=reordering)
    if connection.reliability not in recovery:
        yield f"{connection.reliability}, with {connection.load_balancing} its path has {', '.join(recovery)}"
    elif path.loss_probability == 0 and connection.reliability != recovery[0]:
        yield f"{connection.reliability} where nothing is lost; the plainest is {recovery[0]}"
    for name, value, sizes in (
        ("chunks", connection.chunk_bytes, CHUNK_BYTES),
        ("queue pairs", connection.num_queue_pairs, QUEUE_PAIRS),
        ("chunks in flight", connection.num_outstanding, OUTSTANDING),
    ):
        if value not in sizes:
            yield f"{value:g} {name}, configured are {', '.join(map(str, sizes))}"
    if connection.num_queue_pairs > limits.max_queue_pairs or connection.num_outstanding > limits.max_outstanding:
        yield (
            f"{connection.num_queue_pairs} queue pairs with {connection.num_outstanding} chunks each,"
            f" {path.technology} takes {limits.max_queue_pairs} and {limits.max_outstanding}"
        )
    window = connection.num_queue_pairs * connection.num_outstanding * connection.chunk_bytes
    if window > MAX_IN_FLIGHT_BYTES:
        yield f"{window} B in flight, at most {MAX_IN_FLIGHT_BYTES:.0f}"


def message_transports(case: Case) -> Iterator[Finding]:
    """Every way between pools of two places is stated once, with the connections busy on it and what it offers."""
    keys = [(one.from_pool, one.to_pool, one.route or "") for one in case.plan.message_transports]
    if keys != sorted(set(keys)):
        yield Finding("message_transports", "are not in the order of their pools, or one is stated twice")
    stated = Counter(key[:2] for key in keys if not key[2])
    wanted = {(source.id, target.id) for one in case.messages.crossing for source, target in one.ways}
    for ends in sorted(wanted | stated.keys()):
        if stated[ends] != int(ends in wanted):
            yield Finding(f"messages from {ends[0]} to {ends[1]}", f"have {stated[ends]} transports")
    for one in case.plan.message_transports:
        ends = one.from_pool, one.to_pool
        if ends not in wanted:
            if one.route is not None:
                yield Finding(f"time slots of {one.route}", f"no message goes from {ends[0]} to {ends[1]}")
            continue
        where = f"messages from {ends[0]} to {ends[1]}"
        source, target = (case.pool_by_id[pool] for pool in ends)
        for fault in unoffered(case.messages.facts(source, target), one.connection):
            yield Finding(where, fault)
        busy = case.messages.num_connections(source, target)
        if one.route is None and one.connection.num_connections != busy:
            yield Finding(where, f"{one.connection.num_connections} connections, {busy} share the way")
    yield from _time_slots(case)


def _time_slots(case: Case) -> Iterator[Finding]:
    """Transports in time slots are of hops of their route, each with as many senders as a slot has and in time."""
    hops = {(one.route, frozenset((one.sender.id, one.receiver.id))): one for one in case.messages.crossing}
    in_slots = [one for one in case.plan.message_transports if one.route is not None]
    stated = {(str(one.route), frozenset((one.from_pool, one.to_pool))) for one in in_slots}
    for route, ends in sorted(stated, key=str):
        slot = case.hops.slot(route)
        if (route, ends) not in hops:
            yield Finding(f"time slots of {route}", f"no message of it goes between {' and '.join(sorted(ends))}")
        elif slot is not None:
            for fault in case.hops.faults(hops[route, ends], slot):
                yield Finding(f"time slots of {route}", fault)


def hop_times(case: Case) -> Iterator[Finding]:
    """Every hop takes what its transport, window, loss and share of the links make of it, and nothing else.

    The other way of sharing links is stated where the plan has time slots for the route, with its own hops.
    """
    for route, timeline in case.timeline_by_route.items():
        if route not in case.pools_by_route:
            continue
        slot = case.hops.slot(route)
        shifted = slot if timeline.stagger_s > 0 else None
        yield from _unlike(f"route {route}", timeline.problem.hops, case.hops.of(route, shifted))
        if differs(timeline.stagger_s, 0.0 if shifted is None else shifted.stagger_s):
            yield Finding(f"route {route}", f"stagger_s {timeline.stagger_s:.9g} is not that of its time slots")
        other = timeline.other_sharing
        if (other is None) != (slot is None):
            yield Finding(f"route {route}", "time slots and the other way of sharing links belong together")
        elif other is not None and slot is not None:
            second = slot if shifted is None else None
            yield from _unlike(f"route {route}, the other way", other.hops, case.hops.of(route, second))
            if differs(other.stagger_s, 0.0 if second is None else second.stagger_s):
                yield Finding(f"route {route}, the other way", f"stagger_s {other.stagger_s:.9g}")


def _unlike(where: str, stated: tuple[PipelineHop, ...], derived: tuple[PipelineHop, ...]) -> Iterator[Finding]:
    if len(stated) != len(derived):
        yield Finding(where, f"has {len(stated)} hops, its route {len(derived)}")
        return
    for said, true in zip(stated, derived, strict=True):
        for name, value in said:
            wanted = getattr(true, name)
            if differs(value, wanted) if isinstance(wanted, float) else value != wanted:
                yield Finding(f"{where}, hop {true.from_stage} to {true.to_stage}", f"{name} {value}, it is {wanted}")


FAMILY: Mapping[str, Rule] = {"message-transports": message_transports, "hop-times": hop_times}
