"""`isthmus mcp` speaks the protocol over standard input and output, and nothing else there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters

ROOT = Path(__file__).parents[2]


def test_the_command_serves_its_tools_over_standard_input_and_output() -> None:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "app.cli", "mcp", "--server", "http://127.0.0.1:1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        cwd=ROOT,
    )

    async def story() -> list[str]:
        async with Client(command) as client:
            return [one.name for one in (await client.list_tools()).tools]

    assert "plan" in anyio.run(story)
