"""What a command imports before it does anything: help is instant, and a short schedule needs little."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("arguments", [("--help",), ("plan", "--help"), ("observe", "--help"), ("--version",)])
def test_help_imports_nothing_of_the_planner(arguments: tuple[str, ...]) -> None:
    code = "import sys; from app import cli\ntry: cli.main(sys.argv[1:])\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True,
                          cwd=ROOT, timeout=120)  # fmt: skip
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded & {"numpy", "ortools", "numba", "sqlalchemy", "fastapi", "httpx2", "solver", "models"}
    assert not loaded & {"rich", "pygments", "markdown_it"}, "drawing help takes as long as the rest of it"


def test_a_short_schedule_imports_no_more_than_it_needs() -> None:
    """What the process of the command imports, and what the process that solves does before the search."""
    code = "import sys, {}; print(*sys.modules)"
    command = _imported(code.format("app.terminal.planning, app.terminal.work, app.terminal.summary, app.documents"))
    solving = _imported(code.format("app.jobs.child, solver.pipeline.solve"))
    assert not command & {"numpy", "numba", "sqlalchemy", "models.plan", "models.questions"}
    assert not solving & {"ortools", "pandas", "models.plan", "models.questions"}


def _imported(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())
