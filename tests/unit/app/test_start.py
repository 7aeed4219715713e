"""A service is ready soon because it imports no solver: child processes do, and they are started beside it."""

from __future__ import annotations

import subprocess
import sys

SOLVERS = ("numba", "llvmlite", "ortools", "scipy", "highspy", "pulp", "numpy", "pandas", "torch")
PROGRAM = f"""
import sys
import app.cli, app.terminal.serving
from app.main import create_app
create_app()
print(",".join(one for one in {SOLVERS} if one in sys.modules))
"""


def test_the_service_itself_imports_no_solver() -> None:
    """They take three seconds of processor time; without them a start takes about one."""
    found = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""
