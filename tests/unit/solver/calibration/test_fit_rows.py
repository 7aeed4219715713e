"""A user's rows become a profile, or a clear refusal."""

import csv
import io
from pathlib import Path

import pytest

from models.errors import InvalidRequest
from solver.calibration.fit import TooFewRows
from solver.calibration.fit_rows import calibrate_rows

TEXT = (Path(__file__).parents[3] / "published" / "data" / "training.csv").read_text(encoding="utf-8")
ROWS = [row for row in csv.DictReader(io.StringIO(TEXT)) if row["family"] == "zero_bubble"]


def test_a_family_of_runs_becomes_a_profile():
    result = calibrate_rows(ROWS, name="ours", constants=("gemm_efficiency", "elementwise_traffic"))
    assert result.profile.name == "ours"
    assert result.num_rows == len(ROWS)
    assert result.fit_mean_abs_pct < 4
    assert result.cross_validated_mean_abs_pct < 6


def test_too_few_rows():
    with pytest.raises(TooFewRows, match="2 usable rows"):
        calibrate_rows(ROWS[:2], name="ours")


def test_no_usable_row_says_why():
    with pytest.raises(TooFewRows, match="tp is not stated"):
        calibrate_rows([{**ROWS[0], "tp": ""}], name="ours")


def test_an_unknown_constant_is_named():
    with pytest.raises(InvalidRequest, match="'speed' is not a constant"):
        calibrate_rows(ROWS, name="ours", constants=("speed",))
