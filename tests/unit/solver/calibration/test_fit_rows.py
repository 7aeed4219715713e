"""A user's rows become a profile, or a clear refusal."""

import csv
import io
from pathlib import Path

import pytest

from models.errors import InvalidRequest
from models.stack import packaged_stack
from solver.calibration.fit import ContradictoryRows, TooFewRows
from solver.calibration.fit_rows import calibrate_rows
from solver.calibration.training import compare, validate_training

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


def test_the_error_of_the_profile_it_began_with_stands_beside():
    before = validate_training(ROWS, [packaged_stack("zero-bubble-2024")]).total
    result = calibrate_rows(ROWS, name="ours", constants=("gemm_efficiency",))
    assert result.start_mean_abs_pct == pytest.approx(before.mean_abs_pct)
    assert result.start_median_abs_pct == pytest.approx(before.median_abs_pct)


def test_a_fit_that_follows_one_odd_row_does_worse_on_rows_held_back():
    """Every time is what the profile predicts but for one row: the fit loses where it follows that one."""
    start = packaged_stack("zero-bubble-2024")
    runs = compare(ROWS[:4], [start])[0]
    times = [one.prediction.iteration_s for one in runs]
    rows = [{**row, "iter_time_s": str(time)} for row, time in zip(ROWS, [times[0] * 1.2, *times[1:]], strict=False)]
    result = calibrate_rows(rows, name="ours", constants=("gemm_efficiency", "elementwise_traffic"))
    assert result.cross_validated_mean_abs_pct > result.start_mean_abs_pct


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ({"gpu": "H100"}, r"several GPU generations: ampere \(\d+\), hopper \(1\)"),
        ({"framework": "torchtitan"}, r"several software profiles .*: torchtitan-2024 \(1\), zero-bubble-2024"),
    ],
)
def test_rows_of_several_kinds_are_refused(cells, named):
    with pytest.raises(ContradictoryRows, match=named):
        calibrate_rows([*ROWS, {**ROWS[0], **cells}], name="ours", constants=("gemm_efficiency",))


def test_a_named_profile_takes_rows_of_any_software():
    rows = [*ROWS, {**ROWS[0], "framework": "torchtitan"}]
    start = packaged_stack("zero-bubble-2024")
    assert calibrate_rows(rows, name="ours", start=start, constants=("gemm_efficiency",)).num_rows == len(rows)


def test_the_order_of_rows_does_not_choose_the_start():
    of = {"framework": "Megatron-LM 2022", "source": "", "recompute": "selective"}
    rows = [
        {**row, **of, "recompute": mode}
        for row, mode in zip(ROWS, ["selective+SP", *["selective"] * (len(ROWS) - 1)], strict=True)
    ]
    split = [calibrate_rows(some, name="ours", constants=("gemm_efficiency",)).profile.sequence_parallel
             for some in (rows, rows[::-1])]  # fmt: skip
    assert split == [False, False]


def test_repeats_of_a_run_are_held_back_together():
    """Repeats told each other's times: the error on rows held back was that of repeating, whatever the fit is worth."""
    result = calibrate_rows([{**ROWS[0], "iter_time_s": "3.0"}] * 6, name="ours", constants=("gemm_efficiency",))
    assert result.cross_validated_mean_abs_pct == pytest.approx(result.start_mean_abs_pct, rel=0.01)
    assert result.fit_mean_abs_pct < result.start_mean_abs_pct / 2
    assert result.profile.uncertainty.family_spread_dense > 0.08


def test_the_order_of_rows_changes_no_figure():
    first, second = (calibrate_rows(rows, name="ours", constants=("gemm_efficiency",)) for rows in (ROWS, ROWS[::-1]))
    assert first == second
