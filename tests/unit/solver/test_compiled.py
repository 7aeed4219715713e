"""Kernels of an earlier text of the solver are never taken for those of the present one; what they take, they leave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

import solver.compiled
from solver.compiled import compiled, kernels_digest, uncounted
from solver.pipeline.problem import Floats, Ints

RECORD = "from typing import NamedTuple\nclass {name}(NamedTuple):\n    left: float\n    right: float\n"
STEP = "from solver.compiled import compiled\n@compiled\ndef step(value):\n    return value {sign} 1.0\n"
KERNEL = (
    "from solver.compiled import compiled\nfrom solver.steps import step\n"
    "@compiled\ndef total(pair):\n    return step(pair.left) + pair.right\n"
)
CALL = "import solver.record\nfrom solver.kernel import total\nprint(total(solver.record.{name}(2.0, 3.0)))"


def test_a_renamed_record_and_a_changed_step_reach_a_kernel_whose_file_stays(tmp_path: Path) -> None:
    package = tmp_path / "solver"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "compiled.py").write_bytes(Path(solver.compiled.__file__).read_bytes())
    (package / "kernel.py").write_text(KERNEL)
    found = []
    for name, sign in (("Pair", "+"), ("Both", "-"), ("Pair", "+")):
        (package / "record.py").write_text(RECORD.format(name=name))
        (package / "steps.py").write_text(STEP.format(sign=sign))
        found.append(_output(tmp_path, CALL.format(name=name)))
    assert found == ["6.0", "4.0", "6.0"]
    assert len(list((package / "__pycache__").glob("kernels-*"))) == 2


def _output(folder: Path, program: str) -> str:
    free = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
    free["PYTHONDONTWRITEBYTECODE"] = "1"  # else a file of the same size and second passes for the earlier one
    done = subprocess.run(
        (sys.executable, "-c", program), cwd=folder, env=free, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_only_files_with_kernels_or_records_count(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "other.py").write_text("ONE = 1\n")
    before = kernels_digest(tmp_path)
    (tmp_path / "other.py").write_text("ONE = 2\n")
    assert kernels_digest(tmp_path) == before
    (tmp_path / "record.py").write_text(RECORD.format(name="Pair"))
    assert kernels_digest(tmp_path) != before


class Columns(NamedTuple):
    """A record as kernels take it, with another inside."""

    number: int
    values: Floats
    places: tuple[Ints, float]


@compiled
def _doubled(columns: Columns, grid: Floats) -> Floats:
    columns, grid = uncounted((columns, grid))
    for at in range(columns.number):
        columns.values[columns.places[0][at]] += columns.places[1]
    return 2.0 * columns.values + grid[:, 1]


def test_uncounted_arguments_are_read_and_written_and_still_belong_to_the_caller() -> None:
    values, places, grid = np.arange(3.0), np.array([2, 0]), np.arange(6.0).reshape(3, 2)[:, ::-1]
    before = [sys.getrefcount(one) for one in (values, places, grid)]
    found = [_doubled(Columns(2, values, (places, 0.5)), grid) for _ in range(3)]
    assert [one.tolist() for one in found] == [[1.0, 4.0, 9.0], [2.0, 4.0, 10.0], [3.0, 4.0, 11.0]]
    assert values.tolist() == [1.5, 1.0, 3.5]
    assert [sys.getrefcount(one) for one in (values, places, grid)] == before
