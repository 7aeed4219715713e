"""Predicted iterations, memory and plan choice agree with published measurements.

`data/training.csv` holds a part of the measured rows that the accuracy table is made of, each with its source.
"""

import csv
import io
from pathlib import Path

import pytest

from benchmarks.training_tables import accuracy_tables, cross_cut, plan_choices, validate_memory
from solver.calibration.training import compare, validate_training

TEXT = (Path(__file__).parent / "data" / "training.csv").read_text(encoding="utf-8")
ROWS = list(csv.DictReader(io.StringIO(TEXT)))


def family(name):
    return [row for row in ROWS if row["family"] == name]


@pytest.mark.parametrize(
    ("name", "mean", "median"),
    [
        ("korthikanti_t5", 4, None),
        ("vtrain_multi", 7, 5),
        ("vtrain_single", 12, None),
        ("mosaicml", 8, None),
        ("megatron_sc21", 6, None),
        ("megatron_sc21_t2", 10, None),
        ("zero_bubble", 4, None),
    ],
)
def test_mean_error_of_a_family(name, mean, median):
    summary = validate_training(family(name)).families[name]
    assert summary.rows >= 4
    assert summary.mean_abs_pct <= mean
    assert median is None or summary.median_abs_pct <= median


def test_one_forward_one_backward_of_the_zero_bubble_paper():
    rows = [row for row in family("zero_bubble") if row["schedule"] == "1F1B"]
    summary = validate_training(rows).total
    assert summary.rows >= 4
    assert summary.mean_abs_pct <= 3


@pytest.mark.parametrize(
    ("cut", "mean", "median"), [("A100/H100 with a full plan", 8, 5), ("newer (Blackwell, MoE, FP8 and less)", 12, 8)]
)
def test_error_over_families(cut, mean, median):
    summary = cross_cut(compare(ROWS)[0]).families[cut]
    assert summary.rows >= 40
    assert summary.mean_abs_pct <= mean
    assert summary.median_abs_pct <= median


@pytest.mark.parametrize(
    ("model", "spearman", "regret_pct"),
    [("GPT-3.6B", 0.95, 2.0), ("GPT-18.4B", 0.75, 2.0), ("GPT-39.1B", 0.65, 2.0), ("GPT-175B", 0.85, 2.5)],
)
def test_the_chosen_plan_is_nearly_the_best(model, spearman, regret_pct):
    choices = plan_choices(compare([row for row in family("vtrain_multi") if row["model"] == model])[0])
    assert len(choices) == 1
    assert choices[0].spearman >= spearman
    assert choices[0].regret_pct <= regret_pct


def test_what_is_said_to_fit_fits():
    memory = validate_memory(family("zero_bubble")).families["zero_bubble"]
    assert memory.mean_abs_pct <= 4
    errors = [
        one.prediction.peak_bytes / one.run.measured_memory_bytes - 1 for one in compare(family("zero_bubble"))[0]
    ]
    assert min(errors) >= -0.02


def test_a_row_that_cannot_be_used_is_skipped_with_a_reason():
    broken = {**ROWS[0], "tp": ""}
    summary = validate_training([broken]).total
    assert summary.rows == 0
    assert summary.skipped == {"tp is not stated": 1}


def test_tables_name_every_family():
    tables = accuracy_tables(ROWS)
    assert all(f"| {name} |" in tables for name in {row["family"] for row in ROWS})
    assert "| vtrain_multi: GPT-39.1B, 512 GPUs, batch 1536 | 33 |" in tables
