"""The error statistics are what they say."""

from __future__ import annotations

import json

import pytest

from solver.calibration.report import ReportBuilder, error_pct, summarise


def test_mean_median_bias_and_worst_keep_their_meaning():
    summary = summarise([1.0, -3.0, 5.0])
    assert summary.rows == 3
    assert summary.mean_abs_pct == 3.0
    assert summary.median_abs_pct == 3.0
    assert summary.bias_pct == 1.0
    assert summary.worst_pct == 5.0


def test_worst_is_signed():
    assert summarise([4.0, -7.0]).worst_pct == -7.0


def test_a_family_of_skipped_rows_is_reported_with_its_reasons():
    builder = ReportBuilder()
    builder.add("ring", predicted=110.0, measured=100.0)
    builder.skip("tree", "no size")
    builder.skip("tree", "no size")
    report = builder.build()
    assert report.families["tree"].rows == 0
    assert report.families["tree"].skipped == {"no size": 2}
    assert report.total.rows == 1
    assert report.total.skipped == {"no size": 2}
    assert report.total.mean_abs_pct == pytest.approx(10.0)


def test_the_report_is_plain_json():
    builder = ReportBuilder()
    builder.add("ring", predicted=90.0, measured=100.0)
    assert json.loads(json.dumps(builder.build().to_dict()))["families"]["ring"]["bias_pct"] == -10.0


def test_a_zero_measurement_is_refused():
    with pytest.raises(ValueError, match="no relative error"):
        error_pct(1.0, 0.0)
