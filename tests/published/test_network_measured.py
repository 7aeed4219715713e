"""Measured sweeps within their thresholds, by the same report that `make accuracy` prints.

`data/measured_network.csv` holds published measurements with the source in every row.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks.measured_network import validate_network
from solver.calibration.report import ValidationReport

DATA = Path(__file__).parent / "data" / "measured_network.csv"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with DATA.open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


@pytest.fixture(scope="module")
def report(rows) -> ValidationReport:
    return validate_network(rows)


@pytest.mark.parametrize(
    ("family", "limit_pct", "least_rows"),
    [
        ("a100_node", 5, 40),
        ("h200_node", 9, 15),
        ("b200_node", 9, 15),
        ("b200_multi_node", 20, 15),
        ("h200_multi_node", 20, 2),
        ("line_rate_ring_multi_node", 20, 40),
        ("line_rate_exchange_multi_node", 20, 25),
        ("long_haul_rtt", 2, 5),
        ("long_haul_throughput", 2, 2),
    ],
)
def test_families_stay_within_their_threshold(report, family, limit_pct, least_rows):
    summary = report.families[family]
    assert summary.rows >= least_rows
    assert summary.mean_abs_pct <= limit_pct


def test_small_messages_over_many_nodes_are_included(rows):
    small = [row for row in rows if row["kind"] == "ratio" and row["fabric"] == "NIC"]
    small = [row for row in small if float(row["size_bytes"]) <= 2**26 and int(row["nodes"]) >= 8]
    summary = validate_network(small).total
    assert summary.rows >= 10
    assert summary.mean_abs_pct <= 20


def test_nothing_is_skipped(report):
    assert report.total.skipped == {}


def test_unknown_systems_are_skipped_with_a_reason(rows):
    strange = {**rows[0], "system": "16x Abacus"}
    broken = {**rows[0], "size_bytes": "large"}
    report = validate_network([strange, broken, {"kind": "rumour"}])
    assert report.total.rows == 0
    assert sum(report.total.skipped.values()) == 3


def test_the_answer_never_looks_at_the_measured_value(rows):
    """Doubling every measurement halves every prediction's share of it, so no prediction moved."""
    for row in rows[:40]:
        if not row["time_us"]:
            continue
        doubled = {**row, "time_us": str(2 * float(row["time_us"])), "busbw_GBps": "1"}
        one = validate_network([row]).total.bias_pct
        two = validate_network([doubled]).total.bias_pct
        assert (100 + one) / 2 == pytest.approx(100 + two)
