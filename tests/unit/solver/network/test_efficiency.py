"""Curves behave like fabrics: monotone, saturating, and scaled by the line rate they are given."""

from __future__ import annotations

import itertools

import pytest

from benchmarks import measured_fabrics
from solver.network import fabrics
from solver.network.efficiency import EfficiencyCurve, FabricProfile

PROFILES = [
    fabrics.A100_NVLINK,
    fabrics.V100_NVLINK,
    fabrics.HOPPER_NVLINK,
    fabrics.BLACKWELL_NVLINK,
    fabrics.MI300X_XGMI,
    measured_fabrics.ROCE,
    measured_fabrics.EFA,
]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_larger_messages_never_take_less_time(profile):
    """Across a protocol switch a larger message may be a little faster, as in the measurements."""
    times = [profile.collective_s("all_reduce", 2.0**bits, 8) for bits in range(14, 35)]
    assert all(later >= 0.75 * earlier for earlier, later in itertools.pairwise(times))
    assert times[-1] > 100 * times[0]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_huge_messages_reach_the_plateau(profile):
    curve = profile.curve("all_reduce")
    fraction = profile.line_fraction("all_reduce", 2.0**44, 8)
    assert fraction == pytest.approx(curve.plateau_at(8), rel=0.02)


def test_the_plateau_is_straight_between_given_counts_and_constant_beyond():
    curve = EfficiencyCurve(base_s=0.0, hop_s=0.0, fill_s=0.0, plateau=((2, 0.2), (4, 0.4)))
    assert [curve.plateau_at(count) for count in (1, 2, 3, 4, 99)] == pytest.approx([0.2, 0.2, 0.3, 0.4, 0.4])


def test_small_messages_over_many_nodes_are_bound_by_latency():
    """One to two orders of magnitude below the line rate, as no constant efficiency can show."""
    assert measured_fabrics.ROCE.line_fraction("all_reduce", 2**24, 1024, num_nodes=128) < 0.02
    assert measured_fabrics.ROCE.line_fraction("all_reduce", 2**34, 16, num_nodes=2) > 0.9


def test_a_gather_moves_half_of_an_all_reduce():
    curve = EfficiencyCurve(base_s=0.0, hop_s=1e-6, fill_s=0.0, plateau=((2, 1.0),))
    profile = FabricProfile("plain", 1e9, {"*": curve}, "test")
    whole = profile.collective_s("all_reduce", 1e6, 8)
    assert profile.collective_s("all_gather", 1e6, 8) == pytest.approx(whole / 2)


def test_another_line_rate_scales_the_wire():
    curve = EfficiencyCurve(base_s=0.0, hop_s=0.0, fill_s=0.0, plateau=((2, 0.5),))
    profile = FabricProfile("plain", 1e9, {"*": curve}, "test")
    assert profile.collective_s("send_recv", 1e9, 2) == pytest.approx(2.0)
    assert profile.collective_s("send_recv", 1e9, 2, line_rate=2e9) == pytest.approx(1.0)


def test_one_rank_needs_no_time():
    assert fabrics.A100_NVLINK.collective_s("all_reduce", 1e9, 1) == 0.0


def test_the_algorithm_outranks_the_collective():
    ring = fabrics.HOPPER_NVLINK.collective_s("all_reduce", 1e10, 8, algorithm="ring")
    assert ring > fabrics.HOPPER_NVLINK.collective_s("all_reduce", 1e10, 8)


@pytest.mark.parametrize(
    ("rate", "profile"),
    [
        (150e9, fabrics.V100_NVLINK),
        (200e9, fabrics.SIMAI_NVLINK),  # NVLink of the H800, cut down from that of the H100
        (300e9, fabrics.A100_NVLINK),
        (450e9, fabrics.HOPPER_NVLINK),
    ],
)
def test_generations_are_found_by_rate(rate, profile):
    assert fabrics.scale_up_profile(rate) is profile


def test_a_full_mesh_uses_as_many_links_as_peers():
    assert fabrics.MI300X_XGMI.curve("all_reduce").plateau_at(5) == pytest.approx(4 * 0.1, rel=0.1)
