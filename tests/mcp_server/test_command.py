"""`isthmus mcp` speaks the protocol over standard input and output, and nothing else there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

import anyio
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

ROOT = Path(__file__).parents[2]


def test_the_command_serves_its_tools_over_standard_input_and_output(tmp_path: Path) -> None:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "app.cli", "mcp", "--server", "http://127.0.0.1:1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        cwd=ROOT,
    )

    async def story(errors: TextIO) -> list[str]:
        async with Client(stdio_client(command, errlog=errors)) as client:
            await client.call_tool("catalogue", {"kind": "gpus"})
            return [one.name for one in (await client.list_tools()).tools]

    with (tmp_path / "errors").open("w") as errors:
        assert "plan" in anyio.run(story, errors)
    assert (tmp_path / "errors").read_text() == "", "hosts keep it; calls are no news"
