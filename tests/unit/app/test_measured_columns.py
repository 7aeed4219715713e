"""The list of columns is what the code reads, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import solver.calibration
from app.api.calibrations import COLUMNS, NEEDED
from solver.calibration.rows import SkipRow, run_of
from solver.calibration.training import packaged_stacks

FOLDER = Path(solver.calibration.__file__).parent
# cells.get("x"), row.get("x"), and the readers that take the cells and a name
READ = re.compile(r"(?:cells|row)\.get\(\"(\w+)\"|_(?:optional|number|positive)\(cells, \"(\w+)\"\)")
ROW = {
    "gpu": "A100-80G", "num_gpus": "8", "tp": "1", "pp": "8", "seq_len": "1024", "gbs": "384", "layers": "22",
    "hidden": "2304", "heads": "24", "iter_time_s": "3.5294",
}  # fmt: skip


def test_the_columns_listed_are_those_that_are_read() -> None:
    files = ("rows.py", "shapes.py", "training.py")
    text = "".join((FOLDER / name).read_text(encoding="utf-8") for name in files)
    assert {first or second for first, second in READ.findall(text)} == set(COLUMNS)


def test_a_row_of_needed_columns_is_enough_and_each_is_needed() -> None:
    assert set(ROW) == {*NEEDED, "iter_time_s"}
    assert run_of(ROW, packaged_stacks()).measured_s == 3.5294
    for name in ROW:
        with pytest.raises(SkipRow):
            run_of({**ROW, name: ""}, packaged_stacks())
