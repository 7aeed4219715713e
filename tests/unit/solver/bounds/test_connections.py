"""Limits of connections hold for every transport: no option of any path makes a message wait less."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.bounds.connections import MessageLoss, SharedPlanes
from solver.bounds.cuts import cuts
from solver.network.balancing import ecmp_efficiency, expected_max_load
from solver.network.connection import Wire, connection_rate_bytes_per_s, step_s
from solver.network.options import path_options
from solver.network.reliability import expected_max_poisson
from solver.network.technology import TECHNOLOGIES
from solver.network.topology import PathFacts
from tests.build_job import context_of, job

ONE_WAY_S, CARD_BYTES_PER_S, GPUS = 5e-3, 5e10, 8


def path(loss: float, *, reorders: bool) -> PathFacts:
    """A thousand kilometres of wide fibre."""
    return PathFacts(
        edges=(0,),
        latency_s=ONE_WAY_S,
        round_trip_s=2.0 * ONE_WAY_S,
        capacity_bytes_per_s=1e15,
        loss_probability=loss,
        planes=1,
        technology="roce",
        load_balancing=("ecmp", "spray"),
        out_of_order_receivers=reorders,
        mtu_bytes=4096,
    )


@pytest.mark.parametrize("reorders", [False, True])
@pytest.mark.parametrize("loss", [1e-6, 1e-4])
@pytest.mark.parametrize("message_bytes", [2e6, 2e8])
@pytest.mark.parametrize("sharing", [1, 512])
def test_no_option_waits_less_than_its_bound(reorders: bool, loss: float, message_bytes: float, sharing: int) -> None:
    facts, own_bytes = path(loss, reorders=reorders), message_bytes / GPUS
    wire = Wire(facts, CARD_BYTES_PER_S, sharing * GPUS, 1e15)
    plain = Wire(path(0.0, reorders=reorders), CARD_BYTES_PER_S, sharing * GPUS, 1e15)
    pairs = TECHNOLOGIES[facts.technology].max_queue_pairs
    bound = MessageLoss(loss, facts.round_trip_s, 4096, reorders, 1, pairs)
    transfer_s, size = np.array([message_bytes / (GPUS * CARD_BYTES_PER_S)]), np.array([message_bytes])
    least_s = float((transfer_s + bound.wait_s(transfer_s, size, np.array([GPUS]), np.array([float(sharing)])))[0])
    taken = []
    for option in path_options(facts).options[::11]:
        rate = connection_rate_bytes_per_s(option, wire)
        taken.append(step_s(option, wire, own_bytes) - step_s(option, plain, own_bytes) + own_bytes / rate)
    assert least_s <= min(taken)
    assert least_s > transfer_s


def test_more_replicas_wait_longer() -> None:
    bound = MessageLoss(1e-5, 1e-2, 4096, selective=False, num_edges=2, max_queue_pairs=1)
    size, gpus = np.full(4, 2e7), np.full(4, 8)
    waits = bound.each_s(np.full(4, 1e-4), size, gpus, np.array([1, 16, 256, 4096]))
    assert (np.diff(waits) > 0).all()
    assert waits[-1] > 1e-2 > 2.0 * waits[0]  # more than one round trip: some queue pair loses twice


@given(losses=st.floats(1e-6, 50.0), pairs=st.integers(1, 4000), fewer=st.integers(1, 4000))
def test_no_number_of_queue_pairs_expects_fewer_losses_of_the_worst(losses: float, pairs: int, fewer: int) -> None:
    """The bound knows the most queue pairs there may be; a message may use fewer, each with more of it."""
    most, used = max(pairs, fewer), min(pairs, fewer)
    bound = MessageLoss(1.0, 1.0, 1, selective=False, num_edges=1, max_queue_pairs=most)
    one = np.array([1])
    wait = float(bound.wait_s(np.zeros(1), np.array([losses]), one, one.astype(float))[0])
    assert wait <= expected_max_poisson(losses / used, used) + 1e-12


def test_links_that_lose_nothing_make_nobody_wait() -> None:
    bound = MessageLoss(0.0, 1e-2, 4096, selective=False, num_edges=1, max_queue_pairs=4)
    assert not bound.each_s(np.ones(2), np.ones(2), np.array([8, 8]), np.array([1, 9])).any()


def test_hashed_connections_reach_no_more_than_their_bound() -> None:
    """Any n connections or fewer, on any edges of the bound's planes, carry no more and fill no more of an edge."""
    planes, edges, each = 8, 6, 2.0
    bound = SharedPlanes(each, planes * edges, planes)
    for most in (1, 2, 3, 5, 9, 16, 40, 130):
        carried, share = bound.most_bytes_per_s(np.array([most]))[0], bound.most_share(np.array([most]))[0]
        for used in range(1, edges + 1):
            for number in range(1, most + 1):
                part = ecmp_efficiency(number, planes * used)
                assert part * each * planes * used <= carried * (1 + 1e-9)
                assert part <= share * (1 + 1e-9)


def test_only_plain_hashing_bounds_the_planes_together() -> None:
    for methods, found in ((["ecmp"], True), (["ecmp", "ecmp_qp_scaling"], False)):
        context = context_of(job(link={"planes": 8, "load_balancing": methods}))
        assert all((cut.limits.shared is not None) == found for cut in cuts(context))


PLANES, PLANE_BYTES_PER_S = 8, 2.0


def slowest_bytes_per_s(queues: Sequence[Mapping[int, float]], capacities: Sequence[float], gpus: int) -> float:
    """Of the connections of queues that have these parts on edges, all on their narrowest ones."""
    filled = [sum(own.get(edge, 0.0) for own in queues) / one for edge, one in enumerate(capacities)]
    rates = []
    for own in queues:
        carried, planes = min(capacities[edge] / part for edge, part in own.items()), PLANES * len(own)
        sharing = math.ceil(carried * max(filled[edge] for edge in own) * (1.0 - 1e-9))
        rates.append(carried / planes / expected_max_load(gpus * sharing, planes))
    return min(rates)


@pytest.mark.parametrize(("num_hops", "num_edges", "gpus"), [(1, 2, 3), (2, 2, 2), (2, 3, 2), (2, 4, 1), (3, 2, 4)])
def test_some_hop_meets_as_many_connections_as_its_bound_says(num_hops: int, num_edges: int, gpus: int) -> None:
    """Every hop has a queue each way, on any of the edges; that with the fewest connections a second is looked for."""
    bound = SharedPlanes(PLANE_BYTES_PER_S, PLANES * num_edges, PLANES, are_equal=True)
    some = [own for own in itertools.product(range(4 if num_edges < 4 else 2), repeat=num_edges) if any(own)]
    split = [{edge: one / sum(own) for edge, one in enumerate(own) if one} for own in some]
    capacities = [PLANES * PLANE_BYTES_PER_S] * num_edges
    fastest = max(
        slowest_bytes_per_s(queues, capacities, gpus)
        for queues in itertools.combinations_with_replacement(split, 2 * num_hops)
    )
    found = bound.queue_bytes_per_s(num_hops, gpus)
    assert fastest <= found * (1 + 1e-9)
    assert found < 1.1 * fastest
    assert bound.least_queue_bytes_per_s(np.array([num_hops]), np.array([gpus]))[0] <= found * (1 + 1e-9)


@given(data=st.data(), num_hops=st.integers(1, 4), num_edges=st.integers(1, 4), gpus=st.integers(1, 4))
def test_no_parts_of_messages_serve_every_hop_faster(
    data: st.DataObject, num_hops: int, num_edges: int, gpus: int
) -> None:
    """Whatever parts of each queue take which edges, the widest of which have what the bound says of all."""
    shares = st.lists(st.integers(0, 4), min_size=num_edges, max_size=num_edges).filter(any)
    queues = []
    for weights in data.draw(st.lists(shares, min_size=2 * num_hops, max_size=2 * num_hops)):
        queues.append({edge: one / sum(weights) for edge, one in enumerate(weights) if one})
    are_equal, part = data.draw(st.booleans()), st.floats(0.3, 1.0)
    capacities = [PLANES * PLANE_BYTES_PER_S * (1.0 if are_equal else data.draw(part)) for _ in range(num_edges)]
    bound = SharedPlanes(PLANE_BYTES_PER_S, PLANES * num_edges, PLANES, are_equal=are_equal)
    found = bound.queue_bytes_per_s(num_hops, gpus)
    assert slowest_bytes_per_s(queues, capacities, gpus) <= found * (1 + 1e-9)
