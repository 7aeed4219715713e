"""Compiled kernels that an earlier text of the solver left behind are never taken for those of the present one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import solver.compiled
from solver.compiled import kernels_digest

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
