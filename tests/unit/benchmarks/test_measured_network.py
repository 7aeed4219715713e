"""Rows find their profile, and those that do not say why."""

from __future__ import annotations

import pytest

from benchmarks.measured_network import validate_network

EMPTY = dict.fromkeys(
    ("kind", "system", "fabric", "ranks", "nodes", "collective", "algo", "size_bytes", "time_us", "busbw_GBps"), ""
) | dict.fromkeys(("fraction_of_line_rate", "distance", "rtt_us", "source", "notes"), "")


def row(**cells):
    return EMPTY | cells


def only(one):
    report = validate_network([one])
    ((family, summary),) = report.families.items()
    return family, summary


SWEEP = {"kind": "collective", "ranks": "8", "nodes": "1", "collective": "all_reduce", "size_bytes": str(2**30)}


@pytest.mark.parametrize(
    ("cells", "family"),
    [
        (SWEEP | {"system": "A100 8-GPU node", "time_us": "8193"}, "a100_node"),
        (SWEEP | {"system": "V100 8-GPU node", "time_us": "13969"}, "v100_node"),
        (SWEEP | {"system": "8x H200", "busbw_GBps": "463"}, "h200_node"),
        (SWEEP | {"system": "8x B200", "busbw_GBps": "723"}, "b200_node"),
        (SWEEP | {"system": "8x MI300X", "busbw_GBps": "313"}, "mi300x_node"),
        (SWEEP | {"system": "4x8 B200 (P6)", "ranks": "32", "nodes": "4", "time_us": "5900"}, "b200_multi_node"),
        ({"kind": "rtt", "distance": "200 km", "rtt_us": "2138"}, "long_haul_rtt"),
    ],
)
def test_known_systems_are_predicted_within_10_percent(cells, family):
    found, summary = only(row(**cells))
    assert found == family
    assert summary.rows == 1
    assert summary.mean_abs_pct < 10


def test_time_wins_over_bus_bandwidth():
    cells = SWEEP | {"system": "A100 8-GPU node", "time_us": "8193", "busbw_GBps": "1"}
    assert only(row(**cells))[1].mean_abs_pct < 10


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"kind": "gossip"}, "kind of row is unknown"),
        (SWEEP | {"system": "16x Unknown", "time_us": "1"}, "no profile for 16x Unknown all_reduce"),
        (SWEEP | {"system": "8x H200", "collective": "barrier"}, "no profile for 8x H200 barrier"),
        (SWEEP | {"system": "8x H200", "size_bytes": "many"}, "cell is missing or not a number: ValueError"),
        ({"kind": "p2p", "system": "GCP 9xT4", "size_bytes": "1"}, "no profile for GCP 9xT4"),
        ({"kind": "p2p", "system": "X DCI"}, "queue depth, line rate or distance is not stated"),
        ({"kind": "rtt", "distance": "near"}, "distance is not stated in km"),
        ({"kind": "relative_latency", "distance": "moon"}, "tier or factor is not stated"),
    ],
)
def test_other_rows_are_skipped_with_a_reason(cells, reason):
    _, summary = only(row(**cells))
    assert summary.rows == 0
    assert summary.skipped == {reason: 1}


def test_a_missing_column_is_a_reason_too():
    report = validate_network([{"kind": "rtt"}])
    assert report.total.skipped == {"cell is missing or not a number: KeyError": 1}
