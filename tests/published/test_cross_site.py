"""Published runs across sites that nobody fitted: what was assumed is named, and predictions are of the right order."""

from __future__ import annotations

import csv
import inspect
import pkgutil

import pytest

import solver.calibration
from benchmarks.accuracy import TARGET
from benchmarks.cross_site import ROWS, Published, predicted, published, request_of, table
from solver.calibration.training import validate_training

ROWS_BY_KEY = {(row["name"], row["quantity"], row["split"]): row for row in published()}


def of(name: str, quantity: str, split: str, batches: str = "512") -> Published:
    """The row, with fewer batches assumed so that it takes less time."""
    return Published({**ROWS_BY_KEY[name, quantity, split].cells, "global_batches": batches})


def test_every_prediction_names_what_was_assumed() -> None:
    for row in published():
        assert bool(row["assumed_fields"]) == row.is_modelled, row["name"]
        assert row["source"]


def test_the_rows_are_all_runs_that_the_field_talks_about() -> None:
    names = {row["name"] for row in published()}
    wanted = ("500 km", "120 km", "Guangdong", "Unicom", "NVIDIA", "INTELLECT-1", "chunk")
    assert all(any(part in name for name in names) for part in wanted)


def test_no_row_is_one_that_a_calibration_can_read() -> None:
    with ROWS.open(newline="", encoding="utf-8") as lines:
        report = validate_training(list(csv.DictReader(lines)))
    assert report.total.rows == 0
    for module in pkgutil.iter_modules(solver.calibration.__path__):
        source = inspect.getsource(__import__(f"solver.calibration.{module.name}", fromlist=["_"]))
        assert "crosssite" not in source


def test_a_pipeline_over_500_km_keeps_what_was_published() -> None:
    low, _ = predicted(of("China Telecom 500 km", "efficiency_pct", "pp"))
    assert low >= 97.0


def test_a_lost_wave_costs_a_share_of_the_published_order() -> None:
    """Published: -40 %; the number of waves, the batch and the overlap are not."""
    low, high = predicted(of("China Telecom 120 km", "wave_down_pct", "dp"))
    assert -60.0 <= low <= high <= -5.0


def test_the_published_rate_of_a_chunk_lies_between_one_card_and_all() -> None:
    for row in published():
        if row["quantity"] == "chunk_gb_per_s":
            low, high = predicted(row)
            assert low < row.number("published_low") < high


def test_the_line_of_a_request_loses_the_wave_that_fails() -> None:
    row = of("China Telecom 120 km", "wave_down_pct", "dp")
    (whole,), (cut,) = (request_of(row, 512, failed_waves=failed).cluster.links for failed in (0, 1))
    assert cut.usable_bytes_per_s(reverse=False) == whole.usable_bytes_per_s(reverse=False) / 2


@pytest.mark.parametrize("name", ["INTELLECT-1 USA", "NCCL chunk 1 MiB"])
def test_the_table_prints_what_is_not_modelled_as_such(name: str) -> None:
    (row,) = (row for row in published() if row["name"] == name)
    assert ("not modelled" in table([row])) == (not row.is_modelled)
    assert row["published_low"] in table([row])


def test_the_document_has_the_table_as_it_is_now() -> None:
    assert table(published()) in TARGET.read_text(encoding="utf-8"), "make accuracy writes it"
