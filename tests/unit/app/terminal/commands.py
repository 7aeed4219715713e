"""Runs a command of the terminal in this process, and writes the files that it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app import cli
from app.settings import Settings


def run(settings: Settings | None, *arguments: str) -> int:
    """The exit code of a command, which always leaves with one."""
    with pytest.raises(SystemExit) as leaving:
        cli.main(list(arguments), settings)
    return int(leaving.value.code or 0)


def written(folder: Path, content: Any) -> str:
    """Where a text, or a document as JSON, has been written."""
    path = folder / "input.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)
