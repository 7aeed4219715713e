"""A service is ready soon because it imports no solver: child processes do, and they are started beside it."""

from __future__ import annotations

import subprocess
import sys

CALM = """
import asyncio, gc, uvicorn
from fastapi import FastAPI
from app.terminal.serving import _Server

async def start():
    server = _Server(FastAPI(), uvicorn.Config(FastAPI(), port=0, log_config=None))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    await server.shutdown()

assert gc.get_freeze_count() == 0
asyncio.run(start())
print(gc.get_freeze_count())
"""
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


def test_the_collector_passes_over_what_a_started_service_is_made_of() -> None:
    """A look at it all, which a large body brings about, would stop live probes too."""
    found = subprocess.run([sys.executable, "-c", CALM], check=True, capture_output=True, text=True)
    assert int(found.stdout) > 100_000
