"""Collisions are exact against enumeration, and the methods rank as their mechanism says."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

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
