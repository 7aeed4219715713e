"""Plays the how-to on launching: isthmus in this process, what starts the job in a shell.

Owns the blocks marked `<!-- starts -->`; all others are the player's.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from app import cli
from tests.build_exports import wide_plan
from tests.docs.player import HOWTOS

NAME = "launch-a-plan.md"
BLOCK = re.compile(r"<!-- (file: [\w.-]+|runs|fails|starts) -->\n```\w*\n(.*?)```", re.DOTALL)
EXIT = {"runs": 0, "fails": 2}


def play_launch(folder: Path, hosts_per_building: int, environment: dict[str, str]) -> None:
    """Everything, in order, on a plan over two buildings; `environment` has the scheduler's commands in its PATH."""
    plan, request = wide_plan(hosts_per_building)
    (folder / "plan.json").write_text(plan.model_dump_json())
    (folder / "request.json").write_text(request.model_dump_json())
    kinds = []
    for kind, content in BLOCK.findall((HOWTOS / NAME).read_text(encoding="utf-8")):
        kinds.append(kind)
        if kind.startswith("file: "):
            (folder / kind.removeprefix("file: ")).write_text(content, encoding="utf-8")
        elif kind == "starts":
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", content], cwd=folder, env=environment,
                                  capture_output=True, text=True, check=False, timeout=400)  # fmt: skip
            assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        else:
            for line in content.splitlines():
                assert _isthmus(line) == EXIT[kind], line
    assert kinds == ["file: hosts", "fails", "runs", "starts", "runs"]


def _isthmus(line: str) -> int:
    program, *arguments = shlex.split(line)
    assert program == "isthmus"
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return int(ended.value.code or 0)
