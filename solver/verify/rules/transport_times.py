"""Rules on the figures of every transport choice: they are those of a communicator that the plan really has.

Between places it is that of some stage message or ring, with the transport stated there; inside places, that of the
first route's first pool. The list has one choice per dimension, collective and tier.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from models.transport import TransportChoice
from solver.network.algorithms import Communicator
from solver.network.collectives import Level
from solver.network.technology import OUTSTANDING, QUEUE_PAIRS
from solver.verify.case import Case, Finding, Rule
from solver.verify.communicators import Expected, Key, inside_places
from solver.verify.exchange_ways import ring_communicator
from solver.verify.rules.message_times import unoffered


def transport_times(case: Case) -> Iterator[Finding]:
    """Algorithm, sizes, rate and time of a choice follow from its options and the way that it is for."""
    expected: defaultdict[Key, list[Expected]] = defaultdict(list)
    for one in (*_across(case), *inside_places(case)):
        expected[one.key].append(one)
    stated = Counter((one.dimension, one.collective, one.tier) for one in case.plan.transport)
    for key in sorted(expected.keys() | stated.keys()):
        if stated[key] != int(key in expected):
            yield Finding(f"{key[0]} {key[1]} on {key[2]}", f"{stated[key]} choices, the plan has {len(expected[key])}")
    keys = [(one.dimension, one.collective, one.tier) for one in case.plan.transport]
    if keys != sorted(keys):
        yield Finding("transport", "choices are not in the order of dimension, collective and tier")
    for choice in case.plan.transport:
        key = (choice.dimension, choice.collective, choice.tier)
        faults = [list(_objections(one, choice)) for one in expected[key]]
        if faults and all(faults):
            yield Finding(f"{choice.dimension} {choice.collective} on {choice.tier}", min(faults, key=len)[0])


def _objections(one: Expected, choice: TransportChoice) -> Iterator[str]:
    """Where a choice is not what a communicator does; inside places it is also one that the network there offers."""
    yield from one.objections(choice)
    if one.path is not None and one.connection is None:
        yield from unoffered(one.path, choice)
        yield from _needless(one, choice)


def _needless(one: Expected, choice: TransportChoice) -> Iterator[str]:
    """Queue pairs and chunks in flight beyond those with which it takes as long: the plainest choice has fewest."""
    for name, words, sizes in (
        ("num_queue_pairs", "queue pairs", QUEUE_PAIRS),
        ("num_outstanding", "chunks in flight", OUTSTANDING),
    ):
        fewer = max((size for size in sizes if size < getattr(choice, name)), default=None)
        if fewer is not None and one.time_s(choice.model_copy(update={name: fewer})) <= one.time_s(choice):
            yield f"{getattr(choice, name)} {words}, with {fewer} it takes as long"


def _across(case: Case) -> Iterator[Expected]:
    """Stage messages and exchanges between places, by the transports that the plan states for them."""
    group, topology = case.gpus_per_group, case.network.topology
    efficiency = case.derived.stack.point_to_point_efficiency.value
    for boundary, sent in case.hops.choices():
        member = min(pool.nic_bytes_per_s_per_gpu for pool in (boundary.sender, boundary.receiver)) * efficiency
        tier, size = topology.tier(*boundary.places), case.network.boundary_bytes(boundary) / group
        message = Communicator(
            "pp",
            "send_recv",
            tier,
            2,
            Level(1, 0.0, member),
            size,
            sent.connection.num_connections,
            member,
            num_parallel=sent.num_parallel,
        )
        for source, target in boundary.ways:
            yield Expected(message, case.messages.facts(source, target), sent.connection)
    for ring in case.plan.exchange_rings:
        for transport in ring.transports:
            whole = ring_communicator(case.exchanging, ring.stages[0], transport)
            path = case.exchanging.path_of(ring.stages[0], transport)
            yield Expected(whole, path, transport.connection)


FAMILY: Mapping[str, Rule] = {"transport-times": transport_times}
