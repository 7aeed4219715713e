"""Plays a how-to from top to bottom in a folder: writes its files, runs its commands, compares what they say.

A comment before a block tells what it is: `<!-- file: NAME -->`, `<!-- runs -->`, `<!-- fails -->` (exit code 2), and
`<!-- says -->` for what the command before it wrote to standard error.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from app import cli

HOWTOS = Path(__file__).resolve().parents[2] / "docs/howto"
BLOCK = re.compile(r"<!-- (file: [\w.-]+|runs|fails|says) -->\n```\w*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    errors: str


def blocks(name: str) -> list[tuple[str, str]]:
    """What a how-to has to play: kind and content."""
    return BLOCK.findall((HOWTOS / name).read_text(encoding="utf-8"))


def commands(name: str) -> list[list[str]]:
    """The words of every command that runs."""
    return [shlex.split(line) for kind, content in blocks(name) if kind == "runs" for line in content.splitlines()]


def play(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything, in order; the folder is the working folder already."""
    said = Said(0, "")
    for kind, content in blocks(name):
        if kind.startswith("file: "):
            (folder / kind.removeprefix("file: ")).write_text(content, encoding="utf-8")
        elif kind == "says":
            assert said.errors.split() == content.split()
        else:
            for line in content.splitlines():
                said = _run(line, capsys)
                assert said.code == (0 if kind == "runs" else 2), said.errors


def _run(command: str, capsys: pytest.CaptureFixture[str]) -> Said:
    program, *arguments = shlex.split(command)
    assert program == "isthmus"
    try:
        cli.main(arguments)
    except SystemExit as leaving:
        return Said(int(leaving.code or 0), capsys.readouterr().err)
    raise AssertionError("a command always leaves with a code")
