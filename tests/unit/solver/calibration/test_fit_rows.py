"""A user's rows become a profile, or a clear refusal."""

import csv
import io
from pathlib import Path

import pytest

from models.errors import InvalidRequest
from solver.calibration.fit import ContradictoryRows, TooFewRows
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


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"iter_time_s": "1,5"}, "iter_time_s is not a number"),
        ({"kv_heads": "7"}, "a cell is not usable"),
        ({"vpp": "-1"}, "vpp is below 0"),
        ({"vpp": "1000"}, "vpp is above the layers of a pipeline rank"),
        ({"mbs": "100000"}, "mbs is above the sequences of a replica"),
        ({"notes": "Suspicious: twice its neighbour"}, "the source's own notes mark the row as suspicious"),
    ],
)
def test_a_row_that_cannot_be_used_is_left_out_and_told(cells, reason):
    result = calibrate_rows([*ROWS, {**ROWS[0], **cells}], name="ours", constants=("gemm_efficiency",))
    assert result.num_rows == len(ROWS)
    assert result.profile.description == f"calibrated from {len(ROWS)} measured runs; 1 left out: {reason}"


def test_no_virtual_stages_are_as_none_stated():
    rows = [{**row, "vpp": zero} for row, zero in zip(ROWS, "0" * len(ROWS), strict=True) if not row["vpp"]]
    plain = [row for row in ROWS if not row["vpp"]]
    fitted = [calibrate_rows(some, name="ours", constants=("gemm_efficiency",)).fitted for some in (rows, plain)]
    assert fitted[0] == fitted[1]


def test_a_run_in_the_wrong_unit_is_named():
    wrong = {**ROWS[3], "id": "in-ks", "iter_time_s": str(float(ROWS[3]["iter_time_s"]) / 1e3)}
    with pytest.raises(ContradictoryRows, match=r"the run 'in-ks' took 0\.00[01]"):
        calibrate_rows([*ROWS, wrong], name="ours", constants=("gemm_efficiency",))
