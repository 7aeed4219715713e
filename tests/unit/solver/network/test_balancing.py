"""Collisions are exact against enumeration, and the methods rank as their mechanism says."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.network import balancing


@pytest.mark.parametrize(("num_flows", "num_planes"), [(1, 3), (2, 2), (3, 4), (5, 3), (6, 2), (4, 5)])
def test_expected_max_equals_enumeration(num_flows, num_planes):
    outcomes = itertools.product(range(num_planes), repeat=num_flows)
    mean = np.mean([max(Counter(outcome).values()) for outcome in outcomes])
    assert balancing.expected_max_load(num_flows, num_planes) == pytest.approx(mean, rel=1e-9)


@pytest.mark.parametrize(("num_flows", "num_planes"), [(1600, 16), (7600, 76), (200, 2), (800, 8)])
def test_many_flows_meet_the_exact_sum(num_flows, num_planes):
    exact = balancing.expected_max_load(num_flows, num_planes)
    generator = np.random.default_rng(1)
    sampled = generator.multinomial(num_flows, [1 / num_planes] * num_planes, size=20_000).max(axis=1).mean()
    assert exact == pytest.approx(sampled, rel=2e-3)
    above = balancing.expected_max_load(num_flows + 1, num_planes)
    assert above - 1 / num_planes == pytest.approx(exact, rel=2e-3)


def test_one_plane_takes_everything():
    assert balancing.expected_max_load(17, 1) == 17
    assert balancing.ecmp_efficiency(17, 1) == 1


def test_more_flows_collide_less():
    efficiencies = [balancing.ecmp_efficiency(flows, 16) for flows in (16, 64, 256, 1024, 4096)]
    assert efficiencies == sorted(efficiencies)
    assert efficiencies[-1] > 0.89


def efficiency(method, queue_pairs=16, connections=16, planes=76):
    return balancing.balanced_efficiency(
        method, num_connections=connections, queue_pairs=queue_pairs, num_planes=planes
    )


def test_methods_rank_from_hash_to_spray():
    assert efficiency("ecmp") < efficiency("ecmp_qp_scaling") < efficiency("dqplb") < efficiency("spray") == 1


def test_plain_ecmp_ignores_queue_pairs():
    assert efficiency("ecmp", queue_pairs=1) == efficiency("ecmp", queue_pairs=64)


def test_segment_balancing_with_one_pair_is_ecmp_or_worse():
    assert efficiency("dqplb", queue_pairs=1) <= efficiency("ecmp", queue_pairs=1)


def test_negative_counts_are_refused():
    with pytest.raises(ValueError, match="flows >= 0"):
        balancing.expected_max_load(-1, 4)


BY_TRANSFORM = {  # E[max] by Levin's identity with a Fourier transform: flows, planes
    (257, 15): 24.676585,
    (257, 76): 8.528451,
    (257, 512): 3.690469,
    (257, 4096): 2.149671,
    (1000, 15): 81.211171,
    (1000, 76): 22.659423,
    (1000, 512): 7.375999,
    (5000, 76): 86.120655,
    (5000, 512): 20.551571,
    (5000, 4096): 6.861042,
}


@pytest.mark.parametrize(("num_flows", "num_planes"), BY_TRANSFORM)
def test_the_series_of_many_flows_gives_what_a_transform_does(num_flows, num_planes):
    found = balancing.expected_max_load(num_flows, num_planes)
    assert found == pytest.approx(BY_TRANSFORM[num_flows, num_planes], rel=1e-4)


@pytest.mark.parametrize("num_planes", [4096, 61_440, 1_000_000])
def test_any_number_of_flows_on_many_planes_has_an_answer(num_planes):
    slowdowns = [balancing.collision_slowdown(1 << power, num_planes) for power in range(24)]
    assert all(fuller <= emptier * (1 + 1e-4) for emptier, fuller in itertools.pairwise(slowdowns))


@given(st.integers(0, 3000), st.integers(1, 400))
def test_the_quick_limit_is_not_exceeded(num_flows, num_planes):
    most = balancing.max_load_at_most(np.array([num_flows]), np.array([num_planes]))[0]
    assert balancing.expected_max_load(num_flows, num_planes) <= most * (1 + 1e-9)
    assert most <= num_flows
