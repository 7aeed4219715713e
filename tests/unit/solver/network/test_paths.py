"""Latency, transfer, buffers and technology rules."""

from __future__ import annotations

import pytest

from models.cluster import Link
from solver.network import buffers, latency, technology, transfer


def link(**changes):
    numbers = {"capacity_bytes_per_s": 50e9, "distance_km": 100.0} | changes
    return Link(id="l", from_place="a", to_place="b", **numbers)


def test_the_ladder_is_that_of_the_published_tiers():
    tiers = ("rack", "zone", "building", "cross_building")
    assert [round(latency.tier_s(tier) / latency.tier_s("rack")) for tier in tiers] == [1, 7, 15, 30]


@pytest.mark.parametrize(
    ("levels", "tier"),
    [(("rack",), "zone"), (("rack", "zone"), "building"), (("rack", "zone", "building"), "cross_building")],
)
def test_hops_add_up_to_their_tier(levels, tier):
    one_side = latency.access_s("rack") + sum(latency.uplink_s(level) for level in levels)
    assert 2 * one_side == pytest.approx(latency.tier_s(tier))


def test_a_stated_latency_wins_over_the_distance():
    assert latency.link_s(1e-3, 500.0, cross_region=True) == 1e-3
    assert latency.link_s(None, 10.0, cross_region=True) == pytest.approx(49e-6)
    assert latency.link_s(None, None, cross_region=True) > 100 * latency.link_s(None, None, cross_region=False)


def test_latency_grows_with_distance():
    delays = [latency.line_s(km) for km in range(0, 2000, 10)]
    assert delays == sorted(delays)


def test_a_window_below_the_product_limits_the_rate():
    pairs = 120
    full = transfer.windowed_rate_bytes_per_s(50e9, pairs * 4 * 2**20, 10e-3)
    assert full == 50e9
    assert transfer.windowed_rate_bytes_per_s(50e9, (pairs - 1) * 4 * 2**20, 10e-3) < 50e9
    assert transfer.windowed_rate_bytes_per_s(50e9, 1.0, 0.0) == 50e9


def test_mathis_knows_no_bound_without_loss():
    assert transfer.mathis_rate_bytes_per_s(1448, 0.02, 0.0) == float("inf")


def test_headroom_is_a_round_trip_of_the_line():
    """50 MB per 100 km at 400 Gb/s (two ways of 4.9 us/km)."""
    per_100_km = buffers.pfc_headroom_bytes(50e9, 490e-6) - buffers.pfc_headroom_bytes(50e9, 0.0)
    assert per_100_km == pytest.approx(49e6)


def test_short_links_need_no_warning_and_long_ones_say_how_much():
    assert buffers.buffer_warnings(link(distance_km=2.0), latency.line_s(2.0)) == ()
    (text,) = buffers.buffer_warnings(link(distance_km=1000.0), latency.line_s(1000.0))
    assert "510.3 MB" in text
    assert "assumed" in text


def test_a_known_small_buffer_warns_of_congestion_too():
    warnings = buffers.buffer_warnings(link(switch_buffer_bytes=16e6), latency.line_s(100.0))
    assert [text.split(" of ")[0] for text in warnings] == ["Pause headroom", "Congestion buffer"]


def test_planes_share_the_headroom():
    assert buffers.buffer_warnings(link(planes=64), latency.line_s(100.0)) == ()


def test_tcp_has_no_pause_frames():
    assert buffers.buffer_warnings(link(technology="tcp"), latency.line_s(1000.0)) == ()


def test_spraying_needs_receivers_that_reorder():
    offered = ("ecmp", "spray", "dqplb")
    assert technology.load_balancing_options("roce", offered, out_of_order_receivers=False) == ("ecmp", "dqplb")
    assert technology.load_balancing_options("roce", offered, out_of_order_receivers=True) == offered
    assert technology.load_balancing_options("tcp", offered, out_of_order_receivers=True) == ("ecmp",)


def test_a_link_that_offers_nothing_usable_still_hashes():
    assert technology.load_balancing_options("roce", ("spray",), out_of_order_receivers=False) == ("ecmp",)


def test_go_back_n_excludes_spraying():
    assert "go_back_n" not in technology.reliability_options("roce", "spray", out_of_order_receivers=True)
    assert technology.reliability_options("roce", "ecmp", out_of_order_receivers=False) == ("go_back_n",)
    assert technology.reliability_options("tcp", "ecmp", out_of_order_receivers=True) == ("tcp",)
