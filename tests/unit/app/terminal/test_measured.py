"""Measured rows are compared and fitted from the command line, and told clearly when they cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.app.terminal.commands import run

# A run of Megatron-LM as its paper measured it: Narayanan et al., SC21, table 1.
RUN = """family,arch,params_b,layers,hidden,ffn_hidden,gated_mlp,heads,seq_len,vocab,gpu,num_gpus,tp,pp,dp,cp,gbs,\
precision,recompute,schedule,framework,iter_time_s,source,notes
megatron_sc21,dense,3.6,30,3072,12288,0,32,2048,51200,A100-80G,64,2,1,32,1,512,fp16,full,,Megatron-LM,3.697,SC21,
"""


def test_a_report_has_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(RUN)
    assert run(None, "accuracy", "training", str(rows), "--json") == 0
    report = json.loads(capsys.readouterr().out)
    figures = {
        "rows",
        "skipped",
        "mean_abs_pct",
        "median_abs_pct",
        "bias_pct",
        "worst_pct",
        "coverage_80",
        "half_width_pct",
    }
    assert set(report) == {"families", "total"}
    assert set(report["total"]) == figures
    assert report["total"]["rows"] == 1
    assert run(None, "accuracy", "training", str(rows)) == 0
    assert "Prediction errors" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (RUN.replace("layers", "hidden"), "the column 'hidden' twice"),
        (RUN.replace(",SC21,", ",SC21"), "line 2 has 23 cells under 24 columns"),
        (RUN.replace("SC21", '"SC21'), "unexpected end of data"),
        (RUN.replace("SC21", "M\xfcnchen").encode("latin-1"), "is not UTF-8"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(
    table: str | bytes, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_bytes(table if isinstance(table, bytes) else table.encode())
    assert run(None, "accuracy", "training", str(rows)) == 2
    assert what in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "change", [("\n", "\r\n"), ("\n", "\r"), (",", " , "), ("family", "\ufefffamily"), ("family", "\nfamily", 1)]
)
def test_a_table_is_read_however_it_was_saved(
    change: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_bytes(RUN.replace(*change).encode())
    assert run(None, "accuracy", "training", str(rows), "--json") == 0
    assert json.loads(capsys.readouterr().out)["total"]["rows"] == 1


def test_no_usable_row_is_no_report_without_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu;num_gpus\nH100;8\n")
    assert run(None, "accuracy", "training", str(rows)) == 2
    assert "no row can be used: gpu is not stated" in " ".join(capsys.readouterr().err.split())


def test_missing_columns_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("colour\nred\n")
    assert run(None, "calibrate", str(rows)) == 2
    assert "to do:" in capsys.readouterr().err


def test_an_unknown_profile_is_refused_with_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("colour\nred\n")
    assert run(None, "calibrate", str(rows), "--profile", "abacus-1900") == 2
    assert "megatron-2024" in capsys.readouterr().err


def test_a_fit_tells_the_error_before_and_where_it_does_not_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six of the runs that the packaged profile was fitted to hardly move three constants of it."""
    published = Path(__file__).parents[3] / "published" / "data" / "training.csv"
    header, *lines = published.read_text(encoding="utf-8").splitlines()
    rows = tmp_path / "rows.csv"
    rows.write_text("\n".join([header, *[line for line in lines if ",zero_bubble," in line][6:12]]))
    assert run(None, "calibrate", str(rows), "--constants", "gemm_efficiency,elementwise_traffic,step_host_s") == 0
    told = capsys.readouterr().out
    assert "Error before, by the profile it began with: " in told
    assert "Rows held back are predicted worse than by the profile it began with" in told
